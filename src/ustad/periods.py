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
from ustad.clock import day_number
from ustad.config import Config, SplitConfig
from ustad.dataset import COMPANIONS, Dataset, Split, require_zone
from ustad.files import as_table
from ustad.mobility.readers import open_data
from ustad.schema import EventSchema, plural
from ustad.tables import DataError


@dataclass(frozen=True)
class Periods:
    """Training and validation events with their trips; what `fit` learns from."""

    train: pa.Table
    validation: pa.Table
    trips: pa.Table | None
    schema: EventSchema


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
