"""How fast the service answers: one client one event at a time, many clients at once, and memory over time.

    python benchmarks/service.py                    the service over HTTP on this machine's CPU (about 3 minutes)
    python benchmarks/service.py --minutes 10       the same, with ten minutes of steady load for memory
    python benchmarks/service.py --preset quick     the same with a model that scores by habits
    python benchmarks/service.py --device cuda      the live scorer alone in micro-batches, on a bare GPU machine

The model is the paper's size (D = 64, M2 = 4, w = 3, T = 50), fitted for one pass: speed does not depend on how
well it predicts. Prints a table and writes benchmarks/results/service[_scorer_cuda].json, or into --out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measured import write_result
from service_tables import GOALS, GPU_GOALS, Goals, asked, judged
from ustad.config import Config
from ustad.detector import Detector
from ustad.service.settings import Settings
from ustad.tables import TIMESTAMP

RESULTS = Path(__file__).parent / "results"
SIZE = {
    "model.width": 64, "model.event_blocks": 4, "model.trips": "none", "training.epochs": 1,
    "training.max_minutes": 1.0,
    "scoring.samples": 50, "scoring.neighbours": 150, "scoring.percentiles": "calibrated",
    "training.batch_size": 256,
}  # fmt: skip


def make_stays(agents: int, days: int, first: str = "2024-01-01", seed: int = 0) -> pa.Table:
    """Three stays a day and agent, so that a window of four days holds twelve."""
    g = np.random.default_rng(seed)
    agent, day, slot = (v.ravel() for v in np.meshgrid(range(agents), range(days), range(3), indexing="ij"))
    start = np.array([0, 500, 1080])[slot] + g.integers(0, 30, len(slot))
    end = np.array([460, 1020, 1400])[slot] + g.integers(0, 30, len(slot))
    where = np.where(slot == 1, 1, np.where(slot == 2, g.integers(2, 8, len(slot)), 0))
    minutes = np.datetime64(first, "m").astype(np.int64) + day * 1440 + np.stack([start, end])
    return pa.table({
        "agent_id": pa.array([f"a{a}" for a in agent]),
        "started_at": pa.array(minutes[0] * 60_000_000).cast(TIMESTAMP),
        "finished_at": pa.array(minutes[1] * 60_000_000).cast(TIMESTAMP),
        "lat": 60.17 + 0.001 * (agent % 100) + 0.004 * where, "lon": 24.94 + 0.006 * where,
        "poi_id": pa.array([f"{a}/{w}" for a, w in zip(agent, where, strict=True)]),
        "poi_category": pa.array(np.array(["home", "work", "shop", "gym", "cafe", "bar", "park", "visit"])[where]),
        "timezone": pa.array(["UTC"] * len(slot)),
    })  # fmt: skip


def make_model(place: Path, agents: int, device: str, preset: str = "paper") -> None:
    """`paper` scores by the network, `quick` by habits."""
    table = make_stays(agents, 28)
    size = SIZE if preset == "paper" else {}  # habits have no network
    Detector(Config.preset(preset, **size), device=device).fit(table).save(place)


def as_events(stays: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """Bodies of events by agent, in order of time."""
    made: dict[str, list[dict[str, Any]]] = {}
    for row in stays.sort_by([("started_at", "ascending")]).to_pylist():
        times = {k: row[k].isoformat() for k in ("started_at", "finished_at")}
        made.setdefault(row["agent_id"], []).append({**row, **times})
    return made


# ------------------------------------------------------------------------------------------- over HTTP
class Server:
    """`ustad serve` in a process of its own."""

    def __init__(self, model: Path, store: Path, *options: str) -> None:
        import httpx

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = "import typer; from ustad.cli.serve import serve; typer.run(serve)"
        began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, str(model), "--store", f"sqlite:///{store}", "--port", str(port),
             *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while True:
            try:
                if httpx.get(self.url + "/readyz").status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.05)
        self.seconds_to_start = time.monotonic() - began

    def megabytes(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


class Client:
    """One connection that sends events and reads as little of the answers as it can: the server and its clients
    share the machine, and the server is what is measured."""

    def __init__(self, server: Server) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = f"POST /v1/events HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"

    def post(self, body: bytes) -> float:
        """Seconds of one request; a 429 is waited out and counted as part of it."""
        began = time.perf_counter()
        message = f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        while True:
            self._socket.sendall(message)
            head = self._answer()
            status = int(head[9:12])
            if status == 200:
                return time.perf_counter() - began
            if status != 429:
                raise RuntimeError(f"unexpected answer {status}")
            time.sleep(float(_header(head, b"retry-after")))

    def _answer(self) -> bytes:
        """The head of an answer that was read to its end."""
        content = b""
        while b"\r\n\r\n" not in content:
            content += self._socket.recv(65536)
        head, _, rest = content.partition(b"\r\n\r\n")
        left = int(_header(head, b"content-length")) - len(rest)
        while left > 0:
            left -= len(self._socket.recv(65536))
        return head

    def close(self) -> None:
        self._socket.close()


def _header(head: bytes, name: bytes) -> bytes:
    return next(line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(name))


def bodies(events: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps({"events": [event]}).encode() for event in events]


def one_client(server: Server, events: list[dict[str, Any]]) -> dict[str, float]:
    client, ready = Client(server), bodies(events)
    for body in ready[:20]:
        client.post(body)
    began, cpu = time.perf_counter(), server.cpu_seconds()
    took = [client.post(body) for body in ready[20:]]
    wall = time.perf_counter() - began
    busy = server.cpu_seconds() - cpu
    client.close()
    return {"requests_per_s": len(took) / wall, "p50_ms": 1e3 * float(np.median(took)),
            "p99_ms": 1e3 * float(np.quantile(took, 0.99)), "server_cpu_ms": 1e3 * busy / len(took)}  # fmt: skip


def many_clients(
    server: Server, by_agent: dict[str, list[dict[str, Any]]], clients: int, seconds: float
) -> dict[str, float]:
    """Each client sends single events of its own agents as fast as they are answered."""
    agents = list(by_agent)
    took: list[list[float]] = [[] for _ in range(clients)]
    shares = [[by_agent[a] for a in agents[number::clients]] for number in range(clients)]
    until = time.perf_counter() + seconds

    def work(number: int) -> None:
        client = Client(server)
        for turn in zip_longest(*shares[number]):
            for event in filter(None, turn):
                if time.perf_counter() > until:
                    client.close()
                    return
                took[number].append(client.post(bodies([event])[0]))
        client.close()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(clients)]
    began, cpu = time.perf_counter(), server.cpu_seconds()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall, all_ = time.perf_counter() - began, np.concatenate([np.array(t) for t in took])
    return {"events_per_s": len(all_) / wall, "p50_ms": 1e3 * float(np.median(all_)),
            "p99_ms": 1e3 * float(np.quantile(all_, 0.99)),
            "server_cpu_ms": 1e3 * (server.cpu_seconds() - cpu) / len(all_)}  # fmt: skip


def over_http(minutes: float, preset: str, model: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        if model is None:
            print("fitting a model of the paper's size …", flush=True)
            model = place / "model"
            make_model(model, 60, "cpu", preset)
        server = Server(model, place / "store.db")
        try:
            found: dict[str, Any] = {"seconds_to_start": server.seconds_to_start}
            warm = as_events(make_stays(1, 170, "2024-02-01", seed=1))["a0"]
            found["one client"] = one_client(server, warm[:420])
            later = {f"b{a}": v for a, v in as_events(make_stays(320, 60, "2024-02-01", seed=2)).items()}
            later = {a: [{**e, "agent_id": a} for e in v] for a, v in later.items()}
            found["32 clients"] = many_clients(server, later, 32, 30)
            found["memory"] = memory(server, minutes)
            server.process.kill()  # SIGKILL
            server.process.wait()
            server = Server(model, place / "store.db")
            found["seconds to start again after SIGKILL"] = server.seconds_to_start
        finally:
            server.stop()
        return found


def memory(server: Server, minutes: float) -> dict[str, float]:
    """Resident memory under steady load of a fixed set of agents, after a first tenth of settling."""
    by_agent = {f"m{a}": v for a, v in as_events(make_stays(64, 2000, "2024-02-01", seed=3)).items()}
    by_agent = {a: [{**e, "agent_id": a} for e in v] for a, v in by_agent.items()}
    readings: list[float] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.wait(1.0):
            readings.append(server.megabytes())

    reader = threading.Thread(target=read)
    reader.start()
    load = many_clients(server, by_agent, 16, 60 * minutes)
    stop.set()
    reader.join()
    settled = readings[len(readings) // 5 :]
    slope = float(np.polyfit(np.arange(len(settled)), settled, 1)[0]) * 600
    return {"minutes": minutes, "first_mb": settled[0], "last_mb": settled[-1], "growth_mb_per_10_min": slope,
            "events_per_s": load["events_per_s"]}  # fmt: skip


# ----------------------------------------------------------------------------------- the scorer alone
def scorer_alone(device: str, batch: int, seconds: float) -> dict[str, Any]:
    """The live model in micro-batches, without HTTP and store: for a bare GPU machine. Under a minute in all."""
    from ustad.live.network_live import LiveScorer
    from ustad.paper_fitting import make_causal
    from ustad.scoring.scored_parts import score_whole

    began = time.perf_counter()
    quick = {"training.max_minutes": 0.2, "training.acceleration": "off"}
    detector = Detector(Config.preset("paper", **{**SIZE, **quick}), device=device).fit(make_stays(200, 28))
    judge = make_causal(detector.paper())
    context = make_stays(batch, 4, "2024-02-01", seed=5)
    found: dict[str, Any] = {"seconds to fit": time.perf_counter() - began}
    for size in (1, 32, 128, batch):
        names = pa.array([f"a{i}" for i in range(size)])
        before = context.filter(pc.is_in(context["agent_id"], names))
        events = make_stays(size, 1, "2024-02-05", seed=6).take(pa.array(np.arange(size) * 3))
        score = partial(score_whole, judge, events, before)
        found[f"micro-batch {size}"] = rate(score, size, seconds)
    live = LiveScorer(judge, detector.device)
    live.warm(context)
    later = iter(make_stays(batch, 60, "2024-02-05", seed=7).sort_by("started_at").to_pylist())
    found["one by one"] = rate(lambda: live.update(next(later)), 1, seconds)
    served = Settings.micro_batch
    found[f"live, {served} at once"] = rate(lambda: live.update_many(list(islice(later, served))), served, seconds)
    return found


def rate(score: Callable[[], Any], events: int, seconds: float) -> dict[str, float]:
    """Events a second and milliseconds a call, after three calls that do not count."""
    for _ in range(3):
        score()
    began, runs = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        score()
        runs += 1
    wall = time.perf_counter() - began
    return {"events_per_s": events * runs / wall, "ms": 1e3 * wall / runs}


# --------------------------------------------------------------------------------------------- report
def report(found: dict[str, Any], name: str, out: Path, goals: Goals) -> None:
    print(f"\n{'what':<16}{'figure':<24}{'measured':>12}   goal")
    for what, figures in found.items():
        for figure, value in figures.items() if isinstance(figures, dict) else [("", figures)]:
            goal = goals.get((what, figure))
            print(f"{what:<16}{figure:<24}{value:>12,.1f}   {asked(goal)} {judged(value, goal)}")
    out.mkdir(parents=True, exist_ok=True)
    content = {**found, "machine": machine()}
    write_result(out / f"{name}.json", content)


def machine() -> dict[str, Any]:
    import torch

    import ustad

    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())  # fmt: skip
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"cores": os.cpu_count(), "cpu": cpu, "gpu": gpu, "load_1_min": os.getloadavg()[0],
            "python": platform.python_version(), "torch": torch.__version__, "ustad": ustad.__version__}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--minutes", type=float, default=1.0, help="of steady load, to see memory")
    parser.add_argument("--batch", type=int, default=512, help="events of the largest micro-batch of the scorer alone")
    parser.add_argument("--preset", choices=["paper", "quick"], default="paper", help="how the served model scores")
    parser.add_argument("--model", type=Path, help="a model directory that is served instead of fitting one")
    parser.add_argument("--scorer", action="store_true", help="the scorer alone, also on a CPU")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the result file goes")
    chosen = parser.parse_args()
    if chosen.device == "cuda" or chosen.scorer:
        found = scorer_alone(chosen.device, chosen.batch, 4.0)
        report(found, f"service_scorer_{chosen.device}", chosen.out, GPU_GOALS if chosen.device == "cuda" else {})
    else:
        name = "service" if chosen.preset == "paper" else f"service_{chosen.preset}"
        report(over_http(chosen.minutes, chosen.preset, chosen.model), name, chosen.out, GOALS)


if __name__ == "__main__":
    main()
