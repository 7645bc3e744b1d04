"""Columns of a score table as the page's answers need them: numbers, texts, rounded for JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.schema import EventSchema


def round_values(values: np.ndarray, digits: int) -> list[Any]:
    """Numbers for JSON: rounded, None where missing."""
    return [None if v != v else v for v in np.round(np.asarray(values, np.float64), digits).tolist()]


def numbers(table: pa.Table, name: str) -> np.ndarray:
    """A column as float64 with NaN where missing or where there is no such column."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    return pc.fill_null(table[name].cast(pa.float64()), np.nan).to_numpy()


def texts(table: pa.Table, name: str) -> list[str]:
    """A column as words, empty where missing or where there is no such column."""
    if name not in table.column_names:
        return [""] * table.num_rows
    return pc.fill_null(table[name].cast(pa.string()), "").to_pylist()


def category_column(schema: EventSchema) -> str | None:
    """The column whose words colour the timeline: the first categorical feature that is read from the table."""
    return next((f.columns[0] for f in schema.features if f.kind == "categorical" and f.columns), None)
