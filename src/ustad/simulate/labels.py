"""Labels that travel: from true stays to stays that were extracted again from raw fixes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ustad.files import as_table
from ustad.tables import DataError, agent_codes

_KEYS = ("agent_id", "started_at", "finished_at")


def match_labels(labels: Any, stay_table: Any) -> pa.Table:
    """Labels of extracted stays: those that overlap a labelled true stay of the same agent by at least half of
    either duration. In: labels with agent_id, started_at, finished_at; stays with stay_id and the same. Out: one
    row per labelled stay with stay_id, its agent and times, and every other column of the label it matched best.
    """
    labels, stay_table = as_table(labels, "labels"), as_table(stay_table, "stays")
    for table, name in ((labels, "labels"), (stay_table, "stays")):
        missing = [column for column in _KEYS if column not in table.column_names]
        if missing:
            raise DataError(f"{name}: matching labels by time needs column {missing[0]}")
    stays, label = _overlaps(labels, stay_table)
    stay, first = np.unique(stays, return_index=True)
    rows = stay_table.select(["stay_id", *_KEYS]).take(pa.array(stay))
    rest = [name for name in labels.column_names if name not in ("stay_id", *_KEYS)]
    columns = labels.select(rest).take(pa.array(label[first]))
    for name in rest:
        rows = rows.append_column(name, columns[name])
    return rows


def _overlaps(labels: pa.Table, stay_table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (extracted stay, label) that match, best overlap first for each stay."""
    both = pa.chunked_array([*labels["agent_id"].chunks, *stay_table["agent_id"].cast(labels["agent_id"].type).chunks])
    codes, _ = agent_codes(both)
    label_code, stay_code = codes[: labels.num_rows], codes[labels.num_rows :]
    l_start, l_end = _seconds(labels, "started_at"), _seconds(labels, "finished_at")
    s_start, s_end = _seconds(stay_table, "started_at"), _seconds(stay_table, "finished_at")
    order = np.lexsort((s_start, stay_code))
    pairs: list[tuple[int, int, float]] = []
    first = np.searchsorted(stay_code[order], label_code)
    last = np.searchsorted(stay_code[order], label_code, side="right")
    for k in range(labels.num_rows):
        rows = order[first[k] : last[k]]
        overlap = np.minimum(l_end[k], s_end[rows]) - np.maximum(l_start[k], s_start[rows])
        shorter = np.minimum(l_end[k] - l_start[k], s_end[rows] - s_start[rows])
        for row in np.flatnonzero((overlap > 0) & (2 * overlap >= shorter)):
            pairs.append((int(rows[row]), k, float(overlap[row])))
    pairs.sort(key=lambda pair: (pair[0], -pair[2], pair[1]))
    indices = np.array([pair[:2] for pair in pairs], np.int64).reshape(-1, 2)
    return indices[:, 0], indices[:, 1]


def _seconds(table: pa.Table, name: str) -> np.ndarray:
    return table[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy() / 1e6
