"""Does the service lose anything? It is killed (SIGKILL) and stopped (SIGTERM) in turn, again and again, under load.

    python benchmarks/kills.py                   100 kills and 100 orderly stops (about ten minutes on two cores)
    python benchmarks/kills.py --kills 5         fewer

Three clients send events and one sends fixes, each as fast as it is answered, and again what was not acknowledged. At
the end the store must hold everything acknowledged once, with the scores of a service that never stopped. Writes
benchmarks/results/kills.json, or into --out. Exit status 1: something was lost, or is there twice.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from sqlalchemy import func, select

from measured import write_result
from service import RESULTS, as_events, machine, make_model, make_stays
from ustad.page import records as r
from ustad.page.store import Store
from ustad.service.app import create_app, serve
from ustad.service.settings import Settings

PATIENCE_S = 120.0
CLIENTS, DAYS = 3, 2000


def run_service(model: str, store: str, port: int) -> None:
    serve(Settings(model=Path(model), store=store, port=port, device="cpu"))


class Server:
    """A server in a process that is forked with everything imported, so that hundreds of starts take minutes."""

    def __init__(self, model: Path, store: str) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["ustad.service.app", "ustad.service.live", "faiss"])
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url, began = f"http://127.0.0.1:{port}", time.monotonic()
        self.process = context.Process(target=run_service, args=(str(model), store, port), daemon=True)
        self.process.start()
        while not self._is_ready():
            if not self.process.is_alive() or time.monotonic() - began > PATIENCE_S:
                raise RuntimeError("the server did not start")
            time.sleep(0.02)
        self.seconds_to_start = time.monotonic() - began

    def _is_ready(self) -> bool:
        try:
            return httpx.get(self.url + "/readyz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def end(self, how: signal.Signals) -> None:
        (self.process.kill if how == signal.SIGKILL else self.process.terminate)()
        self.process.join(PATIENCE_S)


class Client:
    """Sends its parts one after the other; goes on where it was after every start."""

    def __init__(self, path: str, parts: list[list[dict[str, Any]]]) -> None:
        self.path, self.parts, self.position = path, parts, 0
        self.acknowledged: set[str] = set()
        self.problems: list[str] = []

    def send(self, url: str) -> None:
        name = self.path.rpartition("/")[2]
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
            while self.position < len(self.parts):
                try:
                    answer = http.post(self.path, json={name: self.parts[self.position]})
                except httpx.HTTPError:
                    return  # the server is gone
                if answer.status_code >= 500:
                    return  # it is stopping
                if answer.status_code != 200:
                    self.problems.append(f"{self.path} was answered {answer.status_code}")
                    return
                self.acknowledged |= {event["id"] for event in answer.json()["events"]}
                self.position += 1


def make_walk(agent: str, days: int) -> list[dict[str, Any]]:
    """A fix every five minutes, an hour here and an hour there."""
    start = np.datetime64("2024-02-01T00:00:00")
    return [
        {"agent_id": agent, "time": f"{start + np.timedelta64(5 * i, 'm')}Z", "lat": 60.17 + 0.01 * (i // 12 % 5),
         "lon": 24.94}
        for i in range(288 * days)
    ]  # fmt: skip


def make_clients() -> list[Client]:
    by_agent = as_events(make_stays(CLIENTS, DAYS, "2024-02-01", seed=4))
    sizes = cycle((1, 1, 2, 5))
    clients = []
    for events in by_agent.values():
        parts = []
        while events:
            size = next(sizes)
            parts.append(events[:size])
            events = events[size:]
        clients.append(Client("/v1/events", parts))
    walk = make_walk("walker", 200)
    clients.append(Client("/v1/fixes", [walk[i : i + 6] for i in range(0, len(walk), 6)]))
    return clients


def put_under_load(model: Path, store: str, clients: list[Client], ends: list[signal.Signals]) -> list[float]:
    """Start, load, and end as often as asked; returns the seconds that each start took."""
    chance, seconds = random.Random(1), []
    for number, how in enumerate(ends):
        server = Server(model, store)
        seconds.append(server.seconds_to_start)
        threads = [threading.Thread(target=client.send, args=(server.url,)) for client in clients]
        for thread in threads:
            thread.start()
        time.sleep(chance.uniform(0.05, 0.8))
        server.end(how)
        for thread in threads:
            thread.join(PATIENCE_S)
        if (number + 1) % 20 == 0:
            print(f"{number + 1} of {len(ends)}, {sum(c.position for c in clients)} requests answered", flush=True)
    return seconds


def read_events(url: str) -> dict[str, tuple[Any, ...]]:
    """Every event with what is said of it."""
    store, e = Store(url), r.events.c
    with store.reading() as connection:
        rows = connection.execute(select(e.key, e.agent, e.started_at, e.score, e.alert)).all()
        counted = connection.execute(select(func.sum(r.agents.c.n_events))).scalar() or 0
        alerts = connection.execute(select(func.count()).select_from(r.alerts)).scalar()
    store.close()
    if counted != len(rows) or alerts != sum(row.alert for row in rows):
        raise RuntimeError("the totals are not those of counting")
    return {str(row.key): (row.agent, row.started_at, round(row.score, 5), row.alert) for row in rows}


def score_unbroken(model: Path, store: str, clients: list[Client]) -> None:
    """What the clients were acknowledged, sent to one service that nothing happens to."""
    from fastapi.testclient import TestClient

    app = create_app(Settings(model=model, store=store, device="cpu"))
    with TestClient(app, base_url="http://localhost") as http:
        for client in clients:
            name = client.path.rpartition("/")[2]
            items = [item for part in client.parts[: client.position] for item in part]
            for start in range(0, len(items), 1000):
                http.post(client.path, json={name: items[start : start + 1000]}).raise_for_status()


def measure(kills: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        make_model(place / "model", 20, "cpu", "quick")
        store, other = (f"sqlite:///{place / file}" for file in ("store.db", "unbroken.db"))
        clients, ends = make_clients(), [signal.SIGKILL, signal.SIGTERM] * kills
        began = time.monotonic()
        seconds = put_under_load(place / "model", store, clients, ends)
        minutes = (time.monotonic() - began) / 60
        server = Server(place / "model", store)  # what was under way is sent once more
        for client in clients:
            client.parts = client.parts[: client.position + 1]
            client.send(server.url)
        server.end(signal.SIGTERM)
        score_unbroken(place / "model", other, clients)
        stored, expected = read_events(store), read_events(other)
    acknowledged = set().union(*(client.acknowledged for client in clients))
    where = [(agent, start) for agent, start, *_ in stored.values()]
    problems = [problem for client in clients for problem in client.problems]
    return {
        "kills": kills, "orderly_stops": kills, "starts": len(seconds) + 1, "minutes": minutes,
        "requests": sum(client.position for client in clients), "acknowledged": len(acknowledged),
        "stored": len(stored), "lost": len(acknowledged - stored.keys()) + len(expected.keys() - stored.keys()),
        "twice": len(where) - len(set(where)), "never_sent": len(stored.keys() - expected.keys()),
        "other_scores": sum(stored[key] != expected[key] for key in expected.keys() & stored.keys()),
        "problems": problems[:10], "start_s_median": float(np.median(seconds)), "start_s_most": max(seconds),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="kills, and as many orderly stops")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the result file goes")
    chosen = parser.parse_args()
    figures = measure(chosen.kills)
    chosen.out.mkdir(parents=True, exist_ok=True)
    write_result(chosen.out / "kills.json", {**figures, "machine": machine()})
    for name, value in figures.items():
        print(f"{name:<16}{value}")
    wrong = ("lost", "twice", "never_sent", "other_scores", "problems")
    return int(any(figures[name] for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
