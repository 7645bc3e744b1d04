"""What each score is made of: every term's surprise and its share, for the most unusual events.

In goes a table of event scores, out come the rows somebody will look at. By habits a term's share is that of the look
which decides (0 outside it); otherwise every part says its percentile, of which the score is the highest. A score by
habits may be owed to the event before or after: then that is said, and the terms are still the event's own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.habits.habit_words import BORROWED
from ustad.schema import EventSchema
from ustad.scoring.explain import log_tails
from ustad.tables import agent_codes
from ustad.ties import descending, raised, rounded

#: The score of an event by itself, without its neighbours' evidence; only scores by habits have it.
ALONE = "score_alone"
_PREFIXES = ("surprise_", "pct_")


def most_unusual(events: pa.Table, schema: EventSchema, top: int) -> list[dict[str, Any]]:
    """The `top` highest scores with their `terms`: name → surprise (-log10 p) and share, the largest first.

    By habits also `score_alone` and `score_from`, whose evidence the score is: `own`, or that of the event `before` or
    `after`. Terms are those of the event by itself all the same.
    """
    order = pa.array(descending(events["score"].to_numpy())[:top])
    rows = events.take(order).to_pylist()
    prefix = next((p for p in _PREFIXES if any(c.startswith(p) for c in events.column_names)), None)
    names = [c.removeprefix(prefix) for c in events.column_names if c.startswith(prefix)] if prefix else []
    named = [c for c in (schema.event_id, schema.entity, schema.time) if c is not None and c in events.column_names]
    sources: list[dict[str, Any]] = [{} for _ in rows]
    if ALONE in events.column_names:
        found = _sources(events, schema, order.to_numpy())
        sources = [{ALONE: row[ALONE], "score_from": one} for row, one in zip(rows, found, strict=True)]
    return [
        {**{c: _plain(row[c]) for c in named}, "score": row["score"], **source, "terms": _terms(row, prefix, names)}
        for row, source in zip(rows, sources, strict=True)
    ]


def _sources(events: pa.Table, schema: EventSchema, rows: np.ndarray) -> list[str]:
    """Of each row (of the table) whose evidence its score is: a neighbour's that is more unusual by itself."""
    entity = events[schema.entity]
    at = np.flatnonzero(pc.is_in(entity, pc.unique(entity.take(pa.array(rows)))).to_numpy())
    part = events.select([schema.entity, schema.time, "score", ALONE]).take(pa.array(at))
    codes = agent_codes(part[schema.entity])[0]
    order = np.lexsort((part[schema.time].cast(pa.int64()).to_numpy(), codes))
    score, alone = (part[name].to_numpy()[order] for name in ("score", ALONE))
    first = np.diff(codes[order], prepend=-1) != 0
    last = np.append(first[1:], True)
    before = np.where(first, -np.inf, np.roll(alone, 1))
    after = np.where(last, -np.inf, np.roll(alone, -1))
    before[first & (score > raised(alone + BORROWED))] = np.inf  # owed to one that was counted and not scored
    lent = (score != alone) & (
        np.maximum(before, after) > raised(alone)
    )  # without neighbours' evidence both are the same
    told = np.where(lent, np.where(after > raised(before), "after", "before"), "own")
    place = np.empty(len(at), np.int64)
    place[order] = np.arange(len(at))
    return [str(word) for word in told[place[np.searchsorted(at, rows)]]]


def _plain(value: Any) -> Any:
    """Moments as ISO 8601 text, for JSON and CSV alike."""
    return value.isoformat() if isinstance(value, datetime) else value


def _terms(row: dict[str, Any], prefix: str | None, names: list[str]) -> dict[str, dict[str, float]]:
    """By share, the largest first; a part without a value has nothing to say."""
    known = {name: float(row[f"{prefix}{name}"]) for name in names if row[f"{prefix}{name}"] is not None}
    if prefix == "pct_":
        known = dict(zip(known, (-log_tails(np.array(list(known.values())))).tolist(), strict=True))
    known = {name: value for name, value in known.items() if np.isfinite(value)}
    total = max(sum(known.values()), 1e-12)
    shares = {name: float(row.get(f"share_{name}", value / total)) for name, value in known.items()}
    ranked = sorted(known, key=lambda name: (-rounded(shares[name]), -rounded(known[name])))
    return {name: {"surprise": known[name], "share": shares[name]} for name in ranked}
