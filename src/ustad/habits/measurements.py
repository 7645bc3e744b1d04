"""What habits measured of events, as columns of details: what was expected, and the plain facts behind the answers.

In go a habit model, the facts behind its answers and the events; out come arrays in the order of the events.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ustad.events.visits import Visits, read_visits
from ustad.evidence_source import Arrays
from ustad.habits.habit_model import HabitFacts, HabitModel
from ustad.habits.history import Habits
from ustad.habits.questions import Comparison
from ustad.habits.usual import find_homes, usual, usual_columns


def expected_columns(model: HabitModel, facts: HabitFacts, events: pa.Table) -> dict[str, np.ndarray]:
    """What was expected by each entity's own history."""
    visits = read_visits(events, model.schema, model.frame)
    columns: dict[str, np.ndarray] = {}
    for habits in facts.history:
        mine = np.flatnonzero(facts.end[visits.row] == habits.last_day)
        own = visits if len(mine) == len(visits) else visits.take(mine)
        usual_visits = usual(habits, own, facts.comparison.place[own.row], model.widths)
        for name, values in usual_columns(
            habits, model.frame, model.schema, events, visits=own, usual_visits=usual_visits
        ).items():
            columns.setdefault(name, np.empty(len(visits), values.dtype))[own.row] = values
        is_home = _are_at_home(model, facts, own, habits)
        columns.setdefault("at_home", np.zeros(len(visits), bool))[own.row] = is_home
    return columns


def _are_at_home(model: HabitModel, facts: HabitFacts, visits: Visits, habits: Habits) -> np.ndarray:
    """Which visits are where their entity spends its nights; none where events have no length. bool [N]."""
    place = facts.comparison.place[visits.row]
    if model.schema.end is None:
        return np.zeros(len(visits), bool)
    at = np.flatnonzero(place >= 0)
    is_home = np.zeros(len(visits), bool)
    is_home[at] = find_homes(habits, habits.owners(visits)[at]) == place[at]
    return is_home


def fact_columns(facts: HabitFacts) -> dict[str, np.ndarray]:
    """The plain facts behind the answers."""
    return {
        "visits_now": facts.comparison.count,
        "km_from_own_places": facts.comparison.distance,
        "new_place": facts.comparison.place < 0,
    }


def fact_numbers(comparison: Comparison) -> dict[str, Arrays]:
    """Of the questions about a count or a distance: what was observed, and expected where that is known."""
    return {
        "recurrence": {"expected": comparison.before, "observed": comparison.count},
        "distance": {"observed": comparison.distance},
    }
