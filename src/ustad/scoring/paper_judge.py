"""The paper's judge: an event's score is the highest percentile among its terms' losses and its neighbour distance.

The source is the Transformer: what it expected, its losses, both uncertainties, and how far the event lies from all
events of training. The score is −log₁₀ of the smallest tail share among them: it rises with the paper's AS(e) = max of
percentiles, and 3 means `one in a thousand is this extreme`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from safetensors.numpy import save_file as save_arrays

from ustad.distribution import Distribution, Tail
from ustad.events.encoder import EventArrays
from ustad.events.windows import Queries, make_queries, make_windows, periods
from ustad.schema import EventSchema
from ustad.scoring.calibration import Parts, apply_tails, corrected_score, highest
from ustad.scoring.evidence import evidence_column
from ustad.scoring.explain import kinds, sentences, shares
from ustad.scoring.incidents import find_incidents, leading_events
from ustad.scoring.judge import Span, Wanted, worst_rows
from ustad.scoring.network_columns import interval_columns, term_columns, to_arrow
from ustad.scoring.network_model import ScoringModel, measure
from ustad.scoring.score_table import add_measurements, read_measurements, set_columns
from ustad.tables import DataError, agent_codes, event_keys, identity_hash

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


@dataclass(frozen=True)
class PaperJudge:
    """A network with its reference, on a device."""

    model: ScoringModel
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
    def ranked(self) -> tuple[str, ...]:
        by_rank = self.model.config.scoring.percentiles == "batch"
        return (*(f"loss_{name}" for name in self.model.scored), "knn") if by_rank else ()

    # ------------------------------------------------------------------------------------ scoring
    def measure(
        self, events: pa.Table, context: pa.Table | None, span: Span, wanted: Wanted
    ) -> tuple[pa.Table, pa.Table | None]:
        """In the order of `events`: what was expected, losses, uncertainties, distance and prediction intervals."""
        model = self.model
        table, arrays, queries = _questions(model, events, context)
        samples, parts = measure(
            model.network.to(self.device),
            model.encoder,
            model.config,
            model.neighbours,
            arrays,
            queries,
            self.device,
            keep_probabilities=wanted.coverage is not None,
        )
        columns = term_columns(model.encoder, arrays, queries.target, samples)
        columns |= {"knn": parts.knn, "history_days": history_days(model, arrays, queries)}
        if wanted.coverage is not None:
            columns |= interval_columns(model.encoder, samples, radii(model, wanted.coverage))
        asked_events = table.take(pa.array(arrays.row[queries.target]))
        order = np.argsort(arrays.row[queries.target], kind="stable")
        return add_measurements(asked_events, to_arrow(columns)).take(pa.array(order)), None

    def stand(self, ranks: Sequence[Tail] | None) -> Standing:
        calibration = self.model.calibration
        if ranks is None:
            return Standing(calibration.tails, calibration.score_tail, calibration.normal)
        normal = highest(apply_tails(list(ranks), calibration.parts.columns("loss_knn")))
        tail = Distribution.fit(normal)
        return Standing(list(ranks), tail, tail.log10_tail(normal))

    def settle(self, measurements: pa.Table, standing: Standing) -> pa.Table:
        model, parts = self.model, parts_of_table(read_measurements(measurements), self.model.scored)
        judgement = judge(parts, standing)
        percentiles = 1 - np.power(10.0, judgement.tails)
        doubts = apply_tails(model.calibration.uncertainty_tails, parts.au + parts.eu)
        kind = kinds(model.encoder, judgement.tails, doubts, np.isnan(parts.loss), measurements)
        p_value = np.power(10.0, judgement.log10_p)
        incidents = find_incidents(measurements, self.schema, p_value, judgement.score)
        ranks = {f"pct_{name}": percentiles[:, i] for i, name in enumerate((*parts.names, "knn"))}
        return set_columns(
            add_measurements(measurements, ranks),
            {
                "evidence": _evidence(read_measurements(measurements), parts, judgement),
                "score": judgement.score,
                "p_value": p_value,
                "incident_id": pa.array(incidents.incident_id.tolist(), pa.string()),
                "echo": incidents.echo,
                "final": np.ones(len(measurements), bool),
                "kind": pa.array(kind.tolist(), pa.string()),
                "uncertainty_noise": np.nansum(parts.au.astype(np.float64), axis=1),
                "uncertainty_model": np.nansum(parts.eu.astype(np.float64), axis=1),
            },
        )

    def tell(
        self, event_scores: pa.Table, agents: pa.Table | None, standing: Standing, span: Span, wanted: Wanted
    ) -> tuple[pa.Table, pa.Table]:
        judgement = judge(parts_of_table(read_measurements(event_scores), self.model.scored), standing)
        codes, names = agent_codes(event_scores[self.schema.entity])
        worst = worst_rows(judgement.score, codes)
        rows = np.arange(len(event_scores) if wanted.reasons == "all" else 0)
        if wanted.reasons == "flagged":
            rows = np.union1d(np.flatnonzero(event_scores["alert"].to_numpy(zero_copy_only=False)), worst)
        texts: list[str | None] = [None] * len(event_scores)
        for row, text in zip(rows, self._sentences(event_scores, judgement, rows), strict=True):
            texts[row] = text
        table = set_columns(event_scores, {"reason": pa.array(texts, pa.string())})
        return table, self._agents(names, table, judgement, standing.normal, entity=codes, worst=worst, days=span.days)

    def _sentences(self, table: pa.Table, judgement: Judgement, rows: np.ndarray) -> list[str]:
        events, history = table.take(pa.array(rows)), self.model.history
        facts = history.facts(events) if history is not None and len(rows) else None
        measurements = read_measurements(events)
        events = set_columns(events, dict(zip(measurements.column_names, measurements.columns, strict=True)))
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

    def forget(self, entities: Sequence[Any]) -> PaperJudge:
        return PaperJudge(self.model.forget(entities), self.device)

    def save(self, place: Path) -> None:
        """The network, its reference and the history that its sentences tell of."""
        from safetensors.torch import save_file

        state = self.model.network.state_dict()
        save_file({k: v.cpu().contiguous() for k, v in state.items()}, place / "model.safetensors")
        tensors = {k: np.ascontiguousarray(v) for k, v in self.model.to_tensors().items()}
        save_arrays(tensors, place / "reference.safetensors")
        if self.model.history is not None:
            self.model.history.save(place / "history.parquet")


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


def parts_of_table(table: pa.Table, names: Sequence[str]) -> Parts:
    """What judging needs, read back from a table (errors are in people's units there, so they are left out)."""

    def column(name: str) -> np.ndarray:
        return table[name].cast(pa.float32()).to_numpy(zero_copy_only=False).astype(np.float32)

    loss, au, eu = (
        np.stack([column(f"{what}_{n}") for n in names], axis=1) if names else np.zeros((len(table), 0), np.float32)
        for what in ("loss", "au", "eu")
    )
    return Parts(tuple(names), np.full_like(loss, np.nan), loss, au, eu, column("knn"))


def history_days(model: ScoringModel, arrays: EventArrays, queries: Queries) -> np.ndarray:
    """How much of the window before each event its entity's data could fill (days, events or sessions): int32.

    Less than the window's length means a shorter history than the model was made for.
    """
    first = arrays.offsets[arrays.entity[queries.target]]
    window = model.config.window
    if window.unit == "events":
        return np.minimum(queries.target - first, window.length).astype(np.int32)
    period = periods(arrays, window)
    return np.minimum(period[queries.target] - period[first], window.length).astype(np.int32)


def radii(model: ScoringModel, coverage: float) -> dict[str, float]:
    """Conformal radius of each scored term."""
    names = model.scored
    categories = tuple(t.kind == "category" for t in model.encoder.terms if t.scored)
    return dict(zip(names, model.calibration.radius(coverage, categories).tolist(), strict=True))


def _questions(
    model: ScoringModel, events: pa.Table, context: pa.Table | None
) -> tuple[pa.Table, EventArrays, Queries]:
    """Context and events in one table, its arrays, and a query for every event that is to be scored."""
    schema = model.encoder.schema
    before = 0
    table = events
    if context is not None:
        old, new = (event_keys(t[schema.entity], t[schema.time]) for t in (context, events))
        earlier = context.filter(pa.array(~np.isin(old, new)))  # an event in both is scored, not context
        before = len(earlier)
        table = pa.concat_tables([earlier, events], promote_options="permissive")
    arrays = model.encoder.encode(table)
    queries = make_queries(arrays, make_windows(arrays, model.config.window), model.config.window)
    queries = queries.take(np.flatnonzero(arrays.row[queries.target] >= before))
    if not len(queries):
        raise DataError(f"{schema.name}: there is no event to score; check the dates")
    return table, arrays, queries
