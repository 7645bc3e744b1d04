"""Days that are real, and the same days altered: what a model of real or altered days learns from.

In go the stays of a week; out come the same stays with a few changes to each person, and which stays were changed. A
change keeps the person's days possible: stays in order, none overlapping, and every way takes as long as before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ustad.tables import TIMESTAMP, agent_codes

MINUTE = 60_000_000
SHORTEST = 6 * MINUTE
#: Days of a week on which the same inserted visit comes again, at most.
MOST_TIMES = 3
_TRIES = 8


@dataclass
class Diary:
    """Stays of one person in order: the row that a stay has its columns from, the row it has its place from, times."""

    row: list[int]
    place: list[int]
    start: list[int]
    end: list[int]
    is_changed: list[bool]

    def insert(self, at: int, row: int, place: int, start: int, *, end: int) -> None:
        values = (row, place, start, end, True)
        columns = (self.row, self.place, self.start, self.end, self.is_changed)
        for column, value in zip(columns, values, strict=True):
            column.insert(at, value)  # type: ignore[attr-defined]

    def remove(self, at: int) -> None:
        for column in (self.row, self.place, self.start, self.end, self.is_changed):
            del column[at]  # type: ignore[attr-defined]

    def is_free(self, first: int, last: int) -> bool:
        """Whether stays first … last are there and nobody has changed them."""
        return first >= 0 and last < len(self.row) and not any(self.is_changed[first : last + 1])

    def mark(self, *rows: int) -> bool:
        for at in rows:
            self.is_changed[at] = True
        return True


@dataclass(frozen=True)
class Chance:
    """Random choices, and places of others."""

    rng: np.random.Generator
    rows: int
    place: np.ndarray  # [rows] which place each stay is at

    def minutes(self, low: float, high: float) -> int:
        """Between two numbers of minutes, short ones more often, in microseconds."""
        return int(np.exp(self.rng.uniform(np.log(low), np.log(high))) * MINUTE)

    def elsewhere(self, here: int) -> int:
        """Somebody's stay at another place."""
        other = int(self.rng.integers(self.rows))
        return other if self.place[other] != self.place[here] else int(self.rng.integers(self.rows))


def _place(diary: Diary, i: int, chance: Chance) -> bool:
    """At somebody else's place."""
    diary.place[i] = chance.elsewhere(diary.place[i])
    return diary.mark(i)


def _insert(diary: Diary, i: int, chance: Chance, place: int | None = None) -> bool:
    """A visit to somebody else's place; the stays around it give up the time."""
    if not diary.is_free(i, i + 1):
        return False
    room_before, room_after = ((diary.end[k] - diary.start[k]) // 2 for k in (i, i + 1))
    way = max(diary.start[i + 1] - diary.end[i], MINUTE)
    start = diary.end[i] - int(chance.rng.uniform(0, 1) * room_before)
    end = diary.start[i + 1] + int(chance.rng.uniform(0, 1) * room_after)
    if end - start - 2 * way < SHORTEST:
        return False
    place = chance.elsewhere(diary.place[i]) if place is None else place
    diary.end[i], diary.start[i + 1] = start, end
    diary.insert(i + 1, diary.row[i], place, start + way, end=end - way)
    return diary.mark(i, i + 2)


def _again(diary: Diary, i: int, chance: Chance) -> bool:
    """A visit to an own place at another hour."""
    own = diary.place[int(chance.rng.integers(len(diary.place)))]
    beside = {int(chance.place[diary.place[k]]) for k in (i, i + 1) if k < len(diary.place)}
    return int(chance.place[own]) not in beside and _insert(diary, i, chance, own)


def _shift(diary: Diary, i: int, chance: Chance) -> bool:
    """Hours earlier or later; the stays around it give way."""
    if not diary.is_free(i - 1, i + 1):
        return False
    move = chance.minutes(30, 300) * int(chance.rng.choice([-1, 1]))
    if (
        diary.end[i - 1] + move - diary.start[i - 1] < SHORTEST
        or diary.end[i + 1] - diary.start[i + 1] - move < SHORTEST
    ):
        return False
    diary.start[i] += move
    diary.end[i] += move
    diary.end[i - 1] += move
    diary.start[i + 1] += move
    return diary.mark(i - 1, i, i + 1)


def _move_end(diary: Diary, i: int, by: int) -> bool:
    if not diary.is_free(i, i + 1) or diary.end[i] + by - diary.start[i] < SHORTEST:
        return False
    if diary.end[i + 1] - diary.start[i + 1] - by < SHORTEST:
        return False
    diary.end[i] += by
    diary.start[i + 1] += by
    return diary.mark(i, i + 1)


def _stretch(diary: Diary, i: int, chance: Chance) -> bool:
    """Left late."""
    return _move_end(diary, i, chance.minutes(30, 360))


def _shorten(diary: Diary, i: int, chance: Chance) -> bool:
    """Left early."""
    return _move_end(diary, i, -chance.minutes(30, 360))


def _drop(diary: Diary, i: int, chance: Chance) -> bool:
    """A visit does not come; the stay before it goes on."""
    if not diary.is_free(i - 1, i + 1):
        return False
    if chance.place[diary.place[i - 1]] == chance.place[diary.place[i + 1]]:  # away and back: one stay remains
        diary.end[i - 1] = diary.end[i + 1]
        diary.remove(i + 1)
    else:
        diary.end[i - 1] = diary.start[i + 1] - max(diary.start[i] - diary.end[i - 1], MINUTE)
    diary.remove(i)
    return diary.mark(i - 1)


def _swap(diary: Diary, i: int, chance: Chance) -> bool:
    """Two visits in the other order."""
    if not diary.is_free(i, i + 1) or chance.place[diary.place[i]] == chance.place[diary.place[i + 1]]:
        return False
    lengths = [diary.end[k] - diary.start[k] for k in (i, i + 1)]
    if max(lengths) > 14 * 60 * MINUTE:  # no night
        return False
    way = diary.start[i + 1] - diary.end[i]
    diary.place[i], diary.place[i + 1] = diary.place[i + 1], diary.place[i]
    diary.end[i] = diary.start[i] + lengths[1]
    diary.start[i + 1] = diary.end[i] + way
    return diary.mark(i, i + 1)


def _split(diary: Diary, i: int, chance: Chance) -> bool:
    """One stay becomes two, with a time away that nobody knows of."""
    length = diary.end[i] - diary.start[i]
    away = chance.minutes(15, 120)
    if not diary.is_free(i, i) or length - away < 3 * SHORTEST:
        return False
    leave = diary.start[i] + SHORTEST + int(chance.rng.uniform(0, 1) * (length - away - 2 * SHORTEST))
    back, end = leave + away, diary.end[i]
    diary.end[i] = leave
    diary.insert(i + 1, diary.row[i], diary.place[i], back, end=end)
    return diary.mark(i)


ALTERATIONS: dict[str, Callable[[Diary, int, Chance], bool]] = {
    "place": _place,
    "insert": _insert,
    "again": _again,
    "shift": _shift,
    "stretch": _stretch,
    "shorten": _shorten,
    "drop": _drop,
    "swap": _swap,
    "split": _split,
}
PLACES = ("lat", "lon", "poi_id", "poi_category")


def alter(week: pa.Table, kinds: tuple[str, ...], *, seed: int) -> tuple[pa.Table, np.ndarray]:
    """One kind of change to each person of a week, once to three times; and which stays were changed: bool by row."""
    order = np.lexsort((week["started_at"].cast(pa.int64()).to_numpy(), agent_codes(week["agent_id"])[0]))
    week = week.take(pa.array(order))
    agent, start, end = (_numbers(week, name) for name in ("agent_id", "started_at", "finished_at"))
    rng = np.random.default_rng(seed)
    place = np.unique(np.stack([_numbers(week, "lat"), _numbers(week, "lon")]), axis=1, return_inverse=True)[1]
    chance, diaries = Chance(rng, len(agent), place.ravel()), []
    edges = np.r_[0, np.flatnonzero(np.diff(agent)) + 1, len(agent)]
    for low, high in pairwise(edges.tolist()):
        rows = list(range(low, high))
        diary = Diary(rows, rows.copy(), start[low:high].tolist(), end[low:high].tolist(), [False] * len(rows))
        _change(diary, ALTERATIONS[str(rng.choice(kinds))], chance)
        diaries.append(diary)
    return _close(week, diaries)


def _change(diary: Diary, change: Callable[[Diary, int, Chance], bool], chance: Chance) -> None:
    """Up to three changes of one kind; inserted visits may come again to the same place."""
    times, place = int(chance.rng.integers(1, MOST_TIMES + 1)), None
    if change is _insert and chance.rng.random() < 0.5:
        place = chance.elsewhere(diary.place[0])
    for _ in range(times):
        for _ in range(_TRIES):
            i = int(chance.rng.integers(len(diary.row)))
            if diary.is_free(i, i) and (_insert(diary, i, chance, place) if place else change(diary, i, chance)):
                break


def _close(week: pa.Table, diaries: list[Diary]) -> tuple[pa.Table, np.ndarray]:
    row, place, start, end, is_changed = (
        np.concatenate([np.array(getattr(d, name)) for d in diaries])
        for name in ("row", "place", "start", "end", "is_changed")
    )
    table, places = week.take(pa.array(row)), week.take(pa.array(place))
    columns = {"started_at": pa.array(start, TIMESTAMP), "finished_at": pa.array(end, TIMESTAMP)}
    columns |= {name: places[name] for name in PLACES if name in table.column_names}
    if "stay_id" in table.column_names:
        columns["stay_id"] = pa.array(np.arange(len(row))).cast(table["stay_id"].type)
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    return table, is_changed.astype(bool)


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    if name == "agent_id":
        return agent_codes(table[name])[0]
    values = table[name]
    return (values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_numpy()
