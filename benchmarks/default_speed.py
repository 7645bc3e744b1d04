"""Speed of the default: the memory network beside the paper's in bulk, and habits live, one event at a time.

    python benchmarks/default_speed.py [--device cpu] [--agents 40] [--samples 16]

Networks of the preset's size, not trained (speed does not depend on weights); stays made by benchmarks/history.py.
Prints events a second by the clock and, live, by the processor time of one core, which others on the machine do not
change; writes benchmarks/results/default_speed-DEVICE.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import torch

import ustad
from history import DAYS, FIRST_DAY, MINUTE_US, RESULTS, make_stays
from ustad.config import Config
from ustad.detector import choose_device
from ustad.events.encoder import Encoder
from ustad.events.visits import Frame
from ustad.events.windows import EventTensors, make_queries, make_windows
from ustad.model.network import build_network
from ustad.schema import mobility_schema
from ustad.scoring.default_score import DefaultModel, calibrating
from ustad.scoring.habit_live import HabitLive
from ustad.scoring.habit_model import HabitModel
from ustad.scoring.memory_model import MemoryModel, new_network
from ustad.scoring.sampling import sample

LIVE_TARGET, BULK_TARGET = 40.0, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--agents", type=int, default=40)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--live", type=int, default=200, help="events that are scored live")
    options = parser.parse_args()
    device = choose_device(options.device)
    config = Config.preset("default", **{"scoring.samples": options.samples})
    stays = make_stays(options.agents)
    day = stays["started_at"].cast(pa.int64()).to_numpy() // (1440 * MINUTE_US) - FIRST_DAY
    train, week, test = (stays.filter(pa.array((day >= a) & (day < b))) for a, b in ((0, 21), (21, 28), (28, 42)))
    encoder = Encoder.fit(train, mobility_schema("none", 16, True))
    frame = Frame.fit(train, encoder.schema)
    memory = MemoryModel(new_network(encoder, frame, config).to(device).eval(), encoder, frame, config, device)
    half = calibrating(week, "agent_id")
    habits = HabitModel.fit(train, week, encoder.schema, half, extra=memory.terms)
    before = pa.concat_tables([train, week])
    found = {
        "memory network, bulk": test.num_rows / timed(lambda: memory.terms(habits.habits, test, before)),
        "the paper's network, bulk": paper_rate(encoder, config, before, test, device),
    }
    without = HabitModel.fit(train, week, encoder.schema, half)
    for name, model in (("live", DefaultModel(habits, memory)), ("live without the network", DefaultModel(without))):
        clock, processor = live_rates(model, before, test.slice(0, options.live))
        found |= {name: clock, f"{name}, by processor time": processor}
    for name, rate in found.items():
        print(f"{name:45s} {rate:10.0f} events/s")
    share = found["memory network, bulk"] / found["the paper's network, bulk"]
    print(f"memory / paper {share:.2f} (target {BULK_TARGET}); live target {LIVE_TARGET:.0f} events/s")
    content = {"rates": found, "samples": options.samples, "width": config.model.width, "cores": os.cpu_count()}
    content["versions"] = {"ustad": ustad.__version__, "torch": torch.__version__}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"default_speed-{options.device}.json").write_text(json.dumps(content, indent=1) + "\n")


def timed(work: Callable[[], object]) -> float:
    """Processor seconds of the second call; seconds on a device that works beside the processor."""
    work()
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    began = clock()
    work()
    return clock() - began


def paper_rate(encoder: Encoder, config: Config, before: pa.Table, test: pa.Table, device: torch.device) -> float:
    network = build_network(encoder.fields, config).to(device).eval()
    arrays = encoder.encode(pa.concat_tables([before, test]))
    first = FIRST_DAY + DAYS // 2
    questions = make_queries(arrays, make_windows(arrays, config.window, first_day=first), config.window)
    tensors = EventTensors(arrays, device)
    return len(questions) / timed(
        lambda: sample(network, tensors, questions, encoder, config.scoring.samples, config.seed)
    )


def live_rates(model: DefaultModel, before: pa.Table, events: pa.Table) -> tuple[float, float]:
    """Events a second, one at a time: by the clock and by processor time."""
    live = HabitLive(model, since=FIRST_DAY + DAYS // 2)
    live.warm(before)
    rows = events.to_pylist()
    order = np.argsort([row["started_at"] for row in rows], kind="stable")
    warm = max(1, len(order) // 5)
    for i in order[:warm]:
        live.update(rows[i])
    began, spent = time.perf_counter(), time.process_time()
    for i in order[warm:]:
        live.update(rows[i])
    number = len(order) - warm
    return number / (time.perf_counter() - began), number / (time.process_time() - spent)


if __name__ == "__main__":
    main()
