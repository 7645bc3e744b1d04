"""Fixes on their way to the kernel: collected in memory while they are few, on disk in buckets of agents when not.

In: pieces of validated fixes in any order. Out: partitions, each with all fixes of its agents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numba
import numpy as np
import pyarrow as pa

from ustad.mobility.core import COLUMNS, Fixes, bounds, concatenate
from ustad.tables import agent_codes

DISK_ROWS = 1 << 18  # fixes that are written at once: their arrays are small enough to be used again
ROW = np.dtype([("agent", "<i8"), ("time", "<i8"), ("lat", "<f8"), ("lon", "<f8"), ("accuracy", "<f4")])


@dataclass(frozen=True)
class Partition:
    """All fixes of some agents, in order of agent and time; `fixes.agent` numbers `agents`."""

    agents: pa.Array
    fixes: Fixes
    n_unsorted: np.ndarray  # int64 [agents]: fixes that came before their turn
    inaccurate: np.ndarray  # int64 [agents]: fixes that the accuracy filter dropped

    def blocks(self, size: int) -> Iterator[Partition]:
        """The same in parts of about `size` fixes, an agent in one of them; one part where there is nobody."""
        offsets, n = bounds(self.fixes.agent, len(self.agents)), len(self.agents)
        for first, last in _ranges(offsets, size) if n else [(0, 0)]:
            fixes = self.fixes.take(slice(offsets[first], offsets[last]))
            fixes = fixes if first == 0 else fixes.of(fixes.agent - first)
            yield Partition(
                self.agents[first:last], fixes, self.n_unsorted[first:last], self.inaccurate[first:last]
            )  # fmt: skip


def _ranges(offsets: np.ndarray, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of agents with about `size` fixes each; offsets [agents + 1] says where an agent's fixes begin."""
    first, agents = 0, len(offsets) - 1
    while first < agents:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + size, side="right")) - 1)
        yield first, last
        first = last


class AgentNumbers:
    """Numbers for identifiers as they are first seen, and per number how many fixes were too inaccurate.

    Identifiers are integers if all are, text as soon as some file has them as text.
    """

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._kinds: set[pa.DataType] = set()
        self.inaccurate = np.zeros(0, np.int64)
        self.span: tuple[int, int] | None = None  # first and last time of all fixes, µs

    def __len__(self) -> int:
        return len(self._number)

    @property
    def has_two_kinds(self) -> bool:
        """Whether identifiers came as integers and as text."""
        return len(self._kinds) > 1

    def take(self, column: pa.ChunkedArray) -> np.ndarray:
        """The numbers of a column of identifiers: int64 [n]."""
        self._kinds.add(column.type)
        codes, values = agent_codes(column)
        numbers = [self._number.setdefault(str(value), len(self._number)) for value in values.tolist()]
        if len(self._number) > len(self.inaccurate):
            self.inaccurate = np.pad(self.inaccurate, (0, len(self._number) - len(self.inaccurate)))
        return np.array(numbers, np.int64)[codes]

    def see(self, times: np.ndarray) -> None:
        """Widen the span by the times of some fixes."""
        if len(times):
            first, last = self.span or (int(times[0]), int(times[0]))
            self.span = min(first, int(times.min())), max(last, int(times.max()))

    def identifiers(self) -> pa.Array:
        if self._kinds == {pa.int64()}:
            return pa.array([int(name) for name in self._number], pa.int64())
        return pa.array(list(self._number), pa.string())


class Store(Protocol):
    """Where fixes wait until all of an agent's are there."""

    def add(self, fixes: Fixes) -> None: ...

    def partitions(self, agents: AgentNumbers, size: int) -> Iterator[Partition]: ...


class MemoryStore:
    """All fixes in memory; partitions are ranges of agents in the order of their identifiers."""

    def __init__(self) -> None:
        self._parts: list[Fixes] = []

    def add(self, fixes: Fixes) -> None:
        self._parts.append(fixes)

    def partitions(self, agents: AgentNumbers, size: int) -> Iterator[Partition]:
        """Each of about `size` fixes."""
        identifiers, parts, inaccurate = _rank_agents(agents, self._parts)
        self._parts = []
        disorder = np.zeros(len(identifiers), np.int64)
        if not _are_sorted(parts):
            parts = [concatenate(parts)]
            order, _, disorder = order_fixes(parts[0].agent, parts[0].time, len(identifiers))
            parts = [parts[0].take(order)]
        offsets = sum((bounds(part.agent, len(identifiers)) for part in parts), np.zeros(1, np.int64))
        for first, last in _ranges(offsets, size):
            fixes = _cut(parts, int(offsets[first]), int(offsets[last]))
            yield Partition(
                identifiers[first:last], fixes.of(fixes.agent - first), disorder[first:last], inaccurate[first:last]
            )  # fmt: skip


class DiskStore:
    """Fixes in bucket files under a folder; an agent's fixes all lie in one bucket."""

    def __init__(self, folder: Path, buckets: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._paths = [folder / f"bucket-{i:04d}" for i in range(buckets)]

    def add(self, fixes: Fixes) -> None:
        for begin in range(0, len(fixes), DISK_ROWS):
            self._append(fixes.take(slice(begin, begin + DISK_ROWS)))

    def _append(self, fixes: Fixes) -> None:
        rows = np.empty(len(fixes), ROW)
        for name in COLUMNS:
            rows[name] = getattr(fixes, name)
        bucket = (fixes.agent % len(self._paths)).astype(np.uint16)  # small integers are sorted by radix
        order = np.argsort(bucket, kind="stable")
        edges = bounds(bucket[order], len(self._paths))
        rows = rows[order]
        for path, begin, end in zip(self._paths, edges[:-1], edges[1:], strict=True):
            if end > begin:
                with path.open("ab") as file:
                    rows[begin:end].tofile(file)

    def partitions(self, agents: AgentNumbers, size: int) -> Iterator[Partition]:
        """One per bucket; the bucket's file is removed once it is read."""
        identifiers = agents.identifiers()
        for number, path in enumerate(self._paths):
            members = np.arange(number, len(agents), len(self._paths))
            if not len(members):
                continue
            raw = np.fromfile(path, ROW) if path.exists() else np.zeros(0, ROW)
            path.unlink(missing_ok=True)
            fixes = Fixes(*(raw[name].copy() for name in COLUMNS))
            fixes = fixes.of(fixes.agent // len(self._paths))
            yield _partition(identifiers.take(pa.array(members)), fixes, agents.inaccurate[members])


def _partition(identifiers: pa.Array, fixes: Fixes, inaccurate: np.ndarray) -> Partition:
    """Order the agents by identifier and their fixes by time."""
    rank, values = agent_codes(identifiers)
    codes = rank[fixes.agent]
    in_order, disorder = fixes.of(codes), np.zeros(len(rank), np.int64)
    if not _is_sorted(codes, fixes.time):
        order, _, disorder = order_fixes(codes, fixes.time, len(rank))
        in_order = in_order.take(order)
    back = np.argsort(rank)
    return Partition(pa.array(values.tolist(), identifiers.type), in_order, disorder, inaccurate[back])


def _rank_agents(agents: AgentNumbers, parts: list[Fixes]) -> tuple[pa.Array, list[Fixes], np.ndarray]:
    """Identifiers sorted, the fixes with agents numbered in that order, and the counts of inaccurate fixes so."""
    identifiers = agents.identifiers()
    rank, values = agent_codes(identifiers)
    if (np.diff(rank) > 0).all():  # seen in that order
        return identifiers, parts, agents.inaccurate
    by_rank = [part.of(rank[part.agent]) for part in parts]
    return pa.array(values.tolist(), identifiers.type), by_rank, agents.inaccurate[np.argsort(rank)]


def _cut(parts: list[Fixes], begin: int, end: int) -> Fixes:
    """Rows begin … end - 1 of parts that follow each other, as arrays that may be written to."""
    slices, at = [], 0
    for part in parts:
        rows = slice(max(begin - at, 0), min(end - at, len(part)))
        if rows.start < rows.stop:
            slices.append(part.take(rows))
        at += len(part)
    only = len(slices) == 1 and all(getattr(slices[0], name).flags.writeable for name in COLUMNS)
    return slices[0] if only else concatenate(slices)


def _are_sorted(parts: list[Fixes]) -> bool:
    """Whether fixes came in order of agent and time, a common case that needs no copy of all."""
    parts = [part for part in parts if len(part)]
    ends = [(part.agent[0], part.time[0], part.agent[-1], part.time[-1]) for part in parts]
    follow = all(before[2:] <= after[:2] for before, after in pairwise(ends))
    return follow and all(_is_sorted(part.agent, part.time) for part in parts)


@numba.njit(cache=True, nogil=True)
def _is_sorted(agent: Any, time: Any) -> Any:
    """Whether fixes are in order of agent and time."""
    for k in range(1, len(agent)):
        if agent[k] < agent[k - 1] or (agent[k] == agent[k - 1] and time[k] < time[k - 1]):
            return False
    return True


# ----------------------------------------------------------------------------------------------------- order
def order_fixes(codes: np.ndarray, time: np.ndarray, agents: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fixes by agent and time, ties as they came.

    Returns order [n], offsets [agents + 1] and how many fixes of each agent came before their turn [agents].
    """
    order, offsets, disorder = _group(codes, time, agents)
    if disorder.any():
        order = np.lexsort((time, codes))
    return order, offsets, disorder


@numba.njit(cache=True, nogil=True)
def _group(codes: Any, time: Any, agents: Any) -> Any:
    """A stable counting sort by agent, and how often time ran backwards within each."""
    offsets, disorder = np.zeros(agents + 1, np.int64), np.zeros(agents, np.int64)
    for code in codes:
        offsets[code + 1] += 1
    for i in range(agents):
        offsets[i + 1] += offsets[i]
    place, order = offsets[:-1].copy(), np.empty(len(codes), np.int64)
    for k in range(len(codes)):
        code = codes[k]
        if place[code] > offsets[code] and time[k] < time[order[place[code] - 1]]:
            disorder[code] += 1
        order[place[code]] = k
        place[code] += 1
    return order, offsets, disorder
