"""Evidence: what a source answers to one question about an event, in the same form whoever was asked.

A score table has a column `evidence`, a list by event, the largest share of the score first. Each entry says the
question's `name`, its `surprise` (−log10 p on normal events), its `share` of the score (together 1, or 0 where nothing
is unusual), and, where the answer is about a number, what was `expected` and `observed` and how wide the expectation
was (`spread`), in the feature's unit; `noise` and `doubt` are its aleatoric and epistemic part where a network says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from ustad.schema import EventSchema
from ustad.tables import ANSWER
from ustad.ties import ABSOLUTE, RELATIVE, descending, rounded

#: A percentile of 1 counts as this tail: the last that 1 - percentile can tell from nothing.
SMALLEST_TAIL = 1e-16
NUMBERS = ("expected", "observed", "spread", "noise", "doubt")

Values = Mapping[str, np.ndarray]  # question → one number for each of n events, NaN where it has no answer


def evidence_column(surprise: Values, share: Values, numbers: Mapping[str, Values] | None = None) -> pa.Array:
    """The column of n events. `numbers` has, by question, those of `NUMBERS` that are known."""
    names = list(surprise)
    surprises, shares = (
        np.stack([np.asarray(values[q], np.float64) for q in names], axis=1) for values in (surprise, share)
    )
    question, offsets = _order_answers(surprises, shares)
    cell = np.repeat(np.arange(len(surprises)) * len(names), np.diff(offsets)) + question
    fields: list[pa.Array] = [
        pa.DictionaryArray.from_arrays(pa.array(question), pa.array(names)).cast(pa.string()),
        pa.array(surprises.ravel()[cell]),
        pa.array(shares.ravel()[cell]),
    ]
    for what in NUMBERS:
        columns = [(numbers or {}).get(name, {}).get(what) for name in names]
        fields.append(_number_column(columns, shape=surprises.shape, cell=cell))
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(fields, fields=list(ANSWER)))


@njit(nogil=True, cache=True)
def _order_answers(surprises: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # pragma: no cover
    """The questions that each event [n, Q] has an answer to, the largest share first, then the largest surprise, then
    as they stand: int32 [m]; and where the answers of each event begin: int32 [n + 1]."""
    question, offsets = np.empty(surprises.size, np.int32), np.zeros(len(surprises) + 1, np.int32)
    last = 0
    for row in range(len(surprises)):
        first = last
        for one in range(surprises.shape[1]):
            if not np.isfinite(surprises[row, one]):
                continue
            at = last
            while at > first and _comes_first(surprises[row], shares[row], one, question[at - 1]):
                question[at] = question[at - 1]
                at -= 1
            question[at] = one
            last += 1
        offsets[row + 1] = last
    return question[:last].copy(), offsets


@njit(nogil=True, cache=True)
def _comes_first(surprise: np.ndarray, share: np.ndarray, one: int, other: int) -> bool:  # pragma: no cover
    """Whether a question stands before an earlier one; numbers are compared as in `ties`."""
    for values in (share, surprise):
        slack = RELATIVE * min(max(abs(values[one]), abs(values[other])), 1e300) + ABSOLUTE
        if abs(values[one] - values[other]) > slack:
            return values[one] > values[other]
    return False


def _number_column(columns: Sequence[np.ndarray | None], *, shape: tuple[int, int], cell: np.ndarray) -> pa.Array:
    """The numbers of each cell of a table of this shape, null where there is none: float32."""
    if all(values is None for values in columns):
        return pa.nulls(len(cell), pa.float32())
    table = np.full(shape, np.nan, np.float32)
    for i, values in enumerate(columns):
        if values is not None:
            table[:, i] = values
    return pa.array(table.ravel()[cell], from_pandas=True)


def evidence_of_one(
    surprise: Mapping[str, float], share: Mapping[str, float], numbers: Mapping[str, Mapping[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """The same list of one event, without a table."""
    answers = [name for name, value in surprise.items() if math.isfinite(value)]
    answers.sort(key=lambda name: (-rounded(share[name]), -rounded(surprise[name])))
    by_question = numbers or {}
    return [
        {"name": name, "surprise": surprise[name], "share": share[name], **_numbers_of(by_question.get(name))}
        for name in answers
    ]


_NO_NUMBERS: dict[str, float | None] = dict.fromkeys(NUMBERS)


def _numbers_of(values: Mapping[str, Any] | None) -> dict[str, float | None]:
    if not values:
        return _NO_NUMBERS
    return {**_NO_NUMBERS, **{what: _to_number(value) for what, value in values.items()}}


def withhold_expected(evidence: pa.ChunkedArray, keep: np.ndarray) -> pa.Array:
    """The column without what was expected, and how widely, of the events that are not kept (bool [n])."""
    lists = evidence.combine_chunks()
    entries, counts = lists.flatten(), pc.list_value_length(lists).to_numpy()
    is_kept = pa.array(np.repeat(keep, counts))
    fields = [
        pc.if_else(is_kept, entries.field(one.name), pa.scalar(None, one.type))
        if one.name in ("expected", "spread")
        else entries.field(one.name)
        for one in ANSWER
    ]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(fields, fields=list(ANSWER)))


def _to_number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def read_evidence(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The evidence of one row of a score table; of one from before this column, by its columns `surprise_…` and
    `share_…`, or by its percentiles."""
    if row.get("evidence") is not None:
        return list(row["evidence"])
    surprise = _numbers(row, "surprise_")
    if surprise:
        total = max(sum(surprise.values()), 1e-12)
        stored_shares = _numbers(row, "share_")
        return evidence_of_one(
            surprise, {name: stored_shares.get(name, value / total) for name, value in surprise.items()}
        )
    surprise = {name: -np.log10(max(1 - value, SMALLEST_TAIL)) for name, value in _numbers(row, "pct_").items()}
    total = max(sum(surprise.values()), 1e-12)
    return evidence_of_one(surprise, {name: value / total for name, value in surprise.items()})


def _numbers(row: Mapping[str, Any], prefix: str) -> dict[str, float]:
    return {
        name.removeprefix(prefix): float(value)
        for name, value in row.items()
        if name.startswith(prefix) and isinstance(value, (int, float)) and np.isfinite(value)
    }


def most_unusual(events: pa.Table, schema: EventSchema, top: int) -> list[dict[str, Any]]:
    """The `top` highest scores with their `terms`: name → surprise (-log10 p) and share, the largest first."""
    order = pa.array(descending(events["score"].to_numpy())[:top])
    rows = events.take(order).to_pylist()
    identifiers = [
        c for c in (schema.event_id, schema.entity, schema.time) if c is not None and c in events.column_names
    ]
    return [{**{c: _plain(row[c]) for c in identifiers}, "score": row["score"], "terms": _terms(row)} for row in rows]


def _plain(value: Any) -> Any:
    """Moments as ISO 8601 text, for JSON and CSV alike."""
    return value.isoformat() if isinstance(value, datetime) else value


def _terms(row: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {one["name"]: {"surprise": one["surprise"], "share": one["share"]} for one in read_evidence(row)}
