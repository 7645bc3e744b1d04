"""What the places of stays found in live fixes are: from a table of POIs, else from the agent's own places.

In: stays with coordinates. Out: the same with `poi_id`, `poi_category` and `poi_name`. For an agent's own place the
model knows the kind from training. Its name can come only from a table of POIs.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ustad.files import set_columns
from ustad.mobility.places import UNKNOWN, PoiIndex, join_pois, read_pois
from ustad.scoring.judge import Judge


class PlaceNames:
    """Read once, asked for every micro-batch of extracted stays."""

    def __init__(self, pois: Path | None, judge: Judge | None) -> None:
        self._pois = PoiIndex(read_pois(pois)) if pois is not None else None
        self._judge = judge

    def name(self, stays: pa.Table, radius_m: float) -> pa.Table:
        """Stays with what is known of their places; `unknown` where nothing is."""
        if self._pois is not None:
            stays = join_pois(stays, self._pois, radius_m)
            stays = set_columns(stays, poi_name=self._names(stays["poi_id"]))
        elif "poi_category" not in stays.column_names:
            stays = set_columns(stays, poi_category=pa.array([UNKNOWN] * stays.num_rows))
        category = pc.fill_null(stays["poi_category"].combine_chunks(), UNKNOWN)
        own = pc.if_else(pc.equal(category, UNKNOWN), self._own(stays, radius_m), category)
        return set_columns(stays, poi_category=own)

    def _names(self, ids: pa.ChunkedArray) -> pa.Array:
        pois = self._pois.pois if self._pois is not None else None
        if pois is None or "name" not in pois.column_names:
            return pa.nulls(len(ids), pa.string())
        index = pc.index_in(ids.combine_chunks(), value_set=pois["poi_id"].combine_chunks(), skip_nulls=True)
        return pois["name"].combine_chunks().take(index).cast(pa.string())

    def _own(self, stays: pa.Table, radius_m: float) -> pa.Array:
        """The kind of the agent's nearest own place within the radius."""
        kinds = self._judge.name_places(stays, radius_m) if self._judge is not None else [None] * stays.num_rows
        return pa.array([UNKNOWN if kind is None else kind for kind in kinds], pa.string())
