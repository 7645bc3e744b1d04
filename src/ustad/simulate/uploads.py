"""What becomes of fixes between a phone and us: reflections among high buildings, batches, late and repeated ones.

In: fixes in order of agent and time. Out: rows in the order they arrive, and the second each arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from ustad.simulate.chance import keys, normal, uniform, uniforms
from ustad.simulate.fixes import DEGREE_M, Fixes

_CANYON_STREAM, _BATCH_STREAM = 47, 48
_LATE, _TWICE = 0.03, 0.02  # shares of batches
_HOURS_TO_CANYON, _CANYON_MINUTES = 14.0, 10.0  # means of exponential times


@dataclass(frozen=True)
class Uploads:
    """Seconds between the batches of a phone, and whether it hears satellites at all."""

    batch_s: int
    satellites: bool = True


UPLOADS = {
    "logger": Uploads(900),
    "phone": Uploads(2700),  # deferred: collected while the phone sleeps
    "app": Uploads(300),
    "sparse": Uploads(3600, satellites=False),
}


def disturb(fixes: Fixes, phone: str, seed: int) -> Fixes:
    """The fixes with the reflections of street canyons: spells of minutes, 30 to 150 m off, not all of it admitted."""
    if not UPLOADS[phone].satellites or not len(fixes.agent):
        return fixes
    agent, first = np.unique(fixes.agent, return_index=True)
    values = np.stack([fixes.lat, fixes.lon, fixes.accuracy_m], axis=1)
    _reflect(keys(seed, _CANYON_STREAM, agent), np.r_[first, len(fixes.agent)], fixes.second, values)
    lat, lon, accuracy = values.T
    return replace(fixes, lat=np.round(lat, 6), lon=np.round(lon, 6), accuracy_m=np.round(accuracy, 1))


@njit(nogil=True, cache=True)
def _reflect(agent_keys: np.ndarray, offsets: np.ndarray, second: np.ndarray, values: np.ndarray) -> None:
    """Change the values [n, 3] (lat, lon, accuracy) of fixes within spells; spells depend on the agent alone."""
    state, jitter = np.empty(1, np.uint64), np.empty(1, np.uint64)
    for a in range(len(agent_keys)):
        state[0], jitter[0] = agent_keys[a], ~agent_keys[a]
        begin, end, north, east, accuracy = 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range(offsets[a], offsets[a + 1]):
            while second[k] >= end:
                begin = end - _HOURS_TO_CANYON * 3600.0 * np.log(1.0 - uniform(state))
                end = begin + 120.0 - _CANYON_MINUTES * 60.0 * np.log(1.0 - uniform(state))
                size, angle = 30.0 + 120.0 * uniform(state), 2.0 * np.pi * uniform(state)
                north, east, accuracy = size * np.cos(angle), size * np.sin(angle), size * (0.3 + 0.7 * uniform(state))
            if second[k] < begin:
                continue
            dy, dx = north + 10.0 * normal(jitter), east + 10.0 * normal(jitter)
            values[k, 1] += dx / (DEGREE_M * np.cos(np.radians(values[k, 0])))
            values[k, 0] += dy / DEGREE_M
            values[k, 2] = max(values[k, 2], accuracy)


def send(fixes: Fixes, phone: str, seed: int) -> tuple[Fixes, np.ndarray]:
    """Rows by agent and arrival, and the second of each row's arrival.

    Fixes are collected and sent in batches. Some batches are half an hour to six hours late, and some come twice,
    with all their rows.
    """
    every = UPLOADS[phone].batch_s
    phase = np.floor(every * uniforms(seed, _BATCH_STREAM, fixes.agent * 10)).astype(np.int64)
    batch = (fixes.second + phase) // every
    index = (fixes.agent * 1_000_000 + batch) * 10
    chance, delay, again = (uniforms(seed, _BATCH_STREAM, index + k) for k in (1, 2, 3))
    arrivals = (batch + 1) * every - phase + 5
    arrivals += np.where(chance < _LATE, np.floor(1800 + 19_800 * delay), 0).astype(np.int64)
    twice = np.flatnonzero(again < _TWICE)
    rows = np.r_[np.arange(len(arrivals)), twice]
    arrivals = np.r_[arrivals, arrivals[twice] + 60 + np.floor(600 * delay[twice]).astype(np.int64)]
    order = np.lexsort((fixes.second[rows], arrivals, fixes.agent[rows]))
    rows = rows[order]
    columns = {name: getattr(fixes, name)[rows] for name in ("agent", "second", "lat", "lon", "accuracy_m")}
    return replace(fixes, **columns), arrivals[order]
