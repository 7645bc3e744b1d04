"""A ledger of stays: rows as arrays that injections move, change, remove and add, and a table again in the end.

A row keeps the number of its original row and its present place (a row of the pool of places). So every column of the
table, known or not, follows its stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import local_time
from ustad.dataset import Dataset, zone_of
from ustad.tables import TIMESTAMP, DataError, agent_codes, event_keys, sort_events

MINUTE = 60_000_000
_DAY = 86_400_000_000
_SPATIAL = ("lat", "lon", "poi_id", "poi_category")
RAREST = 20  # categories from which a changed place is drawn


@dataclass
class Ledger:
    """Stays in order of agent and time. Added rows are kept apart until the ledger is closed."""

    events: pa.Table
    pool: pa.Table  # spatial columns of every original stay, then of every POI
    category: np.ndarray  # int64 [pool]: code of the category
    rare: np.ndarray  # places of the pool whose category is seldom visited
    first_place: int  # first row of the pool that random visits may go to
    agents: np.ndarray
    code: np.ndarray  # int64 [n]: whose stay it is
    start: np.ndarray  # int64 [n], microseconds
    end: np.ndarray
    day: np.ndarray  # int32 [n]: local date of the original start
    offset: np.ndarray  # int64 [n]: local clock minus UTC, microseconds
    space: np.ndarray  # int64 [n]: row of the pool
    alive: np.ndarray  # bool [n]
    first_day: int
    last_day: int
    kind: list[str | None]
    role: list[str]
    new_stays: list[tuple[int, int, int, int, int, str]] = field(
        default_factory=list
    )  # source, day, start, end, place, kind

    @property
    def eligible(self) -> np.ndarray:
        return self.alive & (self.day >= self.first_day) & (self.day <= self.last_day)

    # ------------------------------------------------------------------------------------------- looking
    def _span(self, agent: int) -> np.ndarray:
        return np.arange(*np.searchsorted(self._code_at_first, [agent, agent + 1]))

    def __post_init__(self) -> None:
        self._code_at_first = self.code.copy()  # rows of an agent stay together in the original order

    def rows_of(self, agent: int) -> np.ndarray:
        """Original rows of an agent in the period."""
        rows = self._span(agent)
        return rows[(self.day[rows] >= self.first_day) & (self.day[rows] <= self.last_day) & self.alive[rows]]

    def days_of(self, agent: int, first: int, last: int) -> np.ndarray:
        """Untouched rows of an agent on some local days; none where one of them was changed before."""
        rows = self.rows_of(agent)
        rows = rows[(self.day[rows] >= first) & (self.day[rows] <= last)]
        return rows if all(self.kind[row] is None for row in rows) else rows[:0]

    def window_of(self, agent: int, days: int, rng: np.random.Generator) -> np.ndarray:
        """Untouched rows of an agent in a random window of days inside the period."""
        last = max(self.first_day, self.last_day - days + 1)
        first = int(rng.integers(self.first_day, last + 1))
        return self.days_of(agent, first, first + days - 1)

    def before(self, row: int) -> int | None:
        return self._beside(row, -1)

    def after(self, row: int) -> int | None:
        return self._beside(row, 1)

    def neighbours(self, row: int) -> tuple[int | None, int | None]:
        """The stays before and after, where the period allows to change them."""
        around = (self.before(row), self.after(row))
        inside = [r if r is not None and self.first_day <= self.day[r] <= self.last_day else None for r in around]
        return inside[0], inside[1]

    def opens(self, rows: np.ndarray) -> bool:
        """Whether the stay before some rows may be cut: it belongs to the period and is untouched."""
        before = self.before(int(rows[0]))
        return before is not None and self.day[before] >= self.first_day and self.kind[before] is None

    def _beside(self, row: int, step: int) -> int | None:
        """The next living row of the agent that held this row first."""
        at = row + step
        while 0 <= at < len(self.code) and self._code_at_first[at] == self._code_at_first[row]:
            if self.alive[at]:
                return at
            at += step
        return None

    def in_period(self, row: int, start: int) -> bool:
        day = (start + int(self.offset[row])) // _DAY
        return self.first_day <= day <= self.last_day

    def local_midnight(self, row: int, day: int) -> int:
        """UTC microseconds of a local midnight, by the clock of a row."""
        return day * _DAY - int(self.offset[row])

    def same_place(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        lat, lon = self.pool["lat"].to_numpy(), self.pool["lon"].to_numpy()
        return (lat[a] == lat[b]) & (lon[a] == lon[b]) & (self.category[a] == self.category[b])

    def rare_place(self, row: int, rng: np.random.Generator) -> int:
        """A random place of one of the least visited categories, another than the row's."""
        codes = np.unique(self.category[self.rare])
        codes = codes[codes != self.category[self.space[row]]]
        if not len(codes):
            return self.any_place(rng)
        places = self.rare[self.category[self.rare] == rng.choice(codes)]
        return int(rng.choice(places))

    def any_place(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.first_place, self.pool.num_rows))

    # ------------------------------------------------------------------------------------------ changing
    def mark(self, row: int, kind: str, role: str) -> None:
        if self.kind[row] is None or role == "changed":
            self.kind[row], self.role[row] = kind, role

    def move(self, row: int, place: int) -> None:
        self.space[row] = place

    def set_times(self, row: int, start: int, end: int) -> None:
        self.start[row], self.end[row] = start, end

    def remove(self, rows: np.ndarray) -> None:
        self.alive[rows] = False

    def add(self, source: int, day: int, start: int, end: int, *, place: int, kind: str) -> None:
        self.new_stays.append((source, day, start, end, place, kind))

    # ------------------------------------------------------------------------------------------- closing
    def close(self) -> tuple[pa.Table, pa.Table]:
        """The stays, sorted, with new keys where a start or an owner changed, and the labels of what changed."""
        extra = np.array([row[:5] for row in self.new_stays], np.int64).reshape(-1, 5)
        source = np.r_[np.flatnonzero(self.alive), extra[:, 0]]
        owner = np.r_[self.code[self.alive], self.code[extra[:, 0]]]
        start = np.r_[self.start[self.alive], extra[:, 2]]
        end = np.r_[self.end[self.alive], extra[:, 3]]
        space = np.r_[self.space[self.alive], extra[:, 4]]
        kind = [self.kind[row] for row in np.flatnonzero(self.alive)] + [row[5] for row in self.new_stays]
        role = [self.role[row] for row in np.flatnonzero(self.alive)] + ["inserted"] * len(self.new_stays)
        table = self._table(source, owner, start, end, space=space, new=np.arange(len(source)) >= int(self.alive.sum()))
        table = table.append_column("_kind", pa.array(kind, pa.string()))
        table = sort_events(table.append_column("_role", pa.array(role, pa.string())), "agent_id", "started_at")
        rows = table.filter(table["_kind"].is_valid())
        labels = rows.select(["stay_id", "agent_id", "started_at", "finished_at"])
        labels = labels.append_column("anomaly", pa.array(np.ones(len(labels), bool)))
        labels = labels.append_column("kind", rows["_kind"])
        labels = labels.append_column("recurring", pa.array(np.zeros(len(labels), bool)))
        return table.drop_columns(["_kind", "_role"]), labels.append_column("role", rows["_role"])

    def _table(
        self,
        source: np.ndarray,
        owner: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
        *,
        space: np.ndarray,
        new: np.ndarray,
    ) -> pa.Table:
        agents = pa.array(self.agents, self.events["agent_id"].type).take(pa.array(owner))
        starts = pa.array(start).cast(TIMESTAMP)
        columns = {"agent_id": agents, "started_at": starts, "finished_at": pa.array(end).cast(TIMESTAMP)}
        columns["stay_id"] = self._keys(agents, starts, source, owner, start=start, new=new)
        for name in self.pool.column_names:
            columns[name] = self.pool[name].take(pa.array(space))
        origin = pa.array(source)
        unknown = pa.array(source, mask=new)  # a visit that was added has no fixes
        for name in self.events.column_names:
            if name not in columns:
                columns[name] = self.events[name].take(origin if name == "timezone" else unknown)
        names = ["stay_id", *(name for name in self.events.column_names if name != "stay_id")]
        return pa.table({name: columns[name] for name in names})

    def _keys(
        self,
        agents: pa.Array,
        starts: pa.Array,
        source: np.ndarray,
        owner: np.ndarray,
        *,
        start: np.ndarray,
        new: np.ndarray,
    ) -> pa.Array:
        """Old keys where agent and start are as they were, new ones elsewhere; text where keys are text."""
        fresh = pa.array(event_keys(agents, starts))
        if "stay_id" not in self.events.column_names:
            return fresh
        old = self.events["stay_id"].combine_chunks().take(pa.array(source))
        original = self.events["started_at"].cast(pa.int64()).to_numpy()[source]
        is_same = ~new & (original == start) & (self._code_at_first[source] == owner)
        return pc.if_else(pa.array(is_same), old, fresh.cast(old.type))


def open_ledger(data: Dataset, first_day: int, last_day: int) -> Ledger:
    """The stays of a data set, sorted by agent and time."""
    if data.schema.entity != "agent_id":
        raise DataError(f"inject: stays are needed, got events of the schema '{data.schema.name}'")
    events = sort_events(data.events, "agent_id", "started_at").combine_chunks()
    code, agents = agent_codes(events["agent_id"])
    local = local_time(events["started_at"], zone_of(events, data.schema))
    start = events["started_at"].cast(TIMESTAMP).cast(pa.int64()).to_numpy().copy()
    wall = local.day.astype(np.int64) * _DAY + np.round(local.minute * 60e6).astype(np.int64)
    pool, first_place = pool_places(events, data.pois), 0 if data.pois is None else events.num_rows
    category = (
        agent_codes(pool["poi_category"].fill_null(""))[0]
        if "poi_category" in pool.column_names
        else np.zeros(pool.num_rows, np.int64)
    )
    return Ledger(
        events=events,
        pool=pool,
        category=category,
        rare=_rare_places(category, events.num_rows, first_place),
        first_place=first_place,
        agents=agents,
        code=code.copy(),
        start=start,
        end=events["finished_at"].cast(TIMESTAMP).cast(pa.int64()).to_numpy().copy(),
        day=local.day,
        offset=wall - start,
        space=np.arange(events.num_rows),
        alive=np.ones(events.num_rows, bool),
        first_day=first_day,
        last_day=last_day,
        kind=[None] * events.num_rows,
        role=[""] * events.num_rows,
    )


def pool_places(events: pa.Table, pois: pa.Table | None) -> pa.Table:
    """Spatial columns of the stays, below them those of the POIs."""
    pool = events.select([name for name in _SPATIAL if name in events.column_names])
    if pois is None:
        return pool.combine_chunks()
    as_stays = pois.rename_columns(["poi_category" if name == "category" else name for name in pois.column_names])
    columns = {
        field.name: as_stays[field.name].cast(field.type)
        if field.name in as_stays.column_names
        else pa.nulls(len(pois), field.type)
        for field in pool.schema
    }
    return pa.concat_tables([pool, pa.table(columns)]).combine_chunks()


def _rare_places(category: np.ndarray, stays: int, first_place: int) -> np.ndarray:
    """Places of the 20 least visited categories, or of the less visited half where there are no more than 20."""
    categories = np.unique(category[first_place:])
    visits = np.bincount(category[:stays], minlength=int(category.max()) + 1)[categories]
    count = RAREST if len(categories) > RAREST else max(1, len(categories) // 2)
    rarest = categories[np.argsort(visits, kind="stable")[:count]]
    return first_place + np.flatnonzero(np.isin(category[first_place:], rarest))
