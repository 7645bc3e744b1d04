"""Files as people have them: exports of phones, watches, trackers and public data sets, known by their content.

`kind_of(path)` says what a file is, or None where it is a plain table (Parquet, CSV, NDJSON) or nothing known. A kind
gives fixes or stays: its `read` turns one file into tables that `columns.as_fixes` or `as_stays` take as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from ustad.files import set_columns
from ustad.mobility.columns import as_stays
from ustad.mobility.exports import (
    checkins,
    geojson,
    google_records,
    google_timeline,
    grids,
    kml,
    owntracks,
    trajectories,
    workouts,
)
from ustad.mobility.exports.content import read_head, repeat, times
from ustad.mobility.reading import Reading
from ustad.mobility.whose import agent_of, by_path
from ustad.tables import DataError, agent_codes

Read = Callable[[Path, Reading], Iterator[pa.Table]]


@dataclass(frozen=True)
class Kind:
    """One kind of file."""

    title: str  # as a person would say it
    gives: Literal["fixes", "stays"]
    matches: Callable[[bytes, Path], bool]  # by the first part of the file, unpacked
    read: Read
    whose: Literal["export", "track"] = "export"  # the export says whose it is, or only its path does


KINDS: tuple[Kind, ...] = (
    Kind("Google Takeout records", "fixes", google_records.is_records, google_records.read_records),
    Kind("Google timeline", "stays", google_timeline.has_visits, google_timeline.read_visits),
    Kind("Google timeline", "fixes", google_timeline.has_positions, google_timeline.read_positions),
    Kind("GeoJSON", "fixes", geojson.is_geojson, geojson.read_geojson),
    Kind("FIT", "fixes", workouts.is_fit, workouts.read_fit, "track"),
    Kind("TCX", "fixes", workouts.is_tcx, workouts.read_tcx, "track"),
    Kind("KML", "fixes", kml.has_moments, kml.read_tracks, "track"),
    Kind("KML", "stays", kml.has_spans, kml.read_spans, "track"),
    Kind("OwnTracks", "fixes", owntracks.is_owntracks, owntracks.read_owntracks),
    Kind("Foursquare check-ins", "stays", checkins.is_foursquare, checkins.read_foursquare),
    Kind("Gowalla or Brightkite check-ins", "stays", checkins.is_gowalla, checkins.read_gowalla),
    Kind("YJMob100K", "stays", grids.is_yjmob, grids.read_yjmob),
    Kind("Porto taxis", "fixes", trajectories.is_porto, trajectories.read_porto),
    Kind("T-Drive", "fixes", trajectories.is_tdrive, trajectories.read_tdrive),
    Kind("MobilityDB", "fixes", trajectories.is_mobilitydb, trajectories.read_mobilitydb),
)
#: Endings of names whose files may be one of the kinds; the others are what their name says.
ENDINGS = (".json", ".geojson", ".csv", ".tsv", ".txt", ".fit", ".tcx", ".kml", ".kmz", ".xml", ".rec", ".sql", ".dat")


def gives_stays(path: Path) -> bool:
    """Whether a file holds stays that somebody else found, or events without an end."""
    kind = kind_of(path)
    return kind is not None and kind.gives == "stays"


def read_given_stays(files: Sequence[Path], reading: Reading) -> pa.Table:
    """The stays of some files, put in order: no agent is at two places at the same time."""
    tables = []
    for file in files:
        kind = kind_of(file)
        if kind is None or kind.gives != "stays":
            raise DataError(f"{file}: holds no stays of a known export")
        how = reading.agents.get(kind.whose)
        for table in kind.read(file, reading):
            if how is not None and by_path(how):
                table = set_columns(table, agent_id=repeat(agent_of(file, how), table.num_rows))
            tables.append(as_stays(table, str(file), reading))
    kinds = {table["agent_id"].type for table in tables}
    if len(kinds) > 1:
        tables = [set_columns(table, agent_id=table["agent_id"].cast(pa.string())) for table in tables]
    return untangle(pa.concat_tables(tables, promote_options="default"), reading)


def untangle(stays: pa.Table, reading: Reading) -> pa.Table:
    """Stays by agent and start. Of those that start at the same moment the longest is kept; one that goes on when
    the next begins ends there. How many were dropped or cut is said."""
    codes = agent_codes(stays["agent_id"])[0]
    start, end = (stays[name].cast(pa.int64()).to_numpy() for name in ("started_at", "finished_at"))
    order = np.lexsort((-end, start, codes))
    codes, start, end = codes[order], start[order], end[order]
    again = np.zeros(len(order), bool)
    again[1:] = (codes[1:] == codes[:-1]) & (start[1:] == start[:-1])
    if again.any():
        reading.bad_rows += int(again.sum())
        reading.say(f"dropped: {int(again.sum()):,} stays that start at the same moment as another of their agent")
    codes, start, end = codes[~again], start[~again], end[~again]
    until = end.copy()
    same = codes[1:] == codes[:-1]
    until[:-1][same] = np.minimum(end[:-1], start[1:])[same]
    cut = int(np.count_nonzero(until < end))
    if cut:
        reading.say(f"{cut:,} stays went on when the next began: they end there")
    return set_columns(stays.take(pa.array(order[~again])), finished_at=times(until))


def may_be_export(path: Path) -> bool:
    """Whether a file's name allows that it is one of the kinds: it is then worth a look inside."""
    return path.name.lower().removesuffix(".gz").endswith(ENDINGS)


def kind_of(path: Path) -> Kind | None:
    """What a file is by its content, or None."""
    if not may_be_export(path):
        return None
    try:
        stamp = path.stat()
    except OSError:
        return None
    return _look_into(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=65_536)
def _look_into(path: Path, modified_ns: int, size: int) -> Kind | None:
    """Once for each state of a file: folders of thousands are asked several times."""
    head = read_head(path)
    return next((kind for kind in KINDS if head and kind.matches(head, path)), None)
