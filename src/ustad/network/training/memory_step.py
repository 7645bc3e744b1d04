"""One step of the memory network's training: masked events, alone or with their neighbours, from a memory without
their weeks; and the questions that validation and scoring ask.

In go the network and the events with their own places; out comes a loss, or what was expected of some events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ustad.events.windows import EventTensors, Queries
from ustad.network.dual_transformer import DualTransformer
from ustad.network.place_counts import MemoryTensors
from ustad.network.place_memory import Memory, Outlook, Targets, WindowMemory
from ustad.network.training.masked_step import embed_shown, places

#: Share of the training windows in which an event is masked together with the events beside it.
SPAN_SHARE = 0.5
#: How many times as many events that masks, which leaves room for the rarest draws too.
SPAN_RATIO = 2.2
PARTS = ("place", "start", "duration", "category")


@dataclass
class Data:
    """Events and own places of the same N events, on one device."""

    events: EventTensors
    memory: MemoryTensors


def training_loss(
    network: DualTransformer,
    data: Data,
    start: Tensor,
    stop: Tensor,
    *,
    length: int,
    ratio: float,
    size: int | None = None,
) -> Tensor:
    """Mean loss of the masked events of some windows; the memory leaves out the blocks the windows touch.

    `size` is how many masked events there is room for, where shapes may not depend on the data; those beyond it
    are left out of the mean.
    """
    batch = data.events.batch(start, stop, length)
    masked = span_masks(batch.padding, ratio)
    if size is None:
        flat = masked.flatten().nonzero()[:, 0]
        real = torch.ones_like(flat, dtype=torch.bool)
    else:
        flat, real = places(masked, size)
    memory = recall(network, data.memory, start, data.memory.outside(start, (stop - 1).clamp(min=0)))
    events = embed_shown(network, batch, masked, dense=size is not None)[None]
    index = batch.index
    hidden = network.contextualise_where(
        events,
        masked,
        batch.padding,
        batch.position,
        day_position=batch.day_position,
        flat=flat,
        window_memory=know(data.memory, index, memory),
    )
    window = torch.div(flat, length, rounding_mode="floor")
    outlook = network.foresee(hidden, memory[window], targets_of(data.memory, index.flatten()[flat]))
    parts = _parts(outlook, data, index.flatten()[flat])
    total = sum((parts[name] for name in PARTS), torch.zeros((), device=start.device))[0]  # [M]
    return -torch.where(real, total, 0.0).sum() / real.sum()


def span_masks(padding: Tensor, ratio: float) -> Tensor:
    """Each real event with probability `ratio`, at least one; in some windows the events beside it too. [B, L]."""
    chance = torch.rand(padding.shape, device=padding.device).masked_fill(padding, 2.0)
    masked = (chance < ratio) | ((chance == chance.amin(dim=1, keepdim=True)) & ~padding)
    wide = masked.clone()
    wide[:, 1:] |= masked[:, :-1]
    wide[:, :-1] |= masked[:, 1:]
    spans = torch.rand(len(padding), 1, device=padding.device) < SPAN_SHARE
    return torch.where(spans, wide, masked) & ~padding


def recall(network: DualTransformer, data: MemoryTensors, event: Tensor, include: Tensor | None = None) -> Memory:
    """What is remembered of the owners of some events [B], over the included blocks."""
    owner = data.owner[event]
    return network.memory.remember(data.sum_counts(owner, include), data.x[owner], data.y[owner], data.category[owner])


def know(data: MemoryTensors, event: Tensor, memory: Memory) -> WindowMemory:
    """What place memory has of windows whose events are [B, L]."""
    return WindowMemory(data.weekday[event], data.slot[event], memory)


def targets_of(data: MemoryTensors, event: Tensor) -> Targets:
    """What the events [M] were."""
    return Targets(
        data.slot[event],
        data.event_x[event],
        data.event_y[event],
        data.is_located[event],
        data.event_category[event],
        data.weekday[event] >= 5,
        data.start[event],
        data.duration[event],
        data.is_timed[event],
    )


def ask(
    network: DualTransformer, data: Data, events: Tensor, start: Tensor, *, stop: Tensor, target: Tensor, row: Tensor
) -> Outlook:
    """What is expected of one event of each slice, it and the events beside it masked: leading dimensions [T, B].

    events [T, n, D] are embeddings that row [B, L] indexes; slices start … stop hold `target`, all [B].
    """
    length = row.shape[1]
    batch = data.events.batch(start, stop, length)
    at = target - start
    offset = torch.arange(length, device=start.device)
    masked = ((offset - at[:, None]).abs() <= 1) & ~batch.padding
    memory = recall(network, data.memory, target)
    flat = torch.arange(len(start), device=start.device) * length + at
    window_memory = know(data.memory, batch.index, memory)
    hidden = network.contextualise_where(
        events[:, row],
        masked,
        batch.padding,
        batch.position,
        day_position=batch.day_position,
        flat=flat,
        window_memory=window_memory,
    )
    return network.foresee(hidden, memory, targets_of(data.memory, target))


@torch.no_grad()
def validate(network: DualTransformer, data: Data, queries: Queries, size: int = 1024) -> dict[str, float]:
    """Mean loss of the questions by part, without dropout, their neighbours masked with them."""
    network.eval()
    totals = dict.fromkeys(PARTS, 0.0)
    order = np.argsort(queries.length, kind="stable")
    for first in range(0, len(order), size):
        part = queries.take(order[first : first + size])
        start, stop, target = (torch.from_numpy(v).to(data.events.device) for v in (part.start, part.stop, part.target))
        batch = data.events.batch(start, stop, int(part.length.max()))
        events = network.embed(batch.features)
        row = torch.arange(batch.index.numel(), device=start.device).view_as(batch.index)
        outlook = ask(network, data, events.flatten(0, 1)[None], start, stop=stop, target=target, row=row)
        for name, value in _parts(outlook, data, target).items():
            totals[name] -= float(value.mean()) * len(part)
    return {name: total / max(len(queries), 1) for name, total in totals.items()}


def _parts(outlook: Outlook, data: Data, event: Tensor) -> dict[str, Tensor]:
    """Log-probability of what the events [M] were, by part of the chain: [T, M] each.

    Where the network is told what was observed, times that nobody saw count less.
    """
    parts = {name: getattr(outlook, name) for name in PARTS}
    if data.events.weight is not None:
        parts["start"] = parts["start"] * data.memory.start_weight[event]
        parts["duration"] = parts["duration"] * data.memory.length_weight[event]
    return parts
