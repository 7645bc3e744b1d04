"""Comparisons that never hang on the last bit: numbers that differ by a billionth of their size are equal.

Processors, and one value and an array of values, differ in the last bits of a logarithm or a sum. So whatever is
ranked, tied, held against a limit or chosen as the largest is compared here. In go numbers, out come numbers moved by
the slack, ranks, orders and choices.

Why a tolerance and not rounding: equal numbers that differ in the last bit may lie on both sides of a rounding
boundary. Within a tolerance they are always equal, and numbers further apart than the tolerance never are. Only
two numbers that differ by the tolerance itself, to six digits of it, could still be told apart on one machine alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

#: Differences up to this share of a number, and up to this much around 0, are none. Errors of rounding stay a
#: thousand times below them; float32 numbers that differ at all differ by sixty times more.
RELATIVE, ABSOLUTE = 1e-9, 1e-12
_LARGEST = 1e300  # infinity has a finite slack

Numbers = TypeVar("Numbers", float, np.ndarray)


def slack(number: float, floor: float = ABSOLUTE) -> float:
    """How far another number may be off and still be equal."""
    return RELATIVE * min(abs(number), _LARGEST) + floor


def slacks(values: np.ndarray, floor: float = ABSOLUTE) -> np.ndarray:
    """`slack` of each value."""
    return RELATIVE * np.minimum(np.abs(values), _LARGEST) + floor


def lowered(values: Numbers, floor: float = ABSOLUTE) -> Numbers:
    """The least numbers that still equal these: `x >= lowered(y)` says that x is at least y.

    P-values have no `floor` (0): among them 1e-20 and 1e-15 are far apart.
    """
    return values - (slacks(values, floor) if isinstance(values, np.ndarray) else slack(values, floor))


def raised(values: Numbers, floor: float = ABSOLUTE) -> Numbers:
    """The largest numbers that still equal these: `x <= raised(y)` says that x is at most y."""
    return values + (slacks(values, floor) if isinstance(values, np.ndarray) else slack(values, floor))


def tied_ranks(values: np.ndarray, floor: float = ABSOLUTE) -> np.ndarray:
    """Ranks from 0, the lowest, up; equal numbers share one, NaN share the last: int64 [n]."""
    plain = np.where(np.isnan(values), np.inf, np.asarray(values, np.float64))
    order = np.argsort(plain, kind="stable")
    ascending = plain[order]
    ranks = np.empty(len(plain), np.int64)
    ranks[order] = np.r_[0, np.cumsum(ascending[1:] > raised(ascending[:-1], floor))][: len(plain)]
    return ranks


def level_ties(values: np.ndarray) -> np.ndarray:
    """The same with equal numbers made one, the lowest of them; NaN stays: float64 [n]."""
    values = np.asarray(values, np.float64)
    ranks = tied_ranks(values)
    lowest = np.full(ranks.max(initial=-1) + 1, np.inf)
    np.minimum.at(lowest, ranks, values)
    return np.where(np.isnan(values), np.nan, lowest[ranks])


def descending(values: np.ndarray) -> np.ndarray:
    """The order from the highest value to the lowest; equal numbers stay as they stand: int64 [n]."""
    return np.argsort(tied_ranks(-np.asarray(values, np.float64)), kind="stable")


def first_highest(columns: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Which of the columns [k, n] is the highest in each row, of equal ones the first: int64 [n]."""
    matrix = np.asarray(columns, np.float64)
    return np.argmax(matrix >= lowered(matrix.max(axis=0)), axis=0)


def highest_of(values: Sequence[float]) -> int:
    """`first_highest` of one row, without making arrays."""
    least = lowered(max(values))
    return next(i for i, value in enumerate(values) if value >= least)


def rounded(value: float) -> float:
    """To nine digits, before a number is put into words: 12.5 and what is a bit less read alike."""
    return float(f"{value:.9g}")
