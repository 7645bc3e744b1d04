"""The overview: counts, figures, lanes of the top agents by day, ranked events and agents.

In: the identifying columns of all scored events. Out: small dictionaries for the page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.report.source import IDENTIFYING, ReportInput, rows_of
from ustad.report.words import numbers, rounded, span, texts, wall_clock
from ustad.schema import EventSchema
from ustad.tables import DataError, agent_codes
from ustad.ties import lowered, tied_ranks

SMALLEST_P = 1e-12
RULES = {
    "alerts_per_day": "{:g} a day if nothing happens",
    "fdr": "at most {:.0%} false alarms",
    "top": "the first {:g}",
}
UNSHOWN = ("loss_", "error_", "knn")  # columns of a score table that no view shows


@dataclass(frozen=True)
class Scored:
    """All scored events by column, in the table's order, and agents in order of rank."""

    table: pa.Table  # identifying columns, uncertainties and percentiles
    schema: EventSchema
    codes: np.ndarray  # agent code of each event
    names: np.ndarray  # agents by code
    score: np.ndarray
    p: np.ndarray
    surprise: np.ndarray  # −log10 p
    alert: np.ndarray
    day: np.ndarray
    ranked: np.ndarray  # event rows, most unusual first
    agents: pa.Table  # most unusual first
    agent_order: np.ndarray  # agent codes, most unusual first


def read_scored(source: ReportInput) -> Scored:
    """Read the columns that every event is asked for."""
    schema, present = source.schema, source.events.schema.names
    for name in (schema.entity, schema.time, "score"):
        if name not in present:
            raise DataError(f"event scores: missing column {name}; found {', '.join(present) or 'no columns'}")
    wanted = [schema.entity, schema.time, schema.event_id, schema.timezone, *IDENTIFYING]
    wanted += [name for name in present if name.startswith(("eu_", "au_", "pct_"))]
    table = source.events.to_table(columns=[name for name in dict.fromkeys(wanted) if name in present])
    if table.num_rows == 0:
        raise DataError("event scores: the table is empty; nothing was scored")
    score = numbers(table, "score")
    p = numbers(table, "p_value") if "p_value" in present else _rank_p(score)
    codes, names = agent_codes(table[schema.entity])
    ranked = np.lexsort((tied_ranks(p, floor=0.0), tied_ranks(-score)))
    agents, order = _rank_agents(source.agents, schema, codes, names, ranked, score)
    alert = pc.fill_null(table["alert"], False).to_numpy() if "alert" in present else np.zeros(len(score), bool)
    return Scored(
        table=table,
        schema=schema,
        codes=codes,
        names=names,
        score=score,
        p=p,
        surprise=-np.log10(np.clip(p, SMALLEST_P, 1.0)),
        alert=alert.astype(bool),
        day=wall_clock(table, schema, schema.time)[0],
        ranked=ranked,
        agents=agents,
        agent_order=order,
    )


def _rank_p(score: np.ndarray) -> np.ndarray:
    """Where no p-value was given: the share of events that score at least as high."""
    ordered = np.sort(score)
    return (len(score) - np.searchsorted(ordered, lowered(score), "left")) / len(score)


def _rank_agents(
    given: pa.Table | None, schema: EventSchema, codes: np.ndarray, names: np.ndarray, ranked: np.ndarray, score: Any
) -> tuple[pa.Table, np.ndarray]:
    """The agent table, most unusual first, and the codes in that order; from the events where none was given."""
    first = np.full(len(names), len(ranked))
    np.minimum.at(first, codes[ranked], np.arange(len(ranked)))  # rank of each agent's worst event
    if given is None or given.num_rows == 0:
        order = np.argsort(first, kind="stable")
        columns = {schema.entity: pa.array(names[order]), "score": score[ranked[first[order]]]}
        return pa.table({**columns, "n_events": np.bincount(codes, minlength=len(names))[order]}), order
    position = pc.index_in(given[schema.entity], pa.array(names).cast(given[schema.entity].type))
    code = pc.fill_null(position, -1).to_numpy()
    given, code = given.filter(pa.array(code >= 0)), code[code >= 0]
    if len(code) == 0:
        raise DataError("agent scores and event scores share no agent; are they of the same run?")
    order = np.lexsort((first[code], tied_ranks(-numbers(given, "score"))))
    return given.take(pa.array(order)), code[order]


# ------------------------------------------------------------------------------------------------ summary
def summary(scored: Scored, source: ReportInput) -> dict[str, Any]:
    """What was scored, how much of it, how many alerts."""
    days = int(scored.day.max() - scored.day.min() + 1)
    run = source.run
    kinds = texts(scored.table.filter(pa.array(scored.alert)), "kind", "unknown")
    return {
        "events": len(scored.score),
        "agents": len(scored.names),
        "alerts": int(scored.alert.sum()),
        "alertAgents": len(np.unique(scored.codes[scored.alert])),
        "firstDay": int(scored.day.min()),
        "days": days,
        "kinds": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "byChance": _by_chance(scored),
        "rule": rule_in_words(run),
        "notes": [*_why_none(scored, run), *(in_plain_words(str(w)) for w in run.get("warnings") or [])],
        "evaluation": figures(run),
        "groups": groups(run),
    }


def _by_chance(scored: Scored) -> float | None:
    """How many events would be at least as unusual as the mildest alert if nothing unusual had happened."""
    return float(round(scored.p[scored.alert].max() * len(scored.p), 2)) if scored.alert.any() else None


def rule_in_words(run: dict[str, Any]) -> str:
    """The alert rule as people say it; empty where the run names none."""
    rule, value, threshold = run.get("rule"), run.get("value"), run.get("threshold")
    said = []
    if rule in RULES and isinstance(value, (int, float)):
        said.append(RULES[rule].format(value))
    elif rule and rule != "p_value":
        said.append(str(rule))
    if isinstance(threshold, (int, float)):
        said.append(f"p ≤ {threshold:.2g}")
    return ", ".join(said)


_SMALL = re.compile(r"p ≤ (?P<p>[\d.e-]+), rarer than one in the (?P<n>[\d,]+) reference events")


def in_plain_words(warning: str) -> str:
    """What a warning of scoring means for a reader; those that need no translation as they are."""
    small = _SMALL.search(warning)
    if small is None:
        return warning
    return (
        f"the model had only {small['n']} usual events to compare with, and an alert here is to be rarer than 1 in "
        f"{round(1 / float(small['p'])):,}: trust the order of the alerts, not their exact p-values, and expect more "
        "or fewer false alarms than the figures say; longer or more training data makes this sure"
    )


def _why_none(scored: Scored, run: dict[str, Any]) -> list[str]:
    """Why there is no alert, and what to do about it; nothing where there are some."""
    if scored.alert.any():
        return []
    best = scored.p[scored.ranked[0]]
    rule = rule_in_words(run)
    return [
        f"No {scored.schema.event_word} passed the alert rule{f' ({rule})' if rule else ''}. "
        f"The most unusual one has p = {best:.2g} among {len(scored.p):,}. The list below ranks the most unusual ones "
        "all the same; to be alerted more often, score again with a higher --alerts-per-day, a larger --fdr or --top."
    ]


def figures(run: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a method: AUROC and average precision of events and agents; empty where there were no labels."""
    methods = {str(run.get("method") or "this model"): run.get("evaluation"), **(run.get("baselines") or {})}
    rows = []
    for name, result in methods.items():
        if not isinstance(result, dict):
            continue
        row: dict[str, Any] = {"method": name}
        for level in ("events", "agents"):
            found = result.get(level) or {}
            interval = found.get("interval_95") or {}
            row[level] = {
                "auroc": _finite(found.get("auroc")),
                "ap": _finite(found.get("ap")),
                "aurocRange": [_finite(v) for v in interval.get("auroc", [])],
                "apRange": [_finite(v) for v in interval.get("ap", [])],
                "positives": found.get("positives"),
                "n": found.get("n"),
                "reason": found.get("reason", ""),
            }
        rows.append(row)
    return rows


def groups(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Recurring, non-recurring and each kind of labelled anomaly apart, for the method of the run."""
    rows = []
    for level in ("events", "agents"):
        found = (run.get("evaluation") or {}).get(level) or {}
        for column, values in (found.get("by") or {}).items():
            if level == "agents" and column == "role":  # an agent has events of every role
                continue
            for value, row in values.items():
                measured = {"auroc": _finite(row.get("auroc")), "ap": _finite(row.get("ap"))}
                rows.append({"level": level, "by": column, "value": value, "n": row.get("positives"), **measured})
    return rows


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and value == value else None


# -------------------------------------------------------------------------------------------------- lanes
def lanes(scored: Scored, detail: pa.Table, count: int) -> list[dict[str, Any]]:
    """One row an agent, one cell a day: the day's highest surprise, with its sentence. `detail`: their events."""
    first, days = int(scored.day.min()), int(scored.day.max() - scored.day.min() + 1)
    schema = scored.schema
    owner, names = agent_codes(detail[schema.entity])
    day = wall_clock(detail, schema, schema.time)[0] - first
    surprise, alert = surprise_of(detail), numbers(detail, "alert") > 0
    reason = texts(detail, "reason")
    score, p = numbers(scored.agents, "score"), numbers(scored.agents, "p_value")
    said, sizes = texts(scored.agents, "reason"), numbers(scored.agents, "n_events")
    by_name = {str(name): code for code, name in enumerate(names)}
    rows = []
    for rank in range(min(count, len(scored.agent_order))):
        name = str(scored.names[scored.agent_order[rank]])
        own = np.flatnonzero(owner == by_name[name])
        own = own[np.argsort(surprise[own], kind="stable")]
        best = np.full(days, -1)
        best[day[own]] = own  # the last written is the most unusual of its day
        cells = [None if b < 0 else [round(float(surprise[b]), 2), int(alert[b]), reason[b]] for b in best]
        rows.append(
            {
                "id": name,
                "score": _number(score[rank], 4),
                "p": _number(p[rank], 6),
                "n": _number(sizes[rank], 0),
                "reason": said[rank],
                "cells": cells,
            }
        )
    return rows


def surprise_of(table: pa.Table) -> np.ndarray:
    p = numbers(table, "p_value") if "p_value" in table.column_names else _rank_p(numbers(table, "score"))
    return -np.log10(np.clip(p, SMALLEST_P, 1.0))


def _number(value: float, digits: int) -> float | None:
    return None if value != value else round(float(value), digits)


# ------------------------------------------------------------------------------------------------- events
def top_events(scored: Scored, source: ReportInput, count: int) -> list[dict[str, Any]]:
    """The most unusual events in order, each one line: when, who, kind, the sentence. Alerts come first."""
    ranked = scored.ranked
    rows = np.r_[ranked[scored.alert[ranked]], ranked[~scored.alert[ranked]]][:count]
    schema = scored.schema
    named = [schema.entity, schema.event_id, schema.time, schema.end, schema.timezone, "kind", "reason"]
    names = [n for n in named if n is not None and n in source.events.schema.names]
    table = source.events.to_table(columns=names).take(pa.array(rows))
    day, minute, length = span(table, schema)
    columns = {
        "id": texts(table, schema.entity),
        "event": texts(table, schema.event_id),
        "kind": texts(table, "kind"),
        "reason": texts(table, "reason"),
        "day": day.tolist(),
        "minute": rounded(minute, 0),
        "length": rounded(length, 0),
        "score": rounded(scored.score[rows], 4),
        "p": [float(f"{v:.3g}") for v in scored.p[rows]],
        "alert": scored.alert[rows].astype(int).tolist(),
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def ranking(scored: Scored, limit: int = 50_000) -> dict[str, list[Any]]:
    """Every agent's name, score and number of events in order of rank, for the search."""
    names = [str(v) for v in scored.names[scored.agent_order[:limit]]]
    agents = scored.agents.slice(0, limit)
    alerts = np.bincount(scored.codes[scored.alert], minlength=len(scored.names))[scored.agent_order[:limit]]
    return {
        "id": names,
        "score": rounded(numbers(agents, "score"), 3),
        "n": rounded(numbers(agents, "n_events"), 0),
        "alerts": alerts.tolist(),
    }


# ------------------------------------------------------------------------------------------------- detail
def detail_of(source: ReportInput, scored: Scored, count: int) -> pa.Table:
    """The events of the top agents, with every column that is shown."""
    names = [scored.names[code] for code in scored.agent_order[:count]]
    table = rows_of(source.events, scored.schema.entity, names, without=UNSHOWN)
    if table is None:
        raise DataError("agent scores and event scores name their agents differently")
    return table
