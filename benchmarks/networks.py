"""What the networks say of every event of the default's benchmark: the part of it that wants a GPU.

    python benchmarks/networks.py memory --seed 7 --device cuda --out DIRECTORY
    python benchmarks/networks.py paper --seed 7 --device cuda --out DIRECTORY
    python benchmarks/networks.py atlanta --seed 7 --data DIRECTORY --device cuda --out DIRECTORY

Each writes one file: the memory network's raw terms of the validation and test weeks of a seed and its harder red
teams (of the standard one also with windows that show nothing later than the event), the scores of the preset `paper`
for the same, or the memory network's terms for Atlanta, there trained with that seed. No label is read.
One process per seed and network; several share a GPU. `benchmarks/default.py --networks DIRECTORY` and
`benchmarks/pol_atl.py --networks DIRECTORY` take it from there, on any machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

import pol_atl
import ustad
from default_data import FIRST_SEED, HARD, Parts, changed_rows, fingerprint, simulated
from ustad import progress
from ustad.config import Config
from ustad.dataset import Dataset
from ustad.detector import Detector, choose_device
from ustad.events.encoder import Encoder
from ustad.events.visits import read_visits
from ustad.evidence_source import Training
from ustad.habits.history import Habits
from ustad.lessons import Lessons, split_entities
from ustad.network.inference.memory_model import MemoryModel
from ustad.schema import mobility_schema


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=("memory", "paper", "atlanta"))
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=2.0, help="at most this long for the training")
    parser.add_argument("--variants", default=",".join(HARD), help="red teams beside the standard one")
    parser.add_argument("--data", type=Path, help="the directory of the Atlanta files")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    progress.disable()
    torch.set_num_threads(1)
    began = time.monotonic()
    found, facts = {"memory": memory, "paper": paper, "atlanta": atlanta}[options.network](options)
    facts |= {
        "network": options.network,
        "seed": options.seed,
        "agents": options.agents,
        "minutes": options.minutes,
        "seconds": round(time.monotonic() - began, 1),
        "versions": {"ustad": ustad.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "device": torch.cuda.get_device_name() if options.device == "cuda" else platform.machine(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.network}-{options.seed}.npz"
    np.savez_compressed(path, facts=np.array(json.dumps(facts)), **found)
    print(f"{path.name}: {json.dumps(facts)}", flush=True)


# ------------------------------------------------------------------------------------------------ networks
def memory(options: argparse.Namespace) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Terms of the validation week (by the training weeks' habits) and of every test period (by both)."""
    data = _red_teams(options)
    standard, parts = next(data)
    model, facts = _trained(parts.train, parts.validation, options)
    early, habits = _habits(model, parts.train), _habits(model, parts.before)
    found = _named("validation", model.terms(early, parts.validation, parts.train), parts.validation)
    began = time.monotonic()
    found |= _named(standard, model.terms(habits, parts.test, parts.before), parts.test)
    facts["events_per_s"] = round(parts.test.num_rows / (time.monotonic() - began))
    past = replace(model, config=model.config.replace({"window.mode": "past"}))
    found |= _named("validation_past", past.terms(early, parts.validation, parts.train), parts.validation)
    found |= _named(f"{standard}_past", past.terms(habits, parts.test, parts.before), parts.test)
    for variant, other in data:
        rows = changed_rows(other.test, parts.test)
        terms = model.terms(habits, other.test.take(pa.array(rows)), other.before) if len(rows) else {}
        found |= _named(variant, terms, other.test) | {f"{variant}.rows": rows.astype(np.int32)}
    return found, facts


def paper(options: argparse.Namespace) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Scores of the preset `paper`, without trips (NUMOSIM publishes none), in batches of 512 to be done in time."""
    data = _red_teams(options)
    standard, parts = next(data)
    changes = {
        "model.trips": "none",
        "training.batch_size": 512,
        "training.learning_rate": 2e-3,
        "training.max_minutes": options.minutes,
    }
    detector = Detector(Config.preset("paper", **changes), options.device)
    split = {"test_first": _date(parts.test), "validation_first": _date(parts.validation)}
    every = pa.concat_tables([parts.train, parts.validation, parts.test])
    detector.fit(Dataset(every, meta={"name": "numosim-la", "split": split}))
    facts = {k: detector.facts[k] for k in ("epochs", "validation_loss")}
    facts["training_s"] = detector.facts["seconds"]
    found: dict[str, np.ndarray] = {}
    for variant, other in [(standard, parts), *data]:
        scores = detector.score(other.test, context=other.before)
        place = {i: k for k, i in enumerate(scores.events["stay_id"].to_pylist())}
        order = np.array([place[i] for i in other.test["stay_id"].to_pylist()])
        events = {"events": scores.events["score"].to_numpy()[order]}
        found |= _named(variant, events, other.test)
        found[f"{variant}.agent_ids"] = scores.agents["agent_id"].to_numpy()
        found[f"{variant}.agents"] = scores.agents["score"].to_numpy()
    return found, facts


def atlanta(options: argparse.Namespace) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The memory network's terms for Atlanta with named places."""
    train, validation, test = pol_atl.periods(options.data, "venues")
    model, facts = _trained(train, validation, options, seed=options.seed)
    found = _named("venues.validation", model.terms(_habits(model, train), validation, train), validation)
    both = pa.concat_tables([train, validation])
    return found | _named("venues.test", model.terms(_habits(model, both), test, both), test), facts


# --------------------------------------------------------------------------------------------------- steps
def _trained(
    train: pa.Table, validation: pa.Table, options: argparse.Namespace, **changes: Any
) -> tuple[MemoryModel, dict[str, Any]]:
    """The preset's memory network, stopped early by its half of the entities."""
    config = Config.preset("best", **{"training.max_minutes": options.minutes, **changes})
    schema = mobility_schema("none", config.model.trip_size, config.model.log_duration)
    lessons = Lessons(Encoder.fit(train, schema), train, *split_entities(validation, schema.entity))
    model = MemoryModel.fit(lessons, Training(config, choose_device(options.device))).source
    result = model.result
    assert result is not None
    losses = [round(v, 4) for v in result.losses]
    return model, {"epochs": len(losses), "losses": losses, "training_s": round(result.seconds, 1)}


def _habits(model: MemoryModel, events: pa.Table) -> Habits:
    return Habits.fit(read_visits(events, model.encoder.schema, model.frame))


def _named(name: str, values: dict[str, np.ndarray], table: pa.Table) -> dict[str, np.ndarray]:
    held = {f"{name}.{key}": np.asarray(v, np.float32) for key, v in values.items()}
    return held | {f"{name}.fingerprint": np.array(fingerprint(table))}


def _red_teams(options: argparse.Namespace) -> Iterator[tuple[str, Parts]]:
    """The standard data set at once; the harder ones are simulated meanwhile, in a process of their own."""
    harder = [v for v in options.variants.split(",") if v]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        waiting: list[Future[Parts]] = [pool.submit(simulated, options.agents, options.seed, v) for v in harder]
        yield "standard", simulated(options.agents, options.seed)
        for variant, future in zip(harder, waiting, strict=True):
            yield variant, future.result()


def _date(table: pa.Table) -> str:
    zone = table["timezone"][0].as_py()
    return min(table["started_at"].cast(pa.timestamp("us", tz=zone)).to_pylist()).date().isoformat()


if __name__ == "__main__":
    main()
