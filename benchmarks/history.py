"""How long history takes: habits of 3.4 million stays, and their terms, beside the target of 30 s on two cores.

    python benchmarks/history.py [--agents 20000]

Makes stays of people with a few places each (numpy only), builds their habits from the first half and compares
the second half with them. Prints a table, writes benchmarks/results/history.json.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa

import ustad
from measured import write_result
from ustad.events.visits import Frame, read_visits
from ustad.habits.history import Habits
from ustad.habits.population import Population
from ustad.habits.questions import compare
from ustad.habits.recurrence import Recurrence
from ustad.schema import mobility_schema
from ustad.tables import TIMESTAMP

RESULTS = Path(__file__).parent / "results"
TARGET_S = 30.0
FIRST_DAY, DAYS, A_DAY = 19_723, 56, 3
MINUTE_US = 60_000_000


def make_stays(agents: int, seed: int = 0) -> pa.Table:
    """Three stays a day at places that are visited by Zipf's law."""
    rng = np.random.default_rng(seed)
    agent = np.repeat(np.arange(agents), DAYS * A_DAY)
    day = np.tile(np.repeat(np.arange(DAYS), A_DAY), agents)
    slot = np.tile(np.arange(A_DAY), agents * DAYS)
    n = len(agent)
    place = np.minimum(rng.zipf(1.6, n), 40)
    minute = slot * 480 + rng.integers(0, 60, n)
    start = ((FIRST_DAY + day) * 1440 + minute) * MINUTE_US
    centre = rng.normal(0, 0.3, (2, agents))
    shift = rng.normal(0, 0.08, (2, 41 * 97))[:, place * 97 + agent % 97]
    return pa.table(
        {
            "agent_id": agent,
            "started_at": pa.array(start, TIMESTAMP),
            "finished_at": pa.array(start + rng.integers(20, 400, n) * MINUTE_US, TIMESTAMP),
            "lat": 34 + centre[0][agent] + shift[0],
            "lon": -118 + centre[1][agent] + shift[1],
            "poi_id": agent * 64 + place,
            "poi_category": pa.array([f"kind {k}" for k in range(16)]).take(pa.array(place % 16)),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=20_000)
    options = parser.parse_args()
    measure(make_stays(50))  # compiles
    stays = make_stays(options.agents)
    seconds = measure(stays)
    events = stays.num_rows
    total = sum(seconds.values())
    for name, value in seconds.items():
        print(f"{name:34s} {value:8.1f} s")
    verdict = "met" if total < TARGET_S else "missed"
    print(f"{'together':34s} {total:8.1f} s for {events:,} stays (target {TARGET_S:.0f} s: {verdict})")
    write({"events": events, "seconds": seconds, "total_s": total, "target_s": TARGET_S})


def measure(stays: pa.Table) -> dict[str, float]:
    """Seconds of each step: half of the days is history, the other half is compared with it."""
    schema, seconds = mobility_schema(), {}
    began = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal began
        seconds[name], began = time.perf_counter() - began, time.perf_counter()

    day = stays["started_at"].cast(pa.int64()).to_numpy() // (1440 * MINUTE_US) - FIRST_DAY
    early, late = (stays.filter(pa.array(part)) for part in (day < DAYS // 2, day >= DAYS // 2))
    frame = Frame.fit(early, schema)
    before, after = read_visits(early, schema, frame), read_visits(late, schema, frame)
    lap("reading visits")
    habits = Habits.fit(before)
    lap("habits of the first half")
    population = Population.fit(before, len(frame.categories) + 1)
    recurrence = Recurrence.fit_halves(before)
    lap("population and recurrence")
    period = (int(after.day.min()), int(after.day.max()))
    compare(habits, population, recurrence, after, period=period)
    lap("terms of the second half")
    return seconds


def write(content: dict[str, Any]) -> None:
    content["versions"] = {"ustad": ustad.__version__, "numba": numba.__version__, "numpy": np.__version__}
    content["hardware"] = {"cores": os.cpu_count(), "machine": platform.machine()}
    RESULTS.mkdir(exist_ok=True)
    write_result(RESULTS / "history.json", content)


if __name__ == "__main__":
    main()
