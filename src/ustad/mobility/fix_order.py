"""Fixes grouped by agent and in order of time. In: numbers of agents and times. Out: the order of rows."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


def order_fixes(codes: np.ndarray, time: np.ndarray, agents: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fixes by agent and time, ties as they came.

    Returns order [n], offsets [agents + 1] and how many fixes of each agent came before their turn [agents].
    """
    order, offsets, disorder = _group(codes, time, agents)
    if disorder.any():
        order = np.lexsort((time, codes))
    return order, offsets, disorder


@numba.njit(cache=True, nogil=True)
def _group(codes: Any, time: Any, agents: Any) -> Any:
    """A stable counting sort by agent, and how often time ran backwards within each."""
    offsets, disorder = np.zeros(agents + 1, np.int64), np.zeros(agents, np.int64)
    for code in codes:
        offsets[code + 1] += 1
    for i in range(agents):
        offsets[i + 1] += offsets[i]
    place, order = offsets[:-1].copy(), np.empty(len(codes), np.int64)
    for k in range(len(codes)):
        code = codes[k]
        if place[code] > offsets[code] and time[k] < time[order[place[code] - 1]]:
            disorder[code] += 1
        order[place[code]] = k
        place[code] += 1
    return order, offsets, disorder
