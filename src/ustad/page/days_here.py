"""A strip of days around an event: where its agent was at that hour of each, and whether it came here at all.

In: the event and the agent's history, before and after it. Out: a small dictionary for the page. It shows at a glance
whether an unusual event is one of many, the first of a new routine, or stands alone, and on which days nobody looked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ustad.clock import iso_date
from ustad.geo import haversine_km

#: Days shown before and after the event.
BEFORE, AFTER = 28, 14
#: As near as this, a stay without the same place id is at the same place, km.
NEAR_KM = 0.15
MINUTES = 1440.0
#: For so many days the history that events are compared with ends where training did.
HISTORY_STANDS = 28


def days_here(rows: list[Any], columns: dict[str, np.ndarray], at: int) -> dict[str, Any] | None:
    """Around the event at this place of a history; none for events without a place or a length.

    `minute` is the middle of the event's hours on its first day. For each day, `at` is the kind of place where the
    agent was at that minute, null where nobody knows. `here` says whether that was this place. `visits` counts the
    visits to this place that began that day. `incident` says whether one of them belongs to the event's own incident.
    `learnt_until` is the last day learnt from.
    """
    if rows[at]["lat"] is None or rows[at]["lon"] is None or not columns["duration"][at] > 0:
        return None
    start = columns["day"] * MINUTES + columns["minute"]
    today, end = int(columns["day"][at]), start + columns["duration"]
    middle = (start[at] + min(end[at], (today + 1) * MINUTES)) / 2
    is_here, is_own = _find_visits(rows, columns, at), _find_own(rows, at)
    first = max(int(columns["day"].min()), today - BEFORE)
    last = min(int((end.max() - 1e-6) // MINUTES), today + AFTER)
    days = []
    for day in range(first, last + 1):
        moment = middle + (day - today) * MINUTES
        covers = np.flatnonzero((start <= moment) & (moment < end))
        where = int(covers[0]) if len(covers) else -1
        days.append({
            "day": iso_date(day),
            "at": (rows[where]["category"] or "unknown") if where >= 0 else None,
            "here": bool(where >= 0 and is_here[where]),
            "visits": int(np.sum(is_here & (columns["day"] == day))),
            "incident": bool(np.any(is_own & is_here & (columns["day"] == day)) or (where >= 0 and is_own[where])),
        })  # fmt: skip
    last_learnt = max(
        (int(day) for row, day in zip(rows, columns["day"], strict=True) if row["score"] is None), default=None
    )
    until = iso_date(last_learnt) if last_learnt is not None and 0 <= today - last_learnt <= HISTORY_STANDS else None
    return {"minute": float(middle % MINUTES), "today": iso_date(today), "days": days, "learnt_until": until}


def _find_own(rows: list[Any], at: int) -> np.ndarray:
    """The event and the others of its incident. bool [n]."""
    incident = rows[at]["incident"]
    return np.array([i == at or (incident is not None and row["incident"] == incident) for i, row in enumerate(rows)])


def _find_visits(rows: list[Any], columns: dict[str, np.ndarray], at: int) -> np.ndarray:
    """Which events are at the same place: its id, or near it. bool [n]."""
    own = rows[at]
    apart = haversine_km(own["lat"], own["lon"], columns["lat"], columns["lon"])
    same = [own["poi_id"] is not None and row["poi_id"] == own["poi_id"] for row in rows]
    return np.array(same, bool) | (np.nan_to_num(apart, nan=np.inf) <= NEAR_KM)
