"""What a person is like: traits, anchors, a personal set of places, a weekly routine.

Kernels that compiled code calls per agent. Places of free choice follow exploration and preferential return. A person
tries a new place with a chance that falls with the number of known places. Otherwise it returns to a known place, more
likely to one it visited often.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ustad.simulate.catalogue import (
    BUY,
    CHILDCARE,
    EAT,
    ERRANDS,
    EXERCISE,
    HEALTH,
    HOME,
    RECREATION,
    SCHOOL,
    SERVICES,
    UNIVERSITY,
    VISIT,
    WORK,
    WORSHIP,
)
from ustad.simulate.chance import below, normal, uniform
from ustad.simulate.people import CARER, FREELANCER, OFFICE, PUPIL, RETIREE, SHIFT, STUDENT, TOURIST
from ustad.simulate.routes import World

# Columns of a person's traits.
REGULARITY, SPREAD_S, ANCHOR, START_S, LENGTH_S, LUNCH, REMOTE_DAY, OUT_WORKDAY = range(8)
OUT_FREE, SHIFT_TURN, CHILD_SCHOOL, ATTENDS, SHIFT_DAYS, N_TRAITS = range(8, 14)
MEMORY = 96  # places a person remembers at most
ROUTINES = 4
NOVELTY = 3.0  # how many visits the first one counts for: new favourites come about in normal lives

FREE_CHOICES = np.array([BUY, EAT, RECREATION, EXERCISE, VISIT, SERVICES, ERRANDS, HEALTH, WORSHIP])
_KNOWN_AT_FIRST = np.array([5, 5, 4, 2, 4, 2, 2, 1, 1])
#: Outings of free choice by role, one weight per activity of FREE_CHOICES.
CHOICE_WEIGHTS = np.array(
    [
        [30, 26, 14, 9, 10, 5, 3, 2, 1],  # office worker
        [34, 22, 12, 7, 12, 6, 3, 2, 2],  # shift worker
        [10, 12, 26, 26, 24, 1, 1, 0, 0],  # pupil
        [18, 26, 22, 14, 16, 2, 1, 1, 0],  # student
        [32, 14, 14, 9, 14, 6, 4, 5, 2],  # retiree
        [26, 26, 14, 11, 10, 6, 4, 2, 1],  # freelancer
        [38, 10, 12, 8, 14, 7, 6, 4, 1],  # carer
        [12, 32, 48, 3, 0, 2, 3, 0, 0],  # tourist
    ],
    dtype=np.float64,
)
LENGTH_MIN = np.array([34.0, 52.0, 105.0, 68.0, 125.0, 38.0, 20.0, 55.0, 80.0])


class Habits(NamedTuple):
    """One person, reused from person to person: kernels fill it."""

    traits: np.ndarray  # float64 [N_TRAITS]
    places: np.ndarray  # float64 [MEMORY, 3]: place, choice (row of FREE_CHOICES), visits
    routine: np.ndarray  # float64 [ROUTINES, 4]: weekdays (bits), second of the day, length in seconds, place
    sizes: np.ndarray  # int64 [2]: places known, weekly appointments


@njit(nogil=True, cache=True)
def near_place(world: World, activity: int, x: float, y: float, scale_km: float, state: np.ndarray) -> int:
    """A place for an activity at a random distance (a heavy-tailed scale) and direction; -1 where there is none."""
    scale = scale_km * 3.0 if uniform(state) < 0.12 else scale_km
    distance = -scale * np.log(1.0 - uniform(state))
    angle = 2.0 * np.pi * uniform(state)
    return nearest_place(world, activity, x + distance * np.cos(angle), y + distance * np.sin(angle))


@njit(nogil=True, cache=True)
def nearest_place(world: World, activity: int, x: float, y: float) -> int:
    """The place for an activity that is nearest to a point, by rings of index cells; -1 where there is none."""
    first = world.first[activity]
    if first[-1] == first[0]:
        return -1
    side = int(np.sqrt(len(first) - 1))
    column = min(max(int((x - world.corner[0]) / world.cell_km[0]), 0), side - 1)
    row = min(max(int((y - world.corner[1]) / world.cell_km[1]), 0), side - 1)
    best, best_distance, reach = -1, np.inf, min(world.cell_km[0], world.cell_km[1])
    for ring in range(side):
        if best >= 0 and best_distance <= (ring - 1) * reach:
            break
        for r in range(max(0, row - ring), min(side, row + ring + 1)):
            step = 1 if r == row - ring or r == row + ring else max(1, 2 * ring)
            for c in range(column - ring, column + ring + 1, step):
                if c < 0 or c >= side:
                    continue
                for at in range(first[r * side + c], first[r * side + c + 1]):
                    place = world.places[at]
                    distance = np.hypot(world.x[place] - x, world.y[place] - y)
                    if distance < best_distance:
                        best, best_distance = place, distance
    return best


@njit(nogil=True, cache=True)
def remember(habits: Habits, place: int, choice: int, visits: float) -> None:
    """Count a visit; a new place is liked more than one visit tells; a full memory takes no new places."""
    places, size = habits.places, habits.sizes[0]
    for i in range(size):
        if places[i, 0] == place and places[i, 1] == choice:
            places[i, 2] += visits
            return
    if size < MEMORY:
        places[size, 0], places[size, 1], places[size, 2] = place, choice, visits * NOVELTY
        habits.sizes[0] += 1


@njit(nogil=True, cache=True)
def first_places(world: World, home: int, scale_km: float, state: np.ndarray, habits: Habits) -> None:
    """The personal set of places a person starts with, visits by rank as Zipf has it."""
    habits.sizes[0] = 0
    for choice in range(len(FREE_CHOICES)):
        for rank in range(_KNOWN_AT_FIRST[choice]):
            place = near_place(world, FREE_CHOICES[choice], world.x[home], world.y[home], scale_km, state)
            if place >= 0 and place != home:
                remember(habits, place, choice, 4.0 / (rank + 1) ** 1.2)


@njit(nogil=True, cache=True)
def choose_place(
    world: World, habits: Habits, choice: int, centre: int, scale_km: float, explore: float, state: np.ndarray
) -> int:
    """Explore around the centre (now and then around the anchor) or return; -1 where the city has no such place."""
    places, total, count = habits.places, 0.0, 0
    for i in range(habits.sizes[0]):
        if places[i, 1] == choice:
            total += places[i, 2]
            count += 1
    if count == 0 or uniform(state) < explore * count**-0.21:
        anchor = int(habits.traits[ANCHOR])
        around = anchor if anchor >= 0 and uniform(state) < 0.3 else centre
        return near_place(world, FREE_CHOICES[choice], world.x[around], world.y[around], scale_km, state)
    left = uniform(state) * total
    for i in range(habits.sizes[0]):
        if places[i, 1] == choice:
            left -= places[i, 2]
            if left < 0:
                return int(places[i, 0])
    return -1


@njit(nogil=True, cache=True)
def make_traits(
    world: World, role: int, home: int, school: int, commute_km: float, state: np.ndarray, traits: np.ndarray
) -> None:
    """Fill a person's traits. Regularity runs from erratic (0) to clockwork (1)."""
    regular = np.sqrt(uniform(state)) if role != FREELANCER else 0.5 * uniform(state)
    traits[REGULARITY] = regular
    traits[SPREAD_S] = 60.0 * (4.0 + 62.0 * (1.0 - regular) ** 2)
    traits[ATTENDS] = 0.55 + 0.42 * regular
    traits[CHILD_SCHOOL] = _drop_off(world, home, school, state)
    traits[LUNCH] = 0.75 * uniform(state) ** 2
    traits[REMOTE_DAY] = below(state, 5) if uniform(state) < 0.22 else -1
    traits[SHIFT_TURN] = below(state, 6)
    traits[SHIFT_DAYS] = below(state, 7)
    traits[START_S] = 3600.0 * 7.9 + 2700.0 * normal(state)
    traits[LENGTH_S] = 3600.0 * min(max(8.3 + 0.7 * normal(state), 4.0), 11.0)
    traits[OUT_WORKDAY] = (0.25 + 0.7 * uniform(state)) * 0.75
    traits[OUT_FREE] = 0.7 + 1.0 * uniform(state)
    if role in (RETIREE, CARER):
        traits[OUT_WORKDAY] = 0.75 + 0.9 * uniform(state)
    elif role == TOURIST:
        traits[OUT_WORKDAY] = traits[OUT_FREE] = 2.6
    _make_anchor(world, role, home, school, commute_km, state, traits)


@njit(nogil=True, cache=True)
def _drop_off(world: World, home: int, school: int, state: np.ndarray) -> int:
    """Where a child is taken: to its school, or a smaller one to a kindergarten."""
    place = near_place(world, CHILDCARE, world.x[home], world.y[home], 0.4, state)
    return place if place >= 0 and uniform(state) < 0.35 else school


@njit(nogil=True, cache=True)
def _make_anchor(
    world: World, role: int, home: int, school: int, commute_km: float, state: np.ndarray, traits: np.ndarray
) -> None:
    x, y = world.x[home], world.y[home]
    traits[ANCHOR] = -1
    if role == PUPIL:
        traits[ANCHOR] = school
        traits[START_S], traits[LENGTH_S] = 3600.0 * 7.9, 3600.0 * 6.4
    elif role == STUDENT:
        traits[ANCHOR] = near_place(world, UNIVERSITY, x, y, commute_km, state)
        traits[START_S], traits[LENGTH_S] = 3600.0 * (8.4 + 2.0 * uniform(state)), 3600.0 * 5.5
    elif role in (OFFICE, SHIFT, FREELANCER):
        traits[ANCHOR] = near_place(world, WORK, x, y, commute_km, state)
        if role == FREELANCER:
            traits[START_S], traits[LENGTH_S] = 3600.0 * (8.4 + 2.0 * uniform(state)), 3600.0 * 6.0


@njit(nogil=True, cache=True)
def make_routine(habits: Habits, role: int, state: np.ndarray) -> None:
    """Weekly appointments: at a place of the personal set, on a weekday, at an hour."""
    habits.sizes[1] = 0
    for _ in range(int(1.0 + habits.traits[REGULARITY] * (ROUTINES - 1) + 0.5)):
        choice, place = draw_choice(role, state), -1
        for i in range(habits.sizes[0]):
            if habits.places[i, 1] == choice and (place < 0 or uniform(state) < 0.25):
                place = int(habits.places[i, 0])
        if place >= 0:
            _appoint(habits.routine[habits.sizes[1]], choice, place, 1, role, state)
            habits.sizes[1] += 1


@njit(nogil=True, cache=True)
def _appoint(row: np.ndarray, choice: int, place: int, times: int, role: int, state: np.ndarray) -> None:
    """An appointment on some weekdays, at one hour."""
    sunday, weekdays = FREE_CHOICES[choice] == WORSHIP, 0
    for _ in range(times):
        weekdays |= 1 << (6 if sunday else below(state, 7))
    hour = 17.1 + 1.5 * uniform(state) if weekdays < 32 else 9.5 + 5.0 * uniform(state)
    if role in (RETIREE, CARER):
        hour = 9.0 + 4.5 * uniform(state)
    row[0], row[1] = weekdays, (10.0 if sunday else hour) * 3600.0
    row[2], row[3] = LENGTH_MIN[choice] * 60.0, place


@njit(nogil=True, cache=True)
def take_up(world: World, habits: Habits, role: int, home: int, scale_km: float, state: np.ndarray) -> None:
    """A new interest at a new place takes the time of an old one: normal lives change, too."""
    choice = draw_choice(role, state)
    place = near_place(world, FREE_CHOICES[choice], world.x[home], world.y[home], scale_km, state)
    if place >= 0 and place != home:
        slot = below(state, ROUTINES)
        if slot >= habits.sizes[1]:
            slot = habits.sizes[1]
            habits.sizes[1] += 1
        _appoint(habits.routine[slot], choice, place, 1 + below(state, 3), role, state)


@njit(nogil=True, cache=True)
def draw_choice(role: int, state: np.ndarray) -> int:
    left = uniform(state) * CHOICE_WEIGHTS[role].sum()
    for choice in range(len(FREE_CHOICES)):
        left -= CHOICE_WEIGHTS[role, choice]
        if left < 0:
            return choice
    return 0


@njit(nogil=True, cache=True)
def school_of(world: World, home: int, state: np.ndarray) -> int:
    """The school of a household's children."""
    place = near_place(world, SCHOOL, world.x[home], world.y[home], 0.4, state)
    return place if place >= 0 else nearest_place(world, HOME, world.x[home], world.y[home])
