"""What the service's tests are made of: a scorer that needs no model, stays, and a server in its own process."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
from fastapi.testclient import TestClient

from ustad.config import ExtractionConfig
from ustad.page.translate import Layout, event_table, keys_for
from ustad.schema import EventSchema, mobility_schema
from ustad.service.app import create_app
from ustad.service.pipeline import ScoreBatch
from ustad.service.server import bind, make_server
from ustad.service.settings import Settings


class PlainScorer:
    """Scores by duration alone: an hour scores 1, and three hours or more are an alert. Remembers what it was shown."""

    def __init__(self, schema: EventSchema | None = None) -> None:
        self.schema = schema or mobility_schema()
        self.extraction = ExtractionConfig()
        self.context, self.fingerprint = 64, "plain"
        self.held: dict[str, int] = {}
        self.scored: list[tuple[str, int]] = []
        self.batches: list[int] = []
        self.fail: Callable[[pa.Table], None] = lambda events: None

    def missing(self, agents: Sequence[str]) -> list[str]:
        return [a for a in agents if a not in self.held]

    def remember(self, agents: Sequence[str], context: pa.Table, states: Mapping[str, bytes], _: Any = None) -> None:
        for agent in agents:
            self.held[agent] = context["agent_id"].to_pylist().count(agent)

    def forget(self, agents: Sequence[str]) -> None:
        for agent in agents:
            self.held.pop(agent, None)

    def erase(self, agents: Sequence[str]) -> None:
        self.forget(agents)

    def score(self, rows: Sequence[Mapping[str, Any]]) -> ScoreBatch:
        events = event_table(rows, Layout.of(self.schema))
        self.fail(events)
        self.batches.append(events.num_rows)
        start = events["started_at"].cast(pa.int64()).to_numpy()
        hours = (events["finished_at"].cast(pa.int64()).to_numpy() - start) / 3.6e9
        for agent, moment in zip(events["agent_id"].to_pylist(), start.tolist(), strict=True):
            self.scored.append((agent, moment))
            self.held[agent] = self.held.get(agent, 0) + 1
        n = len(hours)
        more = {
            "expected_duration": np.full(n, 60.0), "spread_duration": np.full(n, 20.0),
            "error_duration": np.abs(hours * 60 - 60), "loss_duration": hours, "au_duration": np.full(n, 0.1),
            "eu_duration": np.full(n, 0.01), "pct_duration": np.minimum(hours / 10, 0.999),
            "pct_start": np.full(n, 0.2), "score": hours, "p_value": np.power(10.0, -hours), "alert": hours >= 3,
            "kind": np.where(hours >= 6, "novel", "predictable"),
            "reason": [f"stayed {h:.0f} hours; expected about one" for h in hours],
        }  # fmt: skip
        zones = [row["timezone"] or "UTC" for row in rows]
        return ScoreBatch(zones, pa.table({name: pa.array(values) for name, values in more.items()}).to_pylist())

    def locate(self, stays: pa.Table, trips: pa.Table) -> pa.Table:
        wanted = event_table([], Layout.of(self.schema)).schema
        columns = [
            stays[f.name].cast(f.type) if f.name in stays.column_names else pa.nulls(stays.num_rows, f.type)
            for f in wanted
        ]
        return pa.table(columns, schema=wanted)


class LookingBack(PlainScorer):
    """Each event's final score is the highest of its own and the next one's: a long stay raises the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, tuple[int, float]] = {}

    def score(self, rows: Any) -> ScoreBatch:
        scored = super().score(rows)
        finals: dict[int, dict[str, Any]] = {}
        made = []
        agents = [row["agent"] for row in rows]
        for key, agent, row in zip(keys_for(rows), agents, scored.rows, strict=True):
            if agent in self.last:
                before, own = self.last[agent]
                score = max(own, row["score"])
                finals[before] = {"score": score, "p_value": 10.0**-score, "alert": score >= 3,
                                  "reason": "the stay after it is the more unusual one",
                                  "term": "duration"}  # fmt: skip
            self.last[agent] = (key, row["score"])
            made.append({**row, "final": False})
        return ScoreBatch(scored.zones, made, finals)

    def forget(self, agents: Any) -> None:
        super().forget(agents)
        for agent in agents:
            self.last.pop(agent, None)


def a_stay(agent: str = "a", hour: float = 0.0, hours: float = 1.0, **more: Any) -> dict[str, Any]:
    """One stay that begins so many hours after 2024-03-01 in UTC."""
    moment = np.datetime64("2024-03-01T00:00:00", "ms")
    start = moment + np.timedelta64(round(hour * 3_600_000), "ms")
    end = start + np.timedelta64(round(hours * 3_600_000), "ms")
    return {
        "agent_id": agent, "started_at": f"{start}Z", "finished_at": f"{end}Z", "lat": 60.17, "lon": 24.94,
        "poi_category": "work", "timezone": "Europe/Helsinki", **more,
    }  # fmt: skip


# ------------------------------------------------------------------------------------- a small real model
ZONE = "Europe/Helsinki"
TINY = {
    "model.width": 8, "model.heads": 2, "model.event_blocks": 1, "model.trips": "none", "training.epochs": 2,
    "scoring.samples": 4, "scoring.neighbours": 5,
}  # fmt: skip


def tiny_stays(agents: int = 6, days: int = 24, seed: int = 3, after: int = 0) -> pa.Table:
    """Home, work, somewhere, home: four stays a day in local time, with a little chance in each. They begin so many
    days after 1 March 2024."""
    g = np.random.default_rng(seed)
    agent, day, slot = (v.ravel() for v in np.meshgrid(range(agents), range(days), range(4), indexing="ij"))
    first = np.datetime64("2024-02-29T22:00", "m").astype(np.int64)  # midnight of 1 March in Helsinki
    start = np.array([0, 510, 1030, 1150])[slot] + g.integers(0, 20, len(slot)) * (slot > 0)
    end = np.array([480, 1000, 1120, 1435])[slot] + g.integers(0, 15, len(slot)) * (slot < 3)
    where = np.where(slot == 2, 2 + g.integers(0, 3, len(slot)), (slot == 1).astype(int))
    minutes = first + (day + after) * 1440 + np.stack([start, end])
    return pa.table({
        "agent_id": pa.array([f"agent {a}" for a in agent]),
        "started_at": pa.array(minutes[0] * 60_000_000).cast(pa.timestamp("us", tz="UTC")),
        "finished_at": pa.array(minutes[1] * 60_000_000).cast(pa.timestamp("us", tz="UTC")),
        "lat": 60.17 + 0.01 * agent + 0.004 * where, "lon": 24.94 + 0.006 * where,
        "poi_id": pa.array([f"{a}/{w}" for a, w in zip(agent, where, strict=True)]),
        "poi_category": pa.array(np.array(["home", "work", "shop", "gym", "cafe"])[where]),
        "timezone": pa.array([ZONE] * len(slot)),
        "stay_id": pa.array(np.arange(len(slot))),
    })  # fmt: skip


def as_events(stays: pa.Table) -> list[dict[str, Any]]:
    """Stays as the service takes them, in order of time."""
    rows = stays.sort_by([("started_at", "ascending"), ("agent_id", "ascending")]).to_pylist()
    return [{**r, "started_at": r["started_at"].isoformat(), "finished_at": r["finished_at"].isoformat()} for r in rows]


# --------------------------------------------------------------------------------------- real servers
#: Seconds until something that is sure to come is given up: only a test that fails waits so long, however busy the
#: machine is.
PATIENCE = 180.0


def until(happened: Callable[[], Any], pause: float = 0.02) -> bool:
    """Wait until it has happened; whether it has."""
    deadline = time.monotonic() + PATIENCE
    while not (done := bool(happened())) and time.monotonic() < deadline:
        time.sleep(pause)
    return done


class ThreadServer:
    """The real server around an application, in a thread of this process: nothing to import, nothing to train."""

    def __init__(self, scorer: Any = None, **settings: Any) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        chosen = Settings(**{"store": "sqlite://", "port": self.port, **settings})
        listener = bind(chosen.host, self.port)
        self.service = (app := create_app(chosen, scorer or PlainScorer())).state.service
        self._server = make_server(app, chosen, on_stop=self.service.stop)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()
        assert until(lambda: self._server.started)

    def stop(self) -> float:
        """Stop it; how many seconds that took."""
        began = time.monotonic()
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        return time.monotonic() - began


class Server:
    """`ustad serve` in a process of its own, ended by its own id."""

    def __init__(self, *arguments: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = "import typer; from ustad.cli.serve import serve; typer.run(serve)"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the server
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, *arguments, "--port", str(self.port), "--device", "cpu"],
            env=environment, stdout=self.log, stderr=self.log,
        )  # fmt: skip
        until(lambda: self.process.poll() is not None or is_ready(self.url), 0.1)
        if self.process.poll() is not None or not is_ready(self.url):
            self.stop()
            raise RuntimeError(f"the server did not start: {self.said()[-2000:]}")

    def said(self) -> str:
        """Everything it has written to its log."""
        self.log.seek(0)
        return self.log.read().decode()

    def kill(self) -> None:
        """SIGKILL: no chance to put anything in order."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def client_of(app: Any) -> TestClient:
    """A client in the same process, under a name of this machine."""
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)


def is_ready(url: str) -> bool:
    try:
        return httpx.get(url + "/readyz", timeout=PATIENCE).status_code == 200
    except httpx.HTTPError:
        return False


def run_service(model: str, store: str, port: int) -> None:
    """Target of a process that is forked with everything imported, so that many restarts are quick."""
    from pathlib import Path

    from ustad.service.app import serve
    from ustad.service.settings import Settings

    serve(Settings(model=Path(model), store=store, port=port, device="cpu"))


class ForkedServer:
    """A server in a process of its own that needs no time to import."""

    def __init__(self, model: str, store: str) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["ustad.service.app", "ustad.service.live", "faiss"])
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = context.Process(target=run_service, args=(model, store, port), daemon=True)
        began = time.monotonic()
        self.process.start()
        until(lambda: is_ready(self.url) or not self.process.is_alive(), 0.03)
        if not self.process.is_alive() or not is_ready(self.url):
            self.kill()
            raise RuntimeError("the server did not start")
        self.seconds = time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL: no chance to put anything in order."""
        self.process.kill()
        self.process.join()


def free_port() -> int:
    """One that nobody listens at, and that no outgoing connection is given until the server has it."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 50):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port among fifty")
