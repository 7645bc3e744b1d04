"""What of a request is new, and whether it comes in order: each event once, none before what its agent did last.

In: rows of events, request by request. Out: those that are not in the store yet, or a refusal. When the latest event
of an agent is known here, an event after it cannot be in the store and nothing is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ustad.page.store import Row, Store
from ustad.service.errors import OutOfOrderError


@dataclass
class Arrival:
    """The events of one job, in order of agent and time, with the key of each."""

    rows: list[Row]
    keys: list[int]
    refusal: OutOfOrderError | None = None
    is_extracted: bool = False  # found in fixes: what overlaps events sent by hand is left out, not refused
    fresh: list[int] = field(default_factory=list)  # positions of what is new


class Arrivals:
    """Told of every event that is accepted; `most` agents are remembered."""

    def __init__(self, store: Store, most: int = 50_000) -> None:
        self._store, self._most = store, most
        self._latest: OrderedDict[str, tuple[int, int]] = OrderedDict()  # agent → its latest start and end

    def sift(self, arrivals: Sequence[Arrival]) -> None:
        """Set what is fresh, or refused, of each; what an earlier one brought is known to the later ones."""
        known_keys, last_end = self._look_up(arrivals)
        for arrival in arrivals:
            fresh = [i for i, key in enumerate(arrival.keys) if key not in known_keys]
            late = _late(arrival.rows, fresh, last_end)
            if late and not arrival.is_extracted:
                problem = "begins before the event before it, of the same agent, has ended"
                rows = sorted(row for row in (arrival.rows[i].get("row") for i in late) if row is not None)
                arrival.refusal = OutOfOrderError(
                    f"{len(late)} of {len(fresh)} new events begin before the agent's latest known event has ended; "
                    "events come in order of time, nothing of this request was stored",
                    [{"row": row, "problem": problem} for row in rows[:20]],
                )
                continue
            arrival.fresh = [i for i in fresh if i not in late]
            for i in arrival.fresh:
                row = arrival.rows[i]
                known_keys.add(arrival.keys[i])
                last_end[row["agent"]] = max(row["finished_at"], last_end.get(row["agent"], row["finished_at"]))
            if late:
                in_time = [i for i in range(len(arrival.rows)) if i not in late]
                arrival.fresh = [in_time.index(i) for i in arrival.fresh]
                arrival.rows, arrival.keys = [arrival.rows[i] for i in in_time], [arrival.keys[i] for i in in_time]

    def note_accepted(self, rows: Iterable[Row]) -> None:
        """These events are in the store now."""
        for row in rows:
            self._latest[row["agent"]] = (row["started_at"], row["finished_at"])
            self._latest.move_to_end(row["agent"])
        while len(self._latest) > self._most:
            self._latest.popitem(last=False)

    def forget(self, agents: Iterable[str]) -> None:
        for agent in agents:
            self._latest.pop(agent, None)

    def _look_up(self, arrivals: Sequence[Arrival]) -> tuple[set[int], dict[str, int]]:
        """Keys among these that the store has, and when each agent's latest event ended."""
        keys, agents, last_end = [], set(), {}
        for arrival in arrivals:
            for row, key in zip(arrival.rows, arrival.keys, strict=True):
                latest = self._latest.get(row["agent"])
                if latest is None:
                    agents.add(row["agent"])
                else:
                    last_end[row["agent"]] = latest[1]
                if latest is None or row["started_at"] <= latest[0]:
                    keys.append(key)
        if not keys:
            return set(), last_end
        known_keys, of_store = self._store.find_known(keys, list(agents))
        return known_keys, {**last_end, **of_store}


def _late(rows: list[Row], fresh: list[int], last_end: dict[str, int]) -> set[int]:
    """Which of the fresh rows begin before what came before them has ended."""
    late, last_end = set(), dict(last_end)
    for i in fresh:
        agent, start = rows[i]["agent"], rows[i]["started_at"]
        if agent in last_end and start < last_end[agent]:
            late.add(i)
        else:
            last_end[agent] = rows[i]["finished_at"]
    return late
