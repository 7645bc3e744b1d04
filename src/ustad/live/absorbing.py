"""An entity's own history moves on live: what `habits/stages.py` does in bulk, one entity at a time.

In go its history and its state; out comes the history up to a later day, and the state without what went into it.
"""

from __future__ import annotations

from typing import Any

from ustad.habits.history import Habits, own_keys
from ustad.habits.moving import DAYS_A_WEEK, moved_on, with_end
from ustad.live.habit_state import HabitState
from ustad.live.visit_log import as_visits, log_days, pack_habits

#: Visits held one by one until they enter the history; of an entity with more, the oldest enter it at once.
MOST_VISITS, AT_ONCE = 2048, 256


def absorb(habits: Habits, state: HabitState, entity: Any, end: int) -> Habits:
    """The history up to the local day `end`, week by week; the visits that entered it leave the state's counts."""
    while habits.last_day < end:
        habits = _next(habits, state, entity, end)
    _settle(habits, state, entity)
    return habits


def make_room(habits: Habits, state: HabitState, entity: Any) -> Habits:
    """The history with the oldest visits held, before their time: nothing is lost, and what is held stays bounded."""
    oldest, state.log = state.log[:AT_ONCE], state.log[AT_ONCE:]
    state.early = int(log_days(oldest)[-1])
    habits = moved_on(habits, as_visits(oldest, entity), habits.last_day)
    _settle(habits, state, entity)
    return habits


def _next(habits: Habits, state: HabitState, entity: Any, end: int) -> Habits:
    """A week later, or as many as there are without a visit."""
    stop, days = habits.last_day + DAYS_A_WEEK, log_days(state.log)
    due = int((days <= stop).sum())
    if due:
        week, state.log = state.log[:due], state.log[due:]
        return moved_on(habits, as_visits(week, entity), stop)
    if state.early > habits.last_day:
        return with_end(habits, stop, is_seen=True)
    quiet = min([end, *(days[:1] - 1).tolist()])
    return with_end(habits, habits.last_day + max(1, (quiet - habits.last_day) // DAYS_A_WEEK) * DAYS_A_WEEK)


def _settle(habits: Habits, state: HabitState, entity: Any) -> None:
    """Counts and unnamed places of the visits that are left, and the history itself, into the state."""
    state.own = pack_habits(habits)
    state.counts, state.spots = {}, {}
    visits = as_visits(state.log, entity)
    keys = own_keys(visits, habits).tolist()
    new = (visits.key == 0) & (habits.locate(visits)[0] < 0)
    for key, is_unnamed, x, y in zip(keys, new.tolist(), visits.x.tolist(), visits.y.tolist(), strict=True):
        if is_unnamed:
            state.spots.setdefault(key, (x, y))
        state.count(key)
