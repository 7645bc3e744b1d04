"""What people do on the whole: start and duration by kind of place, as histograms that thin histories lean on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ustad.events.observed import length_weight, start_weight
from ustad.events.visits import Visits

START_BINS, PART_BINS, DURATION_BINS = 48, 8, 44
#: The longest duration that has a bin of its own, log(1 + minutes): four days.
LONGEST = float(np.log1p(4 * 1440))
#: Events that a coarser histogram is worth where a finer one is thin.
COARSER = 30.0


@dataclass(frozen=True)
class Population:
    """Densities by category (C kinds, 0 unknown)."""

    start: np.ndarray  # float64 [2, C, 48] per minute, by weekday or weekend
    duration: np.ndarray  # float64 [C, 8, 44] per unit of log(1 + minutes), by part of the day
    longer: np.ndarray  # float64 [C, 8, 45] chance of a duration beyond each edge

    @classmethod
    def fit(cls, visits: Visits, categories: int) -> Population:
        """`categories`: how many kinds there are, unknown included. What was not observed well counts less."""
        begun, lasted = start_weight(visits.early), length_weight(visits.early, visits.late)
        kind, weekend = visits.category, (visits.weekday >= 5).astype(np.int64)
        bins = (weekend, kind, _bin(visits.minute, 1440.0, START_BINS))
        start = _histogram(bins, (2, categories, START_BINS), begun)
        start = _backed(start, _backed(start.sum(axis=(0, 1)), np.ones(START_BINS)))
        known = np.isfinite(visits.duration)
        part = _bin(visits.minute, 1440.0, PART_BINS)[known]
        length = _bin(_logarithm(visits.duration[known]), LONGEST, DURATION_BINS)
        duration = _histogram((kind[known], part, length), (categories, PART_BINS, DURATION_BINS), lasted[known])
        whole = _backed(duration.sum(axis=(0, 1)), np.ones(DURATION_BINS))
        duration = _backed(duration, _backed(duration.sum(axis=1), whole)[:, None])
        beyond = np.concatenate([np.ones_like(duration[..., :1]), 1 - np.cumsum(duration, axis=-1)], axis=-1)
        return cls(
            start=start * START_BINS / 1440.0,
            duration=duration * DURATION_BINS / LONGEST,
            longer=np.maximum(beyond, 0.0),
        )

    def starts(self, visits: Visits) -> np.ndarray:
        """Density of each visit's start given its kind: float64 [N]."""
        weekend = (visits.weekday >= 5).astype(np.int64)
        return self.start[weekend, visits.category, _bin(visits.minute, 1440.0, START_BINS)]

    def durations(self, visits: Visits) -> tuple[np.ndarray, np.ndarray]:
        """Density of each duration given kind and part of the day, and the chance of a longer one: 2 × [N]."""
        part = _bin(visits.minute, 1440.0, PART_BINS)
        value = np.nan_to_num(_logarithm(visits.duration))
        position = np.minimum(value / LONGEST * DURATION_BINS, DURATION_BINS - 1e-9)
        length = position.astype(np.int64)
        rest = position - length
        beyond = self.longer[visits.category, part]
        rows = np.arange(len(visits))
        longer = beyond[rows, length] * (1 - rest) + beyond[rows, length + 1] * rest
        return self.duration[visits.category, part, length], longer


def _logarithm(minutes: np.ndarray) -> np.ndarray:
    return np.log1p(np.maximum(minutes, 0.0))


def _bin(values: np.ndarray, end: float, bins: int) -> np.ndarray:
    return np.clip((values / end * bins).astype(np.int64), 0, bins - 1)


def _histogram(columns: tuple[np.ndarray, ...], shape: tuple[int, ...], weight: np.ndarray) -> np.ndarray:
    flat = np.ravel_multi_index(columns, shape)
    return np.bincount(flat, weight, minlength=int(np.prod(shape))).reshape(shape)


def _backed(counts: np.ndarray, coarser: np.ndarray) -> np.ndarray:
    """Shares along the last axis, smoothed towards a coarser histogram of the same length."""
    coarser = coarser / coarser.sum(axis=-1, keepdims=True)
    return (counts + COARSER * coarser) / (counts.sum(axis=-1, keepdims=True) + COARSER)
