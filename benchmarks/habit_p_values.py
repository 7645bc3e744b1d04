"""Do p-values by habits keep their word, and do five alerts a day come as five?

    OMP_NUM_THREADS=1 python benchmarks/habit_p_values.py

Towns without anomalies, development seeds. Half of the people calibrate (three quarters under `best`); judged are the
test weeks of the others, who were held back; under `best` they stopped the network's training. Shares of p ≤ 0.05,
0.01 and 0.001 of events, of incidents (those whose leading event is so rare, of as many as the model expects), of
absences (the question `elsewhere`), of missed visits (of those that were nearly certain, as in absences.parquet) and
of agents, each as a multiple of the level, all people of the towns together. `five`: how many a day there are where
five are asked for; of incidents as `ustad serve` sets the threshold, of agents how many there are in the weeks where
five are expected. Mean, lowest and highest town, the share of towns with four to six, and the share that counting
alone would leave there: were five a day exactly what is expected, and had the week that calibrates shown exactly what
is rare, a town would still have as many as a Poisson number says. Public holidays are told where a kind says so, as
by `--calendar`. Kinds of `best` train its network on this machine.
Writes benchmarks/results/habit_p_values.json; with `--only best` the rows of that kind alone are measured anew.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import poisson

import ustad
from measured import write_result
from ustad import progress
from ustad.clock import day_number
from ustad.config import Config, SplitConfig
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.judges import learn_from
from ustad.lab.evaluation.recordings import TRUE_STAYS, open_recording
from ustad.lessons import STOPPING, calibrating, take_whole_week
from ustad.schema import mobility_schema
from ustad.scoring.adding_judge import AddingJudge, p_values
from ustad.scoring.incidents import find_incidents, leading_share, threshold_for
from ustad.scoring.looks import minus_log10_p
from ustad.simulate import simulate_tables
from ustad.simulate.presets import get_preset
from ustad.tables import agent_codes, identity_hash

RESULTS = Path(__file__).parent / "results"
LEVELS = (0.05, 0.01, 0.001)
FIVE = 5
FIRST_SEED = 201
SCHEMA = mobility_schema()


@dataclass(frozen=True)
class Kind:
    """A kind of town: how many people calibrate (as many are judged), how they are recorded, and how many towns."""

    preset: str
    people: int
    towns: int
    phone: str = TRUE_STAYS
    days: int | None = None
    told: bool = False  # whether public holidays are known
    by: str = "quick"  # the preset of the configuration

    def make(self, seed: int) -> Dataset:
        if self.phone == TRUE_STAYS:
            return simulate_tables(self.preset, agents=2 * self.people, seed=seed, days=self.days, anomalous_share=0.0)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "town"
            return open_recording(self.preset, place, self.phone, 2 * self.people, seed=seed, anomalous_share=0.0)


KINDS = (
    Kind("town", 150, 20),
    Kind("town", 50, 20),
    Kind("town", 500, 20),
    Kind("town", 150, 20, days=56),
    Kind("town", 150, 20, told=True),
    Kind("numosim-la", 150, 6),
    Kind("numosim-la", 150, 6, told=True),
    Kind("simla", 150, 6),
    Kind("simla", 150, 6, told=True),
    Kind("town", 150, 4, "phone"),
    Kind("town", 150, 4, "logger"),
    Kind("town", 150, 3, by="best"),
)


def learn(kind: Kind, data: Dataset, train: pa.Table, week: pa.Table) -> AddingJudge:
    """The judge of a kind of town; half of the people calibrate."""
    if kind.by != "quick":
        judge = Detector(Config.preset(kind.by), "cpu").fit(data).judge
        assert isinstance(judge, AddingJudge)
        return judge
    holidays = get_preset(kind.preset).holidays if kind.told else ()
    days_off = tuple(day_number(day.isoformat()) for day in holidays)
    train, week = take_whole_week(train, week, SCHEMA)
    return learn_from(train, week, SCHEMA, calibrating(week, SCHEMA.entity), days_off=days_off)


def count_small(kind: Kind, data: Dataset) -> dict[str, Any]:
    """Of one town: how many p-values up to each level, of how many; and what five a day come to."""
    split = data.split(SplitConfig())
    train = data.between(split.train_first, split.validation_first - 1)
    week = data.between(split.validation_first, split.test_first - 1)
    test = data.between(split.test_first, split.test_last)
    model = learn(kind, data, train, week)
    codes, people = agent_codes(test[SCHEMA.entity])
    held_back = identity_hash(people) % np.uint64(2 if kind.by == "quick" else STOPPING) == 0
    test = test.filter(pa.array(held_back[codes]))
    judged = model.judge(test, pa.concat_tables([train, week]))
    p_value, agents = p_values(judged.score), p_values(judged.agent_score)
    leads = ~find_incidents(test, SCHEMA, p_value, judged.score).echo
    days, n = split.test_last - split.test_first + 1, len(p_value)
    rare = FIVE * days / n
    counts, facts = model.counts, judged.answers[0].facts
    missed = p_values(judged.surprise["elsewhere"])
    visits = p_values(minus_log10_p(model.beside["absences"], facts.expected.surprise))
    small = {"events": p_value, "incidents": p_value[leads], "absences": missed, "missed visits": visits}
    small["agents"] = agents
    small |= {f"agents by {name}": p_values(values) for name, values in judged.agents.items()}
    of = {name: [float(n if name in ("events", "absences") else len(agents))] * len(LEVELS) for name in small}
    of["missed visits"] = [float(len(visits))] * len(LEVELS)
    of["incidents"] = [n * leading_share(level, counts) for level in LEVELS]
    return {
        "days": days,
        "of": of,
        "small": {name: [int((values <= level).sum()) for level in LEVELS] for name, values in small.items()},
        "five": {
            "events": float((p_value <= rare).sum() / days),
            "incidents": float((p_value[leads] <= threshold_for(rare, counts)).sum() / days),
            "agents": int((agents <= FIVE / len(agents)).sum()),
        },
    }


def measure_town(kind: Kind, seed: int) -> dict[str, Any]:
    progress.disable()
    return count_small(kind, kind.make(seed))


def summarise(kind: Kind, towns: list[dict[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {**asdict(kind), "multiples": {}, "five": {}}
    for name in towns[0]["of"]:
        of, small = (np.sum([town[what][name] for town in towns], axis=0) for what in ("of", "small"))
        result["multiples"][name] = (small / np.array(LEVELS) / of).tolist()
    for name in towns[0]["five"]:
        five = np.array([town["five"][name] for town in towns])
        within = (five >= FIVE - 1) & (five <= FIVE + 1)
        perfect = share_within(1 if name == "agents" else towns[0]["days"])
        figures = (five.mean(), five.min(), five.max(), within.mean(), perfect, five.std(ddof=1) / np.sqrt(len(five)))
        result["five"][name] = [float(value) for value in figures]
    return result


def share_within(days: int) -> float:
    """How often a Poisson number of which five a day are expected is four to six a day."""
    low, high = (FIVE - 1) * days, (FIVE + 1) * days
    return float(poisson.cdf(high, FIVE * days) - poisson.cdf(low - 1, FIVE * days))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--only", choices=["quick", "best"], help="kinds of this preset; others stay as they were")
    options = parser.parse_args()
    path = options.out / "habit_p_values.json"
    stored = json.loads(path.read_text())["kinds"] if options.only else []
    kinds = [kind for kind in stored if kind.get("by", "quick") != options.only]
    chosen = [kind for kind in KINDS if options.only in (None, kind.by)]
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        towns = {kind: [pool.submit(measure_town, kind, FIRST_SEED + i) for i in range(kind.towns)] for kind in chosen}
        for kind, futures in towns.items():
            kinds.append(summarise(kind, [future.result() for future in futures]))
            print(json.dumps(kinds[-1]), flush=True)
    content = {"levels": LEVELS, "kinds": kinds, "version": ustad.__version__}
    write_result(path, content)


if __name__ == "__main__":
    main()
