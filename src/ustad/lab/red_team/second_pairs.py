"""Kinds of the second red team for two people who act together; both are changed and labelled, or neither is."""

from __future__ import annotations

import numpy as np

from ustad.lab.red_team.second_edits import DAY, add_stop, find_stay_over, repeat, step_out
from ustad.lab.red_team.second_people import (
    Person,
    Surroundings,
    find_stops_on_the_way,
    unknown_places,
    usual_places,
)
from ustad.lab.red_team.second_places import LONGEST_TRIP_S, NEAR_KM, STOP_S
from ustad.lab.red_team.second_times import draw_count
from ustad.simulate.edits import Diary, Edit, Row

Pair = tuple[tuple[Diary, list[int]], tuple[Diary, list[int]]] | None
MEETINGS = 2  # at most
FIRST_MEETING_S, LAST_MEETING_S = 11 * 3600 + 1800, 13 * 3600 + 1800  # when a meeting around noon begins


def meet(first: Person, second: Person, minutes: float, rng: np.random.Generator) -> Pair:
    """Both leave what they do around noon and meet at a place that is new to both, on up to two days."""
    new = np.intersect1d(*_unknown_to(first, second))
    days = np.intersect1d(_free_days(first.normal), _free_days(second.normal))
    starts = days * DAY + rng.integers(FIRST_MEETING_S, LAST_MEETING_S, len(days))
    picks, order = rng.integers(0, 10, len(days)), rng.permutation(len(days))
    both: Pair = None
    count = 0
    for n in order:
        here = both if both is not None else ((first.normal, []), (second.normal, []))
        if count < MEETINGS and len(new):
            meeting = _meet_once(
                first.around, here, new, int(starts[n]), length=round(minutes * 60), pick=int(picks[n])
            )
            both, count = (meeting, count + 1) if meeting is not None else (both, count)
    return both


def _meet_once(
    around: Surroundings, both: tuple[tuple[Diary, list[int]], tuple[Diary, list[int]]], new: np.ndarray, at: int,
    *, length: int, pick: int,
) -> Pair:  # fmt: skip
    """A meeting at `at`; `pick` says which of the places nearest to the middle it is."""
    a, b = both[0][0], both[1][0]
    k, m = find_stay_over(a, at, at + length), find_stay_over(b, at, at + length)
    if k is None or m is None:
        return None
    here, there = int(a.place[k]), int(b.place[m])
    x, y = (around.x[here] + around.x[there]) / 2, (around.y[here] + around.y[there]) / 2
    away = np.hypot(around.x[new] - x, around.y[new] - y)
    place = int(new[np.argsort(away, kind="stable")[min(pick, len(new) - 1)]])
    if max(a.travel(here, place, at), b.travel(there, place, at)) > LONGEST_TRIP_S:
        return None
    return _join(both, step_out(a, k, place, at, length=length), step_out(b, m, place, at, length=length))


def drop_letters(first: Person, second: Person, visits: float, rng: np.random.Generator) -> Pair:
    """Both stop at one place that is new to both, the second one to three days after the first."""
    visits_wanted, new = draw_count(visits, rng), np.intersect1d(*_unknown_to(first, second))
    if not len(new):
        return None
    away = np.stack([p.around.km_from(usual_places(p.normal))[new] for p in (first, second)])
    hidden = np.where((away >= NEAR_KM / 2).all(0), away.sum(0), np.inf)
    place = int(rng.choice(new[np.argsort(hidden, kind="stable")[:20]]))
    ways, later = (find_stops_on_the_way(p.around, p.normal, place, rng) for p in (first, second))
    both: Pair = None
    count = 0
    for day, rows in ways.items():
        here = both if both is not None else ((first.normal, []), (second.normal, []))
        if count < visits_wanted:
            after = [row for gap in (1, 2, 3) for row in later.get(day + gap, [])]
            handover = _join(here, _stop_once(here[0][0], rows, place), _stop_once(here[1][0], after, place))
            both, count = (handover, count + 1) if handover is not None else (both, count)
    return both


def _stop_once(diary: Diary, rows: list[Row], place: int) -> Edit:
    return repeat(diary, [rows], 1, lambda d, k: add_stop(d, k, place, STOP_S, early=True))


def _unknown_to(first: Person, second: Person) -> tuple[np.ndarray, np.ndarray]:
    return unknown_places(first.around, first.normal), unknown_places(second.around, second.normal)


def _free_days(diary: Diary) -> np.ndarray:
    return np.unique(diary.arrival[diary.free] // DAY).astype(np.int64)


def _join(both: tuple[tuple[Diary, list[int]], tuple[Diary, list[int]]], first: Edit, second: Edit) -> Pair:
    """The two with one more edit each, where both are possible."""
    if first is None or second is None:
        return None
    return (first[0], both[0][1] + first[1]), (second[0], both[1][1] + second[1])
