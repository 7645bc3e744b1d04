"""One agent on the page, in a real Chromium: its chart of scores, what comes live while it is open, leaving it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import httpx
import pytest
from page_visit import Visit
from service_example import PATIENCE, a_stay

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'ustad[dev]'")
expect = playwright.expect
expect.set_options(timeout=1000 * PATIENCE)

#: Keeps every chart that is drawn from now on.
KEEP_CHARTS = """() => {
  window.charts = [];
  window.uPlot = new Proxy(window.uPlot, { construct(Chart, given) { window.charts.push(new Chart(...given)); return window.charts.at(-1); } });
}"""  # noqa: E501  # JavaScript

#: Keeps every map that is drawn from now on.
KEEP_MAPS = """() => {
  window.maps = [];
  maplibregl.Map = new Proxy(maplibregl.Map, { construct(Map, given) { window.maps.push(new Map(...given)); return window.maps.at(-1); } });
}"""  # noqa: E501  # JavaScript

#: Draws the chart once for each list of events, in one place; whether that is hidden after each.
DRAW = """async ([lists, zone, limits]) => {
  const { scoreChart } = await import("/static/scores.js");
  const place = document.createElement("section"), hidden = [];
  document.getElementById("main").replaceChildren(place);
  for (const events of lists) {
    scoreChart(place, events, zone, limits, () => null);
    await new Promise(requestAnimationFrame);
    hidden.push(place.hidden);
  }
  return hidden;
}"""

#: Counts who waits for light to become dark.
COUNT_LISTENERS = """
  window.waiting = 0;
  for (const [name, step] of [["addEventListener", 1], ["removeEventListener", -1]])
    MediaQueryList.prototype[name] = function (...given) { if (this.media.includes("color-scheme")) window.waiting += step; return EventTarget.prototype[name].apply(this, given); };
"""  # noqa: E501  # JavaScript

ROUTE = "(to) => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')); }"


def x_range(page: Any) -> list[float]:
    return page.evaluate("() => { const { min, max } = window.charts.at(-1).scales.x; return [min, max]; }")


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def an_event(day: int, score: float, alert: bool = False) -> dict[str, Any]:
    return {
        "id": str(day), "started_at": f"2024-03-{day:02d}T08:00:00Z", "finished_at": f"2024-03-{day:02d}T09:00:00Z",
        "timezone": "UTC", "score": score, "alert": alert, "reason": "", "category": "work", "place_name": None,
    }  # fmt: skip


def test_the_chart_stays_as_it_is_while_events_are_opened(visit: Visit) -> None:
    page = visit.go("/?search=agent+3&per_day=20", ".alerts li:nth-child(6)")
    page.evaluate(KEEP_CHARTS)
    page.click(".alerts li a")
    expect(page.locator(".drawer")).to_contain_text("case 1 of")
    events = httpx.get(visit.url + "/v1/agents/agent%203/events?limit=1000", timeout=PATIENCE).json()["events"]
    starts = [seconds(e["started_at"]) for e in events if e["score"] is not None]
    room = 0.015 * (max(starts) - min(starts))
    assert room > 3600
    whole = [min(starts) - room, max(starts) + room]
    for case in range(2, 5):
        assert x_range(page) == pytest.approx(whole, abs=1)
        page.keyboard.press("j")
        expect(page.locator(".drawer")).to_contain_text(f"case {case} of")
    assert x_range(page) == pytest.approx(whole, abs=1)
    zoomed = [min(starts) + 86_400, max(starts) - 86_400]
    page.evaluate("([min, max]) => window.charts.at(-1).setScale('x', { min, max })", zoomed)
    for case in range(5, 7):
        page.keyboard.press("j")
        expect(page.locator(".drawer")).to_contain_text(f"case {case} of")
    assert x_range(page) == zoomed
    page.get_by_role("button", name="Show all").click()
    assert x_range(page) == pytest.approx(whole, abs=1)
    assert page.evaluate("window.charts.length") == 1


@pytest.mark.parametrize("days", [[10], [10, 10]])
def test_a_single_moment_is_in_the_middle_of_the_chart(visit: Visit, days: list[int]) -> None:
    page = visit.go()
    page.evaluate(KEEP_CHARTS)
    page.evaluate(DRAW, [[[an_event(day, 1.0) for day in days]], "UTC", {"raised": None, "slid": None}])
    start = seconds("2024-03-10T08:00:00Z")
    assert x_range(page) == [start - 3600, start + 3600]


def test_the_chart_appears_with_the_first_score(visit: Visit) -> None:
    page = visit.go()
    unscored = {**an_event(9, 0.0), "score": None}
    lists = [[unscored], [unscored, an_event(10, 1.0)]]
    assert page.evaluate(DRAW, [lists, "UTC", {"raised": None, "slid": None}]) == [True, False]


@pytest.mark.parametrize(
    ("slid", "alerts", "words"),
    [
        (None, [None, None, 3.0], "1 alert, raised from a score of 3.0."),
        (2.0, [None, 2.0, 3.0], "2 alerts, from a score of 2.0."),
    ],
)
def test_the_chart_tells_alerts_and_the_line_at_which_they_are_drawn(
    visit: Visit, slid: float | None, alerts: list[float | None], words: str
) -> None:
    page = visit.go()
    page.evaluate(KEEP_CHARTS)
    events = [an_event(day, float(day), alert=day >= (slid or 3.0)) for day in (1, 2, 3)]
    page.evaluate(DRAW, [[events], "UTC", {"raised": 3.0, "slid": slid}])
    assert page.locator(".scores").get_attribute("aria-label").endswith(words)
    assert page.evaluate("window.charts.at(-1).data[2]") == alerts
    page.focus(".scores")
    for score in alerts:
        page.keyboard.press("ArrowRight")
        told = page.locator("#main [role=status]").inner_text()
        assert (", alert" in told) == (score is not None)


def test_with_the_slider_an_agent_has_the_alerts_it_draws_the_line_at(visit: Visit) -> None:
    events = httpx.get(visit.url + "/v1/agents/agent%203/events?limit=1000", timeout=PATIENCE).json()["events"]
    curve = httpx.get(visit.url + "/v1/summary", timeout=PATIENCE).json()["curve"]
    raised = {e["id"] for e in events if e["alert"]}
    slid = [e for e in events if e["score"] is not None and e["score"] >= curve[19]["score"]]
    assert len(slid) > len(raised) + 3, "the slider would change nothing here"
    page = visit.go("/", ".lanes")
    page.evaluate(KEEP_CHARTS)
    for address, alerts in (("/agent/agent%203?per_day=20", len(slid)), ("/agent/agent%203", len(raised))):
        page.evaluate(ROUTE, address)  # from one to the other the same agent stays open
        expect(page.locator(".timeline .alerted[tabindex='0']")).to_have_count(alerts)
        expect(page.locator("[aria-label='Alerts of this agent'] .alerts li")).to_have_count(min(30, alerts))
        words = f"{alerts} alert{'' if alerts == 1 else 's'}"
        expect(page.locator(".head")).to_contain_text(words + (" at 20 a day" if "per_day" in address else ". Times"))
        assert sum(score is not None for score in page.evaluate("window.charts.at(-1).data[2]")) == alerts


def test_a_zone_that_the_browser_does_not_know_still_gives_a_chart(visit: Visit) -> None:
    page = visit.go()
    page.evaluate(KEEP_CHARTS)
    page.evaluate(DRAW, [[[an_event(1, 1.0), an_event(9, 2.0)]], "Mars/Olympus", {"raised": None, "slid": None}])
    assert page.evaluate("window.charts.at(-1).status") == 1, "it was never drawn"


def an_alert(url: str, agent: str, hour: float) -> str:
    """The id of a new event that is raised as an alert."""
    answer = httpx.post(url + "/v1/events", json={"events": [a_stay(agent, hour, 5)]}, timeout=PATIENCE).json()
    assert answer["events"][0]["alert"]
    return str(answer["events"][0]["id"])


def test_a_live_alert_of_the_open_agent_leaves_the_open_event_as_it_is(visit: Visit, newcomer: str) -> None:
    first = an_alert(visit.url, newcomer, 2000)
    page = visit.go(f"/agent/{newcomer}?event={first}", ".map[data-drawn]")
    page.wait_for_selector(".map-label.observed")
    page.wait_for_selector("text=● live")
    labels = page.locator(".map-label").all_inner_texts()
    page.fill("#note", "begun")
    page.evaluate(KEEP_CHARTS)
    an_alert(visit.url, newcomer, 2030)  # on another day
    expect(page.locator(".timeline .alerted[tabindex='0']")).to_have_count(2)
    page.wait_for_selector(".map[data-drawn]")
    expect(page.locator(".map-label")).to_have_text(labels)
    expect(page.locator(".map canvas")).to_have_count(1)
    assert page.locator(".timeline .stay.chosen").count() >= 1
    assert page.evaluate("window.charts.at(-1).data[3].map((ring) => ring !== null)") == [True, False]
    assert page.input_value("#note") == "begun"


def test_a_live_alert_of_the_open_agent_leaves_what_was_zoomed_to(visit: Visit, newcomer: str) -> None:
    first = an_alert(visit.url, newcomer, 2000)
    for hour in (2010, 2020):  # of the same incident
        answer = httpx.post(visit.url + "/v1/events", json={"events": [a_stay(newcomer, hour, 5)]}, timeout=PATIENCE)
        assert not answer.json()["events"][0]["alert"]
    page = visit.go()
    page.wait_for_selector("text=● live")
    page.evaluate(KEEP_CHARTS)
    page.evaluate(KEEP_MAPS)
    page.evaluate(ROUTE, f"/agent/{newcomer}?event={first}")
    page.wait_for_selector(".map[data-drawn]")
    page.wait_for_selector(".map-label.observed")
    zoomed = [seconds("2024-05-23T16:00:00Z"), seconds("2024-05-24T02:00:00Z")]
    page.evaluate("([min, max]) => window.charts.at(-1).setScale('x', { min, max })", zoomed)
    page.evaluate("window.maps.at(-1).jumpTo({ center: [24.9, 60.2], zoom: 9.5 })")
    page.focus(".scores")
    charts = page.evaluate("window.charts.length")
    an_alert(visit.url, newcomer, 2050)
    expect(page.locator(".timeline .alerted[tabindex='0']")).to_have_count(2)
    assert page.evaluate("window.charts.length") > charts, "the chart was not drawn anew"
    assert page.evaluate("window.charts.at(-1).data[0].length") == 4
    assert x_range(page) == zoomed
    expect(page.get_by_role("button", name="Show all")).to_be_visible()
    assert page.evaluate("document.activeElement.className") == "scores", "the keyboard goes on where it was"
    assert page.evaluate("window.maps.length") == 1
    camera = page.evaluate("(({ lng, lat }) => [lng, lat, window.maps[0].getZoom()])(window.maps[0].getCenter())")
    assert camera == pytest.approx([24.9, 60.2, 9.5])
    page.get_by_role("button", name="Show all").click()
    assert x_range(page)[1] > seconds("2024-05-24T14:00:00Z"), "what came is not in the whole"


def test_a_live_alert_of_the_agent_one_leaves_does_not_touch_the_next(visit: Visit, newcomer: str) -> None:
    an_alert(visit.url, newcomer, 2000)
    page = visit.go(f"/agent/{newcomer}", ".map[data-drawn]")
    page.wait_for_selector("text=● live")
    held: list[Any] = []
    page.route("**/v1/agents/agent%203", lambda route: held.append(route))
    page.evaluate(ROUTE, "/agent/agent%203")
    page.wait_for_selector(".skeleton")
    an_alert(visit.url, newcomer, 2030)
    page.wait_for_selector(".toast >> text=newcomer")
    assert len(held) == 1
    held[0].continue_()
    expect(page.locator("h1")).to_have_text("agent 3")
    page.wait_for_selector(".map[data-drawn]")
    expect(page.locator(".map canvas")).to_have_count(1)
    expect(page.locator(".scores canvas")).to_have_count(1)


def test_agents_that_were_left_wait_for_nothing(visit: Visit) -> None:
    visit.page.add_init_script(COUNT_LISTENERS)
    page = visit.go("/agent/agent%201", ".map[data-drawn]")
    waiting = page.evaluate("window.waiting")
    assert waiting > 0
    for agent in (2, 3, 1):
        page.evaluate(ROUTE, f"/agent/agent%20{agent}")
        expect(page.locator("h1")).to_have_text(f"agent {agent}")
        page.wait_for_selector(".map[data-drawn]")
        assert page.evaluate("window.waiting") == waiting
