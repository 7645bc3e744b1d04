"""The model directory: written whole or not at all, checked on reading, and nothing in it is executed.

A directory of plain files (YAML, JSON, safetensors, Parquet, Markdown) with a manifest of a format version and
a checksum of each.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors import safe_open

from ustad.config import ConfigError
from ustad.files import read_json, write_json
from ustad.tables import DataError, first_line

FORMAT = 1
MANIFEST = "manifest.json"
#: Names the method and its settings, where a model is not plain USTAD.
METHOD = "method.json"


def is_baseline(path: Path | str) -> bool:
    """Whether a model directory holds a baseline (and not the detector)."""
    return (Path(path) / METHOD).exists()


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A temporary directory beside `path` that takes its place when the block ends without an error.

    Files of the model that was there before are gone; what else lies in `path` (a log, checkpoints) is kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{os.getpid()}.part"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        names = sorted(p.name for p in temporary.iterdir())
        write_json({"format": FORMAT, "files": {n: checksum(temporary / n) for n in names}}, temporary / MANIFEST)
        _replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace(temporary: Path, path: Path) -> None:
    if not path.exists():
        temporary.rename(path)
        return
    old_files = _own_files(path)
    old = path.parent / f".{path.name}.{os.getpid()}.old"
    path.rename(old)
    try:
        temporary.rename(path)
    except BaseException:  # whatever breaks in between, the model that was there is back
        old.rename(path)
        raise
    for file in old.iterdir():
        if file.name not in old_files and not (path / file.name).exists():
            shutil.move(str(file), path / file.name)
    shutil.rmtree(old)


def _own_files(path: Path) -> set[str]:
    """Names in a model's manifest and that of its method; none where there is no such manifest, or a damaged one."""
    try:
        content = read_json(path / MANIFEST)
        return {*content["files"], METHOD} if content["format"] == FORMAT else set()
    except (OSError, DataError, KeyError, TypeError):
        return set()


def check(path: Path) -> dict[str, str]:
    """The manifest's files, after checking that each is there and unchanged."""
    manifest = path / MANIFEST
    if not manifest.exists():
        raise DataError(f"{path}: not a model directory (no {MANIFEST}); make one with `ustad train`")
    content = read_json(manifest)
    if not isinstance(content, dict) or not isinstance(content.get("files"), dict):
        raise DataError(f"{path}: {MANIFEST} is no manifest of a model; make one with `ustad train`")
    if content.get("format") != FORMAT:
        raise DataError(
            f"{path}: model format {content.get('format')} is not {FORMAT}; train again with this version of ustad"
        )
    for name, expected in content["files"].items():
        if not (path / name).exists():
            raise DataError(f"{path}: the model is incomplete, {name} is missing")
        if checksum(path / name) != expected:
            raise DataError(f"{path}: {name} is damaged or was changed (its checksum differs)")
    return dict(content["files"])


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """A model whose files contradict each other, or hold what no model does, is refused in one line."""
    try:
        yield
    except (DataError, ConfigError):
        raise
    except Exception as error:  # whatever a reader stumbles over: the files may be a stranger's
        cause = f"{type(error).__name__}: {first_line(error)}"[:200]
        why = "it is damaged, or of a version that this one cannot read"
        raise DataError(f"{path}: the model cannot be read ({cause}); {why}: train it again") from error


def arrays(path: Path, without: str = "") -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, but for those whose names begin with `without`."""
    with safe_open(path, framework="numpy") as file:
        return {n: file.get_tensor(n) for n in file.keys() if not without or not n.startswith(without)}  # noqa: SIM118  # not a mapping


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
