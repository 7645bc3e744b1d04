"""Company: with whom somebody was whom they never met, who is usually there with them and was not, and several people's
incidents at one place and hour.

In go the events of all days and the scored ones that belong to incidents; out come tables of facts, which
have no part in scores. Company counts at places that few people go to: in a supermarket everybody is with everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import LocalTime, local_time
from ustad.dataset import zone_of
from ustad.events.templates import place_words, say
from ustad.events.visits import kind_feature
from ustad.events.words import clock_words, date_words, minutes_words
from ustad.schema import EventSchema
from ustad.tables import agent_codes
from ustad.triage.meetings import place_keys

#: More people than this at a place in all days, and company there says nothing.
FEW = 10
#: Two are together from so many minutes on.
MINUTES = 5
#: Somebody is a usual companion at a place who was there on at least this share of at least so many visits.
SHARE, VISITS = 0.8, 5
FIRST, WITHOUT = "first time together", "usual companion missing"
_SECOND = 1_000_000
_FACTS = {
    "incident_id": pa.string(), "event_id": pa.string(), "agent_id": pa.string(), "fact": pa.string(),
    "other_id": pa.string(), "minutes": pa.float64(), "times": pa.int64(), "visits": pa.int64(), "reason": pa.string(),
}  # fmt: skip
_GROUPS = {
    "group_id": pa.string(), "started_at": pa.timestamp("us", tz="UTC"), "finished_at": pa.timestamp("us", tz="UTC"),
    "agent_ids": pa.list_(pa.string()), "incident_ids": pa.list_(pa.string()), "event_ids": pa.list_(pa.string()),
    "p_value": pa.float64(), "reason": pa.string(),
}  # fmt: skip


@dataclass(frozen=True)
class Visits:
    """Events at places that few people go to, in the order of place and start, and everybody's whereabouts."""

    row: np.ndarray  # [n] of the table they come from
    place: np.ndarray  # [n] code
    agent: np.ndarray  # [n] code
    start: np.ndarray  # [n] s
    end: np.ndarray  # [n] s


def find_company(events: pa.Table, since: int, incidents: pa.Table, schema: EventSchema) -> pa.Table:
    """Facts about events of incidents, a row each: `incident_id`, `event_id`, `agent_id`, `fact` (`FIRST`,
    `WITHOUT`), `other_id`, `minutes` (together now; 0 without), `times` of `visits` (how often they
    were together here before), and `reason`.

    `events` are of all days; those from `since` (µs UTC) on were scored. `incidents` are scored events with their
    `incident_id`. Of people without a history nobody can tell whom they know.
    """
    key = schema.event_id
    if not {key, schema.end} <= set(events.column_names) or not incidents.num_rows:
        return _as_table([], _FACTS)
    codes, ids = agent_codes(events[schema.entity])
    names = [str(one) for one in ids]
    start, end = (events[name].cast(pa.int64()).to_numpy() for name in (schema.time, schema.end))
    visits = few_visits(place_keys(events, schema), codes, start, end)
    at = pc.index_in(events[key], incidents[key].cast(events[key].type).combine_chunks()).to_numpy(zero_copy_only=False)
    incident = np.where(np.isnan(at), -1, at).astype(np.int64)  # [all events] row of `incidents`, −1 elsewhere
    history = Companions.of(visits, start < since)
    is_known = np.zeros(len(names), bool)
    is_known[codes[start < since]] = True
    facts = [
        *_first_times(visits, history, incident, is_known),
        *_absent_companions(visits, history, incident, (codes, start, end)),
    ]
    words = _Words(events, schema)
    incident_ids, event_ids = incidents["incident_id"].to_pylist(), events[key]
    lines: list[tuple[Any, ...]] = []
    for row, fact, other, minutes, times, number in sorted(facts):
        who = names[other]
        reason = words.first(row, who, minutes) if fact == FIRST else words.without(row, who, times, number)
        event = str(event_ids[row].as_py())
        lines.append((incident_ids[incident[row]], event, names[codes[row]], fact, who, minutes, times, number, reason))
    return _as_table(lines, _FACTS)


Fact = tuple[int, str, int, float, int, int]  # row of the events, which fact, the other, minutes, times, visits


def few_visits(place: np.ndarray, agent: np.ndarray, start: np.ndarray, end: np.ndarray) -> Visits:
    """Visits [n] (times in µs) at places with two to `FEW` people."""
    places, code = np.unique(place, return_inverse=True)
    most = int(agent.max(initial=0)) + 1
    people = np.bincount(np.unique(code * most + agent) // most, minlength=len(places))
    rows = np.flatnonzero(((people >= 2) & (people <= FEW) & (places != 0))[code])
    rows = rows[np.lexsort((start[rows], code[rows]))]
    return Visits(rows, code[rows], agent[rows], start[rows] // _SECOND, end[rows] // _SECOND)


def overlaps(visits: Visits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of visits of two people who were together for `MINUTES` or more, both ways round: positions, seconds."""
    if not len(visits.row):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    first = visits.start.min()
    width = int(max(visits.start.max(), visits.end.max()) - first) + 2
    keys = visits.place * width + (visits.start - first)
    after = np.searchsorted(
        keys, visits.place * width + (visits.end - first)
    )  # the first that begins when it has ended
    number = np.maximum(after - np.arange(len(keys)) - 1, 0)
    one = np.repeat(np.arange(len(keys)), number)
    other = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(number) - number, number)
    seconds = np.minimum(visits.end[one], visits.end[other]) - visits.start[other]
    keep = (visits.agent[one] != visits.agent[other]) & (seconds >= 60 * MINUTES)
    one, other, seconds = one[keep], other[keep], seconds[keep]
    return np.r_[one, other], np.r_[other, one], np.r_[seconds, seconds]


@dataclass(frozen=True)
class Companions:
    """Who was with whom, and where how often, in the days before; and all that overlap."""

    pairs: tuple[np.ndarray, np.ndarray, np.ndarray]  # of `overlaps`
    couple: np.ndarray  # int64, by pair: code of the two people
    before: np.ndarray  # bool, by pair: whether they were together in the days before
    spot: np.ndarray  # int64 [n] code of the person and place of each visit
    usual: np.ndarray  # int64 [K, 4] spot, usual companion there, visits with them, visits; by spot

    @classmethod
    def of(cls, visits: Visits, is_history: np.ndarray) -> Companions:
        pairs = overlaps(visits)
        one, other, _ = pairs
        old, people = is_history[visits.row], int(visits.agent.max(initial=0)) + 1
        before = old[one] & old[other]
        couple = visits.agent[one].astype(np.int64) * people + visits.agent[other]
        _, spot = np.unique(visits.place * people + visits.agent, return_inverse=True)
        number = np.bincount(spot[old], minlength=len(spot))
        visit, companion = np.divmod(np.unique(one[before] * people + visits.agent[other[before]]), people)
        with_whom, times = np.unique(spot[visit] * people + companion, return_counts=True)
        where, whom = np.divmod(with_whom, people)
        is_usual = (number[where] >= VISITS) & (times >= SHARE * number[where])
        usual = np.stack([where, whom, times, number[where]], axis=1)[is_usual]
        return cls(pairs, couple, before, spot, usual)


def _first_times(visits: Visits, history: Companions, incident: np.ndarray, is_known: np.ndarray) -> list[Fact]:
    """Events of incidents that were spent with somebody whom the person never was with before."""
    one, other, seconds = history.pairs
    who, whom = visits.agent[one], visits.agent[other]
    new = np.flatnonzero((incident[visits.row[one]] >= 0) & is_known[who] & is_known[whom])
    new = new[~_are_among(history.couple[new], history.couple[history.before])]
    rows_and_others = np.stack([visits.row[one[new]], whom[new]], axis=1)
    facts, each = np.unique(rows_and_others, axis=0, return_inverse=True)
    minutes = np.bincount(each.ravel(), weights=seconds[new] / 60, minlength=len(facts))
    return [
        (row, FIRST, who, length, 0, 0) for (row, who), length in zip(facts.tolist(), minutes.tolist(), strict=True)
    ]


def _absent_companions(
    visits: Visits, history: Companions, incident: np.ndarray, whereabouts: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> list[Fact]:
    """Events of incidents without somebody who is usually there too, and who was seen elsewhere at that time."""
    (one, other, _), usual = history.pairs, history.usual
    of_incident = np.flatnonzero(incident[visits.row] >= 0)
    first, last = (np.searchsorted(usual[:, 0], history.spot[of_incident], side) for side in ("left", "right"))
    visit = np.repeat(of_incident, last - first)
    entry = np.arange(len(visit)) + np.repeat(first - (np.cumsum(last - first) - (last - first)), last - first)
    people = int(visits.agent.max(initial=0)) + 1
    is_there = _are_among(visit * people + usual[entry, 1], one * people + visits.agent[other])
    visit, entry = visit[~is_there], entry[~is_there]
    middle = (visits.start[visit] + visits.end[visit]) // 2
    is_seen = _are_seen(usual[entry, 1], middle, whereabouts)
    return [
        (row, WITHOUT, whom, 0.0, times, number)
        for row, (_, whom, times, number) in zip(
            visits.row[visit[is_seen]].tolist(), usual[entry[is_seen]].tolist(), strict=True
        )
    ]


def _are_among(few: np.ndarray, many: np.ndarray) -> np.ndarray:
    """Which of a few numbers are among many, which are not put in order: bool [few]."""
    numbers, each = np.unique(few, return_inverse=True)
    if not len(numbers):
        return np.zeros(0, bool)
    at = np.minimum(np.searchsorted(numbers, many), len(numbers) - 1)
    return (np.bincount(at[numbers[at] == many], minlength=len(numbers)) > 0)[each]


def _are_seen(
    people: np.ndarray, moment: np.ndarray, whereabouts: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> np.ndarray:
    """Whether anything is known of people at moments (s): silence is no absence. `whereabouts` are everybody's events:
    codes of people, starts and ends (µs). bool [n]."""
    agent, start, end = whereabouts
    is_asked = np.zeros(int(agent.max(initial=0)) + 1, bool)
    is_asked[people] = True
    rows = np.flatnonzero(is_asked[agent])
    rows = rows[np.lexsort((start[rows], agent[rows]))]
    if not len(rows):
        return np.zeros(len(people), bool)
    own, begin = agent[rows], start[rows] // _SECOND
    least = int(min(begin.min(), moment.min(initial=0)))
    width = int(max(begin.max(), moment.max(initial=0))) - least + 1
    at = np.searchsorted(own * width + (begin - least), people * width + (moment - least), "right") - 1
    return (at >= 0) & (own[at] == people) & (end[rows[at]] // _SECOND > moment)


def find_groups(incidents: pa.Table, schema: EventSchema) -> pa.Table:
    """Incidents of several people at one place and hour, told once: `group_id`, `started_at`, `finished_at` (when the
    second came, when the last but one went), `agent_ids`, `incident_ids`, `event_ids`, `p_value` (the smallest of
    theirs), `reason`.

    `incidents` are the events that lead incidents. A place that is named by nothing has no groups.
    """
    if not {schema.event_id, schema.end} <= set(incidents.column_names) or not incidents.num_rows:
        return _as_table([], _GROUPS)
    codes, ids = agent_codes(incidents[schema.entity])
    place = place_keys(incidents, schema)
    start, end = (incidents[name].cast(pa.int64()).to_numpy() for name in (schema.time, schema.end))
    rows = np.flatnonzero(place != 0)
    rows = rows[np.lexsort((start[rows], place[rows]))]
    events, names, words = incidents[schema.event_id], incidents["incident_id"], _Words(incidents, schema)
    p_value, lines = incidents["p_value"].to_numpy(), list[tuple[Any, ...]]()
    for group in _chains(place[rows], start[rows], end[rows]):
        members = rows[group]
        if len(people := sorted({str(ids[code]) for code in codes[members]})) < 2:
            continue
        began, left = np.sort(start[members]), np.sort(end[members])
        keys = [[str(column[int(i)].as_py()) for i in members] for column in (names, events)]
        smallest = float(p_value[members].min())
        lines.append((int(began[1]), int(left[-2]), people, *keys, smallest, words.group(int(members[1]), people)))
    lines = [(f"group-{n + 1}", *line) for n, line in enumerate(sorted(lines, key=lambda one: one[:3]))]
    return _as_table(lines, _GROUPS)


def _chains(place: np.ndarray, start: np.ndarray, end: np.ndarray) -> list[slice]:
    """Runs of two or more rows of one place that overlap one with the next by `MINUTES` or more."""
    runs, first, latest = [], 0, 0
    places, starts, ends = (values.tolist() for values in (place, start, end))
    for i in range(1, len(places) + 1):
        latest = max(latest, ends[i - 1]) if i - 1 > first else ends[i - 1]
        if i < len(places) and places[i] == places[first] and starts[i] <= latest - 60 * MINUTES * _SECOND:
            continue
        if i - first > 1:
            runs.append(slice(first, i))
        first = i
    return runs


class _Words:
    """Sentences about rows of events."""

    def __init__(self, events: pa.Table, schema: EventSchema) -> None:
        self.events, self.schema, self.kind = events, schema, kind_feature(events, schema)

    def _place(self, row: int) -> str:
        kind = self.events[self.kind.columns[0]][row].as_py() if self.kind is not None else None
        return place_words(str(kind)) if kind else "one place"

    def first(self, row: int, who: str, minutes: float) -> str:
        return say("first_together", who=who, length=minutes_words(minutes), place=self._place(row))

    def without(self, row: int, who: str, times: int, visits: int) -> str:
        return say("without", who=who, times=times, visits=visits, place=self._place(row))

    @cached_property
    def clock(self) -> LocalTime:
        return local_time(self.events[self.schema.time], zone_of(self.events, self.schema))

    def group(self, row: int, people: Sequence[str]) -> str:
        return say(
            "group", who=f"{', '.join(people[:-1])} and {people[-1]}", place=self._place(row),
            clock=clock_words(float(self.clock.minute[row])), date=date_words(int(self.clock.day[row])),
        )  # fmt: skip


def _as_table(lines: list[tuple[Any, ...]], columns: dict[str, pa.DataType]) -> pa.Table:
    return pa.table(
        {name: pa.array([line[n] for line in lines], kind) for n, (name, kind) in enumerate(columns.items())}
    )
