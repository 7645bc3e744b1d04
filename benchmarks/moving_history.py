"""How scores by habits hold over months, with histories that move on and with those that stay as trained.

    OMP_NUM_THREADS=1 python benchmarks/moving_history.py [--agents 300] [--seeds 3]

Simulated numosim-la of twenty weeks, in a zone without daylight saving so that it may be that long; one in ten agents
is anomalous at some time. Learnt from the first four weeks, without the memory network; each of the four blocks of
four weeks after them is scored with all that came before as context, as one who scores once a month does. One in five
normal workers has another workplace from the fifth week on. By `scoring.absorb_after` and block: AUROC and average
precision of events and agents, for anomalies that began at most four weeks before and for those that have gone on for
longer; the share of normal events and agents with p ≤ 0.01, and the same of the stays at a new workplace. Then some
agents live, one event at a time: events a second and milliseconds to write an agent's state, by processor time, and its
bytes after weeks. Writes benchmarks/results/moving_history.json.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import ustad
from default_data import Parts, divide
from measured import write_result
from ustad import progress
from ustad.dataset import event_days
from ustad.judges import learn_from
from ustad.lab.evaluation.detection_metrics import auroc, average_precision
from ustad.lessons import calibrating
from ustad.live.habit_live import HabitLive
from ustad.schema import mobility_schema
from ustad.scoring.adding_judge import AddingJudge, p_values
from ustad.simulate.presets import get_preset
from ustad.simulate.setting import prepare
from ustad.simulate.simulation import in_memory

RESULTS = Path(__file__).parent / "results"
FIRST_SEED = 301
WEEKS, KNOWN_WEEKS, BLOCK_WEEKS = 20, 4, 4
CHOICES = (0, 14, 28, 56)
ANOMALOUS, CHANGED = 0.1, 5  # share of agents; one in so many normal workers changes jobs
ZONE, SMALL = "America/Phoenix", 0.01
LIVE_AGENTS, LIVE_WEEKS = 10, (3, 12, 16)
LASTING = 28  # days after which an anomaly has gone on for long
SCHEMA = mobility_schema()
WORK = ("office", "factory")


@dataclass(frozen=True)
class Town:
    """Twenty weeks of a town: what is learnt from, what follows, and who changed jobs."""

    parts: Parts
    day: np.ndarray  # int64 by row of the test part, counted from its first
    new_work: np.ndarray  # bool by row: a stay at the new workplace of somebody normal
    age: np.ndarray  # int64 by row: days since its agent's first anomalous stay, where it is anomalous; else -1

    @classmethod
    def make(cls, agents: int, seed: int) -> Town:
        days = 7 * WEEKS
        plan = replace(
            get_preset("numosim-la", "standard"),
            timezone=ZONE, days=days, test_day=7 * KNOWN_WEEKS, anomalous_share=ANOMALOUS,
        )  # fmt: skip
        parts = divide(in_memory(prepare(plan, agents, seed, days)))
        test, new_work = changed_jobs(parts)
        day = event_days(test, SCHEMA).astype(np.int64)
        agent = test["agent_id"].to_numpy()
        begun = {i: int(day[parts.truth & (agent == i)].min()) for i in np.unique(agent[parts.truth]).tolist()}
        age = np.where(parts.truth, day - np.array([begun.get(i, 0) for i in agent.tolist()]), -1)
        return cls(replace(parts, test=test), day - int(day.min()), new_work, age)

    def block(self, number: int) -> tuple[np.ndarray, pa.Table, pa.Table]:
        """Rows of a block of the test part, their events, and all that came before."""
        first, last = (7 * BLOCK_WEEKS * n for n in (number, number + 1))
        rows = (self.day >= first) & (self.day < last)
        before = self.parts.test.filter(pa.array(self.day < first))
        return rows, self.parts.test.filter(pa.array(rows)), pa.concat_tables([self.parts.before, before])


def changed_jobs(parts: Parts) -> tuple[pa.Table, np.ndarray]:
    """The test part in which some normal agents work where the next of them did, and which stays those are."""
    test = parts.test
    agent, work = test["agent_id"].to_numpy(), np.isin(test["poi_category"].to_pylist(), WORK)
    workers = [i for i in np.unique(agent[work]).tolist() if i not in parts.agents]
    chosen = workers[::CHANGED]
    new = np.zeros(len(agent), bool)
    columns = {name: test[name].to_numpy().copy() for name in ("poi_id", "lat", "lon")}
    source = {name: values.copy() for name, values in columns.items()}
    for one, other in zip(chosen, [*chosen[1:], chosen[0]], strict=True):
        rows, model = work & (agent == one), np.flatnonzero(work & (agent == other))[0]
        new |= rows
        for name, values in columns.items():
            values[rows] = source[name][model]
    for name, values in columns.items():
        at = test.schema.get_field_index(name)
        test = test.set_column(at, test.schema.field(at), pa.array(values).cast(test.schema.field(at).type))
    return test, new


def absorbing(model: AddingJudge, days: int) -> AddingJudge:
    """With histories that take weeks in once they lie so many days back."""
    return replace(model, history=replace(model.source("habits"), absorb_after=days))


def measured(town: Town, model: AddingJudge) -> list[dict[str, Any]]:
    """By block: AUROC and AP of events and agents, and shares of small p-values."""
    found = []
    for number in range((WEEKS - KNOWN_WEEKS) // BLOCK_WEEKS):
        rows, events, before = town.block(number)
        began = time.process_time()
        judged = model.judge(events, before)
        seconds = time.process_time() - began
        age, moved = town.age[rows], town.new_work[rows]
        truth, small, entities = age >= 0, p_values(judged.score) <= SMALL, len(judged.entity_ids)
        odd, changed = (np.bincount(judged.entity, part, entities) > 0 for part in (truth, moved))
        normal = ~truth & ~odd[judged.entity] & ~changed[judged.entity]
        block: dict[str, Any] = {
            "normal_small": float(small[normal].mean()),
            "normal_agents_small": float((p_values(judged.agent_score) <= SMALL)[~odd & ~changed].mean()),
            "new_work_small": float(small[moved].mean()),
            "new_work": int(moved.sum()),
            "cpu_s": seconds,
        }
        for name, part in (("all", truth), ("new", truth & (age < LASTING)), ("lasting", age >= LASTING)):
            owners = np.bincount(judged.entity, part, entities) > 0
            block[name] = {
                "events": _both(part[~truth | part], judged.score[~truth | part]),
                "agents": _both(owners[~odd | owners], judged.agent_score[~odd | owners]),
                "number": [int(part.sum()), int(owners.sum())],
            }
        found.append(block)
    return found


def live(town: Town, models: dict[str, AddingJudge]) -> dict[str, dict[str, Any]]:
    """Some agents through all weeks after the history by each model in turns, state written after every event."""
    agent, last_day = town.parts.test["agent_id"].to_numpy(), next(iter(models.values())).known_until or 0
    rows = town.parts.test.filter(pa.array(np.isin(agent, np.unique(agent)[:LIVE_AGENTS]))).sort_by("started_at")
    scorers = {name: HabitLive(model, last_day + 1, reasons="all") for name, model in models.items()}
    spent = {name: np.zeros(2) for name in models}
    size: dict[str, dict[int, dict[int, int]]] = {name: {weeks: {} for weeks in LIVE_WEEKS} for name in models}
    for row, day in zip(rows.to_pylist(), event_days(rows, SCHEMA) - last_day, strict=True):
        for name, scorer in scorers.items():
            began = time.process_time()
            scorer.update(row)
            scored = time.process_time()
            content = scorer.to_bytes(row["agent_id"])
            spent[name] += (scored - began, time.process_time() - scored)
            for weeks in LIVE_WEEKS:
                if day <= 7 * weeks:
                    size[name][weeks][row["agent_id"]] = len(content)
    return {
        name: {
            "events": rows.num_rows,
            "agents": LIVE_AGENTS,
            "events_per_cpu_s": rows.num_rows / spent[name][0],
            "write_ms": 1000 * spent[name][1] / rows.num_rows,
            "bytes": {
                str(weeks): [int(np.median(list(held.values()))), max(held.values())]
                for weeks, held in size[name].items()
            },
        }
        for name in models
    }


def _both(truth: np.ndarray, score: np.ndarray) -> list[float] | None:
    """AUROC and average precision, None where nothing is anomalous."""
    return [auroc(truth, score), average_precision(truth, score)] if truth.any() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    progress.disable()
    runs: dict[str, list[Any]] = {str(choice): [] for choice in CHOICES}
    alive: dict[str, Any] = {}
    seeds = list(range(FIRST_SEED, FIRST_SEED + options.seeds))
    for seed in seeds:
        town = Town.make(options.agents, seed)
        half = calibrating(town.parts.validation, SCHEMA.entity)
        model = learn_from(town.parts.train, town.parts.validation, SCHEMA, half)
        if seed == seeds[0]:
            alive = live(town, {str(choice): absorbing(model, choice) for choice in (0, 28)})
            print(json.dumps(alive), flush=True)
        for choice in CHOICES:
            runs[str(choice)].append(measured(town, absorbing(model, choice)))
            print(seed, choice, json.dumps(runs[str(choice)][-1]), flush=True)
    content = {
        "agents": options.agents, "seeds": seeds, "weeks": WEEKS, "known_weeks": KNOWN_WEEKS,
        "block_weeks": BLOCK_WEEKS, "small": SMALL, "runs": runs, "live": alive, "version": ustad.__version__,
    }  # fmt: skip
    write_result(options.out / "moving_history.json", content)


if __name__ == "__main__":
    main()
