"""`ustad extract --engine ray`: files of fixes to a data directory, in partitions of whole agents.

First every file is read, validated and divided among buckets of agents; then every bucket becomes one part of each
table. Both steps call what the local extraction calls, so the stays are the same.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ustad.config import ExtractionConfig
from ustad.engine import buckets
from ustad.engine.cluster import connect
from ustad.engine.folder import Place, is_uri, on_this_machine
from ustad.engine.jobs import Job, Task
from ustad.mobility.extraction import (
    PARTITION_ROWS,
    TABLES,
    Setting,
    collect,
    extract_partition,
    fit_config,
    make_setting,
    sample_pieces,
    valid_pieces,
)
from ustad.mobility.extraction import extract as extract_here
from ustad.mobility.fix_store import AgentNumbers, MemoryStore
from ustad.mobility.formats import estimate_rows, expand, format_of
from ustad.mobility.given_stays import choose_files, is_for_one_machine
from ustad.mobility.layout import Layout
from ustad.mobility.parameters import Wish
from ustad.mobility.publish import TABLES as REPLACED
from ustad.mobility.publish import check_places, check_target, publish, source_meta, source_pois
from ustad.mobility.reading import Reading, Times
from ustad.mobility.summary import ExtractionSummary, PartCount, add_count, add_dropped, count_partition, describe
from ustad.mobility.whose import choose_agents
from ustad.progress import say
from ustad.tables import DataError, OnError


@dataclass(frozen=True)
class _Context:
    """What every task of a job knows."""

    setting: Setting
    exchange: Place
    tables: Place
    buckets: int
    as_text: bool = False


def extract(
    sources: Sequence[Path | str] | Path | str, out: Path | str, config: ExtractionConfig | Wish | None = None,
    pois: Any = None, *, timezone: str | None = None, on_error: OnError = "fail", workers: int = 0,
    times: Times = "utc", address: str | None = None, partitions: int | None = None,
    places: Sequence[Path | str] = (), agent: str | None = None, layout: Layout | None = None,
) -> ExtractionSummary:  # fmt: skip
    """Extract on a Ray cluster; sources and `out` may be URIs (`s3://bucket/fixes`). Otherwise as the local `extract`.

    `workers` is the number of tasks at the same time (0: as many as fit), `partitions` that of the agents' parts.
    """
    began, place = time.monotonic(), Place.of(out)
    source_list = [sources] if isinstance(sources, (str, Path)) else list(sources)
    if not any(is_uri(source) for source in source_list) and is_for_one_machine(source_list):
        say("archives and exports that hold stays are read by this machine alone, without Ray")
        with on_this_machine(place, "meta.json") as folder:
            summary = extract_here(
                source_list, folder, config, pois, timezone=timezone, on_error=on_error, workers=workers, times=times,
                places=places, agent=agent, layout=layout,
            )  # fmt: skip
        return replace(summary, out=Path(str(out)))
    files, rows, meta, near = _files(source_list, place)
    elsewhere = [Place.of(p) for p in places]
    check_places([p.root for p in elsewhere if p.filesystem.equals(place.filesystem)], Path(place.root))
    zone = meta.get("timezone")
    pois = pois if pois is not None else near
    reading = Reading(timezone or zone, times, on_error, layout=layout or Layout())
    if all(file.local for file in files):
        files = [Place.of(path) for path in choose_files([file.path for file in files], reading)[0]]
    choose_agents([Path(f.root) for f in files], agent, reading)
    if not isinstance(config, ExtractionConfig):
        config = fit_config(_sample(files, reading), config, reading)
    setting = make_setting(
        config, pois.read_table("") if isinstance(pois, Place) else pois, zone,
        reading, places=[_stays_of(Place.of(p)) if is_uri(p) else p for p in places],
    )  # fmt: skip
    number = partitions or buckets.how_many(rows, PARTITION_ROWS)
    with connect(address, workers) as cluster:
        choices = [
            timezone,
            times,
            on_error,
            reading.agents,
            asdict(reading.layout),
            number,
            meta,
            _stamps(pois),
            [_stamps(p) for p in elsewhere],
        ]
        identity = [[_stamp(f) for f in files], setting.config, *choices]
        job = Job.open(place, "extract", identity, cluster)
        context = _Context(setting, job.place / "exchange", job.place / "tables", number)
        summary = ExtractionSummary(Path(str(out)), files=len(files))
        _extract(job, files, context, summary, split=meta.get("split"))
        summary.notes, summary.seconds = setting.reading.notes, time.monotonic() - began
        if setting.pois is not None:
            context.tables.write_table(setting.pois.pois, "pois.parquet")
        job.finish()
        meta = describe(summary, setting, meta)
        if place.local:
            publish(context.tables.path, place.path, meta)
        else:
            place.replace_tables(REPLACED, context.tables, "meta.json", meta)
        job.close()
    setting.reading.warn_of_bad_rows()
    return summary


def _sample(files: list[Place], reading: Reading) -> Iterator[pa.Table]:
    for file in files:
        with _local_copy(file) as path:
            yield from sample_pieces([path], reading)


def _extract(
    job: Job, files: list[Place], context: _Context, summary: ExtractionSummary, *, split: dict[str, Any] | None
) -> None:  # fmt: skip
    reading = context.setting.reading
    tasks = [Task(f"{i:06d}", (f"{i:06d}", file)) for i, file in enumerate(files)]
    read = job.run("read", tasks, _read, context, label="reading fixes, files")
    for result in read:
        summary.fixes += result["fixes"]
        for why, count in result["dropped"].items():
            add_dropped(summary, why, count)
        for note in result["notes"]:
            reading.say(note)
    if not summary.fixes:
        losses = [note for note in reading.notes if note.startswith(("dropped", "skipped"))]
        raise DataError(
            f"{files[0]}: no usable fix in {len(files)} file(s); {losses[-1] if losses else 'they hold no row'}"
        )
    kinds = {kind for result in read for kind in result["kinds"]}
    if len(kinds) > 1:
        reading.say("agents are integers in some places and text in others: all were taken as text")
    ends = [t for result in read for t in result["span"]]
    setting = context.setting.before_test((min(ends), max(ends)) if ends else None, split)
    context = replace(context, setting=setting, as_text=kinds != {"int64"})
    pieces_of = buckets.contents([(piece, numbers) for result in read for piece, numbers in result["pieces"]])
    parts = [Task(f"{number:05d}", (number, pieces)) for number, pieces in pieces_of.items()]
    for result in job.run("stays", parts, _stays, context, label="finding stays, partitions"):
        for note in result.pop("notes"):
            reading.say(note)
        for part in result["parts"]:
            summary.agents += part["agents"]
            add_count(summary, PartCount(**part))


# ----------------------------------------------------------------------------------------------- on workers
def _read(payload: tuple[str, Place], context: _Context) -> dict[str, Any]:
    """Valid fixes of one file into the buckets."""
    number, file = payload
    reading = replace(context.setting.reading, notes=[], bad_rows=0)
    summary, agents = ExtractionSummary(Path(file.name)), AgentNumbers()
    pieces: list[tuple[str, list[int]]] = []
    kinds: set[str] = set()
    with _local_copy(file) as path:
        for i, table in enumerate(valid_pieces([path], reading, summary)):
            if not table.num_rows:
                continue
            piece = f"{number}-{i:04d}"
            pieces.append((piece, buckets.write(context.exchange, table, piece, "agent_id", buckets=context.buckets)))
            kinds.add(str(table["agent_id"].type))
            agents.see(table["time"].cast(pa.int64()).to_numpy())
            summary.fixes += table.num_rows
    add_dropped(summary, "bad rows", reading.bad_rows)
    return {
        "fixes": summary.fixes,
        "dropped": summary.dropped,
        "notes": reading.notes,
        "kinds": sorted(kinds),
        "span": list(agents.span or ()),
        "pieces": pieces,
    }


def _stays(payload: tuple[int, list[str]], context: _Context) -> dict[str, Any]:
    """One bucket's part of each table."""
    number, pieces = payload
    setting = replace(context.setting, reading=replace(context.setting.reading, notes=[], bad_rows=0))
    store, agents = MemoryStore(), AgentNumbers()
    for table in buckets.read(context.exchange, number, pieces):
        collect(_texts(table) if context.as_text else table, store, agents, setting.config)
    tables: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    counts: list[PartCount] = []
    for part in store.partitions(agents, PARTITION_ROWS):
        part_tables = extract_partition(part, setting)
        counts.append(count_partition(part, part_tables))
        for name in TABLES:
            tables[name].append(part_tables[name])
    for name in TABLES:
        context.tables.write_table(pa.concat_tables(tables[name]), f"{name}/part-{number:05d}.parquet")
    return {"parts": [asdict(c) for c in counts], "notes": setting.reading.notes}


def _texts(table: pa.Table) -> pa.Table:
    return table.set_column(table.column_names.index("agent_id"), "agent_id", table["agent_id"].cast(pa.string()))


@contextmanager
def _local_copy(file: Place) -> Iterator[Path]:
    """A path to read: the file itself where it is local, else a copy. The copy keeps the names of the file and its
    folders, because they may say whose fixes it holds."""
    if file.local:
        yield file.path
        return
    folder = Path(tempfile.mkdtemp(prefix="ustad-"))
    try:
        path = folder.joinpath(*Path(file.root).parts[-3:])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.read_bytes(""))
        yield path
    except DataError as error:
        raise DataError(str(error).replace(str(path), str(file))) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------------------------------- sources and results
def _files(source_list: list[Path | str], out: Place) -> tuple[list[Place], int, dict[str, Any], Any]:
    """The files to read, about how many rows they have, what the source says of itself, and its POIs."""
    if not any(is_uri(source) for source in source_list):
        paths = expand(source_list)
        paths = check_target(source_list, paths, out.path) if out.local else paths
        rows = sum(estimate_rows(path) for path in paths)
        return [Place.of(path) for path in paths], rows, source_meta(source_list), source_pois(source_list)
    all_files: list[Place] = []
    meta: dict[str, Any] = {}
    pois: Place | None = None
    for source in source_list:
        place = Place.of(source)
        files, remote_meta, near = _remote(place)
        all_files, meta, pois = all_files + files, meta or remote_meta, pois if pois is not None else near
        if str(place) == str(out):
            raise DataError(f"{out}: is where the fixes come from; choose another --out")
    # A compressed row of fixes takes about ten bytes.
    return all_files, sum(f.filesystem.get_file_info(f.root).size for f in all_files) // 10, meta, pois


def _remote(place: Place) -> tuple[list[Place], dict[str, Any], Place | None]:
    """The files behind a URI: one file, a folder of files, or a data directory with fixes."""
    if not place.exists():
        raise DataError(f"{place}: no such file or folder")
    if not place.is_folder():
        return [place], {}, None
    meta = place.read_json("meta.json") if place.exists("meta.json") else {}
    pois = place / "pois.parquet" if place.exists("pois.parquet") else None
    if place.exists("fixes.parquet"):
        return [place / "fixes.parquet"], meta, pois
    folder = place / "fixes" if place.is_folder("fixes") else place
    files = [folder / i.base_name for i in folder.files() if format_of(Path(i.base_name))]
    if not files:
        raise DataError(f"{folder}: holds no file that can be read (.parquet, .csv, .ndjson, .plt, .gpx)")
    return files, meta, pois


def _stays_of(directory: Place) -> pa.Table:
    """The stays of a data directory behind a URI."""
    return directory.read_table("stays" if directory.is_folder("stays") else "stays.parquet")


def _stamp(file: Place) -> list[str]:
    """What tells whether a file is the one of an earlier run."""
    info = file.filesystem.get_file_info(file.root)
    return [file.root, str(info.size), str(info.mtime_ns)]


def _stamps(source: Any) -> list[list[str]] | str:
    """The same of a file, a folder of parts or a data directory with stays; what lies nowhere counts by its text."""
    if not isinstance(source, (str, Path, Place)):
        return str(source)
    place = Place.of(source)
    if not place.is_folder():
        return [_stamp(place)]
    infos = [info for folder in ("", "stays") for info in place.files(folder, ".parquet")]
    return [_stamp(Place(place.filesystem, info.path)) for info in infos]
