"""How the schema's features are called and shown, and small conversions every part of the report needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import local_time
from ustad.dataset import zone_of
from ustad.schema import EventSchema, Feature


def rounded(values: np.ndarray, digits: int) -> list[Any]:
    """Numbers for JSON: rounded, None where missing, whole numbers without a point and a half upwards, as in words."""
    values = np.asarray(values, np.float64)
    if digits == 0:
        return [None if v != v else int(v) for v in np.floor(values + 0.5).tolist()]
    return [None if v != v else v for v in np.round(values, digits).tolist()]


def numbers(table: pa.Table, name: str) -> np.ndarray:
    """A column as float64 with NaN where missing or where there is no such column."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    return pc.fill_null(table[name].cast(pa.float64()), np.nan).to_numpy()


def texts(table: pa.Table, name: str | None, missing: str = "") -> list[str]:
    if name is None or name not in table.column_names:
        return [missing] * table.num_rows
    return pc.fill_null(table[name].cast(pa.string()), missing).to_pylist()


def wall_clock(table: pa.Table, schema: EventSchema, column: str) -> tuple[np.ndarray, np.ndarray]:
    """(local day since 1970, minute of that day) of a time column, in each row's own zone."""
    local = local_time(table[column], zone_of(table, schema))
    return local.day.astype(np.int64), local.minute


def span(table: pa.Table, schema: EventSchema) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(day, minute, length in minutes by the wall clock); events without an end have length 0."""
    day, minute = wall_clock(table, schema, schema.time)
    if schema.end is None or schema.end not in table.column_names:
        return day, minute, np.zeros(len(day))
    last, end = wall_clock(table, schema, schema.end)
    return day, minute, np.maximum((last - day) * 1440 + end - minute, 0.0)


def zones(table: pa.Table, schema: EventSchema) -> list[str]:
    zone = zone_of(table, schema)
    return [zone] if isinstance(zone, str) else sorted(pc.unique(zone).to_pylist())


def category_column(schema: EventSchema) -> str | None:
    """The column whose words colour the timeline: the first categorical feature that is read from the table."""
    return next((f.columns[0] for f in schema.features if f.kind == "categorical" and f.columns), None)


def place_feature(schema: EventSchema) -> Feature | None:
    return next((f for f in schema.features if f.kind == "place"), None)


def described(schema: EventSchema, columns: list[str]) -> list[dict[str, str]]:
    """The features that the score table knows: name, label, unit, how to show and of which kind."""
    known = []
    for feature in schema.features:
        names = [t.name for t in feature.terms()]
        if any(f"pct_{n}" in columns or f"expected_{n}" in columns for n in names):
            known.append(
                {
                    "name": feature.name,
                    "label": feature.label,
                    "unit": feature.unit,
                    "display": feature.display,
                    "kind": feature.kind,
                    "period": str(feature.period or ""),
                }
            )
    return known
