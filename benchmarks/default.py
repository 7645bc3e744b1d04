"""The preset `default` beside the paper's score, visit rate, and itself with every part left out once.

    python benchmarks/default.py                                           small, on the CPU, without networks
    python benchmarks/default.py --device cuda --agents 2000 --seeds 3 --memory --paper

Simulates numosim-la for every seed, trains on its first weeks, scores the last four; the harder red teams (near,
odd hours, skipped, long stays) have the same people, so the same model scores them. Labels are read only here.
Prints a table of AUROC / average precision of events and agents, mean ± standard deviation over seeds, and writes
benchmarks/results/default-DEVICE.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

import ustad
from ustad import progress
from ustad.baselines import make
from ustad.config import Config, SplitConfig
from ustad.dataset import Dataset
from ustad.detector import Detector, choose_device
from ustad.evaluation.metrics import auroc, average_precision
from ustad.events.encoder import Encoder
from ustad.events.habits import Habits
from ustad.periods import split_entities
from ustad.schema import mobility_schema
from ustad.scoring.habit_agents import combined, top_mean
from ustad.scoring.habit_model import HabitModel, Judged
from ustad.scoring.habit_terms import TERMS
from ustad.scoring.memory_model import MemoryModel
from ustad.scoring.memory_terms import RAW
from ustad.simulate import simulate_tables
from ustad.simulate.presets import VARIANTS
from ustad.tables import agent_codes

RESULTS = Path(__file__).parent / "results"
TARGETS = {"events": (0.95, 0.25), "agents": (0.90, 0.35)}


@dataclass(frozen=True)
class Parts:
    """One data set by period, and its labels by row and by agent."""

    train: pa.Table
    validation: pa.Table
    test: pa.Table
    truth: np.ndarray  # bool by row of test
    recurring: np.ndarray  # bool by row of test
    agents: dict[Any, bool]  # anomalous agent → recurring

    @property
    def before(self) -> pa.Table:
        return pa.concat_tables([self.train, self.validation])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=7)
    parser.add_argument("--memory", action="store_true", help="train and use the memory network")
    parser.add_argument("--paper", action="store_true", help="train and score the paper's preset on the first seed")
    parser.add_argument("--minutes", type=float, default=1.5, help="at most this long for each training")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--few", action="store_true", help="only the default, causal and not, spread none, visit rate")
    parser.add_argument("--variants", default=",".join(v for v in VARIANTS if v != "standard"))
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    return parser.parse_args()


# ------------------------------------------------------------------------------------------------- data
def simulated(options: argparse.Namespace) -> dict[tuple[int, str], Parts]:
    """Every seed with the standard red team, the first seed with the harder ones."""
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    wanted = [(seed, "standard") for seed in seeds]
    wanted += [(options.first_seed, v) for v in options.variants.split(",") if v]
    if options.workers == 1:
        return {key: _simulate(options.agents, key) for key in wanted}
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        return dict(zip(wanted, pool.map(partial(_simulate, options.agents), wanted), strict=True))


def _simulate(agents: int, key: tuple[int, str]) -> Parts:
    torch.set_num_threads(1)
    return divide(simulate_tables("numosim-la", agents=agents, seed=key[0], variant=key[1]))


def divide(data: Dataset) -> Parts:
    split = data.split(SplitConfig())
    test = data.between(split.test_first, split.test_last)
    assert data.labels is not None
    assert data.agent_labels is not None
    labelled = dict(zip(data.labels["stay_id"].to_pylist(), data.labels["recurring"].to_pylist(), strict=True))
    ids = test["stay_id"].to_pylist()
    return Parts(
        data.between(split.train_first, split.validation_first - 1),
        data.between(split.validation_first, split.test_first - 1),
        test,
        np.array([i in labelled for i in ids]),
        np.array([bool(labelled.get(i, False)) for i in ids]),
        dict(zip(data.agent_labels["agent_id"].to_pylist(), data.agent_labels["recurring"].to_pylist(), strict=True)),
    )


# ---------------------------------------------------------------------------------------------- measures
def measured(parts: Parts, events: np.ndarray | None, agents: np.ndarray, ids: np.ndarray) -> dict[str, list[float]]:
    """AUROC and AP of events and agents, and the same for recurring and one-off anomalies apart."""
    anomalous = np.array([i in parts.agents for i in ids])
    recurring = np.array([bool(parts.agents.get(i, False)) for i in ids])
    found: dict[str, list[float]] = {}
    for name, rows, owners in (
        ("all", np.ones(len(parts.truth), bool), np.ones(len(ids), bool)),
        ("recurring", ~parts.truth | parts.recurring, ~anomalous | recurring),
        ("one-off", ~parts.truth | ~parts.recurring, ~anomalous | ~recurring),
    ):
        event = _both(parts.truth[rows], events[rows]) if events is not None else [float("nan")] * 2
        found[name] = [*event, *_both(anomalous[owners], agents[owners])]
    return found


def _both(truth: np.ndarray, score: np.ndarray) -> list[float]:
    return [auroc(truth, score), average_precision(truth, score)]


def by_table(parts: Parts, scores: Any) -> dict[str, list[float]]:
    """Measures of score tables, in whatever order they come."""
    place = {i: k for k, i in enumerate(scores.events["stay_id"].to_pylist())}
    order = np.array([place[i] for i in parts.test["stay_id"].to_pylist()])
    events = scores.events["score"].to_numpy()[order]
    return measured(parts, events, scores.agents["score"].to_numpy(), scores.agents["agent_id"].to_numpy())


# ----------------------------------------------------------------------------------------------- methods
class Remembered:
    """The memory network's terms, asked once per data set: leaving a part out does not need it again."""

    def __init__(self, terms: Callable[[Habits, pa.Table, pa.Table | None], dict[str, np.ndarray]]) -> None:
        self.terms, self.held = terms, {}  # type: ignore[var-annotated]  # filled below

    def __call__(self, habits: Habits, events: pa.Table, before: pa.Table | None) -> dict[str, np.ndarray]:
        key = (habits.last_day, events.num_rows, float(events["lat"].to_numpy().sum()))
        if key not in self.held:
            self.held[key] = self.terms(habits, events, before)
        return self.held[key]


def calibrating(validation: pa.Table) -> np.ndarray:
    """Rows of the calibration half of the entities."""
    chosen = agent_codes(split_entities(validation, "agent_id")[1]["agent_id"])[1]
    return np.isin(validation["agent_id"].to_numpy(), chosen)


def memory_terms(parts: Parts, options: argparse.Namespace, seconds: dict[str, float]) -> Remembered | None:
    if not options.memory:
        return None
    changes = {"training.max_minutes": options.minutes, "training.batch_size": options.batch}
    config = Config.preset("default", **changes)
    schema = mobility_schema("none", config.model.trip_size, config.model.log_duration)
    began = time.monotonic()
    stopping = split_entities(parts.validation, "agent_id")[0]
    model = MemoryModel.fit(
        parts.train, stopping, Encoder.fit(parts.train, schema), config, choose_device(options.device)
    )
    seconds["memory training"] = time.monotonic() - began
    assert model.result is not None
    print("memory network:", [round(v, 3) for v in model.result.losses], model.result.parts, flush=True)

    def terms(habits: Habits, events: pa.Table, before: pa.Table | None) -> dict[str, np.ndarray]:
        began = time.monotonic()
        found = model.terms(habits, events, before)
        seconds["memory events a second"] = events.num_rows / (time.monotonic() - began)
        return found

    return Remembered(terms)


def ours(
    parts: Parts, extra: Remembered | None, workers: int, few: bool = False
) -> dict[str, Callable[[Parts], dict[str, list[float]]]]:
    """Name → measures of a data set with the same training weeks: the default and everything left out once."""
    chosen = calibrating(parts.validation)

    def fitted(**options: Any) -> HabitModel:
        return HabitModel.fit(parts.train, parts.validation, mobility_schema(), chosen, **{"extra": extra, **options})

    def ask(model: HabitModel, agents: Callable[[Judged], np.ndarray] | None, other: Parts) -> dict[str, list[float]]:
        judged = model.judge(other.test, context=other.before)
        score = agents(judged) if agents is not None else judged.agent_score
        return measured(other, judged.score, score, judged.entity_ids)

    whole = fitted()
    names = () if few else (*TERMS, *(RAW if extra is not None else ()))
    with ThreadPoolExecutor(workers) as pool:
        fits = dict(zip(names, pool.map(lambda term: fitted(without=(term,)), names), strict=True))
    methods = {
        "default": partial(ask, whole, None),
        "counts over the whole period": partial(ask, fitted(counting="whole"), None),
        "spread none": partial(ask, replace(whole, spread="none"), None),
        "agents by their maximum": partial(ask, whole, _highest),
        "agents by their top 3 alone": partial(ask, whole, lambda judged: judged.agents["top"]),
    }
    for test in ("shift", "profile"):
        methods[f"without the test {test}"] = partial(ask, whole, partial(_without_test, test))
    for term, model in fits.items():
        methods[f"without {term}"] = partial(ask, model, None)
    if extra is not None:
        methods["without the memory network"] = partial(ask, fitted(extra=None), None)
        methods["memory network alone"] = partial(ask, fitted(without=tuple(TERMS)), None)
    return methods


def _highest(judged: Judged) -> np.ndarray:
    return top_mean(judged.alone, judged.entity, len(judged.entity_ids), 1)


def _without_test(test: str, judged: Judged) -> np.ndarray:
    return combined({name: values for name, values in judged.agents.items() if name != test})


def others(parts: Parts) -> dict[str, Callable[[Parts], dict[str, list[float]]]]:
    def ask(method: Any, other: Parts) -> dict[str, list[float]]:
        return by_table(other, method.score(other.test))

    names = {"visit rate": "visit-rate", "visit rate, causal": "visit-rate-causal"}
    return {shown: partial(ask, make(name).fit(parts.train, parts.validation)) for shown, name in names.items()}


def the_paper(parts: Parts, options: argparse.Namespace) -> Callable[[Parts], dict[str, list[float]]]:
    changes = {
        "model.trips": "none",
        "training.max_minutes": options.minutes,
        "training.batch_size": options.batch,
        "training.learning_rate": 2e-3,
    }
    split = {"test_first": _date(parts.test), "validation_first": _date(parts.validation)}
    detector = Detector(Config.preset("paper", **changes), options.device)
    every = pa.concat_tables([parts.train, parts.validation, parts.test])
    detector.fit(Dataset(every, meta={"name": "numosim-la", "split": split}))
    return lambda other: by_table(other, detector.score(other.test, context=other.before))


def _date(table: pa.Table) -> str:
    zone = table["timezone"][0].as_py()
    first = table["started_at"].cast(pa.timestamp("us", tz=zone)).to_pylist()
    return min(first).date().isoformat()


# ----------------------------------------------------------------------------------------------- running
def main() -> None:
    options = arguments()
    progress.disable()
    began = time.monotonic()
    data = simulated(options)
    seconds = {"simulation": time.monotonic() - began}
    print(f"simulated {len(data)} data sets in {seconds['simulation']:.0f} s", flush=True)
    table: dict[str, dict[str, list[dict[str, list[float]]]]] = {}
    for (seed, variant), parts in data.items():
        if variant != "standard":
            continue
        extra = memory_terms(parts, options, seconds)
        methods = {**ours(parts, extra, options.workers, options.few), **others(parts)}
        if options.paper and seed == options.first_seed:
            start = time.monotonic()
            methods["paper"] = the_paper(parts, options)
            seconds["paper training"] = time.monotonic() - start
        for (other, name), asked in data.items():
            if other == seed:
                for method, found in score_all(methods, asked, options.workers).items():
                    table.setdefault(name, {}).setdefault(method, []).append(found)
        show(table)
    write(table, seconds, options)


def score_all(
    methods: dict[str, Callable[[Parts], dict[str, list[float]]]], asked: Parts, workers: int
) -> dict[str, dict[str, list[float]]]:
    """Measures of every method; the default goes first, so that the network is asked only once."""
    first = methods["default"](asked)
    print("default:", {group: [round(v, 3) for v in values] for group, values in first.items()}, flush=True)
    rest = [name for name in methods if name != "default"]
    with ThreadPoolExecutor(workers) as pool:
        return {"default": first, **dict(zip(rest, pool.map(lambda name: methods[name](asked), rest), strict=True))}


def show(table: dict[str, dict[str, list[dict[str, list[float]]]]]) -> None:
    for variant, methods in table.items():
        print(f"\n{variant}: AUROC / AP of events | agents; recurring; one-off", flush=True)
        for method, runs in methods.items():
            cells = [_cell(np.array([run[group] for run in runs])) for group in ("all", "recurring", "one-off")]
            print(f"  {method:32s} {'   '.join(cells)}")


def _cell(values: np.ndarray) -> str:
    mean, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    shown = [f"{m:.3f}" + (f"±{s:.3f}" if len(values) > 1 else "") for m, s in zip(mean, spread, strict=True)]
    return f"{shown[0]} / {shown[1]} | {shown[2]} / {shown[3]}"


def write(table: Any, seconds: dict[str, float], options: argparse.Namespace) -> None:
    content = {
        "options": {k: v for k, v in vars(options).items() if k != "workers"},
        "columns": ["event AUROC", "event AP", "agent AUROC", "agent AP"],
        "targets": TARGETS,
        "table": table,
        "seconds": {k: round(v, 2) for k, v in seconds.items()},
        "versions": {"ustad": ustad.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "hardware": {
            "cores": os.cpu_count(),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
        },
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"default-{options.device}{'' if options.memory else '-without-network'}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"\nwrote {path.name}; " + ", ".join(f"{k} {v:.1f}" for k, v in seconds.items()))


if __name__ == "__main__":
    main()
