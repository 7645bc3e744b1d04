"""How data, detectors and scores look in a notebook: a few lines and a table, as HTML. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.kind_words import kind_words
from ustad.schema import plural

if TYPE_CHECKING:
    from ustad.dataset import Dataset
    from ustad.scores import Scores

LINES = 10
_CELL = 'style="text-align:left;vertical-align:top"'
_SIZE = 320  # pixels of the small map
MOST_DOTS = 2_000


def dataset_html(data: Dataset) -> str:
    """Counts, the span, what else there is, and where the events lie."""
    events, schema = data.events, data.schema
    facts = [
        (plural(schema.event_word), f"{events.num_rows:,}"),
        (plural(schema.entity_word), f"{len(pc.unique(events[schema.entity])):,}"),
    ]
    if events.num_rows:
        span = pc.min_max(events[schema.time]).as_py()
        facts.append(("from", f"{span['min']:%Y-%m-%d} to {span['max']:%Y-%m-%d}"))
    more = ("trips", "gaps", "pois", "labels", "agent_labels", "quality")
    sizes = {name: getattr(data, name) for name in more}
    facts += [(name.replace("_", " "), f"{t.num_rows:,}") for name, t in sizes.items() if t is not None]
    return _title("Data", data.name) + _facts(facts) + _dots(events, schema)


def scores_html(scores: Scores) -> str:
    """How many alerts there are, what was warned of, and the most unusual with their sentences."""
    run, table = scores.run, scores.top(LINES)
    tables = (("events", scores.events), ("agents", scores.agents))
    facts = [(name, f"{t.num_rows:,}") for name, t in tables if t is not None]
    facts += [(n, f"{run[n]:,}") for n in ("alerts",) if isinstance(run.get(n), int)]
    facts += [("note", str(text)) for text in run.get("warnings") or []]
    wanted = ("agent_id", "started_at", "poi_category", "score", "p_value", "alert", "kind", "reason")
    shown = [name for name in wanted if name in table.column_names] or table.column_names[:6]
    columns = {name: table[name].to_pylist() for name in shown}
    if "kind" in columns:
        evidence = table["evidence"].to_pylist() if "evidence" in table.column_names else [None] * len(table)
        pairs = zip(columns["kind"], evidence, strict=True)
        columns["kind"] = [kind_words(kind, answers[0]["name"] if answers else None) for kind, answers in pairs]
    rows = zip(*columns.values(), strict=True)
    return _title("Scores", str(run.get("method", ""))) + _facts(facts) + _table(shown, rows)


def detector_html(preset: str, facts: dict[str, Any]) -> str:
    """What a detector learnt from, or that it has not learnt yet."""
    if not facts:
        return _title("Detector", preset) + "<p>Not fitted yet: <code>.fit(data)</code></p>"
    names = {"events": "events", "entities": "agents", "first_day": "from", "learned_until": "until", "device": "on"}
    values = {word: facts[name] for name, word in names.items() if name in facts}
    rows = [(word, f"{value:,}" if isinstance(value, int) else str(value)) for word, value in values.items()]
    return _title("Detector", f"{preset}, learnt from") + _facts(rows)


# ---------------------------------------------------------------------------------------------------- parts
def _title(what: str, name: str) -> str:
    return f"<p><strong>{escape(what)}</strong> {escape(name)}</p>"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th {_CELL}>{escape(k)}</th><td {_CELL}>{escape(v)}</td></tr>" for k, v in facts)
    return f"<table>{cells}</table>"


def _table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th {_CELL}>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td {_CELL}>{escape(_text(v))}</td>" for v in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:%Y-%m-%d %H:%M}" if hasattr(value, "strftime") else str(value)


def _dots(events: pa.Table, schema: Any) -> str:
    """Where the events lie, as dots: no map, no network."""
    place = next((f.source for f in schema.features if f.kind == "place"), None)
    if place is None or not events.num_rows or any(name not in events.column_names for name in place):
        return ""
    step = max(1, events.num_rows // MOST_DOTS)
    lat, lon = (events[name].to_numpy(zero_copy_only=False).astype(float)[::step] for name in place)
    known = np.isfinite(lat) & np.isfinite(lon)
    if not known.any():
        return ""
    lat, lon = lat[known], lon[known] * np.cos(np.radians(lat[known].mean()))
    size = max(np.ptp(lat), np.ptp(lon), 1e-6)
    x, y = 8 + (lon - lon.min()) / size * (_SIZE - 16), 8 + (lat.max() - lat) / size * (_SIZE - 16)
    points = sorted({(round(a), round(b)) for a, b in zip(x, y, strict=True)})
    dots = "".join(f'<circle cx="{a}" cy="{b}" r="1.5"/>' for a, b in points)
    words = 'role="img" aria-label="Where the events lie"'
    return f'<svg width="{_SIZE}" height="{_SIZE}" fill="#5b2a86" fill-opacity="0.5" {words}>{dots}</svg>'
