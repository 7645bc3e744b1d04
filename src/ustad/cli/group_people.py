"""`ustad score`: meetings become a table of their own once scores are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ustad.cli.alert_files import table_files

MEETINGS = "meetings.parquet"


def note_meetings(place: Path, schema: Any) -> int:
    """Write `meetings.parquet` beside the scores; how many there are. A table of an earlier run is deleted."""
    from ustad.files import write_table
    from ustad.triage.meetings import find_meetings

    (place / MEETINGS).unlink(missing_ok=True)
    parts = [part for file in table_files(place, "events") if (part := _read_needed(file, schema)) is not None]
    meetings = find_meetings(parts, schema)
    if meetings.num_rows:
        write_table(meetings, place / MEETINGS)
    return int(meetings.num_rows)


def _read_needed(file: Path, schema: Any) -> Any:
    """The columns of a part that meetings are told by; nothing where events have no end or no places of their own."""
    import pyarrow.parquet as pq

    from ustad.triage.meetings import NEW, mark_new_places

    names = {schema.entity, schema.event_id, schema.time, schema.end, schema.timezone, schema.habitat}
    names |= {NEW, "p_value", *(column for feature in schema.features for column in feature.columns)}
    with pq.ParquetFile(file) as part:
        there = set(part.schema_arrow.names)
        if schema.end not in there or not there & {NEW, "evidence"}:
            return None
        evidence = [] if NEW in there else [f"evidence.list.element.{name}" for name in ("name", "expected")]
        return mark_new_places(part.read([*sorted(name for name in names if name in there), *evidence]))
