"""The events to score or to learn from, as buckets of whole entities: divided, then checked bucket by bucket.

In: a data directory, a Parquet file or a folder of parts on any file system; whatever else `open_data` reads passes
through this process. Out: one validated table of events (and one of trips) per bucket, and a calendar of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import MICROSECONDS_PER_DAY
from ustad.dataset import Dataset, event_days
from ustad.engine import buckets
from ustad.engine.folder import Place, is_uri
from ustad.engine.jobs import Job, Task
from ustad.files import set_columns
from ustad.mobility.columns import STAY_NAMES, match_names
from ustad.mobility.numosim import is_numosim
from ustad.mobility.readers import open_data
from ustad.progress import say
from ustad.schema import EventSchema, mobility_schema
from ustad.tables import DataError, OnError, event_keys, first_line

#: Events of one bucket, about: scoring them takes a CPU core some minutes and about a gigabyte.
BUCKET_ROWS = 100_000


@dataclass(frozen=True)
class Source:
    """What is read: files of events and of trips, what is known about them, and how to take them."""

    name: str
    schema: EventSchema
    events: tuple[Place, ...]
    trips: tuple[Place, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    timezone: str | None = None
    on_error: OnError = "fail"
    has_trips: bool = False
    dataset: Dataset | None = None  # where it had to be opened here
    is_valid: bool = False  # it was validated when it was opened

    def stamp(self) -> list[Any]:
        """What tells whether the data are those of an earlier run."""
        infos = [f.filesystem.get_file_info(f.root) for f in (*self.events, *self.trips)]
        content: list[Any] = [[i.path, i.size, i.mtime_ns] for i in infos]
        if self.dataset is not None:
            times = pc.sum(self.dataset.events[self.schema.time].cast(pa.int64())).as_py()
            content.append([self.dataset.events.num_rows, times])
        return [content, self.schema.to_dict(), self.meta, self.timezone, self.on_error]


@dataclass(frozen=True)
class Buckets:
    """Validated events by bucket, and which days they lie on."""

    place: Place
    number: int  # of buckets
    numbers: tuple[int, ...]  # of those that hold something
    days: np.ndarray  # int64 [n, 4]: local day, events, first and last UTC day of these
    source: Source
    has_new_ids: bool  # event identifiers do not tell events apart: they become keys of entity and time
    notes: tuple[str, ...] = ()

    def dataset(self) -> Dataset:
        """The whole as far as its days and what was said about it go; it has no rows."""
        return _Calendar(pa.table({}), self.source.schema, meta=self.source.meta, path=None, event_days=self.days[:, 0])

    def read(self, number: int) -> Dataset:
        """One bucket."""
        name = f"{number:05d}.parquet"
        events = self.place.read_table(f"events/{name}")
        if self.has_new_ids:
            keys = event_keys(events["agent_id"], events["started_at"])
            events = set_columns(events, stay_id=pa.array(keys))
        trips = self.place.read_table(f"trips/{name}") if self.source.has_trips else None
        return Dataset(events, self.source.schema, trips, meta=self.source.meta)

    def span(self, first: int | None = None, last: int | None = None) -> np.ndarray:
        """The rows of `days` that lie in [first, last]."""
        day = self.days[:, 0]
        is_inside = np.ones(len(day), bool) if first is None else day >= first
        return self.days[is_inside if last is None else is_inside & (day <= last)]


@dataclass(frozen=True)
class _Calendar(Dataset):
    event_days: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def days(self) -> np.ndarray:
        return self.event_days


# ------------------------------------------------------------------------------------------------- finding
def find(
    data: Any, schema: EventSchema | None = None, timezone: str | None = None, on_error: OnError = "fail"
) -> Source:
    """What `data` is. Parquet is read by the workers; anything else is opened here."""
    if not isinstance(data, (str, Path, Place)):
        return _open_here(data, schema, timezone, on_error)
    place = Place.of(data)
    if not place.exists():
        raise DataError(f"{data}: no such file or directory")
    event_schema = schema or mobility_schema()
    if place.is_folder() and event_schema.name == "mobility" and _table(place, "stays"):
        meta = place.read_json("meta.json") if place.exists("meta.json") else {}
        zone = timezone or meta.get("timezone")
        stays, trips = _table(place, "stays"), _table(place, "trips")
        return Source(place.name, event_schema, stays, trips, meta, zone, on_error, bool(trips))
    files = (place,) if not place.is_folder() else tuple(place / i.base_name for i in place.files("", ".parquet"))
    if files and all(f.name.endswith((".parquet", ".pq")) for f in files) and not _is_numosim(place):
        meta = {"name": place.name.removesuffix(".parquet"), "timezone": timezone}
        return Source(place.name, event_schema, files, (), meta, timezone, on_error)
    if is_uri(str(data)) and not place.local:
        raise DataError(f"{data}: holds no Parquet; other formats are read from local paths only")
    return _open_here(place.path if isinstance(data, Place) else data, schema, timezone, on_error)


def _table(place: Place, name: str) -> tuple[Place, ...]:
    if place.exists(f"{name}.parquet"):
        return (place / f"{name}.parquet",)
    return tuple(place / name / i.base_name for i in place.files(name, ".parquet"))


def _is_numosim(place: Place) -> bool:
    return place.local and place.path.is_dir() and is_numosim(place.path)


def _open_here(data: Any, schema: EventSchema | None, timezone: str | None, on_error: OnError) -> Source:
    say("this format is read by one process; a data directory or Parquet parts are read by all")
    dataset = data if isinstance(data, Dataset) else open_data(data, schema, timezone, on_error)
    files = (Place.of(dataset.path),) if dataset.path is not None and dataset.path.is_file() else ()
    trips = dataset.trips is not None
    return Source(dataset.name, dataset.schema, files, (), dataset.meta, timezone, on_error, trips, dataset, True)


# ------------------------------------------------------------------------------------------------ dividing
def divide(job: Job, source: Source, partitions: int | None = None) -> Buckets:
    """Divide and check: every bucket holds all events of its entities, in order."""
    number = partitions or buckets.how_many(_rows(source), BUCKET_ROWS)
    place = job.place / "buckets"
    events, trips = (_divide(job, source, kind, number) for kind in ("events", "trips"))
    tasks = [Task(f"{b:05d}", (b, pieces, trips.get(b, []))) for b, pieces in events.items()]
    lean = replace(source, dataset=None)
    results = job.run(
        "check", tasks, _check, (job.place / "exchange", place, lean), label="checking events, partitions"
    )
    days = np.array([d for one in results for d in one["days"]], np.int64).reshape(-1, 4)
    if not len(days):
        raise DataError(f"{source.name}: no usable event")
    notes = tuple(dict.fromkeys(note for one in results for note in one["notes"]))
    for note in notes:
        say(f"{source.name}: {note}")
    return Buckets(place, number, tuple(events), _sum_days(days), lean, any(one["repeats"] for one in results), notes)


def _divide(job: Job, source: Source, kind: str, number: int) -> dict[int, list[str]]:
    exchange = job.place / "exchange" / kind
    if source.dataset is not None:
        table = source.dataset.events if kind == "events" else source.dataset.trips
        numbers = (
            buckets.write(exchange, table, "000000", source.schema.entity, buckets=number) if table is not None else []
        )
        return buckets.contents([("000000", numbers)])
    files = source.events if kind == "events" else source.trips
    tasks = [Task(f"{i:06d}", (f"{i:06d}", file)) for i, file in enumerate(files)]
    context = (exchange, kind, replace(source, dataset=None), number)
    results = job.run(f"divide-{kind}", tasks, _divide_file, context, label=f"dividing {kind}, files")
    return buckets.contents([(piece, numbers) for one in results for piece, numbers in one["pieces"]])


def _rows(source: Source) -> int:
    if source.dataset is not None:
        return int(source.dataset.events.num_rows)
    import pyarrow.parquet as pq

    try:
        return sum(pq.read_metadata(f.root, filesystem=f.filesystem).num_rows for f in source.events)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{source.name}: cannot be read ({first_line(error)})") from error


def _sum_days(days: np.ndarray) -> np.ndarray:
    """One row per local day."""
    order = np.argsort(days[:, 0], kind="stable")
    days = days[order]
    first = np.flatnonzero(np.diff(days[:, 0], prepend=days[0, 0] - 1))
    columns = (np.add.reduceat(days[:, 1], first), np.minimum.reduceat(days[:, 2], first))
    return np.stack([days[first, 0], *columns, np.maximum.reduceat(days[:, 3], first)], axis=1)


# ---------------------------------------------------------------------------------------------- on workers
def _divide_file(payload: tuple[str, Place], context: tuple[Place, str, Source, int]) -> dict[str, Any]:
    """The row groups of one Parquet file, each into its buckets."""
    import pyarrow.parquet as pq

    (number, file), (exchange, kind, source, count) = payload, context
    numbers = []
    try:
        with pq.ParquetFile(file.root, filesystem=file.filesystem) as parquet:
            for i, batch in enumerate(parquet.iter_batches(1 << 19)):
                table = pa.Table.from_batches([batch])
                piece, entity = f"{number}-{i:04d}", _entity(table, kind, source, file)
                numbers.append((piece, buckets.write(exchange, table, piece, entity, buckets=count)))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file}: cannot be read ({first_line(error)})") from error
    return {"pieces": numbers}


def _entity(table: pa.Table, kind: str, source: Source, file: Place) -> str:
    """The column that says whose event it is; stays may have it under a neighbour's name."""
    name = source.schema.entity
    if source.schema.name == "mobility" and kind == "events":
        name = match_names(table.column_names, STAY_NAMES).get("agent_id", name)
    if name not in table.column_names:
        raise DataError(f"{file}: missing column {name}; found {', '.join(table.column_names) or 'no columns'}")
    return name


def _check(payload: tuple[int, Sequence[str], Sequence[str]], context: tuple[Place, Place, Source]) -> dict[str, Any]:
    """One bucket by the contract: `open_data` of its rows; which days they lie on."""
    (number, pieces, trips), (exchange, place, source) = payload, context
    tables = buckets.read(exchange / "events", number, pieces)
    table = pa.concat_tables(tables, promote_options="permissive")
    data = Dataset(table, source.schema, meta={"notes": []}) if source.is_valid else _validate(table, source)
    name = f"{number:05d}.parquet"
    place.write_table(data.events, f"events/{name}")
    if source.has_trips:
        parts = buckets.read(exchange / "trips", number, trips)
        place.write_table(pa.concat_tables(parts) if parts else _no_trips(), f"trips/{name}")
    notes = data.meta["notes"]
    return {"days": _days(data), "notes": notes, "repeats": any("repeats values" in note for note in notes)}


def _validate(table: pa.Table, source: Source) -> Dataset:
    try:
        return open_data(table, source.schema, source.timezone, source.on_error)
    except DataError as error:
        raise DataError(f"{source.name}: {error}") from error


def _no_trips() -> pa.Table:
    from ustad.tables import TRIPS

    kinds = {n: k or pa.int64() for n, k in TRIPS.columns.items()}
    return pa.schema(list(kinds.items())).empty_table()


def _days(data: Dataset) -> list[list[int]]:
    """Events per local day, and the first and last UTC day of these."""
    local = event_days(data.events, data.schema).astype(np.int64)
    utc = pc.cast(data.events[data.schema.time], pa.int64()).to_numpy() // MICROSECONDS_PER_DAY
    return _sum_days(np.stack([local, np.ones_like(local), utc, utc], axis=1)).tolist()
