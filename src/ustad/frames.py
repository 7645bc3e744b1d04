"""Tables that people hold in other libraries, as Arrow tables and back.

In: tables of pandas, polars, geopandas, trackintel, scikit-mobility, MovingPandas, DuckDB, Hugging Face or pyarrow; no
library is imported for it. Out: an Arrow table that shares memory where the library allows. The index of a
DataFrame travels as columns that are marked as such, so that scores find back to the rows they are of.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import pyarrow as pa

from ustad.tables import DataError, first_line

_INDEX_WITHOUT_NAME = re.compile(r"__index_level_\d+__")  # what Arrow calls an index without a name
_MARK = b"ustad.index"  # metadata of a column that was an index: its position among the levels
_TABLE_KINDS = (
    "pandas, polars, geopandas, trackintel, scikit-mobility, MovingPandas, DuckDB, Hugging Face datasets, pyarrow"
)


def to_arrow(source: Any, where: str = "data") -> pa.Table:
    """An Arrow table of any table that people hold; anything else is a `DataError`."""
    if isinstance(source, dict) and source and all(hasattr(part, "with_format") for part in source.values()):
        raise DataError(f"{where}: holds several parts ({', '.join(map(str, source))}); give one of them")
    try:
        table = _to_arrow(_plain(source))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{where}: a column cannot be read as a table's ({first_line(error)})") from error
    except (AttributeError, ValueError) as error:
        raise DataError(f"{where}: the {type(source).__name__} cannot be read ({first_line(error)})") from error
    if table is None:
        raise DataError(
            f"{where}: expected a path or a table with an Arrow C stream ({_TABLE_KINDS}), got {type(source).__name__}"
        )
    return _plain_text(table)


def _plain(source: Any) -> Any:
    """Trajectories as their points, geometry as WKB in WGS84, queries and views as what they hold."""
    if hasattr(source, "to_point_gdf"):  # MovingPandas: one trajectory or a collection
        source = source.to_point_gdf(return_orig_tz=True)  # else local times without their zone
    if hasattr(source, "to_wkb"):  # a GeoDataFrame, and trackintel's tables
        return _without_geometry_type(source)
    if hasattr(source, "collect_schema") and hasattr(source, "collect"):  # a polars query
        return source.collect()
    if hasattr(source, "with_format"):  # Hugging Face
        return source.with_format("arrow")[:]
    return source.to_table() if hasattr(source, "to_table") and hasattr(source, "count_rows") else source


def _to_arrow(source: Any) -> pa.Table | None:
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(source, pandas.DataFrame):
        return _from_pandas(source, pandas)
    if isinstance(source, pa.Table):
        return source
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return pa.table(source)
    return None


def _from_pandas(frame: Any, pandas: Any) -> pa.Table:
    """The columns, then the levels of the index, marked."""
    if isinstance(frame.index, pandas.DatetimeIndex) and frame.index.name is None and "time" not in frame.columns:
        frame = frame.set_axis(frame.index.rename("time"))
    table = pa.Table.from_pandas(frame, preserve_index=True)
    levels = table.num_columns - frame.index.nlevels
    names = [
        f.with_metadata({_MARK: str(i - levels).encode()}) if i >= levels else f for i, f in enumerate(table.schema)
    ]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(names))


def _without_geometry_type(frame: Any) -> Any:
    """A plain DataFrame with the active geometry in WGS84 as WKB, under the name `geometry`."""
    in_degrees, active = frame.to_crs(4326) if frame.crs is not None else frame, frame.geometry.name
    plain = in_degrees.drop(columns=[n for n in ("geometry",) if n in frame.columns and n != active]).to_wkb()
    return plain.rename(columns={active: "geometry"})


def _plain_text(table: pa.Table) -> pa.Table:
    """Text as polars hands it over (string views) as strings, which every function here takes."""
    for i, field in enumerate(table.schema):
        if field.type == pa.string_view():
            table = table.set_column(i, field.with_type(pa.string()), table.column(i).cast(pa.string()))
    return table


def without_index(table: pa.Table) -> pa.Table:
    """The table without the columns of an index that has no name: they say nothing of the events."""
    return table.drop_columns([name for name in table.column_names if _INDEX_WITHOUT_NAME.fullmatch(name)])


# ------------------------------------------------------------------------------------------------- and back
def to_pandas(table: pa.Table) -> Any:
    """A pandas DataFrame; what was its index is its index again."""
    levels = sorted((int(f.metadata[_MARK]), f.name) for f in table.schema if _MARK in (f.metadata or {}))
    try:
        frame = table.to_pandas()
    except ImportError as error:
        raise DataError("a DataFrame needs pandas; install it with pip install pandas") from error
    if not levels:
        return frame
    frame = frame.set_index([name for _, name in levels])
    return frame.rename_axis([None if _INDEX_WITHOUT_NAME.fullmatch(str(name)) else name for name in frame.index.names])


def to_geopandas(table: pa.Table) -> Any:
    """A GeoDataFrame of the rows' points in WGS84, with the columns and the index of `to_pandas`."""
    try:
        import geopandas
    except ImportError as error:
        raise DataError("a GeoDataFrame needs geopandas; install it with pip install geopandas") from error
    if not {"lat", "lon"} <= set(table.column_names):
        raise DataError("a GeoDataFrame needs columns lat and lon; use to_pandas()")
    frame = to_pandas(table)
    return geopandas.GeoDataFrame(frame, geometry=geopandas.points_from_xy(frame["lon"], frame["lat"]), crs=4326)


def to_polars(table: pa.Table) -> Any:
    """A polars DataFrame that shares the table's memory."""
    try:
        import polars
    except ImportError as error:
        raise DataError("this needs polars; install it with pip install polars") from error
    return polars.from_arrow(table)
