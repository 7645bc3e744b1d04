"""Phones as they are: what a logger, a phone, an app or a mobile network records of the same lives.

In: stays and trip paths of some agents. Out: fixes as `fixes.record` makes them, or fewer and worse ones. When they
arrive, twice or late or not at all, is the business of `uploads`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numba import njit

from ustad.config import ConfigError
from ustad.simulate.chance import GOLDEN, keys, normal, poisson, uniform, uniforms
from ustad.simulate.days import Lives
from ustad.simulate.fixes import (
    DEGREE_M,
    Fixes,
    Tape,
    Track,
    empty_tape,
    lay_track,
    locate_on_trip,
    parse_interval,
    phone_keys,
    read_tape,
    record,
    switch_off,
)
from ustad.simulate.routes import Paths

PHONES = ("logger", "phone", "app", "sparse")
_RECORD_STREAM, _KIND_STREAM, _ANTENNA_STREAM, _BATTERY_STREAM = 43, 44, 45, 46
_LOGGER, _PHONE, _APP, _SPARSE = range(4)
_ODD = np.uint64(0xD1B54A32D192ED03)
#: The radius that holds 68 % of a two-dimensional normal error, in standard deviations of one axis.
_RADIUS_68 = 1.515
_MOST_A_DAY = 1_200  # fixes of one agent; a phone that never stands still makes about 700
#: A phone that stands still records for so long before it falls silent.
_STOP_TIMEOUT = 300.0
_SIGNIFICANT_M, _SIGNIFICANT_S = 500.0, 300.0
_SIGNIFICANT_ONLY = 0.2  # share of phones
_ANTENNA_GRID_M, _ANTENNA_BLOCK = 700.0, 6  # the side of a square, and squares along a block of one density
_DEAD_BATTERY = 0.04  # chance a day


@dataclass(frozen=True)
class Recording:
    """How raw GPS is recorded. Without a `phone`: one fix per interval, each of which arrives once and at once."""

    phone: str | None
    interval_s: float = 60.0

    @classmethod
    def of(cls, fixes: str | None, phone: str | None) -> Recording | None:
        """From the options `fixes` (an interval) and `phone` (a profile); None where neither is asked for."""
        if phone is not None and phone not in PHONES:
            raise ConfigError(f"phone: '{phone}' is not a profile (known: {', '.join(PHONES)})")
        if fixes is not None and phone not in (None, "logger"):
            raise ConfigError(f"fixes: the intervals of '{phone}' are its own; an interval is for a logger")
        if fixes is None and phone is None:
            return None
        return cls(phone, parse_interval(fixes) if fixes else 60.0)


def record_as(
    recording: Recording,
    lives: Lives,
    place: np.ndarray,
    trip_after: np.ndarray,
    *,
    paths: Paths,
    days: int,
    seed: int,
    centre: tuple[float, float],
) -> Fixes:
    """Record every agent of `lives`; arguments as in `fixes.record`. `centre`: lat, lon that antennas are laid around.

    Agents' draws are their own, and the hours phones are off are the same under every profile.
    """
    profile = PHONES.index(recording.phone or "logger")
    number = np.arange(lives.first, lives.first + len(lives.offsets) - 1)
    dead = find_dead_batteries(number, days, seed) if recording.phone else np.empty((0, 3), np.int64)
    if profile == _LOGGER:
        return _without(
            record(lives, place, trip_after, paths, interval=recording.interval_s, days=days, seed=seed), dead
        )
    track = lay_track(lives, place, trip_after, paths)
    tape = empty_tape(days * (_MOST_A_DAY if profile == _PHONE else 300), len(number), days)
    streams = np.stack([phone_keys(seed, number), keys(seed, _RECORD_STREAM, number), keys(seed, _KIND_STREAM, number)])
    antennas = Antennas(keys(seed, _ANTENNA_STREAM, np.zeros(1))[0], *centre, float(np.cos(np.radians(centre[0]))))
    _record_all(streams, antennas, profile, number, track, days, dead, tape)
    return read_tape(tape, number, dead)


def find_dead_batteries(agent: np.ndarray, days: int, seed: int) -> np.ndarray:
    """When batteries are empty: agent, from, to [n, 3], from an afternoon or evening on for 1.5 to 9 hours."""
    day = np.tile(np.arange(days), len(agent))
    whose = np.repeat(agent, days)
    chance, hour, length = (uniforms(seed, _BATTERY_STREAM, (whose * 10_000 + day) * 3 + k) for k in range(3))
    begin = day * 86_400 + np.floor(3600 * (15 + 8 * hour)).astype(np.int64)
    end = np.minimum(begin + np.floor(3600 * (1.5 + 7.5 * length)).astype(np.int64), days * 86_400)
    return np.stack([whose, begin, end], axis=1)[chance < _DEAD_BATTERY]


def _without(fixes: Fixes, dead: np.ndarray) -> Fixes:
    """Fixes in order of agent and time, less those of empty batteries."""
    key = fixes.agent * 10**10 + fixes.second
    is_kept = np.ones(len(key), bool)
    for agent, begin, end in dead:
        is_kept[slice(*np.searchsorted(key, agent * 10**10 + np.array([begin, end])))] = False
    columns = {name: getattr(fixes, name)[is_kept] for name in ("agent", "second", "lat", "lon", "accuracy_m")}
    return replace(fixes, **columns, dead=dead)


class Antennas(NamedTuple):
    """Where antennas stand: a seed, and the middle of their grid with the cosine of its latitude."""

    seed: np.uint64
    lat: float
    lon: float
    cosine: float


@njit(nogil=True, cache=True)
def _record_all(
    streams: np.ndarray, antennas: Antennas, profile: int, number: np.ndarray, track: Track, days: int,
    dead: np.ndarray, tape: Tape,
) -> None:  # fmt: skip
    state, at = np.empty(1, np.uint64), int(np.int64(0))  # typed, or all would be compiled for 0 too
    for a in range(len(number)):
        state[0] = streams[0, a]
        off_first = tape.n_off[0]
        tape.n_off[0] = switch_off(state, days, number[a], tape.off, off_first)
        empty = dead[np.searchsorted(dead[:, 0], number[a]) : np.searchsorted(dead[:, 0], number[a], side="right")]
        off = np.concatenate((tape.off[off_first : tape.n_off[0]], empty))
        i, last = track.offsets[a], track.offsets[a + 1]
        state[0] = streams[2, a]
        kind, rate = uniform(state), uniform(state)
        state[0] = streams[1, a]
        if profile == _PHONE:
            end = _record_phone(track, i, last, off, days, kind < _SIGNIFICANT_ONLY, state, tape, at)
        elif profile == _APP:
            end = _record_app(track, i, last, off, days, 20.0 + 80.0 * rate, state, tape, at)
        else:
            end = _record_calls(track, i, last, off, days, 5.0 + 10.0 * rate, antennas, state, tape, at)
        tape.counts[a] = end - at
        at = end


@njit(nogil=True, cache=True)
def _locate(track: Track, i: int, last: int, now: float) -> tuple[bool, float, float]:
    """Whether the agent of stays i … last - 1 is anywhere at that second, and where."""
    i += max(0, int(np.searchsorted(track.arrival[i:last], np.int64(now), side="right")) - 1)
    moving = now > track.departure[i]
    present = now >= track.arrival[i] and not (moving and track.trip_after[i] < 0)
    lat, lon = track.where[i, 0], track.where[i, 1]
    if present and moving:
        lat, lon, _ = locate_on_trip(track, track.trip_after[i], now - track.departure[i], 0)
    return present, lat, lon


@njit(nogil=True, cache=True)
def _is_off(off: np.ndarray, now: float) -> bool:
    return bool(np.any((off[:, 1] <= now) & (now < off[:, 2])))


@njit(nogil=True, cache=True)
def _write(tape: Tape, at: int, now: float, lat: float, lon: float, accuracy: float, state: np.ndarray) -> int:
    """One fix with an error that stays within the accuracy two times in three. Returns the next free row."""
    spread = accuracy / _RADIUS_68
    north, east = spread * normal(state), spread * normal(state)
    tape.second[at] = np.int64(now)
    tape.values[at, 0] = np.round((lat + north / DEGREE_M) * 1e6) / 1e6
    tape.values[at, 1] = np.round((lon + east / (DEGREE_M * np.cos(np.radians(lat)))) * 1e6) / 1e6
    tape.values[at, 2] = np.round(10.0 * accuracy) / 10.0
    return at + 1


@njit(nogil=True, cache=True)
def _metres(lat_1: float, lon_1: float, lat_2: float, lon_2: float) -> float:
    east = (lon_2 - lon_1) * np.cos(np.radians(lat_1))
    return DEGREE_M * np.sqrt((lat_2 - lat_1) ** 2 + east**2)


@njit(nogil=True, cache=True)
def _record_phone(
    track: Track, i: int, last: int, off: np.ndarray, days: int, significant: bool, state: np.ndarray, tape: Tape,
    at: int,
) -> int:  # fmt: skip
    """A fix every few minutes on the way and for five minutes after; then silence until the phone has moved.

    Phones that report significant changes only are asked every minute of the way. They report again 500 m from the last
    report and five minutes after it. An arrival is noticed four times in five.
    """
    latest = np.array([-1e9, 0.0, 0.0])  # second, lat, lon of the last report of a significant change
    for stay in range(i, last):
        at = _report_stay(track, stay, off, days, significant, state, tape, at, latest)
        if track.trip_after[stay] < 0 or stay + 1 >= last:
            continue
        t = track.departure[stay] + (60.0 if significant else 20.0 + 160.0 * uniform(state))
        while t < track.arrival[stay + 1]:
            now = np.floor(t)
            t += 60.0 if significant else 120.0 + 180.0 * uniform(state)
            if now <= track.departure[stay] or now >= days * 86400.0 or _is_off(off, now):
                continue
            lat, lon, _ = locate_on_trip(track, track.trip_after[stay], now - track.departure[stay], 0)
            if significant and (
                now - latest[0] < _SIGNIFICANT_S or _metres(latest[1], latest[2], lat, lon) < _SIGNIFICANT_M
            ):
                continue
            latest[0], latest[1], latest[2] = now, lat, lon
            at = _write(tape, at, now, lat, lon, _draw_accuracy(significant, state), state)
    return at


@njit(nogil=True, cache=True)
def _draw_accuracy(significant: bool, state: np.ndarray) -> float:
    """Metres: satellites for most phones, networks near by for those that save power."""
    if significant:
        return 30.0 + 120.0 * uniform(state) ** 2
    return 5.0 + 25.0 * uniform(state) ** 2


@njit(nogil=True, cache=True)
def _report_stay(
    track: Track, stay: int, off: np.ndarray, days: int, significant: bool, state: np.ndarray, tape: Tape, at: int,
    latest: np.ndarray,
) -> int:  # fmt: skip
    """What a phone reports of a stay: minutes after arrival, once switched on again, rarely in between, and one time
    in two at departure."""
    begin, end = np.float64(track.arrival[stay]), min(np.float64(track.departure[stay]), days * 86400.0 - 1.0)
    lat, lon, first = track.where[stay, 0], track.where[stay, 1], at
    if significant:
        is_noticed, t = uniform(state) < 0.8, np.floor(begin + 30.0 + 210.0 * uniform(state))
        if is_noticed and t <= end and not _is_off(off, t):
            latest[0], latest[1], latest[2] = t, lat, lon
            at = _write(tape, at, t, lat, lon, _draw_accuracy(True, state), state)
    t, silent = begin + 120.0 * uniform(state), False
    while t <= end and not significant:
        if not _is_off(off, np.floor(t)):
            at = _write(tape, at, np.floor(t), lat, lon, _draw_accuracy(False, state), state)
        silent = bool(t >= begin + _STOP_TIMEOUT)
        if silent:  # but for somebody who opens a map once in eight hours
            t += max(600.0, -8.0 * 3600.0 * np.log(1.0 - uniform(state)))
        else:
            t = min(t + 120.0 + 180.0 * uniform(state), begin + _STOP_TIMEOUT)
    for k in range(len(off)):
        t = off[k, 2] + 60.0
        if begin <= t <= end and not _is_off(off, t):
            at = _write(tape, at, t, lat, lon, _draw_accuracy(significant, state), state)
    if silent and uniform(state) < 0.5 and not _is_off(off, end):
        at = _write(tape, at, end, lat, lon, _draw_accuracy(False, state), state)
    _sort(tape, first, at)
    return at


@njit(nogil=True, cache=True)
def _sort(tape: Tape, first: int, last: int) -> None:
    """Rows first … last - 1 by time. Loops, because slices that are assigned compile for seconds."""
    second, values = tape.second[first:last].copy(), tape.values[first:last].copy()
    order = np.argsort(second, kind="mergesort")
    for k in range(len(order)):
        tape.second[first + k] = second[order[k]]
        for column in range(values.shape[1]):
            tape.values[first + k, column] = values[order[k], column]


@njit(nogil=True, cache=True)
def _draw_waking_second(state: np.ndarray) -> float:
    """Of the day: from seven to midnight, rarely in the night."""
    if uniform(state) < 0.06:
        return 7.0 * 3600.0 * uniform(state)
    return 3600.0 * (7.0 + 17.0 * uniform(state))


@njit(nogil=True, cache=True)
def _record_app(
    track: Track, i: int, last: int, off: np.ndarray, days: int, rate: float, state: np.ndarray, tape: Tape, at: int
) -> int:
    """Sessions of some fixes within minutes, at hours people are awake; `rate` fixes a day, accuracy 5 to 500 m."""
    first = at
    for day in range(days):
        target, count = min(100.0, max(20.0, rate * (0.8 + 0.4 * uniform(state)))), 0
        while count < target:
            t = day * 86400.0 + _draw_waking_second(state)
            accuracy = 25.0 * np.exp(1.1 * normal(state))  # of the room one is in
            for _ in range(1 + int(5.0 * uniform(state) ** 2 + 0.5)):
                now, t, count = np.floor(t), t + 15.0 - 90.0 * np.log(1.0 - uniform(state)), count + 1
                present, lat, lon = _locate(track, i, last, now)
                if now < days * 86400.0 and present and not _is_off(off, now):
                    own = min(500.0, max(5.0, accuracy * np.exp(0.3 * normal(state))))
                    at = _write(tape, at, now, lat, lon, own, state)
    _sort(tape, first, at)
    return at


@njit(nogil=True, cache=True)
def _record_calls(
    track: Track, i: int, last: int, off: np.ndarray, days: int, rate: float, antennas: Antennas, state: np.ndarray,
    tape: Tape, at: int,
) -> int:  # fmt: skip
    """Calls and messages at the antenna that carries them: the nearest, one time in eight the next."""
    first = at
    for day in range(days):
        for _ in range(poisson(state, rate)):
            now = np.floor(day * 86400.0 + _draw_waking_second(state))
            rank = 1 if uniform(state) < 0.125 else 0
            present, lat, lon = _locate(track, i, last, now)
            if present and not _is_off(off, now):
                tape.second[at] = np.int64(now)
                tape.values[at] = _antenna_of(lat, lon, rank, antennas)
                at += 1
    _sort(tape, first, at)
    return at


@njit(nogil=True, cache=True)
def _antenna_of(lat: float, lon: float, rank: int, antennas: Antennas) -> np.ndarray:
    """Latitude and longitude of the antenna nearest to a position but `rank`, and how far it reaches in metres.

    It reaches as far as its second neighbour, but at least 500 m and at most 3 km.
    """
    x = (lon - antennas.lon) * DEGREE_M * antennas.cosine / _ANTENNA_GRID_M
    y = (lat - antennas.lat) * DEGREE_M / _ANTENNA_GRID_M
    site = _nearest_sites(x, y, antennas.seed)[rank]
    reach = np.sqrt(_nearest_sites(site[1], site[2], antennas.seed)[2, 0]) * _ANTENNA_GRID_M
    north, east = site[2] * _ANTENNA_GRID_M / DEGREE_M, site[1] * _ANTENNA_GRID_M / (DEGREE_M * antennas.cosine)
    reach = min(3000.0, max(500.0, np.round(reach / 50.0) * 50.0))
    return np.array([np.round((antennas.lat + north) * 1e6) / 1e6, np.round((antennas.lon + east) * 1e6) / 1e6, reach])


@njit(nogil=True, cache=True)
def _grid_key(seed: np.uint64, column: int, row: int) -> np.uint64:
    """A state to draw from for one square of a grid."""
    return seed ^ (np.uint64(column + 2**20) * GOLDEN + np.uint64(row + 2**20) * _ODD)


@njit(nogil=True, cache=True)
def _nearest_sites(x: float, y: float, seed: np.uint64) -> np.ndarray:
    """The three nearest sites [3, 3]: squared distance, x, y. Each square of the grid has one site or none."""
    sites = np.full((3, 3), np.inf)
    state = np.empty(1, np.uint64)
    for column in range(int(np.floor(x)) - 7, int(np.floor(x)) + 8):
        for row in range(int(np.floor(y)) - 7, int(np.floor(y)) + 8):
            state[0] = _grid_key(seed, column // _ANTENNA_BLOCK, row // _ANTENNA_BLOCK)
            share = 0.1 + 0.9 * uniform(state) ** 2
            state[0] = _grid_key(~seed, column, row)
            if uniform(state) > share:
                continue
            here = np.array([0.0, column + uniform(state), row + uniform(state)])
            here[0] = (here[1] - x) ** 2 + (here[2] - y) ** 2
            for k in range(3):
                if here[0] < sites[k, 0]:
                    for later in range(2, k, -1):
                        sites[later] = sites[later - 1]
                    sites[k] = here
                    break
    return sites
