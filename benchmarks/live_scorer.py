"""The service's scorer within a minute: one event alone, and micro-batches shared out over processes.

    python benchmarks/live_scorer.py                                    8 and 15 processes, `best` and `quick`
    python benchmarks/live_scorer.py --workers 2 --seconds 2 --agents 60 --out trial.json

The scorer is what `ustad serve` calls: scores with a reason for every event, and every person's state as bytes after
each micro-batch. Networks are of the preset's size and not trained, stays are made by benchmarks/history.py
(`default_speed.World`). One event is the median of later events of a person, by the clock and by processor time. Each
rate stops after `--seconds`; before it every person came once. It says what it does, and writes after each figure.
Writes benchmarks/results/live_scorer.json.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from default_speed import EVENT_TARGET, SERVICE_TARGET, World, open_scorer
from history import DAYS, FIRST_DAY, RESULTS
from measured import write_result
from ustad import artefact, model_files
from ustad.live.sharded_live import ShardedLive
from ustad.scoring.adding_judge import AddingJudge
from ustad.trip_features import TripFeatures

#: Events that come together.
SIZES = (64, 1024)
BEGAN = time.perf_counter()
Rows = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="*", default=[8, 15], help="numbers of processes")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each rate is measured at most")
    parser.add_argument("--agents", type=int, default=400)
    parser.add_argument("--events", type=int, default=800, help="events that are scored one by one")
    parser.add_argument("--out", type=Path, default=RESULTS / "live_scorer.json")
    options = parser.parse_args()
    say(f"making {options.agents} people and a network")
    world = World.make(options.agents, 8, torch.device("cpu"))
    rows = sorted(world.test.to_pylist(), key=lambda row: row["started_at"])
    content: dict[str, Any] = {
        "people": options.agents, "cores": os.cpu_count(), "seconds": options.seconds,
        "event_target_ms": EVENT_TARGET, "rate_target": SERVICE_TARGET, "milliseconds": {}, "rates": {},
    }  # fmt: skip
    models = {"best": world.habits, "quick": world.plain}
    for name, model in models.items():
        content["milliseconds"][name] = time_events(open_scorer(model, world.before), rows[: options.events])
        say(f"{name}, one event: {content['milliseconds'][name]}")
        write_result(options.out, content)
        compile_once(model, world.before, rows)
    for name, model in models.items():
        for workers in options.workers:
            for size, rate in time_batches(world, model, rows, workers=workers, seconds=options.seconds):
                content["rates"][f"{name}, {size} at once, {workers} processes"] = rate
                say(f"{name}, {size} at once, {workers} processes: {rate}")
                write_result(options.out, content)
    say(f"written to {options.out}")


def say(text: str) -> None:
    print(f"{time.perf_counter() - BEGAN:6.1f} s  {text}", flush=True)


def time_events(scorer: Any, rows: Rows) -> dict[str, float]:
    """Median milliseconds of an event of somebody who came before, by the clock and of processor time."""
    seen: set[Any] = set()
    spent: list[tuple[float, float]] = []
    for row in rows:
        began, used = time.perf_counter(), time.process_time()
        scorer.update(row)
        if row["agent_id"] in seen:
            spent.append((time.perf_counter() - began, time.process_time() - used))
        seen.add(row["agent_id"])
    clock, processor = np.median(spent, axis=0) * 1e3
    return {"clock": round(float(clock), 3), "processor": round(float(processor), 3), "events": len(spent)}


def compile_once(model: AddingJudge, before: pa.Table, rows: Rows) -> None:
    """Both weeks of two people, one by one and together: what is compiled on first use is compiled here, as the service
    does when it starts, not by all processes side by side."""
    people = [row["agent_id"] for row in rows[:2]]
    own = [row for row in rows if row["agent_id"] in people]
    open_scorer(model, before).update_many(own)
    scorer = open_scorer(model, before)
    for row in own:
        scorer.update(row)


def time_batches(
    world: World, model: AddingJudge, rows: Rows, *, workers: int, seconds: float
) -> Iterator[tuple[int, dict[str, float]]]:
    """Events a second by the clock in micro-batches of each size, one size after the other; and what the process that
    shares them out needs of its own time for one event, µs."""
    with tempfile.TemporaryDirectory() as place:
        with artefact.writing(Path(place) / "model") as files:  # no card: nothing was trained
            model_files.write_encoder(files, world.encoder, world.config, TripFeatures("none"))
            model.save(files)
            (files / "facts.json").write_text("{}")
        say(f"starting {workers} processes")
        live = ShardedLive(Path(place) / "model", model, workers, FIRST_DAY + DAYS // 2, reasons="all")
        try:
            live.warm(world.before)
            at = send_first(live, rows)
            share = (len(rows) - at) // len(SIZES)
            for n, size in enumerate(SIZES):
                first = at + n * share
                yield size, time_rate(live, rows[first : first + share], size, seconds)
        finally:
            live.close()


def send_first(live: ShardedLive, rows: Rows) -> int:
    """Everybody once; the row after which that is so."""
    first_rows = {row["agent_id"]: i for i, row in reversed(list(enumerate(rows)))}
    stop = max(first_rows.values()) + 1
    for first in range(0, stop, 512):
        live.update_many(rows[first : min(first + 512, stop)])
    say(f"everybody came once: {stop} events")
    return stop


def time_rate(live: ShardedLive, rows: Rows, size: int, seconds: float) -> dict[str, float]:
    """Until the time or the rows are over."""
    began, spent, events = time.perf_counter(), time.process_time(), 0
    for first in range(0, len(rows), size):
        batch = rows[first : first + size]
        live.update_many(batch)
        for agent in {row["agent_id"] for row in batch}:
            live.to_bytes(agent)
        events += len(batch)
        if time.perf_counter() - began > seconds:
            break
    clock, own = time.perf_counter() - began, time.process_time() - spent
    return {"events_per_s": round(events / clock), "events": events, "own_us": round(own / events * 1e6)}


if __name__ == "__main__":
    main()
