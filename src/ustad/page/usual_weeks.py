"""The weeks that a live model was trained on, copied into the store once, to compare live events with.

In: the data that the model was trained on. Out: events without a score, trips and gaps up to the end of training, in
the store: there they expire and are deleted like everything else. The copy is made once for each store, so that a
restart brings back nobody who was deleted.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ustad import progress
from ustad.dataset import Dataset, load_directory
from ustad.mobility.readers import open_data
from ustad.page.runs import MOST_CONTEXT, MOST_TRIPS, add_movements, add_table, check_ids, without_scores
from ustad.page.store import Store
from ustad.page.translate import Layout
from ustad.schema import EventSchema
from ustad.tables import TIMESTAMP, DataError

COPY_NAME = "usual weeks"  # what the store remembers the copy by


def import_usual_weeks(store: Store, path: Path, schema: EventSchema, until: float | None) -> None:
    """Copy what ended before `until` (seconds since 1970; everything where it is not known), unless it was before."""
    if store.about(COPY_NAME):
        progress.say("the store has its usual weeks already; --history is left alone")
        return
    data = _read(path, schema)
    events = _until(data.events, schema.end or schema.time, until)
    if not events.num_rows:
        raise DataError(
            f"{path}: nothing in it is from before the model's last day of training; give its training data"
        )
    check_ids(path, schema.entity, [events])
    latest = events.sort_by([(schema.time, "descending")]).slice(0, MOST_CONTEXT)
    add_table(store, without_scores(latest), Layout.of(schema), "importing the usual weeks")
    trips, gaps = (
        None if t is None else _until(t, "finished_at", until).slice(0, MOST_TRIPS) for t in (data.trips, data.gaps)
    )
    add_movements(store, trips, gaps)
    with store.writing() as connection:
        store.remember(connection, COPY_NAME, {"events": latest.num_rows})


def _read(path: Path, schema: EventSchema) -> Dataset:
    if schema.name == "mobility" and path.is_dir():
        return load_directory(path)
    return open_data(path, schema=schema, on_error="skip")


def _until(table: pa.Table, column: str, until: float | None) -> pa.Table:
    if until is None:
        return table
    moment = pa.scalar(round(until * 1e6), pa.int64()).cast(TIMESTAMP)
    return table.filter(pc.less_equal(table[column].cast(TIMESTAMP), moment))
