"""All scored events of a run by the few columns that every event is asked for, and who is ranked where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.dataset import event_days
from ustad.page.run_tables import RunTables
from ustad.page.score_columns import numbers
from ustad.schema import EventSchema
from ustad.tables import DataError, agent_codes
from ustad.ties import descending, lowered, tied_ranks

SMALLEST_P = 1e-12
IDENTIFYING = ("score", "p_value", "alert", "kind")


@dataclass(frozen=True)
class RunScores:
    """Events by column, in the table's order."""

    table: pa.Table  # identifying columns
    schema: EventSchema
    codes: np.ndarray  # agent code of each event
    names: np.ndarray  # agents by code
    score: np.ndarray
    p: np.ndarray
    alert: np.ndarray
    day: np.ndarray
    by_surprise: np.ndarray  # event rows, most unusual first

    @property
    def surprise(self) -> np.ndarray:
        """−log10 p."""
        return -np.log10(np.clip(self.p, SMALLEST_P, 1.0))

    @property
    def days(self) -> int:
        return int(self.day.max() - self.day.min() + 1)


def read_run_scores(run: RunTables) -> RunScores:
    """Read these columns of every event."""
    schema, present = run.schema, run.events.schema.names
    for name in (schema.entity, schema.time, "score"):
        if name not in present:
            raise DataError(f"event scores: missing column {name}; found {', '.join(present) or 'no columns'}")
    columns = [schema.entity, schema.time, schema.event_id, schema.timezone, *IDENTIFYING]
    table = run.events.to_table(columns=[name for name in dict.fromkeys(columns) if name in present])
    if table.num_rows == 0:
        raise DataError("event scores: the table is empty; nothing was scored")
    score = numbers(table, "score")
    p = numbers(table, "p_value") if "p_value" in present else _rank_p(score)
    codes, names = agent_codes(table[schema.entity])
    alert = pc.fill_null(table["alert"], False).to_numpy() if "alert" in present else np.zeros(len(score), bool)
    return RunScores(
        table=table, schema=schema, codes=codes, names=names, score=score, p=p, alert=alert.astype(bool),
        day=event_days(table, schema), by_surprise=np.lexsort((tied_ranks(p, floor=0.0), tied_ranks(-score))),
    )  # fmt: skip


def _rank_p(score: np.ndarray) -> np.ndarray:
    """Where no p-value was given: the share of events that score at least as high."""
    in_order = np.sort(score)
    return (len(score) - np.searchsorted(in_order, lowered(score), "left")) / len(score)


def agents_by_events(run_scores: RunScores) -> np.ndarray:
    """Agent codes by their most unusual event, as the lanes rank them."""
    codes = run_scores.codes[run_scores.by_surprise]
    _, first = np.unique(codes, return_index=True)
    return codes[np.sort(first)]


def agents_by_score(run: RunTables, run_scores: RunScores) -> np.ndarray:
    """Agent codes by the agents' own scores; by their events where the run has none."""
    table = run.agents
    if table is None or table.num_rows == 0:
        return agents_by_events(run_scores)
    entity = run_scores.schema.entity
    position = pc.index_in(table[entity], pa.array(run_scores.names).cast(table[entity].type))
    codes = pc.fill_null(position, -1).to_numpy()
    has_agent = codes >= 0
    if not has_agent.any():
        raise DataError("agent scores and event scores share no agent; are they of the same run?")
    return codes[has_agent][descending(numbers(table, "score")[has_agent])]
