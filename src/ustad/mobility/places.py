"""Where a stay was: the nearest point of interest. Without such data, see `own_places`.

In: stays (and POIs). Out: the same stays with `poi_id` and `poi_category`. Distances are great-circle distances.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.files import as_table, set_columns
from ustad.geo import EARTH_RADIUS_KM, unit_vectors
from ustad.mobility.columns import POI_NAMES, rename
from ustad.mobility.reading import Reading
from ustad.tables import POIS, DataError, agent_codes, validate

UNKNOWN = "unknown"


def read_pois(source: Any, reading: Reading | None = None) -> pa.Table:
    """POIs by the contract; where `category` is a list, one is chosen by `one_category`."""
    reading = reading or Reading()
    where = str(source) if isinstance(source, (str, Path)) else "pois"
    table = rename(as_table(source, where), POI_NAMES, reading)
    if table.column_names.count("category") == 1 and pa.types.is_nested(table["category"].type):
        category = one_category(table["category"])
        table = table.set_column(table.column_names.index("category"), "category", category)
        reading.say("POIs with several categories got the one that the fewest POIs have")
    table, complaints = validate(table, POIS, where, reading.on_error)
    reading.count(complaints)
    return table


def one_category(lists: pa.ChunkedArray) -> pa.Array:
    """One category per list: the one that the fewest POIs carry, the most telling; ties by the alphabet.

    A dwelling where one may also visit is `Home`, a shop where some also work is a shop. Empty lists are unknown.
    """
    flat = pc.list_flatten(lists)
    codes, names = agent_codes(flat.cast(pa.string()))
    counts = np.bincount(codes, minlength=len(names))
    rank = np.empty(len(names), np.int64)
    rank[np.lexsort((names, counts))] = np.arange(len(names))
    parents = pc.list_parent_indices(lists).to_numpy()
    best = np.full(len(lists), len(names), np.int64)
    np.minimum.at(best, parents, rank[codes])
    in_order = [*names[np.argsort(rank)].tolist(), UNKNOWN]
    return pa.array(in_order, pa.string()).take(pa.array(best))


class PoiIndex:
    """POIs in a tree on the unit sphere; `nearest` finds the nearest within a radius. Build once, ask often."""

    def __init__(self, pois: pa.Table) -> None:
        from scipy.spatial import cKDTree  # here: without POIs nobody waits for it

        self.pois = pois
        self._tree = cKDTree(unit_vectors(pois["lat"].to_numpy(), pois["lon"].to_numpy()))

    def nearest(self, lat: np.ndarray, lon: np.ndarray, radius_m: float) -> np.ndarray:
        """Row of the nearest POI for each point, −1 where none lies within `radius_m`: int64 [n]."""
        chord = 2.0 * np.sin(min(radius_m / 1000.0 / EARTH_RADIUS_KM, np.pi) / 2.0)
        _, rows = self._tree.query(unit_vectors(lat, lon), distance_upper_bound=np.nextafter(chord, 3.0))
        return np.where(rows < self.pois.num_rows, rows, -1).astype(np.int64)


def join_pois(stays: pa.Table, pois: pa.Table | PoiIndex, radius_m: float) -> pa.Table:
    """Stays with the nearest POI's id and category; null and `unknown` where none lies within `radius_m`."""
    if radius_m <= 0:
        raise DataError(f"the POI radius must be above 0 m, got {radius_m}")
    index = pois if isinstance(pois, PoiIndex) else PoiIndex(pois)
    rows = index.nearest(stays["lat"].to_numpy(), stays["lon"].to_numpy(), radius_m)
    pick = pa.array(np.maximum(rows, 0), mask=rows < 0)
    category = pc.fill_null(index.pois["category"].combine_chunks().take(pick), UNKNOWN)
    return set_columns(stays, poi_id=index.pois["poi_id"].combine_chunks().take(pick), poi_category=category)
