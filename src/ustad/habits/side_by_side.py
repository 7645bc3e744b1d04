"""Histories of single entities: one visit in one of them, and many of them side by side in one.

In go histories of at most one entity each, all up to the same day; out comes one history of all of them. What each of
them has worked out about itself already is not worked out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ustad.events.visits import Visits
from ustad.habits.history import NEXT_DOOR_KM, SAME_PLACE_KM, Habits
from ustad.habits.kernels import locate_one
from ustad.habits.leaving import visit_ends
from ustad.ties import raised

#: What a history works out about itself, one value for each entity, place or visit.
_WORKED_OUT = (
    "place_since",
    "known_since",
    "entity_since",
    "visit_day",
    "visit_weekend",
    "visit_log_duration",
    "visit_start_weight",
    "visit_length_weight",
    "usual_silence",
)
_NEAR, _NEXT_DOOR = raised(SAME_PLACE_KM), raised(NEXT_DOOR_KM)
#: Where `once_per_history` remembers `visit_ends`.
_ENDS = "ustad.habits.leaving.visit_ends"
_COLUMNS = tuple(
    field.name
    for field in fields(Habits)
    if field.name.startswith(("entity_", "place_", "visit_")) and not field.name.endswith("_offsets")
)


def locate_alone(habits: Habits, visits: Visits) -> tuple[int, int]:
    """`habits.locate` of the only visit, in a history of at most its entity; -1 and 0 at an unnamed place that is
    new."""
    if not len(habits.entity_key) or habits.entity_key[0] != visits.entity_key[0]:
        return -1, int(visits.key[0])
    place, key = locate_one(
        visits.key[0], visits.x[0], visits.y[0], habits.place_key, habits.place_x, habits.place_y, _NEAR, _NEXT_DOOR
    )
    return int(place), int(key)


def side_by_side(histories: Sequence[Habits]) -> Habits:
    """One history of all; no two are of one entity. Those of strangers, which hold nothing, add nothing."""
    own = sorted((one for one in histories if len(one.entity_key)), key=lambda one: int(one.entity_key[0]))
    if len(own) <= 1:
        return own[0] if own else histories[0]
    columns: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in own]) for name in _COLUMNS}
    places = np.array([0, *(len(one.place_key) for one in own)])
    visits = np.concatenate([[0], *(np.diff(one.visit_offsets) for one in own)])
    habits = replace(own[0], **columns, place_offsets=np.cumsum(places), visit_offsets=np.cumsum(visits))
    for name in _WORKED_OUT:
        habits.__dict__[name] = np.concatenate([getattr(one, name) for one in own])
    ends = zip(*(visit_ends(one) for one in own), strict=True)
    habits.__dict__[_ENDS] = tuple(np.concatenate(parts) for parts in ends)
    return habits
