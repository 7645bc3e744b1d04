"""`ustad score`: unusual days of everybody become one note each once scores are written, and the calendar is kept.

Alerts of such a day that the same question leads are taken off the list: `hidden_by` says so, their scores stay.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ustad.cli.alert_files import add_to_run, rewrite_alerts, table_files
from ustad.cli.parts import WRITERS

#: Days before the first scored one that the calendar is shown of.
BEFORE = 60


class DayGroups:
    """Reads event scores part by part. Then it knows the days that are unusual for everybody, and takes the alerts of
    these days off the list, part by part again. Done before the scores are written, nothing is written twice."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.parts: list[Any] = []  # see `_columns`
        self._counts: dict[int, list[int]] = {}  # part → alerts taken off, by day

    def look(self, events: Any) -> None:
        self.parts.append(_columns(events, self.schema))

    @cached_property
    def days(self) -> list[Any]:
        """To be asked once all parts were seen."""
        from ustad.triage.unusual_days import find_unusual_days

        return find_unusual_days(*(np.concatenate(values) for values in zip(*self.parts, strict=True)))

    @property
    def counts(self) -> list[int]:
        """Alerts taken off, by day."""
        return [sum(numbers) for numbers in zip(*self._counts.values(), strict=True)]

    def take_off(self, number: int, table: Any) -> Any:
        """The events of a part without alerts of unusual days that share their evidence."""
        import pyarrow as pa

        from ustad.clock import iso_date
        from ustad.files import set_columns
        from ustad.triage.hiding import COLUMN

        if not self.days:
            return table
        day, _, _, lead = self.parts[number]
        flags = table["alert"].to_numpy(zero_copy_only=False).astype(bool).copy()
        words = np.full(len(flags), None, object)
        if COLUMN in table.column_names:
            words[:] = table[COLUMN].to_pylist()
        self._counts[number] = []
        for one in self.days:
            mine = np.flatnonzero(flags & (day == one.day) & np.isin(lead, one.questions))
            flags[mine], words[mine] = False, f"everybody on {iso_date(one.day)}"
            self._counts[number].append(len(mine))
        return set_columns(table, alert=pa.array(flags), **{COLUMN: pa.array(words, pa.string())})


def note_days(
    place: Path,
    schema: Any,
    *,
    country: str | None,
    calendar: Path | None,
    group: bool,
    groups: DayGroups | None = None,
) -> dict[str, Any]:
    """Write what the calendar says and what days were unusual for everybody into `run.json`; returns the run.

    Where `groups` are given, they have taken the alerts of such days off the list already.
    """
    from ustad.clock import iso_date
    from ustad.files import read_json
    from ustad.triage.unusual_days import describe_day

    files = table_files(place, "events")
    is_taken_off = groups is not None
    groups = groups or _read_groups(files, schema)
    day = np.concatenate([part[0] for part in groups.parts])
    if not len(day):
        return add_to_run(place, [])
    names = _name_days(files, schema, day, country=country, calendar=calendar)
    days = groups.days if group else []
    if days and not is_taken_off:
        rewrite_alerts(place, schema, groups.take_off)
    counts, before = groups.counts, read_json(place / "run.json").get("alerts")
    words = [describe_day(one, names.get(iso_date(one.day)), schema.event_word) for one in days]
    notes = [text + _left_out(number) for text, number in zip(words, counts, strict=True)]
    calendar_words = names | {iso_date(d.day): text for d, text in zip(days, _labels(days, names), strict=True)}
    unusual_days = [
        {"day": iso_date(d.day), "share": d.share, "usual": d.usual, "p_value": d.p_value, "grouped": number}
        for d, number in zip(days, counts, strict=True)
    ]
    left = before - sum(counts) if isinstance(before, int) else None
    return add_to_run(place, notes, left, calendar=calendar_words, unusual_days=unusual_days)


def _read_groups(files: list[Path], schema: Any) -> DayGroups:
    """From the files of scores."""
    groups = DayGroups(schema)
    with ThreadPoolExecutor(WRITERS) as pool:
        groups.parts = list(pool.map(lambda file: _columns(_read_needed(file, schema), schema), files))
    return groups


def _read_needed(file: Path, schema: Any) -> Any:
    """The columns of a part that days are told by; of the evidence its names alone."""
    import pyarrow.parquet as pq

    names = (schema.time, schema.end, schema.entity, schema.timezone, "p_value")
    with pq.ParquetFile(file) as part:
        there = set(part.schema_arrow.names)
        evidence = ["evidence.list.element.name"] if "evidence" in there else []
        return part.read([name for name in names if name in there] + evidence)


def _columns(table: Any, schema: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Local day, entity, p-value and leading question of every event of a part."""
    import pyarrow.compute as pc

    from ustad.clock import local_days
    from ustad.dataset import zone_of
    from ustad.tables import TIMESTAMP, agent_codes, identity_hash

    start = table[schema.time].cast("int64")
    end = table[schema.end].cast("int64") if schema.end in table.column_names else start
    # a day at home began the evening before: what counts is the middle of an event
    middle = pc.divide(pc.add(start, pc.coalesce(end, start)), 2).cast(TIMESTAMP)
    day = local_days(middle, zone_of(table, schema)).astype(np.int64)

    codes, ids = agent_codes(table[schema.entity])
    p_value = table["p_value"].to_numpy(zero_copy_only=False)
    return day, identity_hash(ids)[codes], p_value, _leading_questions(table)


def _leading_questions(table: Any) -> np.ndarray:
    """The question with the largest share of each event's score, "" without any: text [n]."""
    if "evidence" not in table.column_names or not table.num_rows:
        return np.full(table.num_rows, "")
    evidence = table["evidence"].combine_chunks()
    offsets, is_there = evidence.offsets.to_numpy(), evidence.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(is_there & (np.diff(offsets) > 0))
    names = evidence.values.field("name").take(offsets[rows]).dictionary_encode()
    words = np.array(["", *names.dictionary.to_pylist()])
    codes = np.zeros(table.num_rows, np.int64)
    codes[rows] = names.indices.to_numpy(zero_copy_only=False) + 1
    return words[codes]


def _name_days(
    files: list[Path], schema: Any, day: np.ndarray, *, country: str | None, calendar: Path | None
) -> dict[str, str]:
    from ustad.calendar_days import country_of_zone, name_days, public_holidays, read_calendar
    from ustad.dataset import zone_of
    from ustad.files import read_table
    from ustad.tables import DataError

    events = read_calendar(calendar) if calendar is not None else []
    first, last = int(day.min()) - BEFORE, int(day.max())
    if country == "zone":
        zones = zone_of(read_table(files[0]), schema)
        zone = zones if isinstance(zones, str) else str(zones[0])
        country = country_of_zone(zone)
        if country is None:
            raise DataError(f"no country is known of the zone {zone}; give one, such as --holidays DE")
    return name_days(first, last, public_holidays(country, first, last) if country else {}, events)


def _left_out(number: int) -> str:
    """How many alerts of such a day are not in the list."""
    what = (
        "1 alert of that day with the same cause is"
        if number == 1
        else f"{number:,} alerts of that day with the same cause are"
    )
    return f"; {what} left out of the list" if number else ""


def _labels(days: list[Any], names: dict[str, str]) -> list[str]:
    from ustad.clock import iso_date

    texts = [names.get(iso_date(one.day)) for one in days]
    return [f"{name}, unusual for everybody" if name else "unusual for everybody" for name in texts]
