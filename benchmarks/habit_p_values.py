"""How often people who did not calibrate have small p-values by habits, and how often if the reference judged itself.

    OMP_NUM_THREADS=1 python benchmarks/habit_p_values.py

Towns of numosim-la without anomalies. Half of the people calibrate, as in training; the validation week of the other
half is judged, with histories of the same training weeks: shares of p ≤ 0.05, 0.01 and 0.001 of their events, with and
without the neighbours' evidence, and of the agents' test of peaks, mean ± standard deviation over the towns. Writes
benchmarks/results/habit_p_values.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import ustad
from ustad import progress
from ustad.config import SplitConfig
from ustad.events.habits import Habits
from ustad.events.visits import read_visits
from ustad.schema import mobility_schema
from ustad.scoring.default_score import calibrating, p_values
from ustad.scoring.habit_model import HabitModel
from ustad.scoring.habit_reference import Groups
from ustad.simulate import simulate_tables

RESULTS = Path(__file__).parent / "results"
LEVELS = (0.05, 0.01, 0.001)
#: People of a town → how many towns.
TOWNS = {30: 12, 100: 6, 400: 2}
FIRST_SEED = 201
SCHEMA = mobility_schema()


@contextmanager
def judging_itself() -> Iterator[None]:
    """The reference judged by terms and looks that it is part of, as it was before there were groups."""
    own = Groups.scores
    Groups.scores = lambda self, raw, weights, whole: whole.highest(raw, weights)  # type: ignore[method-assign]  # for a comparison
    try:
        yield
    finally:
        Groups.scores = own  # type: ignore[method-assign]  # put back


def town(people: int, seed: int) -> tuple[pa.Table, pa.Table]:
    data = simulate_tables("numosim-la", agents=people, seed=seed, anomalous_share=0.0)
    split = data.split(SplitConfig())
    return (
        data.between(split.train_first, split.validation_first - 1),
        data.between(split.validation_first, split.test_first - 1),
    )


def shares(train: pa.Table, week: pa.Table) -> tuple[dict[str, list[float]], float]:
    """By what is judged, the share of p-values up to each level; seconds of processor time of the fit."""
    half = calibrating(week, SCHEMA.entity)
    began = time.process_time()
    model = HabitModel.fit(train, week, SCHEMA, half)
    seconds = time.process_time() - began
    alone = replace(model, habits=Habits.fit(read_visits(train, SCHEMA, model.frame)))
    judged = alone.judge(week.filter(pa.array(~half)))
    found = {"events": judged.score, "events, spread none": judged.alone, "agents, test top": judged.agents["top"]}
    return {what: [float((p_values(v) <= p).mean()) for p in LEVELS] for what, v in found.items()}, seconds


def measured(people: int, towns: int) -> dict[str, object]:
    runs: dict[str, list[dict[str, list[float]]]] = {"groups": [], "itself": []}
    took: dict[str, list[float]] = {"groups": [], "itself": []}
    for seed in range(FIRST_SEED, FIRST_SEED + towns):
        data = town(people, seed)
        for way in runs:
            if way == "groups":
                found, seconds = shares(*data)
            else:
                with judging_itself():
                    found, seconds = shares(*data)
            runs[way].append(found)
            took[way].append(seconds)
    return {"runs": runs, "fit_cpu_s": {way: float(np.median(v)) for way, v in took.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    progress.disable()
    found = {}
    for people, towns in TOWNS.items():
        found[people] = measured(people, towns)
        print(people, json.dumps(found[people]["fit_cpu_s"]), flush=True)
    content = {"levels": LEVELS, "towns": TOWNS, "people": found, "version": ustad.__version__}
    (options.out / "habit_p_values.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
