"""Kinds of the second red team that go where the person does not belong.

Each takes a person, a size in the unit of its kind and a generator, and returns the new
diary with the arrivals that were meant, or None where the life leaves no room.
"""

from __future__ import annotations

import numpy as np

from ustad.lab.red_team.second_edits import add_stop, change_place, find_row, find_stay_over, repeat, step_out
from ustad.lab.red_team.second_people import (
    Person,
    find_errands,
    find_nights,
    find_stops_on_the_way,
    find_usual_link,
    one_a_day,
    unknown_places,
    usual_places,
)
from ustad.lab.red_team.second_times import draw_count
from ustad.simulate.edits import Diary, Edit

LOOK_S, STOP_S, WATCH_S = 720, 420, 1200  # how long a scout looks, a stop lasts, a shadow stays
DETOURS, SUBSTITUTES, CIRCLES = 4, 4, 10  # occasions at most
TOLERANCE = 0.25  # metres may differ from the size by this share
NEAR_KM, FAR_KM = 0.5, 3.0  # a scouted place lies that far from where the person usually is
LONGEST_TRIP_S = 45 * 60  # nobody follows anybody farther away than this


def scout(person: Person, visits: float, rng: np.random.Generator) -> Edit:
    """Short visits to one unknown place on different days, each on the way between two usual stays."""
    diary, count = person.normal, draw_count(visits, rng)
    unknown = unknown_places(person.around, diary)
    away = person.around.km_from(usual_places(diary))[unknown]
    near = unknown[(away >= NEAR_KM) & (away <= FAR_KM)]
    near = near if len(near) else unknown[np.argsort(away, kind="stable")[:20]]
    if not len(near):
        return None
    place, early = int(rng.choice(near)), bool(rng.random() < 0.5)
    occasions = find_stops_on_the_way(person.around, diary, place, rng).values()
    return repeat(diary, occasions, count, lambda d, k: add_stop(d, k, place, LOOK_S, early=early))


def make_detour(person: Person, metres: float, rng: np.random.Generator) -> Edit:
    """A stop of seven minutes on the most frequent trip, at an unknown place that makes the way longer by the size."""
    diary, around = person.normal, person.around
    trips = find_usual_link(diary)
    k = find_row(diary, trips[0]) if trips else None
    if k is None:
        return None
    unknown = unknown_places(around, diary)
    extra = around.extra_km(int(diary.place[k]), int(diary.place[k + 1]), unknown)
    place = _closest(unknown, extra, metres / 1000)
    occasions = one_a_day(trips, rng)
    if place is None:
        return None
    return repeat(diary, occasions, DETOURS, lambda d, k: add_stop(d, k, place, STOP_S, early=True))


def _closest(places: np.ndarray, values: np.ndarray, target: float) -> int | None:
    """The place whose value is closest to the wanted one; None where it is too far from what was asked for."""
    if not len(places):
        return None
    error = np.abs(values - target)
    best = int(np.argmin(error))
    return int(places[best]) if error[best] <= TOLERANCE * target else None


def substitute(person: Person, metres: float, rng: np.random.Generator) -> Edit:
    """Up to four errands happen at an unknown place of the same category that far from the usual one."""
    diary, around = person.normal, person.around
    unknown = unknown_places(around, diary)

    def edit(d: Diary, k: int) -> Edit:
        usual = int(d.place[k])
        alike = unknown[around.category[unknown] == around.category[usual]]
        place = _closest(alike, around.km(usual, alike), metres / 1000)
        return change_place(d, k, place) if place is not None else None

    return repeat(diary, one_a_day(find_errands(person, diary), rng), SUBSTITUTES, edit)


def widen_circle(person: Person, metres: float, rng: np.random.Generator) -> Edit:
    """Errand by errand the places lie farther from home than the usual ones; the last of up to ten by the size."""
    diary, around = person.normal, person.around
    unknown = unknown_places(around, diary)
    errands = find_errands(person, diary)
    if len(errands) > CIRCLES:
        errands = [errands[k] for k in sorted(rng.choice(len(errands), CIRCLES, replace=False))]
    steps = {row: metres / 1000 * (n + 1) / len(errands) for n, row in enumerate(errands)}

    def edit(d: Diary, k: int) -> Edit:
        usual, step = int(d.place[k]), steps[d.row(k)]
        alike = unknown[around.category[unknown] == around.category[usual]]
        error = np.abs(around.km(person.home, alike) - around.km(person.home, usual) - step)
        fitting = alike[error <= TOLERANCE * step]
        if not len(fitting):
            return None
        return change_place(d, k, int(fitting[np.argmin(around.km(usual, fitting))]))  # in about the same direction

    return repeat(diary, [[row] for row in errands], CIRCLES, edit)


def sleep_elsewhere(person: Person, nights: float, rng: np.random.Generator) -> Edit:
    """Nights at one other person's home."""
    diary, around, count = person.normal, person.around, draw_count(nights, rng)
    beds = np.setdiff1d(around.home, usual_places(diary))
    if not len(beds):
        return None
    away = around.km(person.home, beds)
    near = beds[(away >= 1.0) & (away <= 15.0)]
    place = int(rng.choice(near if len(near) else beds[np.argsort(away, kind="stable")[:20]]))
    return repeat(diary, one_a_day(find_nights(person, diary), rng), count, lambda d, k: change_place(d, k, place))


def shadow(person: Person, visits: float, rng: np.random.Generator) -> Edit:
    """Twenty minutes where one stranger from the neighbourhood is at that moment, on different days."""
    diary, around, count = person.normal, person.around, draw_count(visits, rng)
    strangers = np.setdiff1d(np.arange(len(around.home)), around.offenders)
    strangers = strangers[around.home[strangers] != person.home]
    away = around.km(person.home, around.home[strangers])
    near = strangers[np.argsort(away, kind="stable")[:50]]
    for stranger in rng.permutation(near)[:5]:
        edit = _follow(person, diary, int(stranger), count, rng=rng)
        if edit is not None:
            return edit
    return None


def _follow(person: Person, diary: Diary, stranger: int, count: int, *, rng: np.random.Generator) -> Edit:
    other = person.around.life(stranger)
    usual = set(usual_places(diary).tolist()) | {int(person.around.home[stranger])}
    rows = [other.row(int(k)) for k in np.flatnonzero(other.free & (other.departure - other.arrival >= 2 * WATCH_S))]
    on_purpose: list[int] = []
    for day in one_a_day([row for row in rows if row[0] not in usual], rng):
        for place, start, end in day:
            if len(on_purpose) >= count:
                break
            at = start + int((end - start - WATCH_S) * 0.5)
            k = find_stay_over(diary, at, at + WATCH_S)
            if k is None or diary.travel(int(diary.place[k]), place, at) > LONGEST_TRIP_S:
                continue
            edit = step_out(diary, k, place, at, length=WATCH_S)
            if edit is not None:
                diary, on_purpose = edit[0], on_purpose + edit[1]
                break
    return (diary, on_purpose) if on_purpose else None
