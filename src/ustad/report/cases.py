"""The case-study view of one agent: its events before and in the scored period, places, trips, gaps, and for each
scored event what was expected, how surely, and what was observed.

In: the score rows of the agent and the data around them. Out: one compact dictionary for the page, with places in
kilometres around the agent's own centre.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import DAY_NAMES
from ustad.geo import Projection, haversine_km
from ustad.report.overview import surprise_of
from ustad.report.uncertainty import Uncertainty
from ustad.report.words import category_column, numbers, place_feature, rounded, span, texts, wall_clock, zones
from ustad.schema import EventSchema, Feature
from ustad.scoring.explain import log_tails
from ustad.tables import sort_events
from ustad.ties import descending

MAX_EVENTS = 600  # scored events of one agent with all their detail
MAX_HISTORY, MAX_HISTORY_DAYS = 2_000, 63
MAX_PATHS, MAX_PATH_POINTS = 150, 40
CELL_KM = 0.1  # events without a named place are put together by cells of this size


class CaseMaker:
    """Makes cases that share one list of categories, so that a colour means the same everywhere."""

    def __init__(self, schema: EventSchema, columns: list[str], epistemic: Uncertainty, aleatoric: Uncertainty) -> None:
        self.schema, self.columns = schema, columns
        self.epistemic, self.aleatoric = epistemic, aleatoric
        self.category, self.place = category_column(schema), place_feature(schema)
        self.minutes: dict[str, float] = {}  # category → minutes (or events) over all cases

    def make(
        self, scored: pa.Table, history: pa.Table | None, trips: pa.Table | None, gaps: pa.Table | None
    ) -> dict[str, Any]:
        """One agent's case. `history` may hold later events too: those from the first scored one on are left out."""
        schema = self.schema
        scored = sort_events(scored, schema.entity, schema.time)
        total = scored.num_rows
        if total > MAX_EVENTS:  # the most unusual ones, in the order of time
            keep = np.sort(descending(numbers(scored, "score"))[:MAX_EVENTS])
            scored = scored.take(pa.array(keep))
        before, earlier = self._before(history, scored)
        projection, places = self._places(before, scored)
        case: dict[str, Any] = {
            "zones": zones(scored, schema),
            "left_out": [earlier, total - scored.num_rows],
            "before": self._spans(before) if before is not None else None,
            "events": {**self._spans(scored), **self._details(scored)},
            "gaps": self._intervals(gaps, scored),
            "trips": self._trips(trips, projection, scored),
        }
        if projection is not None:
            case["places"] = places
            case["events"].update(self._expected_places(scored, projection))
            case["before_place"] = places.pop("before")
            case["event_place"] = places.pop("events")
        return case

    # ----------------------------------------------------------------------------------------- timeline
    def _before(self, history: pa.Table | None, scored: pa.Table) -> tuple[pa.Table | None, int]:
        """The latest weeks before the first scored event, and how many earlier events are left out."""
        if history is None or self.schema.time not in history.column_names:
            return None, 0
        first = pc.min(scored[self.schema.time])
        known = history.filter(pc.less(history[self.schema.time], first.cast(history[self.schema.time].type)))
        if known.num_rows == 0:
            return None, 0
        known = sort_events(known, self.schema.entity, self.schema.time)
        day = wall_clock(known, self.schema, self.schema.time)[0]
        kept = known.filter(pa.array(day > day.max() - MAX_HISTORY_DAYS))
        kept = kept.slice(max(0, kept.num_rows - MAX_HISTORY))
        return kept, known.num_rows - kept.num_rows

    def _spans(self, table: pa.Table) -> dict[str, list[Any]]:
        day, minute, length = span(table, self.schema)
        words = texts(table, self.category, "unknown")
        for word, minutes in zip(words, np.maximum(length, 1.0), strict=True):
            self.minutes[word] = self.minutes.get(word, 0.0) + float(minutes)
        return {"day": day.tolist(), "minute": rounded(minute, 0), "length": rounded(length, 0), "category": words}

    def _intervals(self, table: pa.Table | None, scored: pa.Table) -> list[list[int]]:
        """[day, minute, length] of each gap; gap tables have no zone, so the agent's own is used."""
        if table is None or table.num_rows == 0 or self.schema.end is None:
            return []
        table = self._with_zone(table, scored).rename_columns(
            [{"started_at": self.schema.time, "finished_at": self.schema.end}.get(n, n) for n in table.column_names]
            + ([self.schema.timezone] if self.schema.timezone not in table.column_names else [])
        )
        day, minute, length = span(table, self.schema)
        return [[int(d), round(float(m)), round(float(k))] for d, m, k in zip(day, minute, length, strict=True)]

    def _with_zone(self, table: pa.Table, scored: pa.Table) -> pa.Table:
        if self.schema.timezone in table.column_names:
            return table
        return table.append_column(self.schema.timezone, pa.array([zones(scored, self.schema)[0]] * table.num_rows))

    # ------------------------------------------------------------------------------------------- places
    def _places(self, before: pa.Table | None, scored: pa.Table) -> tuple[Projection | None, dict[str, Any]]:
        if self.place is None or not set(self.place.source) <= set(scored.column_names):
            return None, {}
        tables = [t for t in (before, scored) if t is not None]
        lat, lon = (np.concatenate([numbers(t, c) for t in tables]) for c in self.place.source)
        known = np.isfinite(lat) & np.isfinite(lon)
        if not known.any():
            return None, {}
        projection = Projection.fit(lat[known], lon[known])
        x, y = projection.forward(np.where(known, lat, projection.lat), np.where(known, lon, projection.lon))
        names = [name for t in tables for name in texts(t, self.schema.habitat)]
        keys = [
            n or f"{round(a / CELL_KM)} {round(b / CELL_KM)}"
            for n, a, b in zip(names, x.tolist(), y.tolist(), strict=True)
        ]
        _, first, code = np.unique(np.array(keys, object).astype(str), return_index=True, return_inverse=True)
        split = 0 if before is None else before.num_rows
        words = [word for t in tables for word in texts(t, self.category, "unknown")]
        return projection, {
            "x": rounded(_means(x, code), 3),
            "y": rounded(_means(y, code), 3),
            "visits": np.bincount(code[:split], minlength=len(first)).tolist(),
            "now": np.bincount(code[split:], minlength=len(first)).tolist(),
            "category": [words[i] for i in first],
            "lat": rounded(_means(lat, code), 5),
            "lon": rounded(_means(lon, code), 5),
            "before": code[:split].tolist(),
            "events": code[split:].tolist(),
        }

    def _expected_places(self, scored: pa.Table, projection: Projection) -> dict[str, list[Any]]:
        lat, lon = numbers(scored, "expected_lat"), numbers(scored, "expected_lon")
        x, y = projection.forward(lat, lon)
        names = self.place.field_names if self.place else ("x", "y")
        spread = [numbers(scored, f"spread_{name}") for name in names]
        return {
            "ex": rounded(x, 3),
            "ey": rounded(y, 3),
            "sx": rounded(spread[0], 3),
            "sy": rounded(spread[1], 3),
        }

    def _trips(self, trips: pa.Table | None, projection: Projection | None, scored: pa.Table) -> list[dict[str, Any]]:
        """Trips with day, minute, length, and (the latest of them) the path in units of 10 m, as differences."""
        if trips is None or trips.num_rows == 0 or self.schema.end is None or "started_at" not in trips.column_names:
            return []
        trips = sort_events(self._with_zone(trips, scored), self.schema.entity, "started_at")
        day, minute, length = span(trips, self.schema)
        rows: list[dict[str, Any]] = [
            {"d": int(d), "m": round(float(m)), "l": round(float(k))}
            for d, m, k in zip(day, minute, length, strict=True)
        ]
        if projection is None or "path" not in trips.column_names:
            return rows
        for i in range(max(0, len(rows) - MAX_PATHS), len(rows)):
            points = trips["path"][i].values
            if points is not None and len(points) > 1:
                rows[i]["p"] = _path(points, projection)
        return rows

    # ----------------------------------------------------------------------------------------- details
    def _details(self, scored: pa.Table) -> dict[str, Any]:
        features = [f for f in self.schema.features if self._has(f)]
        weight = {f.name: self._weight(scored, f) for f in features if f.scored}
        weight["knn"] = _loudness(numbers(scored, "pct_knn"))
        total = np.maximum(sum(np.nan_to_num(w) for w in weight.values()), 1e-9)
        terms = {f.name: self._term(scored, f) for f in features}
        for name, loud in weight.items():
            terms.setdefault(name, {})["share"] = rounded(loud / total, 3)
        return {
            "event": texts(scored, self.schema.event_id),
            "score": rounded(numbers(scored, "score"), 4),
            "p": [None if v != v else float(f"{v:.3g}") for v in numbers(scored, "p_value")],
            "surprise": rounded(surprise_of(scored), 2),
            "alert": (numbers(scored, "alert") > 0).astype(int).tolist(),
            "kind": texts(scored, "kind"),
            "reason": texts(scored, "reason"),
            "eu": rounded(self.epistemic.rank(scored), 3),
            "au": rounded(self.aleatoric.rank(scored), 3),
            "terms": terms,
        }

    def _has(self, feature: Feature) -> bool:
        return any(f"pct_{t.name}" in self.columns or f"expected_{t.name}" in self.columns for t in feature.terms())

    def _weight(self, scored: pa.Table, feature: Feature) -> np.ndarray:
        """How loudly a feature speaks: its share where the run gives one, else −log of what its percentile leaves."""
        total = np.zeros(scored.num_rows)
        for term in feature.terms():
            name = f"share_{term.name}"
            known = numbers(scored, name) if name in self.columns else _loudness(numbers(scored, f"pct_{term.name}"))
            total += np.nan_to_num(known)
        return total

    def _term(self, scored: pa.Table, feature: Feature) -> dict[str, Any]:
        """Expected, spread and observed of one feature, in natural units; words for a category."""
        if feature.kind == "categorical":
            return {
                "expected": texts(scored, f"expected_{feature.name}"),
                "observed": self._observed_words(scored, feature),
            }
        if feature.kind == "place":
            lat, lon = (numbers(scored, c) for c in feature.source)
            apart = haversine_km(lat, lon, numbers(scored, "expected_lat"), numbers(scored, "expected_lon"))
            spread = np.hypot(*(numbers(scored, f"spread_{name}") for name in feature.field_names))
            return {"observed": rounded(apart, 2), "spread": rounded(spread, 2)}
        if feature.kind == "vector":
            return {"percentile": rounded(_unit(numbers(scored, f"pct_{feature.name}")), 3)}
        return {
            "expected": rounded(numbers(scored, f"expected_{feature.name}"), 2),
            "spread": rounded(numbers(scored, f"spread_{feature.name}"), 2),
            "observed": rounded(self._observed(scored, feature), 2),
        }

    def _observed(self, scored: pa.Table, feature: Feature) -> np.ndarray:
        source, given = feature.source[0], f"observed_{feature.name}"
        if given in self.columns:
            return numbers(scored, given)
        if source == "@minute_of_day":
            return wall_clock(scored, self.schema, self.schema.time)[1]
        if source == "@duration" and self.schema.end is not None:
            times = [scored[c].cast(pa.int64()).to_numpy() for c in (self.schema.end, self.schema.time)]
            return (times[0] - times[1]) / 60e6
        return numbers(scored, source)

    def _observed_words(self, scored: pa.Table, feature: Feature) -> list[str]:
        if f"observed_{feature.name}" in self.columns:
            return texts(scored, f"observed_{feature.name}", "unknown")
        if feature.source[0] == "@weekday":
            day = wall_clock(scored, self.schema, self.schema.time)[0]
            return [DAY_NAMES[int(d + 3) % 7] for d in day]
        return texts(scored, feature.source[0], "unknown")


def _means(values: np.ndarray, code: np.ndarray) -> np.ndarray:
    return np.bincount(code, np.nan_to_num(values)) / np.bincount(code)


def _unit(percentile: np.ndarray) -> np.ndarray:
    """Percentiles as 0 … 1, whether they came as shares or as per cent."""
    return percentile / 100.0 if np.nanmax(percentile, initial=0.0) > 1.5 else percentile


def _loudness(percentile: np.ndarray) -> np.ndarray:
    return -log_tails(_unit(percentile))


def _path(points: pa.Array, projection: Projection) -> list[int]:
    """x, y of the first point in units of 10 m, then differences."""
    keep = np.unique(np.linspace(0, len(points) - 1, min(len(points), MAX_PATH_POINTS)).astype(int))
    lat, lon = (points.field(name).to_numpy(zero_copy_only=False)[keep] for name in ("lat", "lon"))
    x, y = projection.forward(lat, lon)
    flat = np.round(np.stack([x, y], axis=1) * 100).astype(np.int64)
    return np.concatenate([flat[:1], np.diff(flat, axis=0)]).ravel().tolist()
