"""Training of the memory network: masked events, alone or with their neighbours, from a memory without their weeks.

In go the network, the training events with their own places, and questions of the early-stopping agents; the
network comes out with its best weights. Every random choice follows from the seed, the epoch and the step.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ustad.config import Config
from ustad.events.own_places import MemoryTensors
from ustad.events.windows import EventTensors, Queries, Windows
from ustad.model.memory import Memory, MemoryTransformer, Outlook, Targets
from ustad.progress import track
from ustad.training.batches import bucket_lengths, plan_epoch
from ustad.training.optimise import learning_rate, make_optimizer, step_seed, use_bf16
from ustad.training.team import Team

#: Share of the training windows in which an event is masked together with the events beside it.
SPAN_SHARE = 0.5
#: Questions that each epoch is validated on, drawn once.
MOST_QUESTIONS = 4096
PARTS = ("place", "start", "duration", "category")


@dataclass(frozen=True)
class MemoryFit:
    """What a run did: mean validation loss by epoch, the best of them, seconds."""

    losses: list[float]
    best_loss: float
    best_epoch: int
    seconds: float
    parts: dict[str, float] = field(default_factory=dict)  # of the best epoch, by part


@dataclass
class Data:
    """Events and own places of the same N events, on one device."""

    events: EventTensors
    memory: MemoryTensors


def fit_memory(
    network: MemoryTransformer, data: Data, windows: Windows, validation: tuple[Data, Queries], config: Config
) -> MemoryFit:
    """Train until the validation loss stops falling; the network keeps its best weights."""
    training, device, team = config.training, data.events.device, Team.current()
    optimizer = make_optimizer(network, training)
    lengths = bucket_lengths(windows.length)
    questions = _some(validation[1], config.seed)
    best, best_weights, best_epoch, parts = float("inf"), _copy(network), 0, {}
    losses: list[float] = []
    step, began = 0, time.monotonic()
    steps = -(-len(windows) // training.batch_size)
    with track("training the memory network", training.epochs * steps) as advance:
        for epoch in range(training.epochs):
            network.train()
            plan = plan_epoch(windows, lengths, training.batch_size, config.window.past_share, config.seed, epoch)
            for i in range(len(plan)):
                rows = slice(plan.first[i], plan.last[i])
                torch.manual_seed(team.seed(step_seed(config.seed, step)))
                start, stop = (team.share(torch.from_numpy(v[rows]).to(device)) for v in (plan.start, plan.stop))
                with torch.autocast(device.type, torch.bfloat16, enabled=use_bf16(training, device)):
                    loss = training_loss(network, data, start, stop, int(plan.length[i]), training.mask_ratio)
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(training, step, training.epochs * steps)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                team.average(network, start, stop)
                if training.clip_norm > 0:
                    torch.nn.utils.clip_grad_norm_(network.parameters(), training.clip_norm)
                optimizer.step()
                step += 1
                advance(1)
            found = validate(network, validation[0], questions)
            losses.append(sum(found.values()))
            if losses[-1] < best:
                best, best_weights, best_epoch, parts = losses[-1], _copy(network), epoch, found
            minutes = (time.monotonic() - began) / 60
            late = team.agree(0 < training.max_minutes < minutes, device)
            if epoch - best_epoch >= training.patience or late:
                break
    network.load_state_dict(best_weights)
    network.eval()
    return MemoryFit(losses, best, best_epoch, time.monotonic() - began, parts)


def training_loss(
    network: MemoryTransformer, data: Data, start: Tensor, stop: Tensor, length: int, ratio: float
) -> Tensor:
    """Mean loss of the masked events of some windows; the memory leaves out the blocks the windows touch."""
    batch = data.events.batch(start, stop, length)
    masked = span_masks(batch.padding, ratio)
    flat = masked.flatten().nonzero()[:, 0]
    memory = recall(network, data.memory, start, data.memory.outside(start, stop - 1))
    events = network.embed(batch.features)[None]
    index = batch.index
    hidden = network.contextualise(
        events,
        masked,
        batch.padding,
        batch.position,
        batch.day_position,
        data.memory.weekday[index],
        data.memory.slot[index],
        memory,
        flat,
    )
    window = torch.div(flat, length, rounding_mode="floor")
    outlook = network.decode(hidden, memory[window], targets_of(data.memory, index.flatten()[flat]))
    return -sum(_parts(outlook).values(), torch.zeros((), device=start.device))


def span_masks(padding: Tensor, ratio: float) -> Tensor:
    """Each real event with probability `ratio`, at least one; in some windows the events beside it too. [B, L]."""
    chance = torch.rand(padding.shape, device=padding.device).masked_fill(padding, 2.0)
    masked = (chance < ratio) | ((chance == chance.amin(dim=1, keepdim=True)) & ~padding)
    wide = masked.clone()
    wide[:, 1:] |= masked[:, :-1]
    wide[:, :-1] |= masked[:, 1:]
    spans = torch.rand(len(padding), 1, device=padding.device) < SPAN_SHARE
    return torch.where(spans, wide, masked) & ~padding


def recall(network: MemoryTransformer, data: MemoryTensors, event: Tensor, include: Tensor | None = None) -> Memory:
    """What is remembered of the owners of some events [B], over the included blocks."""
    owner = data.owner[event]
    return network.remember(data.remembered(owner, include), data.x[owner], data.y[owner], data.category[owner])


def targets_of(data: MemoryTensors, event: Tensor) -> Targets:
    """What the events [M] were."""
    return Targets(
        data.slot[event],
        data.event_x[event],
        data.event_y[event],
        data.located[event],
        data.event_category[event],
        data.weekday[event] >= 5,
        data.start[event],
        data.duration[event],
        data.timed[event],
    )


def ask(
    network: MemoryTransformer, data: Data, events: Tensor, start: Tensor, stop: Tensor, target: Tensor, row: Tensor
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
    hidden = network.contextualise(
        events[:, row],
        masked,
        batch.padding,
        batch.position,
        batch.day_position,
        data.memory.weekday[batch.index],
        data.memory.slot[batch.index],
        memory,
        flat,
    )
    return network.decode(hidden, memory, targets_of(data.memory, target))


@torch.no_grad()
def validate(network: MemoryTransformer, data: Data, queries: Queries, size: int = 1024) -> dict[str, float]:
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
        outlook = ask(network, data, events.flatten(0, 1)[None], start, stop, target, row)
        for name, value in _parts(outlook).items():
            totals[name] -= float(value) * len(part)
    return {name: total / max(len(queries), 1) for name, total in totals.items()}


def _parts(outlook: Outlook) -> dict[str, Tensor]:
    """Mean log-probability of what happened, by part of the chain."""
    return {name: getattr(outlook, name).mean() for name in PARTS}


def _some(queries: Queries, seed: int) -> Queries:
    if len(queries) <= MOST_QUESTIONS:
        return queries
    return queries.take(np.sort(np.random.default_rng(seed).permutation(len(queries))[:MOST_QUESTIONS]))


def _copy(network: MemoryTransformer) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}
