"""Groups of people as events come: several at one time at a place that is new to them and that few people go to.

In: rows of a micro-batch, in the transaction that stores them. Out: the table `groups` of the store, the same as bulk
scoring finds in a whole table. All that is known lies in the store: who was where, and which groups there are. So a
restart, a failed transaction or a deletion leaves nothing behind.

Nearly every event is done with by looking at itself. Of the others the visits of other people at these places at that
time are read, once for all. Where two of them are rare, the groups of that place are found anew, by what bulk scoring
does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, bindparam, delete, func, insert, or_, select, update

from ustad.events.together import MINUTES, PairTails, name_place
from ustad.files import set_columns
from ustad.page import records as r
from ustad.page.facts import shown_groups
from ustad.page.queries import E
from ustad.page.store import Row, Store, now
from ustad.page.translate import Layout, event_table
from ustad.tables import identity_hash
from ustad.triage.groups import NEW, GroupFinder, as_table, is_new_place

_DAY, _SECOND = 86_400_000_000, 1_000_000
#: Who goes to a place is counted over so many days, and so long a group may change.
DAYS = 28 * _DAY
#: Visits are compared of which one began at most so long after the other.
LONG = 2 * _DAY
#: A place that many people go to is not looked at for a day; at most so many are remembered.
MOST_CROWDS = 100_000
_KEY = "event_key"
G = r.groups.c
_IN_PLACES = E.place_key.in_(bindparam("places", expanding=True))
_SPAN = (E.started_at > bindparam("since"), E.started_at < bindparam("until"))
_OTHERS = select(E.place_key, E.agent, E.started_at, E.finished_at, E.new_place).where(_IN_PLACES, *_SPAN)
_NEWCOMERS = _OTHERS.where(E.new_place)
_NEWCOMERS_OR_AT = _OTHERS.where(or_(E.new_place, E.place_key.in_(bindparam("new_to", expanding=True))))
_HERE = (E.place_key == bindparam("at"), E.started_at >= bindparam("since"), E.score.is_not(None))
_PEOPLE = select(E.agent).where(*_HERE).distinct().limit(bindparam("most"))
_VISITS = select(
    E.key, E.agent, E.started_at, E.finished_at, E.timezone, E.lat, E.lon, E.poi_id, E.category, E.score, E.incident,
    E.new_place,
).where(*_HERE)  # fmt: skip


class LiveGroups:
    """`mark` the rows before they are stored, `record` them in the transaction that stores them."""

    def __init__(self, store: Store, layout: Layout, tails: PairTails) -> None:
        self._store, self._layout, self._tails = store, layout, tails
        self._schema = replace(layout.schema, event_id=_KEY)
        self._with_one = bool(tails.is_rare[1, 2])  # a newcomer beside somebody who was there before
        self._of_week = frozenset(tails.crowd_places.view("int64").tolist())
        self._crowds: dict[int, int] = {}  # place → until when it is not looked at
        with store.reading() as connection:  # places of groups, maybe of former ones, and who is known to go there
            self._people: dict[int, set[str]] = {
                place: set() for place in connection.execute(select(G.place).distinct()).scalars()
            }

    def mark(self, rows: Sequence[Row], scores: Sequence[Mapping[str, Any]]) -> None:
        """Write into new rows where they are, and whether that is new to their agents."""
        schema, columns = self._layout.schema, self._layout.columns
        names = [(ours, columns[ours]) for ours in ("poi_id", "lat", "lon") if ours in columns]
        for row, score in zip(rows, scores, strict=True):
            place = name_place({theirs: row[ours] for ours, theirs in names}, schema)
            row["place_key"] = None if place is None else _hash(place)
            row["new_place"] = is_new_place(score.get("evidence") or (), self._layout.lat is not None)

    def record(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Find the groups that these rows, which are stored already, are part of or change."""
        if not self._tails.most_people:
            return
        rows = [row for row in rows if row["place_key"] is not None and not self._is_crowd_place(row)]
        changing = [row for row in rows if row["agent"] not in self._people.get(row["place_key"], (row["agent"],))]
        changing += self._choose_meeting(connection, [row for row in rows if row["new_place"] or self._with_one])
        for place, moment in _first_starts(changing).items():
            self._renew(connection, place, moment)

    def places_of(self, agent: str) -> dict[int, int]:
        """Places of the groups that an agent is part of, and when those began: to `renew` them once it is deleted."""
        with self._store.reading() as connection:
            groups = connection.execute(select(G.place, G.began_at, G.content)).all()
        return _first_starts(
            {"place_key": one.place, "started_at": one.began_at}
            for one in groups
            if agent in json.loads(one.content)["agent_ids"]
        )

    def renew(self, places: Mapping[int, int]) -> None:
        """Find the groups at these places anew: who is left may still be one."""
        self.go_back()
        if places:
            with self._store.writing() as connection:
                for place, moment in places.items():
                    self._renew(connection, place, moment)

    def go_back(self) -> None:
        """Take nothing for granted that a failed transaction said."""
        self._crowds.clear()
        self._people = {place: set() for place in self._people}

    # ----------------------------------------------------------------------------------------- one batch
    def _is_crowd_place(self, row: Row) -> bool:
        """Whether more people go there than can be a group, as far as that is known without the store."""
        return row["place_key"] in self._of_week or self._crowds.get(row["place_key"], -1) > row["started_at"]

    def _choose_meeting(self, connection: Connection, rows: Sequence[Row]) -> list[Row]:
        """Those of the rows that meet somebody, so that it would be rare."""
        others: dict[int, list[Any]] = {}
        for other in self._read_others(connection, rows) if rows else ():
            others.setdefault(other.place_key, []).append(other)
        return [row for row in rows if any(self._is_rare(row, other) for other in others.get(row["place_key"], ()))]

    def _read_others(self, connection: Connection, rows: Sequence[Row]) -> Iterable[Any]:
        """Visits at these places at about that time; beside who was there before only those of newcomers count."""
        span = {
            "since": min(row["started_at"] for row in rows) - LONG,
            "until": max(row["finished_at"] for row in rows),
            "places": list({row["place_key"] for row in rows}),
        }
        if not self._with_one:
            return connection.execute(_NEWCOMERS, span)
        new_to = list({row["place_key"] for row in rows if row["new_place"]})
        return connection.execute(_NEWCOMERS_OR_AT, {**span, "new_to": new_to})

    def _is_rare(self, row: Row, other: Any) -> bool:
        """Whether two visits are of two people who were together, so that it is rare where only they go."""
        first, last = max(row["started_at"], other.started_at), min(row["finished_at"], other.finished_at)
        new = int(row["new_place"]) + int(other.new_place)
        return (
            row["agent"] != other.agent
            and last // _SECOND - first // _SECOND >= 60 * MINUTES
            and bool(self._tails.is_rare[new, 2])
        )

    # ----------------------------------------------------------------------------------------- one place
    def _renew(self, connection: Connection, place: int, moment: int) -> None:
        """Find the groups at a place anew, of the weeks before a moment and of all that is known after it."""
        here = {"at": place, "since": moment - DAYS}
        people = connection.execute(_PEOPLE, {**here, "most": self._tails.most_people + 1}).scalars().all()
        groups: list[dict[str, Any]] = []
        if len(people) > self._tails.most_people:
            self._crowds[place] = moment + _DAY
            while len(self._crowds) > MOST_CROWDS:
                self._crowds.pop(next(iter(self._crowds)))
        elif len(people) > 1:
            groups = self._find([dict(row) for row in connection.execute(_VISITS, here).mappings()])
        if groups or place in self._people:
            self._people[place] = set(people)  # and the place stays: a transaction that fails has deleted no group
            _replace_groups(connection, place, here["since"], groups)

    def _find(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The groups among all visits of a place, each with when its first event began."""
        keys = [str(row["key"]) for row in rows]
        table = set_columns(
            event_table(rows, self._layout),
            **{_KEY: pa.array(keys), NEW: pa.array([bool(row["new_place"]) for row in rows])},
            score=pa.array([row["score"] for row in rows]),
            incident_id=pa.array([row["incident"] for row in rows], pa.string()),
        )
        finder = GroupFinder(self._schema, self._tails)
        finder.look(table)
        starts = {key: row["started_at"] for key, row in zip(keys, rows, strict=True)}
        return [{**one, "began_at": min(starts[key] for key in one["event_ids"])} for one in finder.groups()]


@lru_cache(maxsize=100_000)
def _hash(place: str) -> int:
    """As a database has it: signed."""
    return int(identity_hash([place]).view("int64")[0])


def _first_starts(rows: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """The first start at each place."""
    moments: dict[int, int] = {}
    for row in rows:
        moments[row["place_key"]] = min(row["started_at"], moments.get(row["place_key"], row["started_at"]))
    return moments


def _replace_groups(connection: Connection, place: int, since: int, groups: Sequence[Mapping[str, Any]]) -> None:
    """Store the groups of a place. One that shares events with a stored one takes its number. What began before
    `since` stays as it is."""
    rows = connection.execute(select(G.id, G.began_at, G.content).where(G.place == place).order_by(G.id)).all()
    events = {row.id: set(json.loads(row.content)["event_ids"]) for row in rows}
    final = {row.id for row in rows if row.began_at < since}
    left = set(events) - final
    for group in groups:
        before = [number for number in events if not events[number].isdisjoint(group["event_ids"])]
        if final.intersection(before):
            continue
        values = {
            **{name: group[name] for name in ("began_at", "finished_at", "p_value")},
            "place": place, "content": json.dumps(group),
        }  # fmt: skip
        number = next((number for number in before if number in left), None)
        if number is None:
            connection.execute(insert(r.groups).values(**values, found_at=now()))
        else:
            left.discard(number)
            connection.execute(update(r.groups).where(G.id == number).values(values))
    if left:
        connection.execute(delete(r.groups).where(G.id.in_(left)))


def groups_table(connection: Connection) -> pa.Table:
    """The groups of live scores as in `groups.parquet`; events have the ids of the store."""
    return as_table(json.loads(text) for text in connection.execute(select(G.content)).scalars())


def latest_groups(connection: Connection) -> list[dict[str, Any]]:
    """The rarest groups of the latest weeks, as the page shows those of a run."""
    latest = connection.execute(select(func.max(G.finished_at))).scalar()
    if latest is None:
        return []
    contents = connection.execute(select(G.content).where(G.finished_at >= latest - DAYS)).scalars()
    return shown_groups(as_table(json.loads(text) for text in contents))
