"""One live event between being read and being judged: all that depends on the events of its entity before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ustad.events.visits import Visits
from ustad.evidence_source import OneAnswer
from ustad.habits.habit_source import HabitSource
from ustad.habits.history import Habits


@dataclass
class LiveEvent:
    """One event that waits to be compared with its entity's history as it is then."""

    row: dict[str, Any]
    before: dict[str, Any] | None  # the row of the event before it
    visits: Visits  # it alone, with the key of its place
    earlier: Visits | None  # the visit before it, where it was seen that it was left
    unseen: dict[str, np.ndarray]
    history: HabitSource  # with the entity's own history as it is then
    place: int  # own place in that history, -1 somewhere new
    key: int
    count: int  # visits to the place so far
    since: int  # the local day from which on they are counted
    change: str | None
    absences: list[dict[str, Any]]
    windows: list[Any]  # what other sources have seen of the entity lately
    answers: list[OneAnswer] = field(default_factory=list)  # of the other sources, in their order

    @property
    def habits(self) -> Habits:
        return self.history.habits
