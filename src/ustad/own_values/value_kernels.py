"""Values compared with an entity's own ones, compiled: plain arrays in, plain arrays out.

Own values of entity e are `offsets[e] … offsets[e + 1]`; `owner` is an index of an entity, -1 where it has none.
"""

from __future__ import annotations

import numpy as np
from numba import njit

#: The population counts as so many own values.
POPULATION = 2.0
#: Width of the population's kernel, in spreads.
POPULATION_WIDTH = 0.3


@njit(nogil=True, cache=True)
def _log_kernel(apart: float, width: float, period: float) -> float:  # pragma: no cover - compiled
    """log density of the logistic distribution of this width: its tails fall slowly, and never to nothing. On a circle
    where there is a period."""
    if period > 0.0:
        apart = abs(apart) % period
        apart = min(apart, period - apart)
    ratio = abs(apart) / width
    return -ratio - 2.0 * np.log1p(np.exp(-ratio)) - np.log(width)


@njit(nogil=True, cache=True)
def _add_logs(one: float, other: float) -> float:  # pragma: no cover - compiled
    """log(exp(one) + exp(other))."""
    high, low = max(one, other), min(one, other)
    return high if low == -np.inf else high + np.log1p(np.exp(low - high))


@njit(nogil=True, cache=True)
def rarity_of_numbers(
    owner: np.ndarray,
    value: np.ndarray,
    offsets: np.ndarray,
    own_value: np.ndarray,
    width: np.ndarray,
    points: np.ndarray,
    period: float,
) -> tuple[np.ndarray, np.ndarray]:  # pragma: no cover - compiled
    """-log density of each value among its entity's own ones (float64 [N]), and how many these are (int64 [N]).

    Own values have kernels of the entity's `width` [E]; the population's `points` count as POPULATION values.
    """
    rarity, own_count = np.full(len(value), np.nan), np.zeros(len(value), np.int64)
    for i in range(len(value)):
        if np.isnan(value[i]) or len(points) == 0:
            continue
        total = -np.inf
        for point in points:
            total = _add_logs(total, _log_kernel(value[i] - point, POPULATION_WIDTH, period))
        total += np.log(POPULATION / len(points))
        if owner[i] >= 0:
            for j in range(offsets[owner[i]], offsets[owner[i] + 1]):
                if not np.isnan(own_value[j]):
                    total = _add_logs(total, _log_kernel(value[i] - own_value[j], width[owner[i]], period))
                    own_count[i] += 1
        rarity[i] = np.log(own_count[i] + POPULATION) - total
    return rarity, own_count


@njit(nogil=True, cache=True)
def count_same(
    owner: np.ndarray, value: np.ndarray, offsets: np.ndarray, own_value: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:  # pragma: no cover - compiled
    """How many own values are the same word, and how many there are: int64 [N] each. Words are codes; a word that
    nobody had is -1 and the same as none."""
    same, own_count = np.zeros(len(value), np.int64), np.zeros(len(value), np.int64)
    for i in range(len(value)):
        if owner[i] < 0:
            continue
        for j in range(offsets[owner[i]], offsets[owner[i] + 1]):
            if not np.isnan(own_value[j]):
                own_count[i] += 1
                if own_value[j] == value[i] and value[i] >= 0:
                    same[i] += 1
    return same, own_count


@njit(nogil=True, cache=True)
def nearest_vectors(
    owner: np.ndarray, value: np.ndarray, offsets: np.ndarray, own_value: np.ndarray, nearest: int
) -> tuple[np.ndarray, np.ndarray]:  # pragma: no cover - compiled
    """Mean distance to the `nearest` own vectors, NaN where there are fewer (float64 [N]), and how many there are."""
    distance, own_count = np.full(len(value), np.nan), np.zeros(len(value), np.int64)
    for i in range(len(value)):
        if owner[i] < 0 or np.isnan(value[i]).any():
            continue
        first, stop = offsets[owner[i]], offsets[owner[i] + 1]
        apart = np.empty(stop - first)
        for j in range(first, stop):
            if not np.isnan(own_value[j]).any():
                apart[own_count[i]] = np.sqrt(np.sum((value[i] - own_value[j]) ** 2))
                own_count[i] += 1
        if own_count[i] >= nearest:
            distance[i] = np.mean(np.sort(apart[: own_count[i]])[:nearest])
    return distance, own_count
