"""Small things an analyst trips over: links that survive logging in, names, colours, times past midnight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from page_visit import Visit
from service_example import PATIENCE, PlainScorer, ThreadServer, a_stay

from ustad.page.store import Store
from ustad.service.keys import create_key
from ustad.service.login import own_address

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'ustad[dev]'")
expect = playwright.expect
Stay = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadServer]:
    """A service with two days of fifteen alerts each, of five people; the same for every test of this file."""
    server = ThreadServer(PlainScorer())
    stays = [a_stay(f"agent {i % 5}", 4 * (i // 5), 3.5) for i in range(60)]
    assert httpx.post(server.url + "/v1/events", json={"events": stays}, timeout=PATIENCE).status_code == 200
    yield server
    server.stop()


def test_logging_in_leads_on_to_the_address_that_was_wanted(open_client: Any, store_url: str) -> None:
    key = create_key(Store(store_url), "k", ["read"])
    client, wanted = open_client(), "/agent/a%2Fb?event=7&kind=novel"
    asked = client.get(wanted, headers={"Accept": "text/html"})
    assert 'name="wanted" value="/agent/a%2Fb?event=7&amp;kind=novel"' in asked.text
    again = client.post("/login", data={"key": "wrong", "wanted": wanted})
    assert "event=7&amp;kind=novel" in again.text
    entered = client.post("/login", data={"key": key, "wanted": wanted}, follow_redirects=False)
    assert entered.headers["location"] == wanted


@pytest.mark.parametrize("text", ["//evil.example", "https://evil.example", "/\\evil.example", "", "/a\r\nx: y", "a"])
def test_a_login_never_leads_to_another_site(text: str) -> None:
    assert own_address(text) == "/"


def test_colours_of_live_categories_are_kept_once_given(client: Any, stay: Stay) -> None:
    client.post("/v1/events", json={"events": [stay(hour=h) for h in range(3)] + [stay(hour=9, poi_category="zoo")]})
    assert client.get("/v1/about").json()["categories"] == ["work", "zoo"]
    more = [stay("b", hour=h, poi_category=name) for h, name in enumerate(["zoo"] * 5 + ["bar"] * 9)]
    client.post("/v1/events", json={"events": more})
    client.app.state.service.coloured_at = None
    assert client.get("/v1/about").json()["categories"] == ["work", "zoo", "bar"], "the order is that of the first look"


SHORT = """async (names) => { const say = await import("/static/words.js"); return say.shortNames(names); }"""
SPAN = """async (event) => { const say = await import("/static/words.js"); return say.span(event); }"""


def test_long_names_stay_apart_and_times_past_midnight_say_so(visit: Visit) -> None:
    page = visit.go()
    long = [f"6d0c2c1e-aaaa-bbbb-cccc-{i:04d}-same-ending-of-all" for i in range(12)]
    short = page.evaluate(SHORT, [*long, "agent 3"])
    assert len(set(short)) == 13
    assert short[-1] == "agent 3"
    ends = ["2024-03-04T22:30:00Z", "2024-03-05T05:00:00Z", "2024-03-10T05:00:00Z"]
    event = {"started_at": "2024-03-04T20:00:00Z", "timezone": "Europe/Helsinki"}
    said = [page.evaluate(SPAN, {**event, "finished_at": end}).partition(", 22:00–")[2] for end in ends]
    assert said == ["00:30 +1 d", "07:00 +1 d", "07:00 +6 d"]


def test_the_slider_has_every_step_where_it_matters(visit: Visit) -> None:
    page = visit.go()
    page.wait_for_selector("#per-day:not([disabled])")
    slider = page.locator("#per-day")
    slider.fill("7")
    expect(page.locator("#per-day-value")).to_have_text("7")
    most = int(slider.get_attribute("max") or 0)
    slider.fill(str(most))
    shown = int(page.locator("#per-day-value").inner_text())
    assert shown >= most, "the last steps are wider"
    page.wait_for_url(f"**per_day={shown}")


def test_a_tapped_alert_is_on_screen_on_a_phone(browser: Any, server: ThreadServer) -> None:
    visit = Visit(browser, server.url, viewport={"width": 390, "height": 844})
    page = visit.go()
    page.locator(".lanes tbody th a").first.click()
    page.wait_for_selector(".side .alerts li")
    page.locator(".timeline .stay[role=button]").last.click()
    page.wait_for_selector(".drawer .sentence")
    expect(page.locator(".drawer .sentence")).to_be_in_viewport()
    visit.close()


def test_the_page_says_who_is_signed_in_and_lets_them_out(browser: Any, serve_here: Any, tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path / 'keys.db'}"
    key = create_key(Store(store), "morning shift", ["read"])
    server = serve_here(PlainScorer(), store=store)
    visit = Visit(browser, server.url)
    page = visit.page
    page.goto(server.url + "/?order=time")
    page.fill("[name=key]", key)
    page.keyboard.press("Enter")
    page.wait_for_url("**/?order=time")
    page.wait_for_selector(".empty")
    assert "Nothing was scored yet" in page.inner_text("main")
    assert "morning shift" in page.inner_text(".caller")
    page.click("text=sign out")
    page.wait_for_selector("[name=key]")
    assert page.context.cookies() == []
    visit.problems = [p for p in visit.problems if "401" not in p]  # the browser says itself that a key was missing
    visit.close()
