"""What many people cost on a Ray cluster of several nodes: simulate, extract, train on a sample, score; a node is lost.

    python benchmarks/million.py                                   1,000 and 10,000 people
    python benchmarks/million.py --agents 1000 --days 28 --every 10min
    python benchmarks/million.py --s3-server .venv/bin/moto_server      one more run of the smallest size over S3

The nodes are processes of this machine with a core each. While people are scored one of them is killed; the scores are
compared with those of one process without Ray. Processor time is that of this process and of everything below it, Ray's
own processes included. With `--s3-server` (a program that takes -H and -p: `pip install 'moto[server]'`) fixes, data
and scores lie in a bucket; bytes to and from it are counted on the way. Writes benchmarks/results/million.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine import below, cpu_of, name_of, status_of
from measured import write_result
from service import machine

RESULTS = Path(__file__).parent / "results" / "million.json"
SAMPLE = 500  # people that the model learns from
COMPARED = 30_000  # people whom one process scores too, in about 6 GB
NODES = 2
PARTITIONS = 12
BUCKET = "city"
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_worker_register_timeout_seconds": "600",
    "RAY_memory_monitor_refresh_ms": "0", "AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_EC2_METADATA_DISABLED": "true", "OMP_NUM_THREADS": "1",
}  # fmt: skip


# --------------------------------------------------------------------------------------------- what it costs
class Meter(threading.Thread):
    """Processor seconds of this process and all below it (those that ended too), and the most that the folder held."""

    def __init__(self, folder: Path, without: set[int]) -> None:
        super().__init__(daemon=True)
        self.folder, self.without = folder, without
        self.seconds: dict[int, float] = {}
        self.worker_mb = self.peak_mb = 0.0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.5):
            self.look()

    def look(self) -> float:
        for pid in {os.getpid(), *below(os.getpid())} - self.without:
            with suppress(OSError, StopIteration, IndexError):  # it has just ended
                self.seconds[pid] = cpu_of(pid)
                if name_of(pid).startswith("ray::"):
                    self.worker_mb = max(self.worker_mb, status_of(pid, "VmHWM"))
        self.peak_mb = max(self.peak_mb, _disk(self.folder))
        return sum(self.seconds.values())


def _disk(folder: Path) -> float:
    """Megabytes of everything in a folder that may be changing."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(root, name)).st_size
    return total / 1e6


class Wire(threading.Thread):
    """Between the cluster and the S3 server: passes everything on and counts it."""

    def __init__(self, server_port: int) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port, self.server_port, self.bytes = self.listener.getsockname()[1], server_port, {"up": 0, "down": 0}

    def run(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.server_port))
                for source, target, way in ((client, server, "up"), (server, client, "down")):
                    threading.Thread(target=self._pass_on, args=(source, target, way), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 16):
                self.bytes[way] += len(content)
                target.sendall(content)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def s3_server(program: str) -> Iterator[tuple[str, Wire, int]]:
    """A server with an empty bucket: the options of its addresses, what counts, and its process."""
    import pyarrow.fs as pa_fs

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.1)
        wire = Wire(port)
        wire.start()
        options = f"scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{wire.port}"
        filesystem, _ = pa_fs.FileSystem.from_uri(f"s3://{BUCKET}?allow_bucket_creation=true&{options}")
        filesystem.create_dir(BUCKET)
        yield options, wire, server.pid
        wire.listener.close()
    finally:
        server.terminate()
        server.wait(20)


# ------------------------------------------------------------------------------------------------ one size
@contextmanager
def nodes() -> Iterator[Any]:
    """A head that works on nothing, and nodes with a core each."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(NODES):
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


class Run:
    """One size: the four verbs, each with its costs."""

    def __init__(self, folder: Path, agents: int, days: int, every: str, s3: tuple[str, Wire, int] | None) -> None:
        self.folder, self.agents, self.days, self.every = folder, agents, days, every
        self.options, self.wire, server = s3 or ("", None, 0)
        self.without = {server} if server else set()
        self.figures: dict[str, Any] = {
            "agents": agents, "days": days, "fix_every": every, "storage": "s3" if s3 else "disk",
            "partitions": PARTITIONS, "steps": {},
        }  # fmt: skip

    def at(self, name: str) -> Any:
        return f"s3://{BUCKET}/{name}?{self.options}" if self.options else self.folder / name

    def step(self, name: str, call: Any) -> Any:
        meter = Meter(self.folder, self.without)
        before, began, sent = meter.look(), time.perf_counter(), dict(self.wire.bytes) if self.wire else {}
        meter.peak_mb, start_mb = 0.0, _disk(self.folder)
        meter.start()
        result = call()
        meter.over.set()
        meter.join()
        costs = {
            "seconds": time.perf_counter() - began, "cpu_seconds": meter.look() - before,
            "worker_mb": meter.worker_mb, "disk_mb": _disk(self.folder) - start_mb,
            "peak_disk_mb": meter.peak_mb - start_mb, "load": os.getloadavg()[0],
        }  # fmt: skip
        if self.wire:
            costs |= {f"{way}_mb": (n - sent[way]) / 1e6 for way, n in self.wire.bytes.items()}
        self.figures["steps"][name] = {what: round(value, 2) for what, value in costs.items()}
        print(
            f"{self.agents:>8,} {self.figures['storage']:<5}{name:<10}{json.dumps(self.figures['steps'][name])}",
            flush=True,
        )
        return result

    def all_steps(self) -> dict[str, Any]:
        from ustad.engine.extract_job import extract
        from ustad.engine.simulate_job import simulate

        a_part = max(50, min(1000, self.agents // 8))
        with nodes() as cluster:
            asked = {"fixes": self.every, "days": self.days, "agents_a_part": a_part}
            meta = self.step("simulate", lambda: simulate("numosim-la", self.agents, 107, self.at("people"), **asked))
            summary = self.step("extract", lambda: extract(self.at("people"), self.at("data"), partitions=PARTITIONS))
            self.figures |= {"simulated_stays": meta["events"], "fixes": summary.fixes, "stays": summary.stays}
            self.step("train", self._train)
            scored = self.step("score", lambda: self._score(cluster))
        self.figures |= {"scored_events": scored.events, "model_mb": round(_disk(self.folder / "model"), 2)}
        return self.figures

    def _train(self) -> None:
        """By habits, from a sample of the people; what everybody else did before is read when they are scored."""
        from ustad.config import Config
        from ustad.engine.train_job import train

        train(self._sample(), self.folder / "model", Config.preset("quick"))

    def _sample(self) -> Path:
        from ustad.engine.folder import Place

        data, sample = Place.of(self.at("data")), self.folder / "sample"
        sample.mkdir()
        stays = data.read_table("stays")
        agents = pc.unique(stays["agent_id"]).sort()
        chosen = agents.take(pa.array(np.linspace(0, len(agents) - 1, min(SAMPLE, len(agents))).astype(int)))
        for name in ("stays", "trips"):
            table = data.read_table(name)
            Place.of(sample).write_table(table.filter(pc.is_in(table["agent_id"], chosen)), f"{name}.parquet")
        data.bring(sample, ["meta.json"])
        return sample

    def _score(self, cluster: Any) -> Any:
        """A node dies when two partitions are measured, and its work goes to the others."""
        import ray

        from ustad.engine.folder import Place
        from ustad.engine.score_job import score

        place, over = Place.of(self.at("scores")), threading.Event()

        def lose_a_node() -> None:
            while len(place.names(".score-job/done/measure", ".json")) < 2:
                if over.wait(0.2):
                    return
            cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
            self.figures["node_lost_after_partitions"] = len(place.names(".score-job/done/measure", ".json"))

        killer = threading.Thread(target=lose_a_node, daemon=True)
        killer.start()
        summary = score(self.folder / "model", self.at("data"), self.at("scores"), partitions=PARTITIONS)
        over.set()
        killer.join(60)
        self.figures["nodes_left"] = sum(node["Alive"] for node in ray.nodes()) - 1
        return summary


# ---------------------------------------------------------------------------------------- beside one process
def compare(folder: Path, run: Run) -> dict[str, Any]:
    """The same scores by one process: the largest difference, and whether the alerts are the same."""
    from ustad.detector import Detector
    from ustad.engine.folder import Place

    place = Place.of(run.at("data"))
    if not place.local:
        data = folder / "copy"
        for name in ("stays", "trips"):
            (data / name).mkdir(parents=True)
            place.bring(data, [f"{name}/{info.base_name}" for info in place.files(name, ".parquet")])
        place.bring(data, ["meta.json"])
    else:
        data = place.path
    began, cpu = time.perf_counter(), time.process_time()
    scores = Detector.load(folder / "model", "cpu").score(data)
    local = {"seconds": round(time.perf_counter() - began, 2), "cpu_seconds": round(time.process_time() - cpu, 2)}
    theirs = Place.of(run.at("scores")).read_table("events").sort_by("stay_id")
    ours = scores.events.sort_by("stay_id")
    if ours["stay_id"].to_pylist() != theirs["stay_id"].to_pylist():
        raise SystemExit("other events were scored than by one process")
    worst = max(
        float(np.nanmax(np.abs(ours[name].to_numpy() - theirs[name].to_numpy()))) for name in ("score", "p_value")
    )
    same = ours["alert"].to_pylist() == theirs["alert"].to_pylist()
    return {
        "local_score": local,
        "worst_difference": worst,
        "same_alerts": same,
        "alerts": pc.sum(ours["alert"]).as_py(),
    }


def measure(agents: int, days: int, every: str, server: str | None, place: Path | None) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="ustad-million-", dir=place))
    try:
        if server is None:
            run = Run(folder, agents, days, every, None)
            return run.all_steps() | (compare(folder, run) if agents <= COMPARED else {})
        with s3_server(server) as s3:
            run = Run(folder, agents, days, every, s3)
            return run.all_steps() | compare(folder, run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--days", type=int, default=28)
    parser.add_argument("--every", default="10min", help="a fix so often")
    parser.add_argument("--s3-server", help="a program that serves S3")
    parser.add_argument("--work", type=Path, help="where files lie meanwhile")
    asked = parser.parse_args()
    result: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}
    result["machine"] = {**machine(), "nodes": NODES}
    sizes = [(agents, None) for agents in asked.agents]
    if asked.s3_server:
        sizes.append((min(asked.agents), asked.s3_server))
    for agents, server in sizes:
        figures = measure(agents, asked.days, asked.every, server, asked.work)
        result["runs"][f"{agents} {figures['storage']}"] = figures
        write_result(RESULTS, result)
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
