"""The loops behind habits, compiled: which own place a visit is at, and how it compares with earlier visits there.

Plain arrays in, plain arrays out. Places of entity e are `place_offsets[e] … place_offsets[e + 1]`, sorted by
key; visits to place p are `visit_offsets[p] … visit_offsets[p + 1]`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ustad.ties import ABSOLUTE, RELATIVE

DAY_MINUTES = 1440.0
#: Widths of the kernels around earlier visits: minutes of the day, and logarithm of minutes.
START_WIDTH, DURATION_WIDTH = 40.0, 0.3
#: How much an earlier visit counts on the other kind of day (weekday against weekend).
OTHER_DAY = 0.35
#: Visits that the population is worth where an entity's own history is thin.
POPULATION_VISITS = 2.0
#: Half hours of a day; how much another day of the same kind counts; how many half hours are one piece of evidence.
SLOTS, OTHER_WEEKDAY, SLOTS_OF_EVIDENCE = 48, 0.4, 8.0


@njit(nogil=True, cache=True)
def find_known(
    owner: np.ndarray, key: np.ndarray, place_offsets: np.ndarray, place_key: np.ndarray
) -> np.ndarray:  # pragma: no cover - compiled
    """The own place with each visit's key, -1 where there is none; owner -1 is an entity without history."""
    places = np.full(len(owner), -1, np.int64)
    for i in range(len(owner)):
        if owner[i] < 0 or key[i] == 0:
            continue
        low, high = place_offsets[owner[i]], place_offsets[owner[i] + 1]
        while low < high:
            middle = (low + high) // 2
            if place_key[middle] < key[i]:
                low = middle + 1
            else:
                high = middle
        if low < place_offsets[owner[i] + 1] and place_key[low] == key[i]:
            places[i] = low
    return places


@njit(nogil=True, cache=True)
def nearest_place(
    owner: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    place_offsets: np.ndarray,
    place_x: np.ndarray,
    place_y: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # pragma: no cover - compiled
    """Nearest own place of each visit and its distance in km; -1 and NaN where there is none."""
    place, distance = np.full(len(owner), -1, np.int64), np.full(len(owner), np.nan)
    for i in range(len(owner)):
        if owner[i] < 0 or np.isnan(x[i]) or np.isnan(y[i]):
            continue
        best = np.inf
        for p in range(place_offsets[owner[i]], place_offsets[owner[i] + 1]):
            square = (place_x[p] - x[i]) ** 2 + (place_y[p] - y[i]) ** 2
            if square < best - (RELATIVE * best + ABSOLUTE if best < np.inf else 0.0):  # of equal ones the first
                best, place[i] = square, p
        if place[i] >= 0:
            distance[i] = np.sqrt(best)
    return place, distance


@njit(nogil=True, cache=True)
def locate_one(
    key: int,
    x: float,
    y: float,
    place_key: np.ndarray,
    place_x: np.ndarray,
    place_y: np.ndarray,
    near: float,
    next_door: float,
) -> tuple[int, int]:  # pragma: no cover - compiled
    """Own place and key of one visit, given the places of its entity alone; -1 and its own key somewhere new.

    An unnamed visit (key 0) is at the own place within `near` km, a named one that is not known at one `next_door`.
    """
    owner, keys = np.zeros(1, np.int64), np.full(1, key, np.uint64)
    offsets = np.array([0, len(place_key)])
    place = find_known(owner, keys, offsets, place_key)[0]
    if place >= 0:
        return place, key
    nearest, distance = nearest_place(owner, np.full(1, x), np.full(1, y), offsets, place_x, place_y)
    if nearest[0] >= 0 and distance[0] <= (near if key == 0 else next_door):
        return nearest[0], place_key[nearest[0]]
    return -1, key


@njit(nogil=True, cache=True)
def lead(
    entity: np.ndarray, mask: np.ndarray, x: np.ndarray, y: np.ndarray, radius: float
) -> np.ndarray:  # pragma: no cover - compiled
    """For each wanted visit the earlier visit of the same entity that leads its cluster, or itself: int64 [N].

    A visit joins the nearest leader within `radius` km, else it becomes one. Looks backwards only, so what
    comes later never changes it.
    """
    leader = np.full(len(entity), -1, np.int64)
    first = 0
    leaders = np.empty(len(entity), np.int64)
    count = 0
    for i in range(len(entity)):
        if i > 0 and entity[i] != entity[i - 1]:
            first, count = i, 0
        if not mask[i]:
            continue
        best, leading = radius * radius, i
        for k in range(count):
            j = leaders[first + k]
            square = (x[j] - x[i]) ** 2 + (y[j] - y[i]) ** 2
            if square <= best + RELATIVE * best + ABSOLUTE:  # of equal ones the last
                best, leading = square, j
        leader[i] = leading
        if leading == i:
            leaders[first + count] = i
            count += 1
    return leader


@njit(nogil=True, cache=True)
def count_so_far(entity: np.ndarray, key: np.ndarray) -> np.ndarray:  # pragma: no cover - compiled
    """How many visits of the same entity to the same place came up to each visit, itself included: int64 [N].

    Visits are sorted by entity and time.
    """
    order = np.argsort(key, kind="mergesort")
    counts = np.empty(len(entity), np.int64)
    run = 0
    for k in range(len(order)):
        i = order[k]
        same = k > 0 and key[order[k - 1]] == key[i] and entity[order[k - 1]] == entity[i]
        run = run + 1 if same else 1
        counts[i] = run
    return counts


@njit(nogil=True, cache=True)
def apart(first: float, second: float) -> float:  # pragma: no cover - compiled
    """Minutes between two times of day, the short way round."""
    difference = abs(first - second) % DAY_MINUTES
    return min(difference, DAY_MINUTES - difference)


@njit(nogil=True, cache=True)
def bell(difference: float, width: float) -> float:  # pragma: no cover - compiled
    """A Gaussian kernel that is 1 at 0."""
    ratio = difference / width
    return 0.0 if ratio > 6.0 else np.exp(-0.5 * ratio * ratio)


@njit(nogil=True, cache=True)
def times_at_place(
    place: np.ndarray,
    minute: np.ndarray,
    log_duration: np.ndarray,
    weekend: np.ndarray,
    population_start: np.ndarray,
    population_duration: np.ndarray,
    visit_offsets: np.ndarray,
    visit_minute: np.ndarray,
    visit_log_duration: np.ndarray,
    visit_weekend: np.ndarray,
    start_weight: np.ndarray,
    length_weight: np.ndarray,
) -> np.ndarray:  # pragma: no cover - compiled
    """-log of start density and of duration density given the start: float64 [N, 2].

    Kernels around the entity's own visits to the place, smoothed towards the population's values (already looked
    up per visit). Earlier visits count by how well their start and their length were observed (`start_weight`,
    `length_weight` [V]). Densities are per minute of the day and per unit of log(1 + minutes).
    """
    result = np.empty((len(place), 2))
    start_norm = 1.0 / (START_WIDTH * np.sqrt(2 * np.pi))
    duration_norm = 1.0 / (DURATION_WIDTH * np.sqrt(2 * np.pi))
    for i in range(len(place)):
        total = start_mass = length_mass = weight_known = 0.0
        if place[i] >= 0:
            for v in range(visit_offsets[place[i]], visit_offsets[place[i] + 1]):
                day = 1.0 if visit_weekend[v] == weekend[i] else OTHER_DAY
                near = day * bell(apart(visit_minute[v], minute[i]), START_WIDTH)
                total += day * start_weight[v]
                start_mass += near * start_weight[v]
                gap = log_duration[i] - visit_log_duration[v]
                if near > 0.0 and not np.isnan(gap):
                    near *= length_weight[v]
                    weight_known += near
                    length_mass += near * bell(abs(gap), DURATION_WIDTH)
        prior = POPULATION_VISITS
        start = (start_mass * start_norm + prior * population_start[i]) / (total + prior)
        duration = (length_mass * duration_norm + prior * population_duration[i]) / (weight_known + prior)
        result[i, 0] = -np.log(max(start, 1e-12))
        result[i, 1] = -np.log(max(duration, 1e-12))
    return result


@njit(nogil=True, cache=True)
def ends_at_place(
    place: np.ndarray,
    end: np.ndarray,
    weekend: np.ndarray,
    population: np.ndarray,
    visit_offsets: np.ndarray,
    visit_end: np.ndarray,
    visit_end_weekend: np.ndarray,
    length_weight: np.ndarray,
) -> np.ndarray:  # pragma: no cover - compiled
    """-log of the density of the minute of the day at which a visit ends: float64 [N], NaN somewhere new or without.

    As starts in `times_at_place`: kernels around the ends (`visit_end` [V], NaN where unknown) of the entity's own
    visits to the place, by the kind of the day that they end on, smoothed towards the `population`'s value.
    """
    result = np.full(len(place), np.nan)
    norm = 1.0 / (START_WIDTH * np.sqrt(2 * np.pi))
    for i in range(len(place)):
        if place[i] < 0 or np.isnan(end[i]):
            continue
        total = mass = 0.0
        for v in range(visit_offsets[place[i]], visit_offsets[place[i] + 1]):
            if np.isnan(visit_end[v]):
                continue
            weight = (1.0 if visit_end_weekend[v] == weekend[i] else OTHER_DAY) * length_weight[v]
            total += weight
            mass += weight * bell(apart(visit_end[v], end[i]), START_WIDTH)
        density = (mass * norm + POPULATION_VISITS * population[i]) / (total + POPULATION_VISITS)
        result[i] = -np.log(max(density, 1e-12))
    return result


@njit(nogil=True, cache=True)
def presence(
    place: np.ndarray,
    minute: np.ndarray,
    duration: np.ndarray,
    weekday: np.ndarray,
    hidden: np.ndarray,
    place_since: np.ndarray,
    last_day: int,
    visit_offsets: np.ndarray,
    visit_minute: np.ndarray,
    visit_duration: np.ndarray,
    visit_weekday: np.ndarray,
) -> np.ndarray:  # pragma: no cover - compiled
    """How unlikely it is to be at this own place all through the visit: float64 [N], NaN somewhere new.

    For each half hour of the visit, -log of the share of days on which the entity was there at that time (the same
    weekday counts 1, other days of its kind OTHER_WEEKDAY), out of the days from the place's `place_since` [P] to the
    history's `last_day`. Half hours in a row are no separate evidence: four hours of them count as one. The most
    unlikely ones are left out for as many minutes as the entity may have been elsewhere unseen (`hidden` [N]).
    """
    result = np.full(len(place), np.nan)
    there = np.zeros((7, SLOTS))
    for i in range(len(place)):
        if place[i] < 0 or np.isnan(duration[i]):
            continue
        there[:] = 0.0
        days = days_by_weekday(place_since[place[i]], last_day)
        for v in range(visit_offsets[place[i]], visit_offsets[place[i] + 1]):
            if not np.isnan(visit_duration[v]):
                first, last = slots_of(visit_minute[v], visit_duration[v])
                for slot in range(first, last):
                    there[(visit_weekday[v] + slot // SLOTS) % 7, slot % SLOTS] += 1.0
        first, last = slots_of(minute[i], duration[i])
        unlikely = np.empty(last - first)
        for slot in range(first, last):
            unlikely[slot - first] = -np.log(
                share_of_days(there, days, (weekday[i] + slot // SLOTS) % 7, slot % SLOTS, np.inf)
            )
        if hidden[i] > 0.0:
            unlikely = np.sort(unlikely)[: max(0, last - first - int(np.ceil(hidden[i] * SLOTS / DAY_MINUTES)))]
        total = 0.0
        for value in unlikely:
            total += value
        result[i] = total / SLOTS_OF_EVIDENCE
    return result


@njit(nogil=True, cache=True)
def days_by_weekday(first: int, last: int) -> np.ndarray:  # pragma: no cover - compiled
    """How many of the days from first to last (since 1970-01-01) fall on each weekday, Monday first: float64 [7]."""
    days = np.full(7, float((last - first + 1) // 7))
    for day in range(last - (last - first + 1) % 7 + 1, last + 1):
        days[(day + 3) % 7] += 1.0
    return days


@njit(nogil=True, cache=True)
def day_kind(day: int, days_off: np.ndarray) -> int:  # pragma: no cover - compiled
    """The weekday of a local date, 0 is Monday; one of the `days_off` (ascending) is a Sunday."""
    if len(days_off):
        at = np.searchsorted(days_off, day)
        if at < len(days_off) and days_off[at] == day:
            return 6
    return (day + 3) % 7


@njit(nogil=True, cache=True)
def days_by_kind(first: int, last: int, days_off: np.ndarray) -> np.ndarray:  # pragma: no cover - compiled
    """As `days_by_weekday`, but days off are Sundays: float64 [7]."""
    days = days_by_weekday(first, last)
    for day in days_off:
        if first <= day <= last:
            days[(day + 3) % 7] -= 1.0
            days[6] += 1.0
    return days


@njit(nogil=True, cache=True)
def slots_of(minute: float, duration: float) -> tuple[int, int]:  # pragma: no cover - compiled
    """Half hours from start to end, at most two days of them."""
    first = int(minute * SLOTS / DAY_MINUTES)
    last = int((minute + min(max(duration, 0.0), 2 * DAY_MINUTES)) * SLOTS / DAY_MINUTES)
    return first, max(last, first + 1)


@njit(nogil=True, cache=True)
def share_of_days(
    there: np.ndarray, days: np.ndarray, weekday: int, slot: int, most_days: float
) -> float:  # pragma: no cover - compiled
    """Smoothed share of days on which the entity was there in this half hour, as of at most so many days."""
    present = possible = 0.0
    for other in range(7):
        if (other >= 5) == (weekday >= 5):
            weight = 1.0 if other == weekday else OTHER_WEEKDAY
            present += weight * min(there[other, slot], days[other])
            possible += weight * days[other]
    shrink = most_days / possible if possible > most_days else 1.0
    return (shrink * present + 0.5) / (shrink * possible + 1.0)
