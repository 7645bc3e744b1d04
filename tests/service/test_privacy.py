"""Who needs no exact place gets none: coarse positions on every route, and counts of groups that are large enough."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from service_example import PlainScorer, a_stay, client_of
from sqlalchemy import delete, insert, select

from ustad.geo import haversine_km, snap_to_grid
from ustad.page import records as r
from ustad.page.coarse import coarsen
from ustad.page.counts import count_people
from ustad.page.store import Store
from ustad.service.app import create_app
from ustad.service.keys import COARSE, COUNTS, create_key
from ustad.service.settings import Settings
from ustad.tables import DataError

METRES = 2000.0
#: What a key with coarse positions may ask for, and nothing else.
LOOKED_AT = {
    "/v1/about", "/v1/summary", "/v1/lanes", "/v1/agents", "/v1/agents/{agent_id}", "/v1/agents/{agent_id}/events",
    "/v1/agents/{agent_id}/places", "/v1/agents/{agent_id}/movements", "/v1/events/{event_id}", "/v1/alerts",
    "/v1/alerts/stream", "/v1/ground", "/v1/counts",
}  # fmt: skip
OPEN = {"/healthz", "/readyz"}
TOWN = "?west=24.8&east=25.2&south=60.1&north=60.3"


@pytest.fixture(scope="module")
def lived(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A finished run with trips, a verdict and a case, and a scorer; a key of each role that sees less."""
    url = f"sqlite:///{tmp_path_factory.mktemp('coarse') / 's.db'}"
    chosen = Settings(run=tiny_run, store=url, coarse_metres=METRES, least_people=2)
    with client_of(create_app(chosen, PlainScorer())) as client:
        store = client.app.state.service.store  # type: ignore[attr-defined]  # FastAPI's
        far = a_stay("agent 0", hour=30 * 24.0, hours=9, lat=60.213467, lon=25.081239, poi_name="Secret Bar")
        key = client.post("/v1/events", json={"events": [far]}).json()["events"][0]["id"]
        note = {"verdict": "expected", "reason": "at 60.213467, 25.081239", "note": "60.213467"}
        assert client.put(f"/v1/alerts/{key}/verdict", json=note).status_code == 200
        assert client.post("/v1/cases", json={"incidents": [key], "title": "60.213467"}).status_code == 200
        path = [[24.943217, 60.171234], [24.951239, 60.174321], [24.961117, 60.178765]]
        with store.writing() as connection:
            for agent in range(6):  # as many as streets are learned from
                row = {"agent": f"agent {agent}", "started_at": 1_709_600_000_000_000, "path": json.dumps(path)}
                connection.execute(insert(r.trips).values({**row, "finished_at": 1_709_601_000_000_000}))
        client.keys_of = {  # type: ignore[attr-defined]  # beside the client, for these tests
            role: {"Authorization": f"Bearer {create_key(store, role, [role])}"} for role in (COARSE, COUNTS, "read")
        }
        client.app.state.service.keys.read_again()  # type: ignore[attr-defined]  # FastAPI's
        yield client


def exact_numbers(client: TestClient) -> set[str]:
    """Every latitude and longitude that the store holds, to a metre."""
    with client.app.state.service.store.reading() as connection:  # type: ignore[attr-defined]  # FastAPI's
        points = [tuple(row) for row in connection.execute(select(r.events.c.lat, r.events.c.lon))]
        points += [tuple(p[::-1]) for (path,) in connection.execute(select(r.trips.c.path)) for p in json.loads(path)]
    return {f"{value:.5f}" for point in points for value in point}


def numbers_in(text: str) -> set[str]:
    return {f"{float(number):.5f}" for number in re.findall(r"-?\d+\.\d+", text)}


def described(client: TestClient) -> list[tuple[str, str]]:
    paths = client.app.openapi()["paths"]  # type: ignore[attr-defined]  # FastAPI's
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def first_messages(client: TestClient, headers: dict[str, str]) -> str:
    """What a stream from the beginning says; the service stops, so that it ends."""
    service = client.app.state.service  # type: ignore[attr-defined]  # FastAPI's
    from ustad.service import routes_read

    async def once(request: Any, service: Any, since: int) -> Any:
        for seq, alert in routes_read._after(service, since):
            yield f"id: {seq}\nevent: alert\ndata: {json.dumps(alert)}\n\n"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes_read, "_events", once)
        assert service.stopping is False
        return client.get("/v1/alerts/stream?since=0", headers=headers).text


def test_no_route_tells_a_coarse_key_an_exact_position(lived: TestClient) -> None:
    headers = lived.keys_of[COARSE]  # type: ignore[attr-defined]  # see `lived`
    exact, answered = exact_numbers(lived), set()
    alerts = lived.get("/v1/alerts?min_score=0&limit=1000", headers=headers).json()["alerts"]
    ids = {"event_id": [a["id"] for a in alerts][:40], "agent_id": ["agent 0", "agent 3"]}
    for method, path in described(lived):
        values = next((ids[name] for name in ids if name in path), ["1"])
        for value in values if method == "GET" else values[:1]:
            address = re.sub(r"{\w+}", value, path) + (TOWN if path == "/v1/ground" else "")
            if path == "/v1/alerts/stream":
                text, status = first_messages(lived, headers), 200
            else:
                answer = lived.request(method, address, headers=headers, json={} if method != "GET" else None)
                text, status = answer.text, answer.status_code
            if path not in OPEN:
                assert (status == 200) == (method == "GET" and path in LOOKED_AT), (method, path, status)
            if status == 200:
                answered.add(path)
            if path == "/v1/ground":  # coasts of the world, which happen to have some of these degrees
                assert not json.loads(text)["streets"]
            else:
                assert not numbers_in(text) & exact, (method, path)
            assert "Secret Bar" not in text, path
            assert "60.21346" not in text, path
    assert answered >= LOOKED_AT


def test_the_same_routes_tell_a_reader_everything(lived: TestClient) -> None:
    """Else the test above could not fail."""
    headers, exact = lived.keys_of["read"], exact_numbers(lived)  # type: ignore[attr-defined]  # see `lived`
    event = lived.get("/v1/alerts?agent=agent 0&limit=1", headers=headers).json()["alerts"][0]["id"]
    for path in ("/v1/alerts", "/v1/agents/agent 0/events", "/v1/agents/agent 0/places", f"/v1/events/{event}",
                 "/v1/agents/agent 0/movements"):  # fmt: skip
        assert numbers_in(lived.get(path, headers=headers).text) & exact, path
    assert numbers_in(first_messages(lived, headers)) & exact
    assert lived.get("/v1/ground" + TOWN, headers=headers).json()["streets_from"] == "trips"
    assert "Secret Bar" in lived.get(f"/v1/events/{event}", headers=headers).text


def test_a_coarse_answer_has_the_form_and_the_cell_of_the_exact_one(lived: TestClient) -> None:
    answers = [lived.get("/v1/alerts", headers=lived.keys_of[role]).json()["alerts"] for role in ("read", COARSE)]  # type: ignore[attr-defined]  # see `lived`
    assert len(answers[0]) == len(answers[1]) > 0
    for exact, coarse in zip(*answers, strict=True):
        assert exact.keys() == coarse.keys()
        assert [exact[n] for n in ("id", "score", "started_at")] == [coarse[n] for n in ("id", "score", "started_at")]
        apart = haversine_km(*(np.array(one[n]) for one in (exact, coarse) for n in ("lat", "lon")))
        assert apart <= METRES / 1000 / math.sqrt(2) + 0.01


def test_a_key_that_sees_less_has_no_other_role_and_counts_alone_see_nobody(lived: TestClient, tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'k.db'}")
    for roles in ([COARSE, "read"], [COUNTS, "verdict"], [COARSE, COUNTS]):
        with pytest.raises(DataError, match="has no other"):
            create_key(store, "k", roles)
    store.close()
    for method, path in described(lived):
        answer = lived.request(method, re.sub(r"{\w+}", "1", path), headers=lived.keys_of[COUNTS])  # type: ignore[attr-defined]  # see `lived`
        assert (answer.status_code == 200) == (path in OPEN | {"/v1/counts"}), (method, path)
        assert path == "/v1/counts" or path in OPEN or answer.status_code == 403


@given(st.floats(-89.9, 89.9), st.floats(-180, 180), st.sampled_from([50.0, 1000.0, 20_000.0]))
def test_a_snapped_position_is_near_and_says_nothing_but_its_cell(lat: float, lon: float, metres: float) -> None:
    middle, across = snap_to_grid(np.array(lat), np.array(lon), metres)
    assert haversine_km(lat, lon, middle, across) * 1000 <= metres  # type: ignore[arg-type]  # numbers are arrays
    again = snap_to_grid(middle, across, metres)
    assert np.allclose(again, (middle, across), atol=2e-6)


def test_distances_in_numbers_and_words_are_of_the_grid_and_without_one_there_is_no_position() -> None:
    answer = {
        "km": 4.21, "reason": "At a bar, 4.2 km away; 910 m from home, 60 m off.",
        "path": [[24.9, 60.1], [24.901, 60.1]],
        "features": [{"kind": "place", "unit": "km", "expected": {"lat": 60.1234, "lon": 24.9}, "error": 3.21,
                      "spread": [0.123, 1], "loss": 1.5, "au": 1, "eu": 2},
                     {"kind": "numeric", "unit": "km", "expected": 3.214, "observed": 2.2, "error": 1.0, "spread": 1}],
    }  # fmt: skip
    coarse = coarsen(answer, 1000.0)
    assert coarse["km"] == 4.0
    assert coarse["reason"] == "At a bar, about 4 km away; about 1 km from home, less than 1 km off."
    assert len(coarse["path"]) == 1
    assert coarse["features"][0]["error"] is coarse["features"][0]["loss"] is coarse["features"][1]["observed"] is None
    none = coarsen(answer, 0.0)
    assert not re.search(r"\d\.\d", json.dumps(none))
    assert none["reason"] == "At a bar, some way away; some way from home, some way off."


# -------------------------------------------------------------------------------------------------- counts
Stays = list[tuple[int, int, int, int]]
STAYS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 50), st.integers(1, 6), st.integers(0, 2)), max_size=60)


@cache
def a_store() -> Store:
    return Store("sqlite://")


def count(stays: Stays, first: int, last: int, least: int) -> dict[tuple[str, int, float], int]:
    """By the code, of stays (person, first hour since 1970, hours, place) in UTC."""
    hour = 3_600_000_000
    blank = {c.name: None for c in r.events.columns} | {"timezone": "UTC", "alert": False, "final": True, "echo": False}
    rows = [
        {**blank, "key": key, "agent": f"p{person}", "started_at": start * hour, "finished_at": (start + long) * hour,
         "day": start // 24, "lat": 10.0 + place, "lon": 20.0}
        for key, (person, start, long, place) in enumerate(stays)
    ]  # fmt: skip
    with a_store().writing() as connection:
        connection.execute(delete(r.events))
        if rows:
            connection.execute(insert(r.events), rows)
        counted = list(count_people(connection, first, last, metres=1000.0, least=least))
    return {(row["day"], row["hour"], round(row["lat"])): row["people"] for row in counted}


def count_plainly(stays: Stays, first: int, last: int, least: int) -> dict[tuple[str, int, float], int]:
    """The same with sets."""
    people: dict[tuple[str, int, float], set[int]] = {}
    for person, start, long, place in stays:
        for hour in range(start, start + long):
            if first <= hour // 24 <= last:
                people.setdefault((f"1970-01-{hour // 24 + 1:02d}", hour % 24, 10 + place), set()).add(person)
    return {cell: len(who) // least * least for cell, who in people.items() if len(who) >= least}


@given(STAYS, st.integers(2, 4))
@settings(max_examples=25)
def test_counts_are_those_of_a_plain_list_and_of_at_least_so_many_people(stays: Stays, least: int) -> None:
    counts = count(stays, 0, 2, least)
    assert counts == count_plainly(stays, 0, 2, least)
    assert all(people >= least for people in counts.values())


@given(STAYS, STAYS, st.integers(2, 4))
@settings(max_examples=25)
def test_two_views_of_a_cell_never_differ_by_fewer_people_than_are_shown(one: Stays, more: Stays, least: int) -> None:
    """Other days, and the same days before and after somebody came or was forgotten."""
    wide, narrow = count(one, 0, 2, least), count(one, 1, 1, least)
    assert narrow == {cell: people for cell, people in wide.items() if cell[0] == "1970-01-02"}
    after = count(one + [(99, *rest) for _, *rest in more[:5]], 0, 2, least)  # type: ignore[misc]  # a stay has four
    for cell in wide.keys() | after.keys():
        assert abs(wide.get(cell, 0) - after.get(cell, 0)) in (0, *range(least, 99))


def test_counts_come_as_json_and_as_a_file_by_the_services_own_settings(lived: TestClient) -> None:
    headers = lived.keys_of[COUNTS]  # type: ignore[attr-defined]  # see `lived`
    answer = lived.get("/v1/counts?first=2024-03-10&last=2024-03-11&least=1&metres=1", headers=headers).json()
    assert (answer["least"], answer["metres"]) == (2, METRES)
    assert answer["counts"]
    assert {row["people"] % 2 for row in answer["counts"]} == {0}
    table = lived.get("/v1/counts?first=2024-03-10&last=2024-03-11&form=csv", headers=headers)
    assert len(table.text.splitlines()) == len(answer["counts"]) + 1
    assert table.headers["content-type"].startswith("text/csv")
    assert lived.get("/v1/counts?first=2024-01-01&last=2024-03-11", headers=headers).status_code == 422
