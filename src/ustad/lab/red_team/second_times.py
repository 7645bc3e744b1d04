"""Kinds of the second red team that change when things happen, or whether they do; places are the person's own.

Each takes a person, a size in the unit of its kind and a generator, and returns the new diary with the arrivals that
were meant, or None where the life leaves no room. What is drawn does not depend on the size.
"""

from __future__ import annotations

import numpy as np

from ustad.lab.red_team.second_edits import (
    DAY,
    arrive_later,
    drop_rows,
    find_row,
    find_stay_over,
    keep_hours,
    repeat,
    start_at,
    stay_until,
    step_out,
)
from ustad.lab.red_team.second_people import (
    Person,
    find_errands,
    find_main_stays,
    find_tours,
    find_usual_link,
    one_a_day,
)
from ustad.simulate.edits import Diary, Edit, Row

LINGERS, CREEPS, DRIVES = 5, 10, 5  # occasions at most
SHORTEST_MOVED = 1200
NEAREST_DAYS = (1, 2, 3)


def draw_count(size: float, rng: np.random.Generator) -> int:
    """A whole number whose mean is the size: 2.5 becomes 2 or 3."""
    return int(np.floor(size + rng.random()))


def linger(person: Person, minutes: float, rng: np.random.Generator) -> Edit:
    """At the errand visited most, each of up to five visits lasts longer by the size."""
    diary = person.normal
    errands = find_errands(person, diary)
    if not errands:
        return None
    places, visits = np.unique([row[0] for row in errands], return_counts=True)
    favourite = int(places[np.argmax(visits)])
    occasions = one_a_day([row for row in errands if row[0] == favourite], rng)
    seconds = round(minutes * 60)
    return repeat(diary, occasions, LINGERS, lambda d, k: stay_until(d, k, int(d.departure[k]) + seconds))


def creep_start(person: Person, minutes: float, rng: np.random.Generator) -> Edit:
    """Work begins a little later, or earlier, every day; on the last of up to ten days by the size."""
    diary, sign = person.normal, 1 if rng.random() < 0.5 else -1
    days = find_main_stays(person, diary)
    days = days[int(rng.integers(0, max(1, len(days) - CREEPS + 1))) :][:CREEPS]
    shifts = {row: sign * round(minutes * 60 * (n + 1) / len(days)) for n, row in enumerate(days)}

    def edit(d: Diary, k: int) -> Edit:
        row = d.row(k)
        return start_at(d, k, row[1] + shifts[row])

    return repeat(diary, [[row] for row in days], CREEPS, edit)


def keep_clock(person: Person, days: float, rng: np.random.Generator) -> Edit:
    """On consecutive working days work begins and ends at the person's median time, to the second."""
    diary, count = person.normal, draw_count(days, rng)
    rows = find_main_stays(person, diary)
    if not rows:
        return None
    of_day = [(row[1] % DAY, row[2] - row[1] // DAY * DAY) for row in rows]
    start, end = (int(np.median([times[k] for times in of_day])) for k in (0, 1))
    rows = rows[int(rng.random() * (max(0, len(rows) - count) + 1)) :]

    def edit(d: Diary, k: int) -> Edit:
        midnight = int(d.arrival[k]) // DAY * DAY
        return keep_hours(d, k, midnight + start, midnight + end)

    return repeat(diary, [[row] for row in rows], count, edit)


def drive_slowly(person: Person, minutes: float, rng: np.random.Generator) -> Edit:
    """The person's most frequent trip takes longer by the size on up to five days."""
    diary = person.normal
    ends = []
    for row in find_usual_link(diary):
        k = find_row(diary, row)
        ends += [diary.row(k + 1)] if k is not None else []
    seconds = round(minutes * 60)
    return repeat(diary, one_a_day(ends, rng), DRIVES, lambda d, k: arrive_later(d, k, seconds))


def leave_phone(person: Person, hours: float, rng: np.random.Generator) -> Edit:
    """The phone rests at home during tours that last as long as the size together."""
    diary, remaining = person.normal, hours
    on_purpose: list[int] = []
    tours = find_tours(person, diary)
    tours = [tours[k] for k in rng.permutation(len(tours))]
    while remaining > 0.2 * hours:
        fitting = [tour for tour in tours if tour[2] <= 1.25 * remaining]
        if not fitting:
            break
        tour = min(fitting, key=lambda t: abs(t[2] - remaining))
        tours.remove(tour)
        first, count, away = tour
        k = find_row(diary, first)
        edit = drop_rows(diary, k, k + count) if k is not None else None
        if edit is not None:
            diary, on_purpose, remaining = edit[0], on_purpose + edit[1], remaining - away
    return (diary, on_purpose) if on_purpose else None


def move_day(person: Person, visits: float, rng: np.random.Generator) -> Edit:
    """Errands happen one to three days earlier or later than they would have, at the same hour."""
    diary, count = person.normal, draw_count(visits, rng)
    on_purpose: list[int] = []
    errands = find_errands(person, diary, SHORTEST_MOVED)
    for n in rng.permutation(len(errands)):
        steps = rng.permutation([sign * day for day in NEAREST_DAYS for sign in (-1, 1)])
        if len(on_purpose) >= count:
            break
        edit = _move(diary, errands[n], [int(step) for step in steps])
        if edit is not None:
            diary, on_purpose = edit[0], on_purpose + edit[1]
    return (diary, on_purpose) if on_purpose else None


def _move(diary: Diary, row: Row, steps: list[int]) -> Edit:
    place, start, end = row
    for step in steps:
        at = start + step * DAY
        k = find_stay_over(diary, at, at + end - start)
        visit = step_out(diary, k, place, at, length=end - start) if k is not None else None
        left = find_row(visit[0], row) if visit is not None else None
        rest = drop_rows(visit[0], left, left + 1) if visit is not None and left is not None else None
        if visit is not None and rest is not None:
            # The stay that fills the gap is a neighbour: it may change again, and is not what was meant.
            return rest[0], visit[1]
    return None
