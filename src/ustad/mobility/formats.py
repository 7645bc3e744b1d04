"""Files of fixes, whatever their format, as a stream of tables with their own column names.

In: paths, folders, globs. Out: `Piece`s, of at most about a million rows each, so that a file may be larger than the
memory. Formats: Parquet and GeoParquet, CSV, NDJSON (each also .gz but Parquet), GeoLife's .plt, GPX, and the exports
that `exports` knows by their content.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from ustad.files import find_table, plain_identifiers
from ustad.mobility.columns import FIX_NAMES, GEOMETRY_NAMES, match_columns, match_names, missing_columns
from ustad.mobility.delimited import read_delimited
from ustad.mobility.exports import kind_of
from ustad.mobility.reading import Reading
from ustad.mobility.whose import agent_of, by_path
from ustad.tables import FIXES, TIMESTAMP, DataError

PIECE_ROWS = 1 << 20
BLOCK_BYTES = 32 << 20
AGENT_OF_TRACKS = {"plt": "folder", "gpx": "file", "track": "file"}  # where nothing was said or chosen
#: Bytes of a row, roughly, where the number of rows is not written anywhere; compressed text holds ten times more.
ROW_BYTES = {"parquet": 8, "csv": 45, "ndjson": 90, "plt": 70, "gpx": 140, "export": 250}
UNKNOWN_KIND = (
    "unknown kind of file; expected .parquet, .csv, .ndjson, .plt, .gpx or an export that docs/your-data.md names"
)
_SUFFIXES = {
    ".parquet": "parquet", ".pq": "parquet", ".geoparquet": "parquet", ".csv": "csv", ".tsv": "csv", ".txt": "csv",
    ".ndjson": "ndjson", ".jsonl": "ndjson", ".plt": "plt", ".gpx": "gpx",
}  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """Some rows of one file."""

    where: str  # the file, and from which row on where it is not the first
    table: pa.Table


def format_of(path: Path) -> str | None:
    """parquet, csv, ndjson, plt or gpx by the file's name, or None."""
    name = path.name.lower().removesuffix(".gz")
    return _SUFFIXES.get(Path(name).suffix)


def expand(sources: Sequence[Path | str]) -> list[Path]:
    """The files behind paths, folders (all files in them that can be read; `fixes` of a data directory) and globs."""
    files: list[Path] = []
    for source in sources:
        path = Path(source)
        if path.is_dir():
            files += _files_in(path)
        elif path.exists():
            files.append(path)
        else:
            paths = sorted(Path(p) for p in glob.glob(str(source), recursive=True))
            if not paths:
                raise DataError(f"{source}: no such file or directory")
            files += expand(paths)
    unknown = next((f for f in files if format_of(f) is None and kind_of(f) is None), None)
    if unknown is not None:
        raise DataError(f"{unknown}: {UNKNOWN_KIND}")
    return files


def _files_in(path: Path) -> list[Path]:
    fixes = find_table(path, "fixes")
    if fixes is not None:
        return sorted(fixes.glob("*.parquet")) if fixes.is_dir() else [fixes]
    if find_table(path, "stays") is not None or list(path.glob("stay_points_*.parquet")):
        raise DataError(f"{path}: holds stays already, and no fixes; use it as DATA (for example `ustad train {path}`)")
    visible = sorted(f for f in path.rglob("*") if f.is_file() and not f.name.startswith("."))
    files = [f for f in visible if format_of(f) or kind_of(f)]
    if not files:
        raise DataError(f"{path}: holds no file that can be read (.parquet, .csv, .ndjson, .plt, .gpx, or an export)")
    return files


def estimate_rows(path: Path) -> int:
    """How many rows a file has: as Parquet says, else guessed from its size."""
    kind = format_of(path) or "export"
    if kind == "parquet":
        try:
            return int(pq.ParquetFile(path).metadata.num_rows)
        except (pa.ArrowInvalid, OSError):
            return 0
    return path.stat().st_size * (10 if path.name.endswith(".gz") else 1) // ROW_BYTES[kind] + 1


def pieces(path: Path, reading: Reading) -> Iterator[Piece]:
    """The rows of one file, piece by piece. An unreadable file is a DataError that names it."""
    export = kind_of(path)
    kind = export.whose if export is not None else format_of(path)
    how = reading.agents.get(str(kind), AGENT_OF_TRACKS.get(str(kind)))
    reader, first = _reader_of(path), 0
    try:
        for table in reader(path, reading):
            if how is not None and by_path(how):
                table = table.drop_columns(["agent_id"]) if export is not None else table
                table = _with_agent(table, agent_of(path, how), reading)
            yield Piece(str(path) if first == 0 else f"{path} (rows counted from {first:,})", table)
            first += table.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: cannot be read after row {first:,} ({line})") from error


def _reader_of(path: Path) -> Callable[[Path, Reading], Iterator[pa.Table]]:
    """How to read a file's fixes: by its content where that is one of the exports, else by its name."""
    export = kind_of(path)
    if export is not None and export.gives == "stays":
        raise DataError(f"{path}: holds stays already ({export.title}), not fixes; use it as DATA or extract it alone")
    name = format_of(path)
    if export is None and name is None:
        raise DataError(f"{path}: {UNKNOWN_KIND}")
    return export.read if export is not None else _READERS[str(name)]


def _with_agent(table: pa.Table, agent: str, reading: Reading) -> pa.Table:
    """The table with one agent for all rows."""
    columns = match_names(table.column_names, {"agent_id": FIX_NAMES["agent_id"]}).values()
    for name in columns:
        reading.say(f"column '{name}' was left out: the path says whose fixes they are (--agent)")
    column = pa.array([agent]).take(pa.array(np.zeros(table.num_rows, np.int32)))
    return table.drop_columns(list(columns)).append_column("agent_id", column)


def _named_columns(names: list[str], kind: str, reading: Reading) -> dict[str, str]:
    """Ours → theirs, with the column of agents that was said, if one was."""
    matches, agent_column = match_columns(names, FIX_NAMES, reading), reading.agent_column(kind)
    return {**matches, "agent_id": agent_column} if agent_column in names else matches


def _parquet(path: Path, reading: Reading) -> Iterator[pa.Table]:
    file = pq.ParquetFile(path)
    names = file.schema_arrow.names
    columns_by_name = _named_columns(names, "parquet", reading)
    columns = list(columns_by_name.values())
    if not {"lat", "lon"} <= set(columns_by_name):
        columns += [name for name in names if name.lower() in GEOMETRY_NAMES]
    there = {*columns_by_name, *(("lat", "lon") if len(columns) > len(columns_by_name) else ())}
    path_rule = by_path(reading.agents.get("parquet", ""))
    missing = [name for name in FIXES.required if name not in there and not (path_rule and name == "agent_id")]
    if missing:
        raise missing_columns(str(path), missing, names)
    for batch in file.iter_batches(batch_size=reading.piece_rows or PIECE_ROWS, columns=columns):
        yield pa.Table.from_batches([batch])


def _csv(path: Path, reading: Reading) -> Iterator[pa.Table]:
    yield from read_delimited(path, reading, FIX_NAMES, reading.agent_column("csv"))


def csv_identifiers(path: Path, name: str) -> pa.ChunkedArray:
    """One column of a CSV as identifiers: text, or integers where every one is written so."""
    kinds = pa_csv.ConvertOptions(include_columns=[name], column_types={name: pa.string()})
    return plain_identifiers(pa_csv.read_csv(path, convert_options=kinds)[name])


def _ndjson(path: Path, reading: Reading) -> Iterator[pa.Table]:
    options = json_options(path)
    with pa.input_stream(str(path)) as stream:  # decompresses by the file's name
        size = pa_json.ReadOptions(block_size=BLOCK_BYTES)
        for batch in pa_json.open_json(stream, read_options=size, parse_options=options):
            yield pa.Table.from_batches([batch])


def json_options(path: Path) -> pa_json.ParseOptions:
    """Text stays text: the JSON reader would turn times into timestamps and lose their zone."""
    with pa.input_stream(str(path)) as stream:
        first = stream.read(1 << 20).partition(b"\n")[0]
    try:
        row = json.loads(first)
    except ValueError as error:
        raise DataError(f"{path}: the first line is not JSON ({error})") from error
    if not isinstance(row, dict):
        raise DataError(f"{path}: the first line is not a JSON object; expected one object per line")
    text = [(name, pa.string()) for name, value in row.items() if isinstance(value, str)]
    try:
        return pa_json.ParseOptions(explicit_schema=pa.schema(text), unexpected_field_behavior="infer")
    except UnicodeEncodeError as error:
        raise DataError(f"{path}: a name in the first line is no text; write it again as UTF-8") from error


def _plt(path: Path, reading: Reading) -> Iterator[pa.Table]:
    """GeoLife: six lines of heading, then lat, lon, 0, altitude, days, date, time (GMT)."""
    names = ["lat", "lon", "zero", "altitude", "days", "date", "clock"]
    kinds = {**dict.fromkeys(names[:2], pa.string()), **dict.fromkeys(names[5:], pa.string())}
    table = pa_csv.read_csv(
        path,
        read_options=pa_csv.ReadOptions(skip_rows=6, column_names=names),
        convert_options=pa_csv.ConvertOptions(column_types=kinds, include_columns=["lat", "lon", "date", "clock"]),
    )
    moment = pc.binary_join_element_wise(table["date"], table["clock"], "T").cast(pa.string())
    moment = pc.binary_join_element_wise(moment, pa.scalar("Z"), "")
    how = reading.agents.get("plt", AGENT_OF_TRACKS["plt"])
    reading.say(f"GeoLife: the agent is {f'the name of the {how}' if '(' not in how else 'in the path'}, times are GMT")
    yield pa.table({"time": moment, "lat": table["lat"], "lon": table["lon"]})


def _gpx(path: Path, reading: Reading) -> Iterator[pa.Table]:
    """All tracks of a file. GPX does not say whose they are: its path does."""
    try:
        import gpxpy
    except ImportError as error:
        raise DataError(f"{path}: reading GPX needs gpxpy; install it with pip install 'ustad[geo]'") from error
    try:
        gpx = gpxpy.parse(path.read_text())
    except gpxpy.gpx.GPXException as error:
        raise DataError(f"{path}: not valid GPX ({error})") from error
    points = [p for track in gpx.tracks for segment in track.segments for p in segment.points]
    if not points:
        raise DataError(f"{path}: the GPX file holds no track points")
    times = [p.time for p in points]
    naive = any(t is not None and t.tzinfo is None for t in times)
    yield pa.table(
        {
            "time": pa.array(times, pa.timestamp("us") if naive else TIMESTAMP),
            "lat": pa.array([p.latitude for p in points]),
            "lon": pa.array([p.longitude for p in points]),
        }
    )


_READERS: dict[str, Callable[[Path, Reading], Iterator[pa.Table]]] = {
    "parquet": _parquet, "csv": _csv, "ndjson": _ndjson, "plt": _plt, "gpx": _gpx,
}  # fmt: skip
