"""A directory of Parquet parts is one table; parts that differ are read by the schema of the first."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pa_dataset
import pyarrow.parquet as pq
import pytest

from ustad.files import read_table
from ustad.tables import DataError


def write_parts(place: Path, *tables: pa.Table) -> Path:
    place.mkdir()
    for n, table in enumerate(tables):
        pq.write_table(table, place / f"part-{n}.parquet")
    return place


SAME = [pa.table({"a": [n, None], "b": [[{"c": n}], None], "d": ["x", str(n)]}) for n in range(7)]
OTHER = [pa.table({"a": [1], "b": ["x"]}), pa.table({"b": ["y"], "c": [3]}), pa.table({"a": pa.array([2], "int32")})]


@pytest.mark.parametrize("tables", [SAME, OTHER, SAME[:1]])
@pytest.mark.parametrize("columns", [None, ["b", "a"]])
def test_parts_are_read_as_arrow_reads_a_dataset(
    tmp_path: Path, tables: list[pa.Table], columns: list[str] | None
) -> None:
    place = write_parts(tmp_path / "parts", *tables)
    files = sorted(str(file) for file in place.iterdir())
    assert read_table(place, columns).equals(pa_dataset.dataset(files, format="parquet").to_table(columns=columns))


def test_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    place = write_parts(tmp_path / "parts", *SAME)
    for path in (place, place / "part-0.parquet"):
        with pytest.raises(DataError, match="cannot be read"):
            read_table(path, ["z"])
