"""What each score is made of: every term's surprise and its share, for the most unusual events.

In goes a table of event scores, out come the rows somebody will look at. By habits a term's share is that of the look
which decides (0 outside it); otherwise every part says its percentile, of which the score is the highest.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.schema import EventSchema
from ustad.scoring.explain import log_tails
from ustad.ties import descending, rounded

_PREFIXES = ("surprise_", "pct_")


def most_unusual(events: pa.Table, schema: EventSchema, top: int) -> list[dict[str, Any]]:
    """The `top` highest scores with their `terms`: name → surprise (-log10 p) and share, the largest first."""
    order = pa.array(descending(events["score"].to_numpy())[:top])
    rows = events.take(order).to_pylist()
    prefix = next((p for p in _PREFIXES if any(c.startswith(p) for c in events.column_names)), None)
    names = [c.removeprefix(prefix) for c in events.column_names if c.startswith(prefix)] if prefix else []
    named = [c for c in (schema.event_id, schema.entity, schema.time) if c is not None and c in events.column_names]
    return [
        {**{c: _plain(row[c]) for c in named}, "score": row["score"], "terms": _terms(row, prefix, names)}
        for row in rows
    ]


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
