"""How many requests a key may send: so many a second, with what was left unused in the last seconds on top."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

SECONDS = 10.0  # of unused requests that may be sent at once


class Rates:
    """One bucket a key, which fills at `per_second`; without keys nothing is limited."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._clock = per_second, clock
        self._buckets: dict[str, tuple[float, float]] = {}  # what is left of each, and when that was

    def take(self, key: str) -> int:
        """Take one request; 0 where it may go on, else the whole seconds to wait before the next try."""
        if not self._per_second:
            return 0
        most, moment = max(1.0, SECONDS * self._per_second), self._clock()
        left, since = self._buckets.get(key, (most, moment))
        left = min(most, left + (moment - since) * self._per_second)
        is_allowed = left >= 1
        self._buckets[key] = (left - is_allowed, moment)
        return 0 if is_allowed else max(1, math.ceil((1 - left) / self._per_second))
