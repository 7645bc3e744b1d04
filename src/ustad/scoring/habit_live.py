"""Habits one event at a time: a provisional score at once, the final one when the next event has come.

In goes an event (a row as a mapping), out come its scores and, with the neighbours' evidence, the final scores of
the event before it. The numbers are those of batch scoring with counts up to the event and the window `past`: each
entity's own events since going live are judged by the same code, against its own part of the history. State is
bounded: so many events per entity, so many entities' histories at hand.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.config import ConfigError
from ustad.dataset import event_days
from ustad.events.habits import Habits
from ustad.scoring.default_score import DefaultModel, p_values
from ustad.scoring.habit_model import HabitModel, Judged
from ustad.scoring.memory_model import MemoryModel
from ustad.tables import TIMESTAMP, DataError, as_table

#: Events of each entity since going live that are kept; visits before them are no longer counted.
MOST_EVENTS = 256
#: Embeddings that are kept between questions; when there are more, all are made anew.
MOST_EMBEDDINGS = 50_000
#: Entities whose part of the history is kept at hand.
MOST_ENTITIES = 4096


@dataclass
class _State:
    """One entity: what came before going live, its events since, and the memory terms of those."""

    model: HabitModel
    before: pa.Table | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    terms: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Update:
    """The new event's provisional scores, and the final ones of the event before it (None for the first)."""

    provisional: dict[str, Any]
    final: dict[str, Any] | None


class HabitLive:
    """Scores by habits, event by event, for any interleaving of entities.

    >>> live = HabitLive(model, since=19_751)     # doctest: +SKIP
    >>> live.update(stay).provisional["p_value"]  # doctest: +SKIP
    """

    def __init__(self, model: DefaultModel, since: int, most: int = MOST_EVENTS) -> None:
        """`since`: the local day (days since 1970-01-01) from which on visits are counted."""
        if model.habits.counting != "past":
            raise ConfigError("live scores count visits up to the event; train with scoring.counting: past")
        self.model, self.since, self.most = model.habits, since, most
        self.memory: MemoryModel | None = None
        if model.memory is not None:
            past = model.memory.config.replace({"window.mode": "past"})
            self.memory = replace(model.memory, config=past, samples=None, kept={}, _known=None)
        self._states: OrderedDict[Any, _State] = OrderedDict()
        self._context: dict[Any, pa.Table] = {}

    # ------------------------------------------------------------------------------------------ public
    def warm(self, events: Any) -> None:
        """Remember what came before going live, as context of the first windows; nothing is scored or counted."""
        table, entity = as_table(events, "context"), self.model.schema.entity
        for name in table[entity].unique():
            own = table.filter(pc.equal(table[entity], name)).sort_by(self.model.schema.time)
            self._context[name.as_py()] = own.slice(max(0, own.num_rows - 64))

    def update(self, event: Mapping[str, Any]) -> Update:
        """Score one event and remember it. Events of one entity must come in the order of their times."""
        schema = self.model.schema
        entity = event.get(schema.entity)
        if entity is None or event.get(schema.time) is None:
            raise DataError(f"an event needs '{schema.entity}' and '{schema.time}'")
        state = self._state(entity)
        if state.events and event[schema.time] < state.events[-1][schema.time]:
            raise DataError(f"an event arrived before its {schema.entity_word}'s previous one; send them in order")
        state.events.append(dict(event))
        table = self._table(state.events)
        state.terms.append(self._ask(state, table))
        state.events, state.terms = state.events[-self.most :], state.terms[-self.most :]
        held = {name: np.array([t[name] for t in state.terms]) for name in state.terms[0]}
        model = replace(state.model, extra=(lambda *_: held) if held else None)
        last = int(event_days(table.slice(len(table) - 1), schema)[0])
        judged = model.judge(table.slice(max(0, len(table) - self.most)), period=(self.since, last))
        earlier = self._row(judged, -2, True) if len(judged.score) > 1 else None
        return Update(self._row(judged, -1, False), earlier)

    def forget(self, entity: Any) -> None:
        """Drop everything held about one entity, its history included."""
        self._states.pop(entity, None)
        self._context.pop(entity, None)
        self.model = self.model.forget([entity])

    def __len__(self) -> int:
        return len(self._states)

    # ------------------------------------------------------------------------------------------- state
    def _state(self, entity: Any) -> _State:
        if entity not in self._states:
            own = replace(self.model, habits=self.model.habits.only([entity]))
            self._states[entity] = _State(own, self._context.get(entity))
            if len(self._states) > MOST_ENTITIES:
                self._states.popitem(last=False)
        self._states.move_to_end(entity)
        return self._states[entity]

    def _table(self, events: list[dict[str, Any]]) -> pa.Table:
        schema = self.model.schema
        table = pa.Table.from_pylist(events)
        for name in (schema.time, schema.end):
            if name is not None and name in table.column_names:
                position = table.column_names.index(name)
                table = table.set_column(position, name, table[name].cast(TIMESTAMP))
        return table

    def _ask(self, state: _State, table: pa.Table) -> dict[str, float]:
        """The memory network's terms of the newest event, from a window that ends with it."""
        if self.memory is None:
            return {}
        newest, earlier = table.slice(len(table) - 1), table.slice(0, len(table) - 1)
        parts = [p for p in (state.before, earlier) if p is not None and p.num_rows]
        before = pa.concat_tables(parts, promote_options="permissive") if parts else None
        habits: Habits = state.model.habits
        if self.memory.kept is not None and len(self.memory.kept) > MOST_EMBEDDINGS:
            self.memory.kept.clear()
        return {name: float(values[0]) for name, values in self.memory.terms(habits, newest, before).items()}

    def _row(self, judged: Judged, at: int, final: bool) -> dict[str, Any]:
        score = judged.score[at]
        return {
            "score": float(score),
            "p_value": float(p_values(np.array([score]))[0]),
            "score_alone": float(judged.alone[at]),
            "final": final or self.model.spread == "none",
            "visits_now": int(judged.compared.count[at]),
            "km_from_own_places": float(judged.compared.distance[at]),
            "new_place": bool(judged.compared.place[at] < 0),
            **{f"surprise_{name}": float(values[at]) for name, values in judged.surprise.items()},
        }
