"""Arrays to padded batches. A window is a slice of the sorted arrays, so it can hold one entity only.

`Windows` are what training shows to the network: one per entity and local day, days d − w … d. `Queries` are
what validation and scoring ask: one event, and the slice it is seen in. `EventTensors` lives on the device and
cuts padded batches out of itself by index, so nothing waits for a loader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from ustad.config import WindowConfig
from ustad.events.encoder import EventArrays
from ustad.schema import Field
from ustad.torch_device import send

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class _Slices:
    """Slices start … stop of the sorted arrays."""

    start: np.ndarray
    stop: np.ndarray

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> np.ndarray:
        return self.stop - self.start

    def take(self, index: np.ndarray) -> Self:
        """Some of them, by number or by mask."""
        return type(self)(**{name: values[index] for name, values in vars(self).items()})


@dataclass(frozen=True)
class Windows(_Slices):
    """W slices: window i shows events start[i] … stop[i], of which target[i] … stop[i] are its own day's."""

    start: np.ndarray  # int64 [W]
    target: np.ndarray  # int64 [W]
    stop: np.ndarray  # int64 [W]


@dataclass(frozen=True)
class Queries(_Slices):
    """Q questions: what is event target[i], seen within start[i] … stop[i]?"""

    start: np.ndarray  # int64 [Q]
    stop: np.ndarray  # int64 [Q]
    target: np.ndarray  # int64 [Q]


def make_windows(
    arrays: EventArrays, config: WindowConfig, first_day: int | None = None, last_day: int | None = None
) -> Windows:
    """A window per entity and local day in [first_day, last_day] (per session, or of `length` events).

    A day with more events than half of `max_events` is divided into several windows, so that no event is lost
    and no window is longer than `max_events`. No window reaches over an end of the span of days.
    """
    block = max(1, config.max_events // 2)
    inside = np.ones(len(arrays), bool)
    if first_day is not None:
        inside &= arrays.day >= first_day
    if last_day is not None:
        inside &= arrays.day <= last_day
    change = _changes(arrays, config, max(1, min(config.length, block)))
    change[1:] |= inside[1:] != inside[:-1]
    first = np.flatnonzero(change)
    first, last = _divide(first, np.append(first[1:], len(arrays)), block)
    first, last = first[inside[first]], last[inside[first]]
    start = np.maximum(_history_start(arrays, first, config), last - config.max_events)
    return Windows(start, first, last)


def make_queries(arrays: EventArrays, windows: Windows, config: WindowConfig) -> Queries:
    """One question per event of the windows' own days, in the order of the arrays.

    `day`: the slice ends with the event's day or session (or `max_events // 4` events after the event, where that is
    very long); `past`: it ends with the event. Either way it holds at most `max_events` events.
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
        stop = np.minimum(_period_end(arrays, config)[target], target + 1 + config.max_events // 4)
    return Queries(np.maximum(history, stop - config.max_events), stop, target)


def periods(arrays: EventArrays, config: WindowConfig) -> np.ndarray:
    """What windows count in, never falling within an entity: its local days, or its sessions, int64 [N]."""
    if config.unit != "sessions":
        return arrays.day.astype(np.int64)
    pause = np.diff(arrays.time, prepend=arrays.time[:1]) > config.session_minutes * 60e6
    return np.cumsum(pause | (np.diff(arrays.entity, prepend=arrays.entity[:1]) != 0))


def _changes(arrays: EventArrays, config: WindowConfig, size: int) -> np.ndarray:
    """Where one window's own events end and the next one's begin: bool [N]."""
    if config.unit == "events":
        return (np.arange(len(arrays)) - arrays.offsets[arrays.entity]) % size == 0
    return _begins(arrays.entity, periods(arrays, config))


def _begins(entity: np.ndarray, period: np.ndarray) -> np.ndarray:
    """Where entity or period changes: bool [N]."""
    begins = np.ones(len(entity), bool)
    begins[1:] = (entity[1:] != entity[:-1]) | (period[1:] != period[:-1])
    return begins


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
    stamp = arrays.entity.astype(np.int64) * (1 << 32) + periods(arrays, config)
    return np.maximum(begin, np.searchsorted(stamp, stamp[event] - config.length, side="left"))


def _period_end(arrays: EventArrays, config: WindowConfig) -> np.ndarray:
    """Index after the last event of each event's own day or session: int64 [N]."""
    begins = _begins(arrays.entity, periods(arrays, config))
    return np.append(np.flatnonzero(begins)[1:], len(begins))[np.cumsum(begins) - 1]


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
    weight: Tensor | None = None  # [B, L, F] how much each field counts in what is learned; None: 1


class EventTensors:
    """The arrays on a device. Batches are index gathers, made where the network runs."""

    def __init__(self, arrays: EventArrays, device: torch.device | str = "cpu") -> None:
        import torch  # here, because habits need windows and no tensors

        self.fields: tuple[Field, ...] = arrays.fields
        self.device = torch.device(device)
        self.entity = arrays.entity  # int32 [N], stays on the host
        self.features = Features(
            send(arrays.numbers, self.device),
            send(arrays.categories.astype(np.int64), self.device),
            send(arrays.vectors, self.device),
            send(arrays.missing, self.device),
        )
        self.key = send(arrays.key, self.device)
        self.weight = None if arrays.weight is None else send(arrays.weight, self.device)
        begins = _begins(arrays.entity, arrays.day)
        within = np.arange(len(arrays)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
        self.day_position = send(within, self.device)

    def __len__(self) -> int:
        return len(self.key)

    def batch(self, start: Tensor, stop: Tensor, length: int) -> Batch:
        """Slices start … stop (int64 [B] on the device) padded to `length`."""
        import torch

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
            weight=None if self.weight is None else self.weight[index],
        )
