"""Entities from their events: a mean of the most unusual three, and tests for change without a peak.

In go calibrated event scores of one period, by entity, and what sources say of entities; out comes one p-value per
entity and test. `shift` asks whether the mean of an entity's scores rose against its own reference week; `profile` and
`lasting` are the sources' (`habits/profile.py`, `habits/lasting.py`). What is normal comes from the calibration week:
- over r times as many days the highest scores are log10 r higher (-log10 p falls tenfold per unit), so that much is
  taken off `top` before it is compared with one week's;
- the other tests claim no more than their reference can show, one in so many entities: nothing there says how lives
  drift over months.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ustad.distribution import Distribution
from ustad.tables import identity_hash
from ustad.ties import first_highest

#: How much the most unusual event of an entity counts, the second and the third: less and less, so that one clear
#: event is not lost beside two usual ones.
TOP = (1.0, 0.5, 0.25)
#: The tests, and the share of false alarms that each may make: most for peaks, the rest for change without one.
#: `lasting` needs no reference.
TESTS = {"top": 0.7, "shift": 0.1, "profile": 0.1, "lasting": 0.1}
#: The tests often agree: of normal people 0.7 times as many have a small p-value as the shares add up to (in the
#: calibration weeks of 23 simulated towns and cities), so that they may add up to more than 1.
AGREEMENT = 1.4
#: Single events count up to this -log10 p in the mean: it is about many, the top is about few.
SHIFT_LIMIT = 2.0


@dataclass(frozen=True)
class Period:
    """N scored events of E entities."""

    entity: np.ndarray  # int64 [N] index into entity_key
    entity_key: np.ndarray  # uint64 [E]
    day: np.ndarray  # int64 [N] local day
    days: tuple[int, int]  # the first and last local day that entities are tested over


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
    def fit(
        cls, score: np.ndarray, week: Period, is_reference: np.ndarray, tests: Mapping[str, np.ndarray]
    ) -> AgentReference:
        """From the reference week's scores [N] and what sources say of the entities (by test, [E]); `is_reference` [E]:
        whether an entity calibrates."""
        E = len(week.entity_key)
        capped_scores = np.minimum(score, SHIFT_LIMIT)
        means = _means(capped_scores, week.entity, E)
        first, last = week.days
        late = week.day >= first + (last - first + 1) // 2
        typical, spread = float(capped_scores.mean()), float(max(capped_scores.std(), 1e-6))
        halves = [_means(capped_scores[part], week.entity[part], E) for part in (~late, late)]
        normal = {
            "top": top_mean(score, week.entity, E),
            "shift": _difference_in_errors(halves[1], halves[0], typical, spread),
            **tests,
        }
        order = np.argsort(week.entity_key)
        return cls(
            {name: Distribution.fit(values[is_reference]) for name, values in normal.items()},
            last - first + 1,
            week.entity_key[order],
            means.count[order],
            means.mean[order],
            typical,
            spread,
        )

    def judge(self, score: np.ndarray, period: Period, tests: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """-log10 p of each test: float64 [E]."""
        E = len(period.entity_key)
        now = _means(np.minimum(score, SHIFT_LIMIT), period.entity, E)
        longer = np.log10(max(period.days[1] - period.days[0] + 1, 1) / self.days)
        shift = _difference_in_errors(now, self._reference(period.entity_key), self.typical, self.spread)
        return {
            "top": -self.tests["top"].log10_tail(top_mean(score, period.entity, E) - longer),
            **{name: self._limit(name, values) for name, values in {"shift": shift, **tests}.items()},
        }

    def _limit(self, test: str, values: np.ndarray) -> np.ndarray:
        """-log10 p, no smaller than one in as many entities as there are in the reference; the order stays."""
        surprise = -self.tests[test].log10_tail(values)
        limit = np.log10(self.tests[test].count + 1)
        return np.minimum(surprise, limit) + 0.01 * np.log1p(np.maximum(surprise - limit, 0.0))

    def _reference(self, entity_key: np.ndarray) -> Means:
        if not len(self.entity_key):
            return Means(np.zeros(len(entity_key)), np.full(len(entity_key), self.typical))
        at = np.minimum(np.searchsorted(self.entity_key, entity_key), len(self.entity_key) - 1)
        has_reference = self.entity_key[at] == entity_key
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
            tensors.update(distribution.to_tensors(f"agents.{name}"))
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> AgentReference:
        days, typical, spread = tensors["agents.numbers"].tolist()
        return cls(
            {n: Distribution.from_tensors(tensors, f"agents.{n}") for n in TESTS if f"agents.{n}.values" in tensors},
            int(days),
            tensors["agents.entity_key"].view(np.uint64),
            tensors["agents.count"],
            tensors["agents.mean"],
            typical,
            spread,
        )


def combine_tests(tests: dict[str, np.ndarray]) -> np.ndarray:
    """-log10 p of an entity: its smallest p-value, each divided by its test's share of false alarms. [E]."""
    total = sum(TESTS[name] for name in tests) / (AGREEMENT if len(tests) > 1 else 1.0)
    best = np.max([values + np.log10(TESTS[name] / total) for name, values in tests.items()], axis=0)
    return np.maximum(best, 0.0) + 1e-6 * np.max(list(tests.values()), axis=0)  # a little, to keep the order


def strongest(tests: dict[str, np.ndarray]) -> np.ndarray:
    """Name of the test that an entity's p-value comes from: object [E]."""
    names = np.array(list(tests), dtype=object)
    return names[first_highest([values + np.log10(TESTS[name]) for name, values in tests.items()])]


def top_mean(score: np.ndarray, entity: np.ndarray, entities: int, weights: Sequence[float] = TOP) -> np.ndarray:
    """Mean of each entity's highest scores (of all, where it has fewer), weighted from the highest on: float64 [E]."""
    order = np.lexsort((-score, entity))
    owner = entity[order]
    rank = np.arange(len(order)) - np.searchsorted(owner, np.arange(entities))[owner]
    is_top = rank < len(weights)
    weight, owner = np.array(weights)[rank[is_top]], owner[is_top]
    total = np.bincount(owner, weight, entities)
    return np.bincount(owner, weight * score[order][is_top], entities) / np.where(total > 0, total, 1.0)


def _means(values: np.ndarray, entity: np.ndarray, entities: int) -> Means:
    count = np.bincount(entity, minlength=entities).astype(np.float64)
    return Means(count, np.bincount(entity, values, entities) / np.maximum(count, 1))


def _difference_in_errors(now: Means, before: Means, typical: float, spread: float) -> np.ndarray:
    """Difference of two means in standard errors; an entity without a reference is compared with the typical."""
    reference = np.where(before.count > 0, before.mean, typical)
    error = np.sqrt(1 / np.maximum(now.count, 1) + np.where(before.count > 0, 1 / np.maximum(before.count, 1), 0.1))
    return np.where(now.count > 0, (now.mean - reference) / (spread * error), 0.0)
