"""A map of OpenStreetMap under the page: its streets, waters and names, in place of streets learned from trips."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the page's libraries are not installed: pip install 'ustad[service]'")
osmium = pytest.importorskip("osmium", reason="osmium is not installed: pip install 'ustad[geo]'")
from ustad.page.ground import Ground  # noqa: E402  # after what it needs
from ustad.tables import DataError  # noqa: E402

BOX = (-0.1, 47.9, 0.2, 48.1)


@pytest.fixture(scope="module")
def extract(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A main road, a lane, a footpath, a pond and a village."""
    path = tmp_path_factory.mktemp("osm") / "village.osm.pbf"
    points = {1: (0.0, 48.0), 2: (0.02, 48.0), 3: (0.02, 48.02), 4: (0.03, 48.01), 5: (0.05, 48.01), 6: (0.04, 48.03)}
    with osmium.SimpleWriter(str(path)) as writer:
        for number, at in points.items():
            tags = {"place": "village", "name": "Petitmont"} if number == 3 else {}
            writer.add_node(osmium.osm.mutable.Node(id=number, location=at, tags=tags))
        ways = [
            ([1, 2], {"highway": "primary", "name": "Grande Rue"}),
            ([2, 3], {"highway": "residential", "name": "Petite Rue"}),
            ([1, 3], {"highway": "footway"}),
        ]
        ways.append(([4, 5, 6, 4], {"natural": "water"}))
        for number, (nodes, tags) in enumerate(ways):
            writer.add_way(osmium.osm.mutable.Way(id=number + 1, nodes=nodes, tags=tags))
    return path


def test_streets_waters_and_names_are_those_of_the_extract(extract: Path) -> None:
    ground = Ground(lambda: pytest.fail("streets are learned although a map is given"), extract).near(BOX)
    assert sorted((street["size"], street["path"]) for street in ground["streets"]) == [
        (0, [[0.02, 48.0], [0.02, 48.02]]), (2, [[0.0, 48.0], [0.02, 48.0]]),
    ]  # fmt: skip
    assert {(0.03, 48.01), (0.05, 48.01), (0.04, 48.03)} == {tuple(p) for p in ground["lakes"][-1]}
    names = [place["name"] for place in ground["names"]]
    assert names[:2] == ["Petitmont", "Grande Rue"], "places come before main streets"
    assert "Petite Rue" not in names
    assert ground["streets_from"] == "map"
    assert "OpenStreetMap" in ground["note"]


def test_a_file_without_streets_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.osm.pbf"
    wrong.write_bytes(b"nothing")
    for path, problem in ((wrong, "not an OpenStreetMap file"), (tmp_path / "none.osm.pbf", "no such file")):
        with pytest.raises(DataError, match=problem):
            Ground(extract=path)
