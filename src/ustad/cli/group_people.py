"""`ustad score`: groups of people and company become tables of their own once scores are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ustad.cli.alert_files import table_files

COMPANY, GROUPS = "company.parquet", "groups.parquet"


def delete_earlier(place: Path) -> None:
    """Delete the tables of an earlier run, so that a directory never mixes two runs."""
    for name in (COMPANY, GROUPS):
        (place / name).unlink(missing_ok=True)


def read_together(model: Path) -> Any:
    """What a model knows of pairs of people (`PairTails`), wherever it lies; None where it knows nothing."""
    from safetensors.numpy import load

    from ustad.engine.folder import Place
    from ustad.scoring.adding_judge import TENSORS, read_pair_tails

    place = Place.of(model)
    tensors = load(place.read_bytes(TENSORS)) if place.exists(TENSORS) else {}
    return read_pair_tails(tensors)


def note_groups(place: Path, schema: Any, model: Path, groups: Any = None) -> dict[str, int]:
    """Write `groups.parquet` beside the scores; how many there are, where the model knows what pairs are like.

    `groups` are those of all events, where somebody has looked for them; without them the events are read.
    """
    from ustad.files import write_table
    from ustad.triage.groups import find_groups

    if groups is None:
        together = read_together(model)
        if together is None:
            return {}
        parts = (_read_needed(file, schema) for file in table_files(place, "events"))
        groups = find_groups(parts, schema, together)
    if groups.num_rows:
        write_table(groups, place / GROUPS)
    return {"groups": int(groups.num_rows)}


def note_company(place: Path, data: Any, company: Any = None) -> dict[str, int]:
    """Write `company.parquet` beside the scores; how many rows it has. `data` has the events of all days: company is
    new or missing against those before the scored ones. Where somebody has looked for it, that is `company`."""
    import pyarrow as pa

    from ustad.files import write_table
    from ustad.triage.companions import find_company

    if company is None:
        parts = [_read_incidents(file, data.schema) for file in table_files(place, "events")]
        events = pa.concat_tables([rows for rows, _ in parts], promote_options="permissive")
        starts = [first for _, first in parts if first is not None]
        if not starts:
            return {"company": 0}
        company = find_company(data.events, min(starts), events, data.schema)
    if company.num_rows:
        write_table(company, place / COMPANY)
    return {"company": company.num_rows}


def _read_incidents(file: Path, schema: Any) -> tuple[Any, int | None]:
    """The events of a part that belong to incidents, and when the part's first event began (µs)."""
    import pyarrow.parquet as pq

    names = ("incident_id", schema.event_id, schema.time)
    with pq.ParquetFile(file) as part:
        table = part.read([name for name in names if name in part.schema_arrow.names])
    return choose_incidents(table, schema), first_start(table, schema)


def choose_incidents(events: Any, schema: Any) -> Any:
    """The events that belong to incidents, in the columns that company is told by."""
    import pyarrow.compute as pc

    names = [name for name in ("incident_id", schema.event_id) if name in events.column_names]
    return events.select(names).filter(pc.is_valid(events["incident_id"]))


def first_start(events: Any, schema: Any) -> int | None:
    """When the first event began, µs UTC; None of no events."""
    import pyarrow as pa
    import pyarrow.compute as pc

    earliest: int | None = pc.min(events[schema.time].cast(pa.int64())).as_py()
    return earliest


def _read_needed(file: Path, schema: Any) -> Any:
    """The columns of a part that groups are told by."""
    import pyarrow.parquet as pq

    from ustad.events.together import compared_columns
    from ustad.triage.groups import NEW

    names = {NEW, "score", "incident_id", *compared_columns(schema)}
    with pq.ParquetFile(file) as part:
        there = set(part.schema_arrow.names)
        evidence = (
            [f"evidence.list.element.{name}" for name in ("name", "expected", "observed")]
            if "evidence" in there
            else []
        )
        return part.read([*sorted(name for name in names if name in there), *([] if NEW in there else evidence)])
