"""The paper's judge: an event's score is the highest percentile among its terms' losses and its neighbour distance.

The source is the Transformer: what it expected, its losses, both uncertainties, and how far the event lies from all
events of training. The score is −log₁₀ of the smallest tail share among them. It rises with the paper's AS(e), the
highest percentile. A score of 3 means that one event in a thousand is as extreme in the loss or distance that decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.config import Config
from ustad.distribution import Distribution, Tail
from ustad.events.encoder import Encoder
from ustad.events.visit_counts import History
from ustad.files import set_columns
from ustad.schema import EventSchema
from ustad.scoring.calibration import Calibration, Parts, apply_tails, corrected_score, highest
from ustad.scoring.evidence import evidence_column
from ustad.scoring.explain import kinds, sentences, shares
from ustad.scoring.incidents import Count, find_incidents, leading_events
from ustad.scoring.judge import Request, Span, worst_rows
from ustad.scoring.score_table import add_measurements, read_measurements
from ustad.tables import agent_codes, identity_hash

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Standing:
    """How measured columns become scores."""

    tails: list[Tail]  # of every column: ranks among all scored events (the paper), or the reference's
    tail: Distribution  # of the highest of them in normal events
    normal: np.ndarray  # log₁₀ p of the reference events by it


@dataclass(frozen=True)
class Judgement:
    """n events by a standing."""

    tails: np.ndarray  # log₁₀ tail shares by column [n, K + 1]
    score: np.ndarray
    log10_p: np.ndarray


class PaperSource(Protocol):
    """A network with its reference, as the judge sees it; `network_model.py` has the one there is."""

    @property
    def encoder(self) -> Encoder: ...

    @property
    def config(self) -> Config: ...

    @property
    def calibration(self) -> Calibration: ...

    @property
    def history(self) -> History | None:
        """What its sentences tell of."""

    @property
    def scored_terms(self) -> tuple[str, ...]:
        """Names of the terms that are part of the score."""

    def ask(
        self, events: pa.Table, context: pa.Table | None, device: torch.device | str, coverage: float | None = None
    ) -> pa.Table:
        """The events in their order with what was measured (`score_table.add_measurements`)."""

    def forget(self, entities: Iterable[Any]) -> Self: ...

    def index_neighbours(self) -> dict[str, float] | None: ...

    def save(self, place: Path) -> None: ...


Model = TypeVar("Model", bound=PaperSource)


@dataclass(frozen=True)
class PaperJudge(Generic[Model]):
    """A network with its reference, on a device."""

    model: Model
    device: torch.device | str = "cpu"

    @property
    def schema(self) -> EventSchema:
        return self.model.encoder.schema

    @property
    def reference(self) -> int:
        return len(self.model.calibration.parts)

    @property
    def known_until(self) -> int | None:
        return None

    @property
    def ranked_columns(self) -> tuple[str, ...]:
        by_rank = self.model.config.scoring.percentiles == "batch"
        return (*(f"loss_{name}" for name in self.model.scored_terms), "knn") if by_rank else ()

    @property
    def counts(self) -> tuple[Count, ...]:
        return ()

    # ------------------------------------------------------------------------------------ scoring
    def measure(
        self, events: pa.Table, context: pa.Table | None, span: Span, request: Request
    ) -> tuple[pa.Table, pa.Table | None]:
        """In the order of `events`: what was expected, losses, uncertainties, distance and prediction intervals."""
        return self.model.ask(events, context, self.device, request.coverage), None

    def stand(self, ranks: Sequence[Tail] | None) -> Standing:
        calibration = self.model.calibration
        if ranks is None:
            return Standing(calibration.tails, calibration.score_tail, calibration.normal)
        normal = highest(apply_tails(list(ranks), calibration.parts.columns("loss_knn")))
        tail = Distribution.fit(normal)
        return Standing(list(ranks), tail, tail.log10_tail(normal))

    def settle(self, measurements: pa.Table, standing: Standing) -> pa.Table:
        model, parts = self.model, parts_to_judge(read_measurements(measurements), self.model.scored_terms)
        judgement = judge(parts, standing)
        percentiles = 1 - np.power(10.0, judgement.tails)
        doubts = apply_tails(model.calibration.uncertainty_tails, parts.au + parts.eu)
        kind = kinds(model.encoder, judgement.tails, doubts, np.isnan(parts.loss), table=measurements)
        p_value = np.power(10.0, judgement.log10_p)
        incidents = find_incidents(measurements, self.schema, p_value, judgement.score)
        ranks = {f"pct_{name}": percentiles[:, i] for i, name in enumerate((*parts.names, "knn"))}
        return set_columns(
            add_measurements(measurements, ranks),
            evidence=_evidence(read_measurements(measurements), parts, judgement),
            score=judgement.score,
            p_value=p_value,
            incident_id=pa.array(incidents.incident_id.tolist(), pa.string()),
            echo=incidents.echo,
            final=np.ones(len(measurements), bool),
            kind=pa.array(kind.tolist(), pa.string()),
            uncertainty_noise=np.nansum(parts.au.astype(np.float64), axis=1),
            uncertainty_model=np.nansum(parts.eu.astype(np.float64), axis=1),
        )

    def tell(
        self, event_scores: pa.Table, agents: pa.Table | None, standing: Standing, *, span: Span, request: Request
    ) -> tuple[pa.Table, pa.Table]:
        judgement = judge(parts_to_judge(read_measurements(event_scores), self.model.scored_terms), standing)
        codes, names = agent_codes(event_scores[self.schema.entity])
        worst = worst_rows(judgement.score, codes)
        rows = np.arange(len(event_scores) if request.reasons == "all" else 0)
        if request.reasons == "flagged":
            rows = np.union1d(np.flatnonzero(event_scores["alert"].to_numpy(zero_copy_only=False)), worst)
        texts: list[str | None] = [None] * len(event_scores)
        for row, text in zip(rows, self._sentences(event_scores, judgement, rows), strict=True):
            texts[row] = text
        table = set_columns(event_scores, reason=pa.array(texts, pa.string()))
        return table, self._agents(names, table, judgement, standing.normal, entity=codes, worst=worst, days=span.days)

    def _sentences(self, table: pa.Table, judgement: Judgement, rows: np.ndarray) -> list[str]:
        events, history = table.take(pa.array(rows)), self.model.history
        facts = history.facts(events) if history is not None and len(rows) else None
        measurements = read_measurements(events)
        events = set_columns(events, **dict(zip(measurements.column_names, measurements.columns, strict=True)))
        return sentences(self.model.encoder, events, judgement.tails[rows], facts)

    def _agents(
        self,
        names: np.ndarray,
        event_scores: pa.Table,
        judgement: Judgement,
        normal: np.ndarray,
        *,
        entity: np.ndarray,
        worst: np.ndarray,
        days: int,
    ) -> pa.Table:
        """The agent score table: highest event (or that corrected for how many there are), p from block maxima."""
        schema, model = self.schema, self.model
        counts = np.bincount(entity, minlength=len(names))
        smallest = judgement.log10_p[worst]
        by_count = model.config.scoring.agent_score == "corrected"
        score = corrected_score(smallest, counts) if by_count else judgement.score[worst]
        log10_p = model.calibration.agent_log10_p(smallest, counts, days, by_count, normal=normal)
        label = schema.event_id if schema.event_id in event_scores.column_names else schema.time
        return pa.table(
            {
                schema.entity: pc.cast(pa.array(names.tolist()), event_scores[schema.entity].type),
                "score": score,
                "p_value": np.power(10.0, log10_p),
                "n_events": counts,
                "n_incidents": np.bincount(entity[leading_events(event_scores)], minlength=len(names)),
                "worst_incident_id": event_scores["incident_id"].take(pa.array(worst)),
                f"worst_{label}": event_scores[label].take(pa.array(worst)),
                "reason": event_scores["reason"].take(pa.array(worst)),
            }
        )

    # ------------------------------------------------------------------------------------ keeping
    def knows(self, entities: np.ndarray) -> np.ndarray:
        history = self.model.history
        return identity_hash(pc.unique(history.table["entity"]).to_pylist()) if history else entities

    def forget(self, entities: Sequence[Any]) -> PaperJudge[Model]:
        return replace(self, model=self.model.forget(entities))

    def facts(self) -> dict[str, Any]:
        """How well neighbours are found live, measured."""
        return {"neighbours": self.model.index_neighbours()}

    def name_places(self, stays: pa.Table, radius_m: float) -> Sequence[str | None]:
        return [None] * stays.num_rows

    def with_histories(self, table: pa.Table) -> PaperJudge[Model]:
        """Windows are all that it knows of an entity."""
        return self

    def save(self, place: Path) -> None:
        """The network, its reference and the history that its sentences tell of."""
        self.model.save(place)


def judge(parts: Parts, standing: Standing) -> Judgement:
    tails = apply_tails(standing.tails, parts.columns("loss_knn"))
    score = highest(tails)
    return Judgement(tails, score, standing.tail.log10_tail(score))


def _evidence(measurements: pa.Table, parts: Parts, judgement: Judgement) -> pa.Array:
    names = (*parts.names, "knn")
    surprise = np.where(np.isnan(judgement.tails), np.nan, -judgement.tails)
    share = shares(judgement.tails)
    numbers: dict[str, dict[str, np.ndarray]] = {"knn": {"observed": parts.knn}}
    for i, name in enumerate(parts.names):
        numbers[name] = {"noise": parts.au[:, i], "doubt": parts.eu[:, i]}
        for what in ("expected", "observed", "spread"):
            column = measurements[f"{what}_{name}"] if f"{what}_{name}" in measurements.column_names else None
            if column is not None and pa.types.is_floating(column.type):
                numbers[name][what] = column.to_numpy(zero_copy_only=False)
    answers, portions = ({name: values[:, i] for i, name in enumerate(names)} for values in (surprise, share))
    return evidence_column(answers, portions, numbers)


def parts_to_judge(table: pa.Table, names: Sequence[str]) -> Parts:
    """What judging needs, read back from a table (errors are in people's units there, so they are left out)."""

    def column(name: str) -> np.ndarray:
        return table[name].cast(pa.float32()).to_numpy(zero_copy_only=False).astype(np.float32)

    loss, au, eu = (
        np.stack([column(f"{what}_{n}") for n in names], axis=1) if names else np.zeros((len(table), 0), np.float32)
        for what in ("loss", "au", "eu")
    )
    return Parts(tuple(names), np.full_like(loss, np.nan), loss, au, eu, column("knn"))
