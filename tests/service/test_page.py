"""The analyst's page in a real Chromium, on a real server with a real model: open, rank, filter, open, decide."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from page_visit import Visit
from service_example import PATIENCE, Server, a_stay, until

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'ustad[dev]'")
expect = playwright.expect
expect.set_options(timeout=1000 * PATIENCE)
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'ustad[dev]'")


def asked(url: str) -> Any:
    return httpx.get(url, timeout=PATIENCE).json()


def is_drawn(element: Any) -> bool:
    """Whether it shows many colours, sooner or later; one that is present but not drawn shows very few."""

    def colours() -> int:
        pixels = np.asarray(Image.open(io.BytesIO(element.screenshot())).convert("RGB")).reshape(-1, 3)
        return len(np.unique(pixels // 8, axis=0))

    return until(lambda: colours() > 20, 0.2)


def test_the_overview_ranks_agents_and_alerts(visit: Visit, server: Server) -> None:
    page = visit.go()
    wanted = asked(server.url + "/v1/alerts")
    lines = page.locator(".alerts li")
    assert lines.count() == wanted["total"]
    assert wanted["alerts"][0]["agent_id"] in lines.first.inner_text()
    assert wanted["alerts"][0]["reason"] in lines.first.inner_text()
    page.wait_for_selector(".lanes .cell.alert")
    lanes = asked(server.url + "/v1/lanes")
    names = page.locator(".lanes tbody th .who").all_inner_texts()
    assert names == [lane["agent_id"] for lane in lanes["lanes"]]
    assert page.locator(".lanes td a.cell").count() == sum(len(lane["cells"]) for lane in lanes["lanes"])
    assert is_drawn(page.locator(".lanes"))


def test_filters_are_in_the_address_and_narrow_the_lists(visit: Visit, server: Server) -> None:
    page = visit.go()
    kinds = [a["kind"] for a in asked(server.url + "/v1/alerts")["alerts"]]
    page.select_option("#filter-kind", kinds[0])
    expect(page.locator(".alerts li")).to_have_count(kinds.count(kinds[0]))
    assert f"kind={kinds[0]}" in page.url
    page.reload()
    page.wait_for_selector(".alerts li")
    assert page.locator(".alerts li").count() == kinds.count(kinds[0])
    assert page.locator("#filter-kind").input_value() == kinds[0]
    page.go_back()


def test_a_least_score_narrows_the_lists_and_stays_in_the_address(visit: Visit, server: Server) -> None:
    page = visit.go()
    found = asked(server.url + "/v1/alerts")["alerts"]
    least = sorted(a["score"] for a in found)[-2]
    page.focus("#filter-min_score")
    page.keyboard.type(str(least))
    page.keyboard.press("Enter")
    expect(page.locator(".alerts li")).to_have_count(sum(a["score"] >= least for a in found))
    assert page.evaluate("document.activeElement.id") == "filter-min_score", "the keyboard goes on where it was"
    assert f"min_score={least}" in page.url
    lanes = asked(f"{server.url}/v1/lanes?min_score={least}")["lanes"]
    everybody = asked(f"{server.url}/v1/lanes")["lanes"]
    assert 0 < len(lanes) < len(everybody), "the filter would do nothing here"
    expect(page.locator(".lanes tbody th .who")).to_have_text([lane["agent_id"] for lane in lanes])
    page.reload()
    page.wait_for_selector(".alerts li")
    assert page.get_by_label("Score from").input_value() == str(least)
    page.click(".alerts li a")
    page.wait_for_url("**/agent/**min_score=**")
    expect(page.locator(".drawer")).to_contain_text(f"case 1 of {sum(a['score'] >= least for a in found)}")
    page.goto(server.url + "/?min_score=nonsense")
    expect(page.locator(".alerts li")).to_have_count(len(found))


def test_a_least_score_adds_no_event_that_was_no_alert(visit: Visit, server: Server) -> None:
    raised = asked(server.url + "/v1/alerts")["total"]
    assert asked(server.url + "/v1/alerts?min_score=0")["total"] > raised, "all events are alerts here"
    page = visit.go("/?min_score=0")
    expect(page.locator(".alerts li")).to_have_count(raised)


def test_the_slider_recounts_at_once(visit: Visit) -> None:
    page = visit.go()
    page.wait_for_selector("#per-day:not([disabled])")
    page.evaluate("const s = document.getElementById('per-day'); s.value = 1; s.dispatchEvent(new Event('input'))")
    assert "alerts: 1 a day" in page.inner_text(".tiles")
    page.evaluate("document.getElementById('per-day').dispatchEvent(new Event('change'))")
    page.wait_for_url("**per_day=1*")
    days = asked(visit.url + "/v1/summary")["days"]
    expect(page.locator(".alerts li")).to_have_count(days)


def test_a_case_shows_timeline_map_and_what_was_expected(visit: Visit) -> None:
    page = visit.go()
    page.click(".alerts li a")
    page.wait_for_selector(".drawer .questions")
    page.wait_for_selector(".map[data-drawn]")
    assert page.locator(".timeline .stay").count() > 50
    assert page.locator(".timeline .stay.chosen").count() >= 1
    assert is_drawn(page.locator(".timeline")), "the timeline is there but not drawn"
    assert is_drawn(page.locator(".map canvas")), "the map is there but not drawn"
    names = page.locator(".map-label").all_inner_texts()  # with the name of an own place that lies there
    assert {name.split(":")[0] for name in names} == {"observed", "expected"}
    text = page.inner_text(".drawer")
    for word in ("What makes it unusual", "Expected and observed", "Usually on a", "Their own, nearest in place"):
        assert word in text
    assert "Farther from the nearest training stays" not in text, "no network was asked"
    assert "24.9" not in text, "coordinates are shown on request only"
    page.click("text=Show coordinates")
    assert ", 24.9" in page.inner_text(".drawer")


def open_chart(visit: Visit) -> tuple[Any, list[dict[str, Any]]]:
    """The chart of the scores of the most unusual agent, and its scored events in order of time."""
    page = visit.go()
    name = page.locator(".lanes tbody th .who").first.inner_text()
    page.click(".lanes tbody th a")
    page.wait_for_selector(".scores canvas")
    events = asked(f"{visit.url}/v1/agents/{name}/events?limit=1000")["events"]
    return page, [e for e in reversed(events) if e["score"] is not None]


def test_the_scores_of_an_agent_are_drawn_and_told_in_words(visit: Visit) -> None:
    page, events = open_chart(visit)
    assert is_drawn(page.locator(".scores canvas")), "the chart is there but not drawn"
    words = page.locator(".scores").get_attribute("aria-label")
    assert f"{len(events)} scored" in words
    alerts = sum(e["alert"] for e in events)
    assert f"{alerts} alert" in words
    least = asked(visit.url + "/v1/summary")["alert_score"]
    assert least == min(a["score"] for a in asked(visit.url + "/v1/alerts?limit=1000")["alerts"])
    assert "raised from a score of" in words


def test_the_chart_of_scores_goes_from_event_to_event_by_keyboard(visit: Visit) -> None:
    page, events = open_chart(visit)
    page.focus(".scores")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[role=status].quiet")).to_contain_text("score")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**event={events[1]['id']}")
    page.wait_for_selector(".drawer .features")


def test_the_chart_of_scores_tells_an_event_opens_it_and_zooms(visit: Visit) -> None:
    page, events = open_chart(visit)
    box = page.locator(".scores .u-over").bounding_box()
    page.focus(".scores")
    page.keyboard.press("ArrowLeft")  # the last one; where it is, the upright line is
    x = page.locator(".scores .u-cursor-x").bounding_box()
    for y in range(int(box["height"]) - 1, 0, -5):
        page.mouse.move(x["x"] + x["width"] - 1, box["y"] + y)
        if page.locator("#tip").is_visible():
            break
    expect(page.locator("#tip")).to_contain_text("score")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url("**event=*")
    assert page.url.rsplit("event=", 1)[1] in [e["id"] for e in events[-4:]]
    page.wait_for_selector(".drawer .features")
    shown = page.get_by_role("button", name="Show all")
    expect(shown).to_be_hidden()
    page.evaluate("scrollTo(0, 0)")  # the day of the event may have been scrolled to
    box = page.locator(".scores .u-over").bounding_box()
    page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 40, steps=4)
    page.mouse.up()
    expect(shown).to_be_visible()
    shown.click()
    expect(shown).to_be_hidden()


def test_a_case_scored_by_the_network_says_the_share_of_the_distance_to_known_events(visit: Visit) -> None:
    def by_network(route: Any) -> None:
        told = route.fetch().json()
        route.fulfill(json={**told, "questions": None, "knn": {"distance": 0.7, "pct": 0.99999, "share": 0.61}})

    page = visit.go()
    page.route("**/v1/events/*", by_network)
    page.click(".alerts li a")
    expect(page.locator(".features tr", has_text="as a whole").locator(".share")).to_have_text("61 %")


def test_the_keyboard_is_enough(visit: Visit) -> None:
    page = visit.go()
    assert until(lambda: choose_second(page), 0.05)
    assert page.locator(".alerts li.chosen").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_selector(".drawer .features")
    assert "case 2 of" in page.inner_text(".drawer")
    page.keyboard.press("k")
    expect(page.locator(".drawer")).to_contain_text("case 1 of")
    page.keyboard.press("?")
    expect(page.locator("#help[open]")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("gent 3")
    page.keyboard.press("Enter")
    page.wait_for_url("**search=gent*")
    expect(page.locator(".lanes tbody th .who")).to_have_text(["agent 3"])
    page.locator("#search").fill("agent 3")  # all of a name: that one opens
    page.locator("#search").press("Enter")
    page.wait_for_url("**/agent/agent%203*")


def choose_second(page: Any) -> bool:
    """One key towards the second alert, and whether it is chosen: a key pressed before the page listens is lost."""
    chosen = page.evaluate("[...document.querySelectorAll('.alerts li')].findIndex(e => e.matches('.chosen'))")
    if chosen != 1:
        page.keyboard.press("k" if chosen > 1 else "j")
    return bool(chosen == 1)


def test_verdicts_lead_to_the_next_case_and_survive_a_restart(
    browser: Any, run: Path, tmp_path: Path, start_server: Any
) -> None:
    store = f"sqlite:///{tmp_path / 'verdicts.db'}"
    server = start_server(str(run), "--store", store)
    visit = Visit(browser, server.url)
    page = visit.go()
    first, second = (page.locator(".alerts li a").nth(i).get_attribute("href") for i in (0, 1))
    page.click(".alerts li a")
    page.wait_for_selector("[data-act=confirm]")
    page.fill("#note", "to be followed")
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    page.wait_for_url(f"**{second}")
    expect(page.locator(".drawer")).to_contain_text("case 2 of")
    page.keyboard.press("e")
    page.fill("#reason", "travel")
    page.keyboard.press("Enter")
    expect(page.locator(".drawer")).to_contain_text("case 3 of")
    visit.close()
    server.kill()
    server = start_server(str(run), "--store", store)
    visit = Visit(browser, server.url)
    page = visit.go()
    assert "✓ confirmed" in page.locator(".alerts li").first.inner_text()
    page.goto(server.url + str(first))
    page.wait_for_selector(".drawer")
    page.wait_for_selector("text=to be followed")
    page.goto(server.url + "/?state=expected")
    page.wait_for_selector(".alerts li")
    assert page.locator(".alerts li").count() == 1
    visit.close()


def test_what_was_typed_stays_when_saving_fails(visit: Visit) -> None:
    page = visit.go()
    page.click(".alerts li a")
    page.wait_for_selector("[data-act=expect]")
    page.route("**/verdict", lambda route: route.fulfill(status=503, json={"error": {"message": "Not now."}}))
    page.click("[data-act=expect]")
    page.fill("#reason", "a long story")
    page.click(".verdict .main")
    page.wait_for_selector(".problem:not([hidden])")
    assert "Not now." in page.inner_text(".problem")
    assert page.input_value("#reason") == "a long story"
    assert visit.problems.pop().startswith("Failed to load resource"), "the browser says so itself"


def test_expected_until_a_day_is_until_its_end_where_the_agent_is(visit: Visit) -> None:
    sent: list[Any] = []

    def refuse(route: Any) -> None:
        sent.append(route.request.post_data_json)
        route.fulfill(status=503, json={"error": {"message": "Not now."}})

    page = visit.go()
    page.click(".alerts li a")
    page.route("**/verdict", refuse)
    page.click("[data-act=expect]")
    page.fill("#reason", "travel")
    page.fill("#until", "2030-06-30")  # three hours ahead of UTC in Helsinki
    page.click(".verdict .main")
    page.wait_for_selector(".problem:not([hidden])")
    assert sent[0]["until"] == "2030-06-30T21:00:00.000Z"
    visit.problems.clear()  # the browser says itself that saving failed


def test_a_live_alert_appears_by_itself(visit: Visit, newcomer: str) -> None:
    page = visit.go()
    page.wait_for_selector("text=● live")
    stay = a_stay(newcomer, hour=2000, hours=5, poi_name="Café Aino")
    answer = httpx.post(visit.url + "/v1/events", json={"events": [stay]}, timeout=PATIENCE)
    assert answer.json()["events"][0]["alert"]
    page.wait_for_selector(".toast >> text=newcomer")
    page.wait_for_selector(".alerts li >> text=newcomer")
    page.click(".toast")
    page.wait_for_url("**/agent/newcomer*")
    page.wait_for_selector(".drawer")
    expect(page.locator(".drawer")).to_contain_text("Café Aino, work")
    later = a_stay(newcomer, hour=2006, hours=1)
    assert httpx.post(visit.url + "/v1/events", json={"events": [later]}, timeout=PATIENCE).status_code == 200
    page.reload()
    page.wait_for_selector(".drawer .questions")


def test_a_day_of_the_filter_is_the_local_day_of_an_alert(visit: Visit, newcomer: str) -> None:
    stay = a_stay(newcomer, hour=2014, hours=5)  # 22:00 in UTC, past midnight in Helsinki
    alert = httpx.post(visit.url + "/v1/events", json={"events": [stay]}, timeout=PATIENCE).json()["events"][0]
    assert alert["alert"]
    assert alert["day"] > alert["started_at"][:10]
    page = visit.go(f"/?first={alert['day']}&last={alert['day']}", ".lanes .cell.alert")
    expect(page.locator(".alerts li .who")).to_have_text([newcomer])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 720), (390, 844)])
def test_nothing_is_cut_off_on_a_laptop_or_a_phone(
    browser: Any, server: Server, size: tuple[int, int], scheme: str
) -> None:
    visit = Visit(browser, server.url, viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = visit.go()
    check_layout(page)
    page.click(".alerts li a")
    page.wait_for_selector(".drawer .features")
    assert is_drawn(page.locator(".scores canvas"))
    check_layout(page)
    visit.close()


def check_layout(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, "wider than the screen"
    assert page.evaluate(CONTRAST) == [], "text too faint to read"


#: Texts whose contrast with the page's ground is below 4.5.
CONTRAST = """() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = (c) => { const [r, g, b] = parse(c).slice(0, 3).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$|transparent/.test(c) && c.startsWith('rgb(')) return c; } return getComputedStyle(document.body).backgroundColor; };
  return [...document.querySelectorAll('main p, main b, main h2, main .when, main .who, main .reason, main .kind, main label, footer')]
    .filter((e) => e.innerText && e.offsetParent).filter((e) => { const a = light(getComputedStyle(e).color), b = light(ground(e)); return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5; })
    .map((e) => e.innerText.slice(0, 40)).slice(0, 5);
}"""  # noqa: E501  # JavaScript


def test_an_empty_store_says_why_and_what_to_do(browser: Any, run: Path, start_server: Any) -> None:
    server = start_server(str(run / "model"), "--store", "sqlite://")
    visit = Visit(browser, server.url)
    page = visit.go()
    assert "Nothing was scored yet" in page.inner_text("main")
    assert "/v1/events" in page.inner_text("main")
    page.click("text=Data and model")
    page.wait_for_selector("#drift")
    assert "No event was scored yet" in page.inner_text("#drift")
    assert "Trained on" in page.inner_text("#card")
    visit.close()


def test_a_finished_run_shows_its_data_and_model(visit: Visit) -> None:
    page = visit.go()
    page.click("text=Data and model")
    page.wait_for_url("**/run")
    page.wait_for_selector("#calibration .curve")
    assert page.locator("#quality tbody tr").count() > 0
    assert "alarm at 100" in page.inner_text("#drift")
    assert "Trained on" in page.inner_text("#card")
    page.keyboard.press("Escape")
    page.wait_for_selector(".lanes")
