"""A city from OpenStreetMap. A tiny extract is written here; real ones are tried where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ustad.dataset import load_directory
from ustad.simulate import simulate
from ustad.simulate.osm_city import _speed, read_ground
from ustad.simulate.presets import get_preset
from ustad.simulate.routes import shortest_trees
from ustad.tables import Complaints, DataError, check_overlaps

osmium = pytest.importorskip("osmium")
DATA = Path(os.environ.get("USTAD_DATA", Path(__file__).parents[3] / "shared" / "data"))
SIDE, STEP = 7, 0.004


@pytest.fixture(scope="module")
def extract(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid of streets with a cafe, a school and houses, and a road that is not connected."""
    path = tmp_path_factory.mktemp("osm") / "grid.osm.pbf"
    writer = osmium.SimpleWriter(str(path))
    for k in range(SIDE * SIDE):
        row, column = divmod(k, SIDE)
        tags = {10: {"amenity": "cafe"}, 20: {"amenity": "school"}}.get(k, {"building": "house"} if k % 2 else {})
        writer.add_node(osmium.osm.mutable.Node(id=k + 1, location=(column * STEP, 48 + row * STEP), tags=tags))
    for k in (100, 101):
        writer.add_node(osmium.osm.mutable.Node(id=k, location=(1.0 + 0.01 * k, 48.5), tags={}))
    lines = [[r * SIDE + c + 1 for c in range(SIDE)] for r in range(SIDE)]
    lines += [[r * SIDE + c + 1 for r in range(SIDE)] for c in range(SIDE)]
    for number, nodes in enumerate([*lines, [100, 101]]):
        tags = {"highway": "primary" if number == 0 else "residential"}
        writer.add_way(osmium.osm.mutable.Way(id=number + 1, nodes=nodes, tags=tags))
    writer.close()
    return path


def test_roads_become_one_connected_network(extract: Path) -> None:
    preset, ground = read_ground(get_preset("town"), extract, "Europe/Paris", 1)
    assert len(ground.streets.x) == SIDE * SIDE
    assert len(ground.streets.km) == 2 * SIDE * (SIDE - 1)
    assert np.isfinite(shortest_trees(ground.streets)[0]).all()
    assert preset.lat == pytest.approx(48 + STEP * (SIDE - 1) / 2, abs=0.05)
    assert preset.timezone == "Europe/Paris"
    assert set(np.round(ground.streets.kmh)) == {30, 65}


def test_people_can_live_in_it(extract: Path, tmp_path: Path) -> None:
    simulate("town", 25, 2, tmp_path, fixes="300s", days=6, osm=extract, timezone="Europe/Paris")
    data = load_directory(tmp_path)
    check_overlaps(data.events, Complaints("stays"))
    assert data.meta["osm"] == extract.name
    assert set(data.events["agent_id"].to_pylist()) == set(range(25))
    assert data.events["lat"].to_numpy().min() > 47.9
    assert data.events["lat"].to_numpy().max() < 48.1


def test_what_is_not_an_extract_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.osm.pbf"
    broken.write_bytes(b"not a map")
    for path, message in ((tmp_path / "none.osm.pbf", "no such file"), (broken, "not an OpenStreetMap file")):
        with pytest.raises(DataError, match=message):
            read_ground(get_preset("town"), path, "UTC", 1)


def test_speed_limits_are_read() -> None:
    assert [_speed(text, 30.0) for text in ("50", "30 mph", None, "none", "0")] == [
        50,
        pytest.approx(48.3, abs=0.1),
        30,
        30,
        30,
    ]


@pytest.mark.parametrize("name", ["baltimore", "Helsinki"])
def test_real_extracts_can_be_lived_in(name: str, tmp_path: Path) -> None:
    path = DATA / "osm" / f"{name}.osm.pbf"
    if not path.exists():
        pytest.skip("the extract is not at hand")
    simulate("town", 30, 2, tmp_path, days=5, osm=path)
    check_overlaps(load_directory(tmp_path).events, Complaints("stays"))
