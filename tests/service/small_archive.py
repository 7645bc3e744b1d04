"""A small PMTiles archive, written byte by byte as its specification (version 3) says: one tile with lines."""

from __future__ import annotations

import gzip
import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path

EXTENT = 4096
Point = tuple[float, float]


def varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def field(number: int, content: bytes | int) -> bytes:
    """One field of a protocol buffer: a number, or bytes with their length."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def vector_tile(layer: str, lines: Sequence[Sequence[tuple[int, int]]]) -> bytes:
    """A Mapbox vector tile (version 2) of one layer of lines, in whole parts of the tile."""
    features = b""
    for line in lines:
        x, y = line[0]
        commands = [9, zigzag(x), zigzag(y), (len(line) - 1) << 3 | 2]  # move to, line to
        for to_x, to_y in line[1:]:
            commands += [zigzag(to_x - x), zigzag(to_y - y)]
            x, y = to_x, to_y
        features += field(2, field(3, 2) + field(4, b"".join(varint(c) for c in commands)))
    return field(3, field(15, 2) + field(1, layer.encode()) + features + field(5, EXTENT))


def hilbert(zoom: int, x: int, y: int) -> int:
    """The number of a tile: those of lower zooms first, then along Hilbert's curve."""
    number = (4**zoom - 1) // 3
    for level in range(zoom - 1, -1, -1):
        side = 1 << level
        right, down = int(x & side > 0), int(y & side > 0)
        number += side * side * ((3 * right) ^ down)
        if not down:
            if right:
                x, y = (1 << zoom) - 1 - x, (1 << zoom) - 1 - y
            x, y = y, x
    return number


def tile_of(point: Point, zoom: int) -> tuple[float, float]:
    """Where a point is among the tiles of a zoom."""
    lon, lat = point
    return (lon + 180) / 360 * 2**zoom, (1 - math.asinh(math.tan(math.radians(lat))) / math.pi) / 2 * 2**zoom


def write_archive(path: Path, line: Sequence[Point], layer: str = "roads", zoom: int = 10) -> Path:
    """An archive with the tile that the first point of a line is in."""
    column, row = (math.floor(v) for v in tile_of(line[0], zoom))
    pixels = [
        tuple(round((v - o) * EXTENT) for v, o in zip(tile_of(p, zoom), (column, row), strict=True)) for p in line
    ]
    tile = gzip.compress(vector_tile(layer, [pixels]), mtime=0)
    numbers = (1, hilbert(zoom, column, row), 1, len(tile), 1)  # one entry: its tile, run, length, offset + 1
    root = gzip.compress(b"".join(varint(n) for n in numbers), mtime=0)
    about = {"vector_layers": [{"id": layer, "fields": {}}], "attribution": '<a href="https://example.org">A town</a>'}
    metadata = gzip.compress(json.dumps(about).encode(), mtime=0)
    at_metadata = 127 + len(root)
    at_tiles = at_metadata + len(metadata)
    head = b"PMTiles\x03" + struct.pack(
        "<11Q", 127, len(root), at_metadata, len(metadata), at_tiles, 0, at_tiles, len(tile), 1, 1, 1
    )
    head += bytes([1, 2, 2, 1, zoom, zoom])  # in order, both compressed by gzip, vector tiles, zooms
    head += struct.pack("<4i", -1_800_000_000, -850_000_000, 1_800_000_000, 850_000_000) + bytes([zoom])
    head += struct.pack("<2i", round(line[0][0] * 1e7), round(line[0][1] * 1e7))
    path.write_bytes(head + root + metadata + tile)
    return path
