"""Table files and JSON: read where they come in, written whole or not at all.

In go paths (Parquet, CSV, a directory of parts) or tables of other libraries (`frames.py`). Out come pyarrow tables as
they are; `tables.validate` checks what they hold.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from ustad.frames import to_arrow
from ustad.tables import DataError, first_line


def as_table(source: Any, where: str = "data") -> pa.Table:
    """A pyarrow table from a path (Parquet, CSV, a directory of parts) or a table of another library."""
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, (str, Path)):
        return read_table(Path(source))
    return to_arrow(source, where)


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """One Parquet or CSV file, or a directory of Parquet parts, as a table."""
    if not path.exists():
        raise DataError(f"{path}: no such file or directory")
    try:
        if path.is_dir():
            parts = sorted(path.glob("*.parquet"))
            if not parts:
                raise DataError(f"{path}: the directory holds no .parquet files")
            import pyarrow.dataset as pa_dataset  # here, because it imports pandas where there is one

            return pa_dataset.dataset([str(p) for p in parts], format="parquet").to_table(columns=columns)
        if path.suffix in {".parquet", ".pq"}:
            return pq.read_table(path, columns=columns)
        if path.name.endswith((".csv", ".csv.gz")):
            table = _read_csv(path)
            return table.select(columns) if columns is not None else table
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path}: cannot be read ({first_line(error)})") from error
    raise DataError(f"{path}: unknown kind of file; expected .parquet, .csv or a directory of .parquet")


def _read_csv(path: Path) -> pa.Table:
    """CSV whose identifiers (columns by the name of `…id`, `agent`, `user`) are not read as numbers."""
    with pa_csv.open_csv(path, read_options=pa_csv.ReadOptions(block_size=1 << 16)) as probe:
        ids = [n for n in probe.schema.names if n.lower().endswith("id") or n.lower() in ("agent", "user")]
    kinds = pa_csv.ConvertOptions(column_types=dict.fromkeys(ids, pa.string()))
    table = pa_csv.read_csv(path, convert_options=kinds)
    for name in ids:
        table = table.set_column(table.column_names.index(name), name, plain_identifiers(table[name]))
    return table


def plain_identifiers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Identifiers from text: integers where every one is written as integers are (7, not 007), else the text."""
    text = pc.utf8_trim_whitespace(column)
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
    whole = pc.match_substring_regex(text, r"^(0|-?[1-9]\d{0,18})$")
    missing = pc.is_in(text, pa.array(["NA", "N/A", "NaN", "nan", "null", "NULL"]))
    if not pc.any(whole).as_py() or not pc.all(pc.or_(whole, missing)).as_py():
        return text
    try:
        return pc.if_else(whole, text, pa.scalar(None, text.type)).cast(pa.int64())
    except pa.ArrowInvalid:  # more than 64 bits hold
        return text


def set_columns(table: pa.Table, /, **columns: Any) -> pa.Table:
    """The table with columns, arrays or values, in the place of those of the same name, or appended."""
    for name, values in columns.items():
        column = as_column(values)
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, column)
        else:
            table = table.append_column(name, column)
    return table


def as_column(values: Any) -> pa.Array | pa.ChunkedArray:
    """Values as arrow has them, NaN as null."""
    return values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, from_pandas=True)


def floats(column: pa.ChunkedArray) -> np.ndarray:
    """A column as float32, NaN for null."""
    return column.cast(pa.float32()).to_numpy(zero_copy_only=False).astype(np.float32)


def write_table(table: pa.Table, path: Path) -> None:
    """Write Parquet under a temporary name, then rename, so that nobody sees half a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    pq.write_table(table, temporary, compression="zstd", use_dictionary=repeating_columns(table.schema))
    temporary.replace(path)


def repeating_columns(schema: pa.Schema, above: str = "") -> list[str]:
    """Columns whose values repeat, by their paths in Parquet: text, agents, places. Others need no dictionary."""
    names = []
    for field in schema:
        kind, path = field.type, above + field.name
        if pa.types.is_list(kind):
            kind, path = kind.value_type, f"{path}.list.element"
        if pa.types.is_struct(kind):
            names += repeating_columns(pa.schema(list(kind)), f"{path}.")
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or path in ("agent_id", "poi_id"):
            names.append(path)
    return names


def write_json(content: Any, path: Path) -> None:
    """Write JSON under a temporary name, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    temporary.replace(path)


def read_json(path: Path) -> Any:
    """What `write_json` wrote; a damaged file is named."""
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError) as error:  # of text that is no JSON, and of bytes that are no text
        raise DataError(f"{path}: not valid JSON ({error}); the file is damaged, make it again") from error


def find_table(directory: Path, name: str) -> Path | None:
    """`NAME.parquet` or the directory `NAME/` of parts inside a data directory, or None."""
    for candidate in (directory / f"{name}.parquet", directory / name):
        if candidate.exists():
            return candidate
    return None
