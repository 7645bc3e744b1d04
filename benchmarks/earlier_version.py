"""Detection by an earlier version and by this one, on the same people: from their true stays, and from their phones.

    git archive VERSION src | tar -x -C DIRECTORY
    python benchmarks/earlier_version.py --earlier DIRECTORY/src --device cuda --workers 5

Both versions train and score by their own verbs in processes of their own, each by its best preset; from GPS each
extracts stays from the same fixes itself, without being told anything. Cells are a city, a seed and a phone. AUROC and
AP of events and agents, and how many of the 14 most unusual are labelled. An earlier version without incidents takes
the highest score of an event and its neighbours for the event's own: compare that with the incidents of this one.
Labelled stays that an extraction misses count as found last. Seconds are of verbs that ran beside each other.
Writes benchmarks/results/earlier_version.json after every cell; cells that are there are not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from measured import write_result
from ustad.dataset import load_directory
from ustad.lab.evaluation.gps import compare_scores
from ustad.lab.evaluation.recordings import NEAR_M, TRUE_STAYS, carry_truth
from ustad.scores import Scores
from ustad.simulate import simulate

RESULTS = Path(__file__).parent / "results"
THIS = Path(__file__).parents[1] / "src"
CELLS = ("simla:2000", "simjordan:2000", "numosim-la:2000")


def run_verb(package: Path, *arguments: str) -> float:
    """Seconds that a verb of the version in `package` took."""
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "ustad", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"ustad {arguments[0]} failed with {done.returncode}:\n{done.stderr[-2000:]}")
    return round(time.monotonic() - began, 1)


def measure_version(package: Path, preset: str, town: Path, phone: str, device: str) -> dict[str, Any]:
    """Figures of one version on people that were simulated into `town`."""
    place, seconds = town / f"by-{preset}", {}
    data = town
    if phone != TRUE_STAYS:
        data = place / "data"
        zone, pois = load_directory(town).meta["timezone"], str(town / "pois.parquet")
        fixes = ("extract", str(town / "fixes"), "--timezone", zone, "--pois", pois)
        seconds["extract"] = run_verb(package, *fixes, "--out", str(data))
        carry_truth(town, data, NEAR_M[phone])
    model, scores = place / "model", place / "scores"
    train = ("train", str(data), "--preset", preset, "--device", device, "--out", str(model))
    seconds["train"] = run_verb(package, *train)
    score = ("score", str(model), str(data), "--device", device, "--out", str(scores))
    seconds["score"] = run_verb(package, *score)
    events, agents = (pq.read_table(scores / f"{name}.parquet") for name in ("events", "agents"))
    figures = compare_scores(load_directory(data), Scores(events, agents))
    if "incident_id" not in events.column_names:
        figures.pop("incidents", None)
    return {**figures, "seconds": seconds}


def measure_cell(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Both versions on one city of one seed, whose tables are deleted again."""
    city, people, seed, phone = name.split("|")
    town = options.cache / name.replace("|", "-").replace(" ", "-")
    how = {} if phone == TRUE_STAYS else {"phone": phone}
    try:
        simulate(city, int(people), int(seed), town, **how)
        versions = {"earlier": (options.earlier, options.preset), "this": (THIS, "best")}
        return {which: measure_version(*version, town, phone, options.device) for which, version in versions.items()}
    finally:
        shutil.rmtree(town, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--earlier", type=Path, required=True, help="where the earlier version's package lies")
    parser.add_argument("--preset", default="default", help="of the earlier version")
    parser.add_argument("--cache", type=Path, default=Path("runs/earlier_version"), help="where people are simulated")
    parser.add_argument("--cells", nargs="*", default=list(CELLS), help="CITY:PEOPLE or CITY:PEOPLE:PHONE")
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="cells at a time")
    parser.add_argument("--out", type=Path, default=RESULTS / "earlier_version.json")
    options = parser.parse_args()
    cells = json.loads(options.out.read_text())["cells"] if options.out.exists() else {}
    wanted = []
    for seed in options.seeds:
        for cell in options.cells:
            city, people, phone = [*cell.split(":"), TRUE_STAYS][:3]
            wanted.append(f"{city}|{people}|{seed}|{phone}")
    with ThreadPoolExecutor(options.workers) as pool:
        jobs = {pool.submit(measure_cell, name, options): name for name in wanted if name not in cells}
        for job in as_completed(jobs):
            cells[jobs[job]] = job.result()
            write_result(options.out, {"preset": options.preset, "device": options.device, "cells": cells})
            print(jobs[job], json.dumps(cells[jobs[job]]), flush=True)


if __name__ == "__main__":
    main()
