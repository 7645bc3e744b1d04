"""Arrays to padded batches. A window is a slice of the sorted arrays, so it can hold one entity only.

`Windows` are what training shows to the network: one per entity and local day, days d − w … d. `Queries` are
what validation and scoring ask: one event, and the slice it is seen in. `EventTensors` lives on the device and
cuts padded batches out of itself by index, so nothing waits for a loader.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ustad.config import WindowConfig
from ustad.events.encoder import EventArrays
from ustad.schema import Field


@dataclass(frozen=True)
class Windows:
    """W slices: window i shows events start[i] … stop[i], of which target[i] … stop[i] are its own day's."""

    start: np.ndarray  # int64 [W]
    target: np.ndarray  # int64 [W]
    stop: np.ndarray  # int64 [W]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> np.ndarray:
        return self.stop - self.start

    def take(self, index: np.ndarray) -> Windows:
        return Windows(self.start[index], self.target[index], self.stop[index])


@dataclass(frozen=True)
class Queries:
    """Q questions: what is event target[i], seen within start[i] … stop[i]?"""

    start: np.ndarray  # int64 [Q]
    stop: np.ndarray  # int64 [Q]
    target: np.ndarray  # int64 [Q]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> np.ndarray:
        return self.stop - self.start

    def take(self, index: np.ndarray) -> Queries:
        return Queries(self.start[index], self.stop[index], self.target[index])


def make_windows(
    arrays: EventArrays, config: WindowConfig, first_day: int | None = None, last_day: int | None = None
) -> Windows:
    """A window per entity and local day in [first_day, last_day] (of `length` events by count windows).

    A day with more events than half of `max_events` is divided into several windows, so that no event is lost
    and no window is longer than `max_events`.
    """
    block = max(1, config.max_events // 2)
    group = _day_groups(arrays) if config.unit == "days" else _count_groups(arrays, max(1, min(config.length, block)))
    first = np.flatnonzero(np.diff(group, prepend=-1))
    last = np.append(first[1:], len(group))
    first, last = _divide(first, last, block)
    if first_day is not None or last_day is not None:
        low, high = first_day if first_day is not None else -(2**31), last_day if last_day is not None else 2**31
        inside = (arrays.day[first] >= low) & (arrays.day[first] <= high)
        first, last = first[inside], last[inside]
    start = np.maximum(_history_start(arrays, first, config), last - config.max_events)
    return Windows(start, first, last)


def make_queries(arrays: EventArrays, windows: Windows, config: WindowConfig) -> Queries:
    """One question per event of the windows' own days, in the order of the arrays.

    `day`: the slice ends with the event's day (or `max_events // 4` events after the event on a very long day);
    `past`: it ends with the event. Either way it holds at most `max_events` events.
    """
    counts = windows.stop - windows.target
    owner = np.repeat(np.arange(len(windows)), counts)
    target = windows.target[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = np.argsort(target, kind="stable")
    target, owner = target[order], owner[order]
    history = _history_start(arrays, target, config)
    if config.mode == "past" or config.unit == "events":
        stop = target + 1
    else:
        stop = np.minimum(_day_end(arrays)[target], target + 1 + config.max_events // 4)
    return Queries(np.maximum(history, stop - config.max_events), stop, target)


def _day_groups(arrays: EventArrays) -> np.ndarray:
    """A number that changes wherever entity or day does: int64 [N]."""
    change = np.ones(len(arrays), bool)
    change[1:] = (arrays.entity[1:] != arrays.entity[:-1]) | (arrays.day[1:] != arrays.day[:-1])
    return np.cumsum(change) - 1


def _count_groups(arrays: EventArrays, size: int) -> np.ndarray:
    within = np.arange(len(arrays)) - arrays.offsets[arrays.entity]
    change = np.ones(len(arrays), bool)
    change[1:] = (arrays.entity[1:] != arrays.entity[:-1]) | (within[1:] % size == 0)
    return np.cumsum(change) - 1


def _divide(first: np.ndarray, last: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut ranges longer than `block` into ranges of at most `block`."""
    pieces = -(-(last - first) // block)
    owner = np.repeat(np.arange(len(first)), pieces)
    piece = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = first[owner] + piece * block
    return begin, np.minimum(begin + block, last[owner])


def _history_start(arrays: EventArrays, event: np.ndarray, config: WindowConfig) -> np.ndarray:
    """Index of the first event that a window around `event` may show."""
    begin = arrays.offsets[arrays.entity[event]]
    if config.unit == "events":
        return np.maximum(begin, event - config.length)
    stamp = arrays.entity.astype(np.int64) * (1 << 32) + arrays.day.astype(np.int64)
    return np.maximum(begin, np.searchsorted(stamp, stamp[event] - config.length, side="left"))


def _day_end(arrays: EventArrays) -> np.ndarray:
    """Index after the last event of each event's own day: int64 [N]."""
    group = _day_groups(arrays)
    ends = np.append(np.flatnonzero(np.diff(group)) + 1, len(group))
    return ends[group]


# ---------------------------------------------------------------------------------------------- tensors
@dataclass
class Features:
    """The fields of some events, in network units; leading dimensions are the caller's ([N] or [B, L])."""

    numbers: Tensor  # float32 [..., number fields]
    categories: Tensor  # int64 [..., category fields]
    vectors: Tensor  # float32 [..., sum of vector sizes]
    missing: Tensor  # bool [..., F]

    def __getitem__(self, index: Tensor) -> Features:
        return Features(self.numbers[index], self.categories[index], self.vectors[index], self.missing[index])


@dataclass
class Batch:
    """B windows padded on the right to L events."""

    features: Features  # [B, L, …]
    padding: Tensor  # bool [B, L], True where there is no event
    position: Tensor  # int64 [B, L] order in the window
    day_position: Tensor  # int64 [B, L] order within the event's own day
    index: Tensor  # int64 [B, L] event in the arrays (the window's first where padded)


class EventTensors:
    """The arrays on a device. Batches are index gathers, made where the network runs."""

    def __init__(self, arrays: EventArrays, device: torch.device | str = "cpu") -> None:
        self.fields: tuple[Field, ...] = arrays.fields
        self.device = torch.device(device)
        self.entity = arrays.entity  # int32 [N], stays on the host
        self.features = Features(
            torch.from_numpy(np.ascontiguousarray(arrays.numbers)).to(self.device),
            torch.from_numpy(arrays.categories.astype(np.int64)).to(self.device),
            torch.from_numpy(np.ascontiguousarray(arrays.vectors)).to(self.device),
            torch.from_numpy(np.ascontiguousarray(arrays.missing)).to(self.device),
        )
        self.key = torch.from_numpy(np.ascontiguousarray(arrays.key)).to(self.device)
        group = _day_groups(arrays)
        within = np.arange(len(arrays)) - np.flatnonzero(np.diff(group, prepend=-1))[group]
        self.day_position = torch.from_numpy(within).to(self.device)

    def __len__(self) -> int:
        return len(self.key)

    def batch(self, start: Tensor, stop: Tensor, length: int) -> Batch:
        """Slices start … stop (int64 [B] on the device) padded to `length`."""
        offset = torch.arange(length, device=self.device)
        index = start[:, None] + offset  # [B, L]
        padding = index >= stop[:, None]
        index = torch.where(padding, start[:, None], index)
        return Batch(
            features=self.features[index],
            padding=padding,
            position=offset.expand(len(start), length),
            day_position=self.day_position[index],
            index=index,
        )
