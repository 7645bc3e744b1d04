"""When a place was left, in words: the visit itself, or the one before it, and when it is left usually.

In go a habit model and the own place that was left; out come sentences of `events/templates.py`, empty where history
has nothing to say.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from ustad.events.templates import OFTEN, place_words, say
from ustad.events.visits import Visits, day_kinds, ends_of
from ustad.events.words import clock_words
from ustad.habits.habit_model import HabitModel
from ustad.habits.history import Habits
from ustad.habits.kernels import DAY_MINUTES
from ustad.habits.leaving import visit_ends
from ustad.habits.own_place_words import days_like, name_kind
from ustad.habits.usual import Usual, remembered_days, usual_end
from ustad.ties import lowered, raised

#: A place that is left so many minutes earlier or later is left around then.
AROUND = 60.0


def tell_usual_end(model: HabitModel, visits: Visits, at: int, place: int, *, usual_visits: Usual) -> str:
    """When an own place is usually left, unless that contradicts the start and length that are told of it."""
    if place < 0 or model.habits.place_count[place] < 2 or not np.isfinite(visits.duration[at]):
        return ""
    one = slice(at, at + 1)
    (end,), (weekend,) = ends_of(visits.minute[one], visits.duration[one], visits.day[one], visits.days_off)
    minute = usual_end(model.habits, place, float(end), bool(weekend))
    is_told = np.isfinite(minute) and not contradicts_times(usual_visits, at, minute)
    return say("leaves", clock=clock_words(minute)) if is_told else ""


def contradicts_times(usual_visits: Usual, at: int, minute: float) -> bool:
    """Whether a minute of the day is no end of a visit of the usual start and length, give or take their spreads: of
    somebody with two shifts the start may be told of one and the end of the other."""
    start, length = float(usual_visits.start[at]), float(usual_visits.duration[at])
    slack = float(usual_visits.start_spread[at]) + float(usual_visits.duration_spread[at])
    apart = abs((minute - start - length + 720) % 1440 - 720)
    return bool(np.isfinite(apart) and apart > raised(slack))


# ------------------------------------------------------------------------------------------ the place before
@dataclass(frozen=True)
class UsualLeaving:
    """Around which minute of the day an own place is left, on how many days of those known that are like this one."""

    minute: float
    days: int
    of_days: int
    is_weekend: bool


def find_usual_leaving(habits: Habits, place: int, left_at: float) -> UsualLeaving | None:
    """Of several usual times the nearest to `left_at` (minutes of the local clock since 1970-01-01); None where the
    place was not left around then on any day of the kind."""
    day = math.floor(left_at / DAY_MINUTES)
    is_weekend = bool(day_kinds(np.array([day]), habits.days_off)[0] >= 5)
    minute = usual_end(habits, place, left_at - day * DAY_MINUTES, is_weekend)
    visits = slice(*habits.visit_offsets[place : place + 2])
    ends, on_weekend = (values[visits] for values in visit_ends(habits))
    apart = np.abs((ends - minute + DAY_MINUTES / 2) % DAY_MINUTES - DAY_MINUTES / 2)
    is_around = (on_weekend == is_weekend) & (apart <= raised(AROUND))
    began = habits.visit_day[visits][is_around], habits.visit_minute[visits][is_around]
    days = len(np.unique(began[0] + (began[1] + habits.visit_duration[visits][is_around]) // DAY_MINUTES))
    of_days = int(remembered_days(habits)[place, int(is_weekend)])
    return UsualLeaving(minute, min(days, of_days), of_days, is_weekend) if min(days, of_days) > 0 else None


def tell_handover(model: HabitModel, left_place: int, left_at: float, *, there: str, clock: str, length: str) -> str:
    """What happened: the own place that was left, and where (`there`), when and for how long they were next."""
    long = f" for {length}" if length else ""
    left = clock_words(left_at % DAY_MINUTES)
    return say("handover", before=_name_left(model, left_place), left=left, there=there, clock=clock, length=long)


def tell_usual_leaving(model: HabitModel, left_place: int, leaving: UsualLeaving | None) -> str:
    """When the place before is left usually."""
    if leaving is None:
        return ""
    share = leaving.days / leaving.of_days
    return say(
        "leaves_before",
        often=next(word.lower() for least, word in OFTEN if share >= lowered(least)),
        before=_name_left(model, left_place),
        clock=clock_words(leaving.minute),
        days=str(leaving.days),
        all=str(leaving.of_days),
        which=days_like(leaving.is_weekend),
    )


def _name_left(model: HabitModel, place: int) -> str:
    """The own place that was left, which is one that the reader knows of."""
    kind = name_kind(model, place)
    return "the place before" if kind is None else re.sub(r"^an? ", "the ", place_words(kind))
