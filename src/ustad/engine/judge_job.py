"""The second pass over measured partitions: percentiles within all scored events, flags, reasons, agents.

In: what a partition measured, and what all partitions say together. Out: its final part of both score tables. The
losses, uncertainties and distances in a measured table are all that judging needs, so the network is not asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ustad.dataset import event_days
from ustad.detector import Detector
from ustad.distribution import Distribution, Tail
from ustad.engine.cluster import import_ray
from ustad.engine.folder import Place
from ustad.engine.jobs import Job, Task
from ustad.engine.merging import MergedRanks, Verdict, survey
from ustad.schema import EventSchema
from ustad.scoring.alerts import AlertRule, Alerts
from ustad.scoring.calibration import Parts, apply_tails, highest
from ustad.scoring.drift_alarm import count_p_values
from ustad.scoring.explain import kinds
from ustad.scoring.incidents import find_incidents, incident_table
from ustad.scoring.network_model import ScoringModel
from ustad.scoring.network_scores import Judged, agent_scores, judge, reasons_of, worst_events
from ustad.tables import DataError, agent_codes
from ustad.ties import tied_ranks

if TYPE_CHECKING:
    from ustad.engine.score_job import Plan


@dataclass(frozen=True)
class Judging:
    """How all partitions are judged. `ranks` are object references, one per column, with ranks within the batch."""

    plan: Plan
    out: Place
    verdict: Verdict = Verdict(AlertRule(), 0.0, 0)
    ranks: tuple[Any, ...] = ()
    tail: Distribution | None = None  # of the reference events' scores by these ranks
    normal: np.ndarray | None = None  # log₁₀ p of the reference events by it

    def with_verdict(self, verdict: Verdict) -> Judging:
        return replace(self, verdict=verdict)

    def judged(self, model: ScoringModel, parts: Parts) -> Judged:
        """Scores of one partition: against the calibration, or by ranks among all scored events."""
        if not self.ranks:
            return judge(model, parts, batch=False)
        assert self.tail is not None
        assert self.normal is not None
        tails = _ranked(self.ranks, parts)
        score = highest(tails)
        return Judged(tails, score, self.tail.log10_tail(score), self.normal)

    def survey(self, name: str) -> dict[str, Any]:
        """What a partition of a batch has to say once its ranks are known."""
        detector = self.plan.model.load(self.plan.device)
        assert detector.model is not None
        table = self.plan.measured.read_table(f"events/{name}.parquet")
        judged = self.judged(detector.model, parts_of_table(table, detector.model.scored))
        p_values, order = np.power(10.0, judged.log10_p), row_order(table, detector.schema)
        echo = find_incidents(table, detector.schema, p_values, judged.score).echo
        return survey(p_values, judged.score, echo, order, self.plan.rule, self.plan.days)


def surveyed(scored: pa.Table, schema: EventSchema, rule: AlertRule, days: float) -> dict[str, Any]:
    """The same of a table whose scores are final."""
    p_values, scores = scored["p_value"].to_numpy(), scored["score"].to_numpy()
    echo = scored["echo"].to_numpy(zero_copy_only=False)
    return survey(p_values, scores, echo, row_order(scored, schema), rule, days)


def row_order(table: pa.Table, schema: EventSchema) -> np.ndarray:
    """Each row's place by entity and time: int64 [n]."""
    codes, _ = agent_codes(table[schema.entity])
    order = np.lexsort((table[schema.time].cast(pa.int64()).to_numpy(), codes))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def parts_of_table(table: pa.Table, names: Sequence[str]) -> Parts:
    """What judging needs, read back from a score table (errors are in people's units there, so they are left out)."""

    def matrix(what: str) -> np.ndarray:
        columns = [_floats(table[f"{what}_{name}"]) for name in names]
        return np.stack(columns, axis=1) if columns else np.zeros((table.num_rows, 0), np.float32)

    loss, au, eu = (matrix(what) for what in ("loss", "au", "eu"))
    return Parts(tuple(names), np.full_like(loss, np.nan), loss, au, eu, _floats(table["knn"]))


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    """Float32 with NaN for null."""
    return column.cast(pa.float32()).to_numpy(zero_copy_only=False).astype(np.float32)


# ---------------------------------------------------------------------------------------------------- ranks
def merge_ranks(job: Job, judging: Judging, names: list[str], detector: Detector) -> Judging:
    """Ranks of each column among all scored events: one task per column, which holds that column alone."""
    model = detector.model
    assert model is not None
    columns = [*(f"loss_{name}" for name in model.scored), "knn"]
    place = job.place / "ranks"
    tasks = [Task(f"{i:03d}-{name}", (name, names)) for i, name in enumerate(columns)]
    job.run("ranks", tasks, _merge_column, (judging.plan.measured, place), "ranking, columns")
    rank_tables = [_read_ranks(place, name) for name in columns]
    reference = model.calibration.parts.columns("loss_knn")
    scores = highest(np.stack([m.log10_tail(c) for m, c in zip(rank_tables, reference.T, strict=True)], axis=1))
    tail = Distribution.fit(scores)
    ray = import_ray()
    shared = tuple(ray.put(one) for one in rank_tables)
    return replace(judging, ranks=shared, tail=tail, normal=tail.log10_tail(scores))


def _merge_column(payload: tuple[str, list[str]], shared: tuple[Place, Place]) -> dict[str, Any]:
    (column, names), (measured, place) = payload, shared
    parts = [_floats(measured.read_table(f"events/{name}.parquet", [column])[column]) for name in names]
    ranks = MergedRanks.of(parts)
    table = pa.table({"value": ranks.values}).replace_schema_metadata({"count": str(ranks.count)})
    place.write_table(table, f"{column}.parquet")
    return {"count": ranks.count}


def _read_ranks(place: Place, column: str) -> MergedRanks:
    table = place.read_table(f"{column}.parquet")
    return MergedRanks(table["value"].to_numpy(), int(table.schema.metadata[b"count"]))


def _ranked(ranks: Sequence[Any], parts: Parts) -> np.ndarray:
    """log₁₀ tail shares by merged ranks, one column in memory at a time: [n, K + 1]."""
    ray = import_ray()
    columns = parts.columns("loss_knn").T
    return np.stack([ray.get(rank).log10_tail(column) for rank, column in zip(ranks, columns, strict=True)], axis=1)


# ------------------------------------------------------------------------------------------------- last words
def tell(name: str, judging: Judging) -> dict[str, Any]:
    """Write the final part of both tables."""
    plan = judging.plan
    detector = plan.model.load(plan.device)
    table = plan.measured.read_table(f"events/{name}.parquet")
    if detector.habits is None:
        table, agents = _tell_paper(detector, table, judging, name)
    else:
        table = _tell_habits(detector, table, judging, name)
        agents = plan.measured.read_table(f"agents/{name}.parquet")
    for one, what in ((table, "event"), (agents, "agent")):
        if not np.isfinite(one["score"].to_numpy()).all():
            raise DataError(f"a score of an {what} is not a finite number; the model or its data is damaged")
    judging.out.write_table(table.replace_schema_metadata(None), f"events/{name}.parquet")
    judging.out.write_table(agents, f"agents/{name}.parquet")
    judging.out.write_table(incident_table(table, detector.schema), f"incidents/{name}.parquet")
    counts = count_p_values(event_days(table, detector.schema), table["p_value"].to_numpy())
    alerts = int(np.sum(table["alert"].to_numpy()))
    return {"events": table.num_rows, "agents": agents.num_rows, "alerts": alerts, "p_values": counts}


def _tell_paper(detector: Detector, table: pa.Table, judging: Judging, name: str) -> tuple[pa.Table, pa.Table]:
    model, plan = detector.model, judging.plan
    assert model is not None
    parts = parts_of_table(table, model.scored)
    judged = judging.judged(model, parts)
    p_values = np.power(10.0, judged.log10_p)
    incidents = find_incidents(table, detector.schema, p_values, judged.score)
    flags = Alerts(judging.verdict.flags(name, p_values, incidents.echo), judging.verdict.threshold)
    table = _set(table, {**_percentiles(model, table, parts, judged), "score": judged.score, "p_value": p_values})
    table = _set(table, {"incident_id": pa.array(incidents.incident_id.tolist(), pa.string()), "echo": incidents.echo})
    table = _set(table, {"alert": flags.flagged})
    codes, ids = agent_codes(table[detector.schema.entity])
    worst = worst_events(judged, codes)
    reasons = reasons_of(model, table, judged, flags, worst, "flagged")
    table = _set(table, {"reason": pa.array(reasons, pa.string())})
    return table, agent_scores(model, ids, table, judged, codes, worst, plan.last_day - plan.first_day + 1)


def _tell_habits(detector: Detector, table: pa.Table, judging: Judging, name: str) -> pa.Table:
    """Flags, and reasons where they are shown."""
    plan = judging.plan
    echo = table["echo"].to_numpy(zero_copy_only=False)
    is_alert = judging.verdict.flags(name, table["p_value"].to_numpy(), echo)
    reasons = table["reason"].to_pylist()
    if any(flag and reason is None for flag, reason in zip(is_alert, reasons, strict=True)):
        reasons = _all_reasons(plan, int(name))
    codes, _ = agent_codes(table[detector.schema.entity])
    has_sentence = is_alert.copy()
    order = np.lexsort((tied_ranks(-table["score"].to_numpy()), codes))
    has_sentence[order[np.flatnonzero(np.diff(codes[order], prepend=-1))]] = True
    sentences = [reason if show else None for reason, show in zip(reasons, has_sentence, strict=True)]
    return _set(table, {"alert": is_alert, "reason": pa.array(sentences, pa.string())})


def _all_reasons(plan: Plan, number: int) -> list[str | None]:
    """More was flagged than was foreseen: the partition is asked again for all its reasons."""
    from ustad.engine.score_job import measure

    detector = plan.model.load_bucket(plan.device, plan.habits, number)
    data, split = plan.buckets.read(number), plan.split
    events = data.between(split.test_first, split.test_last) if split else data.events
    before = data.between(split.train_first, split.test_first - 1) if split else None
    span, every = (plan.first_day, plan.last_day), AlertRule("top", events.num_rows)
    event_scores, _ = measure(detector, events, before, data.trips, plan.period, span, every)
    return event_scores["reason"].to_pylist()


def _percentiles(model: ScoringModel, table: pa.Table, parts: Parts, judged: Judged) -> dict[str, Any]:
    """The columns that follow from tail shares: percentiles and the kind of each event."""
    shares = 1 - np.power(10.0, judged.tails)
    tails: list[Tail] = list(model.calibration.uncertainty_tails)
    doubts = apply_tails(tails, parts.au + parts.eu)
    kind = kinds(model.encoder, judged.tails, doubts, np.isnan(parts.loss), table)
    columns = {f"pct_{name}": shares[:, i] for i, name in enumerate(parts.names)}
    return {**columns, "pct_knn": shares[:, -1], "kind": pa.array(kind.tolist(), pa.string())}


def _set(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """The table with columns replaced where they are."""
    for name, values in columns.items():
        column = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
        table = table.set_column(table.column_names.index(name), name, column)
    return table
