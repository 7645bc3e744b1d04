"""Lasting changes in words: since when, where somebody is now at that time of day, where they were before."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ustad.events.templates import place_words, say
from ustad.events.visits import Frame, Visits, day_kinds
from ustad.events.words import date_words, distance_words
from ustad.habits.history import Habits
from ustad.habits.lasting import PART_SLOTS, PARTS, SHARES, Changes, LifeDays, collect_days, lay_out
from ustad.habits.usual import find_home
from ustad.schema import EventSchema, plural

#: A place is named where the share of days at it grew by so much.
CLEAR = 0.4
#: Of a number: which of `lay_out`, and what is said of it.
NUMBERS = {
    "more visits": (0, "more {events}"), "fewer visits": (0, "fewer {events}"),
    "farther": (1, "farther from place to place"), "nearer": (1, "nearer from place to place"),
}  # fmt: skip


def describe_changes(
    schema: EventSchema, frame: Frame, habits: Habits, visits: Visits, *, changes: Changes
) -> list[str | None]:
    """A sentence for each entity whose change is told, None for the others."""
    texts: list[str | None] = [None] * len(visits.entity_ids)
    rows = np.flatnonzero(changes.told_day)
    if len(rows):
        life = collect_days(habits, visits)
        for e in rows.tolist():
            texts[e] = _describe(schema, frame, habits, visits, changes=changes, life=life, e=e)
    return texts


def _describe(
    schema: EventSchema, frame: Frame, habits: Habits, visits: Visits, *, changes: Changes, life: LifeDays, e: int
) -> str:
    rows = slice(life.offsets[e], life.offsets[e + 1])
    begin, end = int(max(life.first[e], life.day[rows].min())), int(life.day[rows].max())
    own = [values[rows] for values in (life.place, life.day, life.minute, life.duration, life.x, life.y)]
    where, numbers = lay_out(*own, begin, end)  # type: ignore[call-arg,arg-type]  # six arrays
    days, since, name = np.arange(begin, end + 1), int(changes.since[e]), list(SHARES)[int(changes.ranks[e])]
    is_usable = where.any(axis=1) & ((day_kinds(days, habits.days_off) >= 5) == changes.weekend[e])
    since_then, before = is_usable & (days >= since), is_usable & (days < since)
    kind_of_day, when = "weekend" if changes.weekend[e] else "weekday", date_words(since)
    parts = [list(SHARES).index(name)] if name in list(SHARES)[:PARTS] else range(PARTS)
    change = max((_compare_part(where, part, since_then, before) for part in parts), key=lambda one: one.gain)
    if change.gain >= CLEAR:
        names = _place_names(frame, habits, visits, e, life=life, rows=rows)
        now, then = names.get(change.now, "elsewhere"), names.get(change.then, "elsewhere")
        if now == then:
            another = re.sub("^at an? ", "at another ", now)
            now = another if another != now else "elsewhere"
        times = f"{kind_of_day} {list(SHARES)[change.part]}s"
        return say("changed", date=when, times=times, now=now, before=then, **change.counts)
    if name in NUMBERS:
        number, what = NUMBERS[name]
        medians = (float(np.nanmedian(numbers[number][mask])) for mask in (since_then, before))
        median_words = [distance_words(m) if number else f"{m:.0f} a day" for m in medians]
        what = what.format(events=plural(schema.event_word))
        which = "weekend days" if changes.weekend[e] else "weekdays"
        return say("changed_number", date=when, what=what, which=which, now=median_words[0], before=median_words[1])
    times = f"{kind_of_day} {name}s" if name != "day" else ("weekend days" if changes.weekend[e] else "weekdays")
    return say("changed_otherwise", date=when, times=times)


@dataclass(frozen=True)
class _PlaceChange:
    """Of a part of the day: the place that gained days, the one that lost time, on how many days each way."""

    part: int
    now: int
    then: int
    gain: float  # of the share of days at the first
    counts: dict[str, str]


def _compare_part(where: np.ndarray, part: int, since_then: np.ndarray, before: np.ndarray) -> _PlaceChange:
    """Where most of a part of the day was spent, or any of it, whichever changed more."""
    slots = where[:, part * PART_SLOTS : (part + 1) * PART_SLOTS]
    places = np.unique(slots[slots != 0])
    if not len(places):
        return _PlaceChange(part, 0, 0, -1.0, {})
    hours = np.stack([(slots == place).sum(axis=1) for place in places], axis=1)  # [days, places]
    losses = hours[before].mean(axis=0) - hours[since_then].mean(axis=0)
    candidates = []
    for there in (hours > 0, (hours == hours.max(axis=1, keepdims=True)) & (hours > 0)):
        gains = there[since_then].mean(axis=0) - there[before].mean(axis=0)
        at = int(np.argmax(gains))
        numbers = (there[since_then, at].sum(), since_then.sum(), there[before, at].sum(), before.sum())
        counts = dict(zip(("days", "all", "days_before", "all_before"), map(str, map(int, numbers)), strict=True))
        candidates.append(
            _PlaceChange(part, int(places[at]), int(places[int(np.argmax(losses))]), float(gains[at]), counts)
        )
    return max(candidates, key=lambda one: one.gain)


def _place_names(
    frame: Frame, habits: Habits, visits: Visits, e: int, *, life: LifeDays, rows: slice
) -> dict[int, str]:
    """Words for each of an entity's places by key: home, or its kind."""
    names: dict[int, str] = {}
    for key, code in zip(life.place[rows].tolist(), life.category[rows].tolist(), strict=True):
        names[key] = f"at {place_words(frame.categories[code - 1])}" if code > 0 else "elsewhere"
    at = int(np.searchsorted(habits.entity_key, visits.entity_key[e]))
    if at < len(habits.entity_key) and habits.entity_key[at] == visits.entity_key[e]:
        first = int(habits.place_offsets[at])
        home = find_home(habits, first) if first < habits.place_offsets[at + 1] else -1
        if home >= 0:
            names[int(habits.place_key[home])] = "at home"
    return names
