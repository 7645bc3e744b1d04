"""A data directory: the tables of one data set, what was said about it, and its split by date.

Layout on disk: each table is `NAME.parquet` or a directory `NAME/` of parts (`stays`, `trips`, `gaps`, `pois`,
`labels`, `agent_labels`, `fixes`, `quality`), beside `meta.json`. Events of any other kind are one table and a
schema.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import day_number, is_zone, iso_date, local_days
from ustad.config import SplitConfig
from ustad.files import find_table, read_json, read_table, write_json, write_table
from ustad.schema import EventSchema, mobility_schema
from ustad.tables import DataError, agent_codes

#: So many times the configured weeks are long: only the last weeks are scored then; by events, these shares.
LONG, LONG_SHARES = 3, np.array([0.75, 0.125, 0.125])
#: Tables that a data directory may hold beside its events.
COMPANIONS = ("trips", "gaps", "pois", "labels", "agent_labels", "quality")


@dataclass(frozen=True)
class Split:
    """First local days (since 1970-01-01) of validation and test; the day after the last of test."""

    train_first: int
    validation_first: int
    test_first: int
    test_last: int  # inclusive
    learned_last: int | None = None  # last day of validation, where the test does not begin on the day after
    rule: str = ""  # why the dates are these, where it is not by the configured weeks
    uneven: bool = False  # few of the entities are there in some part by weeks: worth a warning

    @property
    def validation_last(self) -> int:
        return self.test_first - 1 if self.learned_last is None else self.learned_last

    def describe(self) -> str:
        """Dates as people read them."""

        return (
            f"train {iso_date(self.train_first)} … {iso_date(self.validation_first - 1)}, "
            f"validation … {iso_date(self.validation_last)}, test "
            f"{'' if self.learned_last is None else iso_date(self.test_first) + ' '}… {iso_date(self.test_last)}"
            f"{f' ({self.rule})' if self.rule else ''}"
        )


@dataclass(frozen=True)
class Dataset:
    """Events with their companions. `meta` is what the maker wrote: name, seed, span, split, time zone."""

    events: pa.Table
    schema: EventSchema = field(default_factory=mobility_schema)
    trips: pa.Table | None = None
    gaps: pa.Table | None = None
    pois: pa.Table | None = None
    labels: pa.Table | None = None  # by event
    agent_labels: pa.Table | None = None
    quality: pa.Table | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    @property
    def name(self) -> str:
        return str(self.meta.get("name") or (self.path.name if self.path else self.schema.name))

    def _repr_html_(self) -> str:
        from ustad.notebook import dataset_html

        return dataset_html(self)

    def days(self) -> np.ndarray:
        """Local date of each event's start, as days since 1970-01-01: int32 [n]."""
        return self._days

    @cached_property
    def _days(self) -> np.ndarray:
        days = event_days(self.events, self.schema)
        days.flags.writeable = False  # everybody who asks gets the same
        return days

    def split(self, config: SplitConfig) -> Split:
        """Boundaries by local date: as configured (`train_until`, `test_from`), as the files say (`meta["split"]`),
        else by the configured weeks.

        A data set shorter than the configured weeks is divided in the same proportions. Of one more than `LONG` times
        as long, only the last weeks are scored, as many before them calibrate, and all before that trains. Where a part
        holds less than half of the entities, because people join late or a clock was wrong, shares of the events are
        taken instead of weeks.
        """
        days = self.days()
        first, last = int(days.min()), int(days.max())
        weeks = np.array([config.train_weeks, config.validation_weeks, config.test_weeks])
        boundaries = self.meta.get("split")
        learned_last, rule, uneven = None, "", False
        if config.train_until or config.test_from:
            test_first = day_number(config.test_from) if config.test_from else day_number(config.train_until) + 1
            learned_last = day_number(config.train_until) if config.train_until else test_first - 1
            days_before = days[days <= learned_last]
            share = weeks[0] / (weeks[0] + weeks[1])
            validation_first = min(_day_by_share(days_before, share), learned_last) if len(days_before) else first
        elif boundaries:
            _check_split(boundaries, self.name)
            test_first = day_number(boundaries["test_first"])
            span = test_first - first
            share = config.validation_weeks / (config.train_weeks + config.validation_weeks)
            validation_first = (
                day_number(boundaries["validation_first"])
                if "validation_first" in boundaries
                else test_first - max(1, round(span * share))
            )
        else:
            validation_first, test_first, rule, uneven = self._split_by_weeks(days, weeks)
        if not first < validation_first < test_first <= last:
            raise DataError(
                f"{self.name}: {last - first + 1} day(s) of data cannot be split into train, validation and test; "
                "at least three days are needed, and weeks are better"
            )
        learned_last = None if learned_last == test_first - 1 else learned_last
        return Split(first, validation_first, test_first, last, learned_last, rule, uneven)

    def _split_by_weeks(self, days: np.ndarray, weeks: np.ndarray) -> tuple[int, int, str, bool]:
        """First days of validation and test, why they are these, and whether that is worth a warning."""
        first, last, shares, rule, where = int(days.min()), int(days.max()), weeks / weeks.sum(), "", "the first weeks"
        if is_long := _usual_span(days) > LONG * 7 * weeks.sum():
            test_first = last + 1 - max(1, round(7 * weeks[2]))
            validation_first = test_first - max(1, round(7 * max(weeks[1:])))  # as many: calibration wants events
            rule = f"all but the last weeks is learnt from, because the data spans {(last - first + 1) // 7:,} weeks"
            shares, where = LONG_SHARES, "each part by weeks"
        else:
            scale = min(1.0, (last - first + 1) / (7 * weeks.sum()))
            validation_first = first + max(1, round(7 * weeks[0] * scale))
            test_first = validation_first + max(1, round(7 * weeks[1] * scale))
        part = np.searchsorted((validation_first, test_first), days, side="right")
        there, everybody = self._fewest_entities([part == p for p in range(3 if is_long else 1)])
        if 2 * there >= everybody:
            return validation_first, test_first, rule, False
        validation_first = _day_by_share(days, shares[0])
        test_first = max(_day_by_share(days, shares[:2].sum()), validation_first + 1)
        rule = f"by share of the events, because {there:,} of {everybody:,} are there in {where}"
        return validation_first, test_first, rule, True

    def _fewest_entities(self, parts: Sequence[np.ndarray]) -> tuple[int, int]:
        """Entities in the part (a mask of the events) with the fewest, and all; none where only days are known."""
        if self.schema.entity not in self.events.column_names:
            return 0, 0
        codes, names = agent_codes(self.events[self.schema.entity])
        return min(len(np.unique(codes[part])) for part in parts), len(names)

    def between(self, first: int, last: int) -> pa.Table:
        """Events whose local date lies in [first, last]."""
        days = self.days()
        return self.events.filter(pa.array((days >= first) & (days <= last)))

    def only(self, entities: Sequence[Any]) -> Dataset:
        """The same data set with some entities only."""
        ids = pa.array(list(entities))

        def keep(table: pa.Table | None) -> pa.Table | None:
            if table is None or self.schema.entity not in table.column_names:
                return table
            column = table[self.schema.entity]
            return table.filter(pc.is_in(column, ids.cast(column.type)))

        return replace(
            self,
            events=keep(self.events),
            trips=keep(self.trips),
            gaps=keep(self.gaps),
            agent_labels=keep(self.agent_labels),
            quality=keep(self.quality),
        )


def event_days(events: pa.Table, schema: EventSchema) -> np.ndarray:
    return local_days(events[schema.time], zone_of(events, schema))


def zone_of(events: pa.Table, schema: EventSchema) -> str | pa.ChunkedArray:
    """The zone column where the table has it, else the schema's zone, else UTC for a table without its column."""
    if schema.timezone in events.column_names:
        return pc.fill_null(events[schema.timezone], "UTC")
    return schema.timezone if is_zone(schema.timezone) or "/" in schema.timezone else "UTC"


def require_zone(events: pa.Table, schema: EventSchema) -> None:
    """Refuse events whose zone can be told neither from a column nor from its name; stays without one are in UTC."""
    name = schema.timezone
    if name not in events.column_names and not is_zone(name) and schema.name != "mobility":
        raise DataError(
            f"schema '{schema.name}': timezone '{name}' is neither a column of the events nor a known zone; "
            "name a column or an IANA zone such as Europe/Helsinki"
        )


def load_directory(path: Path, companions: Collection[str] = COMPANIONS) -> Dataset:
    """A directory that `simulate`, `extract` or `inject` wrote; beside events only the `companions` named are read."""
    stays = find_table(path, "stays")
    if stays is None:
        raise DataError(f"{path}: holds no stays.parquet; make one with `ustad extract` or `ustad simulate`")
    meta_file = path / "meta.json"
    meta = read_json(meta_file) if meta_file.exists() else {}
    if not isinstance(meta, dict):
        raise DataError(f"{meta_file}: expected a mapping; the file is damaged, make it again")
    files = {name: find_table(path, name) for name in companions}
    tables = {name: read_table(where) for name, where in files.items() if where is not None}
    return Dataset(events=read_table(stays), meta=meta, path=path, **tables)


def save_directory(data: Dataset, path: Path) -> None:
    """Write every table and `meta.json`; each file appears whole or not at all."""
    write_table(data.events, path / "stays.parquet")
    for name in COMPANIONS:
        table = getattr(data, name)
        if table is not None:
            write_table(table, path / f"{name}.parquet")
    write_json(data.meta, path / "meta.json")


def _usual_span(days: np.ndarray) -> int:
    """Days that events span, without one in fifty at either end: an odd clock makes no data set long."""
    early, late = np.quantile(days, 0.02, method="lower"), np.quantile(days, 0.98, method="higher")
    return int(late - early) + 1


def _day_by_share(days: np.ndarray, share: float) -> int:
    """The first day before which at least this share of the events lies."""
    return int(np.sort(days)[min(int(np.ceil(len(days) * share)), len(days)) - 1]) + 1


def _check_split(content: Any, where: str) -> None:
    """Refuse a split that does not say when its parts begin."""
    try:
        for name in ("test_first", "validation_first"):
            if name == "test_first" or name in content:
                day_number(content[name])
    except (KeyError, TypeError, ValueError) as error:
        example = '"split": {"test_first": "2024-03-31"}'
        raise DataError(f"{where}: meta.json does not say when the test part begins; expected {example}") from error
