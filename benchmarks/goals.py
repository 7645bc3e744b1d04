"""The goals at their size: 2,000 people, five reported seeds, by `quick` or by `best`.

    OMP_NUM_THREADS=1 python benchmarks/goals.py --cache DIRECTORY
    python benchmarks/goals.py --cache DIRECTORY --preset best --device cuda --workers 5

Each simulated city twice: with as many anomalous people as its preset has (the goals of events and agents), and with
one in ten (precision of the first five incidents a day per 1,000 people, and each kind of anomaly). With so few
anomalous people as a preset has, that many incidents cannot be true: `most` is what a perfect order would have.
Results are written after every city, and cities that are there already are not measured again.
Writes benchmarks/results/goals.json (goals_best.json); the tables are in docs/evidence/habits.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from measured import write_result
from questions import ANOMALOUS, label_every_stay, measure_scores
from ustad import Detector, progress
from ustad.lab.evaluation.recordings import TRUE_STAYS, open_recording

RESULTS = Path(__file__).parent / "results"
CITIES = ("simla", "simjordan", "numosim-la")
SEEDS = (1, 2, 3, 4, 5)
PEOPLE = 2000


def measure_city(city: str, seed: int, share: float | None, options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Name and figures of one city. Its tables are deleted again: they are large, and a seed makes them anew."""
    progress.disable()
    label_every_stay()
    began = time.monotonic()
    place = options.cache / f"{city}-{seed}-{share}-{options.phone.replace(' ', '-')}"
    changes = {} if share is None else {"anomalous_share": share}
    try:
        data = open_recording(city, place, options.phone, options.people, seed=seed, **changes)
        simulated = time.monotonic()
        detector = Detector(options.preset, options.device).fit(data)
        trained = time.monotonic()
        scores = detector.score(data, reasons="none")
        split = detector.scored_days(data)
        assert split is not None
        figures = measure_scores(data, scores.events, scores.agents, split.test_last - split.test_first + 1)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    seconds = {"simulate": simulated - began, "train": trained - simulated, "score": time.monotonic() - trained}
    name = f"{city}|{seed}|{share or 'preset'}|{options.phone}"
    return name, {**figures, "seconds": {verb: round(spent) for verb, spent in seconds.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="where cities are simulated")
    parser.add_argument("--cities", nargs="*", default=list(CITIES))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    parser.add_argument("--shares", nargs="*", choices=("preset", "tenth"), default=["preset", "tenth"])
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--phone", default=TRUE_STAYS)
    parser.add_argument("--preset", default="quick", choices=("quick", "best"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="cities at a time")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or RESULTS / ("goals.json" if options.preset == "quick" else f"goals_{options.preset}.json")
    results: dict[str, Any] = {"people": options.people, "preset": options.preset, "cells": {}}
    if out.exists():
        results = json.loads(out.read_text())
    shares = {"preset": None, "tenth": ANOMALOUS}
    wanted = [(c, s, shares[share]) for s in options.seeds for share in options.shares for c in options.cities]
    wanted = [w for w in wanted if f"{w[0]}|{w[1]}|{w[2] or 'preset'}|{options.phone}" not in results["cells"]]
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        for done in as_completed([pool.submit(measure_city, *one, options) for one in wanted]):
            cell, figures = done.result()
            results["cells"][cell] = figures
            write_result(out, results)
            print(cell, json.dumps(figures), flush=True)
    write_result(out, results)


if __name__ == "__main__":
    main()
