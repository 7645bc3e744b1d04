"""Whether entities spread their visits over their places differently than before: a G-test against their history.

In go habits and the visits of a period; out comes one value per entity, larger where more has changed.
"""

from __future__ import annotations

import numpy as np

from ustad.events.visits import Visits
from ustad.habits.history import Habits
from ustad.habits.moving import DAYS_A_WEEK

#: Visits that the history of each place is worth more than counted, against zeros in the G-test.
PROFILE_PRIOR = 0.5


def profile_change(habits: Habits, visits: Visits, since: int) -> np.ndarray:
    """G of each entity's visits over own places and elsewhere, against its history, mean over weeks: [E].

    By weeks from the local day `since` on, so that a longer period is as large as the reference week. Each is
    2 Σ n log(n / expected).
    """
    E = len(visits.entity_ids)
    place, _ = habits.locate(visits)
    owner = habits.owners(visits)
    week = np.maximum(visits.day - since, 0) // DAYS_A_WEEK
    weeks = int(week.max()) + 1
    cell = np.where(place >= 0, place, len(habits.place_key) + visits.entity)  # everything new is one cell
    cells = len(habits.place_key) + E
    together, index, count = np.unique(
        (visits.entity * weeks + week) * cells + cell, return_index=True, return_counts=True
    )
    group = together // cells
    total = np.bincount(group, count, E * weeks)
    places = np.append(np.diff(habits.place_offsets), 0)[owner][index]
    history_total = np.append(_history_visits(habits), 0.0)[owner][index]
    history_count = habits.visits_at(place[index])
    share = (history_count + PROFILE_PRIOR) / (history_total + PROFILE_PRIOR * (places + 1))
    surprise = 2 * count * np.log(count / (total[group] * share))
    by_week = np.bincount(group, surprise, E * weeks).reshape(E, weeks)
    return by_week.sum(axis=1) / np.maximum((total.reshape(E, weeks) > 0).sum(axis=1), 1)


def _history_visits(habits: Habits) -> np.ndarray:
    """How many visits each entity's history holds: float64 [E]."""
    owner = np.repeat(np.arange(len(habits.entity_key)), np.diff(habits.place_offsets))
    return np.bincount(owner, habits.place_count, len(habits.entity_key))
