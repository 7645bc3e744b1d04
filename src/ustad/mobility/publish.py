"""Data directories: what a source directory says, and how new tables replace old ones, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ustad.dataset import COMPANIONS
from ustad.files import find_table, read_json, write_json
from ustad.tables import DataError

#: What a data directory holds beside its fixes; only these names are ever replaced or removed.
TABLES = ("stays", *COMPANIONS, "counterfactual", "dirty_labels")

#: Columns of few different values; the others gain nothing from a dictionary and cost time.
_DICTIONARY = ["agent_id", "poi_id", "poi_category", "timezone"]


def write_part(table: pa.Table, path: Path) -> None:
    """One Parquet part inside a working directory that nobody reads yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = [n for n in _DICTIONARY if n in table.column_names]
    pq.write_table(table, path, compression="zstd", use_dictionary=names)


def publish(work: Path, out: Path, meta: dict[str, Any]) -> None:
    """Put the tables of `work` into `out` in the place of older ones, and older ones that have no successor away.

    Nothing is copied: old tables are renamed into `work`, new ones out of it. A failure or an interrupt on the way
    puts the old ones back. `meta.json` goes first and comes last: a directory without one was left by a process
    that was killed between two renames.
    """
    new = [item for item in sorted(work.iterdir()) if item.name != "buckets"]
    aside = work / "buckets" / "old"
    aside.mkdir(parents=True)
    moves: list[tuple[Path, Path]] = []  # from, to
    try:
        for name in ("meta.json", *(n for table in TABLES for n in (f"{table}.parquet", table))):
            if (out / name).exists():
                _move(out / name, aside / name, moves)
        for item in new:
            parts = sorted(item.glob("*.parquet")) if item.is_dir() else [item]
            name = item.name.removesuffix(".parquet")
            if len(parts) == 1:
                _move(parts[0], out / f"{name}.parquet", moves)
            else:
                _move(item, out / name, moves)
        write_json(meta, out / "meta.json")
    except BaseException:
        for source, target in reversed(moves):
            if target.exists():
                target.replace(source)
        raise


def _move(source: Path, target: Path, moves: list[tuple[Path, Path]]) -> None:
    moves.append((source, target))
    source.replace(target)


def check_target(sources: Sequence[Path | str], files: Sequence[Path], out: Path) -> list[Path]:
    """The files to read: those of the sources but for what lies in `out`, which an earlier run may have written.

    A DataError where writing into `out` would replace what is read.
    """
    target = out.resolve()
    for source in sources:
        path = Path(source).resolve()
        truth = path.is_relative_to(target) and (target / "meta.json").exists() and not _is_extraction(target)
        if _is_target(path, target) or truth:
            raise DataError(
                f"{out}: is where the fixes come from, and its tables would be replaced; choose another --out"
            )
    own_files = {Path(source).resolve() for source in sources}
    left = [f for f in files if not f.resolve().is_relative_to(target) or _is_named(f.resolve(), own_files, target)]
    if not left:
        raise DataError(f"{sources[0]}: holds no file beside those in {out}, where the results go")
    return left


def check_places(places: Sequence[Path | str], out: Path) -> None:
    """A DataError where writing into `out` would replace the stays of an earlier extraction that names places."""
    for place in places:
        if _is_target(Path(place).resolve(), out.resolve()):
            raise DataError(
                f"{out}: is where --places comes from, and its stays would be replaced; choose another --out"
            )


def _is_target(path: Path, target: Path) -> bool:
    """Whether a path is the directory to write into or one of its tables."""
    return path == target or (path.parent == target and path.name.removesuffix(".parquet") in TABLES)


def _is_named(file: Path, own_files: set[Path], target: Path) -> bool:
    """Whether a file in `target` was asked for: by itself, or by a folder within `target`."""
    return any(file.is_relative_to(path) and path.is_relative_to(target) for path in own_files)


def _is_extraction(directory: Path) -> bool:
    return str(source_meta([directory]).get("made_by", "")).startswith("ustad extract")


def source_meta(sources: Sequence[Path | str]) -> dict[str, Any]:
    """`meta.json` of the first source that is a data directory with fixes, or nothing."""
    for source in sources:
        path = Path(source) / "meta.json"
        if path.exists():
            content = read_json(path)
            return content if isinstance(content, dict) else {}
    return {}


def source_pois(sources: Sequence[Path | str]) -> Path | None:
    """The POI table beside the fixes of the first source that has one."""
    for source in sources:
        pois = find_table(Path(source), "pois") if Path(source).is_dir() else None
        if pois is not None:
            return pois
    return None
