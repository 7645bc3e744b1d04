"""What the second red team knows: the places around, everybody's normal diary, and what a person usually does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.spatial import cKDTree

from ustad.lab.red_team.second_edits import DAY
from ustad.simulate.edits import Diary, Row

ERRAND_LONGEST, MAIN_SHORTEST = 3 * 3600, 3 * 3600


@dataclass(frozen=True)
class Surroundings:
    """Places [P] with their coordinates in km, and agents [A] with their homes. `life(agent)`: a normal diary."""

    x: np.ndarray
    y: np.ndarray
    category: np.ndarray
    home: np.ndarray  # int64 [A]: a place
    offenders: np.ndarray  # agents that misbehave themselves
    life: Callable[[int], Diary]

    def km(self, origin: np.ndarray | int, destination: np.ndarray | int) -> np.ndarray:
        """Straight distance between places."""
        return np.hypot(self.x[origin] - self.x[destination], self.y[origin] - self.y[destination])

    def extra_km(self, origin: int, destination: int, by: np.ndarray | int) -> np.ndarray:
        """How much longer the straight way becomes by a stop."""
        return self.km(origin, by) + self.km(by, destination) - self.km(origin, destination)

    def km_from(self, places: np.ndarray) -> np.ndarray:
        """Distance of every place to the nearest of some: [P]."""
        tree = cKDTree(np.c_[self.x[places], self.y[places]])
        return np.asarray(tree.query(np.c_[self.x, self.y])[0])


@dataclass(frozen=True)
class Person:
    """Somebody who misbehaves: number, home and normal diary."""

    agent: int
    home: int
    normal: Diary
    around: Surroundings


def know_person(around: Surroundings, agent: int) -> Person:
    return Person(agent, int(around.home[agent]), around.life(agent), around)


def usual_places(diary: Diary) -> np.ndarray:
    return np.unique(diary.place).astype(np.int64)


def unknown_places(around: Surroundings, diary: Diary) -> np.ndarray:
    """Places where the person never was: [n]."""
    unknown = np.ones(len(around.x), bool)
    unknown[diary.place] = False
    return np.flatnonzero(unknown)


def one_a_day(rows: list[Row], rng: np.random.Generator) -> list[list[Row]]:
    """The rows by day of their arrival; days and the rows of a day in random order."""
    days: dict[int, list[Row]] = {}
    for k in rng.permutation(len(rows)):
        days.setdefault(rows[k][1] // DAY, []).append(rows[k])
    return list(days.values())


def find_errands(person: Person, diary: Diary, shortest: int = 0) -> list[Row]:
    """Free stays of less than three hours that are not at home."""
    lasting = diary.departure - diary.arrival
    is_errand = diary.free & (diary.place != person.home) & (lasting >= shortest) & (lasting < ERRAND_LONGEST)
    return [diary.row(int(k)) for k in np.flatnonzero(is_errand)]


def find_main_stays(person: Person, diary: Diary) -> list[Row]:
    """The first stay of a day that is not at home, lasts three hours or more and comes right after home."""
    rows: list[Row] = []
    for k in range(1, len(diary)):
        row = diary.row(k)
        at_work = row[0] != person.home and int(diary.place[k - 1]) == person.home
        first_today = not rows or rows[-1][1] // DAY != row[1] // DAY
        if diary.free[k] and at_work and first_today and row[2] - row[1] >= MAIN_SHORTEST:
            rows.append(row)
    return rows


def find_nights(person: Person, diary: Diary) -> list[Row]:
    """Free stays at home that begin after 15:00 and last over 02:00–04:00, but less than 20 hours."""
    at_two = (diary.arrival + 22 * 3600) // DAY * DAY + 2 * 3600
    over = (diary.departure >= at_two + 2 * 3600) & (diary.departure - diary.arrival < 20 * 3600)
    over &= diary.arrival >= at_two - 11 * 3600
    return [diary.row(int(k)) for k in np.flatnonzero(diary.free & over & (diary.place == person.home))]


def find_tours(person: Person, diary: Diary) -> list[tuple[Row, int, float]]:
    """Ways out of home and back: the first stay, how many there are, and the hours away."""
    at_home = np.flatnonzero(diary.place == person.home)
    tours = []
    for left, back in pairwise(at_home.tolist()):
        if back > left + 1 and diary.free[left : back + 1].all():
            hours = float(diary.arrival[back] - diary.departure[left]) / 3600
            tours.append((diary.row(left + 1), back - left - 1, hours))
    return tours


def find_usual_link(diary: Diary) -> list[Row]:
    """Stays from which the most frequent trip of the free days starts."""
    free = np.flatnonzero(diary.free[:-1] & diary.free[1:] & (diary.place[:-1] != diary.place[1:]))
    if not len(free):
        return []
    pairs = np.c_[diary.place[free], diary.place[free + 1]]
    _, number, count = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    return [diary.row(int(k)) for k in free[number.ravel() == np.argmax(count)]]


def find_stops_on_the_way(
    around: Surroundings, diary: Diary, place: int, rng: np.random.Generator
) -> dict[int, list[Row]]:
    """By day, in random order: stays after which a stop at the place is possible, the smallest detour first."""
    free = np.flatnonzero(diary.free[:-1] & diary.free[1:] & (diary.place[:-1] != diary.place[1:]))
    rows = [diary.row(int(k)) for k in free]
    extra = [float(around.extra_km(int(diary.place[k]), int(diary.place[k + 1]), place)) for k in free]
    days: dict[int, list[tuple[float, Row]]] = {}
    for row, km in zip(rows, extra, strict=True):
        days.setdefault(row[2] // DAY, []).append((km, row))
    order = rng.permutation(sorted(days)).tolist() if days else []
    return {day: [row for _, row in sorted(days[day])] for day in order}
