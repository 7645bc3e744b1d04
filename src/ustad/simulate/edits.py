"""Changes to one person's diary that keep it possible: nobody is in two places or faster than the road.

Each edit takes a diary and says what to change; out comes the new diary with the arrivals of the stays that were
meant, or None where the change has no room. Only stays inside the diary's window, away from absences, are touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

Travel = Callable[[int, int, int], int]  # origin, destination, departure → seconds
Row = tuple[int, int, int]  # place, arrival, departure
SHORTEST = 360


@dataclass(frozen=True)
class Diary:
    """Stays of one person in order. `free` marks the stays that may be changed."""

    place: np.ndarray
    arrival: np.ndarray
    departure: np.ndarray
    free: np.ndarray
    travel: Travel

    def row(self, k: int) -> Row:
        return int(self.place[k]), int(self.arrival[k]), int(self.departure[k])

    def __len__(self) -> int:
        return len(self.place)

    def put(self, first: int, last: int, rows: Sequence[Row], free: np.ndarray) -> Diary:
        """A copy in which `rows`, some of them `free` [rows], stand instead of rows first … last - 1."""
        middle = np.array(rows, np.int64).reshape(-1, 3)

        def put_between(old: np.ndarray, new: np.ndarray) -> np.ndarray:
            return np.concatenate([old[:first], new.astype(old.dtype), old[last:]])

        return replace(
            self,
            place=put_between(self.place, middle[:, 0]),
            arrival=put_between(self.arrival, middle[:, 1]),
            departure=put_between(self.departure, middle[:, 2]),
            free=put_between(self.free, free),
        )


Edit = tuple[Diary, list[int]] | None


def replace_rows(diary: Diary, first: int, last: int, rows: list[Row], *, on_purpose: list[int]) -> Edit:
    """Rows first … last - 1 become `rows`; None unless all of it may be changed and is possible."""
    if first < 0 or last > len(diary) or not diary.free[first:last].all():
        return None
    if any(end - start < SHORTEST for _, start, end in rows):
        return None
    copy = diary.put(first, last, rows, np.ones(len(rows), bool))
    return (copy, on_purpose) if _is_possible(copy, first - 1, first + len(rows)) else None


def _is_possible(diary: Diary, first: int, last: int) -> bool:
    for k in range(max(first, 0), min(last, len(diary) - 1)):
        here, there = int(diary.place[k]), int(diary.place[k + 1])
        leave, arrive = int(diary.departure[k]), int(diary.arrival[k + 1])
        is_free = diary.free[k] and diary.free[k + 1]
        if is_free and (here == there or arrive != leave + diary.travel(here, there, leave)):
            return False
    return True


def arrive_by(diary: Diary, origin: int, destination: int, when: int) -> tuple[int, int]:
    """Departure and arrival of a trip that arrives at about `when` (rush hours may shift it by minutes)."""
    leave = when - diary.travel(origin, destination, when)
    return leave, leave + diary.travel(origin, destination, leave)


def insert_between(diary: Diary, k: int, place: int, kept_before: float, *, kept_after: float) -> Edit:
    """A visit between stays k and k + 1: the first keeps a share of its time at its start, the second at its end."""
    if k + 1 >= len(diary) or place in (diary.place[k], diary.place[k + 1]):
        return None
    (a, a_start, a_end), (b, b_start, b_end) = diary.row(k), diary.row(k + 1)
    leave = a_start + max(SHORTEST, int(kept_before * (a_end - a_start)))
    start = leave + diary.travel(a, place, leave)
    end, b_arrival = arrive_by(diary, place, b, b_end - max(SHORTEST, int(kept_after * (b_end - b_start))))
    if end - start < 600:
        return None
    return replace_rows(
        diary, k, k + 2, [(a, a_start, leave), (place, start, end), (b, b_arrival, b_end)], on_purpose=[start]
    )


def insert_at(diary: Diary, place: int, start: int, end: int, *, may_drop: int = 1) -> Edit:
    """A visit from `start` to `end`; at most `may_drop` stays in its way are given up."""
    before = int(np.searchsorted(diary.arrival, start, side="right")) - 1
    while before >= 0:
        leave, arrival = arrive_by(diary, int(diary.place[before]), place, start)
        if leave - diary.arrival[before] >= SHORTEST:
            break
        before -= 1
    after = int(np.searchsorted(diary.departure, end, side="left"))
    while after < len(diary):
        back = end + diary.travel(place, int(diary.place[after]), end)
        if diary.departure[after] - back >= SHORTEST:
            break
        after += 1
    if before < 0 or after >= len(diary) or after - before - 1 > may_drop:
        return None
    (a, a_start, _), (b, b_start, b_end) = diary.row(before), diary.row(after)
    if place in (a, b):
        return None
    if after > before and back < b_start:  # the next stay begins as it did
        end, back = arrive_by(diary, place, b, b_start)
    rows = [(a, a_start, leave), (place, arrival, end), (b, back, b_end)]
    return replace_rows(diary, before, after + 1, rows, on_purpose=[arrival])


def leave_early(diary: Diary, k: int, share: float) -> Edit:
    """Stay k keeps a share of its time; the next begins that much earlier."""
    return _leave_at(diary, k, lambda start, end: start + int(share * (end - start)))


def leave_late(diary: Diary, k: int, seconds: int) -> Edit:
    """Stay k lasts longer; the next begins that much later."""
    return _leave_at(diary, k, lambda start, end: end + seconds)


def _leave_at(diary: Diary, k: int, when: Callable[[int, int], int]) -> Edit:
    if k + 1 >= len(diary):
        return None
    (a, a_start, a_end), (b, _, b_end) = diary.row(k), diary.row(k + 1)
    leave = when(a_start, a_end)
    arrival = leave + diary.travel(a, b, leave)
    return replace_rows(diary, k, k + 2, [(a, a_start, leave), (b, arrival, b_end)], on_purpose=[a_start])


def skip(diary: Diary, k: int) -> Edit:
    """Stay k does not happen; the person stays where it was before."""
    if k < 1 or k + 1 >= len(diary):
        return None
    (a, a_start, _), (b, b_start, b_end) = diary.row(k - 1), diary.row(k + 1)
    if a == b:
        return replace_rows(diary, k - 1, k + 2, [(a, a_start, b_end)], on_purpose=[a_start])
    leave, arrival = arrive_by(diary, a, b, b_start)
    return replace_rows(diary, k - 1, k + 2, [(a, a_start, leave), (b, arrival, b_end)], on_purpose=[a_start])


def swap_order(diary: Diary, k: int) -> Edit:
    """Stays k and k + 1 change places in the day, each as long as it was."""
    if k < 1 or k + 2 >= len(diary):
        return None
    origin, first, second, last = (diary.row(i) for i in range(k - 1, k + 3))
    if origin[0] == second[0] or first[0] == last[0] or first[0] == second[0]:
        return None
    start = origin[2] + diary.travel(origin[0], second[0], origin[2])
    end = start + second[2] - second[1]
    start_2 = end + diary.travel(second[0], first[0], end)
    end_2 = start_2 + first[2] - first[1]
    arrival = end_2 + diary.travel(first[0], last[0], end_2)
    rows = [(second[0], start, end), (first[0], start_2, end_2), (last[0], arrival, last[2])]
    return replace_rows(diary, k, k + 3, rows, on_purpose=[start, start_2])


def stay_long(diary: Diary, k: int, seconds: int) -> Edit:
    """Stay k lasts hours longer and swallows what would have followed."""
    a, a_start, a_end = diary.row(k)
    leave = a_end + seconds
    for after in range(k + 1, min(k + 6, len(diary))):
        b, _, b_end = diary.row(after)
        arrival = leave + diary.travel(a, b, leave)
        if b != a and b_end - arrival >= SHORTEST:
            return replace_rows(diary, k, after + 1, [(a, a_start, leave), (b, arrival, b_end)], on_purpose=[a_start])
    return None
