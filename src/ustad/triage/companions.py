"""Company: with whom somebody was whom they never met, and who is usually there with them and was not.

In go the events of all days and the scored ones that belong to incidents; out come tables of facts, which
have no part in scores. Company counts at places that few people go to: in a supermarket everybody is with everybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.events.templates import place_words, say
from ustad.events.together import SharedVisits, few_visits, overlaps, place_keys
from ustad.events.visits import kind_feature
from ustad.events.words import minutes_words
from ustad.schema import EventSchema
from ustad.tables import agent_codes

#: Somebody is a usual companion at a place who was there on at least this share of at least so many visits.
SHARE, VISITS = 0.8, 5
FIRST, WITHOUT = "first time together", "usual companion missing"
_SECOND = 1_000_000
_FACTS = {
    "incident_id": pa.string(), "event_id": pa.string(), "agent_id": pa.string(), "fact": pa.string(),
    "other_id": pa.string(), "minutes": pa.float64(), "times": pa.int64(), "visits": pa.int64(), "reason": pa.string(),
}  # fmt: skip


def find_company(events: pa.Table, since: int, incidents: pa.Table, schema: EventSchema) -> pa.Table:
    """Facts about events of incidents, a row each: `incident_id`, `event_id`, `agent_id`, `fact` (`FIRST`,
    `WITHOUT`), `other_id`, `minutes` (together now; 0 without), `times` of `visits` (how often they
    were together here before), and `reason`.

    `events` are of all days; those from `since` (µs UTC) on were scored. `incidents` are scored events with their
    `incident_id`. Of people without a history nobody can tell whom they know.
    """
    return CompanyFinder(events, since, schema).find(incidents)


class CompanyFinder:
    """Who was with whom on all days; then what that says about events of incidents, as `find_company`.

    The first takes long and needs no scores, so it can be done while they are made.
    """

    def __init__(self, events: pa.Table, since: int, schema: EventSchema) -> None:
        self.events, self.schema = events, schema
        self.has_company = {schema.event_id, schema.end} <= set(events.column_names)
        if not self.has_company:
            return
        self._codes, ids = agent_codes(events[schema.entity])
        self._names = [str(one) for one in ids]
        self._start, self._end = (events[name].cast(pa.int64()).to_numpy() for name in (schema.time, schema.end))
        self._visits = few_visits(place_keys(events, schema), self._codes, self._start, self._end)
        is_history = self._start < since
        self._history = Companions.of(self._visits, is_history)
        self._is_known = np.zeros(len(ids), bool)
        self._is_known[self._codes[is_history]] = True

    def find(self, incidents: pa.Table) -> pa.Table:
        """The facts about these scored events."""
        key, events, names = self.schema.event_id, self.events, self._names if self.has_company else []
        if not self.has_company or not incidents.num_rows:
            return _as_table([], _FACTS)
        own_ids = incidents[key].cast(events[key].type).combine_chunks()
        at = pc.index_in(events[key], own_ids).to_numpy(zero_copy_only=False)
        incident = np.where(np.isnan(at), -1, at).astype(np.int64)  # [all events] row of `incidents`, −1 elsewhere
        facts = [
            *_first_times(self._visits, self._history, incident, self._is_known),
            *_absent_companions(self._visits, self._history, incident, (self._codes, self._start, self._end)),
        ]
        words = _Words(events, self.schema)
        incident_ids, event_ids = incidents["incident_id"].to_pylist(), events[key]
        lines: list[tuple[Any, ...]] = []
        for row, fact, other, minutes, times, number in sorted(facts):
            who, whose = names[other], names[self._codes[row]]
            reason = words.first(row, who, minutes) if fact == FIRST else words.without(row, who, times, number)
            event = str(event_ids[row].as_py())
            lines.append((incident_ids[incident[row]], event, whose, fact, who, minutes, times, number, reason))
        return _as_table(lines, _FACTS)


Fact = tuple[int, str, int, float, int, int]  # row of the events, which fact, the other, minutes, times, visits


@dataclass(frozen=True)
class Companions:
    """Who was with whom, and where how often, in the days before; and all that overlap."""

    pairs: tuple[np.ndarray, np.ndarray, np.ndarray]  # of `overlaps`
    couple: np.ndarray  # int64, by pair: code of the two people
    before: np.ndarray  # bool, by pair: whether they were together in the days before
    spot: np.ndarray  # int64 [n] code of the person and place of each visit
    usual: np.ndarray  # int64 [K, 4] spot, usual companion there, visits with them, visits; by spot

    @classmethod
    def of(cls, visits: SharedVisits, is_history: np.ndarray) -> Companions:
        pairs = overlaps(visits)
        one, other, _ = pairs
        old, people = is_history[visits.row], int(visits.agent.max(initial=0)) + 1
        before = old[one] & old[other]
        couple = visits.agent[one].astype(np.int64) * people + visits.agent[other]
        place = np.unique(visits.place, return_inverse=True)[1]
        _, spot = np.unique(place * people + visits.agent, return_inverse=True)
        number = np.bincount(spot[old], minlength=len(spot))
        visit, companion = np.divmod(np.unique(one[before] * people + visits.agent[other[before]]), people)
        with_whom, times = np.unique(spot[visit] * people + companion, return_counts=True)
        where, whom = np.divmod(with_whom, people)
        is_usual = (number[where] >= VISITS) & (times >= SHARE * number[where])
        usual = np.stack([where, whom, times, number[where]], axis=1)[is_usual]
        return cls(pairs, couple, before, spot, usual)


def _first_times(visits: SharedVisits, history: Companions, incident: np.ndarray, is_known: np.ndarray) -> list[Fact]:
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
    visits: SharedVisits,
    history: Companions,
    incident: np.ndarray,
    whereabouts: tuple[np.ndarray, np.ndarray, np.ndarray],
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


def _as_table(lines: list[tuple[Any, ...]], columns: dict[str, pa.DataType]) -> pa.Table:
    return pa.table(
        {name: pa.array([line[n] for line in lines], kind) for n, (name, kind) in enumerate(columns.items())}
    )
