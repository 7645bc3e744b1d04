"""What the service's tests share: a scorer that needs no model, a store of each kind, an application, a client."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed: pip install 'ustad[service]'")

sys.path.insert(0, str(Path(__file__).parents[1] / "scoring"))

import httpx
from fastapi.testclient import TestClient
from page_visit import Visit
from service_example import PATIENCE, TINY, PlainScorer, Server, ThreadServer, a_stay, client_of, free_port, tiny_stays

from ustad.service.app import create_app
from ustad.service.settings import Settings


@pytest.fixture
def stay() -> Callable[..., dict[str, Any]]:
    return a_stay


@pytest.fixture
def scorer() -> PlainScorer:
    return PlainScorer()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def open_client(store_url: str) -> Iterator[Callable[..., TestClient]]:
    """Make clients of applications. Each is closed at the end of the test, or when another one is made of its store:
    that is a restart, for one service writes to one store."""
    opened: dict[str, TestClient] = {}

    def make(scorer: Any = None, key: str | None = None, **settings: Any) -> TestClient:
        chosen = Settings(**{"store": store_url, **settings})
        name = f"sqlite://#{len(opened)}" if chosen.store == "sqlite://" else chosen.store
        if name in opened:
            opened.pop(name).__exit__(None, None, None)
        client = client_of(create_app(chosen, scorer or PlainScorer()))
        client.__enter__()
        if key:
            client.headers["Authorization"] = f"Bearer {key}"
        opened[name] = client
        return client

    yield make
    for client in opened.values():
        client.__exit__(None, None, None)


@pytest.fixture
def client(open_client: Callable[..., TestClient], scorer: PlainScorer) -> TestClient:
    return open_client(scorer)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with data/, model/ and scores/, small enough to train in a few seconds."""
    from ustad.config import Config
    from ustad.dataset import Dataset, save_directory
    from ustad.detector import Detector
    from ustad.scoring.alerts import AlertRule

    place = tmp_path_factory.mktemp("run")
    stays = tiny_stays()
    data = Dataset(stays, meta={"name": "tiny", "split": {"test_first": "2024-03-15"}})
    save_directory(data, place / "data")
    detector = Detector(Config.preset("quick").replace(TINY), device="cpu").fit(data)
    detector.save(place / "model")
    scores = detector.score(data, rule=AlertRule("top", 12))
    scores.save(place / "scores")
    return place


@pytest.fixture
def start_server() -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(*arguments: str) -> Server:
        started.append(Server(*arguments))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def serve_here() -> Iterator[Callable[..., ThreadServer]]:
    """Start servers in threads of this process; each is stopped at the end of the test."""
    started: list[ThreadServer] = []

    def start(scorer: Any = None, **settings: Any) -> ThreadServer:
        started.append(ThreadServer(scorer, **settings))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def find_program(names: Sequence[str], places: Sequence[str] = ()) -> str | None:
    for place in places:
        found = sorted(Path("/").glob(place.lstrip("/")))
        if found:
            return str(found[-1])
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def chromium() -> str:
    """A Chromium that is installed."""
    path = find_program(("chromium", "chromium-browser", "google-chrome"))
    if path is None:
        pytest.skip("no Chromium is installed; `make setup-tests` (as root) installs one")
    return path


FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    needed = "playwright is not installed: pip install 'ustad[dev]'"
    playwright = pytest.importorskip("playwright.sync_api", reason=needed)
    with playwright.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=chromium, args=FLAGS, timeout=1000 * PATIENCE)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def run(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run for the tests of one file, so that verdicts given there are nobody else's."""
    place = tmp_path_factory.mktemp("page") / "run"
    shutil.copytree(tiny_run, place)
    return place


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Server]:
    server = Server(str(run), "--alerts-per-day", "100000")
    yield server
    server.stop()


@pytest.fixture
def visit(browser: Any, server: Server) -> Iterator[Visit]:
    visit = Visit(browser, server.url)
    yield visit
    visit.close()


@pytest.fixture
def newcomer(server: Server) -> Iterator[str]:
    """An agent who is gone after the test, so that the next one finds the run as it was."""
    yield "newcomer"
    assert httpx.delete(server.url + "/v1/agents/newcomer", timeout=PATIENCE).status_code == 200


class PostgresqlServer:
    """A PostgreSQL server of our own, which can be killed and started again."""

    def __init__(self, control: str, place: Path) -> None:
        self._control, self._data, self._log, port = control, place / "data", place / "log", free_port()
        self._as_user: list[str] = []
        if os.geteuid() == 0:  # the server refuses to run as root
            shutil.chown(place, "postgres")
            self._as_user = ["runuser", "-u", "postgres", "--"]
        self._options = f"-p {port} -k {place} -c listen_addresses=127.0.0.1 -c fsync=off"
        self.url = f"postgresql://ustad@127.0.0.1:{port}/postgres"
        make = str(Path(control).parent / "initdb")
        self._run(make, "-D", str(self._data), "-U", "ustad", "-A", "trust", "-E", "UTF8")

    def _run(self, *command: str) -> None:
        subprocess.run([*self._as_user, *command], check=True, capture_output=True, timeout=PATIENCE)

    def start(self) -> None:
        more = ("-o", self._options, "-l", str(self._log), "start")
        self._run(self._control, "-D", str(self._data), "-w", *more)

    @property
    def pid(self) -> int:
        """Of the process that takes new connections."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def kill(self) -> None:
        """At once, as in a crash: what was committed is found again at the next start."""
        self._run(self._control, "-D", str(self._data), "-w", "-m", "immediate", "stop")

    def copy_to(self, place: Path) -> PostgresqlServer:
        """A running standby that gets whatever is written here."""
        standby = copy(self)
        standby._data, standby._log, port = place / "data", place / "log", free_port()
        if self._as_user:
            shutil.chown(place, "postgres")
        copying = str(Path(self._control).parent / "pg_basebackup")
        more = ("-D", str(standby._data), "-c", "fast", "--no-sync", "--write-recovery-conf")
        self._run(copying, "-d", self.url, *more)
        standby._options = f"-p {port} -k {place} -c listen_addresses=127.0.0.1 -c fsync=off"
        standby.url = f"postgresql://ustad@127.0.0.1:{port}/postgres"
        standby.start()
        return standby

    def promote(self) -> None:
        """What was a standby takes writes."""
        self._run(self._control, "-D", str(self._data), "-w", "promote")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """Started for these tests and stopped after them."""
    control = find_program(("pg_ctl",), ("/usr/lib/postgresql/*/bin/pg_ctl",))
    if control is None:
        pytest.skip("no PostgreSQL is installed; `make setup-tests` (as root) installs one")
    place = Path(tempfile.mkdtemp(prefix="ustad-pg-"))
    server = PostgresqlServer(control, place)
    server.start()
    yield server
    server.kill()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def postgresql(postgresql_server: PostgresqlServer) -> str:
    """URL of that server."""
    return postgresql_server.url


@pytest.fixture(params=["sqlite", "postgresql"])
def any_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'any.db'}"
    return str(request.getfixturevalue("postgresql_url"))


@pytest.fixture
def postgresql_url(postgresql: str) -> str:
    """A fresh database."""
    import psycopg

    url = postgresql
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return url.rsplit("/", 1)[0] + f"/{name}"
