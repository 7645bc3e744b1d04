"""What a map stands on, cut to a box: the world, and streets of a given map or else learned from everybody's trips.

`Ground` is asked for a box and answers with everything there is to draw in it; the page and the report draw the same.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pa_dataset
from sqlalchemy import func, select

from ustad.mobility.osm import ATTRIBUTION
from ustad.mobility.osm_streets import read_osm_map
from ustad.page import records as r
from ustad.page.learned_streets import Streets, learn_streets
from ustad.page.store import Store
from ustad.page.world import MOST_NAMES, Box, Layer, as_lists, clip_ring, cut_lines, world_near
from ustad.tables import agent_codes

MOST_TRIPS = 40_000  # that streets are learned from, evenly among all of them
RENEWED_S = 600.0  # streets of live trips are learned anew after so many seconds
NO_STREETS = Streets.of([], [])
LearnStreets = Callable[[], Streets]


class Ground:
    """`extract` is an .osm.pbf file to draw; without one `learn` gives the streets, now and then anew."""

    def __init__(self, learn: LearnStreets = lambda: NO_STREETS, extract: Path | None = None) -> None:
        self._learn = learn
        self._drawn = None if extract is None else _DrawnMap(extract)
        self._streets: Streets | None = None
        self._learned_at = 0.0
        self._lock = threading.Lock()
        self._ahead = False  # whether streets are learned before somebody asks

    def near(self, box: Box) -> dict[str, Any]:
        """Layers of a map within a box, and where they are from."""
        world = {"box": list(box), **world_near(box)}
        if self._drawn is not None:
            return self._drawn.over(world, box)
        streets = self._known_streets().near(box)
        return {**world, "streets": streets, "streets_from": "trips" if streets else None}

    def learn_ahead(self) -> None:
        """Learn streets in the background from now on: nobody who looks at a map waits for them."""
        self._ahead = True
        self._begin_learning()

    def forget(self) -> None:
        """Streets are learned anew: somebody whose trips they were learned from has been deleted."""
        with self._lock:
            self._streets = None
        if self._ahead:
            self._begin_learning()

    def _known_streets(self) -> Streets:
        moment, streets = time.monotonic(), self._streets
        is_old = moment - self._learned_at > RENEWED_S
        is_empty = streets is None or not len(streets.size)  # trips may have come since
        if streets is None or is_empty or (is_old and not self._ahead):
            return self._learn_since(moment)
        if is_old:
            self._learned_at = moment  # one is enough
            self._begin_learning()
        return streets

    def _learn_since(self, moment: float) -> Streets:
        """Streets that were learned after a moment; who comes while they are learned waits for them."""
        with self._lock:
            if self._streets is None or self._learned_at <= moment:
                self._streets, self._learned_at = self._learn(), time.monotonic()
            return self._streets

    def _begin_learning(self) -> None:
        if self._drawn is None:
            threading.Thread(target=self._learn_quietly, args=[time.monotonic()], name="streets", daemon=True).start()

    def _learn_quietly(self, moment: float) -> None:
        """In the background: what fails, as a store that is closed, fails again where somebody asks."""
        with contextlib.suppress(Exception):
            self._learn_since(moment)


class _DrawnMap:
    """A map of OpenStreetMap in memory."""

    def __init__(self, path: Path) -> None:
        self.map = read_osm_map(path)
        self.streets = Streets.of(self.map.streets, self.map.sizes)
        self.rivers, self.waters = (Layer.of_lines(lines) for lines in (self.map.rivers, self.map.waters))

    def over(self, world: dict[str, Any], box: Box) -> dict[str, Any]:
        west, south, east, north = box
        names = [n for n in self.map.names if west <= n["lon"] <= east and south <= n["lat"] <= north]
        waters = [clip_ring(ring, box) for ring in self.waters.near(box)]
        map_names = {name["name"] for name in names}
        return {
            **world,
            "lakes": world["lakes"] + as_lists([ring for ring in waters if len(ring)]),
            "rivers": world["rivers"] + as_lists(cut_lines(self.rivers.near(box), box)),
            "names": ([*names, *(n for n in world["names"] if n["name"] not in map_names)])[:MOST_NAMES],
            "streets": self.streets.near(box), "streets_from": "map", "note": f"{ATTRIBUTION}. {world['note']}",
        }  # fmt: skip


def streets_in_store(store: Store) -> Streets:
    """Streets of the trips that a store holds."""
    t = r.trips.c
    with store.reading() as connection:
        count = connection.execute(select(func.count()).select_from(r.trips)).scalar_one()
        every = -(-count // MOST_TRIPS) if count else 1
        query = select(t.agent, t.path).where((t.started_at // 1_000_000) % every == 0).limit(2 * MOST_TRIPS)
        rows = connection.execute(query).all()
    return _learn([row.agent for row in rows], json.loads(f"[{','.join(row.path for row in rows)}]"))


def _learn(agents: Sequence[str], paths: list[list[list[float]]]) -> Streets:
    if not paths:
        return NO_STREETS
    codes = np.unique(np.array(agents, object).astype(str), return_inverse=True)[1]
    sizes = np.array([len(path) for path in paths])
    points = np.array(list(itertools.chain.from_iterable(paths)), float).reshape(-1, 2)
    return learn_streets(codes, np.cumsum(sizes) - sizes, points)


def streets_in_table(trips: pa_dataset.Dataset | None) -> Streets:
    """Streets of a table of trips."""
    if trips is None or not trips.count_rows():
        return NO_STREETS
    every = -(-trips.count_rows() // MOST_TRIPS)
    table = trips.to_table(columns=["agent_id", "path"])
    if every > 1:
        table = table.take(pa.array(np.arange(0, table.num_rows, every)))
    table = table.filter(pc.fill_null(pc.greater(pc.list_value_length(table["path"]), 1), False)).combine_chunks()
    if not table.num_rows:
        return NO_STREETS
    path = table["path"].chunk(0)
    points = path.flatten()
    lon, lat = (points.field(name).to_numpy(zero_copy_only=False) for name in ("lon", "lat"))
    starts = path.offsets.to_numpy()[:-1] - path.offsets[0].as_py()
    return learn_streets(agent_codes(table["agent_id"])[0], starts, np.c_[lon, lat])


def box_around(points: np.ndarray) -> Box:
    """A box around points (lon, lat) with room: half of its size on each side, at least 0.15 degrees."""
    (west, south), (east, north) = points.min(axis=0), points.max(axis=0)
    wide, high = max(0.15, 0.5 * (east - west)), max(0.15, 0.5 * (north - south))
    return (
        max(-180.0, float(west - wide)), max(-85.0, float(south - high)),
        min(180.0, float(east + wide)), min(85.0, float(north + high)),
    )  # fmt: skip
