"""Scores of events and agents: the one batch entry point of this room.

In go a `ScoringModel` and a table of events (with what came before them as context); out come the two score tables
of the design. The event score is −log₁₀ of the smallest tail share among its terms' losses and its neighbour
distance: it rises with the paper's AS(e) = max of percentiles, and 3 means `one in a thousand is this extreme`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.events.encoder import EventArrays
from ustad.events.windows import Queries, make_queries, make_windows, periods
from ustad.files import as_table
from ustad.scoring.alerts import NOTES, AlertRule, Alerts, alerts
from ustad.scoring.calibration import Parts, apply_tails, corrected_score, highest, log10_tails
from ustad.scoring.explain import kinds, sentences
from ustad.scoring.incidents import Incidents, find_incidents, leading_events
from ustad.scoring.network_columns import Columns, interval_columns, term_columns, to_arrow
from ustad.scoring.network_model import ScoringModel, measure
from ustad.tables import DataError, event_keys
from ustad.ties import tied_ranks

if TYPE_CHECKING:
    import torch

    from ustad.network.inference.sampling import Samples


@dataclass(frozen=True)
class Judged:
    """Scores of n events: log₁₀ tail shares by column, the score, log₁₀ p of scored and of reference events."""

    tails: np.ndarray  # [n, K + 1]
    score: np.ndarray
    log10_p: np.ndarray
    normal: np.ndarray


def judge(model: ScoringModel, parts: Parts, batch: bool) -> Judged:
    """Percentiles by ranks within these events (`batch`, the paper) or against the calibration."""
    calibration = model.calibration
    if batch:
        tails = log10_tails(parts)
        score = highest(tails)
        return Judged(tails, score, *calibration.log10_p_in_batch(parts, score))
    tails = apply_tails(calibration.tails, parts.columns("loss_knn"))
    score = highest(tails)
    return Judged(tails, score, calibration.log10_p(score), calibration.normal)


def score_events(
    model: ScoringModel,
    events: Any,
    context: Any = None,
    first_day: int | None = None,
    device: torch.device | str = "cpu",
    rule: AlertRule | None = None,
    reasons: Literal["flagged", "all", "none"] = "flagged",
    coverage: float | None = None,
) -> tuple[pa.Table, pa.Table]:
    """Event scores in the order of `events`, and agent scores.

    `context` are events before the scored ones; `first_day` leaves earlier local dates of `events` unscored (they
    are context too). `coverage` adds conformal intervals and sets. Notes (threshold, warnings) are in the metadata
    of the event table: `notes(table)`.
    """
    table, arrays, queries = _questions(model, as_table(events, "events"), context, first_day)
    samples, parts = measure(
        model.network.to(device),
        model.encoder,
        model.config,
        model.neighbours,
        arrays,
        queries,
        device,
        keep_probabilities=coverage is not None,
    )
    judged = judge(model, parts, model.config.scoring.percentiles == "batch")
    day = arrays.day[queries.target]
    days = int(day.max() - day.min()) + 1
    shown = table.take(pa.array(arrays.row[queries.target]))
    p_value = np.power(10.0, judged.log10_p)
    incidents = find_incidents(shown, model.encoder.schema, p_value, judged.score)
    flags = alerts(p_value, judged.score, incidents.echo, rule, days, len(model.calibration.parts), incidents.order)
    columns = event_columns(model, shown, arrays, queries, samples, parts, judged, flags, incidents)
    if coverage is not None:
        columns.update(interval_columns(model.encoder, samples, radii(model, coverage)))
    scored = _with_columns(shown, columns)
    entity = arrays.entity[queries.target]
    worst = worst_events(judged, entity)
    told = reasons_of(model, scored, judged, flags, worst, reasons)
    scored = scored.append_column("reason", pa.array(told, pa.string()))
    agents = agent_scores(model, arrays.entity_ids, scored, judged, entity, worst, days)
    order = np.argsort(arrays.row[queries.target], kind="stable")
    return _noted(scored.take(pa.array(order)), flags, rule, coverage), agents


def event_columns(
    model: ScoringModel,
    shown: pa.Table,
    arrays: EventArrays,
    queries: Queries,
    samples: Samples,
    parts: Parts,
    judged: Judged,
    flags: Alerts,
    incidents: Incidents,
) -> Columns:
    """All columns of the event score table but the reason."""
    columns = term_columns(model.encoder, arrays, queries.target, samples)
    percentiles = 1 - np.power(10.0, judged.tails)
    for i, name in enumerate(parts.names):
        columns[f"pct_{name}"] = percentiles[:, i]
    doubts = apply_tails(model.calibration.uncertainty_tails, parts.au + parts.eu)
    kind = kinds(model.encoder, judged.tails, doubts, np.isnan(parts.loss), shown)
    return {
        **columns,
        "knn": parts.knn,
        "pct_knn": percentiles[:, -1],
        "score": judged.score,
        "p_value": np.power(10.0, judged.log10_p),
        "alert": flags.flagged,
        "incident_id": pa.array(incidents.incident_id.tolist(), pa.string()),
        "echo": incidents.echo,
        "kind": kind,
        "history_days": history_days(model, arrays, queries),
    }


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


# ------------------------------------------------------------------------------------------------ steps
def _questions(
    model: ScoringModel, events: pa.Table, context: Any, first_day: int | None
) -> tuple[pa.Table, EventArrays, Queries]:
    """Context and events in one table, its arrays, and a query for every event that is to be scored."""
    schema = model.encoder.schema
    before = 0
    table = events
    if context is not None:
        earlier = as_table(context, "context")
        old, new = (event_keys(t[schema.entity], t[schema.time]) for t in (earlier, events))
        earlier = earlier.filter(pa.array(~np.isin(old, new)))  # an event in both is scored, not context
        before = len(earlier)
        table = pa.concat_tables([earlier, events], promote_options="permissive")
    arrays = model.encoder.encode(table)
    queries = make_queries(arrays, make_windows(arrays, model.config.window, first_day), model.config.window)
    queries = queries.take(np.flatnonzero(arrays.row[queries.target] >= before))
    if not len(queries):
        raise DataError(f"{schema.name}: no event to score on or after the first scored day; check the dates")
    return table, arrays, queries


def _with_columns(table: pa.Table, columns: Columns) -> pa.Table:
    """The table with the columns appended; columns of the same name are replaced."""
    arrow = to_arrow(columns)
    table = table.drop_columns([c for c in table.column_names if c in arrow or c == "reason"])
    for name, values in arrow.items():
        table = table.append_column(name, values)
    return table


def worst_events(judged: Judged, entity: np.ndarray) -> np.ndarray:
    """Row of each entity's most unusual event, in the order of the entities' codes."""
    order = np.lexsort((tied_ranks(-judged.score), entity))
    return order[np.flatnonzero(np.diff(entity[order], prepend=-1))]


def reasons_of(
    model: ScoringModel,
    scored: pa.Table,
    judged: Judged,
    flags: Alerts,
    worst: np.ndarray,
    which: Literal["flagged", "all", "none"],
) -> list[str | None]:
    """Sentences for flagged events and each agent's most unusual one (or all, or none); None elsewhere."""
    told: list[str | None] = [None] * len(scored)
    if which == "none":
        return told
    rows = np.arange(len(scored)) if which == "all" else np.union1d(np.flatnonzero(flags.flagged), worst)
    chosen = scored.take(pa.array(rows))
    facts = model.history.facts(chosen) if model.history is not None and len(rows) else None
    for i, text in zip(rows, sentences(model.encoder, chosen, judged.tails[rows], facts), strict=True):
        told[i] = text
    return told


def agent_scores(
    model: ScoringModel,
    entity_ids: np.ndarray,
    scored: pa.Table,
    judged: Judged,
    entity: np.ndarray,
    worst: np.ndarray,
    days: int,
) -> pa.Table:
    """The agent score table: highest event (or that corrected for how many there are), p from block maxima."""
    schema = model.encoder.schema
    codes, counts = np.unique(entity, return_counts=True)
    smallest = judged.log10_p[worst]
    corrected = model.config.scoring.agent_score == "corrected"
    score = corrected_score(smallest, counts) if corrected else judged.score[worst]
    log10_p = model.calibration.agent_log10_p(smallest, counts, days, corrected, judged.normal)
    label = schema.event_id if schema.event_id in scored.column_names else schema.time
    return pa.table(
        {
            schema.entity: pc.cast(pa.array(entity_ids[codes].tolist()), scored[schema.entity].type),
            "score": score,
            "p_value": np.power(10.0, log10_p),
            "n_events": counts,
            "n_incidents": np.bincount(entity[leading_events(scored)], minlength=len(entity_ids))[codes],
            "worst_incident_id": scored["incident_id"].take(pa.array(worst)),
            f"worst_{label}": scored[label].take(pa.array(worst)),
            "reason": scored["reason"].take(pa.array(worst)),
        }
    )


def _noted(table: pa.Table, flags: Alerts, rule: AlertRule | None, coverage: float | None) -> pa.Table:
    rule = rule or AlertRule()
    content = {
        "rule": rule.kind,
        "value": rule.value,
        "threshold": flags.threshold,
        "alerts": int(flags.flagged.sum()),
        "by_chance": flags.by_chance,
        "coverage": coverage,
        "warnings": list(flags.warnings),
    }
    return table.replace_schema_metadata({**(table.schema.metadata or {}), NOTES: json.dumps(content).encode()})
