"""What normal events score by habits: each is judged by what other people did.

In go the raw terms of the calibration week; out come the distributions of every term and look, and scores of the
week's events that may stand for those of new people. Among distributions that it is part of itself an event looks
less unusual than the same event of somebody else would, the more so the fewer people there are; so the people are in
five groups, and each group is judged by terms and looks that were fitted on the other four.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ustad.distribution import FOLDS, Distribution
from ustad.habits.kinds import DOUBT
from ustad.habits.weights import Weights, look_sum

Terms = Mapping[str, np.ndarray]  # name → raw values, float64 [N]


@dataclass(frozen=True)
class Fitted:
    """Distributions of terms and of the looks that add them up."""

    tails: dict[str, Distribution]
    looks: dict[str, Distribution]

    @classmethod
    def fit(cls, raw: Terms, rows: np.ndarray, weights: Weights) -> Fitted:
        """From the events `rows` (bool [N])."""
        tails = fit_tails(raw, rows)
        surprise = surprise_of(tails, {name: values[rows] for name, values in raw.items()})
        return cls(tails, {look: Distribution.fit(look_sum(surprise, own)) for look, own in weights.items()})

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

    def scores(self, raw: Terms, weights: Weights, whole: Fitted) -> np.ndarray:
        """Highest look of every event, of a calibrating one by the other groups: float64 [N]."""
        alone = whole.highest(raw, weights)
        terms = {name: values for name, values in raw.items() if name != DOUBT}
        for mine, others in self:
            others_distributions = Fitted.fit(terms, others, weights)
            alone[mine] = others_distributions.highest({name: values[mine] for name, values in terms.items()}, weights)
        return alone


def fit_tails(raw: Terms, rows: np.ndarray) -> dict[str, Distribution]:
    return {name: Distribution.fit(values[rows]) for name, values in raw.items()}


def surprise_of(tails: Mapping[str, Distribution], raw: Terms) -> dict[str, np.ndarray]:
    """-log10 p of every term; 0 where it has nothing to say. Doubt is no term, nor is what only older models ask."""
    return {name: minus_log10_p(tails[name], raw[name]) for name in tails if name != DOUBT and name in raw}


def minus_log10_p(distribution: Distribution, values: np.ndarray) -> np.ndarray:
    if len(values) == 1:  # live, where a dozen of these are asked for with every event
        value = -distribution.log10_tail_of(float(values[0]))
        return np.array([value if value == value else 0.0])
    return np.nan_to_num(-distribution.log10_tail(values), nan=0.0)
