"""Reasons from history, in one plain sentence: how often, how far, how long, against what is usual there.

In go a habit model, its judgement and the events; out come sentences for the rows somebody will look at. Words and
units come from the schema; nothing here says what a person is.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ustad.events.habits import Habits
from ustad.events.visits import Visits, kind_feature, read_visits
from ustad.scoring.habit_model import HabitModel, Judged
from ustad.scoring.words import clock_words, distance_words, minutes_words

_ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
#: A term speaks in the sentence when it has at least this share of what its event's terms say together.
SPEAKS = 0.2
#: An event whose neighbours raise its -log10 p by more than this owes its score to them.
BORROWED = 0.5


def sentences(model: HabitModel, judged: Judged, events: pa.Table, rows: np.ndarray) -> list[str]:
    """A sentence for each of the rows (of the table of events)."""
    if not len(rows):
        return []
    chosen = events.take(pa.array(rows))
    visits = read_visits(chosen, model.schema, model.frame)
    back = np.empty(len(rows), np.int64)
    back[visits.row] = np.arange(len(rows))
    kind = kind_feature(events, model.schema)
    words = chosen[kind.columns[0]].to_pylist() if kind is not None else [None] * len(rows)
    return [_sentence(model, judged, int(row), visits, int(back[i]), words[i]) for i, row in enumerate(rows)]


def drivers(model: HabitModel, judged: Judged, row: int) -> list[str]:
    """Terms that made an event unusual, most first: those of its most unusual look that speak."""
    look = max(judged.looks, key=lambda name: float(judged.looks[name][row]))
    own = model.weights[look]
    weights = {n: weight * float(judged.surprise[n][row]) for n, weight in own.items() if n in judged.surprise}
    total = sum(weights.values())
    ranked = sorted(weights, key=lambda n: -weights[n])
    return [n for n in ranked if total > 0 and weights[n] >= SPEAKS * total]


def _sentence(model: HabitModel, judged: Judged, row: int, visits: Visits, at: int, kind: str | None) -> str:
    text = plain_words(model, judged, row, visits, at, kind)
    if judged.score[row] > judged.alone[row] + BORROWED:
        text = f"{text[:-1]}; {borrowed_words(model)}."
    return text


def borrowed_words(model: HabitModel) -> str:
    """What is said of an event that owes its score to its neighbours."""
    return f"the {model.schema.event_word} before or after it is the more unusual one"


def plain_words(model: HabitModel, judged: Judged, row: int, visits: Visits, at: int, kind: str | None) -> str:
    """An event by itself: row of the judgement, and where it is among the visits."""
    named = drivers(model, judged, row)
    habits, place = model.habits, int(judged.compared.place[row])
    count = int(judged.compared.count[row])
    where = f"{kind}" if kind else f"a {model.schema.event_word}"
    parts = [f"{where} at {clock_words(float(visits.minute[at]))}"]
    if place < 0:
        parts.append(_new_place(model, float(judged.compared.distance[row]), count))
    else:
        parts.append(_known_place(habits, place, count, named))
        parts += _times(habits, place, visits, at, named)
    text = "; ".join(part for part in parts if part)
    return text[:1].upper() + text[1:] + "."


def _new_place(model: HabitModel, distance: float, count: int) -> str:
    often = f"{ordinal(count)} visit" if count > 1 else "visit"
    text = f"{often} to a place not seen in {model.habits.days} days before"
    return f"{text}, {distance_words(distance)} from anywhere usual" if np.isfinite(distance) else text


def _known_place(habits: Habits, place: int, count: int, named: list[str]) -> str:
    seen = int(habits.place_count[place])
    text = f"seen there {seen} time{'s' if seen > 1 else ''} in {habits.days} days before"
    return f"{text}, {count} time{'s' if count > 1 else ''} since" if "recurrence" in named else text


def _times(habits: Habits, place: int, visits: Visits, at: int, named: list[str]) -> list[str]:
    """What is usual at an own place, where start, duration or presence made the event unusual."""
    own = slice(habits.visit_offsets[place], habits.visit_offsets[place + 1])
    parts = []
    if {"start", "memory_start"} & set(named):
        parts.append(f"usually from about {clock_words(middle_of_day(habits.visit_minute[own]))}")
    durations = habits.visit_duration[own]
    length = float(visits.duration[at])
    if {"duration", "leaving", "memory_duration", "presence"} & set(named) and np.isfinite(durations).any():
        usual = float(np.nanmedian(durations))
        if np.isfinite(length):
            parts.append(f"for {minutes_words(length)}, usually about {minutes_words(usual)}")
    if "presence" in named:
        parts.append("there at hours usually spent elsewhere")
    return parts


def middle_of_day(minutes: np.ndarray) -> float:
    """The time of day that most of these are near to: the one with the smallest sum of distances round the clock."""
    apart = np.abs(minutes[:, None] - minutes[None, :])
    return float(minutes[np.minimum(apart, 1440 - apart).sum(axis=1).argmin()])


def ordinal(number: int) -> str:
    """
    >>> ordinal(3), ordinal(12)
    ('third', '12th')
    """
    return _ORDINALS[number] if number < len(_ORDINALS) else f"{number}th"
