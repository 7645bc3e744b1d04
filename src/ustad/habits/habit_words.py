"""Reasons from history, in one plain sentence: what was expected, with its ±, what was, how often and how far.

In go a habit model, its judgement and the events; out come sentences for the rows somebody will look at. Words and
units come from the schema; nothing here says what a person is. What was expected comes first and ends with the first
semicolon, so that it can be left out (`words.without_expected`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from ustad.events.visits import Visits, kind_feature, read_visits
from ustad.events.words import clock_words, distance_words, minutes_words, unseen_words
from ustad.habits.habit_model import HabitModel, Judged
from ustad.habits.usual import Usual, usual
from ustad.ties import highest_of, lowered, raised, rounded

_ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
#: A term speaks in the sentence when it has at least this share of what its event's terms say together.
SPEAKS = 0.2
#: Nearer than this, two places are not said to be apart, km.
NEAR_KM = 0.2


def sentences(model: HabitModel, judged: Judged, events: pa.Table, rows: np.ndarray) -> list[str]:
    """A sentence for each of the rows (of the table of events)."""
    if not len(rows):
        return []
    told = [""] * len(rows)
    for habits in judged.history:
        mine = np.flatnonzero(judged.end[rows] == habits.last_day)
        if len(mine):
            own = model if habits is model.habits else replace(model, habits=habits)
            for i, text in zip(mine, _sentences(own, judged, events, rows[mine]), strict=True):
                told[i] = text
    return told


def _sentences(model: HabitModel, judged: Judged, events: pa.Table, rows: np.ndarray) -> list[str]:
    """Of rows that were compared with the model's own habits."""
    chosen = events.take(pa.array(rows))
    visits = read_visits(chosen, model.schema, model.frame)
    back = np.empty(len(rows), np.int64)
    back[visits.row] = np.arange(len(rows))
    found = usual(model.habits, visits, judged.compared.place[rows][visits.row])
    kind = kind_feature(events, model.schema)
    words = chosen[kind.columns[0]].to_pylist() if kind is not None else [None] * len(rows)
    return [plain_words(model, judged, int(row), visits, int(back[i]), words[i], found) for i, row in enumerate(rows)]


def drivers(model: HabitModel, judged: Judged, row: int) -> list[str]:
    """Terms that made an event unusual, most first: those of its most unusual look that speak."""
    look = list(judged.looks)[highest_of([float(values[row]) for values in judged.looks.values()])]
    own = model.weights[look]
    weights = {n: weight * float(judged.surprise[n][row]) for n, weight in own.items() if n in judged.surprise}
    total = sum(weights.values())
    ranked = sorted(weights, key=lambda n: -weights[n])
    return [n for n in ranked if total > 0 and weights[n] >= lowered(SPEAKS * total)]


def plain_words(
    model: HabitModel, judged: Judged, row: int, visits: Visits, at: int, kind: str | None, found: Usual
) -> str:
    """An event by itself: row of the judgement, and where it is among the visits and what was usual for them."""
    named = drivers(model, judged, row)
    place, count = int(judged.compared.place[row]), int(judged.compared.count[row])
    length = float(visits.duration[at])
    seen = f"{kind or f'a {model.schema.event_word}'} at {clock_words(float(visits.minute[at]))}"
    if np.isfinite(length):
        seen = f"{seen} for {minutes_words(length)}"
    unseen = unseen_words(float(visits.minute[at]), length, float(visits.early[at]), float(visits.late[at]))
    parts = [_expected(model, visits, at, place, found), seen, *unseen]
    if kind is not None and found.new_kind[at]:
        whom = "this" if visits.category[at] else "every"  # 0: of no event that was learnt from
        parts.append(f"{kind} is a new kind of place for {whom} {model.schema.entity_word}")
    if place < 0:
        parts.append(_new_place(int(found.days[at]), float(judged.compared.distance[row]), count))
        parts.append(f"this {model.schema.entity_word} has no history yet" if found.days[at] < 0 else "")
    else:
        parts.append(_known_place(int(model.habits.place_count[place]), int(found.days[at]), count, named))
        parts.append("there at hours usually spent elsewhere" if "elsewhere" in named else "")
    parts.append("no data at hours that usually have some" if "silence" in named else "")
    text = "; ".join(part for part in parts if part)
    return text[:1].upper() + text[1:] + "."


def _expected(model: HabitModel, visits: Visits, at: int, place: int, found: Usual) -> str:
    """Where, from when and for how long, by the entity's own history; nothing where it has none."""
    where = int(found.place[at])
    start, length = _plus_minus(found, at)
    if where < 0 or where == place:
        times = " ".join(text for text in (start, length) if text)
        return f"Expected {_kind_of(model, place, 'there')} {times}" if times and place >= 0 else ""
    days = "weekend days" if found.weekend[at] else "weekdays"
    moment = (visits.minute[at] + np.nan_to_num(visits.duration[at]) / 2) % 1440
    often = f"there at {clock_words(moment)} on {rounded(100 * found.share[at]):.0f} % of {days}"
    apart = float(np.hypot(visits.x[at] - model.habits.place_x[where], visits.y[at] - model.habits.place_y[where]))
    far = f", {distance_words(apart)} away" if apart >= lowered(NEAR_KM) else ""
    named = _kind_of(model, where, "elsewhere")
    if place < 0:
        if (moment - found.start[at]) % 1440 > raised(float(found.duration[at] + found.duration_spread[at])):
            start = ""  # its visits there at that hour begin at another time than most
        return f"Expected {' '.join(text for text in (named, start) if text)} ({often}){far}"
    here = " ".join(text for text in (start, length) if text)
    return f"Expected {named} ({often}){far}{f', and here {here}' if here else ''}"


def _plus_minus(found: Usual, at: int) -> tuple[str, str]:
    """`from 18:10 ± 25 min` and `for 13 h ± 40 min`, as far as they are known."""
    start, length = float(found.start[at]), float(found.duration[at])
    return (
        f"from {clock_words(start)} ± {minutes_words(float(found.start_spread[at]))}" if np.isfinite(start) else "",
        f"for {minutes_words(length)} ± {minutes_words(float(found.duration_spread[at]))}"
        if np.isfinite(length)
        else "",
    )


def _kind_of(model: HabitModel, place: int, unknown: str) -> str:
    """What kind of place it is, in the schema's words."""
    code = int(model.habits.place_category[place])
    return model.frame.categories[code - 1] if code > 0 else unknown


def _new_place(days: int, distance: float, count: int) -> str:
    often = f"{ordinal(count)} visit" if count > 1 else "visit"
    text = f"{often} to a place not seen {_before(days)}"
    return f"{text}, {distance_words(distance)} from anywhere usual" if np.isfinite(distance) else text


def _known_place(seen: int, days: int, count: int, named: list[str]) -> str:
    text = f"seen there {seen} time{'s' if seen > 1 else ''} {_before(days)}"
    return f"{text}, {count} time{'s' if count > 1 else ''} since" if "recurrence" in named else text


def _before(days: int) -> str:
    """How far back the entity's history goes; whose visits had to enter it before their weeks have no day of it yet."""
    return f"in {days} day{'s' if days > 1 else ''} before" if days > 0 else "before"


def ordinal(number: int) -> str:
    """
    >>> ordinal(3), ordinal(12)
    ('third', '12th')
    """
    if number < len(_ORDINALS):
        return _ORDINALS[number]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
