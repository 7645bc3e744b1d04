"""USTAD with uncertainties switched off: USTAD-AU, USTAD-EU, USTAD-none, and Dual-Tr for prediction.

The paper's ablation study: the same dual Transformer with aleatoric uncertainty only, epistemic only, or neither.
Dual-Tr is the last under the name that the paper uses for masked prediction. Each of them is the detector with two
settings changed. `predict(…, reject=0.05)` withholds the most uncertain share, which with both uncertainties on is the
paper's USTAD with rejection.

Where we had to decide:
- Trips are left out, as for every baseline.
- Without EU one pass stands for all T; where AU is on, the noise on its logits is drawn T times.
- Uncertainty to reject by is the sum over the features.
- A search tries other values of λ than 1, which the paper sets "for simplicity".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ustad.config import Config, ConfigError, setting
from ustad.detector import Detector
from ustad.events.encoder import Encoder
from ustad.lab.baselines.base import Baseline, TwoPeriods, search_field
from ustad.lab.baselines.deep import share_asked
from ustad.lab.baselines.fitting import describe_facts, loop_settings
from ustad.lab.baselines.networks import DeepSettings
from ustad.lab.baselines.protocol import Abilities
from ustad.lab.prediction import most_certain
from ustad.schema import EventSchema
from ustad.scores import Scores

LAMBDAS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class AblationSettings(DeepSettings):
    """What can be chosen."""

    blocks: int = search_field(4, (3, 4, 5), "M2, blocks of the event-level Transformer, as the paper searches them")
    category_weight: float = search_field(
        1.0, LAMBDAS, "λ, the weight of the categorical losses; the paper sets 1, the other values are ours"
    )
    samples: int = setting(50, "T, Monte-Carlo samples per event where AU or EU is on, as in the paper")
    neighbours: int = setting(150, "k of the mean distance to the nearest training events, as in the paper")


class Ustad(Baseline):
    """USTAD without trips, under the same budget as the baselines."""

    name: ClassVar[str] = "ustad-plain"
    abilities: ClassVar[Abilities] = Abilities(scores_events=True, scores_agents=True, predicts=True, causal=False)
    settings_class: ClassVar[type] = AblationSettings
    uncertainty: ClassVar[str] = "both"
    scaling: ClassVar[str] = "spread"

    def __init__(self, schema: EventSchema | None = None, seed: int = 7, device: str = "auto", **settings: Any) -> None:
        super().__init__(schema, seed, device, **settings)
        self.detector = Detector(self._config(), device)

    @property
    def encoder(self) -> Encoder:
        return self.detector._encoder()

    def _config(self) -> Config:
        """The paper's preset with the common budget; without uncertainties nothing is drawn."""
        settings = self.settings
        return Config.preset("paper").replace(
            {
                "seed": self.seed,
                "model.trips": "none",
                "model.width": settings.width,
                "model.heads": settings.heads,
                "model.event_blocks": settings.blocks,
                "model.uncertainty": self.uncertainty,
                "model.scaling": self.scaling,
                "window.length": settings.window_days,
                "window.max_events": settings.max_events,
                "scoring.samples": settings.samples if self.uncertainty != "none" else 1,
                "scoring.neighbours": settings.neighbours,
                "training.mask_ratio": settings.mask_ratio,
                "training.category_weight": settings.category_weight,
                **loop_settings(settings, self.targets_an_epoch()),
            }
        )

    def targets_an_epoch(self) -> float:
        return share_asked(self.settings, self.settings.mask_ratio)

    def _learn(self, train: pa.Table, validation: pa.Table) -> None:
        boundary = int(TwoPeriods(validation, self.schema).days().min())
        events = pa.concat_tables([train, validation], promote_options="default")
        self.detector.fit(TwoPeriods(events, self.schema, meta={"boundary": boundary}))
        facts = self.detector.facts
        # Without λ: with it, a larger λ would make the same predictions look worse.
        self.validation_loss = facts["validation_unweighed"]
        self.training = describe_facts(facts, self.targets_an_epoch() * train.num_rows)

    def score(self, events: Any, context: Any = None) -> Scores:
        """The detector's own tables: scores with reasons, and expected values and uncertainties in the details."""
        scores = self.detector.score(*self.scored_part(events, context), everything=True, details=True)
        return Scores(scores.events, scores.agents, {**scores.run, "method": self.name}, details=scores.details)

    def predict(self, events: Any, context: Any = None, reject: float = 0.0) -> pa.Table:
        """Expected and observed values of every event; with `reject`, without the most uncertain share of events."""
        if not 0 <= reject < 1:
            raise ConfigError(f"reject must be at least 0 and below 1, got {reject}")
        if reject and self.uncertainty == "none":
            raise ConfigError(f"{self.name} has no uncertainty to reject by")
        table = self.score(events, context).with_details()
        if reject:
            parts = [table[c].to_numpy() for c in table.column_names if c.startswith(("au_", "eu_"))]
            table = table.filter(pa.array(most_certain(np.nansum(parts, axis=0), reject)))
        schema = self.schema
        keys = [schema.event_id, schema.entity, schema.time, schema.end]
        values = [c for c in table.column_names if c.startswith(("expected_", "observed_"))]
        return table.select([*(c for c in keys if c is not None and c in table.column_names), *values])


class UstadAu(Ustad):
    """USTAD-AU: the dual Transformer with aleatoric uncertainty only."""

    name: ClassVar[str] = "ustad-au"
    uncertainty: ClassVar[str] = "aleatoric"


class UstadEu(Ustad):
    """USTAD-EU: the dual Transformer with epistemic uncertainty only."""

    name: ClassVar[str] = "ustad-eu"
    uncertainty: ClassVar[str] = "epistemic"


class UstadNone(Ustad):
    """USTAD-none: the dual Transformer without uncertainty."""

    name: ClassVar[str] = "ustad-none"
    uncertainty: ClassVar[str] = "none"


class DualTransformerOnly(UstadNone):
    """Dual-Tr: the uncertainty-free variant of USTAD, as the paper calls it for masked prediction."""

    name: ClassVar[str] = "dual-tr"
