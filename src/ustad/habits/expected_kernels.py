"""Visits that an entity's history makes nearly certain, and whether they came: the loops, compiled.

Plain arrays in, plain arrays out, laid out as in `habits.kernels`: places of entity e are `place_offsets[e] …
place_offsets[e + 1]`, visits to place p are `visit_offsets[p] … visit_offsets[p + 1]`. Times are minutes, and half
hours (slots), of the local clock since 1970-01-01.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ustad.habits.kernels import DAY_MINUTES, OTHER_WEEKDAY, SLOTS, SLOTS_OF_EVIDENCE, day_kind, days_by_kind

HALF_HOUR = DAY_MINUTES / SLOTS
#: A visit is nearly certain where the entity is at the place at about that time on this share of days …
NEARLY_CERTAIN = 0.8
#: … of at least so many.
LEAST_DAYS = 3.0
#: About that time: so many half hours before or after.
ABOUT = 2
#: More days like this one than that make no surer: lives change, and a longer history must not look like another one.
MOST_DAYS = 10.0
#: Time between two events is time on the way up to this length, minutes; after that nobody knows.
MOST_WAY = 180.0
#: An end that was not observed for longer leaves the time next to it unknown, minutes.
UNSEEN = 30.0
#: A visit that may have come in this share of its time, unseen, is not judged.
MOST_UNSEEN = 0.25
#: The longest time that one visit is expected for, and the half hour of the day at which an endless one is cut: noon.
LONGEST, CUT = SLOTS, SLOTS // 2
#: Time after an event's predecessor that is looked through at most, slots.
MOST_SLOTS = 60 * SLOTS


@njit(nogil=True, cache=True)
def usual_presence(
    first: int,
    last: int,
    last_day: int,
    place_since: np.ndarray,
    known_since: np.ndarray,
    visit_offsets: np.ndarray,
    visit_begin: np.ndarray,
    visit_duration: np.ndarray,
    days_off: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # pragma: no cover - compiled
    """Of the places `first` to `last` those with a nearly certain visit (int64 [C]), on how many days of each kind the
    entity is there at about each half hour (float64 [C, 7, SLOTS]), of how many days (float64 [C, 7]), and -log of the
    chance not to be there where being there is nearly certain, else 0 (float64 [C, 7, SLOTS])."""
    places = np.empty(last - first, np.int64)
    there, days = np.zeros((last - first, 7, SLOTS)), np.zeros((last - first, 7))
    surprise = np.zeros((last - first, 7, SLOTS))
    count = 0
    for p in range(first, last):
        if visit_offsets[p + 1] - visit_offsets[p] < LEAST_DAYS:
            continue
        there[count] = 0.0
        days[count] = days_by_kind(max(place_since[p], known_since[p]), last_day, days_off)
        next_slot = -(1 << 60)  # each day counts once in a half hour, however many visits it has
        for v in range(visit_offsets[p], visit_offsets[p + 1]):
            if np.isnan(visit_duration[v]):
                continue
            begin = max(slot_of(visit_begin[v]) - ABOUT, next_slot)
            stop = -slot_of(-visit_begin[v] - visit_duration[v])
            next_slot = max(next_slot, min(stop, begin + 2 * SLOTS) + ABOUT)
            for slot in range(begin, next_slot):
                there[count, day_kind(slot // SLOTS, days_off), slot % SLOTS] += 1.0
        if _fill_surprise(there[count], days[count], surprise[count]):
            places[count] = p
            count += 1
    return places[:count], there[:count], days[:count], surprise[:count]


@njit(nogil=True, cache=True)
def slot_of(minute: float) -> int:  # pragma: no cover - compiled
    """The half hour of a moment; moments that differ in their last bits are in the same one."""
    return int(np.floor((minute + 1e-6) / HALF_HOUR))


@njit(nogil=True, cache=True)
def _fill_surprise(there: np.ndarray, days: np.ndarray, surprise: np.ndarray) -> bool:  # pragma: no cover - compiled
    """Whether any half hour is nearly certain; the same weekday counts 1, others of its kind OTHER_WEEKDAY."""
    is_any = False
    surprise[:] = 0.0
    for weekday in range(7):
        for slot in range(SLOTS):
            present = possible = day_count = 0.0
            for other in range(7):
                if (other >= 5) == (weekday >= 5):
                    weight = 1.0 if other == weekday else OTHER_WEEKDAY
                    present += weight * min(there[other, slot], days[other])
                    possible += weight * days[other]
                    day_count += days[other]
            if day_count >= LEAST_DAYS and present >= (NEARLY_CERTAIN - 1e-9) * possible:
                shrink = min(1.0, MOST_DAYS / possible)
                surprise[weekday, slot] = -np.log((shrink * (possible - present) + 0.5) / (shrink * possible + 1.0))
                is_any = True
    return is_any


@njit(nogil=True, cache=True)
def judge_expected(
    owner: np.ndarray,
    key: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    early: np.ndarray,
    late: np.ndarray,
    hidden: np.ndarray,
    closes: np.ndarray,
    last_day: int,
    place_offsets: np.ndarray,
    place_key: np.ndarray,
    place_since: np.ndarray,
    known_since: np.ndarray,
    visit_offsets: np.ndarray,
    visit_begin: np.ndarray,
    visit_duration: np.ndarray,
    days_off: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # pragma: no cover - compiled
    """Every nearly certain visit whose time has passed by the end of an event that `closes` (bool [N]), M in all.

    Events are sorted by owner and time. Out come int64 [M, 6]: the event that closed it, the event that took its place
    (-1 where it came), the place, its first half hour and the one after its last, and the surest one; and float64
    [M, 3]: how surprising it is that it did not come (0 where it came), on how many days like this the entity was
    there at about the surest half hour, of how many.
    """
    rows, facts, count = np.empty((64, 6), np.int64), np.empty((64, 3)), 0
    latest, first_event = -1, 0
    places, there = np.zeros(0, np.int64), np.zeros((0, 7, SLOTS))
    days, surprise = np.zeros((0, 7)), np.zeros((0, 7, SLOTS))
    known_until = 0.0
    for i in range(len(owner)):
        if i == 0 or owner[i] != owner[i - 1]:
            first_event, known_until = i, begin[i]
        from_slot = slot_of(known_until) - ABOUT
        known_until = max(known_until, end[i])
        to_slot = slot_of(known_until) - ABOUT
        if not closes[i] or owner[i] < 0:
            continue
        if owner[i] != latest:
            latest = owner[i]
            places, there, days, surprise = usual_presence(
                place_offsets[latest], place_offsets[latest + 1], last_day, place_since, known_since, visit_offsets,
                visit_begin, visit_duration, days_off,
            )  # fmt: skip
        for c in range(len(places)):
            for stop in range(max(from_slot, to_slot - MOST_SLOTS) + 1, to_slot + 1):
                start = _run_start(surprise[c], stop, days_off)
                if start == stop:
                    continue
                event, surest, value = _look(
                    i, first_event, place_key[places[c]], start, stop, surprise[c], key, begin, end, early, late,
                    hidden, days_off,
                )  # fmt: skip
                if np.isnan(value):
                    continue
                if count == len(rows):
                    rows, facts = np.concatenate((rows, rows)), np.concatenate((facts, facts))
                rows[count] = (i, event, places[c], start, stop, surest)
                kind, present, possible = day_kind(surest // SLOTS, days_off), 0.0, 0.0
                for other in range(7):
                    if (other >= 5) == (kind >= 5):
                        present += min(there[c, other, surest % SLOTS], days[c, other])
                        possible += days[c, other]
                facts[count] = (value, present, possible)
                count += 1
    return rows[:count], facts[:count]


@njit(nogil=True, cache=True)
def ends_certain_time(
    surprise: np.ndarray, known_until: float, end: float, days_off: np.ndarray
) -> bool:  # pragma: no cover - compiled
    """Whether `judge_expected` would look at anything when an event ends at `end` (minutes) and those before it by
    `known_until`; `surprise` [C, 7, SLOTS] is that of `usual_presence`."""
    from_slot, to_slot = slot_of(known_until) - ABOUT, slot_of(max(known_until, end)) - ABOUT
    for c in range(len(surprise)):
        for stop in range(max(from_slot, to_slot - MOST_SLOTS) + 1, to_slot + 1):
            if _run_start(surprise[c], stop, days_off) != stop:
                return True
    return False


@njit(nogil=True, cache=True)
def _run_start(surprise: np.ndarray, stop: int, days_off: np.ndarray) -> int:  # pragma: no cover - compiled
    """Where the nearly certain time that ends before the half hour `stop` begins; `stop` where none ends there."""
    if _at(surprise, stop - 1, days_off) <= 0.0:
        return stop
    goes_on = _at(surprise, stop, days_off) > 0.0
    if goes_on and stop % SLOTS != CUT:
        return stop
    start = stop - 1
    while start > stop - LONGEST and _at(surprise, start - 1, days_off) > 0.0:
        start -= 1
    return stop if goes_on and start > stop - LONGEST else start


@njit(nogil=True, cache=True)
def _at(surprise: np.ndarray, slot: int, days_off: np.ndarray) -> float:  # pragma: no cover - compiled
    return surprise[day_kind(slot // SLOTS, days_off), slot % SLOTS]


@njit(nogil=True, cache=True)
def _look(
    i: int,
    first_event: int,
    place: np.uint64,
    start: int,
    stop: int,
    surprise: np.ndarray,
    key: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    early: np.ndarray,
    late: np.ndarray,
    hidden: np.ndarray,
    days_off: np.ndarray,
) -> tuple[int, int, float]:  # pragma: no cover - compiled
    """Of the time from `start` to `stop`: the event that took the place of the visit, the surest half hour, and how
    surprising that is: 0 (and the event -1) where the visit came, NaN where too little was seen."""
    from_minute, to_minute = (start - ABOUT) * HALF_HOUR, (stop + ABOUT) * HALF_HOUR
    came, unseen, j = False, 0.0, i
    while j >= first_event and end[j] > from_minute - DAY_MINUTES:
        overlap = min(end[j], to_minute) - max(begin[j], from_minute)
        if overlap > 0.0 or (overlap >= 0.0 and begin[j] == end[j]):
            unseen += min(hidden[j], overlap) / HALF_HOUR
        if key[j] == place and begin[j] - early[j] < to_minute and end[j] + late[j] > from_minute:
            came = True
        j -= 1
    total, most, event, surest, at = 0.0, -1.0, -1, start, i
    for slot in range(stop - 1, start - 1, -1):
        minute = (slot + 0.5) * HALF_HOUR
        while at >= first_event and begin[at] > minute:
            at -= 1
        value = _at(surprise, slot, days_off)
        if at >= first_event and end[at] > minute:
            total += value
            middle = abs(2 * slot - start - stop + 1) < abs(2 * surest - start - stop + 1)
            if value > most + 1e-9 or (value > most - 1e-9 and middle):  # of equally sure ones that in the middle
                most, event, surest = max(value, most), at, slot
        elif _is_way(at, first_event, i, begin, end, early, late):
            total += value
        else:
            unseen += 1.0
    if unseen > MOST_UNSEEN * (stop - start) or event < 0:
        return -1, surest, np.nan
    if came:
        return -1, surest, 0.0
    return event, surest, max(total - np.ceil(unseen) * most, 1e-9) / SLOTS_OF_EVIDENCE


@njit(nogil=True, cache=True)
def _is_way(
    at: int, first: int, last: int, begin: np.ndarray, end: np.ndarray, early: np.ndarray, late: np.ndarray
) -> bool:  # pragma: no cover - compiled
    """Whether the time after an event is the way to the next one, not a time that nobody saw."""
    if at < first or at + 1 > last:
        return False
    return late[at] <= UNSEEN and early[at + 1] <= UNSEEN and begin[at + 1] - end[at] <= MOST_WAY
