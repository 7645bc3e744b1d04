"""What sources of evidence learn from: events of the training weeks, and of the week after them by two groups.

In go tables of both; out come groups by a hash of the entity, and what is said of them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad import progress
from ustad.calendar_days import Calendar
from ustad.clock import day_number
from ustad.config import Config
from ustad.dataset import event_days, zone_of
from ustad.events.encoder import Encoder, EventArrays
from ustad.events.windows import Queries, make_queries, make_windows
from ustad.schema import EventSchema
from ustad.tables import agent_codes, identity_hash

#: Days that calibrate at least, where there are twice as many.
WEEK = 7
#: One validation entity in so many stops a network that our judge asks; the others calibrate. Rare p-values want many.
STOPPING = 4


@dataclass(frozen=True)
class Lessons:
    """What is learned from: training events, and validation events of two groups of entities."""

    encoder: Encoder
    train: pa.Table
    stopping: pa.Table
    calibration: pa.Table

    @property
    def schema(self) -> EventSchema:
        return self.encoder.schema

    @property
    def validation(self) -> pa.Table:
        """Both groups (which are the same table where there is but one entity)."""
        if self.stopping is self.calibration:
            return self.stopping
        return pa.concat_tables([self.stopping, self.calibration])

    def facts(self) -> dict[str, Any]:
        """How much was learnt from, of which days, zones and area."""
        schema, train = self.schema, self.train
        days, zone = event_days(train, schema), zone_of(train, schema)
        return {
            "events": train.num_rows,
            "entities": len(pc.unique(train[schema.entity])),
            "validation_events": self.validation.num_rows,
            "first_day": str(np.datetime64(int(days.min()), "D")),
            "last_day": str(np.datetime64(int(days.max()), "D")),
            "learned_until": str(np.datetime64(int(event_days(self.validation, schema).max()), "D")),
            "timezones": [zone] if isinstance(zone, str) else sorted(set(pc.unique(zone).to_pylist())),
            "area": _area(train) if {"lat", "lon"} <= set(train.column_names) else None,
        }

    def days_off(self, calendar: Calendar | None) -> tuple[int, ...]:
        """Days of a calendar that are like weekend days, from the first that is learnt from on."""
        if calendar is None:
            return ()
        facts = self.facts()
        first, last = (day_number(facts[name]) for name in ("first_day", "learned_until"))
        days = calendar.days_off(facts["timezones"], first, last)
        count = sum(first <= day <= last for day in days)
        progress.say(f"like weekend days: {count:,} days off in the weeks learnt from, {len(days) - count:,} later")
        return days

    @property
    def calibrates(self) -> np.ndarray:
        """Rows of the validation events whose entities calibrate: bool [n]."""
        first = 0 if self.stopping is self.calibration else self.stopping.num_rows
        return np.arange(self.validation.num_rows) >= first

    def calibration_week(self) -> tuple[pa.Table, int]:
        """The calibrating entities' events with what they did before, and the first day that calibrates."""
        return self._with_history(self.calibration)

    def stopping_questions(self, config: Config) -> tuple[EventArrays, Queries]:
        """The early-stopping entities' events with what they did before, and a query for each event of validation."""
        week, first = self._with_history(self.stopping)
        arrays = self.encoder.encode(week)
        return arrays, make_queries(arrays, make_windows(arrays, config.window, first_day=first), config.window)

    def _with_history(self, events: pa.Table) -> tuple[pa.Table, int]:
        """Validation events after what their entities did before, and the first day of them."""
        entity, train = self.schema.entity, self.train
        history = train.filter(pc.is_in(train[entity], pc.unique(events[entity])))
        table = pa.concat_tables([history, events], promote_options="permissive")
        return table, int(event_days(events, self.schema).min())


def split_entities(validation: pa.Table, entity: str, one_in: int = 2) -> tuple[pa.Table, pa.Table]:
    """Validation events by a hash of the entity: one entity in so many for early stopping, the others for calibration.

    With so few entities that one of the two would be empty, both use all of them.
    """
    calibrates = calibrating(validation, entity, one_in)
    if calibrates.all():
        return validation, validation
    return validation.filter(pa.array(~calibrates)), validation.filter(pa.array(calibrates))


def calibrating(validation: pa.Table, entity: str, one_in: int = 2) -> np.ndarray:
    """Rows of the entities that calibrate: all but one in so many by a hash, or all where nobody would be left or
    nobody would be left out. bool [n]."""
    codes, values = agent_codes(validation[entity])
    calibrates = (identity_hash(values) % np.uint64(one_in) != 0)[codes]
    return np.ones(len(codes), bool) if calibrates.all() or not calibrates.any() else calibrates


def take_whole_week(train: pa.Table, validation: pa.Table, schema: EventSchema) -> tuple[pa.Table, pa.Table]:
    """Where less than a week calibrates and there are two weeks in all, the last of them: weekends are not as
    weekdays."""
    days = [event_days(table, schema) for table in (train, validation)]
    first, last = (int(days[0].min()), int(days[1].max())) if len(days[0]) and len(days[1]) else (0, 0)
    if last - int(days[1].min(initial=last)) + 1 >= WEEK or last - first + 1 < 2 * WEEK:
        return train, validation
    both = pa.concat_tables([train, validation], promote_options="permissive")
    late = np.concatenate(days) > last - WEEK
    return both.filter(pa.array(~late)), both.filter(pa.array(late))


def _area(events: pa.Table) -> dict[str, float]:
    bounds = {}
    for name in ("lat", "lon"):
        low, high = np.nanquantile(events[name].to_numpy(), [0.001, 0.999])
        bounds[f"{name}_min"], bounds[f"{name}_max"] = round(float(low), 2), round(float(high), 2)
    return bounds
