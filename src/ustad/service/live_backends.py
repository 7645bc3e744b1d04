"""What scores live for the service, with state or without, behind the same few calls.

In: rows of events in order of agent and time. Out: the columns of their scores, and each agent's state as bytes, which
the store keeps in the same transaction as the events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from ustad.dataset import event_days
from ustad.detector import Detector
from ustad.live.habit_state import HabitState
from ustad.live.live_judges import Live, make_live, share_live
from ustad.page.queries import CONTEXT_EVENTS
from ustad.schema import EventSchema
from ustad.service.pipeline import ScoreBatch
from ustad.versions import find_model

#: Events of an agent that are looked through again where the store has them but no state. They are counted and enter
#: its history as they did; the weeks before the first of them say nothing of the agent.
MOST_REPLAY = 256


class Backend(Protocol):
    """What the service asks of a scorer."""

    context: int  # how many of an agent's latest events it wants to see when the agent comes back
    strangers: Sequence[str]  # names that nobody has, one for each process that scores

    def missing(self, agent: str) -> bool: ...

    def remember(self, agent: str, events: pa.Table, state: bytes | None) -> None: ...

    def score(self, events: Sequence[Mapping[str, Any]]) -> ScoreBatch: ...

    def let_go(self, agent: str) -> None: ...

    def erase(self, agent: str) -> None: ...

    def close(self) -> None: ...


def make_backend(
    detector: Detector, p_value: float, most: int, *, model: Path | None = None, workers: int = 1
) -> Backend:
    """The scorer of a loaded model; `most` agents are at hand. More `workers` than one are processes that load the
    `model` themselves."""
    if workers > 1 and model is not None:
        shards = share_live(detector.judge, find_model(model), workers, p_value=p_value, most=most + 1)
        return StateBackend(shards, detector.schema, shards.strangers)
    live = make_live(detector.judge, device=detector.device, p_value=p_value, most=most + 1)
    return StateBackend(live, detector.schema) if live.since is not None else WindowBackend(live)


class WindowBackend:
    """Of a scorer that remembers the last window of each agent and nothing else."""

    context = CONTEXT_EVENTS
    strangers: Sequence[str] = ("",)

    def __init__(self, live: Live) -> None:
        self._live = live

    def missing(self, agent: str) -> bool:
        return False

    def remember(self, agent: str, events: pa.Table, state: bytes | None) -> None:
        self._live.forget(agent)
        if events.num_rows:
            self._live.warm(events)

    def score(self, events: Sequence[Mapping[str, Any]]) -> ScoreBatch:
        rows = [self._live.update(events[0])] if len(events) == 1 else self._live.update_many(events)
        own = set(events[0]) if events else set()
        return ScoreBatch(rows=[{name: value for name, value in row.items() if name not in own} for row in rows])

    def let_go(self, agent: str) -> None:
        self._live.forget(agent)

    def erase(self, agent: str) -> None:
        self._live.forget(agent)

    def close(self) -> None:
        """Nothing to end."""


class StateBackend:
    """Of a scorer that counts from the day after the model's own history, which moves on; agents' states are kept."""

    context = MOST_REPLAY

    def __init__(self, live: Any, schema: EventSchema, strangers: Sequence[str] = ("",)) -> None:
        self._live, self._schema, self.since, self.strangers = live, schema, live.since, strangers
        self._empty = HabitState().to_bytes(lambda rows: pa.Table.from_pylist(rows))

    def missing(self, agent: str) -> bool:
        return self._live.missing(agent)

    def remember(self, agent: str, events: pa.Table, state: bytes | None) -> None:
        """Take up an agent: from its state, or, where there is none, from the events since going live."""
        later = event_days(events, self._schema) >= self.since
        before = events.filter(pa.array(~later))
        if before.num_rows:
            self._live.warm(before)
        self._live.from_bytes(agent, state or self._empty)
        if state is None:
            for row in events.filter(pa.array(later)).to_pylist():
                self._live.update(row)

    def score(self, events: Sequence[Mapping[str, Any]]) -> ScoreBatch:
        """Scores of rows in order of agent and time, as one micro-batch."""
        scores = ScoreBatch()
        for event, answer in zip(events, self._live.update_many(events), strict=True):
            row = self._columns(answer)
            change, absences = row.pop("change", None), row.pop("absences", [])
            scores.absences += [{self._schema.entity: event[self._schema.entity], **one} for one in absences]
            scores.rows.append(row)
            if change is not None:
                scores.changes[str(event[self._schema.entity])] = change
        for agent in {str(event[self._schema.entity]) for event in events}:
            scores.states[agent] = self._live.to_bytes(agent)
        return scores

    def let_go(self, agent: str) -> None:
        """Of the agents that are not at hand the live scorer keeps the order itself."""

    def erase(self, agent: str) -> None:
        """Leave nothing of an agent, what was learnt of it included."""
        self._live.forget(agent)

    def close(self) -> None:
        getattr(self._live, "close", lambda: None)()

    def _columns(self, row: Mapping[str, Any]) -> dict[str, Any]:
        own = {self._schema.entity, self._schema.time, self._schema.event_id}
        return {name: value for name, value in row.items() if name not in own}
