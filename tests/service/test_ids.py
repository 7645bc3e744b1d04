"""Ids of agents: whatever is accepted can be read, shown and erased; what cannot be is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given, settings
from hypothesis import strategies as st
from page_visit import Visit
from service_example import PATIENCE, PlainScorer, ThreadServer, a_stay, client_of

from ustad.service.app import create_app
from ustad.service.settings import Settings

ODD = ("a/b", "/", "//", "a/", "a%2Fb", "%", "a/events", "x/../y", "a?b#c", "a b", "ä", "\u202edcba", "\\", ";,:@&=+$")


@pytest.fixture(scope="module")
def shared() -> Iterator[TestClient]:
    with client_of(create_app(Settings(store="sqlite://"), PlainScorer())) as client:
        yield client


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20) | st.sampled_from([".", "..", *ODD]))
@example("a/b")
@example("a/events")
@example("..")
def test_every_accepted_id_can_be_read_and_erased(shared: TestClient, agent: str) -> None:
    accepted = shared.post("/v1/events", json={"events": [a_stay(agent)]}).status_code
    if accepted == 422:
        assert agent in (".", "..") or any(ord(c) < 32 for c in agent)
        assert shared.get("/v1/agents").json()["total"] == 0
        return
    address = f"/v1/agents/{quote(agent, safe='')}"
    assert shared.get(address).json()["agent_id"] == agent
    assert [e["agent_id"] for e in shared.get(address + "/events").json()["events"]] == [agent]
    assert shared.get(address + "/places").status_code == shared.get(address + "/movements").status_code == 200
    assert shared.delete(address).json() == {"deleted_events": 1}
    assert shared.get("/v1/agents").json()["total"] == 0


def test_ids_with_slashes_are_read_and_erased_over_http(serve_here: Callable[..., ThreadServer]) -> None:
    server = serve_here()
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        client.post("/v1/events", json={"events": [a_stay(agent) for agent in ODD]})
        for agent in ODD:
            assert client.get(f"/v1/agents/{quote(agent, safe='')}").json()["agent_id"] == agent
            assert client.delete(f"/v1/agents/{quote(agent, safe='')}").json() == {"deleted_events": 1}


def test_a_wrongly_encoded_id_gets_the_documented_error(shared: TestClient) -> None:
    answer = shared.get("/v1/agents/%ff")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")


def test_the_page_shows_odd_ids_and_escapes_what_turns_their_direction(
    browser: Any, serve_here: Callable[..., ThreadServer]
) -> None:
    server = serve_here()
    events = [a_stay("a/b", hours=4), a_stay("\u202edcba", hours=5)]
    httpx.post(server.url + "/v1/events", json={"events": events}, timeout=PATIENCE)
    visit = Visit(browser, server.url)
    visit.go("/")
    shown = visit.page.locator(".alerts .who").all_text_contents()
    assert shown == ["\\u202edcba", "a/b"]
    visit.page.locator(".alerts a").nth(1).click()
    visit.page.wait_for_function("document.title.startsWith('a/b')")
    visit.page.wait_for_selector("#trail [aria-current]")
    visit.go("/agent/" + quote("\u202edcba", safe=""), "#trail [aria-current]")
    visit.page.wait_for_function("document.title.startsWith('\\\\u202edcba')")
    assert "\u202e" not in visit.page.inner_text("body")
    visit.close()
