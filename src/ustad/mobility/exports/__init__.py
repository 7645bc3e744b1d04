"""Files as people have them: exports of phones, watches, trackers and public data sets, known by their content.

`kind_of(path)` says what a file is, or None where it is a plain table (Parquet, CSV, NDJSON) or nothing known. A kind
gives fixes or stays: its `read` turns one file into tables that `columns.as_fixes` or `as_stays` take as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from ustad.mobility.columns import Reading
from ustad.mobility.exports import google_records, google_timeline
from ustad.mobility.exports.content import read_head
from ustad.mobility.exports.order import untangle
from ustad.mobility.places import set_columns
from ustad.tables import DataError

Read = Callable[[Path, Reading], Iterator[pa.Table]]


@dataclass(frozen=True)
class Kind:
    """One kind of file."""

    title: str  # as a person would say it
    gives: Literal["fixes", "stays"]
    matches: Callable[[bytes, Path], bool]  # by the first part of the file, unpacked
    read: Read


KINDS: tuple[Kind, ...] = (
    Kind("Google Takeout records", "fixes", google_records.is_records, google_records.read_records),
    Kind("Google timeline", "stays", google_timeline.has_visits, google_timeline.read_visits),
    Kind("Google timeline", "fixes", google_timeline.has_positions, google_timeline.read_positions),
)
#: Endings of names whose files may be one of the kinds; the others are what their name says.
ENDINGS = (".json", ".csv", ".tsv", ".txt")


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
        tables += list(kind.read(file, reading))
    kinds = {table["agent_id"].type for table in tables}
    if len(kinds) > 1:
        tables = [set_columns(table, agent_id=table["agent_id"].cast(pa.string())) for table in tables]
    return untangle(pa.concat_tables(tables, promote_options="default"), reading)


def may_be_export(path: Path) -> bool:
    """Whether a file's name allows that it is one of the kinds: it is then worth a look inside."""
    return path.name.lower().removesuffix(".gz").endswith(ENDINGS)


def kind_of(path: Path) -> Kind | None:
    """What a file is by its content, or None."""
    head = read_head(path) if may_be_export(path) else b""
    return next((kind for kind in KINDS if head and kind.matches(head, path)), None)
