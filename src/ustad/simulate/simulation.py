"""`simulate` writes a data directory part by part; `simulate_tables` makes a small one in memory."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from ustad.config import ConfigError
from ustad.dataset import Dataset
from ustad.files import write_json, write_table
from ustad.progress import is_shown, roughly, say, track
from ustad.simulate.assembly import make_part
from ustad.simulate.phones import Recording
from ustad.simulate.rows import Recorder, poi_table
from ustad.simulate.setting import Simulation, SimulationPlan

AGENTS_A_PART = 1_000
FIX_AGENTS = 100  # agents per file of fixes
WORTH_AN_ESTIMATE = 500  # agents
TABLES_IN_PARTS = ("stays", "trips", "fixes")
WHOLE = ("gaps", "labels", "agent_labels", "counterfactual", "dirty_labels")


def simulate(
    preset: str,
    agents: int | None,
    seed: int,
    out: Path,
    *,
    fixes: str | None = None,
    days: int | None = None,
    paths: bool = False,
    phone: str | None = None,
    workers: int = 1,
    agents_a_part: int = AGENTS_A_PART,
    **wishes: Any,
) -> dict[str, Any]:
    """Write a simulated data set into `out` and return its meta.

    `fixes`: interval of raw GPS, such as `60s`. `phone`: raw GPS as a logger, phone, app or sparse device records it.
    `paths`: write the path of each trip along the roads. `wishes`: any other field of `SimulationPlan`. Memory is
    bounded by `workers` parts of `agents_a_part` agents. The same seed writes the same bytes whatever `workers`.
    """
    recording = Recording.of(fixes, phone)
    simulation = SimulationPlan(preset, agents, seed, days, **wishes).prepare()
    if agents_a_part < 1 or workers < 1:
        raise ConfigError(f"agents_a_part and workers must be at least 1, got {agents_a_part} and {workers}")
    out = Path(out)
    _clear(out)
    parts = range(0, simulation.agents, agents_a_part)
    alone = len(parts) == 1
    if is_shown() and simulation.agents >= WORTH_AN_ESTIMATE:
        seconds = rough_seconds(simulation, paths, recording) / min(workers, len(parts), os.cpu_count() or 1)
        say(f"{simulation.agents:,} agents over {simulation.days} days: {roughly(seconds)}")

    def make(first: int) -> tuple[int, dict[str, pa.Table]]:
        last = min(simulation.agents, first + agents_a_part)
        return write_part(simulation, first, last, paths, recording=recording, out=out, alone=alone)

    events, small = _gather(make, parts, simulation.agents, agents_a_part, workers=workers)
    write_table(poi_table(simulation), out / "pois.parquet")
    for name in written_tables(simulation, small):
        write_table(pa.concat_tables(small[name]), out / f"{name}.parquet")
    meta = describe(simulation, fixes, phone, paths) | count_rows(events, small)
    write_json(meta, out / "meta.json")
    return meta


def simulate_tables(
    preset: str,
    agents: int | None = None,
    seed: int = 7,
    days: int | None = None,
    *,
    paths: bool = False,
    **wishes: Any,
) -> Dataset:
    """The same data set in memory, without fixes. `wishes`: any other field of `SimulationPlan`."""
    return in_memory(SimulationPlan(preset, agents, seed, days, **wishes).prepare(), paths)


def in_memory(simulation: Simulation, paths: bool = False) -> Dataset:
    """The data set of a simulation that was prepared already."""
    part = make_part(simulation, 0, simulation.agents, paths)
    return Dataset(
        events=part.stays,
        trips=part.trips,
        gaps=part.gaps,
        pois=poi_table(simulation),
        labels=part.labels if simulation.preset.event_labels else None,
        agent_labels=part.agent_labels,
        meta=describe(simulation, None, None, paths),
    )


def rough_seconds(simulation: Simulation, paths: bool, recording: Recording | None) -> float:
    """Seconds for all agents on one core: what a few take, or some more where that is too quick to tell."""

    def seconds_of(agents: int) -> float:
        recorder = Recorder(recording, lambda first, table: None, FIX_AGENTS) if recording is not None else None
        began = time.perf_counter()
        make_part(simulation, 0, agents, paths, recorder=recorder)
        return time.perf_counter() - began

    few = 4
    seconds_of(few)  # warms up
    while (seconds := seconds_of(few)) < 0.2 and few < WORTH_AN_ESTIMATE // 2:
        few *= 4
    return seconds * simulation.agents / few


def write_part(
    simulation: Simulation, first: int, last: int, paths: bool, *, recording: Recording | None, out: Path, alone: bool
) -> tuple[int, dict[str, pa.Table]]:
    """Write the large tables of one part; return the number of stays and the small tables."""
    recorder = Recorder(recording, _fix_writer(out), FIX_AGENTS) if recording is not None else None
    part = make_part(simulation, first, last, paths, recorder=recorder)
    for name in ("stays", "trips"):
        file = out / f"{name}.parquet" if alone else out / name / f"part-{first:08d}.parquet"
        write_table(getattr(part, name), file)
    return part.stays.num_rows, {name: getattr(part, name) for name in WHOLE}


def _fix_writer(out: Path) -> Callable[[int, pa.Table], None]:
    return lambda first, table: write_table(table, out / "fixes" / f"part-{first:08d}.parquet")


def _gather(
    make: Callable[[int], tuple[int, dict[str, pa.Table]]],
    parts: Iterable[int],
    agents: int,
    size: int,
    *,
    workers: int,
) -> tuple[int, dict[str, list[pa.Table]]]:
    """Run the parts, keep their small tables in order of the parts."""
    events = agents_done = 0
    small: dict[str, list[pa.Table]] = {name: [] for name in WHOLE}
    with track("simulating agents", agents) as advance, ThreadPoolExecutor(workers) as pool:
        for count, tables in pool.map(make, parts):
            events += count
            for name, table in tables.items():
                small[name].append(table)
            advance(min(size, agents - agents_done), f"{events:,} stays")
            agents_done += size
    return events, small


def written_tables(simulation: Simulation, small: dict[str, list[pa.Table]]) -> list[str]:
    """Gaps and dirty labels only where there are any; event labels only where the preset publishes them."""
    names = ["agent_labels", "counterfactual"] + (["labels"] if simulation.preset.event_labels else [])
    return names + [name for name in ("gaps", "dirty_labels") if any(len(table) for table in small[name])]


def _clear(out: Path) -> None:
    """Remove what an earlier simulation wrote, so that tables of two runs never mix."""
    (out / "meta.json").unlink(missing_ok=True)
    for name in (*TABLES_IN_PARTS, *WHOLE, "pois"):
        (out / f"{name}.parquet").unlink(missing_ok=True)
        directory = out / name
        if directory.is_dir() and all(file.name.endswith((".parquet", ".part")) for file in directory.iterdir()):
            shutil.rmtree(directory)
    out.mkdir(parents=True, exist_ok=True)


def describe(simulation: Simulation, fixes: str | None, phone: str | None, paths: bool) -> dict[str, Any]:
    """What `meta.json` says of a simulation, but for numbers of rows."""
    preset, plan = simulation.preset, simulation.plan or SimulationPlan(simulation.preset.name)
    return (simulation.red_team.describe() if simulation.red_team is not None else {}) | {
        "name": preset.name if plan.variant == "standard" else f"{preset.name} ({plan.variant})",
        "preset": preset.name,
        "variant": plan.variant,
        "seed": simulation.seed,
        "agents": simulation.agents,
        "timezone": preset.timezone,
        "first_day": preset.first_day.isoformat(),
        "days": simulation.days,
        "split": {"test_first": (preset.first_day + timedelta(days=preset.test_day)).isoformat()},
        "fixes": fixes,
        "phone": phone,
        "paths": "roads" if paths or fixes or phone else "ends",
        "dirty": plan.dirty,
        "anomalous_share": preset.anomalous_share,
        "osm": Path(plan.osm).name if plan.osm is not None else None,
    }


def count_rows(events: int, small: dict[str, list[pa.Table]]) -> dict[str, int]:
    """What `meta.json` says of the numbers of stays, and of labels."""
    labels = {"anomalous_agents": "agent_labels", "anomalous_events": "labels"}
    return {"events": events} | {name: sum(table.num_rows for table in small[of]) for name, of in labels.items()}
