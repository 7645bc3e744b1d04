"""How long judging and showing a run of the paper's size takes: visit rate, figures with intervals, the report.

    python benchmarks/report.py                    20,000 agents, 3.4 M events of which the second half is scored
    python benchmarks/report.py --agents 2000

Made-up scores of the shape that scoring writes. Prints a table, writes benchmarks/results/report.json.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from measured import write_result
from ustad.dataset import Dataset, save_directory
from ustad.lab.baselines import make
from ustad.lab.evaluation.detection_metrics import evaluate
from ustad.page.report_file import write_report
from ustad.scores import Scores
from ustad.tables import TIMESTAMP

RESULTS = Path(__file__).parent / "results" / "report.json"
FIRST_MINUTE = 28_401_600  # 2024-01-01 in minutes since 1970
TERMS = ("start", "duration", "x", "y", "poi", "weekday")


def made_stays(agents: int, days: int, a_day: int = 3) -> pa.Table:
    """Stays of `a_day` equal parts of each day, at one of ten places."""
    g = np.random.default_rng(0)
    n = agents * days * a_day
    agent, day, slot = np.unravel_index(np.arange(n), (agents, days, a_day))
    length = 1440 // a_day
    start = (FIRST_MINUTE + day * 1440 + slot * length) * 60_000_000
    place = g.integers(0, 10, n) * g.integers(0, 2, n)
    return pa.table(
        {
            "stay_id": np.arange(n),
            "agent_id": agent,
            "started_at": pa.array(start).cast(TIMESTAMP),
            "finished_at": pa.array(start + (length - 30) * 60_000_000).cast(TIMESTAMP),
            "lat": 34 + agent % 100 / 200 + place / 100,
            "lon": -118 + agent // 100 % 100 / 200 + place / 100,
            "poi_id": agent * 10 + place,
            "poi_category": np.array([f"kind {i}" for i in range(10)])[place],
            "timezone": pa.array(["America/Los_Angeles"]).take(pa.array(np.zeros(n, np.int64))),
        }
    )


def made_scores(stays: pa.Table) -> pa.Table:
    """Random score columns under the names that scoring gives them."""
    g = np.random.default_rng(1)
    n = stays.num_rows
    columns: dict[str, Any] = {}
    for name in TERMS:
        for what in ("loss", "error", "au", "eu", "pct", "spread", "expected", "observed"):
            columns[f"{what}_{name}"] = g.random(n)
    words = stays["poi_category"]
    columns |= {"expected_poi": words, "observed_poi": words, "expected_weekday": words, "observed_weekday": words}
    columns |= {"expected_lat": stays["lat"], "expected_lon": stays["lon"], "knn": g.random(n), "pct_knn": g.random(n)}
    p = g.random(n)
    columns |= {"score": -np.log10(p), "p_value": p, "alert": p < 1e-4, "kind": np.full(n, "predictable")}
    columns["reason"] = pa.array(["Expected Home at 07:17; was at a shop 6.2 km away."]).take(pa.array((p > 0) * 0))
    for name, values in columns.items():
        stays = stays.append_column(name, values if isinstance(values, pa.ChunkedArray) else pa.array(values))
    return stays


def timed(work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Wall and processor seconds (the latter say what a quiet machine would take), and the result."""
    began, cpu = time.perf_counter(), time.process_time()
    result = work()
    spent = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    return {name: round(value, 2) for name, value in spent.items()}, result


def measure(agents: int, days: int, folder: Path) -> dict[str, Any]:
    """Seconds of each part, and the size of the report."""
    stays = made_stays(agents, days)
    day = (np.arange(stays.num_rows) // 3) % days
    train, test = stays.filter(pa.array(day < days // 2)), stays.filter(pa.array(day >= days // 2))
    seconds: dict[str, dict[str, float]] = {}
    seconds["visit rate, fit and score"], found = timed(lambda: make("visit-rate").fit(train).score(test))
    marked = pa.table({"stay_id": test["stay_id"].slice(0, 3000), "anomaly": np.ones(3000, bool)})
    seconds["figures with 200 bootstraps"], _ = timed(lambda: evaluate(found.events, found.agents, marked))
    events = made_scores(test)
    run = {"data": str(folder / "data"), "method": "made up", "rule": "p_value", "value": 1e-4, "threshold": 1e-4}
    Scores(events, found.agents, run).save(folder / "scores")
    save_directory(Dataset(stays), folder / "data")
    seconds["report, from Parquet"], page = timed(lambda: write_report(folder / "scores", folder / "report.html"))
    return {
        "agents": agents,
        "events": agents * days * 3,
        "scored": int((day >= days // 2).sum()),
        "seconds": seconds,
        "report_mb": round(page.stat().st_size / 1e6, 2),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--agents", type=int, default=20_000)
    options.add_argument("--days", type=int, default=56)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(chosen.agents, chosen.days, Path(folder))
    result["versions"] = {"python": platform.python_version(), "numpy": np.__version__, "pyarrow": pa.__version__}
    result["hardware"] = {"cores": os.cpu_count(), "cpu": _cpu()}
    print(f"{result['events']:,} events of {result['agents']:,} agents, {result['scored']:,} scored")
    for name, value in result["seconds"].items():
        print(f"{name:<32} {value['wall']:8.2f} s wall {value['cpu']:8.2f} s processor")
    print(f"{'size of the report':<32} {result['report_mb']:8.2f} MB")
    RESULTS.parent.mkdir(exist_ok=True)
    write_result(RESULTS, result)


if __name__ == "__main__":
    main()
