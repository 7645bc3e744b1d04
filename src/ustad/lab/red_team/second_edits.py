"""Edits of one person's diary by somebody who wants to look normal: times move, stops come in between, tours fall out.

In: a diary and what to change. Out: the new diary with the arrivals of the stays that were meant, or None where there
is no room. Unlike `edits`, a trip that is left as it was may take longer than the road does, so that diaries of
observed stays can be edited too. Stays that were meant are not free any more: no later edit spoils them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ustad.simulate.edits import SHORTEST, Diary, Edit, Row

DAY = 86_400


def find_row(diary: Diary, row: Row) -> int | None:
    """Where a stay is in the diary now; None where it was changed."""
    k = int(np.searchsorted(diary.arrival, row[1]))
    return k if k < len(diary) and diary.row(k) == row else None


def find_stay_over(diary: Diary, start: int, end: int) -> int | None:
    """The stay that lasts from before `start` until after `end`, where there is one."""
    k = int(np.searchsorted(diary.arrival, start)) - 1
    return k if k >= 0 and diary.departure[k] > end else None


def repeat(diary: Diary, occasions: Iterable[Sequence[Row]], count: int, edit: Callable[[Diary, int], Edit]) -> Edit:
    """Edit on `count` occasions. An occasion lists the stays to try, best first; the first with room is taken."""
    on_purpose: list[int] = []
    edits = 0
    for rows in occasions:
        if edits >= count:
            break
        for row in rows:
            k = find_row(diary, row)
            edit_made = edit(diary, k) if k is not None else None
            if edit_made is not None:
                diary, on_purpose, edits = edit_made[0], on_purpose + edit_made[1], edits + 1
                break
    return (diary, on_purpose) if on_purpose else None


def put_rows(diary: Diary, first: int, last: int, rows: list[Row], *, on_purpose: list[int]) -> Edit:
    """Rows first … last - 1 become `rows`; None unless all may be changed, is possible, and what is meant differs."""
    if first < 1 or last >= len(diary) or not diary.free[first:last].all():
        return None
    old = [diary.row(k) for k in range(first, last)]
    new = [row for row in rows if row not in old]
    if any(end - start < SHORTEST for _, start, end in new) or not any(start in on_purpose for _, start, _ in new):
        return None
    copy = diary.put(first, last, rows, ~np.isin([start for _, start, _ in rows], on_purpose))
    links_before = {_link(diary, k) for k in range(first - 1, last)}
    links = (k for k in range(first - 1, first + len(rows)) if _link(copy, k) not in links_before)
    return (copy, on_purpose) if all(_can_travel(copy, k) for k in links) else None


def _link(diary: Diary, k: int) -> tuple[int, int, int, int]:
    return int(diary.place[k]), int(diary.departure[k]), int(diary.place[k + 1]), int(diary.arrival[k + 1])


def _can_travel(diary: Diary, k: int) -> bool:
    here, leave, there, arrive = _link(diary, k)
    return here != there and arrive >= leave + diary.travel(here, there, leave)


def leave_for(diary: Diary, origin: int, destination: int, when: int) -> int:
    """The departure that brings a person to the destination at `when`, a few seconds early at most."""
    leave = when - diary.travel(origin, destination, when)
    for _ in range(4):  # rush hours change the travel time with the departure
        leave = when - diary.travel(origin, destination, leave)
    while (late := leave + diary.travel(origin, destination, leave) - when) > 0:
        leave -= late
    return leave


def add_stop(diary: Diary, k: int, place: int, length: int, *, early: bool) -> Edit:
    """A stop on the way from stay k to the next. `early`: stay k gives the time, else the next one does."""
    if k + 1 >= len(diary):
        return None
    (a, a_start, a_end), (b, b_start, b_end) = diary.row(k), diary.row(k + 1)
    if early:
        end, arrival = leave_for(diary, place, b, b_start), b_start
        start = end - length
        leave = leave_for(diary, a, place, start)
    else:
        leave, start = a_end, a_end + diary.travel(a, place, a_end)
        end = start + length
        arrival = end + diary.travel(place, b, end)
    return put_rows(
        diary, k, k + 2, [(a, a_start, leave), (place, start, end), (b, arrival, b_end)], on_purpose=[start]
    )


def step_out(diary: Diary, k: int, place: int, start: int, *, length: int) -> Edit:
    """A visit in the middle of stay k, to which the person returns."""
    a, a_start, a_end = diary.row(k)
    end = start + length
    leave, back = leave_for(diary, a, place, start), end + diary.travel(place, a, end)
    return put_rows(diary, k, k + 1, [(a, a_start, leave), (place, start, end), (a, back, a_end)], on_purpose=[start])


def stay_until(diary: Diary, k: int, leave: int) -> Edit:
    """Stay k ends later. What follows begins later; stays that would be over by then are left out."""
    a, a_start, _ = diary.row(k)
    for after in range(k + 1, min(k + 5, len(diary))):
        b, _, b_end = diary.row(after)
        arrival = leave + diary.travel(a, b, leave)
        if b != a and b_end - arrival >= SHORTEST:
            return put_rows(diary, k, after + 1, [(a, a_start, leave), (b, arrival, b_end)], on_purpose=[a_start])
    return None


def start_at(diary: Diary, k: int, start: int) -> Edit:
    """Stay k begins at another time; the person leaves the stay before accordingly."""
    if k < 1:
        return None
    (a, a_start, _), (b, _, b_end) = diary.row(k - 1), diary.row(k)
    return put_rows(
        diary, k - 1, k + 1, [(a, a_start, leave_for(diary, a, b, start)), (b, start, b_end)], on_purpose=[start]
    )


def keep_hours(diary: Diary, k: int, start: int, end: int) -> Edit:
    """Stay k lasts from `start` to `end`; the stays before and after give way or fill the time."""
    if k < 1 or k + 1 >= len(diary):
        return None
    (a, a_start, a_end), (b, b_start, b_end), (c, c_start, c_end) = (diary.row(n) for n in (k - 1, k, k + 1))
    leave = leave_for(diary, a, b, start) if start != b_start else a_end
    arrival = end + diary.travel(b, c, end) if end != b_end else c_start
    return put_rows(
        diary, k - 1, k + 2, [(a, a_start, leave), (b, start, end), (c, arrival, c_end)], on_purpose=[start]
    )


def change_place(diary: Diary, k: int, place: int) -> Edit:
    """Stay k happens elsewhere; the stays before and after are as they were."""
    if k < 1 or k + 1 >= len(diary):
        return None
    (a, _, a_end), (b, b_start, _) = diary.row(k - 1), diary.row(k + 1)
    start = a_end + diary.travel(a, place, a_end)
    return put_rows(diary, k, k + 1, [(place, start, leave_for(diary, place, b, b_start))], on_purpose=[start])


def drop_rows(diary: Diary, first: int, last: int) -> Edit:
    """Stays first … last - 1 do not happen; the person stays where it was before until the next stay begins."""
    if first < 1 or last >= len(diary):
        return None
    (a, a_start, _), (b, b_start, b_end) = diary.row(first - 1), diary.row(last)
    rows = [(a, a_start, leave_for(diary, a, b, b_start)), (b, b_start, b_end)] if a != b else [(a, a_start, b_end)]
    return put_rows(diary, first - 1, last + 1, rows, on_purpose=[a_start])


def arrive_later(diary: Diary, k: int, seconds: int) -> Edit:
    """The way to stay k takes longer; the stay ends as it did."""
    place, start, end = diary.row(k)
    return put_rows(diary, k, k + 1, [(place, start + seconds, end)], on_purpose=[start + seconds])
