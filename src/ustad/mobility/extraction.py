"""Extraction: fixes in anybody's format to a data directory of stays, trips, gaps and data quality.

In: files, folders or globs of fixes (`extract`), or one table of them (`extract_tables`). Out: a directory as
`dataset.py` describes it, or the same as a `Dataset`. Agents are the unit of partition: memory is bounded by it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.clock import check_zone
from ustad.config import ExtractionConfig
from ustad.dataset import Dataset
from ustad.files import write_table
from ustad.mobility.archives import unpack_archives
from ustad.mobility.columns import as_fixes
from ustad.mobility.core import advance, fix_arrays, no_fixes, to_tables
from ustad.mobility.fix_store import AgentNumbers, DiskStore, MemoryStore, Partition, Store
from ustad.mobility.formats import Piece, estimate_rows, expand, pieces
from ustad.mobility.given_stays import choose_files, given_config, span_of, write_given_stays
from ustad.mobility.layout import Layout
from ustad.mobility.own_places import KnownPlaces, first_of_test, own_places
from ustad.mobility.parameters import Wish, choose_config
from ustad.mobility.places import PoiIndex, join_pois, read_pois
from ustad.mobility.plausible import box_of
from ustad.mobility.publish import check_places, check_target, publish, source_meta, source_pois, write_part
from ustad.mobility.quality import Losses, quality_table
from ustad.mobility.reading import Reading, Times
from ustad.mobility.staypoints import Limits, empty_state
from ustad.mobility.summary import (
    ExtractionSummary,
    PartCount,
    add_count,
    add_dropped,
    count_partition,
    describe,
    iso_time,
)
from ustad.mobility.timezones import with_timezone
from ustad.mobility.whose import choose_agents
from ustad.progress import is_shown, roughly, say, track
from ustad.tables import DataError, OnError

MEMORY_ROWS = 12_000_000  # more fixes than this wait on disk
PARTITION_ROWS = 2_500_000  # fixes of one partition, about
BLOCK_ROWS = 200_000  # fixes that go through the kernel at once: their arrays are small enough to be used again
SAMPLE_ROWS = 100_000  # fixes that say how long all will take; fewer would say what is paid once or by every file
WORTH_AN_ESTIMATE = 4  # times as many fixes as were timed
TABLES = ("stays", "trips", "gaps", "quality")


@dataclass(frozen=True)
class Setting:
    """What every partition needs to know."""

    config: ExtractionConfig
    pois: PoiIndex | None
    timezone: str | None
    reading: Reading
    known_places: KnownPlaces | None = None  # the agents' own places, from earlier extractions
    until: datetime | None = None  # only earlier stays say which of an agent's own places is home or work

    def before_test(self, span: tuple[int, int] | None, split: dict[str, Any] | None) -> Setting:
        """The same, with `until` at the first day of the test part: what is learnt must not know of it."""
        until = first_of_test(span, self.timezone, split) if self.pois is None and span is not None else None
        if until is not None:
            whose = "" if self.known_places is None else " of agents not known from before"
            when = f"before {until:%Y-%m-%d %H:%M} UTC (of agents hardly there by then: of their own first days)"
            self.reading.say(f"home and work{whose} are what stays {when} say they are")
        return replace(self, until=until)


# ---------------------------------------------------------------------------------------------- in memory
def extract_tables(
    fixes: Any, config: ExtractionConfig | Wish | None = None, pois: Any = None, timezone: str | None = None,
    *, times: Times = "utc", on_error: OnError = "fail", places: Sequence[Path | str | pa.Table] = (),
    agent: str | None = None,
) -> Dataset:  # fmt: skip
    """Stays, trips, gaps and quality of one table of fixes (a path or anything with an Arrow C stream).

    `places` are the stays of earlier extractions (directories, files or tables) whose own places are to be known again.
    `agent` is the column that says whose a fix is, where its name does not.
    """
    reading = Reading(timezone, times, on_error, agents={"table": agent} if agent else {})
    setting = make_setting(
        ExtractionConfig(), pois, None, reading, places=places
    )  # first: POIs tell where fixes may be
    table = as_fixes(fixes, str(fixes) if isinstance(fixes, (str, Path)) else "fixes", reading)
    if table.num_rows == 0:
        raise DataError("fixes: the table is empty")
    setting = replace(setting, config=fit_config([table], config, reading))
    store, agents = MemoryStore(), AgentNumbers()
    collect(table, store, agents, setting.config)
    setting = setting.before_test(agents.span, None)
    tables = [extract_partition(part, setting) for part in store.partitions(agents, table.num_rows + 1)]
    merged_tables = {name: pa.concat_tables([t[name] for t in tables]) for name in TABLES}
    reading.warn_of_bad_rows()
    meta = {"name": "extracted", "timezone": timezone, "notes": reading.notes, "extraction": asdict(setting.config)}
    return Dataset(
        events=merged_tables["stays"], trips=merged_tables["trips"], gaps=merged_tables["gaps"],
        quality=merged_tables["quality"],
        pois=setting.pois.pois if setting.pois else None, meta=meta,
    )  # fmt: skip


def make_setting(
    config: ExtractionConfig, pois: Any, timezone: str | None, reading: Reading,
    *, places: Sequence[Path | str | pa.Table] = (),
) -> Setting:  # fmt: skip
    for zone in (timezone, reading.timezone):
        if zone is not None:
            check_zone(zone)
    if places and pois is not None:
        raise DataError("POIs name the places here; --places is for extractions without them, leave it out")
    known_places = KnownPlaces.of(places) if places else None
    if known_places is not None:
        reading.say(
            f"{len(known_places.names):,} own places of {len(known_places.agents):,} agents are known from before"
        )
    index = None
    if pois is not None:
        index = pois if isinstance(pois, PoiIndex) else PoiIndex(read_pois(pois, reading))
        reading.area = box_of(index.pois)
    return Setting(config, index, timezone, reading, known_places)


def sample_pieces(files: list[Path], reading: Reading) -> Iterator[pa.Table]:
    """Valid fixes of the first files, to look at; nothing of it is noted or counted."""
    reading = replace(reading, notes=[], bad_rows=0, on_error="skip", piece_rows=SAMPLE_ROWS)
    for file in files:
        try:
            for piece in pieces(file, reading):
                table = _valid_piece(replace(piece, table=piece.table.slice(0, SAMPLE_ROWS)), reading)
                if table is not None:
                    yield table
        except DataError:
            continue  # said when the file is read for good


def fit_config(
    tables: Iterable[pa.Table], wish: ExtractionConfig | Wish | None, reading: Reading
) -> ExtractionConfig:  # fmt: skip
    """The settings for these fixes; what was chosen is noted."""
    config, line = choose_config(tables, wish)
    if line:
        reading.say(line)
    return config


def collect(table: pa.Table, store: Store, agents: AgentNumbers, config: ExtractionConfig) -> None:
    """Number the agents, apply the accuracy filter, hand the arrays to the store."""
    numbers = agents.take(table["agent_id"])
    fixes = fix_arrays(table, numbers)
    if config.max_accuracy_m > 0 and "accuracy_m" in table.column_names:
        bad = table["accuracy_m"].to_numpy() > config.max_accuracy_m  # a fix that claims nothing is kept
        agents.inaccurate += np.bincount(numbers[bad], minlength=len(agents))
        fixes = fixes.take(~bad)
    agents.see(fixes.time)
    store.add(fixes)


def extract_partition(part: Partition, setting: Setting) -> dict[str, pa.Table]:
    """The four tables of one partition: a pure function of its fixes."""
    parts = [_extract_block(block, setting.config) for block in part.blocks(BLOCK_ROWS)]
    tables = {name: pa.concat_tables([tables[name] for tables in parts]) for name in TABLES}
    return {**tables, "stays": name_places(tables["stays"], setting)}


def _extract_block(part: Partition, config: ExtractionConfig) -> dict[str, pa.Table]:
    state = empty_state(len(part.agents))
    step = advance(part.fixes, no_fixes(), state, Limits.of(config), final=True)
    tables = to_tables(step, part.agents)
    quality = quality_table(step, part.agents, Losses(part.n_unsorted, part.inaccurate), config)
    return {"stays": tables.stays, "trips": tables.trips, "gaps": tables.gaps, "quality": quality}


def name_places(stays: pa.Table, setting: Setting) -> pa.Table:
    """Stays with time zone, POI and category: what fixes alone do not tell. Without POIs, the agents' own places."""
    stays, radius_m = with_timezone(stays, setting.timezone, setting.reading), setting.config.poi_radius_m
    if setting.pois is not None:
        stays = join_pois(stays, setting.pois, radius_m)
    else:
        stays = own_places(stays, radius_m, setting.until, setting.known_places)
    order = ("poi_id", "poi_category", "timezone", "n_fixes", "start_gap_s", "end_gap_s", "observed_s")
    names = [n for n in stays.column_names if n not in order]
    return stays.select(names + [n for n in order if n in stays.column_names])


# -------------------------------------------------------------------------------------- files to directory
def extract(
    sources: Sequence[Path | str] | Path | str, out: Path | str, config: ExtractionConfig | Wish | None = None,
    pois: Any = None, *, timezone: str | None = None, on_error: OnError = "fail", workers: int = 0,
    times: Times = "utc", places: Sequence[Path | str] = (), agent: str | None = None, layout: Layout | None = None,
) -> ExtractionSummary:  # fmt: skip
    """Extract files of fixes into the data directory `out`.

    Without a `config` the settings are those that suit the fixes, which is noted; a `Wish` says which are given.
    `timezone` is the zone of naive times; stays get the zone of their coordinates.
    `times="local"` says that epoch numbers count the wall clock of `timezone`. A data directory among the sources
    gives its POIs, time zone and split where nothing else is said. `places` are earlier extractions whose own places
    are to be known again, with the names and kinds they have there. `agent` says whose fixes they are: `file`,
    `folder`, a regular expression of the path with the agent in parentheses, or a column; `layout` how tables of
    text are laid out (`Layout.of(columns="time=ts,lat=y,lon=x")`), where that is not found. With `on_error="skip"`
    bad rows and unreadable files are left out and counted. The tables appear in `out` when everything is done, and
    take the place of all that a data directory holds beside fixes.
    """
    began, out = time.monotonic(), Path(out)
    source_list = [sources] if isinstance(sources, (str, Path)) else list(sources)
    check_places(places, out)
    meta = source_meta(source_list)
    zone = meta.get("timezone")
    pois = pois if pois is not None else source_pois(source_list)
    reading = Reading(timezone or zone, times, on_error, layout=layout or Layout())
    with unpack_archives(source_list, reading) as paths:
        files, are_stays = choose_files(check_target(paths, expand(paths), out), reading)
        choose_agents(files, agent, reading)
        fitted_config = (
            given_config(config) if are_stays else fit_config(sample_pieces(files, reading), config, reading)
        )
        setting = make_setting(fitted_config, pois, zone, reading, places=places)
        return _extract_into(out, files, setting, meta, are_stays=are_stays, workers=workers, began=began)


def _extract_into(
    out: Path, files: list[Path], setting: Setting, meta: dict[str, Any], *, are_stays: bool, workers: int, began: float
) -> ExtractionSummary:  # fmt: skip
    """Extract some files and put the tables into `out` when everything is done."""
    reading = setting.reading
    out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".extract-", dir=out))
    try:
        if are_stays:
            summary = _take_given(files, work, setting, meta.get("split"))
        else:
            summary = _run(files, work, setting, workers or min(os.cpu_count() or 1, 8), split=meta.get("split"))
        summary.out = out
        if setting.pois is not None:
            write_table(setting.pois.pois, work / "pois.parquet")
        summary.notes, summary.seconds = reading.notes, time.monotonic() - began
        publish(work, out, describe(summary, setting, meta))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    reading.warn_of_bad_rows()
    return summary


def _run(
    files: list[Path], work: Path, setting: Setting, workers: int, *, split: dict[str, Any] | None
) -> ExtractionSummary:  # fmt: skip
    summary, agents = ExtractionSummary(work, files=len(files)), AgentNumbers()
    rows = sum(estimate_rows(f) for f in files)
    buckets = -(-rows // PARTITION_ROWS)
    store: Store = MemoryStore() if rows <= MEMORY_ROWS else DiskStore(work / "buckets", buckets)
    estimate = _Estimate(rows, setting, workers) if is_shown() else None
    with track("reading fixes", rows) as advance_bar:
        for table in valid_pieces(files, setting.reading, summary):
            if estimate is not None and table.num_rows and estimate.add(table):
                estimate = None
            collect(table, store, agents, setting.config)
            summary.fixes += table.num_rows
            advance_bar(table.num_rows)
    if not summary.fixes:
        losses = [note for note in setting.reading.notes if note.startswith(("dropped", "skipped"))]
        raise DataError(
            f"{files[0]}: no usable fix in {len(files)} file(s); {losses[-1] if losses else 'they hold no row'}"
        )
    summary.agents = len(agents)
    if agents.has_two_kinds:
        setting.reading.say("agents are integers in some places and text in others: all were taken as text")
    setting = setting.before_test(agents.span, split)
    with track("finding stays", summary.agents) as advance_bar:
        for count in _parallel(store.partitions(agents, PARTITION_ROWS), work, setting, workers):
            add_count(summary, count)
            advance_bar(count.agents)
    add_dropped(summary, "bad rows", setting.reading.bad_rows)
    return summary


def _take_given(
    files: list[Path], work: Path, setting: Setting, split: dict[str, Any] | None
) -> ExtractionSummary:  # fmt: skip
    """Stays of exports that hold stays already, and what lies between them."""

    def name(stays: pa.Table) -> pa.Table:
        return name_places(stays, setting.before_test(span_of(stays), split))

    rename = setting.pois is not None
    tables = write_given_stays(files, work, setting.reading, name, rename=rename, config=setting.config)
    counts = {table: tables[table].num_rows for table in ("stays", "trips", "gaps")}
    summary = ExtractionSummary(work, files=len(files), agents=tables["quality"].num_rows, **counts)
    first, last = span_of(tables["stays"])
    summary.span = (iso_time(first), iso_time(last))
    add_dropped(summary, "bad rows", setting.reading.bad_rows)
    return summary


@dataclass
class _Estimate:
    """Says once how long an extraction will take, by pieces after the first: that one pays for what is done once."""

    rows: int
    setting: Setting
    workers: int
    began: float | None = None  # when the first piece had been read
    samples: list[pa.Table] = field(default_factory=list)

    def add(self, table: pa.Table) -> bool:
        """Take one more piece as it is read. True: enough pieces were seen, and the estimate was said where it pays."""
        if self.began is None:
            self.began = time.perf_counter()
            return False
        self.samples.append(table)
        fixes = sum(t.num_rows for t in self.samples)
        if fixes < SAMPLE_ROWS:
            return False
        if self.rows >= WORTH_AN_ESTIMATE * fixes:
            seconds = time.perf_counter() - self.began + rough_seconds(self.samples, self.setting) / self.workers
            say(f"about {self.rows:,} fixes: {roughly(seconds * self.rows / fixes)}")
        return True


def rough_seconds(tables: list[pa.Table], setting: Setting) -> float:
    """Seconds to find the stays of some fixes, as measured now."""
    setting = replace(setting, reading=replace(setting.reading, notes=[], bad_rows=0))
    for some in ([tables[0].slice(0, 100)], tables):  # the first warms up
        store, agents, began = MemoryStore(), AgentNumbers(), time.perf_counter()
        for table in some:
            collect(table, store, agents, setting.config)
        for part in store.partitions(agents, PARTITION_ROWS):
            extract_partition(part, setting)
    return time.perf_counter() - began


def valid_pieces(files: list[Path], reading: Reading, summary: ExtractionSummary) -> Iterator[pa.Table]:
    """Valid fixes of all files. With `skip`, what cannot be read is said and counted, and the rest goes on."""
    for file in files:
        try:
            for piece in pieces(file, reading):
                table = _valid_piece(piece, reading)
                if table is not None:
                    yield table
        except DataError as error:
            if reading.on_error == "fail":
                raise
            add_dropped(summary, "unreadable files", 1)
            reading.say(f"skipped: {error}")


def _valid_piece(piece: Piece, reading: Reading) -> pa.Table | None:
    """The piece's valid fixes; with `skip`, None where not one is left."""
    try:
        return as_fixes(piece.table, piece.where, reading)
    except DataError as error:
        if reading.on_error == "fail":
            raise
        reading.bad_rows += piece.table.num_rows
        reading.say(f"dropped: {error}")
        return None


def _parallel(
    partitions: Iterator[Partition], work: Path, setting: Setting, workers: int
) -> Iterator[PartCount]:  # fmt: skip
    """Partitions through threads (the kernels hold no lock), never more in memory than there are workers."""
    with ThreadPoolExecutor(workers) as pool:
        waiting: set[Future[PartCount]] = set()
        for number, part in enumerate(partitions):
            waiting.add(pool.submit(_write_partition, part, number, work, setting))
            if len(waiting) >= workers:
                ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (f.result() for f in ready)
        for future in waiting:
            yield future.result()


def _write_partition(part: Partition, number: int, work: Path, setting: Setting) -> PartCount:
    tables = extract_partition(part, setting)
    for name, table in tables.items():
        write_part(table, work / name / f"part-{number:05d}.parquet")
    return count_partition(part, tables)
