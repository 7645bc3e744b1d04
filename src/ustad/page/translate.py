"""Between tables and the store's rows: score tables in, rows and details out; rows in, a table of events out.

The schema says which columns are the agent, the time, the place and the category. So any events that a model was
trained on can be served. What has no column of its own in the store is kept in the detail (`given`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta, tzinfo
from functools import cache, cached_property, lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from ustad.clock import MICROSECONDS_PER_DAY, is_zone, local_time, moment_at
from ustad.dataset import event_days, zone_of
from ustad.events.observed import GAP_COLUMNS
from ustad.page import records
from ustad.page.store import Row
from ustad.page.stored_evidence import FACTS, WHOLE_EVENT, pack_evidence
from ustad.schema import EventSchema
from ustad.scoring.evidence import read_evidence
from ustad.tables import TIMESTAMP, event_keys, identity_hash, mix

PARTS = ("expected", "observed", "loss", "error", "au", "eu", "pct", "spread")
#: Columns of the score table that belong to the event as a whole.
WHOLE = ("knn", "pct_knn", "history_days", "expected_lat", "expected_lon", "learned_score")
#: What the evidence says of a question → the part of its term.
_NUMBERS = {"expected": "expected", "observed": "observed", "spread": "spread", "noise": "au", "doubt": "eu"}
_TEXTS = ("event_id", "poi_id", "place_name", "category")
_SCORES = ("score", "p_value", "kind", "reason")
_COLUMNS = tuple(c.name for c in records.events.columns)
_NO_VERDICT = {"verdict": None, "marked_by": None, "hidden_by": None}
Parts = dict[str, list[str]]  # of each term what the score has of it


@dataclass(frozen=True)
class Layout:
    """Which columns of an event table stand in which columns of the store."""

    schema: EventSchema
    lat: str | None
    lon: str | None
    category: str | None

    @classmethod
    def of(cls, schema: EventSchema) -> Layout:
        place = next((f for f in schema.features if f.kind == "place"), None)
        category = next((f for f in schema.features if f.kind == "categorical" and f.columns), None)
        lat, lon = place.source if place else (None, None)
        return cls(schema, lat, lon, category.columns[0] if category else None)

    @cached_property
    def columns(self) -> dict[str, str]:
        """Column of the store → column of the table."""
        pairs = {
            "event_id": self.schema.event_id, "lat": self.lat, "lon": self.lon, "category": self.category,
            "poi_id": self.schema.habitat or "poi_id", "place_name": "poi_name", "n_fixes": "n_fixes",
            **{name: name for name in GAP_COLUMNS},
        }  # fmt: skip
        return {ours: theirs for ours, theirs in pairs.items() if theirs}

    @cached_property
    def extra_columns(self) -> tuple[str, ...]:
        """Columns the model reads that have no column of their own in the store."""
        own = {*self.columns.values(), self.schema.entity, self.schema.time, self.schema.end}
        return tuple(c for c in self.schema.columns if c not in own)

    @cached_property
    def extra_types(self) -> dict[str, pa.DataType]:
        """How these columns are read: vectors, texts, numbers."""
        vectors = {c for f in self.schema.features if f.kind == "vector" for c in f.columns}
        texts = {c for f in self.schema.features if f.kind == "categorical" for c in f.columns}
        kinds = {**dict.fromkeys(texts, pa.string()), **dict.fromkeys(vectors, pa.list_(pa.float32()))}
        return {name: kinds.get(name, pa.float64()) for name in self.extra_columns}

    @cached_property
    def zone_column(self) -> str | None:
        """The column that holds each event's zone, where it is not one for all."""
        return None if is_zone(self.schema.timezone) else self.schema.timezone

    @cached_property
    def questions(self) -> dict[str, tuple[str, float]]:
        """Questions → the term that they ask about, and its period where it has one. When and how long are asked for
        by these names, whatever the schema calls them."""
        sources = {"@minute_of_day": "start", "@duration": "duration"}
        by_source = {sources[f.source[0]]: f for f in self.schema.features if f.source and f.source[0] in sources}
        terms = {t.name: (t.name, self.schema.feature(t.feature).period) for t in self.schema.terms()}
        return {**{name: (f.terms()[0].name, f.period) for name, f in by_source.items()}, **terms}

    def parts(self, names: Iterable[str]) -> Parts:
        """Which parts scores with these columns have. They are the same for every event of a model."""
        key = tuple(names)
        if key not in self._known_parts:
            self._known_parts[key] = _parts_of(set(key), self.schema)
        return self._known_parts[key]

    @cached_property
    def _known_parts(self) -> dict[tuple[str, ...], Parts]:
        return {}


def has_event_ids(schema: EventSchema) -> bool:
    """Whether events are told apart by their id too. A stay is known by its agent and start, whatever its id."""
    return schema.event_id is not None and schema.name != "mobility"


def keys_of(events: pa.Table, schema: EventSchema) -> list[int]:
    """What identifies each event in the store: entity and time (`tables.event_keys`) and, where there is one, id."""
    keys: list[int] = event_keys(events[schema.entity], events[schema.time]).tolist()
    if not has_event_ids(schema) or schema.event_id not in events.column_names:
        return keys
    return _with_ids(keys, events[schema.event_id].to_pylist())


def keys_for(rows: Sequence[Mapping[str, Any]], by_id: bool = False) -> list[int]:
    """The same of rows of the store, quick also for one; `by_id` where `has_event_ids` says so."""
    if not rows:
        return []
    names = np.array([_hash_of(row["agent"]) for row in rows], np.uint64)
    times = np.array([row["started_at"] for row in rows], np.int64).astype(np.uint64)
    with np.errstate(over="ignore"):
        keys = mix(names + times * np.uint64(0x9E3779B97F4A7C15))
    key_list: list[int] = (keys >> np.uint64(1)).astype(np.int64).tolist()
    return _with_ids(key_list, [row.get("event_id") for row in rows]) if by_id else key_list


def _with_ids(keys: list[int], ids: Sequence[Any]) -> list[int]:
    """Keys that tell events of one entity and moment apart by their ids; as they were where there is no id."""
    hashes = identity_hash([str(i) for i in ids]) if keys else np.empty(0, np.uint64)
    with np.errstate(over="ignore"):
        new_keys = mix(np.array(keys, np.uint64) * np.uint64(0x9E3779B97F4A7C15) + hashes) >> np.uint64(1)
    return [key if i is None else int(new) for key, i, new in zip(keys, ids, new_keys.tolist(), strict=True)]


@lru_cache(maxsize=100_000)
def _hash_of(agent: str) -> int:
    return int(identity_hash([agent])[0])


def store_rows(events: pa.Table, layout: Layout) -> tuple[list[Row], dict[int, str]]:
    """Rows for the store and, by key, details as JSON, of a table that holds events and scores alike."""
    schema = layout.schema
    values = events.drop_columns([n for n in (schema.time, schema.end) if n]).to_pylist()
    parts = layout.parts(events.column_names)
    rows, details = [], {}
    for value, basics in zip(values, _basics(events, schema), strict=True):
        own = {ours: _finite(value.get(theirs)) for ours, theirs in layout.columns.items()}
        row = {**own, **{n: None if own.get(n) is None else str(own[n]) for n in _TEXTS}, **basics}
        rows.append(_add_score(row, value))
        extras = {n: _plain(value[n]) for n in layout.extra_columns if n in value}
        details[row["key"]] = _detail(value, parts, extras, layout.questions)
    return rows, details


def fresh_rows(
    new: Sequence[tuple[Row, int]], zones: Sequence[str], scores: Sequence[Mapping[str, Any]], layout: Layout
) -> tuple[list[Row], dict[int, str]]:
    """The same of rows that just came, with their keys and the zone of each."""
    parts = layout.parts(scores[0]) if scores else {}
    rows, details = [], {}
    for (row, key), zone, score in zip(new, zones, scores, strict=True):
        basics = {**row, "key": key, "timezone": zone, "day": local_day(row["started_at"], zone)}
        rows.append(_add_score(basics, score))
        extras = {n: _plain(v) for n, v in (row.get("given") or {}).items()}
        details[key] = _detail(score, parts, extras, layout.questions)
    return rows, details


def local_day(moment: int, zone: str) -> int:
    """The local date of one moment, as `dataset.event_days` gives it for many."""
    zone_info = _zone(zone)
    if zone_info is None:
        return int(local_time(pa.array([moment], pa.int64()).cast(TIMESTAMP), zone).day[0])
    ahead = zone_info.utcoffset(moment_at(moment).astimezone(zone_info)) or timedelta()
    return (moment + ahead // timedelta(microseconds=1)) // MICROSECONDS_PER_DAY


@cache
def _zone(name: str) -> tzinfo | None:
    """None for what only Arrow takes for a zone. UTC needs no zone data, which a machine may lack."""
    if name == "UTC":
        return UTC
    return ZoneInfo(name) if is_zone(name) else None


def _add_score(row: Row, score: Mapping[str, Any]) -> Row:
    """A whole row of the store: the event and what belongs to its score."""
    judgement, evidence = {name: _finite(score.get(name)) for name in _SCORES}, read_evidence(score)
    whole = {
        **row,
        **judgement,
        "term": evidence[0]["name"] if evidence else None,
        "alert": bool(score.get("alert")),
        **_NO_VERDICT,
    }
    whole["final"] = score.get("final") is not False  # scores from before this was said are final
    whole["incident"], whole["echo"] = score.get("incident_id"), bool(score.get("echo"))
    return {name: whole.get(name) for name in _COLUMNS}


def _basics(events: pa.Table, schema: EventSchema) -> Iterator[Row]:
    """What follows from an event's agent, times and zone."""
    zones = zone_of(events, schema)
    ends = events[schema.end] if schema.end else events[schema.time]
    columns: dict[str, list[Any]] = {
        "key": keys_of(events, schema),
        "agent": [str(a) for a in events[schema.entity].to_pylist()],
        "started_at": events[schema.time].cast(pa.int64()).to_pylist(),
        "finished_at": ends.cast(pa.int64()).to_pylist(),
        "day": event_days(events, schema).tolist(),
        "timezone": [zones] * events.num_rows if isinstance(zones, str) else zones.to_pylist(),
    }
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _parts_of(names: set[str], schema: EventSchema) -> Parts:
    """Which parts the score table has of each term (the expected value of a vector says nobody anything)."""
    parts = {t.name: [p for p in PARTS if f"{p}_{t.name}" in names] for t in schema.terms()}
    vectors = {t.name for t in schema.terms() if t.kind == "vector"}
    return {t: [p for p in of if p != "expected" or t not in vectors] for t, of in parts.items() if of}


def _detail(
    value: Mapping[str, Any], parts: Parts, extras: Mapping[str, Any], questions: Mapping[str, tuple[str, float]]
) -> str:
    evidence = _answers(value, questions)
    content: dict[str, Any] = {
        "terms": {t: {p: _finite(value.get(f"{p}_{t}")) for p in names} for t, names in parts.items()},
        "given": extras,
        **{n: _finite(value[n]) for n in WHOLE if n in value},
        **pack_evidence(evidence, {n: _finite(value.get(n)) for n in FACTS}),
    }
    for one in evidence:
        if one["name"] in questions:
            term, period = questions[one["name"]]
            _fill(content["terms"].setdefault(term, {}), one, period)
        elif one["name"] == WHOLE_EVENT:
            _fill_missing(content, {"knn": one.get("observed"), "pct_knn": 1 - 10.0 ** -one["surprise"]})
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def _answers(score: Mapping[str, Any], questions: Iterable[str]) -> list[dict[str, Any]]:
    """The evidence of a score; in percentiles, as older tables have it, that of these questions alone."""
    if score.get("evidence") is None:
        names = {f"pct_{name}" for name in (*questions, WHOLE_EVENT)}
        score = {name: value for name, value in score.items() if not name.startswith("pct_") or name in names}
    return read_evidence(score)


def _fill(term: dict[str, Any], answer: Mapping[str, Any], period: float) -> None:
    """What the evidence says of a term, where no detail of it is kept."""
    expected, observed = answer.get("expected"), answer.get("observed")
    _fill_missing(term, {part: answer.get(name) for name, part in _NUMBERS.items() if answer.get(name) is not None})
    if expected is not None and observed is not None:
        away = abs(observed - expected)
        _fill_missing(term, {"error": min(away, period - away) if period else away})
    _fill_missing(term, {"pct": 1 - 10.0 ** -answer["surprise"]})


def _fill_missing(content: dict[str, Any], values: Mapping[str, Any]) -> None:
    content |= {name: value for name, value in values.items() if content.get(name) is None}


def event_table(rows: Sequence[Mapping[str, Any]], layout: Layout) -> pa.Table:
    """Events as the model reads them, from rows of the store (with `given`, a mapping, where there is more)."""
    schema = layout.schema
    table: dict[str, pa.Array] = {
        schema.entity: pa.array([row["agent"] for row in rows], pa.string()),
        schema.time: pa.array([row["started_at"] for row in rows], pa.int64()).cast(TIMESTAMP),
    }
    if schema.end:
        table[schema.end] = pa.array([row["finished_at"] for row in rows], pa.int64()).cast(TIMESTAMP)
    types = {"n_fixes": pa.int32(), **dict.fromkeys(("lat", "lon", *GAP_COLUMNS), pa.float64())}
    for ours, theirs in layout.columns.items():
        table[theirs] = pa.array([row.get(ours) for row in rows], types.get(ours, pa.string()))
    for name, kind in layout.extra_types.items():
        table[name] = pa.array([(row.get("given") or {}).get(name) for row in rows], kind)
    if layout.zone_column:
        table[layout.zone_column] = pa.array([row["timezone"] for row in rows], pa.string())
    return pa.table(table)


def event_rows(rows: Sequence[Mapping[str, Any]], layout: Layout) -> list[dict[str, Any]]:
    """The rows of `event_table`, without the table: quick also for one."""
    return [_event_row(row, layout) for row in rows]


def _event_row(row: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    schema = layout.schema
    event = {schema.entity: row["agent"], schema.time: moment_at(row["started_at"])}
    if schema.end:
        event[schema.end] = moment_at(row["finished_at"])
    for ours, theirs in layout.columns.items():
        event[theirs] = row.get(ours)
    extras = row.get("given") or {}
    for name, kind in layout.extra_types.items():
        value = extras.get(name)
        event[name] = float(value) if value is not None and kind == pa.float64() else value
    if layout.zone_column:
        event[layout.zone_column] = row["timezone"]
    return event


def table_rows(table: pa.Table, layout: Layout) -> list[Row]:
    """The inverse of `event_table`."""
    schema = layout.schema
    start = table[schema.time].cast(pa.int64()).to_pylist()
    columns: dict[str, list[Any]] = {
        "agent": [str(a) for a in table[schema.entity].to_pylist()], "started_at": start,
        "finished_at": table[schema.end].cast(pa.int64()).to_pylist() if schema.end else start,
        **{ours: table[theirs].to_pylist() for ours, theirs in layout.columns.items()},
    }  # fmt: skip
    zones = schema.timezone in table.column_names
    columns["timezone"] = table[schema.timezone].to_pylist() if zones else [None] * len(start)
    extras = table.select(layout.extra_columns).to_pylist() if layout.extra_columns else [{}] * len(start)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [{**row, "given": more} for row, more in zip(rows, extras, strict=True)]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value if isinstance(value, (int, str, bool, type(None))) else str(value)


def _finite(value: Any) -> Any:
    """The value; none instead of NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
