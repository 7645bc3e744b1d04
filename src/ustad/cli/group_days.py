"""`ustad score`: unusual days of everybody become one note each once scores are written, and the calendar is kept.

Alerts of such a day that the same question leads are taken off the list: `hidden_by` says so, their scores stay.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ustad.cli.hide import table_files
from ustad.cli.parts import WRITERS
from ustad.cli.shared import write_alerts

#: Days before the first scored one that the calendar is shown of.
BEFORE = 60


def note_days(place: Path, schema: Any, *, country: str | None, calendar: Path | None, group: bool) -> dict[str, Any]:
    """Write what the calendar says and what days were unusual for everybody into `run.json`; returns the run."""
    from ustad.calendar_days import iso_date
    from ustad.files import read_json, write_json
    from ustad.triage.unusual_days import describe_day, find_unusual_days

    run = read_json(place / "run.json")
    files = table_files(place, "events")
    with ThreadPoolExecutor(WRITERS) as pool:
        parts = list(pool.map(lambda file: _columns(_read_needed(file, schema), schema), files))
    day, entity, p_value, lead = (np.concatenate(values) for values in zip(*parts, strict=True))
    if not len(day):
        return dict(run)
    names = _name_days(files, schema, day, country=country, calendar=calendar)
    days = find_unusual_days(day, entity, p_value, lead) if group else []
    counts = _group(place, schema, parts, days) if days else []
    words = [describe_day(one, names.get(iso_date(one.day)), schema.event_word) for one in days]
    notes = [text + _left_out(number) for text, number in zip(words, counts, strict=True)]
    run["calendar"] = names | {iso_date(one.day): text for one, text in zip(days, _labels(days, names), strict=True)}
    run["warnings"] = [*(run.get("warnings") or []), *notes]
    run["unusual_days"] = [
        {"day": iso_date(one.day), "share": one.share, "usual": one.usual, "p_value": one.p_value, "grouped": number}
        for one, number in zip(days, counts, strict=True)
    ]
    if isinstance(run.get("alerts"), int):
        run["alerts"] -= sum(counts)
    write_json(run, place / "run.json")
    return dict(run)


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
    import pyarrow.compute as pc

    from ustad.files import read_table, write_table

    files = table_files(place, "events")
    with ThreadPoolExecutor(WRITERS) as pool:
        results = list(pool.map(lambda file, part: _group_part(file, part[0], part[3], days), files, parts))
    incidents = pa.array(sorted({incident for _, names, _ in results for incident in names}), pa.string())
    for file in table_files(place, "incidents"):
        table = read_table(file)
        keep = pc.and_(table["alert"], pc.invert(pc.is_in(table["incident_id"], incidents)))
        write_table(_set(table, "alert", keep), file)
    write_alerts(pa.concat_tables([alerts for _, _, alerts in results], promote_options="permissive"), schema, place)
    return [sum(counts) for counts in zip(*(counts for counts, _, _ in results), strict=True)]


def _group_part(file: Path, day: np.ndarray, lead: np.ndarray, days: list[Any]) -> tuple[list[int], set[str], Any]:
    """One file of events, written anew: how many alerts of each day went, their incidents, and what alerts are left."""
    import pyarrow as pa

    from ustad.calendar_days import iso_date
    from ustad.files import read_table, write_table
    from ustad.triage.hiding import COLUMN

    table = read_table(file)
    flags = table["alert"].to_numpy(zero_copy_only=False).astype(bool).copy()
    words = table[COLUMN].to_numpy(zero_copy_only=False) if COLUMN in table.column_names else np.full(len(flags), None)
    words, counts, rows = words.astype(object), [], []
    for one in days:
        mine = np.flatnonzero(flags & (day == one.day) & np.isin(lead, one.questions))
        flags[mine], words[mine] = False, f"everybody on {iso_date(one.day)}"
        counts.append(len(mine))
        rows.append(mine)
    has_incidents = "incident_id" in table.column_names
    incidents = set(table["incident_id"].take(np.concatenate(rows)).to_pylist()) if has_incidents else set()
    table = _set(_set(table, "alert", pa.array(flags)), COLUMN, pa.array(words, pa.string()))
    write_table(table, file)
    return counts, incidents, table.filter(table["alert"])


def _left_out(number: int) -> str:
    """How many alerts of such a day are not in the list."""
    what = (
        "1 alert of that day with the same cause is"
        if number == 1
        else f"{number:,} alerts of that day with the same cause are"
    )
    return f"; {what} left out of the list" if number else ""


def _labels(days: list[Any], names: dict[str, str]) -> list[str]:
    from ustad.calendar_days import iso_date

    texts = [names.get(iso_date(one.day)) for one in days]
    return [f"{name}, unusual for everybody" if name else "unusual for everybody" for name in texts]


def _set(table: Any, name: str, values: Any) -> Any:
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, values)
    return table.append_column(name, values)
