"""How fast the simulation is, how much memory it takes, and how hard its anomalies are to find.

    python benchmarks/simulation.py                       stays at 1,000 … 20,000 agents, paths, fixes, difficulty
    python benchmarks/simulation.py --sizes 1000 200000   other numbers of agents
    python benchmarks/simulation.py --only difficulty     one section: speed, paths, fixes or difficulty

Every timed run is a process of its own that compiles on a small town first and then writes a data directory; the peak
memory includes everything. Prints a table, writes benchmarks/results/simulation.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from measured import write_result

RESULTS = Path(__file__).parent / "results" / "simulation.json"
CHILD = """
import json, sys, time
from pathlib import Path
from ustad.simulate import simulate
out, how = Path(sys.argv[1]), json.loads(sys.argv[2])
simulate("town", 20, 1, out / "warm", fixes="600s", days=4)
began = time.perf_counter()
meta = simulate("numosim-la", how.pop("agents"), 7, out / "run", workers=2, **how)
seconds = time.perf_counter() - began
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1e6
size = sum(f.stat().st_size for f in (out / "run").rglob("*.parquet")) / 1e9
print(json.dumps({"seconds": seconds, "peak_gb": peak, "size_gb": size, "agents": meta["agents"],
                  "stays": meta["events"], "anomalous_agents": meta["anomalous_agents"],
                  "anomalous_stays": meta["anomalous_events"]}))
"""
LIMITS = {"stays of 20,000 agents": 180, "with paths": 780, "fixes of 1,000 agents": 600}


def run(**how: Any) -> dict[str, Any]:
    """One simulation in a process of its own."""
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, out, json.dumps(how)], check=True, capture_output=True, text=True
        )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{json.dumps(how):<50} {result['seconds']:7.1f} s {result['stays']:>11,} stays "
        f"{result['peak_gb']:5.2f} GB memory {result['size_gb']:6.2f} GB on disk",
        flush=True,
    )
    return result


def speed(sizes: list[int]) -> dict[str, Any]:
    """Stays with travel times, and what one more agent costs."""
    runs = [run(agents=size) for size in sizes]
    cost = [1000 * (b["seconds"] - a["seconds"]) / (b["agents"] - a["agents"]) for a, b in pairwise(runs)]
    print("milliseconds per further agent: " + ", ".join(f"{c:.2f}" for c in cost))
    return {"runs": runs, "ms_per_further_agent": cost}


def difficulty(seeds: int, agents: int = 2_000, share: float = 0.1) -> dict[str, Any]:
    """Visit rate on every variant of numosim-la, mean and spread over seeds."""
    from realism_figures import measure_visit_rate
    from ustad.simulate import VARIANTS, simulate_tables

    found = {}
    for variant in VARIANTS:
        towns = (
            simulate_tables("numosim-la", agents, seed, variant=variant, anomalous_share=share)
            for seed in range(100, 100 + seeds)
        )
        figures = [measure_visit_rate(town) for town in towns]
        names, rows = tuple(figures[0]), [tuple(one.values()) for one in figures]
        mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1)
        found[variant] = {name: [float(m), float(s)] for name, m, s in zip(names, mean, spread, strict=True)}
        shown = "  ".join(f"{name} {m:.3f} ± {s:.3f}" for name, m, s in zip(names, mean, spread, strict=True))
        print(f"visit rate, {variant:<11} {shown}", flush=True)
    return {"agents": agents, "anomalous_share": share, "seeds": seeds, "visit_rate": found}


def machine() -> dict[str, Any]:
    """Where this was measured, and with what."""
    import numba
    import pyarrow
    import scipy

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    versions = {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__}
    return {"cpu": cpu, "cores": os.cpu_count(), **versions, "scipy": scipy.__version__, "pyarrow": pyarrow.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]  # it has one
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 5_000, 20_000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=["speed", "paths", "fixes", "difficulty"])
    options = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if "speed" in options.only:
        known["speed"] = speed(options.sizes)
    if "paths" in options.only:
        known["paths"] = run(agents=20_000, paths=True)
    if "fixes" in options.only:
        known["fixes"] = run(agents=1_000, fixes="60s")
    if "difficulty" in options.only:
        known["difficulty"] = difficulty(options.seeds)
    known |= {"machine": machine(), "limits_s": LIMITS}
    RESULTS.parent.mkdir(exist_ok=True)
    known["machine"]["load"] = round(os.getloadavg()[0], 2)
    write_result(RESULTS, known)


if __name__ == "__main__":
    main()
