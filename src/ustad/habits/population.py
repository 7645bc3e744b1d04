"""What people do on the whole: start, duration and end by kind of place, as histograms that thin histories lean on.

Own homes and workplaces say little of a first visit to somebody else's: places that their visitors seldom come to have
histograms of their own. And which kinds of places people go to for the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ustad.distribution import FOLDS
from ustad.events.observed import length_weight, start_weight
from ustad.events.visits import LONGEST, Visits, day_kinds, ends_of
from ustad.habits.history import own_keys

START_BINS, PART_BINS, DURATION_BINS = 48, 8, 44
#: Events that a coarser histogram is worth where a finer one is thin.
COARSER = 30.0
#: A place with no more visits of a person than this is seldom visited.
SELDOM = 4
#: First visits that the kinds of all visits are worth where first visits are few.
ALL_KINDS = 5.0


@dataclass(frozen=True)
class Population:
    """Densities by category (C kinds, 0 unknown), first at places that are often visited, then at the other ones."""

    start: np.ndarray  # float64 [2, 2, C, 48] per minute, by weekday or weekend
    duration: np.ndarray  # float64 [2, C, 8, 44] per unit of log(1 + minutes), by part of the day
    end: np.ndarray  # float64 [2, 2, C, 48] per minute, by weekday or weekend of the end
    new_kind: np.ndarray  # float64 [C] share of each kind in first visits to a place

    @classmethod
    def fit(cls, visits: Visits, categories: int) -> Population:
        """`categories`: how many kinds there are, unknown included. What was not observed well counts less."""
        start_weights, length_weights = start_weight(visits.early), length_weight(visits.early, visits.late)
        kind, weekend = visits.category, (day_kinds(visits.day, visits.days_off) >= 5).astype(np.int64)
        seldom, is_first = _acquaintance(visits)
        bins = (seldom, weekend, kind, _bin(visits.minute, 1440.0, START_BINS))
        start = _histogram(bins, (2, 2, categories, START_BINS), start_weights)
        start = _smooth(start, _smooth(start.sum(axis=(0, 1, 2)), np.ones(START_BINS)))
        has_length = np.isfinite(visits.duration)
        part = _bin(visits.minute, 1440.0, PART_BINS)[has_length]
        length = _bin(_logarithm(visits.duration[has_length]), LONGEST, DURATION_BINS)
        duration = _histogram(
            (seldom[has_length], kind[has_length], part, length),
            (2, categories, PART_BINS, DURATION_BINS),
            length_weights[has_length],
        )
        whole = _smooth(duration.sum(axis=(0, 1, 2)), np.ones(DURATION_BINS))
        duration = _smooth(duration, _smooth(duration.sum(axis=2), whole)[:, :, None])
        return cls(
            start=start * START_BINS / 1440.0,
            duration=duration * DURATION_BINS / LONGEST,
            end=_fit_ends(visits, seldom, categories, length_weights) * START_BINS / 1440.0,
            new_kind=_share_kinds(kind, is_first, categories),
        )

    @classmethod
    def fit_others(
        cls, visits: Visits, new_visits: Visits, since: int, categories: int
    ) -> Iterator[tuple[np.ndarray, Population]]:
        """For each group of people, the rows of `new_visits` that are theirs and what all people do, from `visits` but
        for the group's own from the local day `since` on. An event that is itself among a few rare ones is not rare."""
        own, group = new_visits.entity_key % FOLDS, visits.entity_key % FOLDS
        for i in range(FOLDS):
            rows = np.flatnonzero((own == i)[new_visits.entity])
            if len(rows):
                others = (visits.day < since) | (group != i)[visits.entity]
                yield rows, cls.fit(visits.take(others), categories)

    def starts(self, visits: Visits, before: np.ndarray) -> np.ndarray:
        """Density of each visit's start given its kind and the number of earlier visits to the place: float64 [N]."""
        weekend = (day_kinds(visits.day, visits.days_off) >= 5).astype(np.int64)
        return self.start[_is_seldom(before), weekend, visits.category, _bin(visits.minute, 1440.0, START_BINS)]

    def ends(self, visits: Visits, before: np.ndarray) -> np.ndarray:
        """Density of the minute of the day at which each visit ends, likewise; of any where it has no end: [N]."""
        minute, weekend = ends_of(visits.minute, visits.duration, visits.day, visits.days_off)
        half_hour = _bin(np.nan_to_num(minute), 1440.0, START_BINS)
        return self.end[_is_seldom(before), weekend.astype(np.int64), visits.category, half_hour]

    def durations(self, visits: Visits, before: np.ndarray) -> np.ndarray:
        """Density of each duration given kind, part of the day and earlier visits to the place: float64 [N]."""
        part = _bin(visits.minute, 1440.0, PART_BINS)
        length = _bin(np.nan_to_num(_logarithm(visits.duration)), LONGEST, DURATION_BINS)
        return self.duration[_is_seldom(before), visits.category, part, length]


def _is_seldom(before: np.ndarray) -> np.ndarray:
    """1 where a place with so many earlier visits is seldom visited, this time included, else 0: int64 [N]."""
    return (before < SELDOM).astype(np.int64)


def _acquaintance(visits: Visits) -> tuple[np.ndarray, np.ndarray]:
    """1 where a visit's place is seldom visited, else 0; and whether it is the first visit there, of those in the later
    half of the days, before which a place can be known: int64 [N], bool [N]."""
    _, first, place, number = np.unique(
        own_keys(visits, None), return_index=True, return_inverse=True, return_counts=True
    )
    is_first = np.zeros(len(visits), bool)
    is_first[first] = True
    early, late = visits.day.min(initial=np.iinfo(np.int64).max), visits.day.max(initial=0)
    return _is_seldom(number[place] - 1), is_first & (visits.day > early + (late - early) // 2)


def _share_kinds(kind: np.ndarray, is_first: np.ndarray, categories: int) -> np.ndarray:
    """Share of each kind in first visits, smoothed towards its share in all: float64 [C]."""
    whole, first = (np.bincount(some, minlength=categories) for some in (kind, kind[is_first]))
    share = (whole + 1.0) / (whole.sum() + categories)
    return (first + ALL_KINDS * share) / (first.sum() + ALL_KINDS)


def _fit_ends(visits: Visits, seldom: np.ndarray, categories: int, weight: np.ndarray) -> np.ndarray:
    """Shares of ends by half hour: float64 [2, 2, C, 48]."""
    minute, weekend = ends_of(visits.minute, visits.duration, visits.day, visits.days_off)
    has_end = np.isfinite(minute)
    half_hour = _bin(minute[has_end], 1440.0, START_BINS)
    bins = (seldom[has_end], weekend[has_end].astype(np.int64), visits.category[has_end], half_hour)
    end = _histogram(bins, (2, 2, categories, START_BINS), weight[has_end])
    return _smooth(end, _smooth(end.sum(axis=(0, 1, 2)), np.ones(START_BINS)))


def _logarithm(minutes: np.ndarray) -> np.ndarray:
    return np.log1p(np.maximum(minutes, 0.0))


def _bin(values: np.ndarray, end: float, bins: int) -> np.ndarray:
    return np.clip((values / end * bins).astype(np.int64), 0, bins - 1)


def _histogram(columns: tuple[np.ndarray, ...], shape: tuple[int, ...], weight: np.ndarray) -> np.ndarray:
    flat = np.ravel_multi_index(columns, shape)
    return np.bincount(flat, weight, minlength=int(np.prod(shape))).reshape(shape)


def _smooth(counts: np.ndarray, coarser: np.ndarray) -> np.ndarray:
    """Shares along the last axis, smoothed towards a coarser histogram of the same length."""
    coarser = coarser / coarser.sum(axis=-1, keepdims=True)
    return (counts + COARSER * coarser) / (counts.sum(axis=-1, keepdims=True) + COARSER)
