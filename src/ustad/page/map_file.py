"""A map in one file: what a PMTiles archive (version 3) says of itself.

In: a path. Out: whether its tiles are vectors or pictures, its layers and its attribution. The tiles are read by the
browser, a few bytes at a time.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ustad.tables import DataError

HEADER = 127  # bytes
VECTOR = 1  # the type of tiles that hold lines and areas; others are pictures
UNPACK: dict[int, Callable[[bytes], bytes]] = {1: bytes, 2: gzip.decompress}  # by the archive's number of a compression
MOST_METADATA = 10_000_000
ADVICE = "give a PMTiles archive of version 3, or an OpenStreetMap extract (.osm.pbf)"


@dataclass(frozen=True)
class MapFile:
    path: Path
    tiles: str  # vector or raster
    layers: list[str]
    note: str
    box: tuple[float, float, float, float]

    def describe(self) -> dict[str, Any]:
        return {"tiles": self.tiles, "layers": self.layers, "note": self.note, "box": list(self.box)}


def is_extract(path: Path) -> bool:
    """Whether a map is an OpenStreetMap extract rather than an archive of tiles."""
    return path.name.endswith((".osm.pbf", ".osm", ".osm.bz2"))


def read_map_file(path: Path) -> MapFile:
    """What an archive says of itself; refuses what is none."""
    try:
        with path.open("rb") as file:
            head = file.read(HEADER)
            if len(head) < HEADER or head[:8] != b"PMTiles\x03":
                raise DataError(f"{path}: not a PMTiles archive; {ADVICE}")
            start, size = struct.unpack_from("<2Q", head, 24)
            if size > MOST_METADATA:
                raise DataError(f"{path}: its metadata are damaged; {ADVICE}")
            file.seek(start)
            content = file.read(size)
            if len(content) < size:
                raise DataError(f"{path}: the file is cut off; {ADVICE}")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {ADVICE}") from error
    return _describe(path, head, content)


def _describe(path: Path, head: bytes, packed_bytes: bytes) -> MapFile:
    compression, kind = head[97], head[99]
    try:
        content = json.loads(UNPACK[compression](packed_bytes) or b"{}")
        layers = [str(layer["id"]) for layer in content.get("vector_layers", [])]
        note = str(content.get("attribution") or "")
    except (KeyError, TypeError, AttributeError, ValueError, OSError, EOFError) as error:
        raise DataError(f"{path}: its metadata cannot be read; {ADVICE}") from error
    west, south, east, north = (v / 1e7 for v in struct.unpack_from("<4i", head, 102))
    return MapFile(path, "vector" if kind == VECTOR else "raster", layers, plain_text(note), (west, south, east, north))


def plain_text(note: str) -> str:
    """An attribution without its links, which are HTML."""
    text, within = [], False
    for sign in note:
        within = sign == "<" or (within and sign != ">")
        if not within and sign != ">":
            text.append(sign)
    return "".join(text).strip()
