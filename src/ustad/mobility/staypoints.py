"""The stay kernel: one pass over each agent's fixes in time order, with everything it remembers in a state.

In: arrays of fixes grouped by agent, a `STATE` record per agent, and the fixes carried over from before. Out:
stays, trips (as ranges of fixes) and gaps. Batch extraction starts from an empty state; `StayTracker` keeps it.

A stay is a run of fixes within `distance_m` of its first one that lasts `minutes`. Distances are chords of the
unit sphere (for a threshold the same as great-circle distances), so neither ±180° nor a pole is special.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np

from ustad.config import ExtractionConfig
from ustad.geo import EARTH_RADIUS_KM
from ustad.mobility.joining import MOVED, NEVER_SEEN, NO_TIME, UNBRIDGED, scan_joined

MICROSECONDS = 1_000_000
#: Silence that ends this many distances away ended on the way from the place, where no setting says how far.
REACH = 2.5
#: The same in metres for people whose phone reports changes only, known by their own fixes.
CHANGES_REACH_M = 3000.0

#: What the kernel remembers of one agent. Times in microseconds, points on the unit sphere.
STATE = np.dtype(
    [
        ("started", "i8"),  # 1 once the first fix was taken
        ("last_time", "i8"),  # of the last fix taken
        ("anchor_time", "i8"),  # first fix of the open cluster
        ("anchor_x", "f8"),
        ("anchor_y", "f8"),
        ("anchor_z", "f8"),
        ("anchor_gap", "i8"),  # unobserved time before the anchor, or NEVER_SEEN
        ("sum_x", "f8"),  # of the open cluster's fixes
        ("sum_y", "f8"),
        ("sum_z", "f8"),
        ("count", "i8"),
        ("anchor_at", "i8"),  # position of the anchor among the carried fixes
        ("has_stay", "i8"),  # a stay was found: the next one ends a trip
        ("stay_start", "i8"),
        ("stay_end", "i8"),
        ("gap_since", "i8"),  # a gap lies between that stay and now
        ("newest", "i8"),  # of the fixes that arrived (`StayTracker`), even if not taken yet
        ("kept_time", "i8"),  # last fix that passed `clean`
        ("kept_x", "f8"),
        ("kept_y", "f8"),
        ("kept_z", "f8"),
        # What only the kernel that joins needs (`joining.py`).
        ("last_x", "f8"),  # the last fix taken
        ("last_y", "f8"),
        ("last_z", "f8"),
        ("last_weight", "f8"),
        ("seen", "i8"),  # time with fixes, all together
        ("doubt", "f8"),  # squared distance that the accuracy of its best fix explains
        ("settled", "i8"),  # the open cluster is a stay
        ("start", "i8"),  # of the open cluster or the stay it goes on with
        ("start_seen", "i8"),  # `seen` then
        ("origin_at", "i8"),  # position of the fix at which the way since the last stay begins
        ("held", "i8"),  # there is a stay that was left and may still go on
        ("held_anchor_at", "i8"),
        ("held_start", "i8"),
        ("held_end", "i8"),
        ("held_start_gap", "i8"),
        ("held_end_gap", "i8"),
        ("held_start_seen", "i8"),
        ("held_end_seen", "i8"),
        ("held_x", "f8"),  # sum of its fixes
        ("held_y", "f8"),
        ("held_z", "f8"),
        ("held_count", "i8"),
        ("held_doubt", "f8"),
        ("held_gap", "i8"),  # a gap lies in the way that led to it
        ("held_far", "i8"),  # a fix since then lies far away
        ("left", "i8"),  # it ended with silence that ended near it
        ("left_silence", "i8"),
        ("left_way", "f8"),  # squared chord
        ("sure_end", "i8"),  # its last fix
        ("sure_seen", "i8"),
        ("pairs", "i8"),  # of fixes one after the other
        ("still_pairs", "i8"),  # those at one place, minutes apart
        ("on_way_out", "i8"),  # the open cluster's first fix is the first report after a rest
        ("places", "f8", (12, 4)),  # where the agent was most: sums of fixes, and how often
    ]
)
STAY = np.dtype(
    [
        ("agent", "i8"),
        ("start", "i8"),
        ("end", "i8"),
        ("x", "f8"),
        ("y", "f8"),
        ("z", "f8"),
        ("count", "i8"),
        ("start_gap", "i8"),
        ("end_gap", "i8"),
        ("observed", "i8"),
        ("unfinished", "i8"),
    ]
)
TRIP = np.dtype(
    [
        ("agent", "i8"),
        ("start", "i8"),
        ("end", "i8"),
        ("origin_start", "i8"),
        ("destination_start", "i8"),
        ("first", "i8"),  # fixes first … last make the path
        ("last", "i8"),
        ("crosses_gap", "i8"),
    ]
)
GAP = np.dtype([("agent", "i8"), ("start", "i8"), ("end", "i8"), ("cause", "i8")])


class Limits(NamedTuple):
    """The configuration in the kernel's units."""

    chord: float  # squared, on the unit sphere
    duration: int  # microseconds
    gap: int  # microseconds; 0: none
    join: bool
    bridge: int  # microseconds
    reach: float  # squared, on the unit sphere
    changes: float  # squared, on the unit sphere; 0: no phone reports changes only
    first_outside: bool
    include_last: bool
    speed: float  # kilometres per microsecond; 0: no limit
    outlier: float  # squared chord beyond which a fix is off its neighbours; 0: no limit

    @classmethod
    def of(cls, config: ExtractionConfig) -> Limits:
        return cls(
            chord=_squared_chord(config.distance_m),
            duration=round(config.minutes * 60 * MICROSECONDS),
            gap=round(config.gap_minutes * 60 * MICROSECONDS),
            join=config.join,
            bridge=round(max(config.bridge_hours * 60, config.gap_minutes, config.minutes) * 60 * MICROSECONDS),
            reach=_squared_chord(config.reach_m or REACH * config.distance_m),
            changes=_squared_chord(CHANGES_REACH_M) if config.reach_m else 0.0,
            first_outside=config.end_rule == "first-outside",
            include_last=config.include_last,
            speed=config.max_speed_kmh / 3600.0 / MICROSECONDS,
            outlier=_squared_chord(config.distance_m / 2.0) if config.drop_outliers else 0.0,
        )


def _squared_chord(metres: float) -> float:
    """Of the unit sphere, for a distance along the great circle."""
    angle = min(metres / 1000.0 / EARTH_RADIUS_KM, math.pi)
    return (2.0 * math.sin(angle / 2.0)) ** 2


def empty_state(agents: int) -> np.ndarray:
    """A state for agents of whom nothing is known yet: `STATE` [agents]."""
    state = np.zeros(agents, STATE)
    state["newest"] = NO_TIME
    state["kept_time"] = NO_TIME
    return state


@dataclass(frozen=True)
class Scan:
    """What one run of the kernel found, by agent and time, and where it stopped."""

    stays: np.ndarray  # STAY
    trips: np.ndarray  # TRIP
    gaps: np.ndarray  # GAP
    is_needed: np.ndarray  # bool [n]: the fixes that the next run has to have before its new ones


def scan(
    offsets: np.ndarray, resume: np.ndarray, time: np.ndarray, points: np.ndarray, *, accuracy: np.ndarray,
    state: np.ndarray, limits: Limits, final: bool,
) -> Scan:  # fmt: skip
    """Run the kernel and update `state` in place.

    offsets [agents + 1]: the fixes of agent i are offsets[i] … offsets[i + 1]. resume [agents]: the first new fix of
    each agent; fixes before it were carried over. time [n] in µs; points [n, 3]; accuracy [n] in metres, 0 where
    unknown. final: close stays that are still open.
    """
    room = _room(offsets, resume, len(state))
    stays, trips, gaps = np.empty(room, STAY), np.empty(room, TRIP), np.empty(room, GAP)
    is_needed, n = np.zeros(len(time), np.bool_), np.zeros(3, np.int64)
    if limits.join:
        positions = np.zeros(4, np.int64)
        scan_joined(
            offsets, resume, time, points, accuracy, state, stays, trips, gaps, positions, n, is_needed, limits, final
        )  # fmt: skip
    else:
        _scan(offsets, resume, time, points, state, stays, trips, gaps, n, is_needed, limits, final)
    return Scan(stays[: n[0]].copy(), trips[: n[1]].copy(), gaps[: n[2]].copy(), is_needed)


def _room(offsets: np.ndarray, resume: np.ndarray, agents: int) -> int:
    """Each new fix closes at most one cluster and one gap; before it one may be held, the end closes one more."""
    return int((offsets[1:] - resume).sum()) + 2 * agents


@numba.njit(cache=True, nogil=True)
def _scan(  # type: ignore[no-untyped-def]  # compiled; types are numpy arrays and scalars of the caller
    offsets, resume, time, points, state, stays, trips, gaps, n, is_needed, limits, final
):
    """The plain kernel: every cluster for itself, as trackintel has it."""
    n_stays, n_trips, n_gaps = 0, 0, 0
    chord, duration, gap_limit = limits.chord, limits.duration, limits.gap
    for agent in range(len(state)):
        s = state[agent]
        begin, end = offsets[agent], offsets[agent + 1]
        anchor, origin = begin + s.anchor_at, begin
        for k in range(resume[agent], end):
            t, x, y, z = time[k], points[k, 0], points[k, 1], points[k, 2]
            if s.started == 0:
                s.started = 1
                _open(s, t, x, y, z, NEVER_SEEN)
                anchor = k
            else:
                silence = t - s.last_time
                is_gap = gap_limit > 0 and silence > gap_limit
                near = (x - s.anchor_x) ** 2 + (y - s.anchor_y) ** 2 + (z - s.anchor_z) ** 2 < chord
                if is_gap:
                    gap = gaps[n_gaps]
                    gap.agent, gap.start, gap.end, gap.cause = agent, s.last_time, t, UNBRIDGED if near else MOVED
                    n_gaps += 1
                if is_gap or not near:
                    stop = t if (limits.first_outside and not is_gap) else s.last_time
                    if stop - s.anchor_time >= duration:
                        if s.has_stay == 1:
                            _trip(trips[n_trips], agent, s, origin, anchor)
                            n_trips += 1
                        _stay(stays[n_stays], agent, s, stop, silence if is_gap else 0, 0)
                        n_stays += 1
                        origin = k - 1
                    s.gap_since |= 1 if is_gap else 0
                    _open(s, t, x, y, z, silence if is_gap else 0)
                    anchor = k
                else:
                    s.sum_x += x
                    s.sum_y += y
                    s.sum_z += z
                    s.count += 1
            s.last_time = t
        if final and s.started == 1 and limits.include_last and s.last_time - s.anchor_time >= duration:
            if s.has_stay == 1:
                _trip(trips[n_trips], agent, s, origin, anchor)
                n_trips += 1
            _stay(stays[n_stays], agent, s, s.last_time, NEVER_SEEN, 1)
            n_stays += 1
        if s.has_stay == 0:  # no trip is under way
            origin = anchor
        s.anchor_at = anchor - origin
        if end > begin:
            # Keep the way since the last stay. Of the open cluster keep all fixes while it may still be part of the
            # way, else the last one.
            is_needed[origin : anchor + 1 if s.last_time - s.anchor_time >= duration else end] = True
            is_needed[end - 1] = True
    n[0], n[1], n[2] = n_stays, n_trips, n_gaps


@numba.njit(cache=True, nogil=True)
def _open(s, t, x, y, z, gap):  # type: ignore[no-untyped-def]  # compiled
    s.anchor_time, s.anchor_x, s.anchor_y, s.anchor_z, s.anchor_gap = t, x, y, z, gap
    s.sum_x, s.sum_y, s.sum_z, s.count = x, y, z, 1


@numba.njit(cache=True, nogil=True)
def _stay(row, agent, s, stop, end_gap, is_open):  # type: ignore[no-untyped-def]  # compiled
    norm = math.sqrt(s.sum_x * s.sum_x + s.sum_y * s.sum_y + s.sum_z * s.sum_z)
    row.agent, row.start, row.end = agent, s.anchor_time, stop
    row.x, row.y, row.z, row.count = s.sum_x / norm, s.sum_y / norm, s.sum_z / norm, s.count
    row.start_gap, row.end_gap, row.unfinished = s.anchor_gap, end_gap, is_open
    row.observed = stop - s.anchor_time
    s.has_stay, s.stay_start, s.stay_end, s.gap_since = 1, s.anchor_time, stop, 0


@numba.njit(cache=True, nogil=True)
def _trip(row, agent, s, origin, anchor):  # type: ignore[no-untyped-def]  # compiled
    row.agent, row.start, row.end = agent, s.stay_end, s.anchor_time
    row.origin_start, row.destination_start = s.stay_start, s.anchor_time
    row.first, row.last, row.crosses_gap = origin, anchor, s.gap_since


# ------------------------------------------------------------------------------------------- preparation
@dataclass(frozen=True)
class Cleaning:
    """Which fixes stay, and per agent how many were repeats or speed spikes."""

    keep: np.ndarray  # bool [n]
    pending: np.ndarray  # bool [n]: not decided before the next fix is seen
    duplicates: np.ndarray  # int64 [agents]
    spikes: np.ndarray  # int64 [agents]


def clean(
    offsets: np.ndarray, time: np.ndarray, points: np.ndarray, state: np.ndarray, *, limits: Limits, final: bool
) -> Cleaning:
    """Drop repeats (a second fix of the same moment), speed spikes and single outliers. A spike needs more than the
    speed limit to be reached and to be left. An outlier lies off the fixes before and after it, which lie together, and
    is too short for a stay. Fixes are grouped by agent and in time order."""
    agents = len(state)
    result = Cleaning(
        np.ones(len(time), np.bool_), np.zeros(len(time), np.bool_), np.zeros(agents, np.int64),
        np.zeros(agents, np.int64),
    )  # fmt: skip
    _clean(
        offsets, time, points, state, limits.speed, limits.outlier, limits.duration, final,
        result.keep, result.pending, result.duplicates, result.spikes,
    )  # fmt: skip
    return result


@numba.njit(cache=True, nogil=True)
def _clean(  # type: ignore[no-untyped-def]  # compiled
    offsets, time, points, state, speed, outlier, duration, final, keep, pending, duplicates, spikes
):
    look_ahead = speed > 0.0 or outlier > 0.0
    for agent in range(len(state)):
        s = state[agent]
        waiting = -1  # the fix whose way on is not known yet
        for k in range(offsets[agent], offsets[agent + 1]):
            before = time[waiting] if waiting >= 0 else s.kept_time
            if time[k] == before:
                keep[k] = False
                duplicates[agent] += 1
            elif not look_ahead:
                _take(s, time, points, k)
            else:
                if waiting >= 0:
                    too_fast = speed > 0.0 and _is_too_fast(s, time, points, waiting, k, speed)
                    soon_gone = outlier > 0.0 and time[k] - time[waiting] < duration
                    if too_fast or (soon_gone and _is_off(s, points, waiting, k, outlier)):
                        keep[waiting] = False
                        spikes[agent] += 1
                    else:
                        _take(s, time, points, waiting)
                waiting = k
        if waiting >= 0:
            if final:
                _take(s, time, points, waiting)
            else:
                keep[waiting] = False
                pending[waiting] = True


@numba.njit(cache=True, nogil=True)
def _take(s, time, points, k):  # type: ignore[no-untyped-def]  # compiled
    s.kept_time, s.kept_x, s.kept_y, s.kept_z = time[k], points[k, 0], points[k, 1], points[k, 2]


@numba.njit(cache=True, nogil=True)
def _is_too_fast(s, time, points, k, following, speed):  # type: ignore[no-untyped-def]  # compiled
    """Whether fix k needs more than the speed both from the fix before and to the one following."""
    if s.kept_time == NO_TIME:
        return False
    come = math.sqrt(_squared_step(s, points, k)) * EARTH_RADIUS_KM > speed * (time[k] - s.kept_time)
    go = math.sqrt(_squared_between(points, k, following)) * EARTH_RADIUS_KM > speed * (time[following] - time[k])
    return come and go


@numba.njit(cache=True, nogil=True)
def _is_off(s, points, k, following, limit):  # type: ignore[no-untyped-def]  # compiled
    """Whether fix k lies off the fix before and the one following, which lie together."""
    if s.kept_time == NO_TIME or _squared_step(s, points, k) < limit:
        return False
    return _squared_between(points, k, following) >= limit > _squared_step(s, points, following)


@numba.njit(cache=True, nogil=True)
def _squared_step(s, points, k):  # type: ignore[no-untyped-def]  # compiled
    """Squared chord from the last fix kept to fix k."""
    x, y, z = points[k, 0] - s.kept_x, points[k, 1] - s.kept_y, points[k, 2] - s.kept_z
    return x * x + y * y + z * z


@numba.njit(cache=True, nogil=True)
def _squared_between(points, a, b):  # type: ignore[no-untyped-def]  # compiled
    x, y, z = points[a, 0] - points[b, 0], points[a, 1] - points[b, 1], points[a, 2] - points[b, 2]
    return x * x + y * y + z * z
