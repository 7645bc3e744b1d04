"""Absences as a table: one row for each visit that history made nearly certain and that did not come.

They travel as a list in the table of agents, so that parts and clusters carry them along. The stay that was observed
at that time is named, and its incident where it has one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ustad.events.templates import place_words, say
from ustad.events.visits import kind_feature, place_feature
from ustad.events.words import clock_words
from ustad.habits.absences import Expected
from ustad.habits.expected_kernels import HALF_HOUR
from ustad.habits.habit_model import HabitFacts, HabitModel
from ustad.habits.habit_words import WEEKDAYS
from ustad.habits.kernels import SLOTS
from ustad.habits.own_place_words import days_like
from ustad.tables import TIMESTAMP


def tell_absences(
    model: HabitModel, expected: Expected, surprise: np.ndarray, events: pa.Table
) -> tuple[np.ndarray, pa.Table]:
    """Which of the visits did not come (int64 [M], by when they were expected), and a row for each.

    `surprise` [M] is -log10 p of each. `events` has the columns of the scored ones; `expected.instead` are its rows, -1
    for an earlier event.
    """
    rows = np.flatnonzero(expected.surprise > 0)
    rows = rows[np.lexsort((expected.x[rows], expected.begin[rows]))]
    absences, schema = expected.take(rows), model.schema
    surprise = surprise[rows]
    words = np.array([None, *model.frame.categories], object)[absences.category]
    kind, place = kind_feature(events, schema), place_feature(events, schema)
    columns: dict[str, Any] = {
        "expected_from": pa.array(absences.begin).cast(TIMESTAMP),
        "expected_until": pa.array(absences.end).cast(TIMESTAMP),
    }
    if place is not None and model.frame.projection is not None:
        degrees = model.frame.projection.backward(absences.x, absences.y)
        columns |= dict(zip(place.source, degrees, strict=True))
    if kind is not None:
        columns[kind.columns[0]] = pa.array(words.tolist(), pa.string())
    columns |= {
        "share": absences.there / np.maximum(absences.days, 1.0),
        "days": np.round(absences.days).astype(np.int64),
        "surprise": surprise,
        "p_value": np.power(10.0, -surprise),
        "reason": pa.array([_describe(absences, i, word) for i, word in enumerate(words)], pa.string()),
        f"instead_{schema.time}": pa.array(absences.instead_time).cast(TIMESTAMP),
    }
    index = pa.array(absences.instead, mask=absences.instead < 0)
    for name, column in ((schema.event_id, f"instead_{schema.event_id}"), ("incident_id", "incident_id")):
        if name and name in events.column_names:
            columns[column] = events[name].take(index)
    return rows, pa.table(columns)


def _describe(absences: Expected, i: int, kind: str | None) -> str:
    slot = int(absences.surest[i])
    return say(
        "missed",
        there="at home" if absences.is_home[i] else f"at {place_words(kind)}" if kind else "at their usual place",
        day=WEEKDAYS[(slot // SLOTS + 3) % 7],
        hour=f"about {clock_words(slot % SLOTS * HALF_HOUR)}",
        days=f"{absences.there[i]:.0f}",
        all=f"{absences.days[i]:.0f}",
        which=days_like(bool(absences.is_weekend[i])),
        away="",
    )


def absence_column(
    model: HabitModel, facts: HabitFacts, surprise: np.ndarray | None, event_scores: pa.Table
) -> dict[str, pa.Array]:
    """The absences of each entity, for the table of agents; nothing where they were not looked for."""
    if facts.expected is None or surprise is None:
        return {}
    rows, table = tell_absences(model, facts.expected, surprise, event_scores)
    owner = facts.entity[facts.expected.closed_by[rows]]
    order = np.argsort(owner, kind="stable")
    offsets = np.searchsorted(owner[order], np.arange(len(facts.entity_ids) + 1)).astype(np.int32)
    arrays = [column.combine_chunks() for column in table.take(pa.array(order)).columns]
    return {"absences": pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(arrays, table.column_names))}
