"""What maps stand on: the bundled world cut to a box, and streets learned from trips."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pa_dataset
import pytest

pytest.importorskip("sqlalchemy", reason="the page's libraries are not installed: pip install 'ustad[service]'")
from ustad.page.ground import Ground, streets_in_table
from ustad.page.learned_streets import CELL, Streets, learn_streets
from ustad.page.world import clip_ring, cut_lines, world_near
from ustad.tables import PATH_POINT

GULF = (24.5, 59.7, 25.5, 60.5)


def is_inside(rings: Any, lon: float, lat: float) -> bool:
    """Even-odd rule, edge by edge."""
    crossings = 0
    for ring in rings:
        for (x1, y1), (x2, y2) in zip(ring, [*ring[1:], ring[0]], strict=True):
            if (y1 > lat) != (y2 > lat) and lon < x1 + (lat - y1) / (y2 - y1) * (x2 - x1):
                crossings += 1
    return crossings % 2 == 1


def test_a_clipped_ring_holds_the_points_of_the_box_that_the_ring_holds() -> None:
    g = np.random.default_rng(101)
    box = (-1.0, -0.6, 0.8, 1.1)
    for _ in range(20):
        angle = np.sort(g.uniform(0, 2 * np.pi, 25))
        ring = np.c_[np.cos(angle), np.sin(angle)] * g.uniform(0.3, 2.5, (25, 1))
        cut = clip_ring(ring, box)
        for lon, lat in g.uniform(-2, 2, (40, 2)):
            within = box[0] < lon < box[2] and box[1] < lat < box[3]
            assert is_inside([cut.tolist()], lon, lat) == (within and is_inside([ring.tolist()], lon, lat))


def test_lines_are_cut_to_the_box_and_reach_its_edge() -> None:
    line = np.c_[np.linspace(-3, 3, 61), np.sin(np.linspace(-3, 3, 61))]
    (run,) = cut_lines([line], (-1.05, -2.0, 1.05, 2.0))
    assert run[:, 0].min() == pytest.approx(-1.1)
    assert run[:, 0].max() == pytest.approx(1.1)
    assert cut_lines([line], (5.0, 5.0, 6.0, 6.0)) == []


def test_the_world_knows_land_sea_and_towns() -> None:
    ground = world_near(GULF)
    assert is_inside(ground["land"], 24.94, 60.25), "north of Helsinki"
    assert not is_inside(ground["land"], 25.0, 59.9), "in the Gulf of Finland"
    assert {"Helsinki"} <= {place["name"] for place in ground["names"]}
    caspian = world_near((48.0, 38.0, 54.0, 45.0))
    assert is_inside(caspian["lakes"], 51.0, 40.5), "a sea within the land"


def test_an_answer_is_small_whatever_is_looked_at() -> None:
    whole = world_near((-180.0, -85.0, 180.0, 85.0))
    assert len(json.dumps(whole)) < 1_500_000
    assert len(json.dumps(world_near(GULF))) < 20_000
    assert is_inside(whole["land"], 10.0, 50.0)
    assert not is_inside(whole["land"], -40.0, 30.0)


# ------------------------------------------------------------------------------------------------- streets
def trips(paths: list[tuple[int, list[tuple[float, float]]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Agents, starts and points of trips."""
    sizes = np.array([len(path) for _, path in paths])
    points = np.array([point for _, path in paths for point in path], float)
    return np.array([agent for agent, _ in paths]), np.cumsum(sizes) - sizes, points


ALONG = [(24.90, 60.17), (24.91, 60.17), (24.91, 60.18)]
ALONE = [(24.80, 60.10), (24.81, 60.10)]


def test_a_street_is_shown_from_five_people_on_however_often_fewer_went() -> None:
    four = [(agent, ALONG) for agent in range(4) for _ in range(50)]
    assert learn_streets(*trips(four)).layer.lines == []
    five = [*four, (4, ALONG), *[(agent, ALONE) for agent in range(4)]]
    streets = learn_streets(*trips(five))
    points = np.vstack(streets.layer.lines)
    on_way = (np.abs(points[:, 1] - 60.17) < CELL) | (np.abs(points[:, 0] - 24.91) < 2 * CELL)
    assert on_way.all(), "a line where nobody went, or where four went"
    assert points[:, 0].min() == pytest.approx(24.90, abs=2 * CELL)
    assert points[:, 1].max() == pytest.approx(60.18, abs=2 * CELL)


def test_a_jump_that_nobody_was_seen_on_is_no_street() -> None:
    assert learn_streets(*trips([(agent, [(24.9, 60.1), (25.3, 60.4)]) for agent in range(9)])).layer.lines == []


def test_streets_of_a_table_are_those_of_its_paths() -> None:
    rows = [{"agent_id": str(a), "path": [{"lon": lon, "lat": lat} for lon, lat in ALONG]} for a in range(5)]
    rows += [{"agent_id": "5", "path": []}, {"agent_id": "6", "path": None}]
    names = [field.name for field in PATH_POINT]
    for row in rows:
        for point in row["path"] or []:
            point |= dict.fromkeys(set(names) - set(point))
    table = pa.Table.from_pylist(rows, pa.schema([("agent_id", pa.string()), ("path", pa.list_(PATH_POINT))]))
    ours = streets_in_table(pa_dataset.dataset(table))
    theirs = learn_streets(*trips([(agent, ALONG) for agent in range(5)]))
    assert [line.tolist() for line in ours.layer.lines] == [line.tolist() for line in theirs.layer.lines]
    assert Ground(lambda: ours).near(GULF)["streets_from"] == "trips"


def test_streets_are_learned_before_anybody_asks_and_again_after_a_deletion():
    """Who looks at a map waits for what was begun in the background, and starts nothing a second time."""
    begun, go_on, learned = threading.Event(), threading.Event(), []

    def learn():
        begun.set()
        assert go_on.wait(20)
        learned.append(threading.current_thread().name)
        return Streets.of([np.array([[0.0, 48.0], [0.0, 48.01]])], [1])

    ground = Ground(learn)
    ground.learn_ahead()
    assert begun.wait(20)
    go_on.set()
    for _ in range(3):
        assert len(ground.near((-0.1, 47.9, 0.1, 48.1))["streets"]) == 1
    assert learned == ["streets"]
    ground.forget()
    assert len(ground.near((-0.1, 47.9, 0.1, 48.1))["streets"]) == 1
    assert len(learned) == 2
