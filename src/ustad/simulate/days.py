"""Days of people: what each intends, and what becomes of it once travel times are counted.

In: the world, one row per agent. Out: stays (place, arrival, departure in seconds since the first midnight) and
absences, for any range of agents; each agent's result depends on nobody else's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from ustad.simulate.chance import below, keys, uniform
from ustad.simulate.habits import (
    ANCHOR,
    MEMORY,
    N_TRAITS,
    REGULARITY,
    ROUTINES,
    Habits,
    first_places,
    make_routine,
    make_traits,
    school_of,
    take_up,
)  # fmt: skip
from ustad.simulate.people import People
from ustad.simulate.plans import DAY, MAX_INTENTS, SHORTEST_STAY, Customs, plan_absences, plan_day
from ustad.simulate.presets import Preset
from ustad.simulate.routes import World, travel_seconds

STAYS_A_DAY = 2 * MAX_INTENTS + 2
_LIFE_STREAM, _HOUSEHOLD_STREAM = 21, 22


@dataclass(frozen=True)
class Lives:
    """Stays and absences of agents `first` …, agent by agent in order of time; seconds since the first midnight."""

    first: int
    offsets: np.ndarray  # int64 [agents + 1]
    place: np.ndarray  # int32 [stays]
    arrival: np.ndarray  # int64
    departure: np.ndarray  # int64
    absent_offsets: np.ndarray  # int64 [agents + 1]
    absent: np.ndarray  # int64 [absences, 2]
    anchor: np.ndarray  # int32 [agents]: work, school or -1
    regularity: np.ndarray  # float64 [agents]


class Log(NamedTuple):
    """Where kernels write: stays, absences, and per agent how many of each."""

    place: np.ndarray  # int32 [room]
    times: np.ndarray  # int64 [room, 2]
    absent: np.ndarray  # int64 [room, 2]
    counts: np.ndarray  # int64 [agents, 2]
    anchor: np.ndarray  # int32 [agents]
    regularity: np.ndarray  # float64 [agents]


def live(
    world: World,
    people: People,
    preset: Preset,
    weekdays: np.ndarray,
    *,
    off: np.ndarray,
    seed: int,
    first: int,
    last: int,
) -> Lives:
    """The days of agents first … last - 1. `weekdays` int8 and `off` (no work) bool: one per day."""
    agents, days, rows = last - first, len(weekdays), slice(first, last)
    room = agents * (days * STAYS_A_DAY + 2)
    log = Log(
        np.empty(room, np.int32), np.empty((room, 2), np.int64), np.empty((agents * days, 2), np.int64),
        np.zeros((agents, 2), np.int64), np.empty(agents, np.int32), np.empty(agents),
    )  # fmt: skip
    customs = Customs(
        weekdays, off, preset.weekend[0], preset.commute_km, preset.errand_km, preset.outings, preset.explore,
        preset.drift, preset.tempo_min * 60.0,
    )  # fmt: skip
    agent_keys = keys(seed, _LIFE_STREAM, np.arange(first, last))
    household_keys = keys(seed, _HOUSEHOLD_STREAM, people.household[rows])
    _live_all(
        world, customs, people.role[rows], people.home[rows], people.drives_child[rows], agent_keys, household_keys, log
    )
    offsets, absent_offsets = (np.r_[0, np.cumsum(log.counts[:, k])] for k in (0, 1))
    stays = slice(0, int(offsets[-1]))
    return Lives(
        first=first,
        offsets=offsets,
        place=log.place[stays].copy(),
        arrival=log.times[stays, 0].copy(),
        departure=log.times[stays, 1].copy(),
        absent_offsets=absent_offsets,
        absent=log.absent[: absent_offsets[-1]].copy(),
        anchor=log.anchor,
        regularity=log.regularity,
    )


@njit(nogil=True, cache=True)
def _live_all(
    world: World,
    customs: Customs,
    role: np.ndarray,
    home: np.ndarray,
    drives: np.ndarray,
    agent_key: np.ndarray,
    household_key: np.ndarray,
    log: Log,
) -> None:
    group, away = np.empty(1, np.uint64), np.empty(len(customs.weekdays), np.bool_)
    habits = Habits(np.empty(N_TRAITS), np.empty((MEMORY, 3)), np.empty((ROUTINES, 4)), np.zeros(2, np.int64))
    state, plan = np.empty(1, np.uint64), np.empty((MAX_INTENTS, 4))
    at = absences_at = int(np.int64(0))  # typed: with the number 0 as it is, a second version would be compiled
    for a in range(len(role)):
        state[0], group[0] = agent_key[a], household_key[a]
        school = school_of(world, home[a], group)
        plan_absences(role[a], group, away)
        make_traits(world, role[a], home[a], school, customs.commute_km, state, habits.traits)
        first_places(world, home[a], customs.errand_km, state, habits)
        make_routine(habits, role[a], state)
        stays, absences = _live_one(
            world, customs, role[a], home[a], drives[a], habits, away, state, plan, log, at, absences_at
        )
        log.counts[a, 0], log.counts[a, 1] = stays - at, absences - absences_at
        at, absences_at = stays, absences
        log.anchor[a], log.regularity[a] = int(habits.traits[ANCHOR]), habits.traits[REGULARITY]


@njit(nogil=True, cache=True)
def _live_one(
    world: World,
    customs: Customs,
    role: int,
    home: int,
    drives: bool,
    habits: Habits,
    away: np.ndarray,
    state: np.ndarray,
    plan: np.ndarray,
    log: Log,
    at: int,
    absences_at: int,
) -> tuple[int, int]:
    """All days of one person. Returns the next free rows of stays and absences."""
    here, days = np.array([home, 0.0, 0.0]), len(away)  # place, arrival, earliest departure
    sick_until, left_at = -1, -1.0
    for day in range(days):
        if away[day]:
            if left_at < 0:
                left_at = 0.0
                if day > 0:
                    left_at = np.floor(max(here[2], day * DAY + 3600.0 * (8.0 + 3.0 * uniform(state))))
                    at = _emit(log, at, here, left_at)
            continue
        if left_at >= 0:
            back = np.floor(max(left_at + 3600.0, day * DAY + 3600.0 * (13.0 + 6.0 * uniform(state))))
            absences_at = _emit_absence(log, absences_at, left_at, back)
            here[0], here[1], here[2], left_at = home, back, back + 1800.0, -1.0
        if uniform(state) < customs.drift:
            take_up(world, habits, role, home, customs.errand_km, state)
        if uniform(state) < 0.006:
            sick_until = day + below(state, 4)
        if day > sick_until:
            n = plan_day(world, customs, role, home, drives, habits, day, state, plan)
            at = _walk_day(world, customs.off, home, plan, n, here, log, at)
    if left_at >= 0:
        absences_at = _emit_absence(log, absences_at, left_at, days * DAY)
    else:
        at = _emit(log, at, here, days * DAY)
    return at, absences_at


@njit(nogil=True, cache=True)
def _emit(log: Log, at: int, here: np.ndarray, departure: float) -> int:
    """Write down the stay that ends now. `here`: place, arrival, earliest departure."""
    log.place[at] = np.int32(here[0])
    log.times[at, 0], log.times[at, 1] = np.int64(here[1]), np.int64(departure)
    return at + 1


@njit(nogil=True, cache=True)
def _emit_absence(log: Log, absences_at: int, left: float, back: float) -> int:
    log.absent[absences_at, 0], log.absent[absences_at, 1] = np.int64(left), np.int64(back)
    return absences_at + 1


@njit(nogil=True, cache=True)
def _walk_day(
    world: World, off: np.ndarray, home: int, plan: np.ndarray, n: int, here: np.ndarray, log: Log, at: int
) -> int:
    """Carry the intents out one after the other, going home where there is time, and home in the end."""
    for i in range(n):
        start, length, target, keeps_end = plan[i, 0], plan[i, 1], int(plan[i, 2]), plan[i, 3] > 0
        if keeps_end and start + length - here[2] < 1800.0:
            continue  # too late to be worth going
        if target == int(here[0]):
            here[2] = max(here[2], start + length)
            continue
        if int(here[0]) != home and target != home:
            back = travel_seconds(world, off, int(here[0]), home, here[2])
            again = travel_seconds(world, off, home, target, start)
            if start - here[2] - back - again > 2400.0:
                at = _go(world, off, home, here[2], 900.0, -1.0, here, log, at)
        leave = max(here[2], start - travel_seconds(world, off, int(here[0]), target, start))
        at = _go(world, off, target, leave, length, start + length if keeps_end else -1.0, here, log, at)
    if int(here[0]) != home:
        at = _go(world, off, home, here[2], 900.0, -1.0, here, log, at)
    return at


@njit(nogil=True, cache=True)
def _go(
    world: World,
    off: np.ndarray,
    target: int,
    leave: float,
    length: float,
    fixed_end: float,
    here: np.ndarray,
    log: Log,
    at: int,
) -> int:
    """Leave for a place; nobody leaves who would arrive after the end of the simulation."""
    leave = np.floor(leave)
    arrival, end = leave + travel_seconds(world, off, int(here[0]), target, leave), len(off) * DAY
    if arrival + SHORTEST_STAY >= end:
        here[2] = max(here[2], end)
        return at
    at = _emit(log, at, here, leave)
    here[0], here[1] = target, arrival
    here[2] = max(arrival + SHORTEST_STAY, fixed_end if fixed_end > 0 else arrival + length)
    return at
