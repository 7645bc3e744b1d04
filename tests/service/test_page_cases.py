"""A morning on the page, in a real browser: judge, follow a case, watch somebody, save a view, come back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from page_visit import Visit
from service_example import PATIENCE, PlainScorer, ThreadServer, a_stay

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'ustad[dev]'")
expect = playwright.expect
expect.set_options(timeout=1000 * PATIENCE)


@pytest.fixture
def server() -> Iterator[ThreadServer]:
    """A service with one alert each of five people: the longer, the more unusual."""
    server = ThreadServer(PlainScorer())
    stays = [a_stay(f"agent {i}", i, 4 + i) for i in range(5)]
    assert httpx.post(server.url + "/v1/events", json={"events": stays}, timeout=PATIENCE).status_code == 200
    yield server
    server.stop()


def ask(server: ThreadServer, path: str) -> Any:
    return httpx.get(server.url + path, timeout=PATIENCE).json()


def test_after_a_verdict_the_next_open_alert_comes_whatever_the_order(visit: Visit, server: ThreadServer) -> None:
    page = visit.go("/?order=time")
    names = page.locator(".alerts .who").all_inner_texts()
    page.locator(".alerts li a").nth(3).click()
    for at, key in ((4, "c"), (0, "w"), (1, "c"), (2, "w")):
        page.wait_for_selector("[data-act=confirm]")
        page.keyboard.press(key)
        expect(page.locator("h1")).to_have_text(names[at])
    page.wait_for_selector("[data-act=confirm]")
    page.keyboard.press("c")
    page.wait_for_selector(".lanes")
    expect(page.locator(".toast").last).to_contain_text("No open alert is left")
    assert ask(server, "/v1/alerts?state=open")["total"] == 0
    assert ask(server, "/v1/alerts?state=wrong")["total"] == 2


def test_an_alert_becomes_a_case_with_notes_and_a_state(visit: Visit, server: ThreadServer) -> None:
    page = visit.go()
    page.click(".alerts li a")
    page.wait_for_selector("[data-act=case]")
    page.keyboard.press("n")
    page.wait_for_url("**/case/1")
    page.fill("#note", "asked at the door")
    page.click("text=Add note")
    expect(page.locator(".history")).to_contain_text("asked at the door")
    page.fill("#title", "Long visits")
    page.select_option("#state", "explained")
    page.fill("#reason", "a funeral")
    page.click("text=Save")
    expect(page.locator("h1")).to_have_text("Long visits")
    expect(page.locator(".alerts .state")).to_have_text("○ explained")
    page.click("nav >> text=Cases")
    expect(page.locator("#cases tbody tr")).to_contain_text("Long visits")
    assert ask(server, "/v1/alerts?state=expected")["alerts"][0]["verdict"]["reason"] == "a funeral"
    page.goto(server.url + "/?state=open")
    page.click(".alerts li a")
    page.click("text=Add to a case")
    expect(page.locator(".in-cases option")).to_have_text(["no other case is open"])


def test_watched_people_saved_views_and_last_filters_are_there_again(visit: Visit, server: ThreadServer) -> None:
    page = visit.go("/agent/agent%202", ".watch")
    page.click(".watch")
    expect(page.locator(".watch")).to_have_text("★ watched")
    page.click("nav >> text=Overview")
    page.select_option("#filter-watched", "true")
    expect(page.locator(".alerts .who")).to_have_text(["agent 2"])
    page.on("dialog", lambda dialog: dialog.accept("my people"))
    page.click("#save-view")
    expect(page.locator("#saved-views option:checked")).to_have_text("my people")
    again = page.context.new_page()
    again.goto(server.url + "/")
    expect(again.locator(".alerts .who")).to_have_text(["agent 2"])
    again.click("text=Clear all")
    expect(again.locator(".alerts .who")).to_have_count(5)
    again.goto(server.url + "/")
    expect(again.locator(".alerts .who")).to_have_count(5)
    again.select_option("#saved-views", label="my people")
    expect(again.locator(".alerts .who")).to_have_text(["agent 2"])


def test_explained_can_hide_what_is_like_it_with_a_preview_and_an_undo(visit: Visit, server: ThreadServer) -> None:
    more = [a_stay("agent 4", 24 * day + 4, 5) for day in (2, 3)] + [a_stay("agent 4", 24 * 4 + 16, 5)]
    assert httpx.post(server.url + "/v1/events", json={"events": more}, timeout=PATIENCE).status_code == 200
    page = visit.go("/?search=agent+4")
    page.click(".alerts li a")
    page.wait_for_selector("[data-act=expect]")
    page.keyboard.press("e")
    page.fill("#reason", "night shift")
    page.check("#hide")
    expect(page.locator(".hiding [role=status]")).to_contain_text("Would hide 3 of the 8 alerts")
    page.uncheck("#hide-hours")
    expect(page.locator(".hiding [role=status]")).to_contain_text("Would hide 4 of the 8 alerts")
    page.check("#hide-hours")
    page.click(".verdict .main")
    expect(page.locator(".drawer h2")).to_contain_text("Tue 5 Mar, 18:00")
    page.goto(server.url + "/?order=time")
    expect(page.locator(".alerts li")).to_have_count(5)
    page.click(".tiles >> text=3 alerts hidden by rules")
    expect(page.locator(".alerts .who")).to_have_text(["agent 4"] * 3)
    expect(page.locator(".alerts li", has_text="hidden by a rule")).to_have_count(2)  # the third says: explained
    page.click("nav >> text=Rules")
    expect(page.locator("#rules tbody tr")).to_contain_text("agent 4, within 500 m of a place, begun")
    page.click("text=Undo")
    expect(page.locator("#rules tbody tr")).to_contain_text("ended")
    assert ask(server, "/v1/alerts")["total"] == 8


def test_lists_and_cases_are_saved_as_csv_and_geojson_and_a_case_is_printed(
    visit: Visit, server: ThreadServer, tmp_path: Path
) -> None:
    ids = [a["id"] for a in ask(server, "/v1/alerts")["alerts"]]
    verdict = {"verdict": "wrong", "reason": '=HYPERLINK("x"), "quoted"'}
    httpx.put(f"{server.url}/v1/alerts/{ids[0]}/verdict", json=verdict, timeout=PATIENCE)
    httpx.post(server.url + "/v1/cases", json={"incidents": ids[1:3]}, timeout=PATIENCE)
    page = visit.go("/?order=time")

    def saved(text: str) -> str:
        with page.expect_download() as download:
            page.click(f".export >> text={text}")
        download.value.save_as(tmp_path / "saved")
        return (tmp_path / "saved").read_text(encoding="utf-8")

    rows = list(csv.DictReader(io.StringIO(saved("CSV"))))
    assert [row["id"] for row in rows] == [a["id"] for a in ask(server, "/v1/alerts?order=time")["alerts"]]
    judged = next(row for row in rows if row["verdict"])
    assert judged["verdict_reason"] == "'" + verdict["reason"], "no spreadsheet takes it for a formula"
    page.goto(server.url + "/case/1")
    features = json.loads(saved("GeoJSON"))["features"]
    assert {f["properties"]["id"] for f in features} == set(ids[1:3])
    assert features[0]["geometry"] == {"type": "Point", "coordinates": [24.94, 60.17]}
    page.evaluate("() => { window.print = () => { document.title = 'printed'; }; }")
    page.click("text=Print")
    expect(page).to_have_title("printed")
    expect(page.locator("#print .case-page")).to_have_count(2)
