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
    from ustad.scores import Case, Scores

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
    first_columns = ("agent_id", "started_at", "poi_category", "score", "p_value", "alert", "kind", "reason")
    names = [name for name in first_columns if name in table.column_names] or table.column_names[:6]
    columns = {name: table[name].to_pylist() for name in names}
    if "kind" in columns:
        evidence = table["evidence"].to_pylist() if "evidence" in table.column_names else [None] * len(table)
        pairs = zip(columns["kind"], evidence, strict=True)
        columns["kind"] = [kind_words(kind, answers[0]["name"] if answers else None) for kind, answers in pairs]
    rows = zip(*columns.values(), strict=True)
    return _title("Scores", str(run.get("method", ""))) + _facts(facts) + _table(names, rows)


def detector_html(preset: str, facts: dict[str, Any]) -> str:
    """What a detector learnt from, or that it has not learnt yet."""
    if not facts:
        return _title("Detector", preset) + "<p>Not fitted yet: <code>.fit(data)</code></p>"
    names = {"events": "events", "entities": "agents", "first_day": "from", "learned_until": "until", "device": "on"}
    values = {word: facts[name] for name, word in names.items() if name in facts}
    rows = [(word, f"{value:,}" if isinstance(value, int) else str(value)) for word, value in values.items()]
    return _title("Detector", f"{preset}, learnt from") + _facts(rows)


def case_html(case: Case) -> str:
    """An incident: its events with their sentences, and where they lie among the other events of the same entity."""
    events = case.events
    first_columns = ("started_at", "finished_at", "poi_category", "score", "kind", "reason")
    names = [name for name in first_columns if name in events.column_names]
    rows = zip(*(events[name].to_pylist() for name in names), strict=True)
    return _title("Case", f"{events['agent_id'][0]}, incident {case.incident_id}") + _table(names, rows) + _map(case)


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
    is_placed = np.isfinite(lat) & np.isfinite(lon)
    if not is_placed.any():
        return ""
    lat, lon = lat[is_placed], lon[is_placed] * np.cos(np.radians(lat[is_placed].mean()))
    size = max(np.ptp(lat), np.ptp(lon), 1e-6)
    x, y = 8 + (lon - lon.min()) / size * (_SIZE - 16), 8 + (lat.max() - lat) / size * (_SIZE - 16)
    points = sorted({(round(a), round(b)) for a, b in zip(x, y, strict=True)})
    dots = "".join(f'<circle cx="{a}" cy="{b}" r="1.5"/>' for a, b in points)
    words = 'role="img" aria-label="Where the events lie"'
    return f'<svg width="{_SIZE}" height="{_SIZE}" fill="#5b2a86" fill-opacity="0.5" {words}>{dots}</svg>'


def _map(case: Case) -> str:
    """The incident's places, numbered by time, among the entity's own: no network."""
    if not {"lat", "lon"} <= set(case.around.column_names):
        return ""
    both = [
        np.stack([t[n].to_numpy(zero_copy_only=False).astype(float) for n in ("lat", "lon")]) for t in _tables(case)
    ]
    around, is_placed = both[0], [np.isfinite(places).all(axis=0) for places in both]
    if not is_placed[1].any():
        return ""
    narrow = np.cos(np.radians(around[0][is_placed[0]].mean()))
    pairs = zip(both, is_placed, strict=True)
    flat = [np.stack([places[1] * narrow, -places[0]])[:, is_known] for places, is_known in pairs]
    low = flat[0].min(axis=1)
    size = max(float(np.ptp(flat[0], axis=1).max()), 1e-6)
    other_dots, incident_dots = ((8 + (places - low[:, None]) / size * (_SIZE - 16)).round().T for places in flat)
    dots = "".join(f'<circle cx="{x:g}" cy="{y:g}" r="2" fill="#999"/>' for x, y in sorted(set(map(tuple, other_dots))))
    marks = "".join(f'<circle cx="{x:g}" cy="{y:g}" r="5" fill="none" stroke="#b3261e"/>' for x, y in incident_dots)
    numbers = np.flatnonzero(is_placed[1]) + 1
    labels = zip(incident_dots, numbers, strict=True)
    texts = "".join(f'<text x="{x + 6:g}" y="{y:g}" font-size="10">{n}</text>' for (x, y), n in labels)
    words = 'role="img" aria-label="Where the events of the incident lie among the others"'
    return f'<svg width="{_SIZE}" height="{_SIZE}" {words}>{dots}{marks}{texts}</svg>'


def _tables(case: Case) -> tuple[pa.Table, pa.Table]:
    return case.around, case.events
