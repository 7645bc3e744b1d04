"""What nobody saw of events: how much earlier one may have begun, how much later ended, how much of it was silent.

In goes a table with the columns `start_gap_s`, `end_gap_s` and `observed_s`, as far as it has them; out come minutes
by row. A start lies between `early` minutes before its time and that time, an end likewise after it. A table without
the columns was observed throughout, and so was a row that says nothing of either end. A row that says something of one
end only was first or last seen at the other: nothing bounds it there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

#: Columns of seconds not seen before the start, after the end, and seen in between.
START_GAP, END_GAP, OBSERVED = "start_gap_s", "end_gap_s", "observed_s"
GAP_COLUMNS = (START_GAP, END_GAP, OBSERVED)
#: An end that was not observed for longer than this can explain an odd start or duration, minutes.
UNOBSERVED_MINUTES = 30.0
DAY_MINUTES = 1440.0
#: What can have been observed of the two ends of an event, by whether the start and whether the end was not.
ENDS_SEEN = ("both", "start", "end", "neither")
#: A start or an end that is unknown by so many minutes counts half in what is learned.
HALF_KNOWN = 40.0


def read_gaps(events: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Minutes that each event may have begun earlier and ended later, infinite where nothing bounds it: 2 x [N]."""
    early, late = (_minutes(events, name) for name in (START_GAP, END_GAP))
    nothing = np.isnan(early) & np.isnan(late)
    has = [name in events.column_names for name in (START_GAP, END_GAP)]
    return tuple(  # type: ignore[return-value]  # two of them
        np.where(nothing | (not there), 0.0, np.where(np.isnan(gap), np.inf, np.maximum(gap, 0.0)))
        for gap, there in zip((early, late), has, strict=True)
    )


def gap_minutes(event: Mapping[str, Any]) -> tuple[float, float]:
    """What `read_gaps` tells of a table, of one event."""
    gaps = [gap if gap == gap else None for gap in (event.get(name) for name in (START_GAP, END_GAP))]
    has = [name in event for name in (START_GAP, END_GAP)]
    if gaps == [None, None]:
        return 0.0, 0.0
    start, end = (
        (math.inf if gap is None else max(gap, 0.0) / 60.0) if there else 0.0
        for gap, there in zip(gaps, has, strict=True)
    )
    return start, end


def unseen_ends(event: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether start and end of one event were not observed for long."""
    start, end = gap_minutes(event)
    return start > UNOBSERVED_MINUTES, end > UNOBSERVED_MINUTES


def read_ends_seen(events: pa.Table) -> np.ndarray:
    """Which ends of each event were observed, as an index into `ENDS_SEEN`: int64 [N]."""
    early, late = (gap > UNOBSERVED_MINUTES for gap in read_gaps(events))
    return 2 * early + late


def ends_seen(event: Mapping[str, Any]) -> str:
    """What `read_ends_seen` tells of a table, of one event, in words."""
    early, late = unseen_ends(event)
    return ENDS_SEEN[2 * early + late]


def read_silence(events: pa.Table, duration: np.ndarray) -> np.ndarray:
    """Minutes of each event (of `duration` [N] minutes) that there were no data for: float64 [N], 0 where not told."""
    minutes = _minutes(events, OBSERVED)
    return np.nan_to_num(np.maximum(duration - minutes, 0.0))


def start_weight(early: np.ndarray) -> np.ndarray:
    """How much a start counts in what is learned: 1 where it was observed."""
    return HALF_KNOWN / (HALF_KNOWN + np.minimum(early, DAY_MINUTES))


def length_weight(early: np.ndarray, late: np.ndarray) -> np.ndarray:
    """How much a duration counts in what is learned: 1 where both ends were observed."""
    return start_weight(early) * start_weight(late)


def _minutes(events: pa.Table, name: str) -> np.ndarray:
    """A column of seconds in minutes, NaN where there is none."""
    if name not in events.column_names:
        return np.full(events.num_rows, np.nan)
    return events[name].cast(pa.float64()).to_numpy(zero_copy_only=False) / 60.0
