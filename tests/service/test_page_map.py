"""What maps stand on: the service's answers, and the page in a real Chromium, with and without a map of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from page_visit import Visit
from service_example import PATIENCE, ThreadServer, a_stay
from small_archive import write_archive

from ustad.page import records as r
from ustad.page.map_file import read_map_file
from ustad.page.report_file import MOST_MAP_BYTES, write_report
from ustad.page.store import insert_new
from ustad.service.keys import create_key
from ustad.tables import DataError

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'ustad[dev]'")
expect = playwright.expect
expect.set_options(timeout=1000 * PATIENCE)
HOME, WORK = (24.90, 60.17), (24.98, 60.19)
START = 1_709_280_000_000_000  # 2024-03-01 08:00 UTC
BOX = {"west": 24.8, "south": 60.1, "east": 25.1, "north": 60.3}
COUNT = "(layers) => window.maps.at(-1).queryRenderedFeatures({ layers }).length"
GO = "(to) => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')); }"
KEEP_MAPS = """() => {
  window.maps = [];
  maplibregl.Map = new Proxy(maplibregl.Map, { construct(Map, given) { window.maps.push(new Map(...given)); return window.maps.at(-1); } });
}"""  # noqa: E501  # JavaScript


def straight(begin: tuple[float, float], end: tuple[float, float], n: int = 30) -> list[list[float]]:
    return np.round(np.linspace(begin, end, n), 6).tolist()


def fill(server: ThreadServer, people: int = 6) -> None:
    """People who go to work along one way every day, and one of them who once stays long."""
    stays = []
    for i in range(people):
        for day in range(3):
            home = {"lon": HOME[0], "lat": HOME[1], "poi_category": "home", "poi_id": "h"}
            stays.append(a_stay(f"p{i}", 24 * day, 8, **home))
            work = {"lon": WORK[0], "lat": WORK[1], "poi_category": "office", "poi_id": "w"}
            stays.append(a_stay(f"p{i}", 24 * day + 9, 1 if day < 2 else 5, **work))
    stays.sort(key=lambda stay: stay["started_at"])
    assert httpx.post(server.url + "/v1/events", json={"events": stays}, timeout=PATIENCE).status_code == 200
    day = 86_400_000_000
    rows = [
        {"agent": f"p{i}", "started_at": START + d * day, "finished_at": START + d * day + 3_600_000_000,
         "path": json.dumps(straight(HOME, WORK))}
        for i in range(people) for d in range(3)
    ]  # fmt: skip
    with server.service.store.writing() as connection:
        insert_new(connection, r.trips, rows)


@pytest.fixture(scope="module")
def town() -> Iterator[ThreadServer]:
    server = ThreadServer()
    fill(server)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadServer]:
    archive = write_archive(tmp_path_factory.mktemp("map") / "town.pmtiles", straight(HOME, WORK))
    server = ThreadServer(map=archive)
    fill(server, 2)
    yield server
    server.stop()


def ask_ground(server: ThreadServer) -> dict[str, Any]:
    answer = httpx.get(server.url + "/v1/ground", params=BOX, timeout=PATIENCE)
    assert answer.status_code == 200
    return answer.json()


# ------------------------------------------------------------------------------------------------- answers
def test_the_ground_of_a_box_has_the_towns_in_it_and_streets_of_everybodys_trips(town: ThreadServer) -> None:
    ground = ask_ground(town)
    assert "Helsinki" in [place["name"] for place in ground["names"]]
    assert ground["streets_from"] == "trips"
    points = np.array([point for street in ground["streets"] for point in street["path"]])
    way = np.array(WORK) - HOME
    aside = np.abs((points - HOME) @ (-way[1], way[0])) / np.hypot(*way)
    assert aside.max() < 0.0009, "a street lies beside the way that everybody went"


def test_streets_of_too_few_people_go_when_one_of_them_is_deleted(serve_here: Any) -> None:
    server = serve_here()
    fill(server, 5)
    assert ask_ground(server)["streets"]
    assert httpx.delete(server.url + "/v1/agents/p0", timeout=PATIENCE).status_code == 200
    assert ask_ground(server)["streets"] == []


def test_a_box_that_is_none_is_refused(town: ThreadServer) -> None:
    for wrong in ({"west": 25.2}, {"north": 10}, {"east": "nan"}, {"south": -200}):
        answer = httpx.get(town.url + "/v1/ground", params=BOX | wrong, timeout=PATIENCE)
        assert answer.status_code == 422
    assert httpx.get(town.url + "/v1/map.pmtiles", timeout=PATIENCE).status_code == 404


def test_ranges_of_the_archive_are_answered_and_only_to_those_who_may_read(serve_here: Any, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "town.pmtiles", straight(HOME, WORK))
    server = serve_here(map=archive)
    part = httpx.get(server.url + "/v1/map.pmtiles", headers={"Range": "bytes=0-126"}, timeout=PATIENCE)
    assert part.status_code == 206
    assert part.content == archive.read_bytes()[:127]
    key = create_key(server.service.store, "reader", ["read"])
    server.service.keys.read_again()
    assert httpx.get(server.url + "/v1/map.pmtiles", timeout=PATIENCE).status_code == 401
    allowed = {"Authorization": f"Bearer {key}", "Range": "bytes=7-7"}
    assert httpx.get(server.url + "/v1/map.pmtiles", headers=allowed, timeout=PATIENCE).content == b"\x03"


def test_an_archive_says_what_it_is_and_what_is_none_is_refused(tmp_path: Path) -> None:
    archive = read_map_file(write_archive(tmp_path / "town.pmtiles", straight(HOME, WORK)))
    assert (archive.tiles, archive.layers, archive.note) == ("vector", ["roads"], "A town")
    whole = archive.path.read_bytes()
    for name, content in {"short": whole[:50], "other": b"SQLite format 3" + whole[15:], "cut": whole[:140]}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match="PMTiles archive of version 3"):
            read_map_file(tmp_path / name)
    with pytest.raises(DataError, match="cannot be read"):
        read_map_file(tmp_path / "nothing.pmtiles")


# ---------------------------------------------------------------------------------------------------- page
def open_map(browser: Any, server: ThreadServer, path: str) -> tuple[Visit, Any]:
    visit = Visit(browser, server.url)
    page = visit.go()
    page.evaluate(KEEP_MAPS)
    page.evaluate(GO, path)
    page.wait_for_selector(".map[data-drawn]")
    return visit, page


def test_the_map_has_names_streets_and_a_legend_and_plays_a_day(browser: Any, town: ThreadServer) -> None:
    visit, page = open_map(browser, town, "/agent/p0")
    expect(page.locator(".map-name")).to_have_text(["home", "work"])
    expect(page.locator(".map-key")).to_contain_text("at least 5 people")
    expect(page.locator(".map-key")).to_contain_text("Natural Earth")
    expect(page.locator(".maplibregl-ctrl-scale")).to_contain_text("km")
    page.wait_for_function(f"() => ({COUNT})(['roads']) > 0")
    assert page.evaluate(COUNT, ["land"]) > 0
    expect(page.locator(".player")).to_be_hidden()
    page.evaluate(GO, "/agent/p0?day=2024-03-01")  # a day is played along its stays and trips
    slider = page.get_by_label("Time of this day")
    for minute, words in ((600, "10:00 at home"), (630, "10:30 on the way"), (780, "13:00 not observed")):
        slider.evaluate("(s, v) => { s.value = v; s.dispatchEvent(new Event('input')); }", minute)
        expect(page.locator(".player output")).to_have_text(words)
    page.get_by_role("button", name="Play the day").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.wait_for_function("() => document.querySelector('.player input').value > 780")
    visit.close()


def test_tiles_of_the_services_own_archive_are_drawn(browser: Any, mapped: ThreadServer) -> None:
    visit, page = open_map(browser, mapped, "/agent/p0")
    page.wait_for_function(f"() => ({COUNT})(['archive-roads-lines']) > 0")
    expect(page.locator(".map-key")).to_contain_text("A town")
    visit.close()


def test_a_report_holds_the_archive_that_it_was_given(browser: Any, tiny_run: Path, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "town.pmtiles", straight(HOME, WORK))
    file = write_report(tiny_run / "scores", tmp_path / "report.html", cases=2, map_file=archive)
    visit = Visit(browser, file.as_uri())
    page = visit.go("", ".alerts li")
    page.wait_for_function("() => window.maplibregl && window.pmtiles")
    page.evaluate(KEEP_MAPS)
    page.click(".alerts li a")
    page.wait_for_selector(".map[data-drawn]")
    page.wait_for_function(f"() => ({COUNT})(['archive-roads-lines']) > 0")
    visit.close()
    archive.write_bytes(archive.read_bytes() + bytes(MOST_MAP_BYTES))
    with pytest.raises(DataError, match="too much for a report"):
        write_report(tiny_run / "scores", tmp_path / "more.html", map_file=archive)
