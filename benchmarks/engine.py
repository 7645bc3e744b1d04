"""What Ray costs on one machine: simulation, extraction and scoring of about a million events, beside local runs.

    python benchmarks/engine.py                     a million stays, ten million fixes
    python benchmarks/engine.py --events 100000     fewer

Every run is a process of its own with all cores of this machine. The start of the cluster is timed apart. CPU seconds
are those of the process and, on Ray, of its workers; memory is the peak of the largest worker. The model scores by
habits, so that what is measured is the engine and not a network. Writes benchmarks/results/engine.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measured import write_result

RESULTS = Path(__file__).parent / "results" / "engine.json"
STAYS_AN_AGENT = 168  # of the preset numosim-la over eight weeks
FIXES_AN_EVENT = 10
TINY = {
    "model.width": 16, "model.event_blocks": 1, "training.epochs": 1, "scoring.samples": 4, "scoring.neighbours": 10,
    "split.train_weeks": 1, "split.validation_weeks": 1,
}  # fmt: skip
VERBS = ("simulate", "extract", "score")


# ------------------------------------------------------------------------------------------------- one run
def work(verb: str, engine: str, folder: Path, events: int) -> dict[str, Any]:
    """One verb by one engine; what it made and how long it took."""
    out = folder / f"{verb}-{engine}"
    if verb == "simulate":
        from ustad.simulate import simulate as local

        if engine == "ray":
            from ustad.engine.simulate_job import simulate as local  # type: ignore[assignment]  # the same and an address
        meta = local("numosim-la", max(50, events // STAYS_AN_AGENT), 7, out, workers=os.cpu_count() or 1)
        return {"events": meta["events"]}
    if verb == "extract":
        if engine == "ray":
            from ustad.engine.extract_job import extract
        else:
            from ustad.mobility.extraction import extract  # type: ignore[assignment]  # the same without an address
        summary = extract(folder / "fixes", out, timezone="America/Los_Angeles")
        return {"events": summary.stays, "fixes": summary.fixes}
    if engine == "ray":
        from ustad.engine.score_job import score

        return {"events": score(folder / "model", folder / "data", out, everything=True).events}
    from ustad.detector import Detector

    scores = Detector.load(folder / "model", "cpu").score(folder / "data", everything=True)
    scores.save(out)
    return {"events": scores.events.num_rows if scores.events is not None else 0}


def child(verb: str, engine: str, folder: Path, events: int) -> dict[str, Any]:
    """Inside a process of its own: the run, its costs, and those of the workers."""
    began = time.perf_counter()
    if engine == "local":
        found = _timed(lambda: work(verb, engine, folder, events))
        return found | {"peak_mb": status_of(os.getpid(), "VmHWM"), "out_mb": size_of(folder / f"{verb}-{engine}")}
    from ustad.engine.cluster import connect

    with connect():
        start = time.perf_counter() - began
        found = _timed(lambda: work(verb, engine, folder, events))
        workers = [pid for pid in below(os.getpid()) if is_worker(name_of(pid))]
        found["cpu_seconds"] += sum(cpu_of(pid) for pid in workers)
        peaks = [status_of(pid, "VmHWM") for pid in workers]
        return found | {"start_seconds": start, "peak_mb": status_of(os.getpid(), "VmHWM"), "worker_mb": max(peaks)}


def size_of(folder: Path) -> float:
    """Megabytes of Parquet in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*.parquet")) / 1e6


def _timed(call: Any) -> dict[str, Any]:
    began, cpu = time.perf_counter(), time.process_time()
    found = call()
    return found | {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}


def below(ancestor: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, more = {ancestor}, True
    while more:
        new = {pid for pid, parent in parents.items() if parent in found} - found
        found, more = found | new, bool(new)
    return sorted(found - {ancestor})


def name_of(pid: int) -> str:
    return (Path("/proc") / str(pid) / "cmdline").read_bytes().decode(errors="replace")


def is_worker(name: str) -> bool:
    """Whether a process with this name does tasks; Ray's agents of a node begin alike and belong to its start."""
    return name.startswith("ray::") and not name.strip("\0 ").endswith("Agent")


def cpu_of(pid: int) -> float:
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status_of(pid: int, name: str) -> float:
    lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024, 1)


# ---------------------------------------------------------------------------------------------- all of them
def prepare(folder: Path, events: int) -> None:
    """Fixes in many files, and a small model."""
    sys.path.insert(0, str(Path(__file__).parent))
    import numpy as np
    import pyarrow as pa

    from extraction import FIXES_PER_AGENT, agent_fixes
    from ustad.config import Config
    from ustad.detector import Detector
    from ustad.files import write_table
    from ustad.simulate import simulate
    from ustad.tables import TIMESTAMP

    agents = max(10, events * FIXES_AN_EVENT // FIXES_PER_AGENT)
    for first in range(0, agents, 50):
        made = {a: agent_fixes(a) for a in range(first, min(first + 50, agents))}
        time_, lat, lon = (np.concatenate([m[i] for m in made.values()]) for i in range(3))
        agent = np.repeat(list(made), FIXES_PER_AGENT)
        table = pa.table({"agent_id": agent, "time": pa.array(time_, TIMESTAMP), "lat": lat, "lon": lon})
        write_table(table, folder / "fixes" / f"part-{first:06d}.parquet")
    simulate("numosim-la", 60, 3, folder / "small", days=21)
    Detector(Config.preset("quick").replace(TINY), device="cpu").fit(folder / "small").save(folder / "model")


def run(verb: str, engine: str, folder: Path, events: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", verb, engine, str(folder), "--events", str(events)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(os.cpu_count() if engine == "local" else 1)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{verb} {engine}: {done.stderr[-2000:]}")
    found = {k: round(v, 2) for k, v in json.loads(done.stdout.splitlines()[-1]).items()}
    found["load"] = round(os.getloadavg()[0], 2)
    print(f"{verb:<10}{engine:<7}{json.dumps(found)}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--verbs", nargs="*", default=VERBS, choices=VERBS)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        verb, engine, folder = arguments.child
        print(json.dumps(child(verb, engine, Path(folder), arguments.events)))
        return
    result: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}
    result |= {"cores": os.cpu_count(), "python": platform.python_version()}
    result["versions"] = {name: version(name) for name in ("ustad", "ray", "torch", "pyarrow", "numpy")}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, arguments.events)
        for verb in arguments.verbs:
            if verb == "score" and not (folder / "data").exists():
                source = folder / "simulate-local"
                if not source.exists():
                    work("simulate", "local", folder, arguments.events)
                shutil.copytree(source, folder / "data")
            pair = {engine: run(verb, engine, folder, arguments.events) for engine in ("local", "ray")}
            ratio = {f"ratio_{k}": round(pair["ray"][k] / pair["local"][k], 2) for k in ("seconds", "cpu_seconds")}
            result["runs"][verb] = {**pair, **ratio, "date": datetime.now(UTC).strftime("%Y-%m-%d")}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    write_result(RESULTS, result)
    print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
