"""How sure history was that an entity is somewhere else than it is, compiled: half hour by half hour of a visit.

Plain arrays in, plain arrays out, laid out as in `habits.kernels`: places of entity e are `place_offsets[e] …
place_offsets[e + 1]`, visits to place p are `visit_offsets[p] … visit_offsets[p + 1]`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ustad.habits.kernels import DAY_MINUTES, SLOTS, SLOTS_OF_EVIDENCE, day_kind, days_by_kind, share_of_days, slots_of

#: More days like this one than that make no surer: lives change, and a longer history must not look like another one.
MOST_DAYS = 3.0


@njit(nogil=True, cache=True)
def expected_elsewhere(
    last_day: int,
    owner: np.ndarray,
    place: np.ndarray,
    minute: np.ndarray,
    duration: np.ndarray,
    kinds: np.ndarray,
    hidden: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    reach: np.ndarray,
    place_offsets: np.ndarray,
    place_x: np.ndarray,
    place_y: np.ndarray,
    place_count: np.ndarray,
    place_since: np.ndarray,
    known_since: np.ndarray,
    visit_offsets: np.ndarray,
    visit_minute: np.ndarray,
    visit_duration: np.ndarray,
    visit_day: np.ndarray,
    days_off: np.ndarray,
) -> np.ndarray:  # pragma: no cover - compiled
    """log of how much likelier the likeliest place was than this one, added up over a day of the visit: float64 [N].

    For each half hour the chance of a place is the smoothed share of days on which the entity was there at that time
    (the same weekday counts 1, other days of its kind OTHER_WEEKDAY; `kinds` [N, 4] are the weekdays of the visit's
    first days; one of the `days_off` is a Sunday), of the days from `place_since` [P] to `last_day`;
    that of a new place is the share of days since `known_since` [P] at places seen only once. Four hours are one piece
    of evidence. Of a longer visit the day that says most counts: who did not go out yesterday is expected out less
    today. The half hours that say most are left out for as many minutes as the entity may have been elsewhere unseen
    (`hidden` [N]). Own places within the `reach` [N] of a visit, km, are as good as its own: a phone that was silent
    may have been at any of them. NaN without history or without a duration.
    """
    result = np.full(len(place), np.nan)
    latest = -1
    there, new, days = np.zeros((0, 7, SLOTS)), np.zeros((7, SLOTS)), np.zeros((0, 7))
    for i in range(len(place)):
        if owner[i] < 0 or np.isnan(duration[i]) or place_offsets[owner[i]] == place_offsets[owner[i] + 1]:
            continue
        first, last = place_offsets[owner[i]], place_offsets[owner[i] + 1]
        if owner[i] != latest:  # rows of one entity stand together and share the work
            latest = owner[i]
            there, new, days = np.zeros((last - first, 7, SLOTS)), np.zeros((7, SLOTS)), np.zeros((last - first + 1, 7))
            days[last - first] = days_by_kind(known_since[first], last_day, days_off)
            for p in range(first, last):
                days[p - first] = days_by_kind(max(place_since[p], known_since[p]), last_day, days_off)
                for v in range(visit_offsets[p], visit_offsets[p + 1]):
                    if np.isnan(visit_duration[v]):
                        continue
                    begin, end = slots_of(visit_minute[v], visit_duration[v])
                    for slot in range(begin, end):
                        day = day_kind(visit_day[v] + slot // SLOTS, days_off)
                        there[p - first, day, slot % SLOTS] += 1.0
                        if place_count[p] == 1:
                            new[day, slot % SLOTS] += 1.0
        begin, end = slots_of(minute[i], duration[i])
        surer = np.empty(end - begin)
        for slot in range(begin, end):
            day, hour = kinds[i, slot // SLOTS], slot % SLOTS
            if place[i] >= 0:
                here = share_of_days(there[place[i] - first], days[place[i] - first], day, hour, MOST_DAYS)
            else:
                here = share_of_days(new, days[last - first], day, hour, MOST_DAYS)
            best = here
            for p in range(last - first):
                share = share_of_days(there[p], days[p], day, hour, MOST_DAYS)
                best = max(best, share)
                if reach[i] > 0 and np.hypot(place_x[first + p] - x[i], place_y[first + p] - y[i]) <= reach[i]:
                    here = max(here, share)
            surer[slot - begin] = np.log(best / here)
        for _ in range(min(end - begin, int(np.ceil(hidden[i] * SLOTS / DAY_MINUTES)))):
            surer[np.argmax(surer)] = 0.0
        result[i] = _most_in_a_day(surer) / SLOTS_OF_EVIDENCE
    return result


@njit(nogil=True, cache=True)
def _most_in_a_day(surer: np.ndarray) -> float:  # pragma: no cover - compiled
    """The largest sum over half hours in a row that make no more than a day."""
    total = most = 0.0
    for slot in range(len(surer)):
        total += surer[slot]
        if slot >= SLOTS:
            total -= surer[slot - SLOTS]
        most = max(most, total)
    return most
