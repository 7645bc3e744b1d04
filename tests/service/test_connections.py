"""Connections: slow and half-open ones, open streams, a port that is taken, and stopping, with real servers."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from service_example import PATIENCE, Server, ThreadServer, a_stay, free_port, until

from ustad.page.store import Store, now
from ustad.service.keys import create_key, remove_key

Serve = Callable[..., ThreadServer]
HALF = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\n"
#: Nothing is cut off for its slowness: whoever is kept out by others waits for ever.
NO_LIMITS = {"head_seconds": 0.0, "body_seconds": 0.0}
HALF_BODY = HALF + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"


@contextlib.contextmanager
def half_open(port: int, count: int, sent: bytes = HALF, address: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """So many connections that send a part of a request and no more."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE, (address, 0)))
            with contextlib.suppress(OSError):  # it may be cut off already
                one.sendall(sent)
            opened.append(one)
        yield opened


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has ended it, after what it had to say."""
    connection.settimeout(PATIENCE)
    try:
        while connection.recv(4096):
            pass
        return True
    except TimeoutError:
        return False
    except OSError:
        return True


def is_refused(connection: socket.socket, sent: bytes) -> bool:
    try:
        connection.sendall(sent)
        return False
    except OSError:
        return True


@contextlib.contextmanager
def stream_of(url: str, key: str | None = None) -> Iterator[Iterator[str]]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx.stream("GET", url + "/v1/alerts/stream", headers=headers, timeout=PATIENCE) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        yield lines


def alerts_until_it_ends(lines: Iterator[str]) -> list[str]:
    """The alerts that a stream still brings before it is ended; fails where it goes on."""
    found, deadline = [], time.monotonic() + PATIENCE
    for line in lines:
        assert time.monotonic() < deadline, "the stream goes on"
        if line.startswith("data:"):
            found.append(line)
    return found


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens every few seconds happens ten times a second."""
    for name in ("keys.REFRESH_S", "routes_read.LOOK_S", "routes_read.PING_S"):
        monkeypatch.setattr(f"ustad.service.{name}", 0.1)


# ---------------------------------------------------------------------------------------------- half-open
@pytest.mark.parametrize("sent", [b"", HALF, HALF_BODY])
def test_half_open_connections_do_not_keep_others_out(serve_here: Serve, sent: bytes) -> None:
    server = serve_here(max_connections_per_address=20, **NO_LIMITS)
    with half_open(server.port, 60, sent):
        answer = httpx.post(server.url + "/v1/events", json={"events": [a_stay()]}, timeout=PATIENCE)
        assert answer.status_code == 200


def test_more_connections_than_the_server_takes_from_many_addresses_do_not_keep_others_out(
    serve_here: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ustad.service.server.MOST_CONNECTIONS", 30)
    server = serve_here(max_connections_per_address=20, **NO_LIMITS)
    with half_open(server.port, 19, address="127.0.0.2"), half_open(server.port, 19, address="127.0.0.3"):
        assert httpx.get(server.url + "/v1/agents", timeout=PATIENCE).status_code == 200


@pytest.mark.parametrize("sent", [b"", HALF, HALF_BODY])
def test_a_request_that_does_not_come_whole_is_cut_off(serve_here: Serve, sent: bytes) -> None:
    server = serve_here(head_seconds=0.2, body_seconds=0.2)
    with half_open(server.port, 1, sent) as (one,):
        assert is_closed(one)


def test_sending_a_byte_now_and_then_does_not_prolong_a_request(serve_here: Serve) -> None:
    server = serve_here(head_seconds=0.5)
    with half_open(server.port, 1) as (one,):
        assert until(lambda: is_refused(one, b"x"), pause=0.1)  # else every byte would prolong it by half a second


def test_a_connection_in_use_is_not_cut_off_by_the_limit_of_its_head(serve_here: Serve) -> None:
    server = serve_here(head_seconds=1.0)
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        for hour in range(4):
            assert client.post("/v1/events", json={"events": [a_stay(hour=hour)]}).json()["accepted"] == 1
            time.sleep(0.3)


# ------------------------------------------------------------------------------------------------ streams
@pytest.mark.usefixtures("soon")
def test_a_removed_key_receives_no_alerts_over_a_stream_that_is_open(serve_here: Serve, store_url: str) -> None:
    store = Store(store_url)
    key, other = create_key(store, "leaves", ["read"]), create_key(store, "stays", ["ingest"])
    server = serve_here(store=store_url)
    send = {"Authorization": f"Bearer {other}"}
    with stream_of(server.url, key) as lines:
        httpx.post(server.url + "/v1/events", json={"events": [a_stay(hours=4)]}, headers=send, timeout=PATIENCE)
        assert until(lambda: next(lines).startswith("data:"))
        remove_key(store, "leaves")
        assert alerts_until_it_ends(lines) == []
    store.close()


@pytest.mark.usefixtures("soon")
def test_an_expired_key_receives_no_alerts_over_a_stream_that_is_open(
    serve_here: Serve, any_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve_here(store=any_store_url)
    store = server.service.store
    other = create_key(store, "stays", ["ingest"])
    key = create_key(store, "leaves", ["read"], datetime.now(UTC) + timedelta(days=1))
    assert until(lambda: httpx.get(server.url + "/v1/agents", timeout=PATIENCE).status_code == 401)  # keys are read
    send = {"Authorization": f"Bearer {other}"}
    with stream_of(server.url, key) as lines:
        httpx.post(server.url + "/v1/events", json={"events": [a_stay(hours=4)]}, headers=send, timeout=PATIENCE)
        assert until(lambda: next(lines).startswith("data:"))
        monkeypatch.setattr("ustad.service.keys.now", lambda: now() + 86_400_000_000)  # a day later
        assert alerts_until_it_ends(lines) == []


@pytest.mark.usefixtures("soon")
def test_what_was_opened_without_a_key_ends_when_there_is_one(serve_here: Serve, store_url: str) -> None:
    server = serve_here(store=store_url)
    with stream_of(server.url) as lines:
        create_key(server.service.store, "first", ["read"])
        assert alerts_until_it_ends(lines) == []


# ---------------------------------------------------------------------------------------- start and stop
def test_an_open_stream_and_a_half_sent_body_do_not_hold_up_stopping(
    serve_here: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ustad.service.server.GRACE_S", 10 * PATIENCE)  # whoever waits for them waits for ever
    server = serve_here(**NO_LIMITS)
    with stream_of(server.url), half_open(server.port, 1, HALF_BODY), httpx.Client(base_url=server.url) as idle:
        idle.get("/healthz")
        assert server.stop() < PATIENCE


def test_a_signal_ends_a_server_with_an_open_stream_at_once_and_without_a_traceback(
    tiny_run: Path, tmp_path: Path, start_server: Callable[..., Server]
) -> None:
    shutil.copytree(tiny_run, run := tmp_path / "run", ignore=shutil.ignore_patterns("model"))
    server = start_server(str(run))
    with stream_of(server.url):
        server.process.terminate()
        server.process.wait(PATIENCE)
    assert "graceful shutdown exceeded" not in server.said()  # what uvicorn says when it has waited for the stream
    assert "Traceback" not in server.said()
    assert "Error" not in server.said()


def test_a_port_in_use_is_said_in_one_line_and_nothing_is_called_ready(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")  # what is no model is not looked at: the port comes first
    with socket.create_server(("127.0.0.1", port := free_port())):
        command = [sys.executable, "-m", "ustad", "serve", str(tmp_path), "--port", str(port)]
        told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert told.returncode != 0
    assert "ready:" not in told.stdout + told.stderr
    assert "Traceback" not in told.stderr
    assert re.search(rf"port\s+{port}", told.stderr)
    assert "--port" in told.stderr
