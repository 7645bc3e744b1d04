"""The stay kernel that joins: what nothing contradicts is one stay, and silence is not behaviour.

In and out as `staypoints.scan`. A cluster of fixes is *settled* once it lasts as long as a stay has to. A settled
cluster that was left is *held*: not final, because the next cluster may turn out to be the same stay. It is final once
another stay is settled, or once the agent was seen elsewhere for longer than a stay takes.

Four rules beside those of the plain kernel:
- A cluster goes on while fixes lie near its first fix or near its middle, also after silence of up to `bridge`.
- A cluster at the held stay's place goes on with it, if little time passed or no fix lies far away.
- An imprecise fix does not show that the agent left, as long as its accuracy explains how far off it lies.
- Silence that ends within `reach` of the place was spent there, unless the agent then stays where the silence ended.

There are further rules for phones that report only that they moved (`change_reports.py`).
"""

from __future__ import annotations

import math

import numba
import numpy as np

from ustad.geo import EARTH_RADIUS_KM
from ustad.mobility.change_reports import (
    DEPARTURE_KM_PER_US,
    count_pair,
    has_rested,
    is_way_out,
    place_held,
    reports_changes,
)

#: What a gap column says where nothing at all was observed on that side, and a time that there is not.
NEVER_SEEN = -1
NO_TIME = -(2**63)
#: Causes of a gap, by where the silence ended. BRIDGED: at the place; it counts as a stay. LEFT: on the way from the
#: place; it counts as a stay too. MOVED: elsewhere. UNBRIDGED: at the place, but too late to say that the agent was
#: there.
CAUSES = BRIDGED, LEFT, MOVED, UNBRIDGED = range(4)
CAUSE_NAMES = ("bridged", "left", "moved", "unbridged")

#: Positions of fixes: where the way since the last stay begins, the open cluster's first fix, both of the held stay.
ORIGIN, ANCHOR, HELD_ORIGIN, HELD_ANCHOR = range(4)
#: Shares of the squared distance: near the middle of a cluster (half of it), the same place, far away (twice).
MIDDLE, SAME, FAR = 0.25, 0.49, 4.0
#: A last fix before silence weighs as much as this many others at most: where a phone fell silent, it lay.
WEIGHT = 10.0
#: A fix with a worse accuracy than this, in metres, weighs less. A fix says that the agent left only if it lies further
#: off than so many times its accuracy (in units of the sphere for metres).
PRECISE_M = 20.0
ACCURACY_SLACK = 4.0 / (1000.0 * EARTH_RADIUS_KM)
#: A fix elsewhere was on the way from the place, at the usual speed of a departure; by a slow walker's it is sure.
WALKING_KM_PER_US = 3.6 / 3.6e9
#: Beyond this many distances, silence before a stay elsewhere was not spent at the place.
NEXT_DOOR = 2.5**2
#: One fix next door is a GPS error if the agent is seen back within so many times the least duration of a stay.
STRAY = 6


@numba.njit(cache=True, nogil=True)
def scan_joined(  # type: ignore[no-untyped-def]  # compiled; types are numpy arrays and scalars of the caller
    offsets, resume, time, points, accuracy, state, stays, trips, gaps, at, n, is_needed, limits, final
):
    """Stays, trips and gaps into their arrays, how many into `n`; `is_needed` says which fixes the next call needs."""
    chord, duration, gap_limit, bridge = limits.chord, limits.duration, limits.gap, limits.bridge
    for agent in range(len(state)):
        s = state[agent]
        begin, end = offsets[agent], offsets[agent + 1]
        at[HELD_ORIGIN], at[HELD_ANCHOR], at[ORIGIN], at[ANCHOR] = (
            begin, begin + s.held_anchor_at, begin + s.origin_at, begin + s.anchor_at
        )  # fmt: skip
        for k in range(resume[agent], end):
            t, x, y, z = time[k], points[k, 0], points[k, 1], points[k, 2]
            weight = 1.0 if accuracy[k] <= PRECISE_M else (PRECISE_M / accuracy[k]) ** 2
            doubt = min((ACCURACY_SLACK * accuracy[k]) ** 2, NEXT_DOOR * chord)
            if s.started == 0:
                s.started = 1
                _open(s, t, x, y, z, weight, doubt, NEVER_SEEN)
                at[ORIGIN] = at[ANCHOR] = k
            else:
                silence = t - s.last_time
                if limits.changes > 0.0:
                    count_pair(s, silence, x, y, z, limits)
                near = (x - s.anchor_x) ** 2 + (y - s.anchor_y) ** 2 + (z - s.anchor_z) ** 2 < chord
                if not near:
                    near = _from_middle(s, x, y, z) < max(
                        doubt + s.doubt, chord if silence > duration else MIDDLE * chord
                    )
                if near and silence <= bridge:
                    if silence > duration:
                        _weigh_last(s, silence, duration)
                        if 0 < gap_limit < silence:
                            _gap(gaps, n, agent, s.last_time, t, BRIDGED)
                    s.sum_x += weight * x
                    s.sum_y += weight * y
                    s.sum_z += weight * z
                    s.count += 1
                    s.doubt = min(s.doubt, doubt)
                    s.seen += silence if gap_limit == 0 or silence <= gap_limit else 0
                    if s.settled == 0 and t - s.start >= duration:
                        _settle(s, agent, silence <= duration, time, points, stays, trips, at, n, limits)
                else:
                    _leave(s, agent, k, near, weight, doubt, time, points, stays, trips, gaps, at, n, limits)
                if s.held == 1:
                    _look_away(s, agent, x, y, z, doubt, stays, trips, at, n, limits)
            s.last_time, s.last_x, s.last_y, s.last_z, s.last_weight = t, x, y, z, weight
        if final and s.started == 1:
            _finish(s, agent, time, points, stays, trips, at, n, limits)
        elif end > begin:
            _keep(s, at, end, is_needed, duration)


# ------------------------------------------------------------------------------------------ the open cluster
@numba.njit(cache=True, nogil=True)
def _open(s, t, x, y, z, weight, doubt, gap):  # type: ignore[no-untyped-def]  # compiled
    s.anchor_time, s.anchor_x, s.anchor_y, s.anchor_z, s.anchor_gap = t, x, y, z, gap
    s.sum_x, s.sum_y, s.sum_z, s.count = weight * x, weight * y, weight * z, 1
    s.start, s.start_seen, s.settled, s.doubt = t, s.seen, 0, doubt


@numba.njit(cache=True, nogil=True)
def _from_middle(s, x, y, z):  # type: ignore[no-untyped-def]  # compiled
    """Squared chord from the middle of the open cluster."""
    norm = math.sqrt(s.sum_x * s.sum_x + s.sum_y * s.sum_y + s.sum_z * s.sum_z)
    return (x - s.sum_x / norm) ** 2 + (y - s.sum_y / norm) ** 2 + (z - s.sum_z / norm) ** 2


@numba.njit(cache=True, nogil=True)
def _from_held(s, x, y, z):  # type: ignore[no-untyped-def]  # compiled
    """Squared chord from the middle of the held stay."""
    a, b, c = s.held_x, s.held_y, s.held_z
    norm = math.sqrt(a * a + b * b + c * c)
    return (x - a / norm) ** 2 + (y - b / norm) ** 2 + (z - c / norm) ** 2


@numba.njit(cache=True, nogil=True)
def _weigh_last(s, silence, duration):  # type: ignore[no-untyped-def]  # compiled
    weight = s.last_weight * min(WEIGHT, silence / duration)
    s.sum_x += weight * s.last_x
    s.sum_y += weight * s.last_y
    s.sum_z += weight * s.last_z


@numba.njit(cache=True, nogil=True)
def _leave(s, agent, k, near, weight, doubt, time, points, stays, trips, gaps, at, n, limits):  # type: ignore[no-untyped-def]  # compiled
    """Close the open cluster at fix k, which is elsewhere or comes too late, and open the next one there."""
    t, x, y, z = time[k], points[k, 0], points[k, 1], points[k, 2]
    silence = t - s.last_time
    way = (x - s.last_x) ** 2 + (y - s.last_y) ** 2 + (z - s.last_z) ** 2
    unseen = silence > limits.duration
    left = unseen and not near and silence <= limits.bridge and way < limits.reach
    km = math.sqrt(way) * EARTH_RADIUS_KM
    is_rest = not near and silence <= limits.bridge and has_rested(s, silence, way, km, limits)
    left = left or is_rest
    is_gap = 0 < limits.gap < silence
    if is_gap:
        _gap(gaps, n, agent, s.last_time, t, LEFT if left else UNBRIDGED if near else MOVED)
    sure = s.last_time  # until when the agent was there at least, on foot
    if left or not unseen:
        sure = max(s.last_time, t - np.int64(km / (DEPARTURE_KM_PER_US if is_rest else WALKING_KM_PER_US)))
    stop = s.last_time
    if left:
        stop = max(s.last_time, t - np.int64(km / DEPARTURE_KM_PER_US))
    elif limits.first_outside and not unseen:
        stop = t
    counted_s = 0 if is_gap else silence
    if s.settled == 0 and left and _is_stray(s, t, x, y, z, limits):
        s.held_far = 0
    elif s.settled == 0 and sure - s.start >= limits.duration:
        if left:
            _weigh_last(s, silence, limits.duration)
        _settle(s, agent, not unseen, time, points, stays, trips, at, n, limits)
    end_gap = silence if unseen and not left else 0
    end_seen = s.seen + min(counted_s, stop - s.last_time)
    if s.settled == 1:
        _hold(s, at)
        _end_held(s, at, k, stop, end_gap, end_seen, left and not is_rest, silence, way)
    elif s.held == 1 and _is_same(s, limits):
        _extend(s)
        _end_held(s, at, k, stop, end_gap, end_seen, left and not is_rest, silence, way)
    s.gap_since |= 1 if is_gap and not left else 0
    s.seen += counted_s
    _open(s, t, x, y, z, weight, doubt, silence if unseen else 0)
    s.on_way_out = 1 if is_way_out(silence, way, km) else 0
    at[ANCHOR] = k


# --------------------------------------------------------------------------------------------- the held stay
@numba.njit(cache=True, nogil=True)
def _hold(s, at):  # type: ignore[no-untyped-def]  # compiled
    """The open cluster, which is a stay, becomes the held one."""
    s.held, s.held_start, s.held_start_gap, s.held_start_seen = 1, s.start, s.anchor_gap, s.start_seen
    s.held_x, s.held_y, s.held_z, s.held_count, s.held_doubt = s.sum_x, s.sum_y, s.sum_z, s.count, s.doubt
    at[HELD_ORIGIN] = at[ORIGIN] if s.has_stay == 1 else at[ANCHOR]
    at[HELD_ANCHOR] = at[ANCHOR]
    s.held_gap = s.gap_since


@numba.njit(cache=True, nogil=True)
def _extend(s):  # type: ignore[no-untyped-def]  # compiled
    """The open cluster, too short for a stay, goes on with the held one."""
    s.held_x += s.sum_x
    s.held_y += s.sum_y
    s.held_z += s.sum_z
    s.held_count += s.count
    s.held_doubt = min(s.held_doubt, s.doubt)


@numba.njit(cache=True, nogil=True)
def _end_held(s, at, k, stop, end_gap, end_seen, left, silence, way):  # type: ignore[no-untyped-def]  # compiled
    s.held_end, s.held_end_gap, s.held_end_seen, s.held_far = stop, end_gap, end_seen, 0
    s.sure_end, s.sure_seen, s.left_silence, s.left_way = s.last_time, s.seen, silence, way
    s.left = 1 if left else 0
    s.gap_since = 0
    at[ORIGIN] = k - 1


@numba.njit(cache=True, nogil=True)
def _is_same(s, limits):  # type: ignore[no-untyped-def]  # compiled
    """Whether the open cluster is at the held stay's place and nothing says that the agent was elsewhere."""
    apart = s.start - s.held_end
    if apart > limits.bridge or (s.held_far == 1 and apart > limits.duration):
        return False
    norm = math.sqrt(s.sum_x * s.sum_x + s.sum_y * s.sum_y + s.sum_z * s.sum_z)
    limit = max(SAME * limits.chord, s.doubt + s.held_doubt)
    return _from_held(s, s.sum_x / norm, s.sum_y / norm, s.sum_z / norm) < limit


@numba.njit(cache=True, nogil=True)
def _is_stray(s, t, x, y, z, limits):  # type: ignore[no-untyped-def]  # compiled
    """Whether the open cluster is one fix next door to the held stay, after and before fixes there within minutes: a
    GPS error, not a visit."""
    alone = s.held == 1 and s.count == 1 and s.anchor_time - s.sure_end == s.left_silence
    if not alone or t - s.sure_end > STRAY * limits.duration or reports_changes(s, limits):
        return False
    away = _from_held(s, s.last_x, s.last_y, s.last_z)
    return away < NEXT_DOOR * limits.chord and _from_held(s, x, y, z) < SAME * limits.chord


@numba.njit(cache=True, nogil=True)
def _look_away(s, agent, x, y, z, doubt, stays, trips, at, n, limits):  # type: ignore[no-untyped-def]  # compiled
    """The held stay is final once the agent was far away and the open cluster begins too late to go on with it."""
    if s.held_far == 0 and _from_held(s, x, y, z) >= max(doubt + s.held_doubt, FAR * limits.chord):
        s.held_far = 1
    apart = s.anchor_time - s.held_end
    if apart > limits.bridge or (s.held_far == 1 and apart > limits.duration):
        _emit(s, agent, stays, trips, at, n, 0, limits)


@numba.njit(cache=True, nogil=True)
def _settle(s, agent, by_fixes, time, points, stays, trips, at, n, limits):  # type: ignore[no-untyped-def]  # compiled
    """The open cluster becomes a stay, by fixes or by silence: it joins the held stay or makes that one final."""
    s.settled = 1
    if s.held == 1 and _is_same(s, limits):
        s.start, s.anchor_gap, s.start_seen = s.held_start, s.held_start_gap, s.held_start_seen
        s.sum_x += s.held_x
        s.sum_y += s.held_y
        s.sum_z += s.held_z
        s.count += s.held_count
        s.doubt = min(s.doubt, s.held_doubt)
        s.gap_since, s.held = s.held_gap, 0
        at[ORIGIN], at[ANCHOR] = at[HELD_ORIGIN], at[HELD_ANCHOR]
        return
    if s.held == 1 and s.left == 1 and s.anchor_time - s.sure_end == s.left_silence:
        _take_back(s, by_fixes, at, limits)
    if s.held == 1:
        _emit(s, agent, stays, trips, at, n, 0, limits)
    _begin_earlier(s, time, points, at, limits)
    if s.has_stay == 1 and s.anchor_gap > s.start - s.stay_end:
        rest = max(s.start - s.stay_end, 0)
        s.anchor_gap = rest if rest > limits.duration else 0


@numba.njit(cache=True, nogil=True)
def _take_back(s, by_fixes, at, limits):  # type: ignore[no-untyped-def]  # compiled
    """The agent stays where the silence ended: when it went there nobody knows. A stay by silence alone is none then,
    except next door to another such one: there the phone is silent while it lies still."""
    is_stay = s.sure_end - s.held_start >= limits.duration
    if not is_stay and not by_fixes and s.left_way < NEXT_DOOR * limits.chord:
        return
    s.held_end, s.held_end_gap, s.held_end_seen = s.sure_end, s.left_silence, s.sure_seen
    s.gap_since |= 1 if 0 < limits.gap < s.left_silence else 0
    if not is_stay:
        s.held = 0
        s.gap_since |= s.held_gap
        at[ORIGIN] = at[HELD_ORIGIN]


@numba.njit(cache=True, nogil=True)
def _begin_earlier(s, time, points, at, limits):  # type: ignore[no-untyped-def]  # compiled
    """The stay begins with the first of the fixes before it that lie near its middle already."""
    k = at[ANCHOR] - 1
    while k > at[ORIGIN] and time[k + 1] - time[k] <= limits.duration:
        if s.has_stay == 1 and time[k] < s.stay_end:
            break
        x, y, z = points[k, 0], points[k, 1], points[k, 2]
        if _from_middle(s, x, y, z) >= MIDDLE * limits.chord:
            break
        step, before = time[k + 1] - time[k], time[k] - time[k - 1]
        s.start, s.start_seen = time[k], s.start_seen - (step if limits.gap == 0 or step <= limits.gap else 0)
        s.anchor_gap = before if before > limits.duration else 0
        s.sum_x += x
        s.sum_y += y
        s.sum_z += z
        s.count += 1
        at[ANCHOR] = k
        k -= 1


# --------------------------------------------------------------------------------------------------- records
@numba.njit(cache=True, nogil=True)
def _gap(gaps, n, agent, start, end, cause):  # type: ignore[no-untyped-def]  # compiled
    row = gaps[n[2]]
    row.agent, row.start, row.end, row.cause = agent, start, end, cause
    n[2] += 1


@numba.njit(cache=True, nogil=True)
def _emit(s, agent, stays, trips, at, n, is_open, limits):  # type: ignore[no-untyped-def]  # compiled
    """The held stay is final, and so is the trip that led to it."""
    if s.has_stay == 1:
        trip = trips[n[1]]
        trip.agent, trip.start, trip.end = agent, s.stay_end, s.held_start
        trip.origin_start, trip.destination_start = s.stay_start, s.held_start
        trip.first, trip.last, trip.crosses_gap = at[HELD_ORIGIN], at[HELD_ANCHOR], s.held_gap
        n[1] += 1
    if reports_changes(s, limits):
        place_held(s, limits)
    row = stays[n[0]]
    norm = math.sqrt(s.held_x * s.held_x + s.held_y * s.held_y + s.held_z * s.held_z)
    row.agent, row.start, row.end = agent, s.held_start, s.held_end
    row.x, row.y, row.z, row.count = s.held_x / norm, s.held_y / norm, s.held_z / norm, s.held_count
    row.start_gap, row.end_gap, row.unfinished = s.held_start_gap, s.held_end_gap, is_open
    row.observed = min(s.held_end_seen - s.held_start_seen, s.held_end - s.held_start)
    n[0] += 1
    s.has_stay, s.stay_start, s.stay_end, s.held = 1, s.held_start, s.held_end, 0


@numba.njit(cache=True, nogil=True)
def _finish(s, agent, time, points, stays, trips, at, n, limits):  # type: ignore[no-untyped-def]  # compiled
    """The data is at its end: what is open ends with it."""
    if s.settled == 0 and s.last_time - s.start >= limits.duration:
        _settle(s, agent, True, time, points, stays, trips, at, n, limits)
    is_open = s.settled == 1
    if is_open:
        _hold(s, at)
    elif s.held == 1 and _is_same(s, limits):
        is_open = True
        _extend(s)
    elif s.held == 1 and s.last_time - s.held_end < limits.duration:
        s.held_end_gap = NEVER_SEEN  # a last fix away may be a GPS error: too short to say that they left
    if is_open:
        _end_held(s, at, at[ORIGIN], s.last_time, NEVER_SEEN, s.seen, False, 0, 0.0)
    if s.held == 1 and (limits.include_last or not is_open):
        _emit(s, agent, stays, trips, at, n, 1 if is_open else 0, limits)


@numba.njit(cache=True, nogil=True)
def _keep(s, at, end, is_needed, duration):  # type: ignore[no-untyped-def]  # compiled
    """Mark the fixes that the next call needs, and remember the positions among them. These are the ways to and from
    the held stay, and the open cluster while it may still be part of a way."""
    s.held_anchor_at, s.origin_at = 0, 0
    if s.held == 1:
        s.held_anchor_at = at[HELD_ANCHOR] - at[HELD_ORIGIN]
        if s.left == 1 and s.sure_end - s.held_start < duration:  # may still be no stay but part of the way
            s.origin_at = at[ORIGIN] - at[HELD_ORIGIN]
            is_needed[at[HELD_ORIGIN] : end] = True
        else:
            s.origin_at = s.held_anchor_at + (0 if at[ORIGIN] == at[HELD_ANCHOR] else 1)
            is_needed[at[HELD_ORIGIN] : at[HELD_ANCHOR] + 1] = True
    s.anchor_at = s.origin_at + at[ANCHOR] - at[ORIGIN]
    is_needed[at[ORIGIN] : (at[ANCHOR] + 1 if s.settled == 1 else end)] = True
    is_needed[end - 1] = True
