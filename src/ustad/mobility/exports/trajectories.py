"""Data sets of trajectories whose rows are not fixes: Porto's taxis (a line per row), T-Drive (no heading), and
MobilityDB's text of moving points. In: the path; out: tables of fixes."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ustad.files import plain_identifiers
from ustad.mobility.columns import AGENT_NAMES
from ustad.mobility.exports.content import file_agent, open_bytes, times
from ustad.mobility.reading import Reading
from ustad.tables import DataError

BLOCK_BYTES = 16 << 20
PORTO_SECONDS = 15  # from one point of a taxi's line to the next
_BEIJING = "+08:00"  # T-Drive's wall clock
ROWS = 1 << 18
_TDRIVE_LINE = re.compile(rb"^\d+,\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,1[01]\d\.\d+,[34]\d\.\d+\s*$")
_MOVING = r"POINT\s*Z?\s*\(\s*([-+.\deE]+)\s+([-+.\deE]+)[^)]*\)\s*@\s*([^,\]\)\}\[\(]+)"
_MOVING_POINT = re.compile(_MOVING, re.IGNORECASE)
_MOVING_BYTES = re.compile(_MOVING.encode(), re.IGNORECASE)
_SRID = re.compile(r"SRID\s*=\s*(\d+)\s*;", re.IGNORECASE)


# -------------------------------------------------------------------------------------------------------- Porto
def is_porto(head: bytes, path: Path) -> bool:
    line = head.partition(b"\n")[0]
    return all(name in line for name in (b"TRIP_ID", b"TAXI_ID", b"TIMESTAMP", b"POLYLINE"))


def read_porto(path: Path, reading: Reading) -> Iterator[pa.Table]:
    reading.say(f"Porto taxis: the agent is TAXI_ID; a point every {PORTO_SECONDS} s from TIMESTAMP on")
    names = ["TAXI_ID", "TIMESTAMP", "POLYLINE"]
    kinds = {"TAXI_ID": pa.int64(), "TIMESTAMP": pa.int64(), "POLYLINE": pa.string()}
    without = 0
    try:
        with open_bytes(path) as stream:
            reader = pa_csv.open_csv(
                stream,
                read_options=pa_csv.ReadOptions(block_size=BLOCK_BYTES),
                convert_options=pa_csv.ConvertOptions(include_columns=names, column_types=kinds),
            )
            for batch in reader:
                counts = pc.subtract(pc.count_substring(batch["POLYLINE"], "["), 1).to_numpy(zero_copy_only=False)
                without += int(np.count_nonzero(counts < 1))
                yield _points_of_lines(batch, np.maximum(counts, 0), path)
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error
    if without:
        reading.say(f"Porto taxis: {without:,} trips without a point were left out")


def _points_of_lines(batch: pa.RecordBatch, counts: np.ndarray, path: Path) -> pa.Table:
    """`[[lon,lat],[lon,lat]]` of each row as points, with the times that their number in the line gives."""
    text = pc.replace_substring_regex(batch["POLYLINE"], r"[\[\]\s]", "")
    text = text.filter(pa.array(counts > 0))
    numbers = pc.list_flatten(pc.split_pattern(text, ",")).cast(pa.float64()).to_numpy(zero_copy_only=False)
    total = int(counts.sum())
    if len(numbers) != 2 * total:
        raise DataError(f"{path}: column 'POLYLINE' holds something else than a list of [longitude, latitude]")
    step = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.repeat(batch["TIMESTAMP"].to_numpy(zero_copy_only=False), counts).astype(np.int64)
    return pa.table(
        {
            "agent_id": np.repeat(batch["TAXI_ID"].to_numpy(zero_copy_only=False), counts).astype(np.int64),
            "time": times((begin + PORTO_SECONDS * step) * 1_000_000),
            "lat": numbers[1::2],
            "lon": numbers[::2],
        }
    )


# ------------------------------------------------------------------------------------------------------ T-Drive
def is_tdrive(head: bytes, path: Path) -> bool:
    return _TDRIVE_LINE.match(head.partition(b"\n")[0]) is not None


def read_tdrive(path: Path, reading: Reading) -> Iterator[pa.Table]:
    reading.say("T-Drive: taxi, time in Beijing, longitude and latitude, without a heading")
    names = ["agent_id", "time", "lon", "lat"]
    try:
        with open_bytes(path) as stream:
            reader = pa_csv.open_csv(
                stream,
                read_options=pa_csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES),
                convert_options=pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
            )
            for batch in reader:
                table = pa.Table.from_batches([batch])
                with_zone = pc.binary_join_element_wise(table["time"], pa.scalar(_BEIJING), "")
                table = table.set_column(1, "time", with_zone)
                yield table.set_column(0, "agent_id", plain_identifiers(table["agent_id"]))
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error


# --------------------------------------------------------------------------------------------------- MobilityDB
def is_mobilitydb(head: bytes, path: Path) -> bool:
    return _MOVING_BYTES.search(head[: 1 << 16]) is not None


def read_mobilitydb(path: Path, reading: Reading) -> Iterator[pa.Table]:
    """Rows of a CSV (or lines of text) with a moving point each. The agent is a column by a known name, else the
    first other column, else the file."""
    rows, count = list[tuple[str, str, str, str]](), 0
    for agent, text in _moving_rows(path, reading):
        srid = _SRID.search(text)
        if srid is not None and srid[1] not in ("4326", "0"):
            raise DataError(f"{path}: coordinates are in SRID {srid[1]}; transform them to 4326 (degrees) first")
        for lon, lat, moment in _MOVING_POINT.findall(text):
            rows.append((agent, _iso(moment), lat, lon))
        if len(rows) >= ROWS:
            yield _moving_table(rows)
            count, rows = count + len(rows), []
    if not rows and not count:
        raise DataError(f"{path}: holds no moving point such as [POINT(13.4 52.5)@2024-05-01 08:00:00+00]")
    if rows:
        yield _moving_table(rows)


def _moving_rows(path: Path, reading: Reading) -> Iterator[tuple[str, str]]:
    """Agent and moving point of each row."""
    csv.field_size_limit(min(sys.maxsize, 1 << 30))
    name = file_agent(path)
    try:
        with open_bytes(path) as stream, io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="") as text:
            first = text.readline()
            text.seek(0)
            separator = next((s for s in ("\t", ";", "|") if s in first.split("(")[0]), ",")
            lines = csv.reader(text, delimiter=separator)
            heading = [] if _MOVING_POINT.search(first) else [cell.strip().lower() for cell in next(lines, [])]
            column = next((heading.index(n) for n in ("agent_id", *AGENT_NAMES) if n in heading), 0)
            note = "the agent is the name of the file"
            for cells in lines:
                where = next((i for i, cell in enumerate(cells) if "@" in cell), None)
                if where is None:
                    continue
                if where == column or column >= len(cells):  # it is all there is, or its commas were not quoted
                    yield name, separator.join(cells[where:])
                    continue
                note = f"the agent is column {heading[column] if column < len(heading) else column + 1}"
                yield cells[column].strip(), separator.join(cells[where:])
    except (csv.Error, OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    reading.say(f"MobilityDB: moving points; {note}")


def _iso(moment: str) -> str:
    """`2001-01-01 08:00:00+00` with minutes in its offset, which ISO 8601 wants."""
    moment = moment.strip().strip('"')
    return f"{moment}:00" if re.search(r":\d\d(?:\.\d+)?[-+]\d\d$", moment) else moment


def _moving_table(rows: list[tuple[str, str, str, str]]) -> pa.Table:
    agent, time, lat, lon = (pa.chunked_array([pa.array(values)]) for values in zip(*rows, strict=True))
    return pa.table({"agent_id": plain_identifiers(agent), "time": time, "lat": lat, "lon": lon})
