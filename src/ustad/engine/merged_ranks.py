"""Ranks among all scored events, from the values that each partition measured.

Exact up to `MOST_RANKED` values of a column; of more, evenly spaced ones among them are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Values of one column that are ranked exactly (float32: 400 MB); of more, every so-and-so-many-th is kept.
MOST_RANKED = 100_000_000


@dataclass(frozen=True)
class MergedRanks:
    """Where values stand among `count` values, of which `values` (ascending) are all or every so-many-th."""

    values: np.ndarray
    count: int

    @classmethod
    def of(cls, parts: Sequence[np.ndarray], most: int = MOST_RANKED) -> MergedRanks:
        """Of the values of all parts; NaN are left out."""
        values = np.concatenate([part[np.isfinite(part)] for part in parts]) if len(parts) else np.zeros(0, np.float32)
        values.sort()
        if len(values) <= most:
            return cls(values, len(values))
        middle = ((np.arange(most) + 0.5) * len(values) / most).astype(np.int64)
        return cls(values[middle], len(values))

    def log10_tail(self, values: np.ndarray) -> np.ndarray:
        """log₁₀ of the share above, ties counted half; NaN stays NaN. As `scoring.distribution.Ranks`."""
        x = np.asarray(values, self.values.dtype)
        below = np.searchsorted(self.values, x, side="left").astype(np.float64)
        upto = np.searchsorted(self.values, x, side="right")
        stand = (below + upto) / 2 * (self.count / max(len(self.values), 1))
        share = (self.count - stand + 0.5) / (self.count + 1)
        return np.where(np.isnan(x), np.nan, np.log10(share))
