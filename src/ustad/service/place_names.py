"""What the places of stays found in live fixes are: from a table of POIs, else from the agent's own places.

In: stays with coordinates. Out: the same with `poi_id`, `poi_category` and `poi_name`. For an agent's own place the
model knows the kind from training. Its name can come only from a table of POIs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.events.visits import read_visits
from ustad.habit_judge import HabitJudge
from ustad.habits.kernels import nearest_place
from ustad.mobility.places import UNKNOWN, PoiIndex, join_pois, read_pois, set_columns
from ustad.scoring.judge import Judge


class PlaceNames:
    """Read once, asked for every micro-batch of extracted stays."""

    def __init__(self, pois: Path | None, judge: Judge | None) -> None:
        self._pois = PoiIndex(read_pois(pois)) if pois is not None else None
        self._habits = judge.habits if isinstance(judge, HabitJudge) else None

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
        kinds = np.full(stays.num_rows, UNKNOWN, dtype=object)
        model = self._habits
        if model is not None and model.frame.projection is not None and model.frame.categories:
            h, visits = model.habits, read_visits(stays, model.schema, model.frame)
            place, km = nearest_place(h.owners(visits), visits.x, visits.y, h.place_offsets, h.place_x, h.place_y)
            code = np.where(km <= radius_m / 1000.0, np.append(h.place_category, 0)[place], 0)
            kinds[visits.row] = np.array([UNKNOWN, *model.frame.categories], dtype=object)[code]
        return pa.array(kinds.tolist(), pa.string())
