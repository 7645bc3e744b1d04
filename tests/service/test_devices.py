"""Phones send directly: what apps send is stored as fixes of one agent, and an app is told so after it is stored."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from phone_requests import FORWARDED, KEY, RECORDED, Recorded, at
from service_example import PlainScorer, client_of
from sqlalchemy import select
from test_outages import LATER, MORNING, down
from test_same_stays import exit_code

from ustad.page import records as r
from ustad.page.store import Store
from ustad.service.app import create_app
from ustad.service.devices import D
from ustad.service.keys import Caller, Keys, create_key, remove_key
from ustad.service.protocols import Position, Report
from ustad.service.retention import expire
from ustad.service.routes_devices import make_job
from ustad.service.settings import Settings
from ustad.service.stay_journal import _from_bytes
from ustad.tables import DataError

Open = Callable[..., tuple[TestClient, str]]
OWN, GPS = "/device/owntracks", "/device/gpslogger?lat=60&lon=25&acc=5&time="


@pytest.fixture
def phone(open_client: Any, store_url: str) -> Open:
    """A service with the key of a phone, of the agent `anna`, and one of an analyst, who is the client."""

    def make(**settings: Any) -> tuple[TestClient, str]:
        store = Store(store_url)
        key = create_key(store, "Anna's phone", [], agent="anna")
        reader = create_key(store, "analyst", ["read", "admin"])
        store.close()
        return open_client(key=reader, **settings), key

    return make


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def stored_fixes(client: TestClient) -> list[tuple[str, int, float, float, float | None]]:
    """Every fix in the journal, as another process would find it."""
    store = Store(str(client.app.state.service.store.engine.url))
    with store.reading() as connection:
        parts = [
            _from_bytes(c) for c in connection.execute(select(r.journal.c.content).order_by(r.journal.c.seq)).scalars()
        ]
    store.close()
    return [
        (f["agent_id"], round(f["time"].timestamp() * 1e6), f["lat"], f["lon"], f["accuracy_m"])
        for part in parts for f in part.to_pylist()
    ]  # fmt: skip


def devices(client: TestClient) -> list[dict[str, Any]]:
    listed = client.get("/v1/devices")
    assert listed.status_code == 200
    return listed.json()["devices"]


def location(minute: float, lat: float = 60.0, **more: Any) -> dict[str, Any]:
    start = datetime(2024, 3, 1, 8, tzinfo=UTC)
    moment = round((start + timedelta(minutes=minute)).timestamp())
    return {"_type": "location", "tst": moment, "lat": lat, "lon": 25.0, "acc": 5, "batt": 80, **more}


# --------------------------------------------------------------------------------------------- recorded requests
@pytest.mark.parametrize("recorded", RECORDED, ids=lambda r: r.name)
def test_a_recorded_request_is_stored_and_answered_as_its_app_expects(phone: Open, recorded: Recorded) -> None:
    client, key = phone()
    answer = recorded.send(client, key)
    assert (answer.status_code, answer.content) == (200, recorded.answer)
    assert stored_fixes(client) == [("anna", *fix) for fix in recorded.fixes]
    (device,) = devices(client)
    assert (device["name"], device["agent_id"], device["app"]) == ("Anna's phone", "anna", recorded.app)
    assert device["battery"] == recorded.battery
    assert device["n_fixes"] == len(recorded.fixes)
    assert (device["fixed_at"] is not None) == bool(recorded.fixes)
    assert abs(datetime.fromisoformat(device["heard_at"]).timestamp() - datetime.now(UTC).timestamp()) < 60


@pytest.mark.parametrize("app", ["owntracks", "overland"])
def test_the_stays_of_a_phone_are_those_of_the_same_fixes_by_the_interface(phone: Open, app: str) -> None:
    client, key = phone()
    ingest = bearer(create_key(client.app.state.service.store, "other", ["ingest"]))
    client.app.state.service.keys.read_again()
    for part in [*MORNING, LATER]:
        client.post("/v1/fixes", headers=ingest, json={"fixes": [{**f, "agent_id": "bob"} for f in part]})
        sent = [{**f, "tst": at(f["time"]) // 1_000_000} for f in part]
        if app == "overland":
            features = [{"type": "Feature", "geometry": {"type": "Point", "coordinates": [f["lon"], f["lat"]]},
                         "properties": {"timestamp": f["time"]}} for f in sent]  # fmt: skip
            client.post("/device/overland", headers=bearer(key), json={"locations": features})
        else:
            for f in sent:
                message = {"_type": "location", "tst": f["tst"], "lat": f["lat"], "lon": f["lon"]}
                client.post(OWN, headers=bearer(key), json=message)
    of_phone, by_interface = (client.get(f"/v1/agents/{a}/events").json()["events"] for a in ("anna", "bob"))
    shapes = [[(e["started_at"], e["finished_at"], e["lat"], e["lon"], e["score"]) for e in events]
              for events in (of_phone, by_interface)]  # fmt: skip
    assert shapes[0] == shapes[1]
    assert len(shapes[0]) == 2


# ------------------------------------------------------------------------------------------ told after it is stored
@pytest.mark.parametrize("recorded", [r for r in RECORDED if r.fixes][::3], ids=lambda r: r.name)
def test_an_app_keeps_its_queue_while_nothing_can_be_stored(phone: Open, recorded: Recorded) -> None:
    client, key = phone()
    assert devices(client)  # and the keys are read
    with down(client.app.state.service.store):
        refused = recorded.send(client, key)
    assert refused.status_code == 503
    assert refused.headers["retry-after"].isdigit()
    assert refused.content != recorded.answer
    assert stored_fixes(client) == []
    assert recorded.send(client, key).status_code == 200
    assert stored_fixes(client) == [("anna", *fix) for fix in recorded.fixes]


def test_a_service_that_stops_or_is_busy_says_when_to_send_again(phone: Open) -> None:
    client, key = phone(rate_limit=0.1)
    answers = [client.post(OWN, headers=bearer(key), json=location(m)) for m in range(3)]
    busy = answers[-1]
    assert busy.status_code == 429
    assert int(busy.headers["retry-after"]) >= 1
    client.app.state.service.rates._per_second = 0.0
    client.app.state.service.intake.stop()
    stopping = client.post(OWN, headers=bearer(key), json=location(9))
    assert stopping.status_code == 503
    assert int(stopping.headers["retry-after"]) >= 1


def test_single_fixes_survive_a_restart_after_any_of_them(phone: Open, open_client: Any) -> None:
    """The journal is replayed at once, however many requests wrote it."""
    sent = [location(m, lat) for m, lat in [(m, 60.0) for m in range(20)] + [(m, 60.5) for m in range(20, 50)]]
    sent.insert(12, location(3))  # late
    client, key = phone()
    for number, message in enumerate(sent):
        if number in (1, 13, 30):
            client = open_client(key=client.headers["Authorization"].removeprefix("Bearer "))
        assert client.post(OWN, headers=bearer(key), json=message).status_code == 200
    (stay,) = client.get("/v1/agents/anna/events").json()["events"]
    until_left = ("2024-03-01T08:00:00Z", "2024-03-01T08:20:00Z")  # when the first fix elsewhere came
    assert (stay["started_at"], stay["finished_at"]) == until_left
    (device,) = devices(client)
    assert (device["n_fixes"], device["n_left_out"]) == (50, 1)
    assert client.app.state.service.pipeline.extraction.counts["late"] == 1


def test_fixes_that_come_twice_or_late_are_acknowledged_and_counted(phone: Open) -> None:
    client, key = phone()
    for minute in (0, 1, 1, 2, 0.5):
        assert client.post(OWN, headers=bearer(key), json=location(minute)).content == b"[]"
    (device,) = devices(client)
    assert (device["n_fixes"], device["n_left_out"]) == (3, 1)
    assert device["fixed_at"] == "2024-03-01T08:02:00Z"


def test_a_fix_of_a_wrong_clock_does_not_keep_back_what_comes_after_it(phone: Open) -> None:
    client, key = phone()
    for wrong in (0, 86_400, 4_000_000_000, 10**17):
        assert client.post(OWN, headers=bearer(key), json={**location(0), "tst": wrong}).content == b"[]"
    assert stored_fixes(client) == []
    assert client.post(OWN, headers=bearer(key), json=location(1)).status_code == 200
    (device,) = devices(client)
    assert (device["n_fixes"], device["n_left_out"], len(stored_fixes(client))) == (1, 4, 1)


def test_a_large_batch_counts_what_was_left_out_once(phone: Open) -> None:
    client, key = phone(micro_batch=1)
    features = [
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [25.0, 60.0]},
         "properties": {"timestamp": location(m)["tst"], "horizontal_accuracy": -1 if m % 20 == 0 else 5}}
        for m in range(200)
    ]  # fmt: skip
    assert client.post("/device/overland", headers=bearer(key), json={"locations": features}).status_code == 200
    (device,) = devices(client)
    assert (device["n_fixes"], device["n_left_out"]) == (190, 10)


def test_requests_that_share_a_batch_are_counted_as_if_each_came_alone(open_client: Any) -> None:
    minutes = {"a": [0, 1, 1, 2], "b": [5, 3, 9], "c": [], "d": [0]}
    sent = [(agent, part) for agent, all_ in minutes.items() for part in (all_[:2], all_[2:])]
    outcomes = []
    for together in (True, False):
        pipeline = open_client(PlainScorer(), store="sqlite://").app.state.service.pipeline
        jobs = []
        for agent, part in sent:
            positions = [Position(at("2024-03-01T08:00Z") + m * 60_000_000, 60.0, 25.0, 5.0) for m in part]
            caller = Caller(f"phone of {agent}", frozenset(), agent=agent)
            jobs.append(make_job(Report(positions), caller, "owntracks", 1.0))
        for batch in [jobs] if together else [[job] for job in jobs]:
            pipeline.run(batch)
        with pipeline.store.reading() as connection:
            rows = connection.execute(select(D.name, D.n_fixes, D.n_left_out).order_by(D.name)).all()
        outcomes.append(([job.outcome for job in jobs], rows))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1][0] == ("phone of a", 3, 0)
    assert outcomes[0][1][1] == ("phone of b", 2, 1)


MALFORMED = [
    ("/device/owntracks", b"{"), ("/device/owntracks", b"7"), ("/device/owntracks", b"{}"),
    ("/device/owntracks", b'{"_type":"encrypted","data":"x"}'), ("/device/owntracks", b"[" * 100_000),
    ("/device/owntracks", b'{"_type":"location","lat":60,"lon":25}'),
    ("/device/owntracks", b'{"_type":"location","lat":91,"lon":25,"tst":1709536500}'),
    ("/device/owntracks", b'{"_type":"location","lat":NaN,"lon":25,"tst":1709536500}'),
    ("/device/overland", b"{}"), ("/device/overland", b'{"locations":[{}]}'), ("/device/overland", b""),
    ("/device/overland", b'{"locations":[{"type":"Feature","properties":{},"geometry":{"coordinates":[]}}]}'),
    ("/device/gpslogger", b""), ("/device/gpslogger?lat=%25LAT&lon=%25LON&time=%25TIME", b""),
    ("/device/gpslogger?lat=60&lon=25", b""), ("/device/gpslogger?lat=60&time=1709536500", b""),
    ("/device/osmand?id=1&lat=60.123&timestamp=1709536500", b""), ("/device/osmand", b'{"location":{}}'),
    ("/device/traccar", b"{}"), ("/device/traccar", b'{"device":{"uniqueId":"anna"},"position":{}}'),
]  # fmt: skip


@pytest.fixture(scope="module")
def shared() -> Any:
    """One application with a phone's key, for requests that leave nothing behind."""
    with client_of(create_app(Settings(store="sqlite://"), PlainScorer())) as client:
        client.headers.update(bearer(create_key(client.app.state.service.store, "p", [], agent="anna")))
        client.app.state.service.keys.read_again()
        yield client


@pytest.mark.parametrize(("path", "body"), MALFORMED)
def test_what_is_malformed_gets_one_line_and_nothing_of_it_is_stored(
    shared: TestClient, path: str, body: bytes
) -> None:
    answer = shared.post(path, content=body)
    assert 400 <= answer.status_code < 500
    message = answer.json()["error"]["message"]
    assert message
    assert "\n" not in message
    assert "60.123" not in answer.text
    with shared.app.state.service.store.reading() as connection:
        assert connection.execute(select(r.journal)).all() == connection.execute(select(r.devices)).all() == []


# --------------------------------------------------------------------------------------------------------- keys
def test_a_phone_may_write_its_agent_and_nothing_else(phone: Open, stay: Any) -> None:
    client, key = phone()
    described = client.get("/openapi.json").json()["paths"]
    for path, methods in described.items():
        for method in methods:
            if path in ("/healthz", "/readyz"):
                continue
            for name in ("agent_id", "alert_id", "event_id"):
                path = path.replace(f"{{{name}}}", "1")
            body = {"events": [stay()]} if path == "/v1/events" else {"fixes": [MORNING[0][0]]}
            body = {"verdict": "confirmed"} if path.endswith("verdict") else body
            asked = client.request(method, path, headers=bearer(key), json=body if method in ("post", "put") else None)
            assert asked.status_code == 403, (method, path)
    assert client.get("/", headers=bearer(key)).status_code == 403
    other = {**FORWARDED, "device": {**FORWARDED["device"], "uniqueId": "bob"}}
    assert client.post("/device/traccar", headers=bearer(key), json=other).status_code == 403
    assert stored_fixes(client) == []


def test_a_server_with_a_key_to_ingest_passes_on_for_many_devices(phone: Open) -> None:
    client, _ = phone()
    ingest = create_key(client.app.state.service.store, "Traccar", ["ingest"])
    client.app.state.service.keys.read_again()
    for name in ("anna", "bob"):
        sent = {**FORWARDED, "device": {**FORWARDED["device"], "uniqueId": name}}
        assert client.post("/device/traccar", headers=bearer(ingest), json=sent).status_code == 200
    assert [fix[0] for fix in stored_fixes(client)] == ["anna", "bob"]
    assert {(d["name"], d["agent_id"]) for d in devices(client) if d["heard_at"]} == {
        ("Traccar", "anna"), ("Traccar", "bob")
    }  # fmt: skip
    for bad in (".", "x" * 300, "a\x00b"):
        sent = {**FORWARDED, "device": {**FORWARDED["device"], "uniqueId": bad}}
        assert client.post("/device/traccar", headers=bearer(ingest), json=sent).status_code == 422
    assert client.post(OWN, headers=bearer(ingest), json=location(0)).status_code == 403


def test_only_a_phones_key_is_taken_from_an_address(phone: Open) -> None:
    client, key = phone()
    del client.headers["Authorization"]
    ingest = create_key(client.app.state.service.store, "Traccar", ["ingest"])
    client.app.state.service.keys.read_again()
    sent = json.dumps(FORWARDED)
    assert client.post(f"/device/traccar/{key}", content=sent).status_code == 200
    for wrong in (ingest, "wrong", key + "x", f"{key}/more"):
        assert client.post(f"/device/traccar/{wrong}", content=sent).status_code == 401
    assert client.post(f"/v1/fixes/{key}", content=sent).status_code == 401
    assert client.post("/device/traccar", content=sent, headers={"Cookie": f"ustad_key={key}"}).status_code == 401
    assert client.post("/device/traccar", content=sent, headers={"Authorization": "Basic %%%"}).status_code == 401


def test_neither_key_nor_place_is_in_the_log_or_in_the_figures(phone: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client, key = phone()
    for recorded in RECORDED:
        recorded.send(client, key)
    client.get(f"/device/osmand/{key}?id=1&lat=nonsense&lon=24.9384")
    client.get(f"/device/nothing/{key}")
    client.get(f"/device/osmand/{key}/more")
    own = [rec.getMessage() for rec in caplog.records if rec.name.startswith(("ustad", "uvicorn", "sqlalchemy"))]
    text = "\n".join(own) + client.get("/metrics").text
    assert "/device/osmand/{key}" in text
    for secret in (key, key[10:30], "anna", "60.1699", "24.9384"):
        assert secret not in text


def test_without_any_key_nobody_can_write_as_a_phone(client: TestClient) -> None:
    """A page in a browser of this machine could make such a request of a service that needs no key."""
    for recorded in RECORDED:
        assert recorded.send(client, "any").status_code == 403
    assert stored_fixes(client) == []


@pytest.mark.parametrize("agent", ["", ".", "..", "x" * 257, "a\nb"])
def test_a_phones_key_needs_an_agent_that_can_be_addressed(store_url: str, agent: str) -> None:
    with pytest.raises(DataError, match="--agent takes an id"):
        create_key(Store(store_url), "k", [], agent=agent)


def test_a_phones_key_has_no_other_role(store_url: str) -> None:
    with pytest.raises(DataError, match="no roles"):
        create_key(Store(store_url), "k", ["read"], agent="a")
    with pytest.raises(DataError, match="roles are"):
        create_key(Store(store_url), "k", ["device"])


def test_the_command_line_makes_a_phones_key(tmp_path: Path, store_url: str, capsys: Any) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    common = ["serve", str(tmp_path), "--store", store_url]
    assert exit_code(*common, "--create-key", "phone", "--agent", "anna") == 0
    caller = Keys(Store(store_url), open_without=False).caller(capsys.readouterr().out.strip())
    assert (caller.name, caller.agent, caller.roles) == ("phone", "anna", {"device"})
    for wrong in (["--agent", "anna"], ["--create-key", "k", "--agent", "anna", "--roles", "read"]):
        assert exit_code(*common, *wrong) == 1
    assert exit_code(*common, "--create-key", "k") == 0
    roles = Keys(Store(store_url), open_without=False).caller(capsys.readouterr().out.strip()).roles
    assert roles == {"read"}


# ------------------------------------------------------------------------------------------------ last heard of
def test_devices_are_listed_longest_silent_first_and_those_never_heard_of_before_all(phone: Open) -> None:
    client, key = phone()
    store = client.app.state.service.store
    keys = {name: create_key(store, name, [], agent=name[0]) for name in ("bike", "car", "dog")}
    client.app.state.service.keys.read_again()
    for name in ("car", "bike"):
        client.post(OWN, headers=bearer(keys[name]), json=location(0))
    client.post(OWN, headers=bearer(key), json={"_type": "lwt", "tst": 1709536500})
    listed = devices(client)
    assert [d["name"] for d in listed] == ["dog", "car", "bike", "Anna's phone"]
    assert listed[0] == {
        "name": "dog", "agent_id": "d", "app": None, "heard_at": None, "fixed_at": None, "battery": None, "n_fixes": 0,
        "n_left_out": 0, "n_events": 0,
    }  # fmt: skip
    page = client.get("/v1/devices", params={"limit": 2, "offset": 1}).json()
    assert (page["total"], [d["name"] for d in page["devices"]]) == (4, ["car", "bike"])
    assert [d["name"] for d in client.get("/v1/devices?search=ANNA").json()["devices"]] == ["Anna's phone"]
    remove_key(store, "car")
    assert "car" not in [d["name"] for d in devices(client)]


def test_a_deleted_agent_takes_its_phones_and_their_keys_along(phone: Open) -> None:
    client, key = phone()
    client.post(OWN, headers=bearer(key), json=location(0))
    assert client.delete("/v1/agents/anna").status_code == 200
    assert devices(client) == []
    assert client.post(OWN, headers=bearer(key), json=location(1)).status_code == 401
    assert client.get("/v1/agents/anna").status_code == 404


def test_a_device_not_heard_of_for_longer_than_events_are_kept_is_forgotten(phone: Open) -> None:
    client, key = phone()
    client.post(OWN, headers=bearer(key), json=location(0))
    store = client.app.state.service.store
    heard = round(datetime.fromisoformat(devices(client)[0]["heard_at"]).timestamp() * 1e6)
    expire(store, heard - 1)
    assert devices(client)[0]["heard_at"] is not None
    expire(store, heard + 1_000_000)
    assert devices(client)[0]["heard_at"] is None, "its key is still there"


def test_every_way_of_a_key_is_used_by_a_recorded_request() -> None:
    ways = {
        r.headers.get("Authorization", "").partition(" ")[0] or ("address" if KEY in r.path else "") for r in RECORDED
    }
    assert ways == {"Basic", "Bearer", "address"}
