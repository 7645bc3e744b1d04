"""True stays and stays that were extracted from a recording of the same lives: which is which, and how well.

In: two tables of stays of the same agents. Out: for each extracted stay the true one it shows, figures of how good the
extraction is, and the labels of true stays on extracted ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.geo import haversine_km
from ustad.tables import agent_codes

#: A start or end is seen where the fix before or after it is at most so far away in time.
SEEN_S = 600.0
_BLOCK = 10**11  # seconds between agents on one axis of time


@dataclass(frozen=True)
class Matching:
    """Rows of true stays that extracted stays show.

    `truth_row` [extracted]: the true stay that shares most time with it, at whatever place, or -1.
    `metres` [extracted]: how far apart the two are. `near` [extracted]: whether that is near enough to be one place.
    """

    truth_row: np.ndarray
    metres: np.ndarray
    near: np.ndarray

    def pieces(self, n_true: int) -> np.ndarray:
        """How many extracted stays show each true stay at its place: int [true]."""
        return np.bincount(self.truth_row[self.near], minlength=n_true)


def match_stays(truth: pa.Table, stays: pa.Table, near_m: float = 250.0) -> Matching:
    """For each extracted stay the true stay of the same agent that shares most time with it, the earlier of equals.

    An agent's true stays do not overlap. The place counts as the same within `near_m` metres.
    """
    (t_start, t_end), (e_start, e_end) = _axes(truth, stays)
    order = np.argsort(t_start, kind="stable")
    first = np.searchsorted(t_end[order], e_start, side="right")
    last = np.maximum(np.searchsorted(t_start[order], e_end, side="left"), first)
    row = np.repeat(np.arange(len(e_start)), last - first)
    begin = np.cumsum(last - first) - (last - first)
    candidate = order[np.arange(len(row)) - np.repeat(begin, last - first) + first[row]]
    overlap = np.minimum(t_end[candidate], e_end[row]) - np.maximum(t_start[candidate], e_start[row])
    best = np.lexsort((t_start[candidate], -overlap, row))
    best_of_row = best[np.unique(row[best], return_index=True)[1]]
    truth_row = np.full(len(e_start), -1, np.int64)
    truth_row[row[best_of_row]] = candidate[best_of_row]
    metres = np.full(len(truth_row), np.inf)
    has_truth = truth_row >= 0
    here = [stays[name].to_numpy()[has_truth] for name in ("lat", "lon")]
    metres[has_truth] = 1000 * haversine_km(
        *here, *(truth[name].to_numpy()[truth_row[has_truth]] for name in ("lat", "lon"))
    )
    return Matching(truth_row, metres, metres <= near_m)


def _axes(*tables: pa.Table) -> list[tuple[np.ndarray, np.ndarray]]:
    """Starts and ends of each table in seconds on one axis, where agents follow each other far apart."""
    kind = tables[0]["agent_id"].type
    codes, _ = agent_codes(pa.chunked_array([c for t in tables for c in t["agent_id"].cast(kind).chunks], kind))
    parts = np.split(codes.astype(np.int64), np.cumsum([t.num_rows for t in tables])[:-1])
    return [
        (_seconds(t, "started_at") + part * _BLOCK, _seconds(t, "finished_at") + part * _BLOCK)
        for t, part in zip(tables, parts, strict=True)
    ]


def _seconds(table: pa.Table, name: str) -> np.ndarray:
    return table[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy() // 1_000_000


def measure_extraction(truth: pa.Table, stays: pa.Table, near_m: float = 250.0) -> dict[str, Any]:
    """How good an extraction is.

    `stays_found`: share of the true stays that have an extracted one; `pieces`: extracted stays per true stay found;
    `spurious`: share of the extracted stays that show no true one; `places_near`, `places_right`: share of the others
    within `near_m`, and with the same POI; start and end errors in seconds, of all and of those with a fix near.
    """
    matching = match_stays(truth, stays, near_m)
    pieces, has_truth = matching.pieces(truth.num_rows), matching.truth_row >= 0
    result: dict[str, Any] = {
        "true_stays": truth.num_rows,
        "extracted_stays": stays.num_rows,
        "stays_found": float(np.mean(pieces > 0)),
        "pieces": float(pieces[pieces > 0].mean()) if pieces.any() else None,
        "spurious": float(np.mean(~has_truth)) if len(has_truth) else None,
        "places_near": float(matching.near[has_truth].mean()) if has_truth.any() else None,
        "places_right": _same_poi(truth, stays, matching.truth_row),
    }
    for name, column, pick in (("start", "started_at", np.minimum), ("end", "finished_at", np.maximum)):
        result |= _errors_of(truth, stays, matching, name, column=column, pick=pick)
    return result


def _same_poi(truth: pa.Table, stays: pa.Table, truth_row: np.ndarray) -> float | None:
    rows = np.flatnonzero(truth_row >= 0)
    if not len(rows) or "poi_id" not in truth.column_names or "poi_id" not in stays.column_names:
        return None
    own = stays["poi_id"].take(pa.array(rows)).cast(pa.string())
    theirs = truth["poi_id"].take(pa.array(truth_row[rows])).cast(pa.string())
    return float(np.mean(pc.fill_null(pc.equal(own, theirs), False).to_numpy()))


def _errors_of(
    truth: pa.Table, stays: pa.Table, matching: Matching, name: str, *, column: str, pick: np.ufunc
) -> dict[str, float | None]:
    """Errors of the first start (or last end) among a true stay's pieces: absolute seconds, median and 95 %."""
    rows = np.flatnonzero(matching.near)
    truth_row = matching.truth_row[rows]
    moment, target = _seconds(stays, column)[rows], _seconds(truth, column)
    outer = target.copy()
    outer[truth_row] = moment  # any of them, to begin with
    pick.at(outer, truth_row, moment)
    outermost = moment == outer[truth_row]
    error = np.abs(moment - target[truth_row])
    gap = f"{name}_gap_s"
    is_seen = np.ones(len(rows), bool)
    if gap in stays.column_names:
        is_seen = stays[gap].cast(pa.float64()).fill_null(np.inf).to_numpy()[rows] <= SEEN_S
    result: dict[str, float | None] = {}
    for key, some in ((f"{name}_error", outermost), (f"{name}_seen_error", outermost & is_seen)):
        for quantile, word in ((0.5, "median"), (0.95, "95")):
            result[f"{key}_{word}_s"] = float(np.quantile(error[some], quantile)) if some.any() else None
    return result


@dataclass(frozen=True)
class CarriedLabels:
    """Labels of extracted stays, and how many of the labelled true stays have no extracted one."""

    labels: pa.Table
    positives: int
    n_missed: int


def carry_labels(labels: pa.Table, truth: pa.Table, extracted_stays: pa.Table, near_m: float = 250.0) -> CarriedLabels:
    """An extracted stay is labelled as the true stay it shows, where it shows it at its place."""
    matching = match_stays(truth, extracted_stays, near_m)
    label_row = pc.index_in(truth["stay_id"], labels["stay_id"].combine_chunks())
    row = pc.fill_null(label_row, -1).to_numpy().astype(np.int64)  # of the label, by true stay
    label = np.where(matching.near, row[matching.truth_row], -1)
    stays = np.flatnonzero(label >= 0)
    table = extracted_stays.select(["stay_id", "agent_id", "started_at", "finished_at"]).take(pa.array(stays))
    for name in labels.column_names:
        if name not in table.column_names:
            table = table.append_column(name, labels[name].take(pa.array(label[stays])))
    return CarriedLabels(table, labels.num_rows, labels.num_rows - len(np.unique(label[stays])))
