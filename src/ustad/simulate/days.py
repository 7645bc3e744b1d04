"""Days of people: what each intends, and what becomes of it once travel times are counted.

In: the world, one row per agent. Out: stays (place, arrival, departure in seconds since the first midnight) and
absences, for any range of agents; each agent's result depends on nobody else's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from ustad.simulate.catalogue import EAT
from ustad.simulate.chance import below, keys, normal, poisson, uniform
from ustad.simulate.habits import (
    ANCHOR,
    ATTENDS,
    CHILD_SCHOOL,
    FREE_CHOICES,
    LENGTH_MIN,
    LENGTH_S,
    LUNCH,
    MEMORY,
    N_TRAITS,
    OUT_FREE,
    OUT_WORKDAY,
    REGULARITY,
    REMOTE_DAY,
    ROUTINES,
    SHIFT_DAYS,
    SHIFT_TURN,
    SPREAD_S,
    START_S,
    Habits,
    choose_place,
    draw_choice,
    first_places,
    make_routine,
    make_traits,
    remember,
    school_of,
    take_up,
)  # fmt: skip
from ustad.simulate.people import CARER, FREELANCER, OFFICE, PUPIL, RETIREE, SHIFT, STUDENT, TOURIST, People
from ustad.simulate.presets import Preset
from ustad.simulate.routes import World, travel_seconds

DAY = 86_400.0
MAX_INTENTS = 8
STAYS_A_DAY = 2 * MAX_INTENTS + 2
SHORTEST_STAY = 360.0
_LIFE_STREAM, _HOUSEHOLD_STREAM = 21, 22
_EAT_CHOICE = int(np.flatnonzero(FREE_CHOICES == EAT)[0])


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


class Customs(NamedTuple):
    """What all people of a place share: the calendar, distances, how often they go out."""

    weekdays: np.ndarray  # int8 [days]
    off: np.ndarray  # bool [days]: nobody has to work
    weekend: int  # the first weekday of the weekend
    commute_km: float
    errand_km: float
    outings: float
    explore: float
    drift: float
    tempo_s: float


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
    shared, away = np.empty(1, np.uint64), np.empty(len(customs.weekdays), np.bool_)
    habits = Habits(np.empty(N_TRAITS), np.empty((MEMORY, 3)), np.empty((ROUTINES, 4)), np.zeros(2, np.int64))
    state, plan = np.empty(1, np.uint64), np.empty((MAX_INTENTS, 4))
    at = gone = 0
    for a in range(len(role)):
        state[0], shared[0] = agent_key[a], household_key[a]
        school = school_of(world, home[a], shared)
        _plan_absences(role[a], shared, away)
        make_traits(world, role[a], home[a], school, customs.commute_km, state, habits.traits)
        first_places(world, home[a], customs.errand_km, state, habits)
        make_routine(habits, role[a], state)
        stays, absences = _live_one(
            world, customs, role[a], home[a], drives[a], habits, away, state, plan, log, at, gone
        )
        log.counts[a, 0], log.counts[a, 1] = stays - at, absences - gone
        at, gone = stays, absences
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
    gone: int,
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
            gone = _emit_absence(log, gone, left_at, back)
            here[0], here[1], here[2], left_at = home, back, back + 1800.0, -1.0
        if uniform(state) < customs.drift:
            take_up(world, habits, role, home, customs.errand_km, state)
        if uniform(state) < 0.006:
            sick_until = day + below(state, 4)
        if day > sick_until:
            n = _plan_day(world, customs, role, home, drives, habits, day, state, plan)
            at = _walk_day(world, customs.off, home, plan, n, here, log, at)
    if left_at >= 0:
        gone = _emit_absence(log, gone, left_at, days * DAY)
    else:
        at = _emit(log, at, here, days * DAY)
    return at, gone


@njit(nogil=True, cache=True)
def _emit(log: Log, at: int, here: np.ndarray, departure: float) -> int:
    """Write down the stay that ends now. `here`: place, arrival, earliest departure."""
    log.place[at] = np.int32(here[0])
    log.times[at, 0], log.times[at, 1] = np.int64(here[1]), np.int64(departure)
    return at + 1


@njit(nogil=True, cache=True)
def _emit_absence(log: Log, gone: int, left: float, back: float) -> int:
    log.absent[gone, 0], log.absent[gone, 1] = np.int64(left), np.int64(back)
    return gone + 1


@njit(nogil=True, cache=True)
def _plan_absences(role: int, shared: np.ndarray, away: np.ndarray) -> None:
    """Vacations are shared by a household; tourists come and go."""
    days, day = len(away), 0
    away[:] = False
    if role == TOURIST:
        day = below(shared, 12) - 6
        while day < days:
            leave = day + 10 + below(shared, 12)
            back = leave + 4 + below(shared, 10)
            away[max(leave, 0) : max(min(back, days), 0)] = True
            day = back
        return
    while day < days:
        if uniform(shared) < 0.0018:
            length = 3 + below(shared, 7)
            away[day : day + length] = True
            day += length
        day += 1


@njit(nogil=True, cache=True)
def _intend(plan: np.ndarray, n: int, start: float, length: float, place: float, keeps_end: bool) -> int:
    """Add an intent in order of start. `plan` [MAX_INTENTS, 4]: start, length, place, whether the end is fixed."""
    if n >= MAX_INTENTS or place < 0:
        return n
    i = n
    while i > 0 and plan[i - 1, 0] > start:
        plan[i] = plan[i - 1]
        i -= 1
    plan[i, 0], plan[i, 1], plan[i, 2], plan[i, 3] = start, max(length, SHORTEST_STAY), place, keeps_end
    return n + 1


@njit(nogil=True, cache=True)
def _works_today(customs: Customs, role: int, traits: np.ndarray, day: int, state: np.ndarray) -> bool:
    """Whether the person goes to work or school."""
    if traits[ANCHOR] < 0 or role == TOURIST:
        return False
    if role == SHIFT:
        return (day + int(traits[SHIFT_DAYS])) % 7 < 5
    if customs.off[day]:
        return False
    if role == FREELANCER:
        return uniform(state) < 0.5
    if role == STUDENT:
        return uniform(state) < 0.6 + 0.35 * traits[REGULARITY]
    workday = (customs.weekdays[day] + 5 - customs.weekend) % 7  # 0: the first day after the weekend
    if role == OFFICE and workday == traits[REMOTE_DAY]:
        return uniform(state) > 0.9
    return True


@njit(nogil=True, cache=True)
def _plan_work(
    world: World, customs: Customs, role: int, habits: Habits, day: int, state: np.ndarray, plan: np.ndarray
) -> tuple[int, float, float]:
    """Work, school or lectures, sometimes with lunch elsewhere. Returns the intents, begin and end of the duty."""
    traits = habits.traits
    start, anchor = traits[START_S], int(traits[ANCHOR])
    if role == SHIFT:
        turn = (day // 7 + int(traits[SHIFT_TURN])) % 3 if traits[SHIFT_TURN] < 3 else 0
        start = 3600.0 * (6.0 + 8.0 * turn)
    if role != PUPIL:
        start += customs.tempo_s
    spread = traits[SPREAD_S] * (0.3 if role in (SHIFT, PUPIL) else 1.0)
    begin = day * DAY + start + spread * normal(state)
    end = begin + traits[LENGTH_S] + 0.8 * spread * normal(state)
    if role not in (PUPIL, SHIFT) and uniform(state) < traits[LUNCH]:
        lunch = begin + (end - begin) * (0.42 + 0.06 * normal(state))
        back = lunch + 60.0 * (48.0 + 8.0 * normal(state))
        place = choose_place(world, habits, _EAT_CHOICE, anchor, 0.25 * customs.errand_km, customs.explore, state)
        if place >= 0 and place != anchor:
            remember(habits, place, _EAT_CHOICE, 1.0)
            n = _intend(plan, 0, begin, lunch - begin, anchor, True)
            n = _intend(plan, n, lunch + 300.0, back - lunch - 600.0, place, False)
            return _intend(plan, n, back, end - back, anchor, True), begin, end
    return _intend(plan, 0, begin, end - begin, anchor, True), begin, end


@njit(nogil=True, cache=True)
def _plan_day(
    world: World,
    customs: Customs,
    role: int,
    home: int,
    drives: bool,
    habits: Habits,
    day: int,
    state: np.ndarray,
    plan: np.ndarray,
) -> int:
    """Fill `plan` for one day: duties, the child's school, the weekly routine, outings. Returns the intents."""
    n, begin, end, midnight, traits = 0, 0.0, 0.0, day * DAY, habits.traits
    if _works_today(customs, role, traits, day, state):
        n, begin, end = _plan_work(world, customs, role, habits, day, state, plan)
    if drives and not customs.off[day] and uniform(state) < 0.8:
        drop = midnight + 3600.0 * 7.75 + 0.15 * traits[SPREAD_S] * normal(state)
        if n == 0 or begin > drop + 600.0:
            n = _intend(plan, n, drop, 480.0, traits[CHILD_SCHOOL], False)
        if role in (CARER, FREELANCER, RETIREE):
            n = _intend(plan, n, midnight + 52200.0 + 240.0 * normal(state), 600.0, traits[CHILD_SCHOOL], False)
    for i in range(habits.sizes[1]):
        weekdays, second, length, place = habits.routine[i]
        if int(weekdays) >> customs.weekdays[day] & 1 and uniform(state) < traits[ATTENDS]:
            start = midnight + second + customs.tempo_s + 0.6 * traits[SPREAD_S] * normal(state)
            length *= np.exp(0.15 * normal(state))
            if n == 0 or start > end or start + length < begin:
                n = _intend(plan, n, start, length, place, False)
    rate = traits[OUT_WORKDAY] if end > 0.0 or role in (RETIREE, CARER, TOURIST) else traits[OUT_FREE]
    for _ in range(min(poisson(state, rate * customs.outings), 4)):
        choice = draw_choice(role, state)
        start = _free_hour(choice, midnight, begin, end, customs.tempo_s, state)
        length = LENGTH_MIN[choice] * 60.0 * np.exp(0.45 * normal(state) - 0.1)
        place = choose_place(world, habits, choice, home, customs.errand_km, customs.explore, state)
        if start >= 0 and place >= 0 and place != home:
            remember(habits, place, choice, 1.0)
            n = _intend(plan, n, start, length, place, False)
    return n


@njit(nogil=True, cache=True)
def _free_hour(choice: int, midnight: float, begin: float, end: float, tempo_s: float, state: np.ndarray) -> float:
    """When an outing starts: around midday or in the evening, before or after work where there is work; -1: never."""
    hour = 10.9 + 2.8 * normal(state)
    if choice == _EAT_CHOICE:
        hour = (12.2 if uniform(state) < 0.7 else 18.3) + 0.7 * normal(state)
    start = midnight + 3600.0 * min(max(hour, 7.5), 20.5) + tempo_s
    if end > 0.0 and start + 3600.0 > begin and start < end:
        if begin - midnight > 23400.0 and uniform(state) < 0.35:
            return begin - 3000.0 - 1500.0 * uniform(state)
        start = end + 600.0 - 1800.0 * np.log(1.0 - uniform(state))
    return start if start < midnight + 3600.0 * 22.5 else -1.0


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
