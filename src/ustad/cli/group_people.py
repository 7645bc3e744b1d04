"""`ustad score`: meetings, company and groups become tables of their own once scores are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ustad.cli.alert_files import table_files

MEETINGS, COMPANY, GROUPS = "meetings.parquet", "company.parquet", "groups.parquet"


def delete_earlier(place: Path) -> None:
    """Delete the tables of an earlier run, so that a directory never mixes two runs."""
    for name in (MEETINGS, COMPANY, GROUPS):
        (place / name).unlink(missing_ok=True)


def note_meetings(place: Path, schema: Any, finder: Any = None) -> int:
    """Write `meetings.parquet` beside the scores; how many there are.

    `finder` is a `MeetingFinder` that has seen the events; without one they are read.
    """
    from ustad.files import write_table
    from ustad.triage.meetings import find_meetings

    if finder is not None:
        meetings = finder.table()
    else:
        meetings = find_meetings((_read_needed(file, schema) for file in table_files(place, "events")), schema)
    if meetings.num_rows:
        write_table(meetings, place / MEETINGS)
    return int(meetings.num_rows)


def note_company(place: Path, data: Any) -> dict[str, int]:
    """Write `company.parquet` and `groups.parquet` beside the scores; how many rows each has. `data` has the events of
    all days: company is new or missing against those before the scored ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ustad.files import write_table
    from ustad.triage.companions import find_company, find_groups

    schema = data.schema
    parts = [_read_incidents(file, schema) for file in table_files(place, "events")]
    events = pa.concat_tables([rows for rows, _ in parts], promote_options="permissive")
    starts = [first for _, first in parts if first is not None]
    if not starts:
        return {"company": 0, "groups": 0}
    leaders = events.filter(pc.invert(pc.fill_null(events["echo"], False)))
    tables = {
        COMPANY: find_company(data.events, min(starts), events, schema),
        GROUPS: find_groups(leaders, schema),
    }
    for name, table in tables.items():
        if table.num_rows:
            write_table(table, place / name)
    return {"company": tables[COMPANY].num_rows, "groups": tables[GROUPS].num_rows}


def _read_incidents(file: Path, schema: Any) -> tuple[Any, int | None]:
    """The events of a part that belong to incidents, and when the part's first event began (µs)."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from ustad.triage.meetings import compared_columns

    names = {"incident_id", "echo", "p_value", *compared_columns(schema)}
    with pq.ParquetFile(file) as part:
        table = part.read(sorted(names & set(part.schema_arrow.names)))
    first = pc.min(table[schema.time].cast(pa.int64())).as_py()
    return table.filter(pc.is_valid(table["incident_id"])), first


def _read_needed(file: Path, schema: Any) -> Any:
    """The columns of a part that meetings are told by."""
    import pyarrow.parquet as pq

    from ustad.triage.meetings import NEW, compared_columns

    names = {NEW, "p_value", *compared_columns(schema)}
    with pq.ParquetFile(file) as part:
        there = set(part.schema_arrow.names)
        evidence = [f"evidence.list.element.{name}" for name in ("name", "expected")] if "evidence" in there else []
        return part.read([*sorted(name for name in names if name in there), *([] if NEW in there else evidence)])
