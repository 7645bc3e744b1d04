"""Data directories: what a source directory says, and how new tables replace old ones, whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ustad.tables import find_table, write_json

#: Columns of few different values; the others gain nothing from a dictionary and cost time.
_DICTIONARY = ["agent_id", "poi_id", "poi_category", "timezone"]


def write_part(table: pa.Table, path: Path) -> None:
    """One Parquet part inside a working directory that nobody reads yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = [n for n in _DICTIONARY if n in table.column_names]
    pq.write_table(table, path, compression="zstd", use_dictionary=names)


def publish(work: Path, out: Path, meta: dict[str, Any]) -> None:
    """Move the tables of `work` into `out`, in the place of older ones; `meta.json` goes first and comes last."""
    (out / "meta.json").unlink(missing_ok=True)
    for item in sorted(work.iterdir()):
        name = item.name.removesuffix(".parquet")
        if item.is_dir() and name == "buckets":
            continue
        parts = sorted(item.glob("*.parquet")) if item.is_dir() else [item]
        _remove(out, name)
        if len(parts) == 1:
            parts[0].replace(out / f"{name}.parquet")
        else:
            item.replace(out / name)
    write_json(meta, out / "meta.json")


def _remove(out: Path, name: str) -> None:
    (out / f"{name}.parquet").unlink(missing_ok=True)
    if (out / name).is_dir():
        shutil.rmtree(out / name)


def source_meta(sources: Sequence[Path | str]) -> dict[str, Any]:
    """`meta.json` of the first source that is a data directory with fixes, or nothing."""
    for source in sources:
        path = Path(source) / "meta.json"
        if path.exists():
            content = json.loads(path.read_text())
            return content if isinstance(content, dict) else {}
    return {}


def source_pois(sources: Sequence[Path | str]) -> Path | None:
    """The POI table beside the fixes of the first source that has one."""
    for source in sources:
        found = find_table(Path(source), "pois") if Path(source).is_dir() else None
        if found is not None:
            return found
    return None
