"""Which events a detector learns from and which it scores: the parts of a data set, by date and by entity."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad import progress
from ustad.calendar_days import Calendar
from ustad.card import area
from ustad.clock import day_number
from ustad.config import Config, SplitConfig
from ustad.dataset import COMPANIONS, Dataset, Split, event_days, require_zone, zone_of
from ustad.events.encoder import Encoder, EventArrays
from ustad.events.windows import Queries, make_queries, make_windows
from ustad.files import as_table
from ustad.mobility.readers import open_data
from ustad.schema import EventSchema, plural
from ustad.tables import DataError, agent_codes, identity_hash

#: Days that calibrate at least, where there are twice as many.
WEEK = 7
#: One validation entity in so many stops a network that our judge asks; the others calibrate. Rare p-values want many.
STOPPING = 4


@dataclass(frozen=True)
class Periods:
    """Training and validation events with their trips; what `fit` learns from."""

    train: pa.Table
    validation: pa.Table
    trips: pa.Table | None
    schema: EventSchema


@dataclass(frozen=True)
class Lessons:
    """What is learned from: training events, and validation events of two groups of entities."""

    encoder: Encoder
    train: pa.Table
    stopping: pa.Table
    calibration: pa.Table

    @property
    def validation(self) -> pa.Table:
        """Both groups (which are the same table where there is but one entity)."""
        if self.stopping is self.calibration:
            return self.stopping
        return pa.concat_tables([self.stopping, self.calibration])

    def facts(self) -> dict[str, Any]:
        """How much was learnt from, of which days, zones and area."""
        schema, train = self.encoder.schema, self.train
        days, zone = event_days(train, schema), zone_of(train, schema)
        return {
            "events": train.num_rows,
            "entities": len(pc.unique(train[schema.entity])),
            "validation_events": self.validation.num_rows,
            "first_day": str(np.datetime64(int(days.min()), "D")),
            "last_day": str(np.datetime64(int(days.max()), "D")),
            "learned_until": str(np.datetime64(int(event_days(self.validation, schema).max()), "D")),
            "timezones": [zone] if isinstance(zone, str) else sorted(set(pc.unique(zone).to_pylist())),
            "area": area(train) if {"lat", "lon"} <= set(train.column_names) else None,
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

    def calibration_week(self) -> tuple[pa.Table, int]:
        """The calibrating entities' events with what they did before, and the first day that calibrates."""
        schema, train = self.encoder.schema, self.train
        history = train.filter(pc.is_in(train[schema.entity], pc.unique(self.calibration[schema.entity])))
        week = pa.concat_tables([history, self.calibration], promote_options="permissive")
        return week, int(event_days(self.calibration, schema).min())


def as_data(data: Any, schema: EventSchema | None = None, companions: Collection[str] = COMPANIONS) -> Dataset:
    """A Dataset as it is, or from a path or a table (of events that keep `schema`, where given), validated."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, (str, Path)):
        return open_data(Path(data), schema=schema, companions=companions)
    return open_data(as_table(data), schema=schema)


def adopt_extraction(config: Config, data: Dataset) -> Config:
    """The configuration with the settings by which the data's stays were made, where the data say so."""
    names = config.to_dict()["extraction"]
    adopted_values = {k: v for k, v in (data.meta.get("extraction") or {}).items() if k in names}
    return config.replace({f"extraction.{name}": value for name, value in adopted_values.items()})


def check_extraction(config: Config, names: list[str], data: Dataset) -> None:
    """Refuse stays that were made by other settings than the model's; `names` are the settings compared."""
    ours, theirs = config.to_dict()["extraction"], data.meta.get("extraction") or {}
    other = [n for n in names if n in ours and n in theirs and n != "poi_radius_m" and ours[n] != theirs[n]]
    if other:
        changes = ", ".join(f"{n} {theirs[n]}, the model's {ours[n]}" for n in other)
        raise DataError(f"{data.name}: its stays were extracted otherwise than those the model learnt from ({changes})")


def training_periods(data: Any, config: Config, everything: bool = False) -> Periods:
    """Training and validation events by date.

    With `everything`, and of a data set whose `meta["training"]` is true, all is learnt from: its last quarter of days
    is the validation part.
    """
    data = as_data(data)
    require_zone(data.events, data.schema)
    if everything or data.meta.get("training"):
        days = data.days()
        before = pa.array(days < _last_quarter(days))
        train, validation = data.events.filter(before), data.events.filter(pc.invert(before))
    else:
        split = data.split(config.split)
        train = data.between(split.train_first, split.validation_first - 1)
        validation = data.between(split.validation_first, split.validation_last)
        _tell_split(split, data, train)
    for table, what in ((train, "training"), (validation, "validation")):
        if table.num_rows == 0:
            raise DataError(f"the {what} part holds no events; choose other dates (--train-until, split.train_weeks)")
    return Periods(train, validation, data.trips, data.schema)


def _tell_split(split: Split, data: Dataset, train: pa.Table) -> None:
    """One line on what is learnt from; a warning where that holds few entities, or would by the weeks."""
    (progress.warn if split.uneven else progress.say)(split.describe())
    entity, words = data.schema.entity, plural(data.schema.entity_word)
    entities = pc.unique(data.between(split.test_first, split.test_last)[entity])
    count = pc.sum(pc.is_in(entities, pc.unique(train[entity])).cast(pa.int64())).as_py() or 0
    if 2 * count < len(entities):
        progress.warn(
            f"training holds {count:,} of the {len(entities):,} {words} that are to be scored: the others are new to "
            "the model; choose other dates with --train-until"
        )


def scored_days(
    data: Dataset, config: SplitConfig, last_day: str | None, learned_until: str | None = None
) -> Split | None:  # fmt: skip
    """The split whose test part is scored, or None where all of the data is.

    That is where they begin after `last_day`, the last that was trained on (as a date), or are too short to be split.
    Data that a model learnt from until `learned_until` (with its validation week) are scored from the day after.
    """
    days = data.days()
    first, last = (int(d) for d in (days.min(), days.max()))
    own = "split" in data.meta or bool(config.test_from)
    if last_day is not None and not own and first > day_number(last_day):
        return None
    if last_day is not None and learned_until is not None and not own and first <= day_number(learned_until) < last:
        return Split(first, day_number(last_day) + 1, day_number(learned_until) + 1, last)
    try:
        split = data.split(config)
    except DataError as error:
        progress.say(f"{error}; all of it is scored")
        return None
    if learned_until is not None and split.test_first <= day_number(learned_until) and "split" not in data.meta:
        progress.warn(
            f"the model learnt from days until {learned_until}, some of which are scored here; learn from earlier ones "
            "(--train-until) or score later ones (--test-from)"
        )
    return split


def _last_quarter(days: np.ndarray) -> int:
    first, last = int(days.min()), int(days.max())
    if first == last:
        raise DataError("all events lie on one day; at least two days are needed to learn from, weeks are better")
    return last + 1 - max(1, round((last - first + 1) / 4))


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


def query_period(encoder: Encoder, before: pa.Table, period: pa.Table, config: Config) -> tuple[EventArrays, Queries]:
    """Arrays of `period` with what its entities did before, and one query for each event of `period`."""
    schema = encoder.schema
    is_needed = pc.is_in(before[schema.entity], pc.unique(period[schema.entity]))
    arrays = encoder.encode(pa.concat_tables([before.filter(is_needed), period], promote_options="default"))
    first = int(event_days(period, schema).min())
    windows = make_windows(arrays, config.window, first_day=first)
    return arrays, make_queries(arrays, windows, config.window)
