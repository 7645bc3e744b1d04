"""How good the data of each agent is: one row per agent, made while stays are extracted.

In: the fixes that were used and what was found in them. Out: the quality table; `coverage_by_day` for pictures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from ustad.config import ExtractionConfig
from ustad.mobility.core import Step, bounds
from ustad.mobility.joining import LEFT
from ustad.tables import TIMESTAMP

SPARSE_MINUTES = 60.0  # where no gap limit is set, fixes further apart than this cannot tell stays
MICROSECONDS_PER_DAY = 86_400_000_000

#: What each column of the quality table says.
QUALITY_COLUMNS = {
    "agent_id": "the agent",
    "n_fixes": "fixes that were used",
    "first_fix": "time of the first of them",
    "last_fix": "time of the last of them",
    "median_interval_s": "median seconds from one fix to the next",
    "n_gaps": "times without a fix for longer than the gap limit",
    "gap_hours": "hours in gaps, all together",
    "longest_gap_hours": "hours of the longest gap",
    "coverage": "share of the time from first to last fix that is not in a gap",
    "bridged_hours": "hours in gaps that are part of a stay, because it goes on where they end",
    "n_stays": "stays found",
    "n_trips": "trips found",
    "unfinished_last": "the last stay was still going on at the last fix",
    "too_sparse": "fixes are typically further apart than the gap limit: stays cannot be told",
    "n_unsorted": "fixes that came before an earlier one of the same agent and were put in order",
    "n_duplicates": "fixes dropped: a second one of the same moment",
    "n_spikes": "fixes dropped: single ones off their neighbours, or faster to be reached and left than the limit",
    "n_inaccurate": "fixes dropped: worse than the accuracy limit",
}


@dataclass(frozen=True)
class Losses:
    """Counts per agent of what happened before the kernel."""

    n_unsorted: np.ndarray  # int64 [agents]
    inaccurate: np.ndarray  # int64 [agents]


def quality_table(step: Step, agents: pa.Array, drops: Losses, config: ExtractionConfig) -> pa.Table:
    """One row per agent; see `QUALITY_COLUMNS`."""
    n, fixes, result = len(agents), step.fixes, step.scan
    edges = bounds(fixes.agent, n)
    first, last, median = _spans(edges, fixes.time)
    length = (result.gaps["end"] - result.gaps["start"]) / 3.6e9
    longest = np.zeros(n)
    np.maximum.at(longest, result.gaps["agent"], length)
    bridged_s = np.where(result.gaps["cause"] <= LEFT, length, 0.0)
    # Of no gaps at all, numpy counts in integers whatever is added up, and parts of one table must have the same types.
    gap_hours, bridged_hours = (np.bincount(result.gaps["agent"], v, n).astype(np.float64) for v in (length, bridged_s))
    span = np.maximum((last - first) / 3.6e9, 1e-9)
    few = np.diff(edges) < 2
    limit = 60.0 * (config.gap_minutes or SPARSE_MINUTES)
    last_stay = np.zeros(n, bool)
    last_stay[result.stays["agent"][result.stays["unfinished"] == 1]] = True
    nobody = np.diff(edges) == 0
    columns = {
        "agent_id": agents,
        "n_fixes": np.diff(edges),
        "first_fix": pa.array(first, TIMESTAMP, mask=nobody),
        "last_fix": pa.array(last, TIMESTAMP, mask=nobody),
        "median_interval_s": pa.array(median / 1e6, mask=few),
        "n_gaps": np.bincount(result.gaps["agent"], minlength=n),
        "gap_hours": gap_hours,
        "longest_gap_hours": longest,
        "coverage": np.where(few, 0.0, 1.0 - gap_hours / span),
        "bridged_hours": bridged_hours,
        "n_stays": np.bincount(result.stays["agent"], minlength=n),
        "n_trips": np.bincount(result.trips["agent"], minlength=n),
        "unfinished_last": last_stay,
        "too_sparse": few | (median / 1e6 > limit),
        "n_unsorted": drops.n_unsorted,
        "n_duplicates": step.duplicates,
        "n_spikes": step.spikes,
        "n_inaccurate": drops.inaccurate,
    }
    return pa.table(columns)


@numba.njit(cache=True, nogil=True)
def _spans(edges: Any, time: Any) -> Any:
    """First and last time and the median step (the lower of two middle ones) of each agent's fixes."""
    n = len(edges) - 1
    first, last, median = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    steps = np.zeros(max(len(time), 1), np.int64)
    for agent in range(n):
        begin, end = edges[agent], edges[agent + 1]
        if end == begin:
            continue
        first[agent], last[agent] = time[begin], time[end - 1]
        for k in range(begin + 1, end):
            steps[k - begin - 1] = time[k] - time[k - 1]
        if end - begin > 1:
            rank = (end - begin - 2) // 2
            median[agent] = np.partition(steps[: end - begin - 1], rank)[rank]
    return first, last, median


def coverage_by_day(quality: pa.Table, gaps: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Days (UTC, since 1970-01-01) and the share of all agents' time in each that was observed."""
    with_fixes = quality.filter(quality["first_fix"].is_valid())
    starts, ends = (with_fixes[name].cast(pa.int64()).to_numpy() for name in ("first_fix", "last_fix"))
    if not len(starts):
        return np.zeros(0, np.int64), np.zeros(0)
    first, last = int(starts.min() // MICROSECONDS_PER_DAY), int(ends.max() // MICROSECONDS_PER_DAY)
    observed = _per_day(starts, ends, first, last - first + 1)
    start, end = (gaps[name].cast(pa.int64()).to_numpy() for name in ("started_at", "finished_at"))
    observed -= _per_day(start, end, first, last - first + 1)
    return np.arange(first, last + 1), np.clip(observed / len(starts), 0.0, 1.0)


@numba.njit(cache=True)
def _per_day(starts: Any, ends: Any, first: Any, days: Any) -> Any:
    """Agent-days that intervals cover, per day."""
    total = np.zeros(days)
    for k in range(len(starts)):
        for day in range(starts[k] // MICROSECONDS_PER_DAY, ends[k] // MICROSECONDS_PER_DAY + 1):
            begin = day * MICROSECONDS_PER_DAY
            part = min(ends[k], begin + MICROSECONDS_PER_DAY) - max(starts[k], begin)
            if 0 <= day - first < days:
                total[day - first] += part / MICROSECONDS_PER_DAY
    return total
