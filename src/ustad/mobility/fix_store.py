"""Fixes on their way to the kernel: collected in memory while they are few, on disk in buckets of agents when not.

In: pieces of validated fixes in any order. Out: partitions, each with all fixes of its agents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from ustad.mobility.core import COLUMNS, Fixes, bounds, concatenate
from ustad.mobility.staypoints import order_fixes
from ustad.tables import agent_codes

ROW = np.dtype([("agent", "<i8"), ("time", "<i8"), ("lat", "<f8"), ("lon", "<f8"), ("accuracy", "<f4")])


@dataclass(frozen=True)
class Partition:
    """All fixes of some agents, in order of agent and time; `fixes.agent` numbers `agents`."""

    agents: pa.Array
    fixes: Fixes
    unsorted: np.ndarray  # int64 [agents]: fixes that came before their turn
    inaccurate: np.ndarray  # int64 [agents]: fixes that the accuracy filter dropped


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
    def mixed(self) -> bool:
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
        fixes = concatenate(self._parts)
        self._parts = []
        identifiers, codes, inaccurate = _in_order(agents, fixes.agent)
        order, offsets, disorder = order_fixes(codes, fixes.time, len(identifiers))
        in_place = _is_identity(order)
        first = 0
        while first < len(identifiers):
            last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + size, side="right")) - 1)
            rows = slice(offsets[first], offsets[last])
            own = rows if in_place else order[rows]
            part = fixes.take(own).of(codes[own] - first)
            yield Partition(identifiers[first:last], part, disorder[first:last], inaccurate[first:last])
            first = last


class DiskStore:
    """Fixes in bucket files under a folder; an agent's fixes all lie in one bucket."""

    def __init__(self, folder: Path, buckets: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._paths = [folder / f"bucket-{i:04d}" for i in range(buckets)]

    def add(self, fixes: Fixes) -> None:
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
    order, _, disorder = order_fixes(codes, fixes.time, len(rank))
    ordered = fixes.of(codes)
    if not _is_identity(order):
        ordered = ordered.take(order)
    back = np.argsort(rank)
    return Partition(pa.array(values.tolist(), identifiers.type), ordered, disorder, inaccurate[back])


def _in_order(agents: AgentNumbers, numbers: np.ndarray) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Identifiers sorted, and the fixes' numbers by that order."""
    identifiers = agents.identifiers()
    rank, values = agent_codes(identifiers)
    return pa.array(values.tolist(), identifiers.type), rank[numbers], agents.inaccurate[np.argsort(rank)]


def _is_identity(order: np.ndarray) -> bool:
    """Whether fixes came in order already: a common case that needs no copy."""
    return bool((order[1:] > order[:-1]).all())
