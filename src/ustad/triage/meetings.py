"""Meetings: several people at one time at a place that is new to all of them and that hardly anybody else goes to.

In go event scores, whole or in parts of whole entities; out comes a table with a row for each meeting. Any one of these
visits is like the many first visits that everybody makes; that two people who never were there make it together is
what stands out. Places that many people visit say nothing and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import EPOCH, local_time
from ustad.dataset import zone_of
from ustad.events.templates import place_words, say
from ustad.events.visits import kind_feature, place_feature
from ustad.events.words import clock_words
from ustad.schema import EventSchema
from ustad.scores import read_answers
from ustad.tables import TIMESTAMP, agent_codes, identity_hash
from ustad.ties import raised

#: A place is nobody's and everybody's where more people than this were there in the scored days.
MOST_PEOPLE = 3
#: Visits with a higher p-value are too usual to make a meeting.
P_VALUE = 0.3
#: Without a named place: positions to so many digits of a degree, about 100 m, are one place.
DIGITS = 3
#: The column that says whether a place is new to the entity.
NEW = "new_place"
_IDS = ["meeting_id", "started_at", "finished_at", "agent_ids", "event_ids", "reason"]


def find_meetings(parts: Iterable[pa.Table], schema: EventSchema) -> pa.Table:
    """Meetings among event scores in the order of their times: `meeting_id`, `started_at`, `finished_at` (while they
    were together, the first two of them at least), `agent_ids`, `event_ids` (one of each, or more), `reason`."""
    finder = MeetingFinder(schema)
    for part in parts:
        finder.look(part)
    return finder.table()


class MeetingFinder:
    """Looks at event scores part by part, then knows the meetings of all."""

    def __init__(self, schema: EventSchema) -> None:
        self.schema = schema
        self._known: list[np.ndarray] = []  # places, each as often as it has people
        self._visits: list[pa.Table] = []

    def look(self, part: pa.Table) -> None:
        """A part of whole entities. Where events have no end or no places of their own there is nothing to see."""
        names = part.column_names
        if self.schema.end not in names or (NEW not in names and "evidence" not in names):
            return
        part = mark_new_places(part)
        place = place_keys(part, self.schema)
        codes, _ = agent_codes(part[self.schema.entity])
        order = np.lexsort((codes, place))
        place_in_order, person = place[order], codes[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (place_in_order[1:] != place_in_order[:-1]) | (person[1:] != person[:-1])
        self._known.append(place_in_order[is_first])
        self._visits.append(_first_visits(part, place, self.schema))

    def table(self) -> pa.Table:
        rows = pa.concat_tables(self._visits, promote_options="permissive") if self._visits else None
        if rows is None or not rows.num_rows:
            return _as_table([])
        places, people = np.unique(np.concatenate(self._known), return_counts=True)
        at = np.searchsorted(places, rows["place"].to_numpy())
        rows = rows.filter(pa.array(people[at] <= MOST_PEOPLE))
        rows = rows.sort_by([("place", "ascending"), ("start", "ascending")])
        meetings = [_describe(rows.slice(first, last - first)) for first, last in _groups(rows)]
        return _as_table(sorted(meetings, key=lambda one: (one[0], one[1])))


def mark_new_places(event_scores: pa.Table) -> pa.Table:
    """With `NEW`, whether the entity was never there before as far as its history goes, instead of the evidence that
    says so. Of an entity without a history nobody can tell. Scores of older versions have the column already."""
    if NEW in event_scores.column_names:
        return event_scores
    is_new = read_answers(event_scores["evidence"], "recurrence", "expected") == 0
    return event_scores.drop_columns(["evidence"]).append_column(NEW, pa.array(is_new))


def compared_columns(schema: EventSchema) -> set[str]:
    """The columns by which people's events are compared, as far as a table has them."""
    names = (schema.entity, schema.event_id, schema.time, schema.end, schema.timezone, schema.habitat)
    return {name for name in names if name} | {column for feature in schema.features for column in feature.columns}


def place_keys(events: pa.Table, schema: EventSchema) -> np.ndarray:
    """What each event's place is called everywhere: uint64 [N], 0 where it is not known."""
    where = place_feature(events, schema)
    if schema.habitat in events.column_names:
        column = events[schema.habitat].cast(pa.string())
        codes, names = agent_codes(pc.fill_null(column, ""))
        return np.where(pc.is_null(column).to_numpy(zero_copy_only=False), 0, identity_hash(names)[codes])
    if where is None:
        return np.zeros(events.num_rows, np.uint64)
    degrees = np.stack([events[c].cast(pa.float64()).to_numpy(zero_copy_only=False) for c in where.source])
    spots, codes = np.unique(np.round(degrees, DIGITS), axis=1, return_inverse=True)
    corners = [f"{lat:.{DIGITS}f},{lon:.{DIGITS}f}" for lat, lon in spots.T.tolist()]
    return np.where(np.isfinite(degrees).all(axis=0), identity_hash(corners)[codes.ravel()], 0)


def _first_visits(part: pa.Table, place: np.ndarray, schema: EventSchema) -> pa.Table:
    """The visits to new places that may be part of a meeting, in few columns."""
    new = part[NEW].to_numpy(zero_copy_only=False).astype(bool)
    rows = np.flatnonzero(new & (place != 0) & (part["p_value"].to_numpy() <= raised(P_VALUE, floor=0.0)))
    chosen, kind = part.take(pa.array(rows)), kind_feature(part, schema)
    clock = local_time(chosen[schema.time], zone_of(chosen, schema))
    name = schema.event_id if schema.event_id in part.column_names else schema.time
    words = chosen[kind.columns[0]].cast(pa.string()) if kind is not None else pa.nulls(len(rows), pa.string())
    return pa.table(
        {
            "place": place[rows],
            "agent": chosen[schema.entity].cast(pa.string()),
            "start": chosen[schema.time].cast(pa.int64()),
            "end": chosen[schema.end or schema.time].cast(pa.int64()),
            "event": chosen[name].cast(pa.string()),
            "kind": words,
            "day": clock.day.astype(np.int64),
            "minute": clock.minute,
        }
    )


def _groups(rows: pa.Table) -> Iterator[tuple[int, int]]:
    """Rows of a place that overlap in time one with the next, where they are of two people at least."""
    place, start, end = (rows[name].to_numpy() for name in ("place", "start", "end"))
    agent, first = rows["agent"].to_pylist(), 0
    for i in range(1, len(place) + 1):
        if i < len(place) and place[i] == place[first] and start[i] < end[first:i].max():
            continue
        if len(set(agent[first:i])) > 1:
            yield first, i
        first = i


def _describe(rows: pa.Table) -> tuple[int, int, list[str], list[str], str]:
    """Of one meeting: when two were first together and until when, who, their events, a sentence."""
    start, end = (rows[name].to_numpy() for name in ("start", "end"))
    agents = sorted(set(rows["agent"].to_pylist()))
    others = [i for i, agent in enumerate(rows["agent"].to_pylist()) if agent != rows["agent"][0].as_py()]
    second = others[0]
    kind, when = rows["kind"][second].as_py(), rows["day"][second].as_py()
    date = EPOCH + timedelta(days=int(when))
    reason = say(
        "met",
        who=f"{', '.join(agents[:-1])} and {agents[-1]}",
        place=place_words(kind) if kind else "one place",
        clock=clock_words(float(rows["minute"][second].as_py())),
        date=f"{date.day} {date:%B}",
    )
    last = int(min(end[second], end[:second].max()))
    return int(start[second]), last, agents, rows["event"].to_pylist(), reason


def _as_table(meetings: list[tuple[int, int, list[str], list[str], str]]) -> pa.Table:
    kinds = [pa.int64(), pa.int64(), pa.list_(pa.string()), pa.list_(pa.string()), pa.string()]
    columns = [pa.array([one[n] for one in meetings], kind) for n, kind in enumerate(kinds)]
    columns[:2] = [column.cast(TIMESTAMP) for column in columns[:2]]
    return pa.table([pa.array([f"meeting-{n + 1}" for n in range(len(meetings))], pa.string()), *columns], names=_IDS)
