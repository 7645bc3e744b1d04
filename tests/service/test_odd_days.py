"""One event with a wrong date: it is shown as odd, and the figures are those of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from page_visit import Visit
from service_example import PATIENCE, ThreadServer, a_stay

Stay = Callable[..., dict[str, Any]]
ODD = {"started_at": "1970-01-01T10:00:00Z", "finished_at": "1970-01-01T15:00:00Z"}


def days(n: int = 30) -> list[dict[str, Any]]:
    return [a_stay(agent, 24.0 * day, 1 + day % 7) for agent in ("a", "b", "c") for day in range(n)]


@pytest.mark.parametrize("odd", [ODD, {"started_at": "2031-01-01T10:00:00Z", "finished_at": "2031-01-01T11:00:00Z"}])
def test_one_event_dated_far_from_the_others_changes_no_figure(
    open_client: Any, any_store_url: str, odd: dict[str, str]
) -> None:
    client = open_client(store=any_store_url, ahead_days=0)
    client.post("/v1/events", json={"events": days()})
    before, lanes = client.get("/v1/summary").json(), client.get("/v1/lanes").json()
    assert before["odd_days"] == []
    client.app.state.service.totals = None
    client.post("/v1/events", json={"events": [{**a_stay("late clock"), **odd}]})
    after = client.get("/v1/summary").json()
    assert after["odd_days"] == [{"day": odd["started_at"][:10], "events": 1}]
    for name in ("days", "first_day", "last_day", "curve"):
        assert after[name] == before[name], name
    assert after["events"] == before["events"] + 1
    assert [client.get("/v1/lanes").json()[name] for name in ("first", "last")] == [lanes["first"], lanes["last"]]
    day = odd["started_at"][:10]
    shown = client.get("/v1/lanes", params={"first": day, "last": day}).json()
    assert [lane["agent_id"] for lane in shown["lanes"]] == ["late clock"]


def test_a_quiet_season_is_not_odd(client: Any) -> None:
    client.post("/v1/events", json={"events": [a_stay("a", 24.0 * day) for day in (0, 1, 2, 150, 151)]})
    told = client.get("/v1/summary").json()
    assert (told["days"], told["odd_days"]) == (152, [])


def test_the_page_keeps_its_slider_and_names_the_odd_event(
    browser: Any, serve_here: Callable[..., ThreadServer]
) -> None:
    server = serve_here()
    httpx.post(server.url + "/v1/events", json={"events": [*days(), {**a_stay("late clock"), **ODD}]}, timeout=PATIENCE)
    visit = Visit(browser, server.url)
    page = visit.go("/")
    assert page.locator("#per-day").is_enabled()
    assert "as unusual by chance alone:" in " ".join(page.inner_text("body").split())
    assert "1 Jan 1970 (1 stay)" in page.inner_text(".odd")
    page.locator(".odd a").click()
    page.wait_for_selector("tbody th:has-text('late clock')")
    visit.close()
