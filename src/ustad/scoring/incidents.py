"""Incidents: unusual events of one entity that belong together are told once, led by the most unusual of them.

In go events in the order of their times with their own p-values; out comes the incident that each unusual one belongs
to. An event with p ≤ 0.05 joins the incident of the event right before it, if that began within a day, or an incident
of the last seven days with an event at the same place and about the same hour; else it begins one. `IncidentLog` does
that one event at a time, for live scoring and for bulk alike, so that both agree.

How many of the unusual events of normal people lead an incident is counted when a judge is fitted and kept with it, so
that live scoring knows which p-value gives as many alerts a day as are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.geo import haversine_km
from ustad.schema import EventSchema
from ustad.tables import agent_codes
from ustad.ties import raised

#: An event is part of an incident from this p-value down.
UNUSUAL = 0.05
_LARGEST = raised(UNUSUAL)
#: A repeat joins an incident within this time of its latest event …
_MICROSECONDS_PER_HOUR = 3_600_000_000
REPEAT_WITHIN = 7 * 24 * _MICROSECONDS_PER_HOUR
#: … at the same place, this near to the same hour of the day.
SAME_HOUR = 2 * _MICROSECONDS_PER_HOUR
_DAY = 24 * _MICROSECONDS_PER_HOUR
#: As near as this is the same place, where places have no names.
SAME_PLACE_KM = 0.15
#: Incidents of an entity that are remembered, the latest ones.
MOST_INCIDENTS = 32
#: p-values that are counted, the largest first.
LEVELS = (UNUSUAL, 0.02, 0.01, 0.005, 0.002, 0.001)
#: Fewer events than so many do not say which share of them leads; a larger p-value does.
FEWEST = 30

#: A p-value, events up to it, incidents that they make.
Count = tuple[float, int, int]


@dataclass
class Incident:
    """One incident as it is remembered: who leads it, and where and when its events were."""

    incident_id: str
    leader: Any  # key of the event that leads it
    score: float
    latest: int  # start of its latest event, microseconds
    visits: list[tuple[Any, int]] = field(default_factory=list)  # place and start of its latest events
    is_alerted: bool = False  # whether somebody was told of it

    def repeats(self, place: Any, start: int) -> bool:
        """Whether an event there and then is one more of the same."""
        if place is None or start - self.latest > REPEAT_WITHIN:
            return False
        return any(place == other and _hours_apart(start, moment) <= SAME_HOUR for other, moment in self.visits)


@dataclass(frozen=True)
class Membership:
    """What became of an unusual event: its incident, whether it leads it, and the event that led it until now."""

    incident_id: str
    leads: bool
    led_before: Any = None


class IncidentLog:
    """The latest incidents of one entity. `add` takes its events in the order of their times."""

    def __init__(self, incidents: Iterable[Incident] = (), last: str | None = None) -> None:
        self.incidents = list(incidents)
        self.last = last  # the incident of the event before, None where that was usual

    def add(self, key: Any, name: str, start: int, place: Any, p_value: float, score: float) -> Membership | None:
        """The incident of an event, None where it is usual. `key` is what the event is called by, `name` what an
        incident that begins with it is called."""
        if p_value > _LARGEST:
            self.last = None
            return None
        incident = self._find(place, start)
        if incident is None:
            incident = Incident(name, key, score, start)
            self.incidents = [*self.incidents, incident][-MOST_INCIDENTS:]
            membership = Membership(name, True)
        elif score > raised(incident.score):
            membership = Membership(incident.incident_id, True, incident.leader)
            incident.leader, incident.score = key, score
        else:
            membership = Membership(incident.incident_id, False)
        incident.latest = start
        if place is not None:
            incident.visits = [*incident.visits, (place, start)][-MOST_INCIDENTS:]
        self.last = incident.incident_id
        return membership

    def raise_alert(self, incident_id: str) -> bool:
        """Whether this is the first alert of an incident; from now on it has one."""
        incident = next(one for one in self.incidents if one.incident_id == incident_id)
        first, incident.is_alerted = not incident.is_alerted, True
        return first

    def _find(self, place: Any, start: int) -> Incident | None:
        for incident in reversed(self.incidents):
            if incident.incident_id == self.last and start - incident.latest <= _DAY:
                return incident
        return next((one for one in reversed(self.incidents) if one.repeats(place, start)), None)

    # ---------------------------------------------------------------------------------------- storing
    def to_json(self) -> dict[str, Any]:
        rows = [[i.incident_id, i.leader, i.score, i.latest, i.visits, i.is_alerted] for i in self.incidents]
        return {"incidents": rows, "last": self.last}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> IncidentLog:
        incidents = [
            Incident(name, leader, score, latest, [(place, start) for place, start in visits], has_alert)
            for name, leader, score, latest, visits, has_alert in content["incidents"]
        ]
        return cls(incidents, content["last"])


@dataclass(frozen=True)
class Incidents:
    """Which incident each of n events belongs to, and which are echoes: another event leads their incident."""

    incident_id: np.ndarray  # object [n], None where the event is usual
    echo: np.ndarray  # bool [n]
    order: np.ndarray  # int64 [n], each event's place by entity and time


def find_incidents(events: pa.Table, schema: EventSchema, p_values: np.ndarray, scores: np.ndarray) -> Incidents:
    """The incidents of a table of events, in any order."""
    codes, _ = agent_codes(events[schema.entity])
    start = events[schema.time].cast(pa.int64()).to_numpy()
    order = np.lexsort((start, codes))
    step = np.empty(len(order), np.int64)
    step[order] = np.arange(len(order))
    unusual = np.flatnonzero(p_values <= raised(UNUSUAL))
    unusual = unusual[np.argsort(step[unusual], kind="stable")]
    names, places = event_names(events, schema, unusual), _places(events, schema, unusual)
    ids = np.full(len(order), None, dtype=object)
    echo = np.zeros(len(order), bool)
    log, owner, before = IncidentLog(), -1, -2
    for row, name, place in zip(unusual.tolist(), names, places, strict=True):
        if codes[row] != owner:
            log, owner = IncidentLog(), codes[row]
        elif step[row] != before + 1:
            log.last = None
        membership = log.add(row, name, int(start[row]), place, float(p_values[row]), float(scores[row]))
        if membership is not None:
            ids[row], echo[row] = membership.incident_id, not membership.leads
            if membership.led_before is not None:
                echo[membership.led_before] = True
        before = step[row]
    return Incidents(ids, echo, step)


def event_names(events: pa.Table, schema: EventSchema, rows: np.ndarray) -> list[str]:
    """What incidents that begin with these events are called: the event's id, else its entity and time."""
    index = pa.array(rows)
    if schema.event_id and schema.event_id in events.column_names:
        return [str(value) for value in events[schema.event_id].take(index).to_pylist()]
    pairs = zip(
        events[schema.entity].take(index).to_pylist(),
        events[schema.time].take(index).cast(pa.int64()).to_pylist(),
        strict=True,
    )
    return [name_event(entity, start) for entity, start in pairs]


def name_event(entity: Any, start: int) -> str:
    """What an event without an id is called."""
    return f"{entity}@{start}"


def _places(events: pa.Table, schema: EventSchema, rows: np.ndarray) -> list[Any]:
    """The place of each of these events, None where it has no name."""
    if schema.habitat is None or schema.habitat not in events.column_names:
        return [None] * len(rows)
    return events[schema.habitat].take(pa.array(rows)).to_pylist()


def _hours_apart(one: int, other: int) -> int:
    """How far apart two moments are by the hour of the day, whatever the day: microseconds."""
    apart = abs(one - other) % _DAY
    return min(apart, _DAY - apart)


# ------------------------------------------------------------------------------------------------------- tables
def leading_events(event_scores: pa.Table) -> np.ndarray:
    """Which events of a score table lead an incident: bool [n]."""
    return event_scores["incident_id"].is_valid().to_numpy() & ~event_scores["echo"].to_numpy(zero_copy_only=False)


def order_by_time(events: pa.Table, schema: EventSchema) -> np.ndarray:
    """Each event's place by entity and time: int64 [n]."""
    codes, _ = agent_codes(events[schema.entity])
    order = np.lexsort((events[schema.time].cast(pa.int64()).to_numpy(), codes))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def rows_before(incident_id: np.ndarray, order: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Of each of these events the one right before it where both are of one incident, else -1: int64 [K]. `order` [n]
    is each event's place by entity and time."""
    row_at = np.empty(len(order), np.int64)
    row_at[order] = np.arange(len(order))
    before = row_at[np.maximum(order[rows] - 1, 0)]
    is_same = (order[rows] > 0) & (incident_id[before] == incident_id[rows]) & (incident_id[rows] != None)  # noqa: E711
    return np.where(is_same, before, -1)


def rows_with_reason(incident_id: np.ndarray, order: np.ndarray, alert: np.ndarray) -> np.ndarray:
    """Alerts, and the event right before each in its incident, which may explain it: int64."""
    rows = np.flatnonzero(alert)
    before = rows_before(incident_id, order, rows)
    return np.union1d(rows, before[before >= 0])


def is_way_back(lead: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether the event that leads an incident is only the way back from the one right before it, which then explains
    the incident: it is at an own place and came from a new one, or came home. Of both: `new_place`, `at_home`, `place`,
    and `lat` and `lon` where they are known."""
    if lead["new_place"] or not (lead["at_home"] or before["new_place"]):
        return False
    if lead["place"] is not None and before["place"] is not None:
        return bool(lead["place"] != before["place"])
    ends: list[Any] = [one.get(name) for one in (lead, before) for name in ("lat", "lon")]
    return None in ends or bool(haversine_km(*ends) > SAME_PLACE_KM)


def explaining_rows(
    event_scores: pa.Table, schema: EventSchema, leading: np.ndarray, measurements: pa.Table
) -> np.ndarray:
    """The event that each incident is about: the most unusual one, or the one before that is only the way back from.
    int64 [K]."""
    if schema.end is None or not {"new_place", "at_home"} <= set(measurements.column_names) or not len(leading):
        return leading
    incident_id = event_scores["incident_id"].to_numpy(zero_copy_only=False)
    before = rows_before(incident_id, order_by_time(event_scores, schema), leading)
    place = next((f.source for f in schema.features if f.kind == "place"), ())
    position = [pair for pair in zip(("lat", "lon"), place, strict=False) if pair[1] in event_scores.column_names]

    def read_facts(rows: np.ndarray) -> list[dict[str, Any]]:
        columns = {"place": _places(event_scores, schema, rows)}
        columns |= {name: measurements[name].take(pa.array(rows)).to_pylist() for name in ("new_place", "at_home")}
        columns |= {n: event_scores[c].take(pa.array(rows)).to_pylist() for n, c in position}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    at = np.flatnonzero(before >= 0)
    pairs = zip(at, read_facts(leading[at]), read_facts(before[at]), strict=True)
    ways_back = [i for i, lead, one_before in pairs if is_way_back(lead, one_before)]
    explaining = leading.copy()
    explaining[ways_back] = before[ways_back]
    return explaining


def incident_table(event_scores: pa.Table, schema: EventSchema, measurements: pa.Table) -> pa.Table:
    """One row per incident of a table of event scores, the most unusual first. Score, p-value and alert are those of
    its most unusual event, kind and reason those of the event that explains it. `measurements` has the same rows."""
    member = np.flatnonzero(event_scores["incident_id"].is_valid().to_numpy())
    names, code = np.unique(
        event_scores["incident_id"].take(pa.array(member)).to_numpy().astype(str), return_inverse=True
    )
    start = event_scores[schema.time].cast(pa.int64()).to_numpy()
    end_column = schema.end if schema.end and schema.end in event_scores.column_names else schema.time
    leads = ~event_scores["echo"].to_numpy(zero_copy_only=False).astype(bool)[member]
    leading = np.zeros(len(names), np.int64)
    leading[code[leads]] = member[leads]
    order = np.lexsort((start[member], code))
    edges = np.searchsorted(code[order], np.arange(len(names) + 1))
    label = schema.event_id if schema.event_id in event_scores.column_names else schema.time
    member = member[order]
    first, last = member[edges[:-1]], member[edges[1:] - 1]
    leaders = event_scores.take(pa.array(leading))
    explaining = event_scores.take(pa.array(explaining_rows(event_scores, schema, leading, measurements)))
    table = pa.table(
        {
            "incident_id": pa.array(names.tolist(), pa.string()),
            schema.entity: leaders[schema.entity],
            schema.time: event_scores[schema.time].take(pa.array(first)),
            schema.end or "last_at": event_scores[end_column].take(pa.array(last)),
            f"{label}s": pa.ListArray.from_arrays(edges, event_scores[label].take(pa.array(member)).combine_chunks()),
            f"leading_{label}": explaining[label],
            "n_events": np.diff(edges),
            "score": leaders["score"],
            "p_value": leaders["p_value"],
            "alert": leaders["alert"],
            "kind": explaining["kind"],
            "reason": pc.coalesce(explaining["reason"], leaders["reason"]),
        }
    )
    return table.sort_by([("score", "descending"), ("incident_id", "ascending")])


# ------------------------------------------------------------------------------------- how many events lead one
def count_incidents(events: pa.Table, schema: EventSchema, scores: np.ndarray) -> list[Count]:
    """Of normal events and their scores (-log10 p), at each level."""
    p_values = np.power(10.0, -scores)
    leads = ~find_incidents(events, schema, p_values, scores).echo
    small = [p_values <= raised(level) for level in LEVELS]
    return [(level, int(mask.sum()), int((mask & leads).sum())) for level, mask in zip(LEVELS, small, strict=True)]


def leading_share(p_value: float, counts: Sequence[Count]) -> float:
    """Which share of normal events up to a p-value leads an incident; 1 where the model does not say."""
    shares = [
        (level, incidents / events)
        for level, events, incidents in counts
        if incidents and (events >= FEWEST or level == UNUSUAL)
    ]
    if not shares:
        return 1.0
    levels, values = np.array(shares[::-1]).T
    return float(np.interp(np.log10(p_value), np.log10(levels), values))


def incident_share(p_value: float, counts: Sequence[Count]) -> float:
    """How many incidents, as a share of all normal events, come up to a p-value. Above `UNUSUAL` every event raises an
    alert of its own."""
    unusual = min(p_value, UNUSUAL)
    return unusual * leading_share(unusual, counts) + p_value - unusual


def threshold_for(share: float, counts: Sequence[Count]) -> float:
    """The p-value up to which as many incidents come as are a `share` of all normal events."""
    low, high = share, 1.0
    for _ in range(60):  # the number of incidents rises with the p-value
        middle = (low + high) / 2
        low, high = (middle, high) if incident_share(middle, counts) < share else (low, middle)
    return high
