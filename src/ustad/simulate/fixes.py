"""Raw GPS as a phone would record it: noise, jitter in sampling, lost signal, phones switched off.

In: stays and trip paths of some agents. Out: fixes (agent, second, lat, lon, accuracy) and the times phones were off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from ustad.config import ConfigError
from ustad.simulate.chance import keys, normal, uniform
from ustad.simulate.days import Lives
from ustad.simulate.routes import Paths

_FIX_STREAM, _PHONE_STREAM = 41, 42
DEGREE_M = 111_195.0
_SMOOTH = 0.85  # how much of the receiver's error remains from one fix to the next


@dataclass(frozen=True)
class Fixes:
    """Fixes of agents in order of agent and time; `off` and `dead` [n, 3]: agent, from, to (seconds) of phones that
    were switched off or had an empty battery."""

    agent: np.ndarray
    second: np.ndarray
    lat: np.ndarray
    lon: np.ndarray
    accuracy_m: np.ndarray
    off: np.ndarray
    dead: np.ndarray


def parse_interval(text: str) -> float:
    """Seconds from `60s`, `2min`, `90`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|sec|min|m|h)?\s*", text)
    seconds = float(match[1]) * {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}[match[2] or "s"] if match else 0.0
    if seconds < 1:
        raise ConfigError(f"fixes: '{text}' is not an interval of at least one second; write for example 60s or 2min")
    return seconds


class Track(NamedTuple):
    """What kernels read: stays of all agents, the trips after them, the points of the trips' paths."""

    offsets: np.ndarray  # int64 [agents + 1]
    arrival: np.ndarray  # int64 [stays]
    departure: np.ndarray
    where: np.ndarray  # float64 [stays, 2]: lat, lon
    trip_after: np.ndarray  # int64 [stays]: the trip that follows, or -1
    path_offsets: np.ndarray  # int64 [trips + 1]
    path: np.ndarray  # float64 [points, 3]: second, lat, lon


class Tape(NamedTuple):
    """What kernels write."""

    second: np.ndarray  # int64 [room]
    values: np.ndarray  # float64 [room, 3]: lat, lon, accuracy
    counts: np.ndarray  # int64 [agents]
    off: np.ndarray  # int64 [room, 3]: agent, from, to
    n_off: np.ndarray  # int64 [1]


def record(
    lives: Lives, place: np.ndarray, trip_after: np.ndarray, paths: Paths, *, interval: float, days: int, seed: int
) -> Fixes:
    """Record every agent of `lives`. `place` [P, 2] lat, lon; `trip_after` [stays]: the trip that follows, or -1."""
    number = np.arange(lives.first, lives.first + len(lives.offsets) - 1)
    track = lay_track(lives, place, trip_after, paths)
    tape = empty_tape(int(days * 86_400 / interval * 1.15) + 16, len(number), days)
    _record_all(keys(seed, _FIX_STREAM, number), phone_keys(seed, number), lives.first, track, interval, days, tape)
    return read_tape(tape, number, np.empty((0, 3), np.int64))


def lay_track(lives: Lives, place: np.ndarray, trip_after: np.ndarray, paths: Paths) -> Track:
    return Track(
        lives.offsets, lives.arrival, lives.departure, place[lives.place], trip_after, paths.offsets, paths.points
    )


def empty_tape(room: int, agents: int, days: int) -> Tape:
    """With room for so many fixes of each agent."""
    return Tape(
        np.empty(agents * room, np.int64), np.empty((agents * room, 3)), np.empty(agents, np.int64),
        np.empty((agents * (days + 1), 3), np.int64), np.zeros(1, np.int64),
    )  # fmt: skip


def read_tape(tape: Tape, number: np.ndarray, dead: np.ndarray) -> Fixes:
    """What kernels wrote of the agents with these numbers; `dead`: when batteries were empty."""
    total = int(tape.counts.sum())
    lat, lon, accuracy = tape.values[:total].T.copy()
    off = tape.off[: tape.n_off[0]].copy()
    return Fixes(np.repeat(number, tape.counts), tape.second[:total].copy(), lat, lon, accuracy, off, dead)


def phone_keys(seed: int, agent: np.ndarray) -> np.ndarray:
    """What decides when each agent's phone is off: the same however it records."""
    return keys(seed, _PHONE_STREAM, agent)


@njit(nogil=True, cache=True)
def switch_off(state: np.ndarray, days: int, agent: int, off: np.ndarray, at: int) -> int:
    """When a phone is off: now and then for hours, for some people every night. Returns the next free row."""
    nightly = uniform(state) < 0.08
    for day in range(days):
        begin, length = -1.0, 0.0
        if nightly and uniform(state) < 0.85:
            begin, length = day * 86400.0 + 3600.0 * (22.2 + 0.4 * normal(state)), 3600.0 * (7.5 + 0.5 * normal(state))
        elif uniform(state) < 0.1:
            begin, length = day * 86400.0 + 86400.0 * uniform(state), 3600.0 * (1.5 + 6.0 * uniform(state))
        begin, end = np.floor(begin), np.floor(min(begin + length, days * 86400.0))
        if begin < 0 or end <= begin or (at > 0 and off[at - 1, 0] == agent and off[at - 1, 2] >= begin):
            continue
        off[at, 0], off[at, 1], off[at, 2] = agent, np.int64(begin), np.int64(end)
        at += 1
    return at


@njit(nogil=True, cache=True)
def _record_all(
    fix_keys: np.ndarray, off_keys: np.ndarray, first: int, track: Track, interval: float, days: int, tape: Tape
) -> None:
    state, at = np.empty(1, np.uint64), int(np.int64(0))  # typed, or all would be compiled for 0 too
    for a in range(len(fix_keys)):
        state[0] = off_keys[a]
        off_first = tape.n_off[0]
        tape.n_off[0] = switch_off(state, days, first + a, tape.off, off_first)
        state[0] = fix_keys[a]
        end = _record_one(track, track.offsets[a], track.offsets[a + 1], off_first, interval, days, state, tape, at)
        tape.counts[a] = end - at
        at = end


@njit(nogil=True, cache=True)
def _record_one(
    track: Track, i: int, last: int, off_at: int, interval: float, days: int, state: np.ndarray, tape: Tape, at: int
) -> int:
    """The fixes of one agent, whose stays are rows i … last - 1. Returns the next free row."""
    error, lost_until, point = np.array([normal(state), normal(state)]) * 8.0, -1.0, 0
    t, n_off = uniform(state) * interval, tape.n_off[0]
    while t < days * 86400.0 and i < last:
        now = np.floor(t)
        t += interval * (0.9 + 0.2 * uniform(state))
        while i + 1 < last and now >= track.arrival[i + 1]:
            i, point = i + 1, 0
        while off_at < n_off and now >= tape.off[off_at, 2]:
            off_at += 1
        if now < track.arrival[i] or now < lost_until or (off_at < n_off and now >= tape.off[off_at, 1]):
            continue
        moving = now > track.departure[i]
        if moving and track.trip_after[i] < 0:
            continue
        if uniform(state) < (0.006 if moving else 0.002):  # a tunnel, a cellar
            lost_until = now - (240.0 if moving else 900.0) * np.log(1.0 - uniform(state))
            continue
        lat, lon = track.where[i, 0], track.where[i, 1]
        if moving:
            lat, lon, point = locate_on_trip(track, track.trip_after[i], now - track.departure[i], point)
        tape.second[at] = np.int64(now)
        _write_fix(tape.values[at], lat, lon, 5.0 if moving else 9.0, error, state)
        at += 1
    return at


@njit(nogil=True, cache=True)
def locate_on_trip(track: Track, trip: int, seconds: float, point: int) -> tuple[float, float, int]:
    """Where a trip is after some seconds; `point` is the path's point passed last, to go on from there."""
    p, stop = track.path_offsets[trip] + point, track.path_offsets[trip + 1] - 1
    while p + 1 < stop and track.path[p + 1, 0] <= seconds:
        p += 1
    here, there = track.path[p], track.path[p + 1]
    share = min(max((seconds - here[0]) / max(there[0] - here[0], 1e-9), 0.0), 1.0)
    lat, lon = here[1] + share * (there[1] - here[1]), here[2] + share * (there[2] - here[2])
    return lat, lon, p - track.path_offsets[trip]


@njit(nogil=True, cache=True)
def _write_fix(row: np.ndarray, lat: float, lon: float, spread_m: float, error: np.ndarray, state: np.ndarray) -> None:
    """The position with the receiver's slowly changing error, at times a reflected signal's."""
    fresh = spread_m * np.sqrt(1.0 - _SMOOTH**2)
    error[0], error[1] = _SMOOTH * error[0] + fresh * normal(state), _SMOOTH * error[1] + fresh * normal(state)
    worse = 4.0 + 12.0 * uniform(state) if uniform(state) < 0.003 else 1.0
    row[0] = np.round((lat + error[1] * worse / DEGREE_M) * 1e6) / 1e6
    row[1] = np.round((lon + error[0] * worse / (DEGREE_M * np.cos(np.radians(lat)))) * 1e6) / 1e6
    row[2] = np.round(10.0 * spread_m * worse * (0.7 + 0.8 * uniform(state))) / 10.0
