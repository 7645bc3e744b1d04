"""What every reader of exports needs: the bytes of a file whether or not they are compressed, its first part, whole
JSON, and columns of one value. Sizes are bounded, so that a small file cannot unpack to fill the memory."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from ustad.clock import microseconds
from ustad.tables import TIMESTAMP, DataError

HEAD_BYTES = 1 << 18  # of a file, to see what it is
WHOLE_BYTES = 2 << 30  # of a file that has to be read whole
#: Folders and files that Google's exports have by themselves: they do not say who the person is.
_GOOGLE_NAMES = ("takeout", "location history", "location history (timeline)", "semantic location history", "timeline")


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, unpacked where it is gzip by its first bytes, whatever its name."""
    stream = path.open("rb")
    is_packed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    return gzip.GzipFile(fileobj=stream) if is_packed else stream  # type: ignore[return-value]  # reads the same


def read_head(path: Path) -> bytes:
    """The first part of a file, unpacked; what cannot be read at all is empty. A byte order mark is left out."""
    try:
        with open_bytes(path) as stream:
            return stream.read(HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    except (OSError, EOFError, zlib.error):
        return b""


def read_whole(path: Path, limit: int = WHOLE_BYTES) -> bytes:
    """All bytes of a file; one that unpacks to more than the limit, or is cut off, is a DataError."""
    content = bytearray()
    try:
        with open_bytes(path) as stream:
            while len(content) <= limit and (block := stream.read(1 << 24)):  # to ask for all makes room for the limit
                content += block
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    if len(content) > limit:
        raise DataError(f"{path}: holds more than {limit / 2**30:.1f} GB; split it")
    return bytes(content).removeprefix(b"\xef\xbb\xbf")


def contains(path: Path, words: tuple[bytes, ...]) -> bool:
    """Whether one of some short words is anywhere in a file."""
    longest, tail = max(map(len, words)), b""
    try:
        with open_bytes(path) as stream:
            while block := stream.read(1 << 24):
                part = tail + block
                if any(word in part for word in words):
                    return True
                tail = part[-longest:]
    except (OSError, EOFError, zlib.error):
        return False
    return False


def read_json_whole(path: Path) -> Any:
    """A JSON file; one that is cut off or damaged is a DataError that says so."""
    try:
        return json.loads(read_whole(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON ({error}); it may be cut off, export it again") from error


def repeat(value: str | None, n: int) -> pa.Array:
    """A column of one text."""
    return pa.array([value], pa.string()).take(pa.array(np.zeros(n, np.int32)))


def person_of(path: Path) -> str:
    """Whose export a file of Google's is: the nearest folder that Google did not name itself."""
    for folder in path.resolve().parents:
        name = folder.name
        if name and name.lower() not in _GOOGLE_NAMES and not name.isdigit():
            return name
    return path.stem


def file_agent(path: Path) -> str:
    """Whose file it is where only its name can tell: the name without its endings."""
    return Path(path.name.removesuffix(".gz")).stem


def to_microseconds(text: Any) -> int | None:
    """ISO 8601 with a zone, or a number of (milli)seconds since 1970, as microseconds; None for anything else."""
    if isinstance(text, bool) or text is None:
        return None
    if isinstance(text, (int, float)) or (isinstance(text, str) and text.strip().lstrip("-").isdigit()):
        number = float(text)
        scale = 1e6 if abs(number) < 1e11 else 1e3
        return round(number * scale) if abs(number) < 1e14 else None
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return microseconds(moment) if moment.tzinfo is not None else None


def times(microseconds: Iterable[int | None] | np.ndarray) -> pa.Array:
    """A column of times."""
    return pa.array(microseconds, pa.int64()).cast(TIMESTAMP)
