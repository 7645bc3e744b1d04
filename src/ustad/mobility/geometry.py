"""Points and lines as other tools store them: WKB, WKT and GeoArrow. In: columns; out: degrees, and the way back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.tables import DataError

_POINT_BYTES = 21  # byte order, type (1), x, y
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_POINT_TEXT = rf"^\s*(?:SRID=\d+;)?\s*POINT\s*Z?\s*\(\s*(?P<lon>{_NUMBER})\s+(?P<lat>{_NUMBER})[\s)]"
_POINT = np.dtype([("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])
_LINE_HEAD = np.dtype([("order", "u1"), ("type", "<u4"), ("count", "<u4")])


def point_degrees(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Latitudes and longitudes of a column of points: WKB, WKT text, or a struct of x and y. NaN where null."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_struct(kind):
        lon, lat = (pc.struct_field(array, name).cast(pa.float64()) for name in ("x", "y"))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        parts = pc.extract_regex(array, _POINT_TEXT)
        lon, lat = (pc.struct_field(parts, name).cast(pa.float64()) for name in ("lon", "lat"))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _from_wkb(array)
    else:
        raise DataError(f"the geometry column is {kind}; expected points as WKB, WKT or x and y")
    return lat.to_numpy(zero_copy_only=False), lon.to_numpy(zero_copy_only=False)


def _from_wkb(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    lat, lon = np.full(len(array), np.nan), np.full(len(array), np.nan)
    valid = np.flatnonzero(pc.is_valid(array).to_numpy(zero_copy_only=False))
    valid_rows = array.take(pa.array(valid))
    lengths = pc.binary_length(valid_rows).to_numpy(zero_copy_only=False)
    if np.any(lengths != _POINT_BYTES):
        raise DataError("the geometry column holds other shapes than plain points; expected one point per row")
    raw = b"".join(valid_rows.to_pylist()) if len(valid_rows) else b""
    points = np.frombuffer(raw, _POINT)
    if np.any(points["order"] != 1):
        raise DataError("the geometry column holds big-endian WKB; write it little-endian, as every common tool does")
    lat[valid], lon[valid] = points["y"], points["x"]
    return lat, lon


def points_to_wkb(lat: np.ndarray, lon: np.ndarray) -> pa.Array:
    """A column of WKB points."""
    points = np.empty(len(lat), _POINT)
    points["order"], points["type"], points["x"], points["y"] = 1, 1, lon, lat
    return _binary(np.frombuffer(points.tobytes(), np.uint8), np.arange(len(lat) + 1) * _POINT_BYTES)


def lines_to_wkb(offsets: np.ndarray, lat: np.ndarray, lon: np.ndarray) -> pa.Array:
    """A column of WKB lines: line i has points offsets[i] … offsets[i + 1]."""
    counts = np.diff(offsets)
    ends = np.concatenate([[0], np.cumsum(_LINE_HEAD.itemsize + 16 * counts)])
    buffer = np.empty(ends[-1], np.uint8)
    heads = np.empty(len(counts), _LINE_HEAD)
    heads["order"], heads["type"], heads["count"] = 1, 2, counts
    places = ends[:-1, None] + np.arange(_LINE_HEAD.itemsize)
    buffer[places] = np.frombuffer(heads.tobytes(), np.uint8).reshape(len(counts), -1)
    inside = np.ones(len(buffer), bool)
    inside[places] = False
    buffer[inside] = np.frombuffer(np.stack([lon, lat], axis=1).astype("<f8").tobytes(), np.uint8)
    return _binary(buffer, ends)


def _binary(content: np.ndarray, offsets: np.ndarray) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(content))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers).cast(pa.binary())
