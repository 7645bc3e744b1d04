"""What a detector says: tables of event scores, incidents, agent scores, absences and details, and how they came about.

On disk a directory: `events.parquet`, `incidents.parquet`, `agents.parquet`, `absences.parquet`, `details.parquet` (or
folders of parts) and `run.json`. Higher scores are more unusual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad import frames
from ustad.agent_order import order_agents
from ustad.files import find_table, read_json, read_table, write_json, write_table
from ustad.schema import EventSchema, mobility_schema
from ustad.tables import DataError

#: The tables of a run, as they are called on disk.
TABLES = ("events", "agents", "incidents", "absences", "details")


def read_answers(evidence: pa.ChunkedArray, question: str, what: str = "surprise") -> np.ndarray:
    """One number of the answers to one question, by event: float64 [n], NaN without an answer."""
    lists = evidence.combine_chunks()
    entries = lists.flatten()
    mine = pc.equal(entries.field("name"), question).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(lists)), pc.fill_null(pc.list_value_length(lists), 0).to_numpy())
    values = np.full(len(lists), np.nan)
    values[rows[mine]] = entries.field(what).to_numpy(zero_copy_only=False)[mine]
    return values


def read_answer(evidence: Sequence[Mapping[str, Any]], question: str, what: str = "surprise") -> Any:
    """The same of one event, None without an answer."""
    return next((one[what] for one in evidence if one["name"] == question), None)


def detail_keys(table: pa.Table, schema: EventSchema) -> list[str]:
    """The columns that tell an event from others: its id where it has one, its entity and its time."""
    return [name for name in (schema.event_id, schema.entity, schema.time) if name and name in table.column_names]


def join_details(events: pa.Table, details: pa.Table | None, schema: EventSchema) -> pa.Table:
    """Event scores with their details as columns, null where there are none of an event.

    Scores that were written before there were details have these columns already; they come back as they are.
    """
    if details is None:
        return events
    keys = [name for name in detail_keys(events, schema) if name in details.column_names]
    columns = details.drop_columns([name for name in details.column_names if name in events.column_names])
    if not (details.num_rows == events.num_rows and details.select(keys).equals(events.select(keys))):
        columns = columns.take(_find_rows(events.select(keys), details.select(keys)))
    for name in columns.column_names:
        events = events.append_column(name, columns[name])
    return events


def _find_rows(keys: pa.Table, table: pa.Table) -> pa.Array:
    """For each row of `keys`, the number of the first row of `table` that equals it, null without one: int64 [n]."""
    left = keys.replace_schema_metadata(None).append_column("_left", pa.array(np.arange(keys.num_rows)))
    right = table.cast(keys.schema.remove_metadata()).append_column("_right", pa.array(np.arange(table.num_rows)))
    pairs = left.join(right, keys.column_names, join_type="inner")
    rows = np.full(keys.num_rows, table.num_rows)
    np.minimum.at(rows, pairs["_left"].to_numpy(), pairs["_right"].to_numpy())
    return pa.array(rows, mask=rows == table.num_rows)


@dataclass(frozen=True)
class Case:
    """One incident to look at in a notebook: its events, and all scored events of the same entity around them."""

    incident_id: str
    events: pa.Table
    around: pa.Table

    def _repr_html_(self) -> str:
        from ustad.notebook import case_html

        return case_html(self)


@dataclass(frozen=True)
class Scores:
    """Scores of one run. A method that cannot score events (or agents) leaves that table out."""

    events: pa.Table | None = None
    agents: pa.Table | None = None
    run: dict[str, Any] = field(default_factory=dict)
    incidents: pa.Table | None = None  # events that belong together, where the method says which
    absences: pa.Table | None = None  # visits that were nearly certain and did not come, where it looks for them
    details: pa.Table | None = None  # what was measured of the events of incidents, or of every event where asked for

    def __post_init__(self) -> None:
        for table, what in ((self.events, "event"), (self.agents, "agent")):
            if table is None:
                continue
            kinds = [table.schema.field(i).type for i in table.schema.get_all_field_indices("score")]
            if len(kinds) != 1 or not (pa.types.is_floating(kinds[0]) or pa.types.is_integer(kinds[0])):
                raise DataError(f"the table of {what}s has no numbers called 'score'; make it with `ustad score`")
            if not np.isfinite(table["score"].to_numpy()).all():
                raise DataError(f"a score of an {what} is not a finite number; the model or its data is damaged")

    def save(self, path: Path) -> None:
        """Write the tables and `run.json`; a table that there is not here does not stay from other scores."""
        before = (path / "run.json").exists()  # else a table of that name is not one of scores
        for name in TABLES:
            table = getattr(self, name)
            if table is not None:
                write_table(table, path / f"{name}.parquet")
            elif before:
                (path / f"{name}.parquet").unlink(missing_ok=True)
        write_json(self.run, path / "run.json")

    def _repr_html_(self) -> str:
        from ustad.notebook import scores_html

        return scores_html(self)

    def case(self, incident_id: str) -> Case:
        """One incident, by the id that the tables of events and incidents have."""
        table = self._table()
        if "incident_id" not in table.column_names or "agent_id" not in table.column_names:
            raise DataError("these scores know no incidents of agents; make them with `ustad score`")
        own = table.filter(pc.equal(table["incident_id"], incident_id)).sort_by("started_at")
        if not own.num_rows:
            raise DataError(f"no incident is called '{incident_id}'; the column incident_id has their names")
        return Case(incident_id, own, table.filter(pc.equal(table["agent_id"], own["agent_id"][0])))

    def top(self, n: int = 10) -> pa.Table:
        """The n most unusual events, or agents where there are no scores of events: highest first, ties in order."""
        table = self._table()
        return table.take(pa.array(np.argsort(-table["score"].to_numpy(), kind="stable")[:n]))

    def top_agents(self, n: int = 10) -> pa.Table:
        """The n agents to look at first: those with an alert before those without, then by score."""
        if self.agents is None:
            raise DataError("there are no scores of agents here")
        score = self.agents["score"].to_numpy()
        has_counts = "n_alerts" in self.agents.column_names
        n_alerts = self.agents["n_alerts"].to_numpy() if has_counts else np.zeros(len(score))
        return self.agents.take(pa.array(order_agents(score, n_alerts)[:n]))

    def with_details(self) -> pa.Table:
        """Event scores with what was measured of them beside: null where details are not kept."""
        if self.events is None:
            raise DataError("there are no scores of events here")
        return join_details(self.events, self.details, self.schema)

    @property
    def schema(self) -> EventSchema:
        """What the events were, as the run says; stays where it does not."""
        return EventSchema.from_dict(self.run["schema"]) if self.run.get("schema") else mobility_schema()

    def surprise(self, question: str) -> np.ndarray:
        """How unusual each event is by one question of its evidence (−log10 p): float64 [n], NaN without an answer."""
        table = self._table()
        if "evidence" not in table.column_names:
            raise DataError("these scores have no evidence; score again with this version")
        values = read_answers(table["evidence"], question)
        if np.isnan(values).all():
            entries = table["evidence"].combine_chunks().flatten()
            questions = pc.unique(entries.field("name")).to_pylist()
            if question not in questions:
                raise DataError(f"'{question}' was not asked; known: {', '.join(sorted(questions))}")
        return values

    def to_pandas(self) -> Any:
        """Scores of events (else of agents) as a pandas DataFrame, with the index of the one that was scored."""
        return frames.to_pandas(self._table())

    def to_geopandas(self) -> Any:
        """The same as a GeoDataFrame of the events' points."""
        return frames.to_geopandas(self._table())

    def to_polars(self) -> Any:
        """Scores of events (else of agents) as a polars DataFrame."""
        return frames.to_polars(self._table())

    def plot(self, agent: Any = None, axes: Any = None) -> Any:
        """Scores over time on matplotlib axes, alerts marked; of one agent, or of all."""
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise DataError("a plot needs matplotlib; install it with pip install 'ustad[plots]'") from error
        table = self._table()
        time = next((name for name in ("started_at", "time") if name in table.column_names), None)
        if time is None:
            raise DataError("only scores of events with a start can be plotted over time; use to_pandas()")
        if agent is not None:
            table = table.filter(pa.array([value == agent for value in table["agent_id"].to_pylist()]))
        axes = axes if axes is not None else pyplot.subplots(figsize=(9, 3))[1]
        moments = table[time].to_numpy()
        axes.plot(moments, table["score"].to_numpy(), ".", markersize=3, color="0.5")
        if "alert" in table.column_names:
            is_alert = table["alert"].to_numpy(zero_copy_only=False).astype(bool)
            axes.plot(moments[is_alert], table["score"].to_numpy()[is_alert], "o", color="C3", label="alert")
        axes.set_ylabel("score")
        return axes

    def _table(self) -> pa.Table:
        table = self.events if self.events is not None else self.agents
        if table is None:
            raise DataError("there are no scores here")
        return table

    @classmethod
    def load(cls, path: Path) -> Scores:
        path = Path(path)
        if not (path / "run.json").exists():
            raise DataError(f"{path}: not a directory of scores (no run.json); make one with `ustad score`")
        tables = {n: find_table(path, n) for n in TABLES}
        tables_by_name = {n: read_table(p) for n, p in tables.items() if p is not None}
        return cls(run=read_json(path / "run.json"), **tables_by_name)
