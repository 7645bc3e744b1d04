"""A data directory of stays that an export holds already: checked and named as extracted ones are, not found anew.

In: files whose kind gives stays (`exports`). Out: the table of stays of a data directory, and a summary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ustad.mobility.exports import gives_stays, read_given_stays
from ustad.mobility.publish import write_part
from ustad.mobility.readers import check_stays
from ustad.mobility.reading import Reading
from ustad.tables import DataError


def choose_files(files: Sequence[Path], reading: Reading) -> tuple[list[Path], bool]:
    """The files to read, and whether they hold stays. Where some hold fixes, those with stays are left out."""
    stays = [file for file in files if gives_stays(file)]
    if len(stays) in (0, len(files)):
        return list(files), bool(stays)
    reading.say(f"left out: {len(stays):,} files that hold stays, because others hold fixes (first: {stays[0].name})")
    return [file for file in files if file not in set(stays)], False


def write_given_stays(
    files: Sequence[Path], work: Path, reading: Reading, name_places: Callable[[pa.Table], pa.Table], rename: bool
) -> pa.Table:  # fmt: skip
    """Write the stays as the one table of `work`. `name_places` is for exports that name no places, or to `rename`."""
    table = read_given_stays(files, reading)
    named = "poi_id" in table.column_names and not rename
    stays = check_stays(table, str(files[0]), reading)
    if not stays.num_rows:
        raise DataError(f"{files[0]}: no usable stay in {len(files)} file(s)")
    if not named:
        reading.notes[:] = [note for note in reading.notes if not note.startswith("no column of categories")]
        stays = name_places(stays.drop_columns(["poi_id", "poi_category"]))
    write_part(stays, work / "stays" / "part-00000.parquet")
    return stays


def span_of(stays: pa.Table) -> tuple[int, int]:
    """First start and last end, microseconds."""
    return pc.min(stays["started_at"].cast(pa.int64())).as_py(), pc.max(stays["finished_at"].cast(pa.int64())).as_py()
