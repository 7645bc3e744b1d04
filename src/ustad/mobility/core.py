"""Fixes to stays, trips and gaps: the arrays of a partition of agents through the kernel, and tables out of it.

`advance` is what batch extraction and `StayTracker` share. In: fixes as arrays and what is remembered; out:
tables, counts per agent, and what is to be remembered for the next fixes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cache

import numpy as np
import pyarrow as pa

from ustad.mobility.joining import CAUSE_NAMES
from ustad.mobility.sphere import degrees, sphere_points
from ustad.mobility.staypoints import GAP, MICROSECONDS, NEVER_SEEN, STAY, TRIP, Limits, Scan, clean, scan
from ustad.mobility.trips import trip_table
from ustad.tables import TIMESTAMP, event_keys


@dataclass(frozen=True)
class Fixes:
    """Fixes as arrays; `agent` numbers the agents of a partition."""

    agent: np.ndarray  # int64 [n]
    time: np.ndarray  # int64 [n], microseconds since 1970 in UTC
    lat: np.ndarray  # float64 [n]
    lon: np.ndarray  # float64 [n]
    accuracy: np.ndarray  # float32 [n]: the radius that holds two of three errors, metres; 0: not known

    def __len__(self) -> int:
        return len(self.agent)

    def take(self, rows: np.ndarray | slice) -> Fixes:
        """The rows given by number, by mask or as a range."""
        return Fixes(*(getattr(self, name)[rows] for name in COLUMNS))

    def join(self, other: Fixes) -> Fixes:
        return concatenate([self, other])

    def of(self, agent: np.ndarray) -> Fixes:
        """The same fixes, their agents numbered otherwise."""
        return replace(self, agent=agent)


COLUMNS = tuple(f.name for f in fields(Fixes))


def no_fixes() -> Fixes:
    return Fixes(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0, np.float32))


def concatenate(parts: list[Fixes]) -> Fixes:
    """One copy of all parts: writable, so that the kernels are compiled for one kind of array only."""
    return Fixes(*(np.concatenate([getattr(p, name) for p in parts]) for name in COLUMNS)) if parts else no_fixes()


def fix_arrays(table: pa.Table, agent: np.ndarray) -> Fixes:
    """The arrays of a valid table of fixes, whose agents have these numbers."""
    accuracy = np.zeros(table.num_rows, np.float32)
    if "accuracy_m" in table.column_names:
        accuracy = np.nan_to_num(table["accuracy_m"].to_numpy().astype(np.float32))
    return Fixes(
        agent, table["time"].cast(pa.int64()).to_numpy(), table["lat"].to_numpy(), table["lon"].to_numpy(), accuracy
    )


@dataclass(frozen=True)
class Step:
    """What one step found, and what the next one needs."""

    scan: Scan
    fixes: Fixes  # the fixes that the scan's trips number
    points: np.ndarray  # of the kept fixes, [n, 3]
    duplicates: np.ndarray  # int64 [agents]
    spikes: np.ndarray  # int64 [agents]
    pending: Fixes = field(default_factory=no_fixes)  # not decided yet: come first in the next step
    carry: Fixes = field(default_factory=no_fixes)  # behind the kernel, but a trip or a cluster still needs them


def advance(fixes: Fixes, carry: Fixes, state: np.ndarray, limits: Limits, *, final: bool) -> Step:
    """Take fixes that are in order of agent and time; `state` is updated in place."""
    points = sphere_points(fixes.lat, fixes.lon)
    cleaning = clean(bounds(fixes.agent, len(state)), fixes.time, points, state, limits=limits, final=final)
    clean_fixes, pending = fixes, no_fixes()
    if not cleaning.keep.all():
        clean_fixes, points = fixes.take(cleaning.keep), points[cleaning.keep]
        pending = fixes.take(cleaning.pending)
    resume = bounds(clean_fixes.agent, len(state))[:-1]
    if len(carry):
        clean_fixes, points, resume = _after_carry(carry, clean_fixes, len(state))
    offsets = bounds(clean_fixes.agent, len(state))
    result = scan(
        offsets,
        resume,
        clean_fixes.time,
        points,
        accuracy=clean_fixes.accuracy,
        state=state,
        limits=limits,
        final=final,
    )
    left = no_fixes() if final else clean_fixes.take(result.is_needed)
    return Step(result, clean_fixes, points, cleaning.duplicates, cleaning.spikes, pending, left)


def bounds(agent: np.ndarray, agents: int) -> np.ndarray:
    """Where each agent's rows begin among rows sorted by agent: int64 [agents + 1]."""
    return np.searchsorted(agent, np.arange(agents + 1)).astype(np.int64)


def _after_carry(carry: Fixes, fixes: Fixes, agents: int) -> tuple[Fixes, np.ndarray, np.ndarray]:
    """Each agent's carried fixes, then its new ones; and where the new ones begin."""
    both = carry.join(fixes)
    both = both.take(np.argsort(both.agent, kind="stable"))
    starts = bounds(both.agent, agents)[:-1]
    return both, sphere_points(both.lat, both.lon), starts + np.bincount(carry.agent, minlength=agents)


# ------------------------------------------------------------------------------------------------- tables
@dataclass(frozen=True)
class StayTables:
    """Stays, trips and gaps as tables."""

    stays: pa.Table
    trips: pa.Table
    gaps: pa.Table


def to_tables(step: Step, agents: pa.Array) -> StayTables:
    """The step's findings as tables; `agents` are the identifiers that it numbers."""
    clean_fixes, scan = step.fixes, step.scan
    if not (len(scan.stays) or len(scan.trips) or len(scan.gaps)):
        return find_nothing(agents.type)
    trips = trip_table(scan.trips, agents, clean_fixes.time, clean_fixes.lat, lon=clean_fixes.lon, points=step.points)
    return StayTables(stay_table(scan.stays, agents), trips, gap_table(scan.gaps, agents))


@cache
def find_nothing(identifier: pa.DataType) -> StayTables:
    """Tables without a row. Most single fixes finish nothing, and tables take longer to make than the kernel runs."""
    agents, none = pa.array([], identifier), np.zeros(0)
    trips = trip_table(np.zeros(0, TRIP), agents, none.astype(np.int64), none, lon=none, points=np.zeros((0, 3)))
    return StayTables(stay_table(np.zeros(0, STAY), agents), trips, gap_table(np.zeros(0, GAP), agents))


def stay_table(stays: np.ndarray, agents: pa.Array) -> pa.Table:
    """Stays with the columns of the contract that fixes alone can tell."""
    agent, starts = agents.take(pa.array(stays["agent"])), pa.array(stays["start"], TIMESTAMP)
    lat, lon = degrees(stays["x"], stays["y"], stays["z"])
    return pa.table(
        {
            "stay_id": pa.array(event_keys(agent, starts)),
            "agent_id": agent,
            "started_at": starts,
            "finished_at": pa.array(stays["end"], TIMESTAMP),
            "lat": pa.array(lat),
            "lon": pa.array(lon),
            "n_fixes": pa.array(stays["count"].astype(np.int32)),
            "start_gap_s": _seconds(stays["start_gap"]),
            "end_gap_s": _seconds(stays["end_gap"]),
            "observed_s": pa.array(stays["observed"] / MICROSECONDS),
        }
    )


def gap_table(gaps: np.ndarray, agents: pa.Array) -> pa.Table:
    return pa.table(
        {
            "agent_id": agents.take(pa.array(gaps["agent"])),
            "started_at": pa.array(gaps["start"], TIMESTAMP),
            "finished_at": pa.array(gaps["end"], TIMESTAMP),
            "cause": pa.array(CAUSE_NAMES).take(pa.array(gaps["cause"])),
        }
    )


def _seconds(gap: np.ndarray) -> pa.Array:
    return pa.array(gap / MICROSECONDS, pa.float64(), mask=gap == NEVER_SEEN)
