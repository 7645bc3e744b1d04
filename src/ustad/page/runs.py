"""Showing a finished run: its score tables, and what is known of the weeks before, copied into the store once.

In: a directory that `ustad demo` made (`scores/`, `data/`), or one that `ustad score` wrote. An import that was
interrupted goes on where it stopped; the store remembers which run it holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import bindparam, update

from ustad import progress
from ustad.agent_order import order_agents
from ustad.page import records as r
from ustad.page.event_writer import add_events
from ustad.page.facts import run_facts
from ustad.page.movements import absence_rows, gap_rows, trip_rows
from ustad.page.run_tables import RunTables
from ustad.page.store import Store, insert_new
from ustad.page.translate import Layout, keys_of, store_rows
from ustad.schema import EventSchema, mobility_schema
from ustad.tables import DataError, agent_codes
from ustad.ties import level_ties

CHUNK = 20_000
MOST_CONTEXT = 400_000  # events of the weeks before, of agents with an alert and the most unusual ones first
MOST_TRIPS = 200_000
#: Ids that no address can hold: browsers and servers take them for the path itself.
NO_ADDRESS = ("", ".", "..")
_SCORE_COLUMNS = ("score", "p_value", "kind", "reason", "alert", "final")


def scores_directory(path: Path) -> Path | None:
    """Where the scores of a run are: in `scores/`, or the directory itself; none where it is no run."""
    return next((p for p in (path / "scores", path) if (p / "run.json").exists()), None)


def fingerprint(path: Path) -> str:
    """What tells one run from another: a hash of its `run.json` and of the size of its scores."""
    where = scores_directory(path)
    if where is None:
        raise DataError(f"{path}: holds no scores of a finished run (no run.json); make some with `ustad score`")
    size = (where / "events.parquet").stat().st_size if (where / "events.parquet").exists() else 0
    return hashlib.sha256((where / "run.json").read_bytes() + str(size).encode()).hexdigest()[:16]


def run_schema(store: Store) -> EventSchema:
    """The schema of the run that a store holds; stays where it holds none."""
    run = store.about("run")
    return EventSchema.from_dict(run["schema"]) if run and run.get("schema") else mobility_schema()


def import_run(store: Store, path: Path) -> EventSchema:
    """Copy a run into the store unless it is there; returns its schema."""
    mark, run_before = fingerprint(path), store.about("run")
    if run_before and run_before["fingerprint"] == mark:
        return run_schema(store)
    if run_before:
        raise DataError("the store holds another run; choose another --store")
    run = RunTables.from_directory(scores_directory(path) or path)
    schema, events = run.schema, run.events.to_table()
    layout, by_score = Layout.of(schema), _rank_agents(events if run.agents is None else run.agents, schema.entity)
    around = (run.history, run.trips, run.gaps, run.absences)
    history, trips, gaps, absences = (None if table is None else table.to_table() for table in around)
    check_ids(path, schema.entity, [events] if history is None else [events, history])
    add_table(store, run.with_details(events), layout, "importing scores")
    if history is not None:  # the weeks that were not scored, of those with alerts and the most unusual, as fit
        before = _of_agents(without_scored(events, history, schema), by_score, schema.entity, MOST_CONTEXT)
        add_table(store, before, layout, "importing the weeks before")
    moves = (None if t is None else _of_agents(t, by_score, schema.entity, MOST_TRIPS) for t in (trips, gaps))
    add_movements(store, *moves)
    if run.agents is not None:
        set_agents(store, run.agents, schema)
    add_absences(store, absences, schema)
    facts = run_facts(run)
    with store.writing() as connection:
        content = {"fingerprint": mark, "name": path.resolve().name, "schema": schema.to_dict()}
        store.remember(connection, "run", content)
        store.remember(connection, "facts", facts)
    return schema


def check_ids(path: Path, entity: str, tables: Sequence[pa.Table]) -> None:
    """Refuse a run with agents that could be neither read nor erased, before anything of it is stored."""
    for table in tables:
        for name in pc.unique(table[entity]).to_pylist():
            if str(name) in NO_ADDRESS:
                raise DataError(f"{path}: the {entity} '{name}' cannot be part of an address; give it another id")


def add_table(store: Store, events: pa.Table, layout: Layout, label: str) -> None:
    """Events, scored or not, with what is behind their scores; those that are there already are left out."""
    with progress.track(label, events.num_rows) as advance:
        for part in _parts(events):
            present, _ = store.find_known(keys_of(part, layout.schema), [])
            fresh = np.array([key not in present for key in keys_of(part, layout.schema)], bool)
            rows, details = store_rows(_first_of_each(part.filter(pa.array(fresh)), layout), layout)
            with store.writing() as connection:
                add_events(connection, rows, details)
            advance(part.num_rows)


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, CHUNK):
        yield table.slice(start, CHUNK)


def _first_of_each(table: pa.Table, layout: Layout) -> pa.Table:
    """Each event once, where a table holds one twice."""
    _, first = np.unique(np.array(keys_of(table, layout.schema), np.int64), return_index=True)
    return table if len(first) == table.num_rows else table.take(pa.array(np.sort(first)))


def _rank_agents(scores: pa.Table, entity: str) -> pa.Array:
    """Agents in order (`order_agents`), from their own scores or, where there are none, from their events'."""
    name = next((name for name in ("n_alerts", "alert") if name in scores.column_names), None)
    n_alerts = pc.fill_null(scores[name].cast("int64"), 0).to_numpy() if name else np.zeros(scores.num_rows)
    return pc.unique(scores[entity].take(pa.array(order_agents(scores["score"].to_numpy(), n_alerts))))


def without_scored(scores: pa.Table, history: pa.Table, schema: EventSchema) -> pa.Table:
    """Of the known events those that are not among the scored ones (the training weeks)."""
    rows = history
    if schema.event_id and schema.event_id not in scores.column_names:  # then neither is known by it
        rows = history.drop_columns([c for c in (schema.event_id,) if c in history.column_names])
    keys = set(keys_of(scores, schema))
    fresh = np.array([key not in keys for key in keys_of(rows, schema)], bool)
    return without_scores(history.filter(pa.array(fresh, pa.bool_())))


def without_scores(events: pa.Table) -> pa.Table:
    """Events that are known, not scored."""
    return events.drop_columns([n for n in _SCORE_COLUMNS if n in events.column_names])


def _of_agents(table: pa.Table, by_score: pa.Array, entity: str, most: int) -> pa.Table:
    """Rows of the first agents of the ranking whose rows together are at most `most`."""
    if table.num_rows == 0:
        return table
    codes, values = agent_codes(table[entity])
    rank = pc.index_in(pa.array(values.tolist(), table[entity].type), by_score.cast(table[entity].type))
    rank = pc.fill_null(rank, len(by_score)).to_numpy()
    order = np.argsort(rank, kind="stable")
    fits = np.cumsum(np.bincount(codes, minlength=len(values))[order]) <= most
    rows = np.zeros(len(values), bool)
    rows[order[fits]] = True
    return table.filter(pa.array(rows[codes]))


def add_movements(store: Store, trips: pa.Table | None, gaps: pa.Table | None) -> None:
    for table, into, to_rows in ((trips, r.trips, trip_rows), (gaps, r.gaps, gap_rows)):
        for part in _parts(table) if table is not None else ():
            with store.writing() as connection:
                insert_new(connection, into, to_rows(part))


def add_absences(store: Store, absences: pa.Table | None, schema: EventSchema) -> None:
    for part in _parts(absences) if absences is not None else ():
        with store.writing() as connection:
            insert_new(connection, r.absences, absence_rows(part, schema))


def set_agents(store: Store, agents: pa.Table, schema: EventSchema) -> None:
    """Scores of agents as the run has them, where they differ from their highest event's."""
    names = [str(a) for a in agents[schema.entity].to_pylist()]
    # A database knows no tolerance: equal scores are stored as one number, so that it orders them as `order_agents`.
    score = level_ties(agents["score"].to_numpy(zero_copy_only=False))
    values: dict[str, list[Any]] = {
        "at": names,
        "score": [None if np.isnan(value) else value for value in score.tolist()],
    }
    for name in ("p_value", "reason", "change"):
        if name in agents.column_names:
            values[name] = agents[name].to_pylist()
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    change = update(r.agents).where(r.agents.c.agent == bindparam("at"))
    if rows:
        with store.writing() as connection:
            connection.execute(change.values({n: bindparam(n) for n in values if n != "at"}), rows)
