"""What a person intends on a day: duties, the child's school, weekly appointments, outings, and absences.

Kernels that compiled code calls per agent and day. Out: rows of a plan – start, length, place, whether the end is
fixed – in order of start; what becomes of them is decided on the way (`days`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ustad.simulate.catalogue import EAT
from ustad.simulate.chance import below, normal, poisson, uniform
from ustad.simulate.habits import (
    ANCHOR,
    ATTENDS,
    CHILD_SCHOOL,
    FREE_CHOICES,
    LENGTH_MIN,
    LENGTH_S,
    LUNCH,
    OUT_FREE,
    OUT_WORKDAY,
    REGULARITY,
    REMOTE_DAY,
    SHIFT_DAYS,
    SHIFT_TURN,
    SPREAD_S,
    START_S,
    Habits,
    choose_place,
    draw_choice,
    remember,
)
from ustad.simulate.people import CARER, FREELANCER, OFFICE, PUPIL, RETIREE, SHIFT, STUDENT, TOURIST
from ustad.simulate.routes import World

DAY = 86_400.0
MAX_INTENTS = 8
SHORTEST_STAY = 360.0
_EAT_CHOICE = int(np.flatnonzero(FREE_CHOICES == EAT)[0])


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


@njit(nogil=True, cache=True)
def plan_absences(role: int, group: np.ndarray, away: np.ndarray) -> None:
    """Vacations are shared by a household; tourists come and go."""
    days, day = len(away), 0
    away[:] = False
    if role == TOURIST:
        day = below(group, 12) - 6
        while day < days:
            leave = day + 10 + below(group, 12)
            back = leave + 4 + below(group, 10)
            away[max(leave, 0) : max(min(back, days), 0)] = True
            day = back
        return
    while day < days:
        if uniform(group) < 0.0011:
            length = 3 + below(group, 7)
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
def plan_day(
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
