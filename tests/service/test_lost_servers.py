"""When PostgreSQL is killed, started again, cut off or paused: nothing acknowledged is lost, the service goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from service_example import PATIENCE, a_stay, until

from ustad.page import statement_timeout

BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"


def beside(url: str) -> Any:
    """A connection to the same server that is not to this database."""
    return psycopg.connect(url.rsplit("/", 1)[0] + "/postgres", autocommit=True)


def backends(url: str) -> list[int]:
    """The processes of the server that serve this database."""
    with beside(url) as connection:
        return [pid for (pid,) in connection.execute(BACKENDS, [url.rsplit("/", 1)[1]])]


def send(client: Any, hour: float) -> Any:
    return client.post("/v1/events", json={"events": [a_stay("a", hour)]})


def check_all(client: Any, count: int) -> None:
    """Everything is there once, and it is ours to write."""
    again = client.post("/v1/events", json={"events": [a_stay("a", 2 * i) for i in range(count)]}).json()
    assert (again["accepted"], again["duplicates"]) == (0, count)
    assert client.get("/v1/agents/a").json()["n_events"] == count
    assert client.app.state.service.writer_lock.holds()


def test_a_service_goes_on_when_postgresql_was_killed_and_started_again(
    open_client: Any, postgresql_server: Any, postgresql_url: str
) -> None:
    client = open_client(store=postgresql_url)
    assert send(client, 0).json()["accepted"] == 1
    postgresql_server.kill()
    try:
        refused, ready = send(client, 2), client.get("/readyz")
    finally:
        postgresql_server.start()
    assert (refused.status_code, ready.status_code) == (503, 503)
    assert send(client, 2).json()["accepted"] == 1
    assert client.get("/readyz").status_code == 200
    check_all(client, 2)


def test_connections_that_the_server_ends_are_made_again(open_client: Any, postgresql_url: str) -> None:
    """As after a failover behind one address."""
    client = open_client(store=postgresql_url)
    assert send(client, 0).json()["accepted"] == 1
    with beside(postgresql_url) as connection:
        for pid in backends(postgresql_url):
            connection.execute("SELECT pg_terminate_backend(%s)", [pid])
    assert until(lambda: send(client, 2).status_code == 200)
    check_all(client, 2)


@pytest.fixture
def standby(postgresql_server: Any) -> Any:
    """A second server without which the first acknowledges nothing; the first runs alone after the test."""
    place = Path(tempfile.mkdtemp(prefix="ustad-pg-"))
    second = postgresql_server.copy_to(place)
    with psycopg.connect(postgresql_server.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        connection.execute("SELECT pg_reload_conf()")
    yield second
    second.kill()
    with suppress(subprocess.CalledProcessError):  # it was not killed
        postgresql_server.start()
    with psycopg.connect(postgresql_server.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
        connection.execute("SELECT pg_reload_conf()")
    shutil.rmtree(place, ignore_errors=True)


def test_nothing_acknowledged_is_lost_when_a_standby_takes_over(
    open_client: Any, postgresql_server: Any, postgresql_url: str, standby: Any
) -> None:
    """One URL names both servers; connections go to the one that takes writes."""
    base, name = postgresql_url.rsplit("/", 1)
    hosts = "&".join("host=" + url.split("@")[1].split("/")[0] for url in (base, standby.url))
    url = f"postgresql://ustad@/{name}?{hosts}&target_session_attrs=read-write"
    client = open_client(store=url)
    assert send(client, 0).json()["accepted"] == 1
    assert send(client, 2).json()["accepted"] == 1
    postgresql_server.kill()
    assert send(client, 4).status_code == 503, "the standby does not take writes yet"
    standby.promote()
    assert until(lambda: send(client, 4).status_code == 200)
    check_all(client, 3)


@pytest.fixture
def paused() -> Any:
    """Pause processes; they run again after the test."""
    stopped: list[int] = []

    def pause(pids: list[int]) -> Callable[[], None]:
        stopped.extend(pids)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return wake

    def wake() -> None:
        while stopped:
            os.kill(stopped.pop(), signal.SIGCONT)

    yield pause
    wake()


def test_what_is_sent_to_a_paused_server_is_acknowledged_once_it_runs_again(
    open_client: Any, postgresql_url: str, paused: Any
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may pause the server's processes")
    client, answers = open_client(store=postgresql_url), list[Any]()
    assert send(client, 0).json()["accepted"] == 1
    wake = paused(backends(postgresql_url))
    thread = threading.Thread(target=lambda: answers.append(send(client, 2)), daemon=True)
    thread.start()
    thread.join(0.3)
    assert answers == [], "nothing is acknowledged that is not stored"
    wake()
    thread.join(PATIENCE)
    assert [answer.status_code for answer in answers] == [200]
    check_all(client, 2)


def test_a_server_that_stays_paused_is_given_up_and_what_needs_no_store_goes_on(
    open_client: Any, postgresql_server: Any, postgresql_url: str, paused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may pause the server's processes")
    monkeypatch.setattr(statement_timeout, "STATEMENT_S", 0.4)
    monkeypatch.setattr(statement_timeout, "DOUBT_S", 0.2)
    monkeypatch.setattr(statement_timeout, "CONNECT_S", 2)  # the least that there is
    client = open_client(store=postgresql_url)
    assert send(client, 0).json()["accepted"] == 1
    wake = paused([*backends(postgresql_url), postgresql_server.pid])
    client.app.state.service.keys.read_again()  # the keys too are in the store
    waiting = [threading.Thread(target=client.get, args=("/v1/alerts",), daemon=True) for _ in range(5)]
    for thread in waiting:
        thread.start()
    assert client.get("/healthz").status_code == 200
    read, sent = client.get("/v1/agents/a"), send(client, 2)
    assert (read.status_code, sent.status_code) == (503, 503)
    assert read.json()["error"]["message"] == "the store does not answer; send again later"
    for thread in waiting:
        thread.join(PATIENCE)
    wake()
    assert until(lambda: send(client, 2).status_code == 200)
    check_all(client, 2)
