"""How fast stays are extracted: beside trackintel in one run, at growing sizes, and on the Atlanta simulation.

    python benchmarks/extraction.py                      2 M fixes beside trackintel, then 1 M … 10 M
    python benchmarks/extraction.py --sizes 1 10 100     millions of fixes for cost and memory by size
    python benchmarks/extraction.py --data FOLDER        where pol_atl_*.parquet lie, to add them
    python benchmarks/extraction.py --profiles           only how right the stays of each phone are, ten towns

Each extraction runs in a process of its own, Parquet to Parquet; the time excludes the start of the process and
compilation (a small extraction goes first), the peak memory includes everything. Cost is judged by processor time,
which other work on the machine changes least; `system_seconds` is the part of it that the kernel took, for memory and
files. 100 M fixes need 4 GB of memory, 8 GB of disk in the folder for temporary files, and some minutes. Prints a
table, writes benchmarks/results/extraction.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from measured import write_result

RESULTS = Path(__file__).parent / "results" / "extraction.json"
START = 1_704_067_200_000_000
FIXES_PER_AGENT = 10_000
CHILD = """
import json, os, sys, time
from ustad.mobility.extraction import extract
warm, source, out, how = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
extract(warm, out + "/warm", timezone="UTC")
began, cpu = time.perf_counter(), os.times()
summary = extract(source, out + "/run", **how)
seconds, after = time.perf_counter() - began, os.times()
system = after.system - cpu.system
cpu = after.user - cpu.user + system
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1e6
print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "system_seconds": system, "peak_gb": peak,
                  "fixes": summary.fixes, "stays": summary.stays, "trips": summary.trips}))
"""


def agent_fixes(agent: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, latitudes and longitudes of one agent: a week at one fix a minute, with 10 m of noise."""
    rng = np.random.default_rng(agent)
    clock = np.arange(FIXES_PER_AGENT) * 60.0 + rng.uniform(0, 20, FIXES_PER_AGENT)
    visits = 60
    sites = rng.normal(0, 4000, (8, 2))[rng.integers(0, 8, visits)]
    stay, way = rng.gamma(2.0, 5000.0, visits), rng.uniform(600, 2400, visits)
    arrive = np.cumsum(np.r_[0.0, (stay + way)[:-1]])
    knots = np.stack([arrive, arrive + stay], axis=1).ravel()
    xy = [np.interp(clock, knots, np.repeat(sites[:, i], 2)) + rng.normal(0, 10, len(clock)) for i in (0, 1)]
    return START + (clock * 1e6).astype(np.int64), 34.05 + xy[1] / 111_195, -118.25 + xy[0] / 92_000


def write_fixes(path: Path, fixes: int) -> None:
    """A Parquet file of simulated fixes, by agent and time."""
    agents = max(1, fixes // FIXES_PER_AGENT)
    schema = pa.schema(
        [("agent_id", pa.int64()), ("time", pa.timestamp("us", tz="UTC")), ("lat", pa.float64()), ("lon", pa.float64())]
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for first in range(0, agents, 100):
            block = [(a, *agent_fixes(a)) for a in range(first, min(first + 100, agents))]
            agent = np.repeat([b[0] for b in block], FIXES_PER_AGENT)
            time_, lat, lon = (np.concatenate([b[i] for b in block]) for i in (1, 2, 3))
            writer.write_table(pa.table([pa.array(agent), pa.array(time_, schema[1].type), lat, lon], schema=schema))


def run_ours(source: list[Path], folder: Path, how: dict[str, str]) -> dict[str, float]:
    warm = folder / "warm.parquet"
    if not warm.exists():
        write_fixes(warm, FIXES_PER_AGENT)
    sources, options = json.dumps([str(s) for s in source]), json.dumps(how)
    command = [sys.executable, "-c", CHILD, str(warm), sources, str(folder), options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def run_trackintel(path: Path) -> dict[str, float]:
    """`generate_staypoints` alone: reading and building its frame are not counted."""
    import geopandas as gpd
    import trackintel as ti

    frame = pq.read_table(path).to_pandas()
    points = gpd.GeoDataFrame(
        {"user_id": frame.agent_id, "tracked_at": frame.time},
        geometry=gpd.points_from_xy(frame.lon, frame.lat),
        crs="EPSG:4326",
    ).rename_geometry("geom")
    positions = ti.Positionfixes(points)
    began, cpu = time.perf_counter(), time.process_time()
    _, stays = positions.generate_staypoints(
        method="sliding", dist_threshold=100, time_threshold=5.0, gap_threshold=60.0, include_last=True
    )
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"seconds": seconds, "cpu_seconds": cpu, "fixes": len(frame), "stays": len(stays)}


def hardware() -> dict[str, object]:
    names = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in names if line.startswith("model name")), platform.processor())
    return {"cpu": model, "cores": os.cpu_count(), "load_before": round(os.getloadavg()[0], 2)}


def versions() -> dict[str, str]:
    from importlib.metadata import version

    packages = ("ustad", "numpy", "pyarrow", "numba", "trackintel", "geopandas")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def show(name: str, row: dict[str, float]) -> None:
    rate = row["fixes"] / row["seconds"]
    memory = f"{row['peak_gb']:6.2f} GB" if "peak_gb" in row else ""
    cost = f"{row['seconds']:>10.2f} s ({row['cpu_seconds']:.2f} s of CPU)"
    each = f"{row['cpu_seconds'] / row['fixes'] * 1e6:6.2f} µs"
    print(f"{name:<34}{row['fixes']:>13,}{cost:>34}{each}{rate:>12,.0f} fixes/s {memory}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="*", default=[1, 10], help="millions of fixes")
    parser.add_argument("--beside", type=float, default=2.0, help="millions of fixes beside trackintel; 0: leave out")
    parser.add_argument("--data", type=Path, help="folder of pol_atl_gps_*.parquet")
    parser.add_argument("--keep", action="store_true", help="keep earlier figures of other sizes in the result file")
    parser.add_argument("--profiles", action="store_true", help="measure stays by phone, no speed; keeps the rest")
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(1, 11)), help="towns for --profiles")
    parser.add_argument("--agents", type=int, default=300, help="of a town for --profiles")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.profiles:
        known = json.loads(RESULTS.read_text())
        write(known | {"profiles": measure_profiles(arguments.seeds, arguments.agents)}, arguments.out)
        return
    result = json.loads(RESULTS.read_text()) if arguments.keep and RESULTS.exists() else {"sizes": {}}
    result |= {"hardware": hardware(), "versions": versions()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.beside:
            result["beside_trackintel"] = beside(folder, round(arguments.beside * 1e6))
        for size in arguments.sizes:
            path = folder / "sized.parquet"
            write_fixes(path, round(size * 1e6))
            row = run_ours([path], folder, {"timezone": "America/Los_Angeles"})
            result["sizes"][f"{size:g} M"] = row
            show(f"ustad, {size:g} M", row)
        if arguments.data:
            files = [arguments.data / f"pol_atl_gps_{part}.parquet" for part in ("train", "test")]
            result["pol_atl"] = run_ours(files, folder, {"timezone": "America/New_York", "times": "local"})
            show("ustad, pol_atl", result["pol_atl"])
    if RESULTS.exists() and "profiles" in (known := json.loads(RESULTS.read_text())):
        result["profiles"] = known["profiles"]
    write(result, arguments.out)


def write(result: dict[str, object], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_result(path, result)
    print(f"written to {path}")


def measure_profiles(seeds: list[int], agents: int) -> dict[str, object]:
    """Pieces, errors of starts and ends, and places of the stays of each phone: one entry per town."""
    from ustad.lab.evaluation.recordings import record_people
    from ustad.simulate.phones import PHONES

    found: dict[str, list[dict[str, object]]] = {phone: [] for phone in PHONES}
    for seed in seeds:
        for phone, rows in found.items():
            with tempfile.TemporaryDirectory() as folder:
                rows.append({"seed": seed, **record_people("town", Path(folder) / "data", phone, agents, seed=seed)})
            row = rows[-1]
            print(f"seed {seed} {phone:<8}" + ", ".join(f"{k} {v:.3f}" for k, v in row.items() if isinstance(v, float)))
    return {"agents": agents, "towns": found}


def beside(folder: Path, fixes: int) -> dict[str, object]:
    """Ours, Parquet to Parquet, twice around trackintel's `generate_staypoints`; the ratio takes our mean."""
    path = folder / "beside.parquet"
    write_fixes(path, fixes)
    how = {"timezone": "America/Los_Angeles"}
    before = run_ours([path], folder, how)
    theirs = run_trackintel(path)
    after = run_ours([path], folder, how)
    show("ustad, Parquet to Parquet", before)
    show("trackintel, generate_staypoints", theirs)
    show("ustad again", after)
    ratio = theirs["seconds"] / ((before["seconds"] + after["seconds"]) / 2)
    cpu = theirs["cpu_seconds"] / ((before["cpu_seconds"] + after["cpu_seconds"]) / 2)
    print(f"ustad is {ratio:.0f} times as fast ({cpu:.0f} times by CPU time)")
    return {"ustad": [before, after], "trackintel": theirs, "ratio": ratio, "ratio_cpu": cpu}


if __name__ == "__main__":
    main()
