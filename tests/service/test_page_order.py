"""The page in a real Chromium when answers are slow: what was opened last stays, whichever answer comes last."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from page_visit import Visit
from service_example import PATIENCE, until

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'ustad[dev]'")
expect = playwright.expect
expect.set_options(timeout=1000 * PATIENCE)

ROUTE = "(to) => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')); }"


class Held:
    """Answers that are held back until they are let go."""

    def __init__(self, page: Any, path: str, most: int = 1) -> None:
        self.page, self.path, self.most = page, path, most
        self.routes: list[Any] = []
        page.route(path, self.hold)

    def hold(self, route: Any) -> None:
        if len(self.routes) < self.most:
            self.routes.append(route)
        else:
            route.continue_()

    def wait(self) -> None:
        """Until the page has asked."""
        assert until(lambda: self.page.wait_for_timeout(20) or len(self.routes) == self.most, 0)

    def let_go(self, **answer: Any) -> None:
        """Answers as the server would, or as told, and waits until the page had time to draw it."""
        for route in self.routes:
            with self.page.expect_event("requestfinished", lambda r, wanted=route.request: r == wanted):
                if answer:
                    route.fulfill(**answer)
                else:
                    route.continue_()
        self.page.evaluate("new Promise((done) => setTimeout(done, 100))")


def raised(visit: Visit, **wanted: Any) -> list[dict[str, Any]]:
    return httpx.get(visit.url + "/v1/alerts", params=wanted, timeout=PATIENCE).json()["alerts"]


def test_keys_speak_to_the_agent_that_is_shown_while_an_earlier_overview_still_loads(visit: Visit) -> None:
    page = visit.go()
    agent = raised(visit)[0]["agent_id"]
    held = Held(page, "**/v1/lanes*")
    page.evaluate(ROUTE, "/?search=agent")
    held.wait()
    page.evaluate(ROUTE, f"/agent/{agent}?search=agent")
    page.wait_for_selector(".map[data-drawn]")
    held.let_go()
    assert page.locator("h1").inner_text() == agent
    page.keyboard.press("Escape")  # leads from an agent to the overview, and on the overview nowhere
    page.wait_for_url(visit.url + "/?search=agent")
    page.wait_for_selector(".lanes")


def test_an_agent_that_fails_late_leaves_the_overview_alone(visit: Visit) -> None:
    page = visit.go()
    held = Held(page, "**/v1/agents/agent%203")
    page.evaluate(ROUTE, "/agent/agent%203")
    held.wait()
    page.evaluate(ROUTE, "/")
    page.wait_for_selector(".alerts li")
    held.let_go(status=500, json={"error": {"message": "Too late."}})
    assert "Too late." not in page.inner_text("main")
    assert page.locator(".alerts li").count() > 0
    assert visit.problems.pop().startswith("Failed to load resource"), "the browser says so itself"


@pytest.mark.parametrize(
    ("slow", "earlier"), [("**/v1/summary", "/?alerts_from=1"), ("**/v1/alerts?*", "/?order=time")]
)
def test_the_cases_one_walks_through_are_those_of_the_last_filter(visit: Visit, slow: str, earlier: str) -> None:
    page = visit.go()
    everything = raised(visit)
    least = everything[1]["score"]
    fewer = [a for a in everything if a["score"] >= least]
    assert 1 < len(fewer) < len(everything)
    held = Held(page, slow)
    page.evaluate(ROUTE, earlier)
    held.wait()
    page.evaluate(ROUTE, f"/?min_score={least}")
    expect(page.locator(".alerts li")).to_have_count(len(fewer))
    held.let_go()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**event={fewer[0]['id']}")
    expect(page.locator(".drawer")).to_contain_text(f"case 1 of {len(fewer)}")


def test_a_verdict_that_is_saved_late_leaves_the_event_that_was_opened_meanwhile(visit: Visit) -> None:
    page = visit.go()
    first, second, third = raised(visit)[:3]
    page.click(".alerts li a")
    page.wait_for_selector("[data-act=confirm]")
    held = Held(page, "**/verdict")
    page.keyboard.press("c")
    held.wait()
    page.keyboard.press("j")
    page.wait_for_url(f"**event={second['id']}")
    page.keyboard.press("j")
    page.wait_for_url(f"**event={third['id']}")
    held.let_go(json={**first, "verdict": "confirmed"})
    page.wait_for_selector(".toast >> text=Confirmed")
    assert page.url.endswith(f"event={third['id']}")
    assert until(lambda: "case 3 of" in page.inner_text(".drawer"), 0.05)
