"""Who may do what: keys, roles, loopback, limits, headers, one error shape, and logs without identities."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from service_example import PlainScorer, client_of
from sqlalchemy import select
from typer.testing import CliRunner

from ustad.cli import app as cli
from ustad.config import ConfigError
from ustad.page import records as r
from ustad.page.store import Store, now
from ustad.service.app import create_app
from ustad.service.keys import Keys, create_key, expiry_of, remove_key
from ustad.service.metrics import Metrics
from ustad.service.rates import SECONDS, Rates
from ustad.service.request_checks import RequestChecks
from ustad.service.settings import Settings, days_of
from ustad.tables import DataError

Stay = Callable[..., dict[str, Any]]
OPEN = {"/healthz", "/readyz"}
WRONG: tuple[dict[str, str], ...] = (
    {}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}, {"Cookie": "ustad_key=wrong"}
)  # fmt: skip


def routes(client: TestClient) -> list[tuple[str, str]]:
    """Every method and path that the service describes, and the page's own."""
    key = create_key(client.app.state.service.store, "for routes", ["read"])
    described = client.get("/openapi.json", headers={"Authorization": f"Bearer {key}"}).json()["paths"]
    found = [(method.upper(), path) for path, methods in described.items() for method in methods]
    pages = [("GET", p) for p in ("/", "/agent/a", "/static/page.css", "/openapi.json", "/nothing-here")]
    return [*found, *pages]


@pytest.fixture(scope="module")
def shared() -> Iterator[TestClient]:
    """One application for tests that leave nothing behind."""
    with client_of(create_app(Settings(store="sqlite://"), PlainScorer())) as client:
        yield client


@pytest.fixture
def locked(open_client: Any, store_url: str) -> TestClient:
    store = Store(store_url)
    create_key(store, "somebody", ["read"])
    store.close()
    return open_client()


def test_without_or_with_a_wrong_key_every_route_but_health_answers_401(locked: TestClient) -> None:
    every = routes(locked)
    assert len(every) > 15
    for method, path in every:
        path = re.sub(r"{\w+}", "1", path)
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic eDp5"},
            {"Cookie": "ustad_key=wrong"},
        ):
            answer = locked.request(method, path, headers=headers)
            if path in OPEN:
                assert answer.status_code == 200
            else:
                assert answer.status_code == 401, (method, path)
                assert answer.json()["error"]["code"] == "unauthorized"
                assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("ingest", {"POST"}),
        ("read", {"GET", "METRICS"}),
        ("verdict", {"PUT"}),
        ("admin", {"DELETE"}),
        ("metrics", {"METRICS"}),
    ],
)
def test_a_key_may_do_what_its_role_says_and_nothing_else(
    open_client: Any, store_url: str, stay: Stay, role: str, allowed: set[str]
) -> None:
    store = Store(store_url)
    key = create_key(store, "k", [role])
    store.close()
    client = open_client(key=key)
    tried = {
        "POST": client.post("/v1/events", json={"events": [stay()]}),
        "GET": client.get("/v1/alerts"),
        "METRICS": client.get("/metrics"),
        "PUT": client.put("/v1/alerts/1/verdict", json={"verdict": "confirmed"}),
        "DELETE": client.delete("/v1/agents/a"),
    }
    for method, answer in tried.items():
        assert (answer.status_code != 403) == (method in allowed), method
        if method not in allowed:
            assert role not in answer.json()["error"]["message"]


def test_the_store_holds_no_key_only_its_hash(store_url: str) -> None:
    store = Store(store_url)
    key = create_key(store, "k", ["read", "verdict"])
    with store.reading() as connection:
        row = connection.execute(select(r.access_keys)).one()
    assert key not in str(row)
    assert len(key) > 40
    with pytest.raises(DataError, match="roles are"):
        create_key(store, "k", ["root"])
    remove_key(store, "k")
    with pytest.raises(DataError, match="no key named"):
        remove_key(store, "k")


def test_a_key_has_its_own_roles_and_a_name_of_1_to_128_characters(store_url: str) -> None:
    store = Store(store_url)
    key = create_key(store, "n" * 128, ["read", "verdict"])
    keys = Keys(store, open_without=True)
    assert (keys.may(key, "read"), keys.may(key, "admin", "verdict"), keys.may(key, "admin")) == (True, True, False)
    for name in ("", "n" * 129):
        with pytest.raises(DataError, match="at most 128"):
            create_key(store, name, ["read"])
    store.close()


def test_beyond_loopback_it_refuses_to_listen_without_a_key(store_url: str) -> None:
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(ConfigError, match="without a key"):
            create_app(Settings(store=store_url, host=host))
    create_key(Store(store_url), "k", ["read"])
    assert create_app(Settings(store=store_url, host="0.0.0.0"))


def test_removing_the_last_key_does_not_open_a_service_beyond_loopback(store_url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("ustad.service.keys.REFRESH_S", 0.0)
    store = Store(store_url)
    create_key(store, "k", ["read"])
    client = client_of(create_app(Settings(store=store_url, host="0.0.0.0")))
    remove_key(store, "k")
    assert client.get("/v1/alerts").status_code == 401


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let the clock that keys are read again by go on by so many seconds."""
    passed = [0.0]
    monkeypatch.setattr("ustad.service.keys.time", SimpleNamespace(monotonic=lambda: passed[0]))
    return lambda seconds: passed.__setitem__(0, passed[0] + seconds)


def test_a_removed_key_opens_nothing_five_seconds_later(
    open_client: Any, store_url: str, later: Callable[[float], None]
) -> None:
    store = Store(store_url)
    keys = {name: create_key(store, name, ["read"]) for name in ("leaves", "remains")}
    client = open_client()

    def status(name: str) -> int:
        return int(client.get("/v1/alerts", headers={"Authorization": f"Bearer {keys[name]}"}).status_code)

    assert [status(name) for name in keys] == [200, 200]
    remove_key(store, "leaves")
    later(5.0)
    assert [status(name) for name in keys] == [401, 200]
    store.close()


def test_a_key_made_anew_under_its_name_voids_the_old_one(
    open_client: Any, store_url: str, later: Callable[[float], None]
) -> None:
    store = Store(store_url)
    old = create_key(store, "phone", ["read"])
    client = open_client(key=old)
    assert client.get("/v1/alerts").status_code == 200
    new = create_key(store, "phone", ["read"])
    later(5.0)
    assert client.get("/v1/alerts").status_code == 401
    assert client.get("/v1/alerts", headers={"Authorization": f"Bearer {new}"}).status_code == 200
    store.close()


# ------------------------------------------------------------------------------------------------- expiry
def test_an_expired_key_is_refused_and_opens_nothing_to_others(
    open_client: Any, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(store_url)
    key = create_key(store, "visitor", ["read"], datetime.now(UTC) + timedelta(minutes=1))
    store.close()
    client = open_client(key=key)
    assert client.get("/v1/alerts").status_code == 200
    monkeypatch.setattr("ustad.service.keys.now", lambda: now() + 60_000_000)
    refused = client.get("/v1/alerts")
    assert (refused.status_code, refused.json()["error"]["message"]) == (401, "the key has expired")
    assert client.get("/v1/alerts", headers={"Authorization": ""}).status_code == 401, "the only key is the expired one"
    assert client.post("/login", data={"key": key}).status_code == 401


def test_expiry_is_a_time_from_now_the_end_of_a_day_or_a_moment() -> None:
    assert abs(expiry_of("36h") - datetime.now(UTC) - timedelta(hours=36)) < timedelta(minutes=1)
    assert expiry_of("2124-02-29") == datetime(2124, 2, 29, 23, 59, 59, tzinfo=UTC)
    assert expiry_of("2124-02-29T18:00+02:00") == expiry_of("2124-02-29T16:00") == datetime(2124, 2, 29, 16, tzinfo=UTC)
    assert expiry_of("9999-12-31").year == 9999


@pytest.mark.parametrize("text", ["soon", "2023-02-29", "30", "1999-01-01", "0d", "9999999999w", ""])
def test_an_expiry_that_is_none_or_past_is_one_clear_line(text: str) -> None:
    with pytest.raises(ConfigError, match="--expires") as error:
        expiry_of(text)
    assert "\n" not in str(error.value)


def test_the_command_line_makes_keys_that_expire(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    url = f"sqlite:///{tmp_path / 'keys.db'}"
    made = CliRunner().invoke(cli, ["serve", str(tmp_path), "--store", url, "--create-key", "k", "--expires", "30d"])
    assert made.exit_code == 0, made.output
    with Store(url).reading() as connection:
        row = connection.execute(select(r.access_keys)).one()
    assert abs(row.expires_at - row.created_at - 30 * 86_400_000_000) < 60_000_000
    alone = CliRunner().invoke(cli, ["serve", str(tmp_path), "--store", url, "--expires", "30d"])
    assert isinstance(alone.exception, ConfigError)


def test_a_foreign_host_name_is_refused_while_there_is_no_key(client: TestClient) -> None:
    assert client.get("/v1/alerts", headers={"Host": "rebound.example"}).status_code == 421
    assert client.get("/v1/alerts", headers={"Host": "localhost:8350"}).status_code == 200


PROXIED = {
    "X-Forwarded-For": "203.0.113.9", "Forwarded": "for=203.0.113.9", "X-Real-IP": "203.0.113.9", "Via": "1.1 proxy",
}  # fmt: skip


@pytest.mark.parametrize("header", PROXIED)
def test_what_a_proxy_passed_on_is_refused_while_there_is_no_key(client: TestClient, header: str) -> None:
    sent = {"Host": "127.0.0.1", header: PROXIED[header]}
    for path in ("/v1/alerts", "/", "/metrics", "/openapi.json"):
        answer = client.get(path, headers=sent)
        assert answer.status_code == 403, path
        assert "--create-key" in answer.json()["error"]["message"]
    assert client.delete("/v1/agents/a", headers=sent).status_code == 403


def test_what_a_proxy_passed_on_is_answered_with_a_key(locked: TestClient, store_url: str) -> None:
    key = create_key(Store(store_url), "somebody", ["read"])
    sent = {"Host": "ustad.example", "X-Forwarded-For": "203.0.113.9", "Authorization": f"Bearer {key}"}
    locked.app.state.service.keys._read_at = -1e9  # read them again now
    assert locked.get("/v1/alerts", headers=sent).status_code == 200


def test_behind_a_proxy_with_tls_the_cookie_is_for_tls_only(open_client: Any, store_url: str) -> None:
    key = create_key(Store(store_url), "k", ["read"])
    entered = open_client().post(
        "/login", data={"key": key}, headers={"X-Forwarded-Proto": "https"}, follow_redirects=False
    )
    assert "secure" in entered.headers["set-cookie"].lower()


# --------------------------------------------------------------------------------------------- rate limit
def test_a_key_that_sends_too_often_waits_and_the_others_do_not(open_client: Any, store_url: str) -> None:
    store = Store(store_url)
    hasty, calm = ({"Authorization": f"Bearer {create_key(store, name, ['read'])}"} for name in ("hasty", "calm"))
    client = open_client(rate_limit=0.01)  # one, then one in a hundred seconds
    told = [client.get("/v1/agents", headers=hasty) for _ in range(3)]
    assert [answer.status_code for answer in told] == [200, 429, 429]
    assert 50 < int(told[-1].headers["retry-after"]) <= 100
    assert told[-1].json()["error"]["code"] == "busy"
    assert client.get("/v1/agents", headers=calm).status_code == 200
    assert client.get("/healthz", headers=hasty).status_code == 200


def test_without_a_key_nothing_is_limited(open_client: Any) -> None:
    client = open_client(rate_limit=0.1)
    assert {client.get("/v1/agents").status_code for _ in range(20)} == {200}


@given(st.lists(st.floats(0, 3), min_size=1, max_size=60), st.sampled_from([0.5, 1.0, 7.0]))
def test_no_key_gets_more_than_its_rate_and_waiting_as_told_is_enough(pauses: list[float], rate: float) -> None:
    moment, allowed = 0.0, 0
    rates = Rates(rate, lambda: moment)
    for pause in pauses:
        moment += pause
        wait = rates.take("k")
        allowed += not wait
        if wait:
            moment += wait
            assert rates.take("k") == 0
            allowed += 1
    assert allowed <= SECONDS * rate + moment * rate + 1e-6


# --------------------------------------------------------------------------------------------- the store's file
def test_an_audit_says_which_key_read_what_and_without_it_nothing_is_shown(
    open_client: Any, store_url: str, tmp_path: Path, stay: Stay, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "reads.jsonl"
    client = open_client(store=store_url, audit=file)
    key = create_key(Store(store_url), "night shift", ["read", "ingest"])
    headers = {"Authorization": f"Bearer {key}"}
    assert client.post("/v1/events", json={"events": [stay("a")]}, headers=headers).status_code == 200
    assert client.get("/v1/agents/a/movements?first=2024-03-01T00:00:00Z", headers=headers).status_code == 200
    assert client.get("/v1/agents/b", headers={"Authorization": "Bearer no"}).status_code == 401
    (line,) = map(json.loads, file.read_text().splitlines())  # writing and being refused is no reading
    assert (line["key"], line["address"]) == ("night shift", "/v1/agents/a/movements")
    assert line["query"] == "first=2024-03-01T00:00:00Z"
    assert datetime.fromisoformat(line["at"]).tzinfo is not None
    assert file.stat().st_mode & 0o077 == 0

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ustad.service.read_audit.os.write", full)
    refused = client.get("/v1/agents/a", headers=headers)
    assert (refused.status_code, "n_events" in refused.text) == (503, False)


def test_the_store_is_readable_by_its_owner_alone(tmp_path: Path, stay: Stay, open_client: Any) -> None:
    before = os.umask(0)
    try:
        client = open_client(store=f"sqlite:///{tmp_path / 'mine.db'}")
        client.post("/v1/events", json={"events": [stay()]})
        files = sorted(tmp_path.glob("mine.db*"))
        assert {f.name for f in files} >= {"mine.db", "mine.db-wal"}
        assert {f.name: f.stat().st_mode & 0o777 for f in files} == {f.name: 0o600 for f in files}
    finally:
        os.umask(before)


def test_a_store_that_others_can_read_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Store(url := f"sqlite:///{tmp_path / 'shared.db'}").close()
    assert "chmod" not in caplog.text
    (tmp_path / "shared.db").chmod(0o644)
    Store(url).close()
    assert f"chmod 600 {tmp_path / 'shared.db'}" in caplog.text


def test_a_browser_logs_in_with_a_key_and_gets_a_strict_cookie(open_client: Any, store_url: str) -> None:
    key = create_key(Store(store_url), "k", ["read"])
    client = open_client()
    asked = client.get("/", headers={"Accept": "text/html"})
    assert asked.status_code == 401
    assert "password" in asked.text
    assert client.post("/login", data={"key": "wrong"}).status_code == 401
    entered = client.post("/login", data={"key": key}, follow_redirects=False)
    cookie = entered.headers["set-cookie"].lower()
    assert entered.status_code == 303
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/", headers={"Accept": "text/html"}).status_code == 200


def test_every_answer_carries_the_security_headers(client: TestClient) -> None:
    for path in ("/", "/v1/alerts", "/nothing", "/static/main.js"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"


def test_a_tile_server_is_the_only_other_origin_the_page_may_use(open_client: Any) -> None:
    client = open_client(tiles="https://tiles.example/{z}/{x}/{y}.png")
    policy = client.get("/").headers["content-security-policy"]
    assert "img-src 'self' data: blob: https://tiles.example;" in policy
    assert policy.count("https://") == 2


HOSTILE: list[tuple[Any, int]] = [
    (b"", 422), (b"{", 422), (b"[]", 422), (b'{"events": []}', 422), (b'{"events": [{}]}', 422), (b"\xff\xfe", 422),
    (b'{"events": [{"agent_id": NaN}]}', 422), (b"[" * 100_000, 400), (b"x" * 5000, 422),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status"), HOSTILE)
def test_malformed_bodies_get_the_documented_error(shared: TestClient, body: bytes, status: int) -> None:
    answer = shared.post("/v1/events", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"code", "message", "details"}


@pytest.mark.parametrize(
    "change",
    [
        {"lat": 91}, {"lon": -181}, {"lat": "NaN"}, {"lat": 1e400}, {"agent_id": ""}, {"agent_id": "x" * 300},
        {"agent_id": "nul\x00"}, {"agent_id": "\ud800"}, {"agent_id": 2**70}, {"agent_id": 1.5}, {"agent_id": None},
        {"started_at": "2024-03-01T00:00:00"}, {"started_at": "yesterday"}, {"started_at": "9999-01-01T00:00:00Z"},
        {"finished_at": "2020-01-01T00:00:00Z"}, {"timezone": "Mars/Olympus"}, {"surprise": 1}, {"poi_category": 7},
    ],
)  # fmt: skip
def test_hostile_values_are_refused_and_not_repeated(shared: TestClient, stay: Stay, change: dict[str, Any]) -> None:
    import json

    body = json.dumps({"events": [{**stay(), **change}]})
    answer = shared.post("/v1/events", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert "Mars" not in answer.text
    assert shared.get("/v1/agents").json()["total"] == 0


def test_what_is_too_large_is_refused_with_413(open_client: Any, stay: Stay) -> None:
    client = open_client(max_body_bytes=2000, max_batch=2)
    assert client.post("/v1/events", json={"events": [stay(hour=2 * i) for i in range(3)]}).status_code == 413
    assert client.post("/v1/events", content=b"x" * 3000).status_code == 413

    def unknown_length() -> Any:
        for _ in range(30):
            yield b"y" * 100

    answer = client.post("/v1/events", content=unknown_length())
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_large"


def test_a_body_that_is_not_called_json_is_not_read(client: TestClient, stay: Stay) -> None:
    import json

    body = json.dumps({"events": [stay()]})
    assert client.post("/v1/events", content=body, headers={"Content-Type": "text/plain"}).status_code == 422


def test_logs_and_metrics_hold_no_ids_and_no_coordinates(
    client: TestClient, stay: Stay, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client.post("/v1/events", json={"events": [stay("secret-agent", lat=61.2345, lon=24.5678)]})
    client.get("/v1/agents/secret-agent")
    client.get("/agent/secret-agent")
    client.post("/v1/events", json={"events": [stay("secret-agent", lat=611.2345)]})
    service = [rec.getMessage() for rec in caplog.records if rec.name.startswith(("ustad", "uvicorn", "sqlalchemy"))]
    text = "\n".join(service) + client.get("/metrics").text
    assert "/v1/agents/{agent_id}" in text
    for secret in ("secret-agent", "61.2345", "24.5678"):
        assert secret not in text


def test_an_unexpected_failure_is_answered_in_the_one_shape_and_logged_without_its_message(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("lat 61.2345 of secret-agent")

    monkeypatch.setattr("ustad.page.queries.agents", fail)
    answer = client.get("/v1/agents")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal"
    assert "secret-agent" not in caplog.text + answer.text
    assert "RuntimeError" in caplog.text


@pytest.mark.parametrize(("text", "days"), [("90d", 90), ("2w", 14), ("36h", 1.5)])
def test_retention_is_given_in_hours_days_or_weeks(text: str, days: float) -> None:
    assert days_of(text) == days


def test_a_retention_without_a_unit_is_refused() -> None:
    with pytest.raises(ConfigError, match="90d"):
        days_of("90")


def test_a_request_that_outlasts_an_orderly_stop_is_told_to_come_again() -> None:
    """The server cancels what is still under way after its time of grace."""

    async def stopped() -> list[Any]:
        messages: list[Any] = []
        begun = asyncio.Event()

        async def never_ends(*request: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        checks = RequestChecks(
            never_ends, max_body=10, policy="", metrics=Metrics(lambda: 0), rates=Rates(0), local_only=lambda: False,
            keys=Keys(Store("sqlite://"), open_without=True),
        )  # fmt: skip
        request = {"type": "http", "path": "/v1/events", "method": "POST", "headers": []}
        task = asyncio.ensure_future(checks(request, receive, send))
        await begun.wait()
        task.cancel()
        await task
        return messages

    start, body = asyncio.run(stopped())
    assert start["status"] == 503
    assert "shutting down" in body["body"].decode()
