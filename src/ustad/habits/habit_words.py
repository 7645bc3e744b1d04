"""Reasons from history in plain sentences: what happened, what is usual, how often since, how sure, what was not seen.

In go a habit model, the facts behind its answers, how they were judged, and the events; out come reasons for the rows
somebody will look at. Words and units come from the schema, sentences from `events/templates.py`; nothing here says
what a person is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from ustad.events.templates import OFTEN, place_words, say, say_how_sure
from ustad.events.visits import Visits, kind_feature, read_visits
from ustad.events.words import clock_words, date_words, distance_words, minutes_words, times_words, unseen_words
from ustad.habits.habit_model import HabitFacts, HabitModel
from ustad.habits.leaving_words import find_usual_leaving, tell_handover, tell_usual_end, tell_usual_leaving
from ustad.habits.missed import MissedVisit, find_missed
from ustad.habits.own_place_words import days_like, name_place
from ustad.habits.questions import Comparison
from ustad.habits.usual import Usual, usual
from ustad.schema import plural
from ustad.ties import lowered, raised, rounded

_ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
#: A term speaks in the sentence when it has at least this share of what its event's terms say together.
SPEAKS = 0.2
_LEAST_SHARE = lowered(SPEAKS)
#: Nearer than this, two places are not said to be apart, km.
NEAR_KM = 0.2
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
#: Questions about the hours of an event, which may be those of a visit that did not come.
_OF_HOURS = frozenset({"elsewhere", "start", "left_before"})
#: An event that is longer has no one hour, minutes.
ONE_HOUR = 60.0
#: Starts that differ by more are at any hour, minutes; lengths that differ by more than this share of themselves vary.
ANY_HOUR, WIDE = 180.0, 0.5


class Judgement(Protocol):
    """What a judge made of N events, as far as sentences tell it."""

    @property
    def shares(self) -> Mapping[str, np.ndarray]: ...

    @property
    def about(self) -> Mapping[str, str]: ...

    @property
    def kind(self) -> np.ndarray: ...


@dataclass(frozen=True)
class ToldEvent:
    """What is told of one event."""

    place: int  # own place, -1 where not seen before
    count: int  # visits to it in this period
    distance: float  # km to the nearest own place
    leaders: list[str]  # questions that make it unusual, most first
    is_of_times: bool  # whether the first of them is about its start, length or end
    is_of_end: bool  # whether it is about its end alone
    is_unsure: bool
    left_place: int  # own place that was left before, -1 where that is not known …
    left_at: float  # … and when, see `Left`

    @property
    def is_handover(self) -> bool:
        """Whether it is about leaving the place before."""
        return "left_before" in self.leaders and self.left_place >= 0

    @classmethod
    def of(cls, comparison: Comparison, judgement: Judgement, row: int) -> ToldEvent:
        shares = {name: float(values[row]) for name, values in judgement.shares.items()}
        return cls.by_shares(comparison, row, shares, judgement.about, kind=judgement.kind[row])

    @classmethod
    def by_shares(
        cls, comparison: Comparison, row: int, shares: Mapping[str, float], about: Mapping[str, str], *, kind: str
    ) -> ToldEvent:
        """From each question's share of what makes the event unusual, and its kind."""
        leaders = find_leaders(shares)
        place, count, left_place = (
            int(values[row]) for values in (comparison.place, comparison.count, comparison.left_place)
        )
        distance, left_at = (float(values[row]) for values in (comparison.distance, comparison.left_at))
        part = about.get(leaders[0]) if leaders else None
        parts = (part is not None, part == "end", kind == "unsure")
        return cls(place, count, distance, leaders, *parts, left_place, left_at)


def sentences(
    model: HabitModel, facts: HabitFacts, judgement: Judgement, events: pa.Table, *, rows: np.ndarray
) -> list[str]:
    """A reason for each of the rows (of the table of events)."""
    texts = [""] * len(rows)
    for habits in facts.history if len(rows) else ():
        mine = np.flatnonzero(facts.end[rows] == habits.last_day)
        if len(mine):
            own = model if habits is model.habits else replace(model, habits=habits)
            told_events = [ToldEvent.of(facts.comparison, judgement, row) for row in rows[mine]]
            for i, text in zip(mine, _sentences(own, told_events, events, rows[mine]), strict=True):
                texts[i] = text
    return texts


def _sentences(model: HabitModel, told_events: list[ToldEvent], events: pa.Table, rows: np.ndarray) -> list[str]:
    """Of rows that were compared with the model's own habits."""
    own_events = events.take(pa.array(rows))
    visits = read_visits(own_events, model.schema, model.frame)
    back = np.empty(len(rows), np.int64)
    back[visits.row] = np.arange(len(rows))
    usual_visits = usual(model.habits, visits, np.array([one.place for one in told_events])[visits.row], model.widths)
    kind = kind_feature(events, model.schema)
    words = own_events[kind.columns[0]].to_pylist() if kind is not None else [None] * len(rows)
    return [
        plain_words(model, one, visits, at=int(back[i]), kind=words[i], usual_visits=usual_visits)
        for i, one in enumerate(told_events)
    ]


def find_leaders(shares: Mapping[str, float]) -> list[str]:
    """Questions that made an event unusual, most first: those of its most unusual look that speak."""
    speaking = [name for name, share in shares.items() if share >= _LEAST_SHARE]
    return sorted(speaking, key=lambda name: -shares[name])


def plain_words(
    model: HabitModel, event: ToldEvent, visits: Visits, *, at: int, kind: str | None, usual_visits: Usual
) -> str:
    """An event by itself: where it is among the visits, and what was usual for them."""
    leaders, place = event.leaders, event.place
    minute, length = float(visits.minute[at]), float(visits.duration[at])
    unseen = unseen_words(minute, length, float(visits.early[at]), float(visits.late[at]))
    may_miss = not _OF_HOURS.isdisjoint(leaders) and visits.duration[at] > ONE_HOUR
    missed_visit = find_missed(model.habits, visits, at, place) if may_miss else None
    leaves = ""
    if event.is_handover:
        leaving = find_usual_leaving(model.habits, event.left_place, event.left_at)
        leaves = tell_usual_leaving(model, event.left_place, leaving)
    elif event.is_of_end:
        leaves = tell_usual_end(model, visits, at, place, usual_visits=usual_visits)
    is_left = event.is_of_end and bool(leaves) and "end" not in unseen
    parts = [
        _what_happened(model, event, kind, minute, length=length, is_left=is_left),
        leaves,
        *_what_is_usual(model, event, visits, at, usual_visits=usual_visits, missed_visit=missed_visit),
        *_how_often(model, event, visits, at, kind=kind, usual_visits=usual_visits, missed_visit=missed_visit),
        _how_sure(model, event, at, usual_visits=usual_visits, missed_visit=missed_visit),
        *(say(f"unseen_{end}", span=span) for end, span in unseen.items()),
        say("silence") if "silence" in leaders else "",
    ]
    return " ".join(part for part in parts if part)


# ---------------------------------------------------------------------------------------------- what happened
def _what_happened(
    model: HabitModel, event: ToldEvent, kind: str | None, minute: float, *, length: float, is_left: bool
) -> str:
    """`is_left`: whether it is about the end, which then is the fact that comes first."""
    clock, long = clock_words(minute), minutes_words(length) if math.isfinite(length) else ""
    place = event.place
    if event.is_handover:
        there = "elsewhere" if kind is None else f"at {place_words(kind)}"
        there = "back" if place == event.left_place else "at home" if model.is_home(place) else there
        return tell_handover(model, event.left_place, event.left_at, there=there, clock=clock, length=long)
    if model.schema.end is not None and (kind is not None or model.is_home(place)):
        where = "home" if model.is_home(place) else place_words(kind or "")
        if is_left:
            return say("left", place=where, clock=clock_words((minute + length) % 1440), start=clock, length=long)
        return say("stay" if long else "stay_open", place=where, clock=clock, length=long)
    what = f"{model.schema.event_word} ({kind})" if kind is not None else model.schema.event_word
    return say("event_long" if long else "event", what=what, clock=clock, length=long)


# ---------------------------------------------------------------------------------------------- what is usual
def _what_is_usual(
    model: HabitModel,
    event: ToldEvent,
    visits: Visits,
    at: int,
    *,
    usual_visits: Usual,
    missed_visit: MissedVisit | None,
) -> list[str]:
    """Where they are at that hour, and when and for how long they are here, of which one visit says nothing; what leads
    comes first."""
    place = event.place
    here = _times(model, usual_visits, at, place) if place >= 0 and model.habits.place_count[place] > 1 else ""
    where = int(usual_visits.place[at])
    elsewhere = _tell_missed(model, visits, at, missed_visit) if missed_visit is not None else ""
    if not elsewhere and where >= 0 and where != place:
        elsewhere = _elsewhere(model, visits, at, usual_visits)
    both = [elsewhere, here]
    return both[::-1] if event.is_of_times else both


def _tell_missed(model: HabitModel, visits: Visits, at: int, missed_visit: MissedVisit) -> str:
    """The visit that did not come because of this one."""
    return say(
        "missed",
        there=name_place(model, missed_visit.place),
        day=WEEKDAYS[missed_visit.weekday],
        hour=clock_words(missed_visit.minute),
        days=f"{rounded(missed_visit.share * missed_visit.days):.0f}",
        all=f"{missed_visit.days:.0f}",
        which=days_like(missed_visit.is_weekend),
        away=_away(model, visits, at, missed_visit.place),
    )


def _away(model: HabitModel, visits: Visits, at: int, where: int) -> str:
    """How far from an own place a visit is, where that is far."""
    x, y = visits.x[at] - model.habits.place_x[where], visits.y[at] - model.habits.place_y[where]
    apart = math.hypot(x, y)
    return f", {distance_words(apart)} away" if apart >= lowered(NEAR_KM) else ""


def _elsewhere(model: HabitModel, visits: Visits, at: int, usual_visits: Usual) -> str:
    where, share, days = int(usual_visits.place[at]), float(usual_visits.share[at]), float(usual_visits.of_days[at])
    length = float(visits.duration[at]) if math.isfinite(visits.duration[at]) else 0.0
    moment = clock_words((float(visits.minute[at]) + length / 2) % 1440)
    return say(
        "elsewhere",
        often=next(word for least, word in OFTEN if share >= lowered(least)),
        there=name_place(model, where),
        hour="this hour" if length <= ONE_HOUR else moment,
        days=f"{rounded(share * days):.0f}",
        all=f"{days:.0f}",
        which=days_like(bool(usual_visits.weekend[at])),
        away=_away(model, visits, at, where),
    )


def _times(model: HabitModel, usual_visits: Usual, at: int, place: int) -> str:
    """`Usually here from 18:10 ± 25 min for 13 h ± 40 min`, as far as they are known; what differs much is said so,
    because a spread as large as the value tells nobody anything."""
    start, length = float(usual_visits.start[at]), float(usual_visits.duration[at])
    early, longer = float(usual_visits.start_spread[at]), float(usual_visits.duration_spread[at])
    parts, varies = [], False
    if math.isfinite(start):
        varies = early > raised(ANY_HOUR)
        parts.append("at any hour" if varies else f"from {clock_words(start)} ± {minutes_words(early)}")
    if math.isfinite(length):
        is_wide = longer > raised(WIDE * length)
        parts.append(_span(model, place) if is_wide else f"for {minutes_words(length)} ± {minutes_words(longer)}")
        varies |= is_wide
    return (
        say("here_varies" if varies else "here", times=", ".join(parts) if varies else " ".join(parts)) if parts else ""
    )


def _span(model: HabitModel, place: int) -> str:
    """How long eight of ten remembered visits to a place lasted."""
    first, last = model.habits.visit_offsets[place : place + 2]
    lengths = sorted(length for length in model.habits.visit_duration[first:last].tolist() if length == length)
    low, high = (lengths[round(share * (len(lengths) - 1))] for share in (0.1, 0.9))
    return f"for anything from {minutes_words(low)} to {minutes_words(high)}"


# -------------------------------------------------------------------------------------------- how often since
def _how_often(
    model: HabitModel,
    event: ToldEvent,
    visits: Visits,
    at: int,
    *,
    kind: str | None,
    usual_visits: Usual,
    missed_visit: MissedVisit | None,
) -> list[str]:
    place, count, leaders = event.place, event.count, event.leaders
    before = _before(int(usual_visits.days[at]), model.habits.last_day, int(visits.day[at]))
    parts = []
    if place >= 0:
        in_history, now = (times_words(n) for n in (int(model.habits.place_count[place]), count))
        is_more = "recurrence" in leaders
        parts.append(say("more" if is_more else "known", times=in_history, before=before, now=now))
        if "elsewhere" in leaders and not (0 <= usual_visits.place[at] != place or missed_visit is not None):
            parts.append(say("elsewhere_hours"))
    else:
        far = f", {distance_words(event.distance)} from anywhere usual" if math.isfinite(event.distance) else ""
        name = "again" if count > 1 else "first"
        parts.append(say(name, ordinal=ordinal(count), before=before, distance=far))
        if "new_kind" in leaders and kind is not None:
            parts.append(say("rare_kind", place=place_words(kind)))
    if kind is not None and usual_visits.new_kind[at] and not model.is_home(place):
        whom = "them" if visits.category[at] else "everybody"  # 0: of no event that was learnt from
        parts.append(say("new_kind", whom=whom, kind=kind))
    return parts


def _before(days: int, last_day: int, day: int) -> str:
    """How far back the entity's history goes, and until when where that is not the day before; whose visits had to
    enter it before their weeks have no day of it yet."""
    if days < 1:
        return "before"
    if day == last_day + 1:
        return f"in the {days} days before" if days > 1 else "on the day before"
    return f"in the {days} days until {date_words(last_day)}" if days > 1 else f"on {date_words(last_day)}"


# ------------------------------------------------------------------------------------------------- how sure
def _how_sure(
    model: HabitModel, event: ToldEvent, at: int, *, usual_visits: Usual, missed_visit: MissedVisit | None
) -> str:
    """By what the leading question rests on: visits to the place (or to the one before), or the days that the sentence
    counts."""
    if usual_visits.days[at] < 0:
        return say("nothing")
    if event.is_unsure:
        return say("doubt", events=plural(model.schema.event_word))
    if event.is_handover and event.leaders[0] == "left_before":
        return say_how_sure(int(model.habits.place_count[event.left_place]), "visits there")
    if event.place >= 0 and event.is_of_times:
        return say_how_sure(int(model.habits.place_count[event.place]), "visits here")
    if missed_visit is not None:
        return say_how_sure(int(rounded(missed_visit.days)), days_like(missed_visit.is_weekend))
    if usual_visits.place[at] >= 0:
        return say_how_sure(int(usual_visits.of_days[at]), days_like(bool(usual_visits.weekend[at])))
    return say_how_sure(int(usual_visits.days[at]), "days")


def ordinal(number: int) -> str:
    """
    >>> ordinal(3), ordinal(12)
    ('third', '12th')
    """
    if number < len(_ORDINALS):
        return _ORDINALS[number]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
