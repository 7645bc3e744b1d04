"""Looks: answers are calibrated to -log10 p, those of a look are added up, and the highest look makes the score.

In go the raw answers of the calibration week. Out come the distributions of every question and look, and scores of the
week's events, which stand for what new people would score. Every question counts once.

Among distributions that it is part of itself an event looks less unusual than the same event of somebody else would,
the more so the fewer people there are. So the people are in five groups, and each group is judged by questions and
looks that were fitted on the other four.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ustad.distribution import FOLDS, UNSURE, Distribution
from ustad.ties import first_highest, raised

#: What the distribution of doubt is called in a model's file, whichever source says it.
_DOUBT = "memory_doubt"

Terms = Mapping[str, np.ndarray]  # question → raw values, float64 [N]
Weights = dict[str, dict[str, float]]  # look → question → how much it counts


@dataclass(frozen=True)
class LookTails:
    """Distributions of answers and of the looks that add them up."""

    tails: dict[str, Distribution]
    looks: dict[str, Distribution]

    @classmethod
    def fit(cls, raw: Terms, rows: np.ndarray, weights: Weights) -> LookTails:
        """From the events `rows` (bool [N])."""
        tails = fit_tails(raw, rows)
        surprise = surprise_of(tails, {name: values[rows] for name, values in raw.items()})
        return LookTails(tails, {look: Distribution.fit(look_sum(surprise, own)) for look, own in weights.items()})

    def highest(self, raw: Terms, weights: Weights) -> np.ndarray:
        """-log10 p of each event's most unusual look: float64 [N]."""
        surprise = surprise_of(self.tails, raw)
        return np.max([-self.looks[n].log10_tail(look_sum(surprise, own)) for n, own in weights.items()], axis=0)


@dataclass(frozen=True)
class Groups:
    """Calibrating events of N, and which group of people each belongs to."""

    normal: np.ndarray  # bool [N]
    group: np.ndarray  # int64 [N], -1 where the event does not calibrate

    @classmethod
    def of(cls, entity: np.ndarray, entity_key: np.ndarray, normal: np.ndarray) -> Groups:
        """`entity` [N] are indices into `entity_key` [E]. Whole entities go into a group, in the order of keys."""
        people = np.unique(entity[normal])
        place = np.full(len(entity_key), -1, np.int64)
        place[people[np.argsort(entity_key[people])]] = np.arange(len(people)) % FOLDS
        return cls(normal, np.where(normal, place[entity], -1))

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The events of each group and those of all others, bool [N]; of a single group nobody else is there."""
        groups = np.unique(self.group[self.normal])
        for i in groups:
            mine = self.group == i
            yield mine, self.normal & ~mine if len(groups) > 1 else mine

    def scores(self, raw: Terms, weights: Weights, whole: LookTails) -> np.ndarray:
        """Highest look of every event, of a calibrating one by the other groups: float64 [N]."""
        alone = whole.highest(raw, weights)
        for mine, others in self:
            others_distributions = LookTails.fit(raw, others, weights)
            alone[mine] = others_distributions.highest({name: values[mine] for name, values in raw.items()}, weights)
        return alone


@dataclass(frozen=True)
class Looks(LookTails):
    """All that turns raw answers into scores of events."""

    events: Distribution  # of the highest look of normal events
    weights: Weights
    doubt: Distribution | None = None  # of the epistemic uncertainty, where a source says it
    remaining: float = 1.0  # of what was as unusual in the week, the share that still is beside longer histories

    @classmethod
    def of_week(
        cls, raw: Terms, doubt: np.ndarray | None, groups: Groups, weights: Weights
    ) -> tuple[Looks, np.ndarray]:
        """From the answers of the calibration week; and -log10 p of its events, of calibrating ones by the others."""
        normal, look_tails = groups.normal, LookTails.fit(raw, groups.normal, weights)
        alone = groups.scores(raw, weights, look_tails)
        events = Distribution.fit(alone[normal])
        doubts = Distribution.fit(doubt[normal]) if doubt is not None else None
        return cls(look_tails.tails, look_tails.looks, events, weights, doubts), minus_log10_p(events, alone)

    def weigh(self, raw: Terms) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
        """-log10 p of every answer and of every look, and the score: float64 [N] each."""
        surprise = surprise_of(self.tails, raw)
        looks = {n: minus_log10_p(self.looks[n], look_sum(surprise, own)) for n, own in self.weights.items()}
        score = minus_log10_p(self.events, np.max(list(looks.values()), axis=0))
        return surprise, looks, score - np.log10(self._raise_odds(np.power(10.0, -score)))

    def weigh_highest(self, look: float) -> float:
        """The score of one event by its most unusual look, in plain numbers."""
        score = -self.events.log10_tail_of(look)
        return score - math.log10(self._raise_odds(10.0**-score)) if score == score else 0.0

    def _raise_odds(self, p_value: Any) -> Any:
        """By how much a p-value of the week is too large: its odds by `remaining`, so that 1 stays 1."""
        return self.remaining / (1.0 - (1.0 - self.remaining) * p_value)

    def share(self, looks: Terms, surprise: Terms) -> dict[str, np.ndarray]:
        """Each question's share of the most unusual look, 0 for questions outside it: float64 [N], adding up to 1 (to
        0 where no question of it says anything). The score is that look's, and the others added nothing to it."""
        first = first_highest(list(looks.values()))
        parts = {name: np.zeros(len(first)) for name in surprise}
        for i, look in enumerate(looks):
            for name, weight in self.weights[look].items():
                if name in parts:
                    parts[name] = np.where(first == i, weight * surprise[name], parts[name])
        total = np.sum(list(parts.values()), axis=0)
        return {name: np.divide(v, total, out=np.zeros(len(v)), where=total > 0) for name, v in parts.items()}

    def is_unsure(self, doubt: np.ndarray | None, rows: int) -> np.ndarray:
        """Where doubt is among its reference's highest 5 %: bool [N]."""
        if doubt is None or self.doubt is None:
            return np.zeros(rows, bool)
        return np.nan_to_num(self.doubt.log10_tail(doubt)) <= raised(UNSURE)

    # ---------------------------------------------------------------------------------------- storing
    def to_tensors(self) -> dict[str, np.ndarray]:
        distributions = {f"term.{name}": one for name, one in self._terms().items()}
        distributions |= {f"look.{name}": one for name, one in self.looks.items()} | {"final.none": self.events}
        return {key: values for name, one in distributions.items() for key, values in one.to_tensors(name).items()}

    def facts(self) -> dict[str, Any]:
        return {"terms": list(self._terms()), "weights": self.weights, "remaining": self.remaining}

    def _terms(self) -> dict[str, Distribution]:
        return self.tails | ({_DOUBT: self.doubt} if self.doubt is not None else {})

    @classmethod
    def from_tensors(cls, tensors: Terms, facts: Mapping[str, Any], weights: Weights) -> Looks:
        """From what was stored; models of before know nothing of histories that are longer."""
        tails = {name: Distribution.from_tensors(tensors, f"term.{name}") for name in facts["terms"]}
        doubt = tails.pop(_DOUBT, None)
        looks = {name: Distribution.from_tensors(tensors, f"look.{name}") for name in weights}
        events = Distribution.from_tensors(tensors, "final.none")
        return cls(tails, looks, events, weights, doubt, facts.get("remaining", 1.0))


def unit_weights(looks: Iterable[Mapping[str, tuple[str, ...]]]) -> Weights:
    """One for every question of every look of the sources."""
    weights: Weights = {}
    for own in looks:
        for look, questions in own.items():
            weights.setdefault(look, {}).update(dict.fromkeys(questions, 1.0))
    return weights


def look_sum(surprise: Terms, weights: Mapping[str, float]) -> np.ndarray:
    """Weighted sum of the answers of a look that are there: float64 [N]."""
    parts = [weight * surprise[name] for name, weight in weights.items() if name in surprise]
    return np.sum(parts, axis=0) if parts else np.zeros(len(next(iter(surprise.values()))))


def fit_tails(raw: Terms, rows: np.ndarray) -> dict[str, Distribution]:
    return {name: Distribution.fit(values[rows]) for name, values in raw.items()}


def surprise_of(tails: Mapping[str, Distribution], raw: Terms) -> dict[str, np.ndarray]:
    """-log10 p of every answer; 0 where there is none. What only older models ask is left out."""
    return {name: minus_log10_p(tails[name], raw[name]) for name in tails if name in raw}


def minus_log10_p(distribution: Distribution, values: np.ndarray) -> np.ndarray:
    if len(values) == 1:  # live, where a dozen of these are asked for with every event
        value = -distribution.log10_tail_of(float(values[0]))
        return np.array([value if value == value else 0.0])
    return np.nan_to_num(-distribution.log10_tail(values), nan=0.0)
