"""What habits measured of events, as columns of details: what was expected, and the plain facts behind the answers.

In go a habit model, its judgement and the events; out come arrays in the order of the events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.events.visits import Visits, read_visits
from ustad.habits.habit_model import HabitModel, Judged
from ustad.habits.history import Habits
from ustad.habits.usual import find_homes, usual, usual_columns
from ustad.schema import EventSchema


def expected_columns(model: HabitModel, judgement: Judged, events: pa.Table) -> dict[str, np.ndarray]:
    """What was expected by each entity's own history."""
    visits = read_visits(events, model.schema, model.frame)
    columns: dict[str, np.ndarray] = {}
    for habits in judgement.history:
        mine = np.flatnonzero(judgement.end[visits.row] == habits.last_day)
        own = visits if len(mine) == len(visits) else visits.take(mine)
        usual_visits = usual(habits, own, judgement.compared.place[own.row], model.widths)
        for name, values in usual_columns(
            habits, model.frame, model.schema, events, visits=own, found=usual_visits
        ).items():
            columns.setdefault(name, np.empty(len(visits), values.dtype))[own.row] = values
        is_home = _are_at_home(model, judgement, own, habits)
        columns.setdefault("at_home", np.zeros(len(visits), bool))[own.row] = is_home
    return columns


def _are_at_home(model: HabitModel, judgement: Judged, visits: Visits, habits: Habits) -> np.ndarray:
    """Which visits are where their entity spends its nights; none where events have no length. bool [N]."""
    place = judgement.compared.place[visits.row]
    if model.schema.end is None:
        return np.zeros(len(visits), bool)
    at = np.flatnonzero(place >= 0)
    is_home = np.zeros(len(visits), bool)
    is_home[at] = find_homes(habits, habits.owners(visits)[at]) == place[at]
    return is_home


def fact_columns(judgement: Judged) -> dict[str, np.ndarray]:
    """The plain facts behind the answers."""
    return {
        "visits_now": judgement.compared.count,
        "km_from_own_places": judgement.compared.distance,
        "new_place": judgement.compared.place < 0,
    }


def numbers_asked(schema: EventSchema, expected: Mapping[str, Any], judgement: Judged) -> dict[str, dict[str, Any]]:
    """Of the questions about a number: what was expected and observed, and the spread where it is known."""
    numbers: dict[str, dict[str, Any]] = {
        "recurrence": {"expected": judgement.compared.before, "observed": judgement.compared.count},
        "distance": {"observed": judgement.compared.distance},
    }
    questions = {"@minute_of_day": ("start", "memory_start"), "@duration": ("duration", "memory_duration")}
    for feature in schema.features:
        for question in questions.get(feature.source[0], ()) if len(feature.source) == 1 else ():
            facts = {what: expected.get(f"{what}_{feature.name}") for what in ("expected", "observed", "spread")}
            numbers[question] = {what: values for what, values in facts.items() if values is not None}
    return numbers
