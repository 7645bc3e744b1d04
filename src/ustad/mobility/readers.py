"""`open_data`: whatever DATA is, as a validated `Dataset`.

In: a data directory, a NUMOSIM directory, a file of stays (Parquet, GeoParquet, CSV, NDJSON) or, with a schema, a
table of any events. Out: a `Dataset` whose stays keep the contract, in order of agent and start.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from ustad.clock import check_zone, is_zone, local_time
from ustad.dataset import COMPANIONS, Dataset, load_directory, require_zone
from ustad.files import as_table, find_table, set_columns
from ustad.mobility.columns import STAY_NAMES, as_stays, refuse_other_bytes
from ustad.mobility.delimited import read_delimited
from ustad.mobility.exports import kind_of, read_given_stays
from ustad.mobility.formats import csv_identifiers, format_of, json_options
from ustad.mobility.numosim import is_numosim, read_numosim
from ustad.mobility.places import UNKNOWN
from ustad.mobility.plausible import implausible_times
from ustad.mobility.reading import Reading, Times
from ustad.mobility.times import holds_numbers, no_times, to_utc
from ustad.mobility.timezones import with_timezone
from ustad.progress import say, warn
from ustad.schema import EventSchema
from ustad.tables import Complaints, DataError, OnError, agent_codes, check_overlaps, event_keys, sort_events


def open_data(
    path: Any, schema: EventSchema | None = None, timezone: str | None = None, on_error: OnError = "fail",
    *, times: Times = "utc", companions: Collection[str] = COMPANIONS,
) -> Dataset:  # fmt: skip
    """Open and validate data. What was mapped, guessed or dropped is in `meta["notes"]` and shown as progress.

    `timezone` is the zone of naive times. A stay without a zone gets that of its coordinates. Of what lies beside the
    stays only the `companions` named are read: trips with their paths are most of a large directory.
    """
    if timezone is not None:
        check_zone(timezone)
    reading = Reading(timezone, times, on_error)
    data = _open(path, schema, reading, companions)
    for note in reading.notes:
        (warn if note.startswith("dropped") else say)(f"{data.name}: {note}")
    return data


def _open(path: Any, schema: EventSchema | None, reading: Reading, companions: Collection[str]) -> Dataset:
    if schema is not None and schema.name != "mobility":
        return _any_events(path, schema, reading)
    if not isinstance(path, (str, Path)):
        return Dataset(events=check_stays(path, "stays", reading), meta=_meta("stays", reading))
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or directory")
    if not path.is_dir():
        events = check_stays(_read_file(path, reading), str(path), reading)
        return Dataset(events=events, meta=_meta(path.stem, reading), path=path)
    if is_numosim(path):
        return read_numosim(path, reading)
    return _directory(path, reading, companions)


def _meta(name: str, reading: Reading) -> dict[str, Any]:
    return {"name": name, "timezone": reading.timezone, "notes": reading.notes}


def _directory(path: Path, reading: Reading, companions: Collection[str]) -> Dataset:
    if find_table(path, "stays") is None and find_table(path, "fixes") is not None:
        raise DataError(f"{path}: holds fixes, not stays; run `ustad extract {path} --out DIR` first")
    data = load_directory(path, companions)
    zone = data.meta.get("timezone")
    reading.timezone = reading.timezone or zone
    return replace(data, events=check_stays(data.events, f"{path}/stays", reading, zone))


def _read_file(path: Path, reading: Reading, stays: bool = True) -> pa.Table:
    """The table in a file: of stays, by what is known of their columns, or of any events, as it is."""
    export = kind_of(path)
    if export is not None and export.gives == "stays":
        return read_given_stays([path], reading)
    kind = "export" if export is not None else format_of(path)
    if kind == "parquet":
        import pyarrow.parquet as pq

        try:
            return pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error
    if kind == "ndjson":
        try:
            with pa.input_stream(str(path)) as stream:
                return pa_json.read_json(stream, parse_options=json_options(path))
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error
    if kind in ("plt", "gpx", "export"):
        raise DataError(f"{path}: holds fixes, not stays; run `ustad extract {path} --out DIR` first")
    if kind == "csv" and stays:
        return _delimited_stays(path, reading)
    return as_table(path)


def _delimited_stays(path: Path, reading: Reading) -> pa.Table:
    try:
        return pa.concat_tables(read_delimited(path, reading, STAY_NAMES), promote_options="permissive")
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error


def check_stays(source: Any, where: str, reading: Reading, zone: str | None = None) -> pa.Table:
    """The whole contract: names, types, rows, order, overlaps; then the columns that may have been left out.

    `zone` is that of stays that have none, where the data says so.
    """
    table = as_table(source, where)
    if table.num_rows == 0:
        raise DataError(f"{where}: the table is empty")
    refuse_other_bytes(table, where)
    _refuse_fixes(table, where)
    stays = as_stays(table, where, reading)
    complaints = Complaints(where, reading.on_error)
    stays = check_overlaps(stays, complaints)
    reading.count(complaints)
    stays = _identify(stays, reading)
    stays = with_timezone(stays, zone, reading)
    return _categorise(mark_cut(stays, reading), reading)


def mark_cut(stays: pa.Table, reading: Reading) -> pa.Table:
    """Stays that the data's own first or last midnight cut are not known to begin or end there.

    Which stays are cut off by the edge of the data: an agent's first stay that begins at a local midnight, and its last
    that ends at one. A night at home is not over because the month is. Only for tables that do not say what was
    observed. The table is in order.
    """
    if {"start_gap_s", "end_gap_s"} & set(stays.column_names):
        return stays
    agent = agent_codes(stays["agent_id"])[0]
    first, last = np.flatnonzero(np.diff(agent, prepend=-1)), np.flatnonzero(np.diff(agent, append=-1))
    cut_first = first[_at_midnight(stays, "started_at", first)]
    cut_last = last[_at_midnight(stays, "finished_at", last)]
    if not len(cut_first) + len(cut_last):
        return stays
    gaps = np.full((2, stays.num_rows), np.nan)  # a gap that is not told beside one that is: nothing bounds it
    gaps[1, cut_first], gaps[0, cut_last] = 0.0, 0.0
    reading.say(f"{len(cut_first) + len(cut_last):,} stays are cut at the first or last midnight of their agent's data")
    start, end = (pa.array(values, from_pandas=True) for values in gaps)
    return set_columns(stays, start_gap_s=start, end_gap_s=end)


def _at_midnight(stays: pa.Table, column: str, rows: np.ndarray) -> np.ndarray:
    some = stays.take(pa.array(rows))
    return local_time(some[column], pc.fill_null(some["timezone"], "UTC")).minute == 0


def _refuse_fixes(table: pa.Table, where: str) -> None:
    names = {n.lower() for n in table.column_names}
    ends = {"finished_at", "end_datetime", "leaving_datetime", "end_time", "left_at", "departure", "end"}
    if not names & ends and names & {"time", "tracked_at", "timestamp", "t", "datetime"}:
        raise DataError(
            f"{where}: looks like fixes (times without an end); run `ustad extract {where} --out DIR` first"
        )


def _identify(stays: pa.Table, reading: Reading) -> pa.Table:
    """`stay_id` from agent and start where there is none, or where it does not tell stays apart."""
    if "stay_id" in stays.column_names and stays["stay_id"].null_count == 0:
        if pc.count_distinct(stays["stay_id"]).as_py() == stays.num_rows:
            return stays
        reading.say("column 'stay_id' repeats values: replaced by keys of agent and start")
    return set_columns(stays, stay_id=pa.array(event_keys(stays["agent_id"], stays["started_at"])))


def _categorise(stays: pa.Table, reading: Reading) -> pa.Table:
    if "poi_category" not in stays.column_names:
        reading.say(f"no column of categories: poi_category is '{UNKNOWN}' for all")
        categories: Any = pa.array([UNKNOWN]).take(pa.array([0] * stays.num_rows, pa.int32()))
    else:
        categories = pc.fill_null(stays["poi_category"], UNKNOWN)
    stays = set_columns(stays, poi_category=categories)
    if "poi_id" not in stays.column_names:
        stays = stays.append_column("poi_id", pa.nulls(stays.num_rows, pa.string()))
    return stays


def _any_events(path: Any, schema: EventSchema, reading: Reading) -> Dataset:
    """A table of any events: the schema's columns are there, the time has a zone, rows are in order."""
    is_path = isinstance(path, (str, Path))
    where = str(path) if is_path else schema.name
    table = _read_file(Path(path), reading, stays=False) if is_path and Path(path).is_file() else as_table(path, where)
    missing = [c for c in schema.columns if c not in table.column_names]
    if missing:
        raise DataError(
            f"{where}: missing column{'s' if len(missing) > 1 else ''} {', '.join(missing)} of schema '{schema.name}'; "
            f"found {', '.join(table.column_names)}"
        )
    if table.num_rows == 0:
        raise DataError(f"{where}: the table is empty")
    if is_path and format_of(Path(path)) == "csv":
        table = set_columns(table, **{schema.entity: csv_identifiers(Path(path), schema.entity)})
    require_zone(table, schema)
    if reading.timezone is None and schema.timezone not in table.column_names and is_zone(schema.timezone):
        reading.timezone = schema.timezone
    complaints = Complaints(where, reading.on_error)
    for name in (schema.time, schema.end):
        if name is not None:
            theirs, ours = table[name], _moments(table[name], where, name, reading)
            table = set_columns(table, **{name: ours})
            table = complaints.check(table, *_name_complaint(name, no_times(theirs, ours)))
            if holds_numbers(theirs):  # whose unit is a guess
                table = complaints.check(table, *_name_complaint(name, implausible_times(table[name])))
    for name in (schema.entity, schema.time):
        bad = pc.is_null(table[name], nan_is_null=True).to_numpy(zero_copy_only=False)
        table = complaints.check(table, bad, name, "are missing")
    reading.count(complaints)
    table = sort_events(table, schema.entity, schema.time)
    meta = _meta(Path(path).stem if is_path else schema.name, reading)
    return Dataset(events=table, schema=schema, meta=meta, path=Path(path) if is_path else None)


def _name_complaint(name: str, complaint: tuple[np.ndarray, str]) -> tuple[np.ndarray, str, str]:
    return complaint[0], name, complaint[1]


def _moments(column: pa.ChunkedArray, where: str, name: str, reading: Reading) -> pa.ChunkedArray:
    moments = to_utc(column, where, name, reading)
    if not pa.types.is_timestamp(moments.type):
        raise DataError(f"{where}: column '{name}' is {column.type}, expected times with a time zone")
    if moments.type.tz is None:
        raise DataError(f"{where}: column '{name}' has times without a time zone; say which with --timezone")
    return moments
