"""How wide an expectation has to be: ± such that two thirds of what normal people do next lie within it.

In go how far visits were from what the rest of their history says of them; out come factors by kind of place and by how
many visits to it are known. How few earlier visits vary says little of the next one: their ± grows.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from ustad.habits.usual_kernels import WITHIN

#: Edges between one visit known, two, three or four, five to nine, ten to nineteen, and more.
EDGES = (2, 3, 5, 10, 20)
#: Events that a factor of its own takes; of a kind with twice as many, two thirds of its difference from others count.
ENOUGH = 40
#: Half a day: no time of day is further from another, minutes.
FURTHEST = 720.0
#: The factors of kinds and of visits are found in turn.
ROUNDS = 4


@dataclass(frozen=True)
class Widths:
    """Factors of start and duration, to be multiplied."""

    by_kind: np.ndarray  # float64 [2, C]
    by_visits: np.ndarray  # float64 [2, B]

    @classmethod
    def plain(cls, kinds: int) -> Widths:
        """As wide as the earlier visits lie."""
        return cls(np.ones((2, kinds)), np.ones((2, len(EDGES) + 1)))

    @classmethod
    def fit(cls, ratio: np.ndarray, kind: np.ndarray, visits: np.ndarray, kinds: int) -> Widths:
        """From differences over ± [2, N] (NaN: not known), the place's kind and the visits to it known, int64 [N]."""
        widths, steps = cls.plain(kinds), np.searchsorted(EDGES, visits, side="right")
        for values, of_kind, of_visits in zip(ratio, widths.by_kind, widths.by_visits, strict=True):
            for _ in range(ROUNDS):
                _match(of_visits, steps, values / of_kind[kind])
                _match(of_kind, kind, values / of_visits[steps], doubt=ENOUGH)
        return widths

    def widen(self, spread: np.ndarray, kind: np.ndarray, visits: np.ndarray) -> np.ndarray:
        """± of start and duration, float64 [2, N], as wide as they have to be."""
        kind = np.where(kind < self.by_kind.shape[1], kind, 0)
        wide = spread * self.by_kind[:, kind] * self.by_visits[:, np.searchsorted(EDGES, visits, side="right")]
        wide[0] = np.minimum(wide[0], FURTHEST)
        return wide

    def widen_one(self, spread: tuple[float, float], kind: int, visits: int) -> tuple[float, float]:
        """The same of one event, in plain numbers."""
        kind, step = kind if kind < self.by_kind.shape[1] else 0, bisect_right(EDGES, visits)
        start, duration = (
            own * float(by_kind[kind]) * float(by_visits[step])
            for own, by_kind, by_visits in zip(spread, self.by_kind, self.by_visits, strict=True)
        )
        return min(start, FURTHEST) if start == start else start, duration


def _match(factor: np.ndarray, group: np.ndarray, ratio: np.ndarray, *, doubt: int = 0) -> None:
    """Set the factor of each group with enough events to what two thirds of its differences stay within; nearer to 1,
    as though `doubt` events more said 1."""
    is_finite = np.isfinite(ratio)
    for one in np.unique(group[is_finite]):
        mine = ratio[is_finite & (group == one)]
        if len(mine) >= ENOUGH:
            factor[one] = max(float(np.quantile(mine, WITHIN)), 0.01) ** (len(mine) / (len(mine) + doubt))
