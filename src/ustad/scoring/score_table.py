"""The tables of scores: every one is put together and checked here, whoever scored and wherever it runs.

While events are scored, one table travels: the events' own columns, what the judge adds, and `MEASURED_COLUMN` with
what the sources measured, a field each. `finish_part` makes the tables of a run of it: event scores that keep the
contract, incidents, agents, absences, and details, which have the measurements by event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.agent_order import add_alerts
from ustad.files import as_column, set_columns
from ustad.schema import EventSchema
from ustad.scores import Scores, detail_keys
from ustad.scoring.incidents import incident_table, leading_events
from ustad.tables import AGENT_SCORES, EVENT_SCORES, INCIDENT_SCORES, check_types

#: The column that measurements travel in, a field for each, and the list of the agents' table that absences travel in.
MEASURED_COLUMN = "_measured"
ABSENCES = "absences"


def add_measurements(table: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """The table with what was measured, after what was measured before."""
    arrays = {name: _whole(column) for name, column in zip(*_fields(table), strict=True)}
    arrays |= {name: _whole(as_column(values)) for name, values in columns.items()}
    return set_columns(table, **{MEASURED_COLUMN: pa.StructArray.from_arrays(list(arrays.values()), list(arrays))})


def _fields(table: pa.Table) -> tuple[list[str], list[pa.ChunkedArray]]:
    measurements = read_measurements(table)
    return measurements.column_names, measurements.columns


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def read_measurements(table: pa.Table) -> pa.Table:
    """What was measured of each event, as columns; none where nothing was."""
    if MEASURED_COLUMN not in table.column_names:
        return pa.table({})
    names = [field.name for field in table.schema.field(MEASURED_COLUMN).type]
    return table.select([MEASURED_COLUMN]).flatten().rename_columns(names)


def make_agent_table(
    schema: EventSchema,
    event_scores: pa.Table,
    names: np.ndarray,
    scores: Mapping[str, np.ndarray],
    *,
    entity: np.ndarray,
    worst: np.ndarray,
    **more: Any,
) -> pa.Table:
    """A row for each of the entities `names`; `entity` are the indices of the events' own, `worst` the rows of their
    most unusual events. `more` are further columns, or a `reason` in place of that of the worst event."""
    label, at = schema.event_id if schema.event_id in event_scores.column_names else schema.time, pa.array(worst)
    return pa.table(
        {
            schema.entity: pa.array(names.tolist()).cast(event_scores[schema.entity].type),
            **scores,
            "n_events": np.bincount(entity, minlength=len(names)),
            "n_incidents": np.bincount(entity[leading_events(event_scores)], minlength=len(names)),
            "worst_incident_id": event_scores["incident_id"].take(at),
            f"worst_{label}": event_scores[label].take(at),
            "reason": event_scores["reason"].take(at),
            **more,
        }
    )


def finish_part(schema: EventSchema, event_scores: pa.Table, agents: pa.Table, *, details: bool) -> Scores:
    """The tables of a run, or of a part of it. Details are those of the events of incidents, which somebody will open;
    with `details` of every event."""
    agents, absences = split_absences(agents, schema.entity)
    incidents = incident_table(event_scores, schema, read_measurements(event_scores))
    return Scores(
        check_types(_event_table(event_scores), EVENT_SCORES),
        check_types(add_alerts(agents, _alert_entities(event_scores, schema), schema.entity), AGENT_SCORES),
        {},
        check_types(incidents, INCIDENT_SCORES),
        absences,
        _detail_table(event_scores, schema, details),
    )


def split_absences(agents: pa.Table, entity: str) -> tuple[pa.Table, pa.Table | None]:
    """Agents without the list, and its rows as a table; None where absences were not looked for."""
    if ABSENCES not in agents.column_names:
        return agents, None
    lists = agents[ABSENCES].combine_chunks()
    values = pa.Table.from_struct_array(lists.flatten())
    owner = agents[entity].take(pc.list_parent_indices(lists))
    return agents.drop_columns([ABSENCES]), values.add_column(0, entity, owner)


def _event_table(event_scores: pa.Table) -> pa.Table:
    """The events' own columns, then those of the contract in its order."""
    own = [name for name in event_scores.column_names if name not in (*EVENT_SCORES.required, MEASURED_COLUMN)]
    return event_scores.select([*own, *(name for name in EVENT_SCORES.required if name in event_scores.column_names)])


def _detail_table(event_scores: pa.Table, schema: EventSchema, everything: bool) -> pa.Table:
    """Measurements after what tells the events apart."""
    if not everything:
        event_scores = event_scores.filter(event_scores["incident_id"].is_valid())
    keys = event_scores.select(detail_keys(event_scores, schema)).replace_schema_metadata(None)
    measurements = read_measurements(event_scores)
    return set_columns(keys, **dict(zip(measurements.column_names, measurements.columns, strict=True)))


def _alert_entities(event_scores: pa.Table, schema: EventSchema) -> pa.ChunkedArray:
    return event_scores[schema.entity].filter(event_scores["alert"])
