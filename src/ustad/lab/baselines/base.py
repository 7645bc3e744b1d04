"""What the baselines share beside their idea: settings, periods of a data set, score tables, storing.

A baseline says how it learns from two tables (`_learn`), how it rates events or agents (`_rate`, `_rate_agents`)
and what must be kept of it (`_state`, `_restore`). Everything else stands here once.
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import torch

from ustad.config import Config, ConfigError, SplitConfig
from ustad.dataset import Dataset, Split, event_days, load_directory
from ustad.files import as_table
from ustad.lab.baselines.fitting import LossFunction, describe_training, fit_network, loop_settings
from ustad.lab.baselines.protocol import Abilities, agents_by_worst, event_table, events_of
from ustad.network.training.loop import FitResult
from ustad.periods import scored_days, training_periods
from ustad.schema import EventSchema, Feature, mobility_schema
from ustad.scores import Scores
from ustad.tables import DataError
from ustad.torch_device import choose_device


def search_field(default: Any, choices: tuple[Any, ...], about: str) -> Any:
    """A documented setting that `search` tries the choices of: the paper's search space."""
    return field(default=default, metadata={"about": about, "search": choices})


@dataclass(frozen=True)
class NoSettings:
    """Nothing to choose."""


@dataclass
class State:
    """What a fitted baseline is, in parts that can be written without executing anything when read back."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


class Baseline:
    """The protocol of the detector around one idea. `make(name, schema, seed, device=…, **settings)`."""

    name: ClassVar[str]
    abilities: ClassVar[Abilities]
    settings_class: ClassVar[type] = NoSettings
    needs_validation: ClassVar[bool] = True  # False: a lone table is learned from whole
    networks: ClassVar[int] = 1  # trained one after the other, each within the limit of time
    network: Any  # of the deep ones

    def __init__(self, schema: EventSchema | None = None, seed: int = 7, device: str = "auto", **settings: Any) -> None:
        self.schema = schema or mobility_schema()
        self.seed = seed
        self.device = choose_device(device)
        self.settings: Any = read_settings(self.settings_class, settings, self.name)
        self.fitted = False
        self.validation_loss: float | None = None  # what settings are chosen by; never a label
        self.training: dict[str, Any] = {}  # how a network was trained: epochs, steps, targets, losses, seconds
        self.last_day: str | None = None  # of the training events

    # ---------------------------------------------------------------------------------------- protocol
    def fit(self, train: Any, validation: Any = None) -> Self:
        """Learn from training events; validation events stop early and set thresholds. Never sees labels.

        A data set (or its directory) alone is divided by its dates; a table alone keeps its last quarter of days
        for validation.
        """
        parts = fitting_parts(train, validation, self.schema, self.needs_validation)
        self._learn(*parts)
        self.last_day = str(np.datetime64(int(event_days(parts[0], self.schema).max()), "D"))
        self.fitted = True
        return self

    def score(self, events: Any, context: Any = None) -> Scores:
        """Score events and agents, as far as this baseline can.

        A data set is scored in its test part, or whole where it begins after the training events.
        """
        table, before = self.scored_part(events, context)
        if self.abilities.scores_events:
            score = self._rate(table, before)
            return self._scores(event_table(table, self.schema, score), agents_by_worst(table, self.schema, score))
        return self._scores(None, self._rate_agents(table))

    def scored_part(self, events: Any, context: Any = None) -> tuple[pa.Table, pa.Table | None]:
        """The events that `score` would score, and what it would take as their past."""
        if not self.fitted:
            raise DataError(f"{self.name}: fit it on training events before scoring")
        return scoring_parts(events, context, self.schema, self.last_day)

    def _scores(self, events: pa.Table | None, agents: pa.Table | None) -> Scores:
        facts = {"method": self.name, "seed": self.seed, "settings": dataclasses.asdict(self.settings)}
        return Scores(events, agents, facts)

    # ---------------------------------------------------------------------------------------- the idea
    def _learn(self, train: pa.Table, validation: pa.Table) -> None:
        """Fit on the two tables (nothing, where there is nothing to learn)."""

    def targets_an_epoch(self) -> float:
        """How often an epoch of training asks about each training event (or day)."""
        return 1.0

    def loop_config(self) -> Config:
        """The detector's configuration with this baseline's budget; the rest as in the paper."""
        return Config().replace({"seed": self.seed, **loop_settings(self.settings, self.targets_an_epoch())})

    def _fit_network(
        self, loss: LossFunction, lengths: tuple[np.ndarray, np.ndarray], targets: int, label: str | None = None
    ) -> None:
        """The detector's loop on `self.network`, with this baseline's budget; keeps how it went.

        `lengths` of the items to train and to validate on; `targets` are events (or days) of the training period.
        """
        result = fit_network(
            self.network, loss, lengths, self.loop_config(), device=self.device, label=label or self.name
        )
        self._keep_training(result, targets)

    def _keep_training(self, result: FitResult, targets: int) -> None:
        self.validation_loss = result.best_loss
        self.training = describe_training(result, targets * self.targets_an_epoch())

    def _rate(self, events: pa.Table, context: pa.Table | None) -> np.ndarray:
        """A score per row, in the order of the rows: float64 [n]."""
        raise DataError(f"{self.name} scores agents only")

    def _rate_agents(self, events: pa.Table) -> pa.Table:
        """A table of agents and their scores."""
        raise DataError(f"{self.name} scores events, and agents by their events")

    # ----------------------------------------------------------------------------------------- storing
    def state(self) -> State:
        """What has to be kept to score later."""
        if not self.fitted:
            raise DataError(f"{self.name}: fit it before saving it")
        return self._state()

    def restore(self, state: State) -> None:
        """Become what `state` was taken from."""
        self._restore(state)
        self.fitted = True

    def _state(self) -> State:
        return State()

    def _restore(self, state: State) -> None:
        """Nothing to take over."""


class TwoPeriods(Dataset):
    """Training events followed by validation events; the boundary is the first day of validation."""

    def split(self, config: SplitConfig) -> Split:
        days = self.days()
        first, last = int(days.min()), int(days.max())
        return Split(first, int(self.meta["boundary"]), last + 1, last)


# -------------------------------------------------------------------------------------------- the parts
def read_settings(kind: type, content: dict[str, Any], name: str) -> Any:
    """Settings of a baseline from keywords; unknown ones are refused with a suggestion."""
    names = [f.name for f in dataclasses.fields(kind)]
    for key in content:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"; did you mean '{near[0]}'?" if near else f" (known: {', '.join(names) or 'none'})"
            raise ConfigError(f"{name}: unknown setting '{key}'{hint}")
    return kind(**content)


def fitting_parts(train: Any, validation: Any, schema: EventSchema, divide: bool) -> tuple[pa.Table, pa.Table]:
    """Training and validation events, from two sources or from one that is divided by date."""
    if validation is not None:
        return events_of(train, schema, "training"), events_of(validation, schema, "validation")
    data = _as_data(train)
    if not isinstance(data, Dataset):
        table = events_of(data, schema, "training")
        if not divide:
            return table, table.slice(0, 0)
        data = Dataset(events=table, schema=schema, meta={"training": True})
    periods = training_periods(data, Config())
    return periods.train, periods.validation


def scoring_parts(
    events: Any, context: Any, schema: EventSchema, last_day: str | None = None
) -> tuple[pa.Table, pa.Table | None]:
    """Events to score and what came before them; a data set gives its test part and the weeks before.

    One that begins after `last_day` (the last of training) or is too short for a test part is scored whole.
    """
    data = _as_data(events)
    if isinstance(data, Dataset) and context is None:
        split = scored_days(data, SplitConfig(), last_day)
        if split is None:
            return events_of(data, schema), None
        return (
            data.between(split.test_first, split.test_last),
            data.between(split.train_first, split.test_first - 1),
        )
    before = None if context is None else events_of(context, schema, "context")
    return events_of(data, schema), before


def place_feature(schema: EventSchema, name: str) -> Feature:
    """The schema's place, for baselines that live on a map."""
    feature = next((f for f in schema.features if f.kind == "place"), None)
    if feature is None:
        raise DataError(f"{name}: needs a place, but the schema '{schema.name}' has none")
    return feature


def without(schema: EventSchema, *kinds: str) -> EventSchema:
    """The schema without features of these kinds: what a baseline cannot take."""
    features = tuple(f for f in schema.features if f.kind not in kinds)
    if not features:
        raise DataError(f"schema '{schema.name}': no feature is left that this baseline can take")
    return dataclasses.replace(schema, features=features)


def _as_data(source: Any) -> Any:
    if isinstance(source, (str, Path)) and Path(source).is_dir():
        return load_directory(Path(source))
    return source if isinstance(source, Dataset) else as_table(source, "events")
