"""What the data was like: rows of (what, typical, range) for the page, from the quality table and the scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.page.run_tables import RunTables
from ustad.page.score_columns import category_column, numbers
from ustad.schema import plural


def quality_rows(source: RunTables) -> list[dict[str, str]]:
    """Facts about the scored events, then one row for each column of the quality table."""
    rows = _event_facts(source)
    if source.quality is not None and source.quality.num_rows:
        rows += _table_facts(source.quality, source.schema.entity)
    return rows


def _event_facts(source: RunTables) -> list[dict[str, str]]:
    schema, present = source.schema, source.events.schema.names
    category, events = category_column(schema), plural(schema.event_word)
    names = [n for n in (category, "start_gap_s", "end_gap_s", "kind") if n and n in present]
    table = source.events.to_table(columns=names)
    n, rows = max(source.events.count_rows(), 1), []
    if category in names:
        unknown = pc.fill_null(pc.equal(table[category], "unknown"), True)
        rows.append(_share(f"{events} without a known category", int(pc.sum(unknown).as_py() or 0), n))
    if {"start_gap_s", "end_gap_s"} <= set(names):
        cut = (np.nan_to_num(numbers(table, "start_gap_s")) > 0) | (np.nan_to_num(numbers(table, "end_gap_s")) > 0)
        rows.append(_share(f"{events} whose start or end was not observed", int(cut.sum()), n))
    if "kind" in names:
        unseen = int(pc.sum(pc.equal(table["kind"], "unobserved")).as_py() or 0)
        rows.append(_share("scores that rest on missing data (not fully observed)", unseen, n))
    for dataset in (source.events, source.details):  # event scores of older versions have it themselves
        if dataset is not None and "history_days" in dataset.schema.names and dataset.count_rows() == n:
            days = numbers(dataset.to_table(columns=["history_days"]), "history_days")
            rows.append({"what": "days of history before an event", **_spread(days)})
    return rows


def _share(what: str, count: int, n: int) -> dict[str, str]:
    return {"what": what, "typical": f"{count:,} of {n:,}", "range": f"{count / n:.1%}"}


def _table_facts(table: pa.Table, entity: str) -> list[dict[str, str]]:
    from ustad.mobility.quality import QUALITY_COLUMNS

    rows = []
    for name in table.column_names:
        kind, what = table.schema.field(name).type, QUALITY_COLUMNS.get(name, name.replace("_", " "))
        if name == entity:
            continue
        if pa.types.is_boolean(kind):
            rows.append(_share(what, int(pc.sum(table[name]).as_py() or 0), table.num_rows))
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
            rows.append({"what": what, **_spread(numbers(table, name))})
    return rows


def _spread(values: np.ndarray) -> dict[str, str]:
    values = values[np.isfinite(values)]
    if not len(values):
        return {"typical": "–", "range": "–"}
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    return {"typical": _show(middle), "range": f"{_show(low)} … {_show(high)}"}


def _show(value: Any) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:,.3g}"
