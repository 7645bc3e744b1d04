"""One-dimensional reference distributions: how rare is a value among normal ones?

In go reference values, out come tail shares p(x) = share of the reference at least as large as x, as log₁₀ so that
nothing saturates. `Distribution` has a fitted tail (generalised Pareto), so that values beyond everything seen do not
tie; `Ranks` has none and says where a value stands within a batch (the paper's percentiles). Values that differ only in
their last bits are equal (`ties`). So a score is the same on every machine, alone or in a batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ustad.ties import lowered, raised

#: A distribution keeps at most this many sorted values (evenly spaced quantiles of more).
MOST_VALUES = 200_000
#: Values that are ranked exactly (400 MB of float32); of more, every so-and-so-many-th is kept.
MOST_RANKED = 100_000_000
#: Groups of reference people; the events of each are judged by the distributions of the others.
FOLDS = 5
#: log10 p of an uncertainty from which on an unusual event is called `unsure`, not `predictable`.
UNSURE = math.log10(0.05)
#: Shapes of the fitted tail: never a finite end, so that larger is always rarer.
_SHAPES = (0.0, 0.9)


class Tail(Protocol):
    """Anything that turns values into log₁₀ tail shares (NaN stays NaN)."""

    def log10_tail(self, values: np.ndarray) -> np.ndarray: ...


#: The scale of a fitted tail is at least this share of the value where the tail begins.
_LEAST_SCALE = 0.1


@dataclass(frozen=True)
class Distribution:
    """Sorted reference values and the Pareto tail above `threshold`."""

    values: np.ndarray  # float64, ascending
    count: int  # reference values it was fitted on
    threshold: float
    above: float  # tail share just above the threshold
    shape: float
    scale: float

    @classmethod
    def fit(cls, values: np.ndarray) -> Distribution:
        """From reference values; NaN are left out. The tail starts above the highest 2 % (at least 30 values)."""
        ascending = np.sort(values[np.isfinite(values)].astype(np.float64))
        count = len(ascending)
        if count == 0:
            return cls(np.zeros(1), 0, 0.0, 1.0, 0.0, 1.0)
        exceed = int(min(max(0.02 * count, 30), max(1, count // 4)))
        threshold = float(ascending[-exceed - 1]) if exceed < count else float(ascending[0])
        excess = ascending[ascending > raised(threshold)] - threshold
        # A reference that hardly varies says little about how far beyond it is far: a share of its size is the least.
        least = max(_LEAST_SCALE * abs(threshold), 1e-9)
        shape, scale = _pareto(excess, fallback=float(ascending.std()))
        scale = max(scale, least)
        return cls(_thin(ascending), count, threshold, (1 + len(excess)) / (count + 1), shape, scale)

    def log10_tail(self, values: np.ndarray) -> np.ndarray:
        """log₁₀ of (1 + reference values ≥ x) / (1 + all), continued by the fitted tail; never rises with x."""
        x = np.asarray(values, np.float64)
        at_least = (len(self.values) - np.searchsorted(self.values, lowered(x), side="left")) / len(self.values)
        body = np.log10((1 + at_least * self.count) / (self.count + 1))
        excess = np.maximum(x - self.threshold, 0.0)
        ratio = excess / self.scale
        decay = np.log1p(self.shape * ratio) / self.shape if self.shape > 1e-6 else ratio
        tail = self._bound_tail(np.log10(self.above) - decay / np.log(10))
        return np.where(np.isnan(x), np.nan, np.where(x > self._body_ends, tail, body))

    def log10_tail_of(self, x: float) -> float:
        """The same of one value, without making arrays: live scoring asks for twenty of these per event."""
        if x != x:
            return math.nan
        if x <= self._body_ends:
            count = len(self.values)
            at_least = (count - int(self.values.searchsorted(lowered(x)))) / count
            return math.log10((1 + at_least * self.count) / (self.count + 1))
        ratio = (x - self.threshold) / self.scale
        decay = math.log1p(self.shape * ratio) / self.shape if self.shape > 1e-6 else ratio
        tail = math.log10(self.above) - decay / math.log(10)
        return tail if tail >= self._limit else self._limit - 0.5 * math.log1p(self._limit - tail)

    @cached_property
    def _body_ends(self) -> float:
        """The largest value that still equals the threshold."""
        return raised(self.threshold)

    @cached_property
    def _limit(self) -> float:
        """A tail fitted on n values is trusted n² / 900 times further than they reach; then it falls, but slowly."""
        return -math.log10(self.count + 1) - 2 * max(0.0, math.log10(max(self.count, 1) / 30))

    def _bound_tail(self, tail: np.ndarray) -> np.ndarray:
        limit = self._limit
        return np.where(tail < limit, limit - 0.5 * np.log1p(np.maximum(limit - tail, 0.0)), tail)

    def to_tensors(self, name: str) -> dict[str, np.ndarray]:
        """Arrays whose names begin with `name`."""
        numbers = [self.count, self.threshold, self.above, self.shape, self.scale]
        return {f"{name}.values": self.values, f"{name}.numbers": np.array(numbers, np.float64)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray], name: str) -> Distribution:
        count, *rest = tensors[f"{name}.numbers"].tolist()
        return cls(tensors[f"{name}.values"], int(count), *rest)


@dataclass(frozen=True)
class Ranks:
    """Where values stand among `count` values, of which `values` (ascending) are all or every so-many-th."""

    values: np.ndarray
    count: int

    @classmethod
    def of(cls, values: np.ndarray, kind: type[np.float32 | np.float64] = np.float64, most: int = MOST_RANKED) -> Ranks:
        """Of all but NaN. Float32 takes half the memory; of more than `most`, evenly spaced ones are kept."""
        ascending = values[np.isfinite(values)].astype(kind)
        ascending.sort()
        count = len(ascending)
        if count > most:
            ascending = ascending[((np.arange(most) + 0.5) * count / most).astype(np.int64)]
        return cls(ascending, count)

    def log10_tail(self, values: np.ndarray) -> np.ndarray:
        """log₁₀ of the share above, ties counted half; NaN stays NaN."""
        x = np.asarray(values, np.float64)
        low, high = (edge(x).astype(self.values.dtype, copy=False) for edge in (lowered, raised))
        below = np.searchsorted(self.values, low, side="left")
        upto = np.searchsorted(self.values, high, side="right")
        stand = (below + upto) / 2 * (self.count / max(len(self.values), 1))
        share = (self.count - stand + 0.5) / (self.count + 1)
        return np.where(np.isnan(x), np.nan, np.log10(share))


def _thin(ascending: np.ndarray) -> np.ndarray:
    """At most MOST_VALUES evenly spaced quantiles. `np.quantile` searches anew for each: minutes for so many."""
    count = len(ascending)
    if count <= MOST_VALUES:
        return ascending
    return np.interp(np.linspace(0, count - 1, MOST_VALUES), np.arange(count), ascending)


def _pareto(excess: np.ndarray, fallback: float) -> tuple[float, float]:
    """Shape and scale by probability-weighted moments (Hosking and Wallis), the shape kept within bounds."""
    if len(excess) == 0:
        return 0.0, fallback
    ascending = np.sort(excess)
    n = len(ascending)
    mean = float(ascending.mean())
    moment = float((ascending * (n - np.arange(1, n + 1))).sum() / (n * max(n - 1, 1)))
    spread = mean - 2 * moment
    shape = 2 - mean / spread if spread > 0 and n >= 10 else 0.0
    shape_in_bounds = float(np.clip(shape, *_SHAPES))
    return shape_in_bounds, mean * (1 - shape_in_bounds)


def log10_any(log10_tail: np.ndarray, times: np.ndarray | float) -> np.ndarray:
    """log₁₀ of 1 − (1 − p)ⁿ: the chance of at least one in n independent draws, exact also for tiny p."""
    p = np.power(10.0, log10_tail)
    with np.errstate(divide="ignore"):
        chance = -np.expm1(times * np.log1p(-np.minimum(p, 1.0)))
        small = log10_tail + np.log10(times)
        return np.where(p < 1e-12, np.minimum(small, 0.0), np.log10(np.maximum(chance, 1e-300)))


def spread_of(au: np.ndarray, eu: np.ndarray) -> np.ndarray:
    """One standard deviation of a prediction, total of both uncertainties; 1 where neither is modelled."""
    total = au + eu
    return np.sqrt(np.where(total > 0, total, 1.0))
