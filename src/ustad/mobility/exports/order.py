"""Stays that somebody else found, in order: one agent is at one place at a time. In and out: a table of stays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ustad.mobility.exports.content import times
from ustad.mobility.places import set_columns
from ustad.mobility.reading import Reading
from ustad.tables import agent_codes


def untangle(stays: pa.Table, reading: Reading) -> pa.Table:
    """Stays by agent and start. Of those that start at the same moment the longest is kept; one that goes on when
    the next begins ends there. How many were dropped or cut is said."""
    codes = agent_codes(stays["agent_id"])[0]
    start, end = (stays[name].cast(pa.int64()).to_numpy() for name in ("started_at", "finished_at"))
    order = np.lexsort((-end, start, codes))
    codes, start, end = codes[order], start[order], end[order]
    again = np.zeros(len(order), bool)
    again[1:] = (codes[1:] == codes[:-1]) & (start[1:] == start[:-1])
    if again.any():
        reading.dropped += int(again.sum())
        reading.say(f"dropped: {int(again.sum()):,} stays that start at the same moment as another of their agent")
    codes, start, end = codes[~again], start[~again], end[~again]
    until = end.copy()
    same = codes[1:] == codes[:-1]
    until[:-1][same] = np.minimum(end[:-1], start[1:])[same]
    cut = int(np.count_nonzero(until < end))
    if cut:
        reading.say(f"{cut:,} stays went on when the next began: they end there")
    return set_columns(stays.take(pa.array(order[~again])), finished_at=times(until))
