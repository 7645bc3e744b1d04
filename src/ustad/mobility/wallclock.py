"""Times off a wall clock that says nothing of daylight saving, as UTC.

In: naive times, their zone and, for fixes, whose they are. Out: UTC. Daylight saving repeats an hour. Its two passes
are told apart where an agent's fixes are in order. A note says how many fixes fell into it, and how they were read.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import MICROSECONDS_PER_DAY, localise
from ustad.mobility.reading import Reading
from ustad.tables import TIMESTAMP, agent_codes


def from_wall_clock(
    column: pa.ChunkedArray, zone: str, agents: pa.ChunkedArray | None, name: str, *, reading: Reading
) -> pa.ChunkedArray:  # fmt: skip
    """Naive times of one zone as UTC. Daylight saving repeats an hour: a time in it is the later moment if the agent's
    clock was seen to step back before, else the earlier. A time in the skipped hour is null and counted in
    `reading.skipped_hour`."""
    early = localise(column, zone)
    before = pc.assume_timezone(column, zone, ambiguous="earliest", nonexistent="earliest").cast(TIMESTAMP)
    exists = pc.fill_null(pc.equal(early, before), True)
    n_lost = len(column) - pc.sum(exists.cast(pa.int64())).as_py() if len(column) else 0
    if n_lost:
        reading.skipped_hour += n_lost
        column = pc.if_else(exists, column, pa.scalar(None, column.type))
        early = pc.if_else(exists, early, pa.scalar(None, TIMESTAMP))
    late = pc.assume_timezone(column, zone, ambiguous="latest", nonexistent="latest").cast(TIMESTAMP)
    twice = pc.fill_null(pc.not_equal(early, late), False).to_numpy().astype(bool)
    count = int(np.count_nonzero(twice))
    if not count:
        return early
    later = np.zeros(len(column), bool)
    if agents is not None and agents.null_count == 0:
        rows = np.flatnonzero(pc.is_valid(column).to_numpy())
        wall = column.take(pa.array(rows)).cast(pa.int64()).to_numpy()
        later[rows] = after_step_back(wall, agent_codes(agents)[0][rows], twice[rows])
    reading.say(
        f"column '{name}': {count:,} times lie in an hour that daylight saving repeats in {zone}; "
        f"{int(np.count_nonzero(later)):,} were read as the later moment, because the agent's clock steps back "
        "before them, the others as the earlier"
    )
    return pc.if_else(pa.array(later), late, early)


def after_step_back(wall: np.ndarray, agent: np.ndarray, twice: np.ndarray) -> np.ndarray:
    """Which times come after their agent's clock stepped back: bool [n].

    In: wall clock (µs), code of the agent, whether the time exists twice; an agent's rows in the order they came.
    Only agents whose rows are in order but for one such step a day are judged: disorder looks like steps too.
    """
    order = np.argsort(agent, kind="stable")
    w, a, t = wall[order], agent[order], twice[order]
    back = np.zeros(len(w), bool)
    back[1:] = (a[1:] == a[:-1]) & (w[1:] < w[:-1])
    step = back & t
    step[1:] &= t[:-1]
    day = w // MICROSECONDS_PER_DAY
    begins = np.ones(len(w), bool)
    begins[1:] = (a[1:] != a[:-1]) | (day[1:] != day[:-1])
    steps = np.cumsum(step)
    since = steps - (steps - step)[begins][np.cumsum(begins) - 1]
    agents = int(a[-1]) + 1 if len(a) else 0
    disorder = np.bincount(a, (back & ~step) | (since > 1), agents) > 0
    later = np.zeros(len(w), bool)
    later[order] = t & (since == 1) & ~disorder[a]
    return later
