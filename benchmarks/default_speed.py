"""Speed of the default: the memory network beside the paper's in bulk, and live, one event at a time or many at once.

    python benchmarks/default_speed.py [--device cpu] [--agents 40] [--samples 8] [--only bulk]
    python benchmarks/default_speed.py --device cuda --agents 2000 --samples 50
    python benchmarks/default_speed.py --only service [--device cuda] [--agents 300] [--service 4096] [--workers 16]

Networks of the preset's size, not trained (speed does not depend on weights); stays made by benchmarks/history.py.
In bulk both networks go from the same tables to the T samples of every event, in turns; the median round counts.
`service` is what the service's scorer does with each micro-batch: score its events, with a reason for every one, and
write the state of every person in it; and one event alone, the first of a person apart from later ones. With
`--workers` the micro-batches also go to so many processes, as with `ustad serve --workers`. Every person came once
before the batches are timed: loading and compiling is not counted.
Prints events a second by processor time on a CPU, by the clock on a GPU, and live by both; processor time is what
others on the machine change least. Writes benchmarks/results/default_speed-DEVICE.json.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

import ustad
from history import DAYS, FIRST_DAY, MINUTE_US, RESULTS, make_stays
from measured import write_result
from ustad import artefact, model_files
from ustad.config import Config
from ustad.detector import choose_device
from ustad.events.encoder import Encoder
from ustad.events.visits import Frame
from ustad.events.windows import EventTensors, make_queries, make_windows
from ustad.judges import learn_from
from ustad.lessons import calibrating
from ustad.live.habit_live import HabitLive
from ustad.live.habit_state import HabitState
from ustad.live.sharded_live import ShardedLive
from ustad.network.dual_transformer import DualTransformer, build_network
from ustad.network.inference.memory_model import MemoryModel, new_network
from ustad.network.inference.sampling import Samples, sample
from ustad.schema import mobility_schema
from ustad.scoring.adding_judge import AddingJudge
from ustad.trip_features import TripFeatures

LIVE_TARGET, BULK_TARGET = 80.0, 0.5
#: Of the service: events that come together, events a second at the most of them, milliseconds of one event.
BATCHES, SERVICE_TARGET, EVENT_TARGET = (1, 64, 1024), 5000.0, 1.5
PARTS = ("bulk", "live", "service")


@dataclass(frozen=True)
class World:
    """Both networks on one device, people's habits with and without the memory network, and what is scored."""

    config: Config
    device: torch.device
    encoder: Encoder
    memory: MemoryModel
    paper: DualTransformer
    habits: AddingJudge
    plain: AddingJudge
    before: pa.Table
    test: pa.Table

    @classmethod
    def make(cls, agents: int, samples: int, device: torch.device) -> World:
        config = Config.preset("best", **{"scoring.samples": samples})
        stays = make_stays(agents)
        day = stays["started_at"].cast(pa.int64()).to_numpy() // (1440 * MINUTE_US) - FIRST_DAY
        train, week, test = (stays.filter(pa.array((day >= a) & (day < b))) for a, b in ((0, 21), (21, 28), (28, 42)))
        encoder = Encoder.fit(train, mobility_schema("none", 16, True))
        frame = Frame.fit(train, encoder.schema)
        memory = MemoryModel(new_network(encoder, frame, config).to(device).eval(), encoder, frame, config, device)
        paper = build_network(encoder.fields, config).to(device).eval()
        half = calibrating(week, "agent_id")
        habits = learn_from(train, week, encoder.schema, half, others=(memory,))
        plain = learn_from(train, week, encoder.schema, half)
        return cls(config, device, encoder, memory, paper, habits, plain, pa.concat_tables([train, week]), test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--agents", type=int, default=40)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="times that each network is asked in bulk")
    parser.add_argument("--live", type=int, default=200, help="events that are scored live")
    parser.add_argument("--service", type=int, default=2048, help="events that the service's scorer is sent")
    parser.add_argument("--workers", type=int, default=0, help="processes that the service's scorer is shared out over")
    parser.add_argument("--only", choices=PARTS, help="one part; the file keeps what it says of the others")
    options = parser.parse_args()
    world = World.make(options.agents, options.samples, choose_device(options.device))
    file = RESULTS / f"default_speed-{options.device}.json"
    content = json.loads(file.read_text()) if options.only and file.exists() else {}
    if options.only in (None, "bulk"):
        content["bulk"] = {**bulk(world, options.rounds), **circumstances(world)}
        print(f"memory / paper {content['bulk']['share']:.2f} (target {BULK_TARGET})")
    if options.only in (None, "live"):
        content["live"] = {**live(world, options.live), **circumstances(world)}
    if options.only in (None, "service"):
        content["service"] = {**service(world, options.service, options.workers), **circumstances(world)}
    for part in (content[name] for name in PARTS if name in content):
        for name, rate in part["rates"].items():
            print(f"{name:45s} {rate:10.0f} events/s")
        for name, milliseconds in part.get("milliseconds", {}).items():
            print(f"{name:45s} {milliseconds:10.2f} ms")
    RESULTS.mkdir(exist_ok=True)
    write_result(file, content)


def circumstances(world: World) -> dict[str, Any]:
    about: dict[str, Any] = {
        "samples": world.config.scoring.samples,
        "width": world.config.model.width,
        "cores": os.cpu_count(),
    }
    about |= {"threads": torch.get_num_threads(), "load": os.getloadavg()[0]}
    if world.device.type == "cuda":
        about["gpu"] = torch.cuda.get_device_name(world.device)
        about["peak_gib"] = torch.cuda.max_memory_allocated(world.device) / 2**30
    return {**about, "versions": {"ustad": ustad.__version__, "torch": torch.__version__}}


def bulk(world: World, rounds: int) -> dict[str, Any]:
    """Events a second of both networks, in turns."""
    habits = world.habits.source("habits").habits
    seconds = in_turns(
        {
            "memory network, bulk": lambda: world.memory.terms(habits, world.test, world.before),
            "the paper's network, bulk": lambda: paper_samples(world),
        },
        rounds,
        world.device,
    )
    events = world.test.num_rows
    rates = {name: events / spent for name, spent in seconds.items()}
    memory, paper = rates.values()
    return {"rates": rates, "share": memory / paper, "target": BULK_TARGET, "events": events, "rounds": rounds}


def live(world: World, events: int) -> dict[str, Any]:
    """Events a second, one at a time, with and without the memory network."""
    rates: dict[str, float] = {}
    models = {"live": world.habits, "live without the network": world.plain}
    for name, model in models.items():
        clock, processor = live_rates(model, world.before, world.test.slice(0, events))
        rates |= {name: clock, f"{name}, by processor time": processor}
    return {"rates": rates, "target": LIVE_TARGET, "events": events}


def service(world: World, events: int, workers: int = 0) -> dict[str, Any]:
    """Events a second in micro-batches of several sizes, and milliseconds of one event."""
    rates: dict[str, float] = {}
    milliseconds: dict[str, float] = {}
    rows = sorted(world.test.to_pylist(), key=lambda row: row["started_at"])
    people = len(set(world.test["agent_id"].to_pylist()))
    for name, model in {"best": world.habits, "quick": world.plain}.items():
        scorer = open_scorer(model, world.before)
        spent: dict[str, list[tuple[float, float]]] = {"first": [], "later": []}
        seen: set[Any] = set()
        for row in rows[: max(400, 2 * people)][:1200]:
            began, used = time.perf_counter(), time.process_time()
            scorer.update(row)
            which = "later" if row["agent_id"] in seen else "first"
            spent[which].append((time.perf_counter() - began, time.process_time() - used))
            seen.add(row["agent_id"])
        for which, pairs in spent.items():
            clock, processor = np.median(pairs, axis=0) * 1e3
            milliseconds |= {f"{name}, {which} of a person": clock}
            milliseconds |= {f"{name}, {which} of a person, by processor time": processor}
        for size in BATCHES:
            clock, processor = batch_rates(open_scorer(model, world.before), rows, size, events)
            rates |= {f"{name}, {size} at once": clock, f"{name}, {size} at once, by processor time": processor}
        if workers:
            rates |= {f"{name}, {what}": rate for what, rate in worker_rates(world, model, rows, events, workers)}
    return {
        "workers": workers,
        "rates": rates,
        "milliseconds": milliseconds,
        "target": SERVICE_TARGET,
        "event_target": EVENT_TARGET,
        "events": events,
        "people": people,
    }


def worker_rates(
    world: World, model: AddingJudge, rows: list[dict[str, Any]], events: int, workers: int
) -> Iterator[tuple[str, float]]:
    """The same micro-batches shared out over processes, by the clock."""
    with tempfile.TemporaryDirectory() as place:
        with artefact.writing(Path(place) / "model") as files:  # no card: nothing was trained
            model_files.write_encoder(files, world.encoder, world.config, TripFeatures("none"))
            model.save(files)
            (files / "facts.json").write_text("{}")
        live = ShardedLive(Path(place) / "model", model, workers, FIRST_DAY + DAYS // 2, reasons="all")
        live.warm(world.before)
        for size in BATCHES:
            clock, _ = batch_rates(live, rows, size, events)
            yield f"{size} at once, {workers} processes", clock
            for entity in set(world.test["agent_id"].to_pylist()):
                live.from_bytes(entity, HabitState().to_bytes(pa.Table.from_pylist))  # begin anew
        live.close()


def open_scorer(model: AddingJudge, before: pa.Table) -> HabitLive:
    """As the service has it: reasons for all events."""
    scorer = HabitLive(model, since=FIRST_DAY + DAYS // 2, reasons="all")
    scorer.warm(before)
    return scorer


def batch_rates(
    scorer: HabitLive | ShardedLive, rows: list[dict[str, Any]], size: int, events: int
) -> tuple[float, float]:
    """Events a second in batches of a size, with the states of their people as bytes: by the clock and by processor
    time. Before that every person came once; of small batches fewer events are sent."""
    first_rows = {row["agent_id"]: i for i, row in reversed(list(enumerate(rows)))}
    warm = max(first_rows.values()) + 1
    scorer.update_many(rows[:warm])
    later = rows[warm : warm + (events if size > 1 else min(events, 400))]
    began, spent = time.perf_counter(), time.process_time()
    for first in range(0, len(later), size):
        batch = later[first : first + size]
        scorer.update_many(batch)
        for agent in {row["agent_id"] for row in batch}:
            scorer.to_bytes(agent)
    return len(later) / (time.perf_counter() - began), len(later) / (time.process_time() - spent)


def in_turns(work: dict[str, Callable[[], object]], rounds: int, device: torch.device) -> dict[str, float]:
    """Median seconds of each, after one turn that does not count: of the processor, or of the clock for a GPU."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds + 1):
        for name, do in work.items():
            began = clock()
            do()
            seconds[name].append(clock() - began)
    return {name: float(np.median(values[1:])) for name, values in seconds.items()}


def paper_samples(world: World) -> Samples:
    """What the memory network is asked, of the paper's: from tables to samples, with the context that it needs."""
    config, first = world.config, FIRST_DAY + DAYS // 2
    day = world.before["started_at"].cast(pa.int64()).to_numpy() // (1440 * MINUTE_US)
    recent = world.before.filter(pa.array(day >= first - config.window.length))
    arrays = world.encoder.encode(pa.concat_tables([recent, world.test]))
    questions = make_queries(arrays, make_windows(arrays, config.window, first_day=first), config.window)
    assert len(questions) == world.test.num_rows
    tensors = EventTensors(arrays, world.device)
    return sample(world.paper, tensors, questions, world.encoder, samples=config.scoring.samples, seed=config.seed)


def live_rates(model: AddingJudge, before: pa.Table, events: pa.Table) -> tuple[float, float]:
    """Events a second, one at a time: by the clock and by processor time."""
    scorer = HabitLive(model, since=FIRST_DAY + DAYS // 2)
    scorer.warm(before)
    rows = events.to_pylist()
    order = np.argsort([row["started_at"] for row in rows], kind="stable")
    warm = max(1, len(order) // 5)
    for i in order[:warm]:
        scorer.update(rows[i])
    began, spent = time.perf_counter(), time.process_time()
    for i in order[warm:]:
        scorer.update(rows[i])
    number = len(order) - warm
    return number / (time.perf_counter() - began), number / (time.process_time() - spent)


if __name__ == "__main__":
    main()
