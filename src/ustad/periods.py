"""Which events a detector learns from and which it scores: the parts of a data set, by date and by entity."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad import progress
from ustad.config import Config, SplitConfig
from ustad.dataset import Dataset, Split, event_days, require_zone
from ustad.events.encoder import Encoder, EventArrays
from ustad.events.windows import Queries, make_queries, make_windows
from ustad.files import as_table
from ustad.mobility.readers import open_data
from ustad.schema import EventSchema
from ustad.tables import DataError, agent_codes, identity_hash


@dataclass(frozen=True)
class Periods:
    """Training and validation events with their trips; what `fit` learns from."""

    train: pa.Table
    validation: pa.Table
    trips: pa.Table | None
    schema: EventSchema


@dataclass(frozen=True)
class Lessons:
    """What is learned from: training events, and validation events of two halves of the entities."""

    encoder: Encoder
    train: pa.Table
    stopping: pa.Table
    calibration: pa.Table

    @property
    def validation(self) -> pa.Table:
        """Both halves (which are the same table where there is but one entity)."""
        if self.stopping is self.calibration:
            return self.stopping
        return pa.concat_tables([self.stopping, self.calibration])

    def calibration_week(self) -> tuple[pa.Table, int]:
        """The calibrating entities' events with what they did before, and the first day that calibrates."""
        schema, train = self.encoder.schema, self.train
        known = train.filter(pc.is_in(train[schema.entity], pc.unique(self.calibration[schema.entity])))
        week = pa.concat_tables([known, self.calibration], promote_options="permissive")
        return week, int(event_days(self.calibration, schema).min())


def as_data(data: Any, schema: EventSchema | None = None) -> Any:
    """A Dataset as it is or from a path (of events that keep `schema`, where given), else a validated table."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, (str, Path)):
        return open_data(Path(data), schema=schema)
    return open_data(as_table(data), schema=schema).events


def training_periods(data: Any, config: Config) -> Periods:
    """Training and validation events by date. A data set whose `meta["training"]` is true holds no test part."""
    data = as_data(data)
    if isinstance(data, Dataset):
        require_zone(data.events, data.schema)
    if isinstance(data, Dataset) and not data.meta.get("training"):
        split = data.split(config.split)
        train = data.between(split.train_first, split.validation_first - 1)
        validation = data.between(split.validation_first, split.test_first - 1)
        trips, schema = data.trips, data.schema
    else:
        whole = data if isinstance(data, Dataset) else Dataset(events=data)
        schema, trips, days = whole.schema, whole.trips, whole.days()
        before = pa.array(days < _last_quarter(days))
        train, validation = whole.events.filter(before), whole.events.filter(pc.invert(before))
    for table, what in ((train, "training"), (validation, "validation")):
        if table.num_rows == 0:
            raise DataError(f"the {what} part holds no events; choose other dates (split.train_weeks, …)")
    return Periods(train, validation, trips, schema)


def scored_days(data: Dataset, config: SplitConfig, last_day: str | None) -> Split | None:
    """The split whose test part is scored, or None where all of the data is.

    That is where they begin after `last_day`, the last that was trained on (as a date), or are too short to be split.
    """
    first = np.datetime64(int(data.days().min()), "D")
    if last_day is not None and "split" not in data.meta and first > np.datetime64(last_day):
        return None
    try:
        return data.split(config)
    except DataError as error:
        progress.say(f"{error}; all of it is scored")
        return None


def beyond_habits(schema: EventSchema) -> list[str]:
    """Scored features that habits (of place, kind, start and duration) do not look at: an amount, a device."""
    if schema.name == "mobility":
        return []
    kind = next((f.name for f in schema.features if f.kind == "categorical" and f.columns), None)
    return [
        f.name
        for f in schema.features
        if f.scored
        and f.kind != "place"
        and f.source[0] not in ("@minute_of_day", "@duration", "@weekday", schema.habitat)
        and f.name != kind
    ]


def _last_quarter(days: np.ndarray) -> int:
    first, last = int(days.min()), int(days.max())
    if first == last:
        raise DataError("all events lie on one day; at least two days are needed to learn from, weeks are better")
    return last + 1 - max(1, round((last - first + 1) / 4))


def split_entities(validation: pa.Table, entity: str) -> tuple[pa.Table, pa.Table]:
    """Validation events by a hash of the entity: half for early stopping, half for calibration.

    With so few entities that a half would be empty, both use all of them.
    """
    codes, values = agent_codes(validation[entity])
    half = (identity_hash(values) & np.uint64(1)).astype(bool)[codes]
    if half.all() or not half.any():
        return validation, validation
    return validation.filter(pa.array(~half)), validation.filter(pa.array(half))


def query_period(encoder: Encoder, before: pa.Table, period: pa.Table, config: Config) -> tuple[EventArrays, Queries]:
    """Arrays of `period` with what its entities did before, and one query for each event of `period`."""
    schema = encoder.schema
    known = pc.is_in(before[schema.entity], pc.unique(period[schema.entity]))
    arrays = encoder.encode(pa.concat_tables([before.filter(known), period], promote_options="default"))
    first = int(event_days(period, schema).min())
    windows = make_windows(arrays, config.window, first_day=first)
    return arrays, make_queries(arrays, windows, config.window)
