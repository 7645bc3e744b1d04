"""How often normal people have small p-values by habits, for three ways of saying what normal events score.

    OMP_NUM_THREADS=1 python benchmarks/habit_p_values.py

Towns without anomalies. Half of the people calibrate, as in training. `groups` is the product's way: the reference's
events are judged by the terms and looks of other groups of people. `itself`: by those that they are part of.
`half way`: the mean of both scores. Judged are the validation days of the people who did not calibrate, with histories
of the training weeks alone, and the weeks after them of everybody, with histories of training and validation: shares of
p ≤ 0.05, 0.01 and 0.001 of events, with and without the neighbours' evidence, and of agents, together and by test,
mean ± standard deviation over the towns. Writes benchmarks/results/habit_p_values.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import ustad
from ustad import progress
from ustad.config import SplitConfig
from ustad.events.visits import read_visits
from ustad.habits.habit_model import HabitModel, Judged
from ustad.habits.history import Habits
from ustad.habits.reference import Groups
from ustad.schema import mobility_schema
from ustad.scoring.habit_judge import calibrating, p_values
from ustad.simulate import simulate_tables

RESULTS = Path(__file__).parent / "results"
LEVELS = (0.05, 0.01, 0.001)
FIRST_SEED = 201
SCHEMA = mobility_schema()


@dataclass(frozen=True)
class Kind:
    """A kind of town, and how many of it. `days` None: as many as the preset has."""

    preset: str
    people: int
    days: int | None
    towns: int


KINDS = (
    Kind("numosim-la", 30, None, 12),
    Kind("numosim-la", 100, None, 6),
    Kind("numosim-la", 400, None, 4),
    Kind("numosim-la", 300, 28, 8),
    Kind("town", 300, 28, 8),
    Kind("town", 300, 56, 6),
)

_groups = Groups.scores
WAYS: dict[str, Callable[..., np.ndarray]] = {
    "groups": _groups,
    "half way": lambda self, raw, weights, whole: (
        (_groups(self, raw, weights, whole) + whole.highest(raw, weights)) / 2
    ),
    "itself": lambda self, raw, weights, whole: whole.highest(raw, weights),
}


@contextmanager
def judging(way: str) -> Iterator[None]:
    """The reference judged in one of the ways."""
    Groups.scores = WAYS[way]  # type: ignore[method-assign]  # for a comparison
    try:
        yield
    finally:
        Groups.scores = _groups  # type: ignore[method-assign]  # put back


@dataclass(frozen=True)
class Town:
    train: pa.Table
    week: pa.Table
    later: pa.Table

    @classmethod
    def make(cls, kind: Kind, seed: int) -> Town:
        data = simulate_tables(kind.preset, agents=kind.people, seed=seed, days=kind.days, anomalous_share=0.0)
        split = data.split(SplitConfig())
        return cls(
            data.between(split.train_first, split.validation_first - 1),
            data.between(split.validation_first, split.test_first - 1),
            data.between(split.test_first, split.test_last),
        )


def shares(town: Town) -> dict[str, dict[str, list[float]]]:
    """By who and what is judged, the share of p-values up to each level."""
    half = calibrating(town.week, SCHEMA.entity)
    model = HabitModel.fit(town.train, town.week, SCHEMA, half)
    earlier = replace(model, habits=Habits.fit(read_visits(town.train, SCHEMA, model.frame)))
    before = pa.concat_tables([town.train, town.week])
    return {
        "validation days, other people": _small(earlier.judge(town.week.filter(pa.array(~half)))),
        "weeks after them": _small(model.judge(town.later, before)),
    }


def _small(judged: Judged) -> dict[str, list[float]]:
    found = {"events": judged.score, "events, spread none": judged.score, "agents": judged.agent_score}
    found |= {f"agents, test {name}": values for name, values in judged.agents.items()}
    return {what: [float((p_values(v) <= p).mean()) for p in LEVELS] for what, v in found.items()}


def measured(kind: Kind) -> dict[str, object]:
    runs: dict[str, list[dict[str, dict[str, list[float]]]]] = {way: [] for way in WAYS}
    for seed in range(FIRST_SEED, FIRST_SEED + kind.towns):
        town = Town.make(kind, seed)
        for way, found in runs.items():
            with judging(way):
                found.append(shares(town))
    return {**asdict(kind), "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    progress.disable()
    found = []
    for kind in KINDS:
        found.append(measured(kind))
        print(kind, flush=True)
    content = {"levels": LEVELS, "kinds": found, "version": ustad.__version__}
    (options.out / "habit_p_values.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
