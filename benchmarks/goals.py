"""The goals at their size: 2,000 people, five reported seeds, habits alone (as `quick`).

    OMP_NUM_THREADS=1 python benchmarks/goals.py --cache DIRECTORY

Each simulated city twice: with as many anomalous people as its preset has (the goals of events and agents), and with
one in ten (precision of the first five incidents a day per 1,000 people, and each kind of anomaly). With so few
anomalous people as a preset has, that many incidents cannot be true: `most` is what a perfect order would have.
Results are written after every city, and cities that are there already are not measured again.
Writes benchmarks/results/goals.json; the tables are in docs/evidence/habits.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

from measured import write_result
from questions import ANOMALOUS, label_every_stay, measure
from ustad import progress
from ustad.lab.evaluation.recordings import TRUE_STAYS, open_recording

RESULTS = Path(__file__).parent / "results" / "goals.json"
CITIES = ("simla", "simjordan", "numosim-la")
SEEDS = (1, 2, 3, 4, 5)
PEOPLE = 2000


def measure_city(city: str, seed: int, share: float | None, phone: str, people: int, cache: Path) -> dict[str, Any]:
    """Figures of one city. Its tables are deleted again: they are large, and a seed makes them anew."""
    began = time.monotonic()
    place = cache / f"{city}-{seed}-{share}-{phone.replace(' ', '-')}"
    options = {} if share is None else {"anomalous_share": share}
    try:
        figures = measure(open_recording(city, place, phone, people, seed=seed, **options), ())
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return {**figures, "seconds": round(time.monotonic() - began)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="where cities are simulated")
    parser.add_argument("--cities", nargs="*", default=list(CITIES))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--phone", default=TRUE_STAYS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    progress.disable()
    label_every_stay()
    results: dict[str, Any] = {"people": options.people, "cells": {}}
    if options.out.exists():
        results = json.loads(options.out.read_text())
    for seed in options.seeds:
        for city in options.cities:
            for share in (None, ANOMALOUS):
                cell = f"{city}|{seed}|{share or 'preset'}|{options.phone}"
                if cell in results["cells"]:
                    continue
                figures = measure_city(city, seed, share, options.phone, options.people, options.cache)
                results["cells"][cell] = figures
                write_result(options.out, results)
                print(cell, json.dumps(figures), flush=True)
    write_result(options.out, results)


if __name__ == "__main__":
    main()
