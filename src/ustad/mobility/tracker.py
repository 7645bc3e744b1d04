"""StayTracker: stays and trips from fixes as they arrive. It is the kernel of the batch extraction with a memory.

In: fixes of any agents, in any number of calls. Out: the stays, trips and gaps that are finished by now. However a
stream is cut into calls, what comes out of all of them together is the same.
"""

from __future__ import annotations

import copy
import io
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from ustad.config import ExtractionConfig
from ustad.mobility.columns import as_fixes
from ustad.mobility.core import (
    COLUMNS,
    Fixes,
    StayTables,
    advance,
    bounds,
    concatenate,
    fix_arrays,
    no_fixes,
    to_tables,
)
from ustad.mobility.plausible import AHEAD_S, at_null_island, implausible_times
from ustad.mobility.staypoints import MICROSECONDS, NO_TIME, STATE, Limits, empty_state
from ustad.tables import DataError, agent_codes

FORMAT = 3
COUNTS = ("late", "duplicates", "spikes", "inaccurate", "implausible")


class StayTracker:
    """Feed it fixes with `update`; close what is open with `finish`.

    Fixes may come out of order by `lateness_s` seconds: each waits until its agent's newest fix is that much later.
    A fix that comes later still is dropped and counted (`counts["late"]`), as is a second fix of the same moment
    (`counts["duplicates"]`), a time before 1980 or more than a day ahead, and a fix at (0, 0)
    (`counts["implausible"]`). With the default of 0 an agent's fixes have to come in order of time. Whether a fix is an
    outlier shows with the next one, so an agent's newest fix counts only then; `drop_outliers=False` spares the wait.

    >>> tracker = StayTracker(ExtractionConfig(minutes=5))
    >>> rows = {"agent_id": [1, 1, 1], "time": ["2024-01-01T08:00Z", "2024-01-01T08:06Z", "2024-01-01T08:07Z"],
    ...         "lat": [60.0, 60.0, 60.1], "lon": [25.0, 25.0, 25.0]}
    >>> tracker.update(pa.table(rows)).stays.num_rows
    1
    """

    def __init__(self, config: ExtractionConfig | None = None, lateness_s: float = 0.0) -> None:
        if lateness_s < 0:
            raise DataError(f"lateness_s must be 0 or more, got {lateness_s}")
        self.config = config or ExtractionConfig()
        self.lateness_s = float(lateness_s)
        self.counts = dict.fromkeys(COUNTS, 0)
        self.dropped: dict[str, Counter[Any]] = {}  # by the last update: why, and fixes of each agent
        self._limits = Limits.of(self.config)
        self._agents: list[Any] = []
        self._number: dict[Any, int] = {}
        self._state = empty_state(0)
        self._held: dict[int, Fixes] = {}  # waiting for their turn
        self._carry: dict[int, Fixes] = {}  # behind the kernel, still needed

    # ------------------------------------------------------------------------------------------- running
    def update(self, fixes: Any, check_clock: bool = True) -> StayTables:
        """Stays, trips and gaps that these fixes finish. Takes a path or anything with an Arrow C stream.

        Without `check_clock` times ahead of now are taken: for fixes that were checked when they came.
        """
        self.dropped = {}
        arrivals = self._arrivals(fixes, AHEAD_S if check_clock else np.inf)
        if not len(arrivals):
            return self._advance(np.zeros(0, np.int64), no_fixes(), final=False)
        on_time = _on_time(arrivals.agent, arrivals.time, self._state, round(self.lateness_s * MICROSECONDS))
        for why, number in (("duplicates", 2), ("late", 0)):
            self._drop(why, self._names(arrivals.agent[on_time == number]))
        return self._advance(np.unique(arrivals.agent), arrivals.take(on_time == 1), final=False)

    def finish(self) -> StayTables:
        """Close every open stay, as at the end of the data, and forget all agents."""
        result = self._advance(np.arange(len(self._agents)), no_fixes(), final=True)
        self._agents, self._number, self._state = [], {}, empty_state(0)
        self._held, self._carry = {}, {}
        return result

    def forget(self, agents: Iterable[Any]) -> None:
        """Drop everything that is remembered of these agents; what they had open is not closed."""
        numbers_gone = {self._number[agent] for agent in agents if agent in self._number}
        numbers_left = [number for number in range(len(self._agents)) if number not in numbers_gone]
        self._agents, self._state = [self._agents[number] for number in numbers_left], self._state[numbers_left].copy()
        self._number = {agent: number for number, agent in enumerate(self._agents)}
        for fixes in (self._held, self._carry):
            left = [(new, fixes[old]) for new, old in enumerate(numbers_left) if old in fixes]
            fixes.clear()
            fixes.update({n: own.of(np.full(len(own), n, np.int64)) for n, own in left})

    def current(self) -> pa.Table:
        """The stays that are not final yet. Some go on, and end at the last fix so far. Others were left a moment ago,
        perhaps not for good. It is what `finish` would close; later fixes may extend it."""
        twin = copy.deepcopy(self)
        twin._limits = self._limits._replace(include_last=True)
        return twin.finish().stays

    def _arrivals(self, fixes: Any, ahead_s: float) -> Fixes:
        table = as_fixes(fixes)
        if table.num_rows:
            bad = implausible_times(table["time"], ahead_s)[0] | at_null_island(table)
            if bad.any():
                self._drop("implausible", table["agent_id"].filter(pa.array(bad)).to_pylist())
                table = table.filter(pa.array(~bad))
        if table.num_rows and self.config.max_accuracy_m > 0 and "accuracy_m" in table.column_names:
            good = ~(table["accuracy_m"].to_numpy() > self.config.max_accuracy_m)
            if not good.all():
                self._drop("inaccurate", table["agent_id"].filter(pa.array(~good)).to_pylist())
                table = table.filter(pa.array(good))
        if not table.num_rows:
            return no_fixes()
        codes, values = agent_codes(table["agent_id"])
        numbers = self._numbers(values.tolist())
        return fix_arrays(table, numbers[codes])

    def _numbers(self, values: list[Any]) -> np.ndarray:
        """The rows of the state that these agents have, new ones for new agents."""
        if self._agents and isinstance(values[0], str) != isinstance(self._agents[0], str):
            raise DataError("fixes: column 'agent_id' mixes text and numbers between updates; use one of them")
        new = [v for v in values if v not in self._number]
        for value in new:
            self._number[value] = len(self._agents)
            self._agents.append(value)
        if new:
            self._state = np.concatenate([self._state, empty_state(len(new))])
        return np.array([self._number[v] for v in values], np.int64)

    def _advance(self, active: np.ndarray, arrivals: Fixes, final: bool) -> StayTables:
        """One step of the kernel over the agents that are concerned; the others are not touched."""
        fixes = _gather(self._held, active).join(arrivals)
        fixes = fixes.take(np.lexsort((fixes.time, fixes.agent)))
        ready = np.ones(len(fixes), bool) if final else self._ready(fixes)
        state, waiting = self._state[active], fixes.take(~ready)
        step = advance(
            _renumber(fixes.take(ready), active), _renumber(_gather(self._carry, active), active), state,
            self._limits, final=final,
        )  # fmt: skip
        self._state[active] = state
        self._drop("duplicates", self._names(np.repeat(active, step.duplicates)))
        self._drop("spikes", self._names(np.repeat(active, step.spikes)))
        _scatter(self._held, _renumber(waiting, active), step.pending, active)
        _scatter(self._carry, no_fixes(), step.carry, active)
        return to_tables(step, self._identifiers(active))

    def _drop(self, why: str, agents: list[Any]) -> None:
        """Count dropped fixes, given by their agents."""
        if agents:
            self.counts[why] += len(agents)
            self.dropped.setdefault(why, Counter()).update(agents)

    def _names(self, numbers: np.ndarray) -> list[Any]:
        return [self._agents[number] for number in numbers.tolist()]

    def _ready(self, waiting: Fixes) -> np.ndarray:
        newest = self._state["newest"][waiting.agent]
        return waiting.time <= newest - round(self.lateness_s * MICROSECONDS)

    def _identifiers(self, numbers: np.ndarray) -> pa.Array:
        return pa.array(
            self._names(numbers), pa.string() if self._agents and isinstance(self._agents[0], str) else pa.int64()
        )

    # -------------------------------------------------------------------------------------------- saving
    def to_bytes(self) -> bytes:
        """Everything it remembers, as arrays and JSON: reading it back executes nothing."""
        about = {
            "format": FORMAT, "config": asdict(self.config), "lateness_s": self.lateness_s,
            "counts": self.counts, "agents": self._agents,
        }  # fmt: skip
        arrays: dict[str, np.ndarray] = {"state": self._state}
        for name, by_agent in (("held", self._held), ("carry", self._carry)):
            fixes = _gather(by_agent, sorted(by_agent))
            arrays |= {f"{name}_{part}": getattr(fixes, part) for part in COLUMNS}
        buffer = io.BytesIO()
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> StayTracker:
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return cls._restore(dict(arrays))
        except Exception as error:  # bytes that are not its own make an archive's reader raise almost anything
            raise DataError(f"the saved state of a StayTracker cannot be read ({error})") from error

    @classmethod
    def _restore(cls, arrays: dict[str, np.ndarray]) -> StayTracker:
        about = json.loads(arrays["about"].tobytes())
        if about["format"] != FORMAT or arrays["state"].dtype != STATE:
            raise DataError(f"the saved state has format {about['format']}, this version reads {FORMAT}")
        about["config"].pop("changes_reach_m", None)  # a setting of its own once; `reach_m` says it now
        tracker = cls(ExtractionConfig(**about["config"]), about["lateness_s"])
        tracker.counts |= about["counts"]
        tracker._agents, tracker._state = about["agents"], arrays["state"].copy()
        tracker._number = {agent: number for number, agent in enumerate(tracker._agents)}
        everyone = np.arange(len(tracker._agents))
        for name, by_agent in (("held", tracker._held), ("carry", tracker._carry)):
            fixes = Fixes(*(arrays[f"{name}_{part}"] for part in COLUMNS))
            _scatter(by_agent, no_fixes(), fixes, everyone)
        tracker._check()
        return tracker

    def _check(self) -> None:
        """Refuse positions that lie beyond the fixes they are of: the kernel would read what is not its own."""
        lengths = np.array([len(self._carry[i]) if i in self._carry else 0 for i in range(len(self._agents))], np.int64)
        if len(self._state) != len(self._agents):
            raise ValueError("states of other agents")
        for name in ("anchor_at", "origin_at", "held_anchor_at"):
            if ((self._state[name] < 0) | (self._state[name] > lengths)).any():
                raise ValueError(f"{name} is no position")

    def save(self, path: Path | str) -> None:
        """Write the state under a temporary name, then rename."""
        path = Path(path)
        temporary = path.with_name(f".{path.name}.part")
        temporary.write_bytes(self.to_bytes())
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path | str) -> StayTracker:
        return cls.from_bytes(Path(path).read_bytes())


def _gather(by_agent: dict[int, Fixes], agents: Iterable[int]) -> Fixes:
    return concatenate([by_agent[int(agent)] for agent in agents if int(agent) in by_agent])


def _scatter(by_agent: dict[int, Fixes], first: Fixes, second: Fixes, active: np.ndarray) -> None:
    """Replace what is kept of the active agents; the fixes number them by their place in `active`."""
    both = second.join(first)  # undecided fixes are older than those that still wait
    both = both.take(np.argsort(both.agent, kind="stable"))
    edges = bounds(both.agent, len(active))
    for place, agent in enumerate(active.tolist()):
        if edges[place] == edges[place + 1]:
            by_agent.pop(agent, None)
            continue
        own = both.take(np.arange(edges[place], edges[place + 1]))
        by_agent[agent] = own.of(np.full(len(own), agent, np.int64))


def _renumber(fixes: Fixes, active: np.ndarray) -> Fixes:
    """The same fixes, their agents numbered by their place in `active`, which is sorted."""
    return fixes.of(np.searchsorted(active, fixes.agent))


@numba.njit(cache=True)
def _on_time(agent: Any, time: Any, state: Any, lateness: Any) -> Any:
    """Per fix in order of arrival: 1 taken, 2 a repeat of the newest moment, 0 late."""
    verdict = np.zeros(len(agent), np.int8)
    for k in range(len(agent)):
        newest = state[agent[k]].newest
        if newest == NO_TIME or time[k] > newest - lateness:
            verdict[k] = 1
            state[agent[k]].newest = max(newest, time[k])
        elif time[k] == newest:
            verdict[k] = 2
    return verdict
