"""`ustad simulate --engine ray`: parts of the agents made wherever there is a free core.

A part depends on nothing but the simulation and its range of agents, so the tables are those of a local run, file by
file.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from ustad.engine.cluster import connect
from ustad.engine.folder import Place
from ustad.engine.jobs import Job, Task
from ustad.simulate.phones import Recording
from ustad.simulate.rows import poi_table
from ustad.simulate.setting import Simulation, SimulationPlan
from ustad.simulate.simulation import (
    AGENTS_A_PART,
    TABLES_IN_PARTS,
    WHOLE,
    count_rows,
    describe,
    write_part,
    written_tables,
)


@lru_cache(maxsize=1)
def _prepare(plan: SimulationPlan) -> Simulation:
    """The city and its people, made once per process: cheaper than sending them."""
    return plan.prepare()


@dataclass(frozen=True)
class _Context:
    plan: SimulationPlan
    paths: bool
    recording: Recording | None
    alone: bool
    tables: Place


def simulate(
    preset: str, agents: int | None, seed: int, out: Path | str, *, fixes: str | None = None, days: int | None = None,
    paths: bool = False, phone: str | None = None, workers: int = 0, agents_a_part: int = AGENTS_A_PART,
    address: str | None = None, **wishes: Any,
) -> dict[str, Any]:  # fmt: skip
    """Simulate on a Ray cluster; `out` may be a URI. Otherwise as the local `simulate`, and with the same tables."""
    plan = SimulationPlan(preset, agents, seed, days, **wishes)
    simulation, place = _prepare(plan), Place.of(out)
    parts = range(0, simulation.agents, agents_a_part)
    recording = Recording.of(fixes, phone)
    with connect(address, workers) as cluster:
        job = Job.open(place, "simulate", [vars(plan), fixes, paths, agents_a_part, phone], cluster)
        context = _Context(plan, paths, recording, len(parts) == 1, job.place / "tables")
        last = [min(simulation.agents, first + agents_a_part) for first in parts]
        tasks = [Task(f"{first:08d}", (first, stop)) for first, stop in zip(parts, last, strict=True)]
        counts = job.run("parts", tasks, _part, context, label="simulating, parts of the agents")
        small = {n: [context.tables.read_table(f"small/{n}/{task.name}.parquet") for task in tasks] for n in WHOLE}
        for name in written_tables(simulation, small):
            context.tables.write_table(pa.concat_tables(small[name]), f"{name}.parquet")
        context.tables.write_table(poi_table(simulation), "pois.parquet")
        meta = describe(simulation, fixes, phone, paths) | count_rows(sum(c["events"] for c in counts), small)
        job.finish()
        place.replace_tables((*TABLES_IN_PARTS, *WHOLE, "pois"), context.tables, "meta.json", meta)
        job.close()
    return meta


def _part(payload: tuple[int, int], context: _Context) -> dict[str, Any]:
    """One part, made in a local folder and then brought to where it belongs."""
    first, last = payload
    with tempfile.TemporaryDirectory(prefix="ustad-") as folder:
        simulation = _prepare(context.plan)
        events, small = write_part(
            simulation, first, last, context.paths, recording=context.recording, out=Path(folder), alone=context.alone
        )
        context.tables.take_in(Path(folder))
    for name, table in small.items():
        context.tables.write_table(table, f"small/{name}/{first:08d}.parquet")
    return {"events": events}
