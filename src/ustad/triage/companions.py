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


@dataclass(frozen=True)
class Companions:
    """Who was with whom, and where how often, in the days before; and all that overlap."""

    pairs: tuple[np.ndarray, np.ndarray, np.ndarray]  # of `overlaps`
    together: set[tuple[int, int]]  # who was with whom, anywhere that few go to
    visits: dict[tuple[int, int], int]  # person and place → visits
    times: dict[tuple[int, int], dict[int, int]]  # person and place → companion → visits with them

    @classmethod
    def of(cls, visits: SharedVisits, is_history: np.ndarray) -> Companions:
        pairs = overlaps(visits)
        one, other, _ = pairs
        old = is_history[visits.row]
        before = old[one] & old[other]
        together = set(zip(visits.agent[one[before]].tolist(), visits.agent[other[before]].tolist(), strict=True))
        number: dict[tuple[int, int], int] = {}
        for person, place in zip(visits.agent[old].tolist(), visits.place[old].tolist(), strict=True):
            number[person, place] = number.get((person, place), 0) + 1
        times: dict[tuple[int, int], dict[int, int]] = {}
        for i, companion in sorted(set(zip(one[before].tolist(), visits.agent[other[before]].tolist(), strict=True))):
            own = times.setdefault((int(visits.agent[i]), int(visits.place[i])), {})
            own[companion] = own.get(companion, 0) + 1
        return cls(pairs, together, number, times)


def _first_times(visits: SharedVisits, history: Companions, incident: np.ndarray, is_known: np.ndarray) -> list[Fact]:
    """Events of incidents that were spent with somebody whom the person never was with before."""
    one, other, seconds = history.pairs
    minutes: dict[tuple[int, int], float] = {}
    who, whom = visits.agent[one], visits.agent[other]
    for n in np.flatnonzero((incident[visits.row[one]] >= 0) & is_known[who] & is_known[whom]).tolist():
        if (int(who[n]), int(whom[n])) not in history.together:
            key = int(visits.row[one[n]]), int(whom[n])
            minutes[key] = minutes.get(key, 0.0) + float(seconds[n]) / 60
    return [(row, FIRST, other, length, 0, 0) for (row, other), length in minutes.items()]


def _absent_companions(
    visits: SharedVisits,
    history: Companions,
    incident: np.ndarray,
    whereabouts: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> list[Fact]:
    """Events of incidents without somebody who is usually there too, and who was seen elsewhere at that time."""
    one, other, _ = history.pairs
    present = set(zip(one.tolist(), visits.agent[other].tolist(), strict=True))
    is_seen = Whereabouts(*whereabouts)
    facts: list[Fact] = []
    for i in np.flatnonzero(incident[visits.row] >= 0).tolist():
        where = int(visits.agent[i]), int(visits.place[i])
        number = history.visits.get(where, 0)
        for whom, times in history.times.get(where, {}).items():
            usual = number >= VISITS and times >= SHARE * number
            if usual and (i, whom) not in present and is_seen(whom, int(visits.start[i] + visits.end[i]) // 2):
                facts.append((int(visits.row[i]), WITHOUT, whom, 0.0, times, number))
    return facts


class Whereabouts:
    """Whether anything is known of a person at a moment: silence is no absence."""

    def __init__(self, agent: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        order = np.lexsort((start, agent))
        self.agent, self.start, self.end = agent[order], start[order] // _SECOND, end[order] // _SECOND

    def __call__(self, agent: int, moment: int) -> bool:
        first, last = np.searchsorted(self.agent, [agent, agent + 1])
        at = first + int(np.searchsorted(self.start[first:last], moment, "right")) - 1
        return at >= first and bool(self.end[at] > moment)


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
