"""One service writes to one store, says when its disk is full, and tells figures of the store and the model."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from service_example import PATIENCE, PlainScorer, ThreadServer, a_stay, client_of, until
from sqlalchemy import event, insert, text
from sqlalchemy.exc import OperationalError

from ustad.page import records as r
from ustad.page.store import Store
from ustad.service.app import create_app
from ustad.service.settings import Settings
from ustad.service.writer_lock import WriterLock
from ustad.tables import DataError

Stay = Callable[..., dict[str, Any]]


# -------------------------------------------------------------------------------------------- one writer
def test_a_second_service_on_a_store_is_refused_and_the_store_is_free_after_the_first(
    any_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ustad.service.writer_lock.WAIT_S", 0.0)
    first = client_of(create_app(Settings(store=any_store_url), PlainScorer()))
    first.__enter__()
    with pytest.raises(DataError, match="another service writes to the store"):
        create_app(Settings(store=any_store_url), PlainScorer())
    first.__exit__(None, None, None)
    lock = WriterLock(store := Store(any_store_url))
    lock.release()
    store.close()


def test_keys_are_made_while_a_service_runs(open_client: Any, store_url: str) -> None:
    from ustad.service.keys import create_key

    open_client()
    assert create_key(Store(store_url), "k", ["read"])


def test_a_second_process_says_so_in_one_line(serve_here: Any, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")  # what is no model is not looked at: the store comes first
    serve_here(store=(url := f"sqlite:///{tmp_path / 's.db'}"))
    command = [sys.executable, "-m", "ustad", "serve", str(tmp_path), "--store", url, "--port", "0"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert told.returncode != 0
    assert "Traceback" not in told.stderr
    assert "another service writes to the store" in " ".join(told.stderr.split())


def test_a_service_whose_lock_is_lost_takes_it_again_unless_another_has_it(postgresql: str) -> None:
    store, other = Store(postgresql), Store(postgresql)
    lock = WriterLock(store)
    cut_off = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
    with other.reading() as connection:
        connection.execute(text(cut_off))
    assert until(lock.holds)
    with other.reading() as connection:
        connection.execute(text(cut_off))
    usurper = WriterLock(other)
    assert not lock.holds()
    usurper.release()
    assert until(lock.holds)
    lock.release()
    store.close()
    other.close()


def test_what_lost_its_store_takes_no_events(open_client: Any, stay: Stay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ustad.service.app.WATCH_S", 0.05)
    client = open_client()
    monkeypatch.setattr(client.app.state.service.writer_lock, "holds", lambda: False)
    assert until(lambda: client.get("/readyz").status_code == 503)
    assert client.post("/v1/events", json={"events": [stay()]}).status_code == 503
    monkeypatch.setattr(client.app.state.service.writer_lock, "holds", lambda: True)
    assert until(lambda: client.get("/readyz").status_code == 200)
    assert client.post("/v1/events", json={"events": [stay()]}).status_code == 200


# ------------------------------------------------------------------------------------------------- disk full
@pytest.fixture
def cramped(serve_here: Callable[..., ThreadServer], store_url: str) -> Any:
    """A server whose store may not grow; calling it lets the store grow again."""
    server = serve_here(store=store_url)
    engine = server.service.store.engine
    pages = 1

    @event.listens_for(engine, "checkout")
    def limit(connection: Any, *_: Any) -> None:
        connection.execute(f"PRAGMA max_page_count={pages}")  # never less than there are

    def grow() -> None:
        nonlocal pages
        pages = 1_000_000

    return server, grow


def test_a_full_disk_is_said_by_the_answer_by_readyz_and_in_the_log(
    cramped: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server, grow = cramped
    caplog.set_level(logging.INFO)
    events = [[a_stay(f"a{n}", 2 * i) for i in range(50)] for n in range(4)]
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        told = [client.post("/v1/events", json={"events": some}) for some in events]
        assert told[-1].status_code == 503
        assert "disk of the store is full" in told[-1].json()["error"]["message"]
        assert told[-1].headers["retry-after"]
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["error"]["message"]) == (503, "the disk of the store is full")
        assert "the disk of the store is full" in caplog.text
        assert "ustad_store_writable 0.0" in client.get("/metrics").text
        grow()
        assert client.get("/readyz").status_code == 200
        assert "has room again" in caplog.text
        stored = sum(answer.json()["accepted"] for answer in told if answer.status_code == 200)
        again = [client.post("/v1/events", json={"events": some}).json() for some in events]
        assert sum(answer["accepted"] for answer in again) == 200 - stored


FILL = """
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_events BEFORE INSERT ON events EXECUTE FUNCTION fail();
CREATE TRIGGER full_about BEFORE INSERT ON about EXECUTE FUNCTION fail();
"""


def test_a_full_disk_of_postgresql_is_said_too(
    open_client: Any, postgresql_url: str, stay: Stay, caplog: pytest.LogCaptureFixture
) -> None:
    client = open_client(store=postgresql_url)
    writing = client.app.state.service.store.writing
    with writing() as connection:
        connection.exec_driver_sql(FILL)
    refused = client.post("/v1/events", json={"events": [stay()]})
    assert refused.status_code == 503
    assert "disk of the store is full" in refused.json()["error"]["message"]
    assert client.get("/readyz").json()["error"]["message"] == "the disk of the store is full"
    assert "the disk of the store is full" in caplog.text
    with pytest.raises(OperationalError), writing() as connection:
        connection.execute(insert(r.about).values(name="x", content="{}"))
    assert client.app.state.service.store.disk_full, "the driver's own errors are known by their code"
    with writing() as connection:
        connection.exec_driver_sql("DROP FUNCTION fail CASCADE")
    assert client.get("/readyz").status_code == 200
    assert client.post("/v1/events", json={"events": [stay()]}).json()["accepted"] == 1


@pytest.mark.parametrize(("code", "full"), [("53100", True), ("53200", False)])
def test_any_answer_names_a_full_disk_by_the_code_of_postgresql(
    open_client: Any, monkeypatch: pytest.MonkeyPatch, code: str, full: bool
) -> None:
    class DriverError(Exception):
        sqlstate = code

    def fail() -> Any:
        raise OperationalError("select", {}, DriverError("temporary file"))

    client = open_client()
    client.get("/v1/agents")  # and the keys are read
    monkeypatch.setattr(client.app.state.service.store, "reading", fail)
    answer = client.get("/v1/agents")
    assert answer.status_code == 503
    assert ("disk of the store is full" in answer.json()["error"]["message"]) == full


def test_a_disk_with_hardly_any_room_is_said_before_anything_fails(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.app.state.service.store, "free_bytes", lambda: 1000)  # type: ignore[attr-defined]
    assert client.get("/readyz").json()["error"]["message"] == "the disk of the store is full"


# --------------------------------------------------------------------------------------------------- metrics
def figures(client: TestClient) -> dict[str, float]:
    lines = [line for line in client.get("/metrics").text.splitlines() if line and line[0] != "#"]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_metrics_tell_of_the_store_its_disk_and_the_model(open_client: Any, any_store_url: str, stay: Stay) -> None:
    client = open_client(store=any_store_url)
    client.post("/v1/events", json={"events": [stay("a", 0), stay("a", 2), stay("b", 0)]})
    told = figures(client)
    assert (told["ustad_store_events"], told["ustad_store_agents"], told["ustad_store_writable"]) == (3, 2, 1)
    assert told["ustad_store_bytes"] > 10_000
    if any_store_url.startswith("sqlite"):
        disk = os.statvfs(Path(any_store_url.removeprefix("sqlite:///")).parent)
        assert told["ustad_store_free_bytes"] == pytest.approx(disk.f_bavail * disk.f_frsize, rel=0.2)
    assert told['ustad_model_info{fingerprint="plain",schema="mobility"}'] == 1
    assert told["ustad_model_loaded_timestamp_seconds"] > 1.7e9


def test_a_store_that_does_not_answer_does_not_hide_the_other_figures(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead() -> Any:
        raise OSError("gone")

    client.get("/v1/agents")  # and the keys are read
    monkeypatch.setattr(client.app.state.service.store, "reading", dead)  # type: ignore[attr-defined]  # FastAPI's
    told = figures(client)
    assert told["ustad_store_events"] != told["ustad_store_events"]
    assert told["ustad_queue_events"] == 0
