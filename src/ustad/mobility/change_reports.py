"""Phones that report changes only: hardly any two of their fixes lie at one place, minutes apart.

In: the kernel's state of an agent, fix by fix. An agent is known to have such a phone by the fixes so far. Its silence
was spent at the last fix before it if it ends within `changes`, and if it lasts much longer than the way. But a first
report after a rest comes from the way out: silence after that one fix is a gap, except at a place where the agent was
before. Where such stays have few fixes, earlier ones at that place help to say where it is.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from ustad.geo import EARTH_RADIUS_KM

#: The usual speed of a departure.
DEPARTURE_KM_PER_US = 20.0 / 3.6e9
#: A phone reports changes only, if at most one in FEW_STILL pairs of its fixes lies at one place, minutes apart. One
#: such pair is assumed beforehand. Its reports on the way are minutes apart: silence of at least `REST_US` is none.
FEW_STILL, REST_US = 6, 600_000_000
#: It reports what is at least so far from the last report (squared, on the unit sphere).
STEP = (0.4 / EARTH_RADIUS_KM) ** 2
#: PLACE: how wide an agent's own place is, as a share of the squared distance. KNOWN_VISITS: visits after which a place
#: is known. FEW_FIXES: earlier stays help to place a stay of so many fixes or fewer.
PLACE, KNOWN_VISITS, FEW_FIXES = 4.0, 2.0, 4


@numba.njit(cache=True, nogil=True)
def count_pair(s, silence, x, y, z, limits):  # type: ignore[no-untyped-def]  # compiled
    """Count the last fix and this one as a pair, and as one at one place if they lie there minutes apart."""
    s.pairs += 1
    near = (x - s.last_x) ** 2 + (y - s.last_y) ** 2 + (z - s.last_z) ** 2 < limits.chord
    s.still_pairs += 1 if near and silence <= 2 * limits.duration else 0


@numba.njit(cache=True, nogil=True)
def reports_changes(s, limits):  # type: ignore[no-untyped-def]  # compiled
    """Whether the agent's phone reports changes only, by the fixes so far."""
    return limits.changes > 0.0 and FEW_STILL * (s.still_pairs + 1) <= s.pairs


@numba.njit(cache=True, nogil=True)
def is_way_out(silence, way, km):  # type: ignore[no-untyped-def]  # compiled
    """Whether a fix after silence is the first report after a rest somewhere else."""
    return way >= STEP and silence >= REST_US + np.int64(km / DEPARTURE_KM_PER_US)


@numba.njit(cache=True, nogil=True)
def has_rested(s, silence, way, km, limits):  # type: ignore[no-untyped-def]  # compiled
    """Whether silence that ends elsewhere was spent at the last fix: the phone reports changes only."""
    if not reports_changes(s, limits) or way >= limits.changes:
        return False
    if silence < REST_US + np.int64(km / DEPARTURE_KM_PER_US):
        return False
    if s.on_way_out == 0 or s.count > 1:
        return True
    place = _nearest_place(s, s.last_x, s.last_y, s.last_z, limits)
    return place >= 0 and s.places[place, 3] >= KNOWN_VISITS


@numba.njit(cache=True, nogil=True)
def _nearest_place(s, x, y, z, limits):  # type: ignore[no-untyped-def]  # compiled
    """The row of the agent's place that is nearest and near enough, or -1."""
    best, nearest = -1, PLACE * limits.chord
    for i in range(len(s.places)):
        a, b, c = s.places[i, 0], s.places[i, 1], s.places[i, 2]
        if s.places[i, 3] > 0.0:
            norm = math.sqrt(a * a + b * b + c * c)
            apart = (x - a / norm) ** 2 + (y - b / norm) ** 2 + (z - c / norm) ** 2
            if apart < nearest:
                best, nearest = i, apart
    return best


@numba.njit(cache=True, nogil=True)
def place_held(s, limits):  # type: ignore[no-untyped-def]  # compiled
    """Note the held stay's place among the agent's own. If few fixes say where it is, earlier stays there help."""
    a, b, c = s.held_x, s.held_y, s.held_z
    norm = math.sqrt(a * a + b * b + c * c)
    place = _nearest_place(s, a / norm, b / norm, c / norm, limits)
    if place < 0:
        place = 0
        for i in range(len(s.places)):
            if s.places[i, 3] < s.places[place, 3]:
                place = i
        s.places[place, 0] = s.places[place, 1] = s.places[place, 2] = s.places[place, 3] = 0.0
    elif s.held_count <= FEW_FIXES:
        s.held_x += s.places[place, 0]
        s.held_y += s.places[place, 1]
        s.held_z += s.places[place, 2]
    s.places[place, 0] += a
    s.places[place, 1] += b
    s.places[place, 2] += c
    s.places[place, 3] += 1.0
