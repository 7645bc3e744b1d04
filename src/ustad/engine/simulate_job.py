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

from ustad.engine.cluster import connected
from ustad.engine.folder import Place
from ustad.engine.jobs import Job, Task
from ustad.simulate.phones import Recording
from ustad.simulate.rows import poi_table
from ustad.simulate.setting import Simulation
from ustad.simulate.simulation import (
    AGENTS_A_PART,
    PARTED,
    WHOLE,
    describe,
    plan_simulation,
    write_part,
    written_tables,
)


@dataclass(frozen=True)
class _Wanted:
    """The arguments that decide a simulation."""

    preset: str
    agents: int | None
    seed: int
    days: int | None
    variant: str
    dirty: float
    anomalous_share: float | None
    osm: Path | None
    timezone: str | None
    red_team: str
    red_team_kind: str
    red_team_size: float

    def simulation(self) -> Simulation:
        """The city and its people, made once per process: cheaper than sending them."""
        return _made(self)


@lru_cache(maxsize=1)
def _made(wanted: _Wanted) -> Simulation:
    return plan_simulation(**vars(wanted))


@dataclass(frozen=True)
class _Shared:
    wanted: _Wanted
    paths: bool
    recording: Recording | None
    alone: bool
    tables: Place


def simulate(
    preset: str, agents: int | None, seed: int, out: Path | str, fixes: str | None = None, days: int | None = None,
    paths: bool = False, variant: str = "standard", dirty: float = 0.0, workers: int = 0,
    anomalous_share: float | None = None, osm: Path | None = None, timezone: str | None = None,
    agents_a_part: int = AGENTS_A_PART, address: str | None = None, phone: str | None = None,
    red_team: str = "first", red_team_kind: str = "all", red_team_size: float = 1.0,
) -> dict[str, Any]:  # fmt: skip
    """Simulate on a Ray cluster; `out` may be a URI. Otherwise as the local `simulate`, and with the same tables."""
    request = _Wanted(
        preset, agents, seed, days, variant, dirty, anomalous_share, osm, timezone, red_team, red_team_kind,
        red_team_size,
    )  # fmt: skip
    simulation, place = request.simulation(), Place.of(out)
    parts = range(0, simulation.agents, agents_a_part)
    recording = Recording.of(fixes, phone)
    with connected(address, workers) as cluster:
        job = Job.open(place, "simulate", [vars(request), fixes, paths, agents_a_part, phone], cluster)
        shared = _Shared(request, paths, recording, len(parts) == 1, job.place / "tables")
        last = [min(simulation.agents, first + agents_a_part) for first in parts]
        tasks = [Task(f"{first:08d}", (first, stop)) for first, stop in zip(parts, last, strict=True)]
        counts = job.run("parts", tasks, _part, shared, "simulating, parts of the agents")
        small = {n: [shared.tables.read_table(f"small/{n}/{task.name}.parquet") for task in tasks] for n in WHOLE}
        for name in written_tables(simulation, small):
            shared.tables.write_table(pa.concat_tables(small[name]), f"{name}.parquet")
        shared.tables.write_table(poi_table(simulation), "pois.parquet")
        meta = describe(simulation, variant, fixes, paths, dirty=dirty, osm=osm, phone=phone)
        meta["events"] = sum(c["events"] for c in counts)
        meta["anomalous_agents"] = sum(table.num_rows for table in small["agent_labels"])
        meta["anomalous_events"] = sum(table.num_rows for table in small["labels"])
        job.finish()
        place.replace_tables((*PARTED, *WHOLE, "pois"), shared.tables, "meta.json", meta)
        job.close()
    return meta


def _part(payload: tuple[int, int], shared: _Shared) -> dict[str, Any]:
    """One part, made in a local folder and then brought to where it belongs."""
    first, last = payload
    with tempfile.TemporaryDirectory(prefix="ustad-") as folder:
        simulation = shared.wanted.simulation()
        events, small = write_part(
            simulation, first, last, shared.paths, recording=shared.recording, out=Path(folder), alone=shared.alone
        )
        shared.tables.take_in(Path(folder))
    for name, table in small.items():
        shared.tables.write_table(table, f"small/{name}/{first:08d}.parquet")
    return {"events": events}
