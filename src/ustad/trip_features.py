"""The trip that led to a stay, as columns of vectors: nothing, a summary, or two learned embeddings.

In go events and the trips between them; out come the events with one vector per trip feature, null where no trip
was seen (a first stay, a stay after a gap). Embeddings are learned from training trips alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad import progress
from ustad.config import Config
from ustad.mobility.trips import TripArrays, trip_arrays

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ustad.network.paths import PathEncoder

#: Columns that trips bring into the events; they are no part of the score table.
COLUMNS = ("trip_summary", "trip_shape", "trip_speed")


def needed_companions(config: Config) -> tuple[str, ...]:
    """What a model of these settings reads beside the events."""
    return () if config.model.trips == "none" else ("trips",)


class TripFeatures:
    """How trips enter the model; fitted once, stored with it."""

    def __init__(self, how: str, paths: PathEncoder | None = None) -> None:
        self.how, self.paths = how, paths

    @classmethod
    def fit(cls, trips: pa.Table | None, events: pa.Table, config: Config, device: torch.device | str) -> TripFeatures:
        """As configured where the data has trips to these events, else without them (and says so)."""
        how = config.model.trips
        if how != "none" and (trips is None or trips.num_rows == 0):
            progress.say("the data has no trips; going on without them")
            how = "none"
        if how != "embedding":
            return cls(how)
        from ustad.network.paths import fit_paths

        arrays = trip_arrays(trips_to(trips, events))
        whole = ~arrays.crosses_gap
        size, seed = config.model.trip_size, config.seed
        return cls(how, fit_paths(arrays.shape[whole], arrays.speed[whole], size, seed, device=device))

    def attach(self, events: pa.Table, trips: pa.Table | None) -> pa.Table:
        """Events with the vector columns of the trips that led to them, null where there was none."""
        if self.how == "none":
            return events
        if trips is None:
            progress.say("the data has no trips; what the model expects of them is left out of the scores")
            for name in COLUMNS:
                events = events.append_column(name, pa.nulls(events.num_rows, pa.list_(pa.float32())))
            return events
        arrays = trip_arrays(trips_to(trips, events))
        is_whole = ~arrays.crosses_gap
        at = pc.index_in(events["stay_id"], pa.array(arrays.destination_stay_id[is_whole], events["stay_id"].type))
        for name, values in self._vectors(arrays).items():
            column = pa.FixedSizeListArray.from_arrays(pa.array(values[is_whole].ravel()), values.shape[1])
            events = events.append_column(name, column.cast(pa.list_(pa.float32())).take(at.combine_chunks()))
        return events

    def _vectors(self, arrays: TripArrays) -> dict[str, np.ndarray]:
        if self.paths is None:
            return {"trip_summary": arrays.summary}
        shape, speed = self.paths.encode(arrays.shape, arrays.speed)
        return {"trip_shape": shape, "trip_speed": speed}

    def to_tensors(self) -> dict[str, Tensor]:
        """For safetensors; empty where nothing was learned."""
        return self.paths.state_dict() if self.paths is not None else {}

    @classmethod
    def from_tensors(cls, how: str, tensors: Mapping[str, Tensor]) -> TripFeatures:
        if not tensors:
            return cls(how)
        from ustad.network.paths import PathEncoder

        return cls(how, PathEncoder.from_state_dict(dict(tensors)))


def trips_to(trips: pa.Table, events: pa.Table) -> pa.Table:
    """The trips that lead to these stays."""
    column = trips["destination_stay_id"]
    return trips.filter(pc.is_in(column, pc.unique(events["stay_id"]).cast(column.type)))
