"""How the service does over hours: steady load, retention, and a new model in the middle; memory, delays and errors.

    python benchmarks/soak.py                        one hour of 100 events/s of 5,000 agents
    python benchmarks/soak.py --minutes 15           shorter
    python benchmarks/soak.py --rate 50 --agents 500 smaller

Agents live through their days faster than the clock: each request brings the next event of one of them. Retention
deletes the first third of the simulated days. In the middle a model is trained beside the load, and the service is
started again with it. Writes benchmarks/results/soak.json, or into --out. Exit status 1: an error was answered.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from measured import write_result
from service import RESULTS, Server, machine, make_model

CLIENTS = 8
#: Seconds of events that a client keeps while the service does not answer, as a phone would, and sends afterwards.
KEPT_BACK = 60.0
FIRST = 1_706_745_600  # 1 February 2024, in seconds
#: Start and length in minutes, and where, of the three stays of a day. None reaches the next, however late it is.
DAY = ((0, 440, 0), (500, 520, 1), (1080, 300, 2))
PLACES = ("home", "work", "shop")


def make_event(agent: int, number: int) -> dict[str, Any]:
    """The n-th event of an agent: three a day, with chance that follows from both numbers."""
    day, slot = divmod(number, 3)
    start, length, where = DAY[slot]
    chance = np.random.default_rng([agent, number])
    minutes = day * 1440 + start + int(chance.integers(0, 30)), int(length + chance.integers(-20, 20))
    begin = FIRST + 60 * minutes[0]
    return {
        "agent_id": f"s{agent}", "started_at": _iso(begin),
        "finished_at": _iso(begin + 60 * minutes[1]), "lat": 60.17 + 0.001 * (agent % 100),
        "lon": 24.94 + 0.006 * where, "poi_id": f"{agent}/{where}", "poi_category": PLACES[where], "timezone": "UTC",
    }  # fmt: skip


def _iso(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class Load:
    """So many events a second over all clients; what is refused is sent again."""

    def __init__(self, agents: int, rate: float) -> None:
        self.agents, self.rate = agents, rate
        self.url, self.stopping = "", threading.Event()
        self.delays: list[tuple[float, float]] = []  # when, and seconds
        self.errors: Counter[str] = Counter()
        self.acknowledged = 0
        self._threads = [threading.Thread(target=self._work, args=(i,), daemon=True) for i in range(CLIENTS)]

    def start(self, url: str) -> None:
        self.url, self.began, self.ended = url, time.monotonic(), 0.0
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(120)
        self.ended = time.monotonic()

    def _work(self, mine: int) -> None:
        """Agents mine, mine + CLIENTS, … in turn, one event each."""
        due, pause = time.monotonic(), CLIENTS / self.rate
        own = range(mine, self.agents, CLIENTS)
        http = httpx.Client(timeout=120)
        for turn in count():
            for agent in own:
                if self.stopping.is_set():
                    http.close()
                    return
                due = max(due + pause, time.monotonic() - KEPT_BACK)
                time.sleep(max(0.0, due - time.monotonic()))
                self._send(http, make_event(agent, turn))

    def _send(self, http: httpx.Client, event: dict[str, Any]) -> None:
        while not self.stopping.is_set():
            began = time.monotonic()
            try:
                answer = http.post(self.url + "/v1/events", json={"events": [event]})
            except httpx.HTTPError:
                time.sleep(0.2)  # it is started again with another model
                continue
            if answer.status_code == 200:
                self.acknowledged += 1
                self.delays.append((began - self.began, time.monotonic() - began))
                return
            if answer.status_code not in (429, 503):
                self.errors[str(answer.status_code)] += 1
                return
            self.errors[f"{answer.status_code}, sent again"] += 1
            time.sleep(float(answer.headers.get("retry-after", 1)))


def watch(server: list[Server], readings: list[tuple[float, float]], loads: list[float], stop: threading.Event) -> None:
    began = time.monotonic()
    while not stop.wait(2.0):
        loads.append(os.getloadavg()[0])
        try:
            readings.append((time.monotonic() - began, server[0].megabytes()))
        except (OSError, IndexError):
            continue  # between two servers


def growth(readings: list[tuple[float, float]]) -> float:
    """MB in ten minutes, of the last two thirds."""
    settled = np.array(readings[len(readings) // 3 :])
    return float(np.polyfit(settled[:, 0], settled[:, 1], 1)[0]) * 600 if len(settled) > 2 else float("nan")


def measure(minutes: float, agents: int, rate: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        make_model(place / "model", 20, "cpu", "quick")
        load_before = os.getloadavg()
        # Everything lies years back: the store keeps what is after a third of the simulated days.
        simulated_days = rate * 60 * minutes / agents / 3
        keep = f"{(time.time() - FIRST) / 86400 - simulated_days / 3:.2f}d"
        options = ("--keep", keep, "--alerts-per-day", "20")
        server = [Server(place / "model", place / "store.db", *options)]
        load, stop = Load(agents, rate), threading.Event()
        readings: list[tuple[float, float]] = []
        loads: list[float] = []
        watcher = threading.Thread(target=watch, args=(server, readings, loads, stop), daemon=True)
        load.start(server[0].url)
        watcher.start()
        time.sleep(30 * minutes)
        make_model(place / "next", 30, "cpu", "quick")
        before = growth(readings)
        stopped, busy = time.monotonic(), server[0].cpu_seconds()
        server[0].stop()
        server[0] = Server(place / "next", place / "store.db", *options)
        load.url, swapped, pause = server[0].url, len(readings), time.monotonic() - stopped
        time.sleep(30 * minutes)
        load.stop()
        busy += server[0].cpu_seconds()
        stop.set()
        watcher.join(10)
        figures = httpx.get(server[0].url + "/v1/summary", timeout=120).json()
        metrics = httpx.get(server[0].url + "/metrics", timeout=120).text
        server[0].stop()
        size = sum(file.stat().st_size for file in place.glob("store.db*")) / 1e6
    delays = np.array([seconds for _, seconds in load.delays])
    return {
        "minutes": minutes, "agents": agents, "asked_events_per_s": rate,
        "seconds": load.ended - load.began, "events_per_s": load.acknowledged / (load.ended - load.began),
        "seconds_without_service": pause, "acknowledged": load.acknowledged,
        "p50_ms": 1e3 * float(np.median(delays)), "p99_ms": 1e3 * float(np.quantile(delays, 0.99)),
        "most_ms": 1e3 * float(delays.max()), "errors": dict(load.errors), "keep": keep,
        "events_left": _metric(metrics, "ustad_store_events"), "alerts": figures.get("alerts"), "store_mb": size,
        "memory_mb": [round(readings[0][1]), round(readings[swapped - 1][1]), round(readings[-1][1])],
        "growth_mb_per_10_min": [before, growth(readings[swapped:])], "load_before": load_before[0],
        "load_mean": float(np.mean(loads)), "nice": os.nice(0), "server_cpu_ms": 1e3 * busy / load.acknowledged,
    }  # fmt: skip


def _metric(text: str, name: str) -> float:
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " "))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--agents", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=100.0, help="events a second")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the result file goes")
    chosen = parser.parse_args()
    figures = measure(chosen.minutes, chosen.agents, chosen.rate)
    chosen.out.mkdir(parents=True, exist_ok=True)
    write_result(chosen.out / "soak.json", {**figures, "machine": machine()})
    for name, value in figures.items():
        print(f"{name:<22}{value}")
    return int(any("again" not in error for error in figures["errors"]))


if __name__ == "__main__":
    sys.exit(main())
