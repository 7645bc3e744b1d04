"""Recurrence: is this place visited more often than its history allows?

Visits to a place are counts with a Gamma prior on their rate. Given n visits in T days of history, the number in
the next t days is negative binomial; the term is -log of the chance of at least as many as were seen, among the
places that are visited at all. The three numbers of the prior are fitted on normal data: history against what
followed it. That shows how well so many days of history tell what comes next. A longer one says more of the rate, but
lives change meanwhile: it makes no surer than the days that were fitted on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, gammaln

from ustad.events.visits import Visits
from ustad.habits.history import Habits

_START = np.log([0.3, 20.0, 0.5])
#: A shape of exactly 0 would leave places without history no distribution at all.
LEAST_SHAPE = 1e-4


@dataclass(frozen=True)
class Recurrence:
    """Gamma prior with shape a and rate b (days); c discounts the history, for counts more spread than Poisson's.

    `days` of history were fitted on; a longer one tells the rate, but makes no surer (None: it does).
    """

    a: float = 0.3
    b: float = 20.0
    c: float = 0.5
    days: float | None = None

    @classmethod
    def fit(cls, before: np.ndarray, after: np.ndarray, days_before: float, days_after: float) -> Recurrence:
        """Largest likelihood of `after` (at least 1) given `before`, counts of the same places: int [n] each."""
        from scipy.optimize import minimize  # here: who only scores does not wait for it

        is_visited = after >= 1
        pairs, weight = np.unique(np.stack([before[is_visited], after[is_visited]]), axis=1, return_counts=True)
        if pairs.shape[1] < 3:
            return cls()
        n, k = pairs.astype(np.float64)

        def loss(logs: np.ndarray) -> float:
            a, b, c = np.exp(np.clip(logs, -12, 8))
            rate = b + min(c, 1.0) * days_before
            shape = a + min(c, 1.0) * n
            log_p, log_q = np.log(rate / (rate + days_after)), np.log(days_after / (rate + days_after))
            log_mass = gammaln(shape + k) - gammaln(shape) - gammaln(k + 1) + shape * log_p + k * log_q
            at_all = np.log(-np.expm1(shape * log_p))
            return float(-(weight * (log_mass - at_all)).sum() / weight.sum())

        optimum = minimize(loss, _START, method="Nelder-Mead", options={"maxiter": 600, "xatol": 1e-3, "fatol": 1e-7})
        a, b, c = np.exp(np.clip(optimum.x, -12, 8))
        return cls(float(max(a, LEAST_SHAPE)), float(b), float(min(c, 1.0)), float(days_before))

    @classmethod
    def fit_halves(cls, visits: Visits) -> Recurrence:
        """From the first and the second half of a normal period's days."""
        first, last = int(visits.day.min()), int(visits.day.max())
        middle = first + (last - first + 1) // 2
        if middle == first:
            return cls()
        early = visits.day < middle
        key = Habits.fit(visits).locate(visits)[1]
        _, place = np.unique(key, return_inverse=True)
        before, after = (np.bincount(place[part], minlength=place.max() + 1) for part in (early, ~early))
        return cls.fit(before, after, middle - first, last + 1 - middle)

    def surprise(
        self, before: np.ndarray, count: np.ndarray, days: np.ndarray | float, exposure: np.ndarray
    ) -> np.ndarray:
        """-log P(at least `count` visits in `exposure` days | any, `before` visits in `days` days): [N]."""
        rate, shape = self.b + self.c * days, self.a + self.c * before
        if self.days is not None:
            sure = np.minimum((self.b + self.c * self.days) / rate, 1.0)
            rate, shape = sure * rate, sure * shape
        share = exposure / (rate + exposure)
        at_all = -np.expm1(shape * np.log1p(-share))
        as_many = betainc(np.maximum(count, 1), shape, share)
        return np.log(np.maximum(at_all, 1e-300)) - np.log(np.maximum(as_many, 1e-300))

    def surprise_of(self, before: int, count: int, days: int, exposure: int) -> float:
        """The same of one place, in plain numbers."""
        rate, shape = self.b + self.c * days, self.a + self.c * before
        if self.days is not None:
            sure = min((self.b + self.c * self.days) / rate, 1.0)
            rate, shape = sure * rate, sure * shape
        share = exposure / (rate + exposure)
        at_all = -math.expm1(shape * math.log1p(-share))
        as_many = float(betainc(max(count, 1), shape, share))
        return math.log(max(at_all, 1e-300)) - math.log(max(as_many, 1e-300))
