"""What each score is made of: every question's surprise and its share, for the most unusual events.

In goes a table of event scores, out come the rows somebody will look at.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa

from ustad.schema import EventSchema
from ustad.scoring.evidence import read_evidence
from ustad.ties import descending


def most_unusual(events: pa.Table, schema: EventSchema, top: int) -> list[dict[str, Any]]:
    """The `top` highest scores with their `terms`: name → surprise (-log10 p) and share, the largest first."""
    order = pa.array(descending(events["score"].to_numpy())[:top])
    rows = events.take(order).to_pylist()
    identifiers = [
        c for c in (schema.event_id, schema.entity, schema.time) if c is not None and c in events.column_names
    ]
    return [{**{c: _plain(row[c]) for c in identifiers}, "score": row["score"], "terms": _terms(row)} for row in rows]


def _plain(value: Any) -> Any:
    """Moments as ISO 8601 text, for JSON and CSV alike."""
    return value.isoformat() if isinstance(value, datetime) else value


def _terms(row: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {one["name"]: {"surprise": one["surprise"], "share": one["share"]} for one in read_evidence(row)}
