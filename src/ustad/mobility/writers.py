"""Tables for other tools: GeoParquet (with trackintel's column names) and CSV. Plain Parquet is `files.write_table`.

In: stays, trips, gaps or POIs. Out: one file, written whole or not at all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ustad.files import as_table, write_table
from ustad.mobility.geometry import lines_to_wkb, points_to_wkb
from ustad.tables import DataError

ExportFormat = Literal["geoparquet", "csv"]
GEOMETRY = "geom"  # trackintel's name


def write_geoparquet(source: Any, path: Path | str) -> None:
    """Stays and POIs as points, trips as lines, in GeoParquet 1.1 (WKB, longitude and latitude in WGS84).

    `agent_id` becomes `user_id` and the geometry is `geom`, so that
    `trackintel.Staypoints(geopandas.read_parquet(path))` works as it is; our readers take both names back.
    """
    table = as_table(source)
    if "path" in table.column_names:
        table, kind, box = _lines(table)
    elif {"lat", "lon"} <= set(table.column_names):
        table, kind, box = _points(table)
    else:
        raise DataError(f"{path}: a table without lat and lon or a path has no geometry; write it as CSV or Parquet")
    names = ["user_id" if n == "agent_id" else n for n in table.column_names]
    table = table.rename_columns(names)
    column = {"encoding": "WKB", "geometry_types": [kind], "bbox": box}
    geo = {"version": "1.1.0", "primary_column": GEOMETRY, "columns": {GEOMETRY: column}}
    metadata = {**(table.schema.metadata or {}), b"geo": json.dumps(geo).encode()}
    write_table(table.replace_schema_metadata(metadata), Path(path))


def _points(table: pa.Table) -> tuple[pa.Table, str, list[float]]:
    lat, lon = table["lat"].to_numpy(), table["lon"].to_numpy()
    return table.drop_columns(["lat", "lon"]).append_column(GEOMETRY, points_to_wkb(lat, lon)), "Point", _box(lat, lon)


def _lines(table: pa.Table) -> tuple[pa.Table, str, list[float]]:
    """The path as a line; its times are kept beside it."""
    offsets, flat = _flat_path(table)
    lat, lon = (pc.struct_field(flat, name).to_numpy(zero_copy_only=False) for name in ("lat", "lon"))
    times = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pc.struct_field(flat, "time"))
    table = table.drop_columns(["path"]).append_column("path_times", times)
    return table.append_column(GEOMETRY, lines_to_wkb(offsets, lat, lon)), "LineString", _box(lat, lon)


def _box(lat: np.ndarray, lon: np.ndarray) -> list[float]:
    if not len(lat):
        return [0.0, 0.0, 0.0, 0.0]
    return [float(lon.min()), float(lat.min()), float(lon.max()), float(lat.max())]


def write_csv(source: Any, path: Path | str) -> None:
    """CSV (compressed where the name ends in .gz): times in ISO 8601 with a zone, paths as WKT lines."""
    table, path = as_table(source), Path(path)
    for position, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            text = pc.strftime(table[field.name], format="%Y-%m-%dT%H:%M:%SZ")
            table = table.set_column(position, field.name, text)
    if "path" in table.column_names:
        table = table.set_column(table.column_names.index("path"), "path", _line_text(table))
    temporary = path.with_name(f".part-{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.output_stream(str(temporary), compression="gzip" if path.name.endswith(".gz") else None) as stream:
        pa_csv.write_csv(table, stream)
    temporary.replace(path)


def _line_text(table: pa.Table) -> pa.Array:
    offsets, flat = _flat_path(table)
    lon, lat = (pc.struct_field(flat, name).cast(pa.string()) for name in ("lon", "lat"))
    points = pc.binary_join_element_wise(lon, lat, " ")
    texts = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), points), ", ")
    return pc.binary_join_element_wise("LINESTRING (", texts, ")", "")


def _flat_path(table: pa.Table) -> tuple[np.ndarray, pa.StructArray]:
    lengths = pc.fill_null(pc.list_value_length(table["path"]), 0).to_numpy()
    flat = pc.list_flatten(table["path"])
    flat = flat.combine_chunks() if isinstance(flat, pa.ChunkedArray) else flat
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), flat


def export(tables: dict[str, pa.Table | None], folder: Path, form: ExportFormat) -> list[Path]:
    """Write each table that is there as `folder/NAME.parquet` (GeoParquet) or `folder/NAME.csv`."""
    paths: list[Path] = []
    for name, table in tables.items():
        if table is None:
            continue
        has_place = {"lat", "path"} & set(table.column_names)
        if form == "geoparquet" and not has_place:
            continue
        path = folder / (f"{name}.csv" if form == "csv" else f"{name}.parquet")
        (write_csv if form == "csv" else write_geoparquet)(table, path)
        paths.append(path)
    return paths
