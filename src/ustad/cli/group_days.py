"""`ustad score`: unusual days of everybody become one note each once scores are written, and the calendar is kept.

Alerts of such a day that the same question leads are taken off the list: `hidden_by` says so, their scores stay.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ustad.cli.alert_files import add_to_run, rewrite_alerts, table_files
from ustad.cli.parts import WRITERS

#: Days before the first scored one that the calendar is shown of.
BEFORE = 60


def note_days(place: Path, schema: Any, *, country: str | None, calendar: Path | None, group: bool) -> dict[str, Any]:
    """Write what the calendar says and what days were unusual for everybody into `run.json`; returns the run."""
    from ustad.clock import iso_date
    from ustad.triage.unusual_days import describe_day, find_unusual_days

    files = table_files(place, "events")
    with ThreadPoolExecutor(WRITERS) as pool:
        parts = list(pool.map(lambda file: _columns(_read_needed(file, schema), schema), files))
    day, entity, p_value, lead = (np.concatenate(values) for values in zip(*parts, strict=True))
    if not len(day):
        return add_to_run(place, [])
    names = _name_days(files, schema, day, country=country, calendar=calendar)
    days = find_unusual_days(day, entity, p_value, lead) if group else []
    counts = _group(place, schema, parts, days) if days else []
    words = [describe_day(one, names.get(iso_date(one.day)), schema.event_word) for one in days]
    notes = [text + _left_out(number) for text, number in zip(words, counts, strict=True)]
    calendar_words = names | {iso_date(d.day): text for d, text in zip(days, _labels(days, names), strict=True)}
    unusual_days = [
        {"day": iso_date(d.day), "share": d.share, "usual": d.usual, "p_value": d.p_value, "grouped": number}
        for d, number in zip(days, counts, strict=True)
    ]
    return add_to_run(place, notes, calendar=calendar_words, unusual_days=unusual_days, alerts_less=sum(counts))


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

    from ustad.clock import local_time
    from ustad.dataset import zone_of
    from ustad.tables import TIMESTAMP, agent_codes, identity_hash

    start = table[schema.time].cast("int64")
    end = table[schema.end].cast("int64") if schema.end in table.column_names else start
    # a day at home began the evening before: what counts is the middle of an event
    middle = pc.divide(pc.add(start, pc.coalesce(end, start)), 2).cast(TIMESTAMP)
    day = local_time(middle, zone_of(table, schema)).day.astype(np.int64)

    codes, ids = agent_codes(table[schema.entity])
    lead = np.full(table.num_rows, "", object)
    if "evidence" in table.column_names and table.num_rows:
        evidence = table["evidence"].combine_chunks()
        rows = np.flatnonzero(np.nan_to_num(pc.list_value_length(evidence).to_numpy(zero_copy_only=False)) > 0)
        first = pc.list_element(evidence.take(rows), 0)
        lead[rows] = pc.struct_field(first, "name").to_pylist()
    p_value = table["p_value"].to_numpy(zero_copy_only=False)
    return day, identity_hash(ids)[codes], p_value, lead.astype(str)


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


def _group(place: Path, schema: Any, parts: list[Any], days: list[Any]) -> list[int]:
    """Take alerts of these days that share their evidence off the list; how many of each day."""
    import pyarrow as pa

    from ustad.clock import iso_date
    from ustad.mobility.places import set_columns
    from ustad.triage.hiding import COLUMN

    counts = np.zeros((len(parts), len(days)), np.int64)

    def group_part(number: int, table: Any) -> Any:
        day, _, _, lead = parts[number]
        flags = table["alert"].to_numpy(zero_copy_only=False).astype(bool).copy()
        words = np.full(len(flags), None, object)
        if COLUMN in table.column_names:
            words[:] = table[COLUMN].to_pylist()
        for i, one in enumerate(days):
            mine = np.flatnonzero(flags & (day == one.day) & np.isin(lead, one.questions))
            flags[mine], words[mine] = False, f"everybody on {iso_date(one.day)}"
            counts[number, i] = len(mine)
        return set_columns(table, alert=pa.array(flags), **{COLUMN: pa.array(words, pa.string())})

    rewrite_alerts(place, schema, group_part)
    return counts.sum(axis=0).tolist()


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
