"""`ustad score`: meetings become a table of their own once scores are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ustad.cli.alert_files import table_files

MEETINGS = "meetings.parquet"


def note_meetings(place: Path, schema: Any, finder: Any = None) -> int:
    """Write `meetings.parquet` beside the scores; how many there are. A table of an earlier run is deleted.

    `finder` is a `MeetingFinder` that has seen the events; without one they are read.
    """
    from ustad.files import write_table
    from ustad.triage.meetings import find_meetings

    (place / MEETINGS).unlink(missing_ok=True)
    if finder is not None:
        meetings = finder.table()
    else:
        meetings = find_meetings((_read_needed(file, schema) for file in table_files(place, "events")), schema)
    if meetings.num_rows:
        write_table(meetings, place / MEETINGS)
    return int(meetings.num_rows)


def _read_needed(file: Path, schema: Any) -> Any:
    """The columns of a part that meetings are told by."""
    import pyarrow.parquet as pq

    from ustad.triage.meetings import NEW

    names = {schema.entity, schema.event_id, schema.time, schema.end, schema.timezone, schema.habitat}
    names |= {NEW, "p_value", *(column for feature in schema.features for column in feature.columns)}
    with pq.ParquetFile(file) as part:
        there = set(part.schema_arrow.names)
        evidence = [f"evidence.list.element.{name}" for name in ("name", "expected")] if "evidence" in there else []
        return part.read([*sorted(name for name in names if name in there), *([] if NEW in there else evidence)])
