"""Entities from their events: the mean of the most unusual three, and two tests for change without a peak.

In go calibrated event scores of one period, by entity; out comes one p-value per entity and test. `shift` asks
whether the mean of an entity's scores rose against its own reference week, `profile` whether it now spreads its
visits over its places differently (a G-test against its history). What is normal comes from the calibration week:
- over r times as many days the highest scores are log10 r higher (-log10 p falls tenfold per unit), so that much is
  taken off `top` before it is compared with one week's;
- `shift` and `profile` claim no more than their reference can show, one in so many entities: nothing there says how
  lives drift over months.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ustad.distribution import Distribution
from ustad.events.visits import Visits
from ustad.habits.history import Habits
from ustad.tables import identity_hash
from ustad.ties import first_highest

TOP = 3
#: The tests, and the share of false alarms that each may make: most for peaks, the rest for change without one.
#: `lasting` needs no reference: see `habits/lasting.py`.
TESTS = {"top": 0.7, "shift": 0.1, "profile": 0.1, "lasting": 0.1}
#: The tests often agree: of normal people 0.7 times as many have a small p-value as the shares add up to (in the
#: calibration weeks of 23 simulated towns and cities), so that they may add up to more than 1.
AGREEMENT = 1.4
#: Single events count up to this -log10 p in the mean: it is about many, the top is about few.
SHIFT_LIMIT = 2.0
#: Visits that the history of each place is worth more than counted, against zeros in the G-test.
PROFILE_PRIOR = 0.5
DAYS_A_WEEK = 7


@dataclass(frozen=True)
class Means:
    """Number and mean of bounded scores of each entity."""

    count: np.ndarray  # float64 [E]
    mean: np.ndarray  # float64 [E], 0 without events


@dataclass(frozen=True)
class AgentReference:
    """Normal values of each test, and each entity's own reference week."""

    tests: dict[str, Distribution]
    days: int  # length of the reference period
    entity_key: np.ndarray  # uint64 [R] ascending: entities with a reference week
    count: np.ndarray  # float64 [R]
    mean: np.ndarray  # float64 [R]
    typical: float  # mean and standard deviation of a bounded score
    spread: float

    @classmethod
    def fit(cls, score: np.ndarray, habits: Habits, visits: Visits, chosen: np.ndarray) -> AgentReference:
        """From the reference week's scores [N]; `chosen` [E] are the entities that calibrate."""
        E = len(visits.entity_ids)
        capped_scores = np.minimum(score, SHIFT_LIMIT)
        means = _means(capped_scores, visits.entity, E)
        first, last = int(visits.day.min()), int(visits.day.max())
        late = visits.day >= first + (last - first + 1) // 2
        typical, spread = float(capped_scores.mean()), float(max(capped_scores.std(), 1e-6))
        halves = [_means(capped_scores[part], visits.entity[part], E) for part in (~late, late)]
        normal = {
            "top": top_mean(score, visits.entity, E),
            "shift": _difference_in_errors(halves[1], halves[0], typical, spread),
            "profile": profile_change(habits, visits, first),
        }
        order = np.argsort(visits.entity_key)
        return cls(
            {name: Distribution.fit(values[chosen]) for name, values in normal.items()},
            last - first + 1,
            visits.entity_key[order],
            means.count[order],
            means.mean[order],
            typical,
            spread,
        )

    def judge(
        self, score: np.ndarray, habits: Habits, visits: Visits, period: tuple[int, int]
    ) -> dict[str, np.ndarray]:
        """-log10 p of each test over the local days of `period`: float64 [E] in the order of the visits' entities."""
        E = len(visits.entity_ids)
        now = _means(np.minimum(score, SHIFT_LIMIT), visits.entity, E)
        days = period[1] - period[0] + 1
        longer = np.log10(max(days, 1) / self.days)
        shift = _difference_in_errors(now, self._reference(visits), self.typical, self.spread)
        return {
            "top": -self.tests["top"].log10_tail(top_mean(score, visits.entity, E) - longer),
            "shift": self._shown("shift", shift),
            "profile": self._shown("profile", profile_change(habits, visits, period[0])),
        }

    def _shown(self, test: str, values: np.ndarray) -> np.ndarray:
        """-log10 p, no smaller than one in as many entities as there are in the reference; the order stays."""
        surprise = -self.tests[test].log10_tail(values)
        limit = np.log10(self.tests[test].count + 1)
        return np.minimum(surprise, limit) + 0.01 * np.log1p(np.maximum(surprise - limit, 0.0))

    def _reference(self, visits: Visits) -> Means:
        if not len(self.entity_key):
            return Means(np.zeros(len(visits.entity_key)), np.full(len(visits.entity_key), self.typical))
        at = np.minimum(np.searchsorted(self.entity_key, visits.entity_key), len(self.entity_key) - 1)
        has_reference = self.entity_key[at] == visits.entity_key
        return Means(np.where(has_reference, self.count[at], 0.0), np.where(has_reference, self.mean[at], self.typical))

    def forget(self, entities: Iterable[Any]) -> AgentReference:
        """Without the reference week of some entities; what is normal stays, in which nobody can be told apart."""
        keep = ~np.isin(self.entity_key, identity_hash(entities))
        return replace(self, entity_key=self.entity_key[keep], count=self.count[keep], mean=self.mean[keep])

    # ---------------------------------------------------------------------------------------- storing
    def to_tensors(self) -> dict[str, np.ndarray]:
        tensors = {f"agents.{n}": getattr(self, n) for n in ("count", "mean")}
        tensors["agents.entity_key"] = self.entity_key.view(np.int64)
        tensors["agents.numbers"] = np.array([self.days, self.typical, self.spread])
        for name, distribution in self.tests.items():
            tensors.update(distribution_tensors(distribution, f"agents.{name}"))
        return tensors

    @classmethod
    def from_tensors(cls, tensors: dict[str, np.ndarray]) -> AgentReference:
        days, typical, spread = tensors["agents.numbers"].tolist()
        return cls(
            {name: distribution_from(tensors, f"agents.{name}") for name in TESTS if name != "lasting"},
            int(days),
            tensors["agents.entity_key"].view(np.uint64),
            tensors["agents.count"],
            tensors["agents.mean"],
            typical,
            spread,
        )


def combined(tests: dict[str, np.ndarray]) -> np.ndarray:
    """-log10 p of an entity: its smallest p-value, each divided by its test's share of false alarms. [E]."""
    total = sum(TESTS[name] for name in tests) / (AGREEMENT if len(tests) > 1 else 1.0)
    best = np.max([values + np.log10(TESTS[name] / total) for name, values in tests.items()], axis=0)
    return np.maximum(best, 0.0) + 1e-6 * np.max(list(tests.values()), axis=0)  # a little, to keep the order


def strongest(tests: dict[str, np.ndarray]) -> np.ndarray:
    """Name of the test that an entity's p-value comes from: object [E]."""
    names = np.array(list(tests), dtype=object)
    return names[first_highest([values + np.log10(TESTS[name]) for name, values in tests.items()])]


def top_mean(score: np.ndarray, entity: np.ndarray, entities: int, most: int = TOP) -> np.ndarray:
    """Mean of each entity's highest scores (of all, where it has fewer): float64 [E]."""
    order = np.lexsort((-score, entity))
    owner = entity[order]
    rank = np.arange(len(order)) - np.searchsorted(owner, np.arange(entities))[owner]
    is_top = rank < most
    number = np.bincount(owner[is_top], minlength=entities)
    return np.bincount(owner[is_top], score[order][is_top], entities) / np.maximum(number, 1)


def profile_change(habits: Habits, visits: Visits, since: int) -> np.ndarray:
    """G of each entity's visits over own places and elsewhere, against its history, mean over weeks: [E].

    By weeks from the local day `since` on, so that a longer period is as large as the reference week. Each is
    2 Σ n log(n / expected).
    """
    E = len(visits.entity_ids)
    place, _ = habits.locate(visits)
    owner = habits.owners(visits)
    week = np.maximum(visits.day - since, 0) // DAYS_A_WEEK
    weeks = int(week.max()) + 1
    cell = np.where(place >= 0, place, len(habits.place_key) + visits.entity)  # everything new is one cell
    together, index, count = np.unique(
        np.stack([visits.entity * weeks + week, cell]), axis=1, return_index=True, return_counts=True
    )
    group = together[0]
    total = np.bincount(group, count, E * weeks)
    places = np.append(np.diff(habits.place_offsets), 0)[owner][index]
    history_total = np.append(_history_visits(habits), 0.0)[owner][index]
    history_count = habits.visits_at(place[index])
    share = (history_count + PROFILE_PRIOR) / (history_total + PROFILE_PRIOR * (places + 1))
    surprise = 2 * count * np.log(count / (total[group] * share))
    by_week = np.bincount(group, surprise, E * weeks).reshape(E, weeks)
    return by_week.sum(axis=1) / np.maximum((total.reshape(E, weeks) > 0).sum(axis=1), 1)


def _history_visits(habits: Habits) -> np.ndarray:
    """How many visits each entity's history holds: float64 [E]."""
    owner = np.repeat(np.arange(len(habits.entity_key)), np.diff(habits.place_offsets))
    return np.bincount(owner, habits.place_count, len(habits.entity_key))


def _means(values: np.ndarray, entity: np.ndarray, entities: int) -> Means:
    count = np.bincount(entity, minlength=entities).astype(np.float64)
    return Means(count, np.bincount(entity, values, entities) / np.maximum(count, 1))


def _difference_in_errors(now: Means, before: Means, typical: float, spread: float) -> np.ndarray:
    """Difference of two means in standard errors; an entity without a reference is compared with the typical."""
    reference = np.where(before.count > 0, before.mean, typical)
    error = np.sqrt(1 / np.maximum(now.count, 1) + np.where(before.count > 0, 1 / np.maximum(before.count, 1), 0.1))
    return np.where(now.count > 0, (now.mean - reference) / (spread * error), 0.0)


def distribution_tensors(distribution: Distribution, name: str) -> dict[str, np.ndarray]:
    """A distribution as arrays whose names begin with `name`."""
    numbers = [getattr(distribution, n) for n in ("count", "threshold", "above", "shape", "scale")]
    return {f"{name}.values": distribution.values, f"{name}.numbers": np.array(numbers, np.float64)}


def distribution_from(tensors: dict[str, np.ndarray], name: str) -> Distribution:
    count, *rest = tensors[f"{name}.numbers"].tolist()
    return Distribution(tensors[f"{name}.values"], int(count), *rest)
