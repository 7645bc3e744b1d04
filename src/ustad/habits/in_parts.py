"""Work on many rows, divided among the processors: compiled loops run side by side."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

#: Fewer rows than this are not worth another thread.
LEAST_ROWS = 5_000


def in_parts(work: Callable[[slice], np.ndarray], rows: int) -> np.ndarray:
    """The work on all rows, divided where there are many."""
    if rows < 2 * LEAST_ROWS:
        return work(slice(0, rows))
    parts = min(os.cpu_count() or 1, rows // LEAST_ROWS)
    edges = np.linspace(0, rows, parts + 1).astype(int)
    with ThreadPoolExecutor(parts) as pool:
        results = pool.map(work, [slice(low, high) for low, high in pairwise(edges)])
        return np.concatenate(list(results))
