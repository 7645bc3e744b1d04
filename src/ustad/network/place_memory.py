"""Place memory: what the dual Transformer may know of the entity's own places, and heads that use it.

In goes what is remembered of each window's entity; out comes, for masked events, where (one of its own places, or
somewhere new), when, and for how long, chained in this order. Own places are tokens that every event block attends to,
and context events know which own place they are at. Symbols as in the network: B windows of L events, width D, K own
places, T samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ustad.config import ModelConfig
from ustad.network.blocks import HIDDEN
from ustad.network.lookup import look_up, look_up_each
from ustad.network.place_counts import COUNTS, DURATION_BINS, HOURS, START_BINS

#: Widths of the heavy-tailed kernels around own places, km, and the weight of anywhere in the area.
KERNELS_KM = (0.3, 1.0, 3.0, 10.0, 30.0)
FLOOR = 0.01
#: Half the side of the square that `anywhere` means, km.
AREA_KM = 100.0


@dataclass
class Memory:
    """What is known of B entities' own places."""

    tokens: Tensor  # [B, K, D]
    absent: Tensor  # bool [B, K]
    x: Tensor  # [B, K] km
    y: Tensor
    share: Tensor  # [B, K] log of each place's share of the visits
    starts: Tensor  # [B, K, 2, 48] log of its share of starts, by kind of day
    durations: Tensor  # [B, K, 32] log of its share of durations

    def __getitem__(self, rows: Tensor) -> Memory:
        return Memory(*(look_up(getattr(self, name), rows) for name in self.__dataclass_fields__))


@dataclass
class WindowMemory:
    """What place memory has of B windows of L events."""

    weekday: Tensor  # int64 [B, L]
    slot: Tensor  # int64 [B, L] own place, K: somewhere new
    memory: Memory


@dataclass
class Targets:
    """What M masked events were."""

    slot: Tensor  # int64 [M] own place, K: somewhere new
    x: Tensor  # [M] km
    y: Tensor
    is_located: Tensor  # bool [M]
    category: Tensor  # int64 [M], 0 unknown
    weekend: Tensor  # bool [M]
    start: Tensor  # int64 [M] bin
    duration: Tensor  # int64 [M] bin
    is_timed: Tensor  # bool [M]: the duration is known

    def __getitem__(self, rows: Tensor) -> Targets:
        return Targets(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass
class Outlook:
    """Log-probabilities of what happened, and of all that could have: leading dimensions are the caller's."""

    place: Tensor  # [..., M] own place, or new and its density per km²
    start: Tensor  # [..., M]
    duration: Tensor  # [..., M], 0 where unknown
    category: Tensor  # [..., M] kind of a new place, 0 at an own one
    places: Tensor  # [..., M, K + 1]
    starts: Tensor  # [..., M, 48]
    durations: Tensor  # [..., M, 32]


class CrossAttention(nn.Module):
    """Events attend to own places; an entity without any gets nothing from them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query, self.pair, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, tokens: Tensor, bias: Tensor) -> Tensor:
        """x [T, B, L, D], tokens [B, K, D] that serve every sample, bias [B, 1, 1, K] -> [T, B, L, D]."""
        (T, B, L, D), K, H = x.shape, tokens.shape[1], self.heads
        key, value = self.pair(tokens).view(B, K, 2, H, D // H).permute(2, 0, 3, 1, 4)  # 2 × [B, H, K, d]
        query = self.query(self.norm(x)).view(T, B, L, H, D // H).transpose(2, 3)
        logits = query @ key.transpose(-1, -2) * (1 / math.sqrt(D // H)) + bias  # [T, B, H, L, K]
        mixture = logits.softmax(dim=-1).to(value.dtype) @ value
        return x + self.out(mixture.transpose(2, 3).reshape(T, B, L, D))


class PlaceMemory(nn.Module):
    """The part of the network that knows own places: their tokens, attention to them, and the chained heads."""

    def __init__(self, config: ModelConfig, kinds: int) -> None:
        """`kinds` of places, unknown included."""
        super().__init__()
        D = config.width
        self.new_token = nn.Parameter(torch.randn(D) * 0.02)
        self.weekday, self.category = nn.Embedding(7, D), nn.Embedding(kinds, D)
        self.describe = nn.Sequential(nn.Linear(COUNTS + 5, 2 * D), nn.GELU(), nn.Linear(2 * D, D))
        self.own = nn.Linear(D, D)
        self.crosses = nn.ModuleList(CrossAttention(D, config.heads) for _ in range(config.event_blocks))
        self.heads = MemoryHeads(D, kinds)
        for table in (self.weekday, self.category):
            nn.init.normal_(table.weight, std=0.02)

    # ------------------------------------------------------------------------------------ what is known
    def remember(self, counts: Tensor, x: Tensor, y: Tensor, category: Tensor) -> Memory:
        """Own places from their counts [B, K, Q], positions [B, K] km and kinds [B, K]."""
        visits = counts[..., 0]  # [B, K]
        absent = visits <= 0
        total = visits.sum(dim=-1, keepdim=True)
        shares = counts / visits.clamp(min=1)[..., None]
        home_x, home_y = x[:, :1], y[:, :1]  # the most visited place comes first
        numbers = torch.stack(
            [
                torch.log1p(visits),
                visits / total.clamp(min=1),
                torch.asinh((x - home_x) / 2),
                torch.asinh((y - home_y) / 2),
                torch.log1p(total).expand_as(visits),
            ],
            dim=-1,
        )
        tokens = self.describe(torch.cat([shares, numbers], dim=-1)) + look_up(self.category.weight, category)
        starts = counts[..., 1 : 1 + 2 * HOURS].unflatten(-1, (2, HOURS))
        return Memory(
            tokens,
            absent,
            x,
            y,
            torch.log((visits + 0.1) / (total + 1)),
            _log_shares(_smooth_hours(starts), START_BINS),
            _log_shares(counts[..., 1 + 2 * HOURS :], DURATION_BINS),
        )

    # ---------------------------------------------------------------------------------------- what is seen
    def own_place(self, window_memory: WindowMemory) -> Tensor:
        """What an event is given of the own place that it is at: [B, L, D]."""
        memory = window_memory.memory
        K = memory.tokens.shape[1]
        own_slot = window_memory.slot.clamp(max=K - 1)
        rows = torch.arange(len(own_slot), device=own_slot.device)[:, None]
        new = (window_memory.slot >= K) | memory.absent[rows, own_slot]
        return self.own(torch.where(new[..., None], self.new_token, look_up_each(memory.tokens, own_slot)))

    def attend(self, number: int, x: Tensor, memory: Memory) -> Tensor:
        """Events before block `number` attend to own places: [T·B, L, D] -> the same."""
        hide = (memory.absent.to(x.dtype) * HIDDEN)[:, None, None, :]
        by_sample = x.view(-1, len(hide), *x.shape[1:])
        return self.crosses[number](by_sample, memory.tokens.to(x.dtype), hide).flatten(0, 1)

    def foresee(self, hidden: Tensor, memory: Memory, targets: Targets) -> Outlook:
        """What was expected of M events: hidden [T, M, D], memory of each of the M -> leading dimensions [T, M]."""
        dtype = self.heads.pointer.weight.dtype
        memory = Memory(*(v if v.dtype == torch.bool else v.to(dtype) for v in vars(memory).values()))
        return self.heads(hidden.to(dtype), memory, targets, self.category.weight, new_token=self.new_token)


class MemoryHeads(nn.Module):
    """Pointer → start → duration, each given what came before it in the chain."""

    kernels: Tensor

    def __init__(self, width: int, categories: int) -> None:
        super().__init__()
        self.pointer, self.target, self.around = (nn.Linear(width, width) for _ in range(3))
        self.new, self.reach = nn.Linear(width, 1), nn.Linear(width, len(KERNELS_KM))
        self.kind = nn.Linear(width, categories)
        self.start_bin = nn.Embedding(START_BINS, width)
        self.start = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.GELU(), nn.Linear(2 * width, START_BINS))
        self.duration = nn.Sequential(nn.Linear(3 * width, 2 * width), nn.GELU(), nn.Linear(2 * width, DURATION_BINS))
        #: How far the entity's own counts are trusted: in the pointer, in starts, in durations.
        self.trust = nn.Parameter(torch.tensor([1.0, 0.5, 0.5]))
        self.register_buffer("kernels", torch.tensor(KERNELS_KM), persistent=False)

    def forward(self, hidden: Tensor, memory: Memory, targets: Targets, kinds: Tensor, *, new_token: Tensor) -> Outlook:
        """hidden [T, M, D], memory and targets of M events."""
        M, K = memory.absent.shape
        target = self.target(memory.tokens)  # [M, K, D]
        scale = 1 / math.sqrt(hidden.shape[-1])
        logits = torch.einsum("tmd,mkd->tmk", self.pointer(hidden), target) * scale + self.trust[0] * memory.share
        logits = torch.cat([logits.masked_fill(memory.absent, HIDDEN), self.new(hidden)], dim=-1)
        places = logits.log_softmax(dim=-1)  # [T, M, K + 1]
        rows = torch.arange(M, device=hidden.device)
        own_slot = targets.slot.clamp(max=K - 1)
        new = (targets.slot >= K) | memory.absent[rows, own_slot]
        place = torch.where(new, places[..., K], _take(places, own_slot))
        place = place + torch.where(
            new & targets.is_located, self._density(hidden, target, memory, targets, scale=scale), 0.0
        )
        kind = _take(self.kind(hidden).log_softmax(dim=-1), targets.category)
        fresh = new_token + look_up(kinds, targets.category)
        where = torch.where(new[:, None], fresh, look_up_each(memory.tokens, own_slot[:, None])[:, 0])  # [M, D]
        where = where.expand_as(hidden)
        day = targets.weekend.long()
        log_shares = torch.where(new[:, None], 0.0, memory.starts[rows, own_slot, day])
        starts = (self.start(torch.cat([hidden, where], dim=-1)) + self.trust[1] * log_shares).log_softmax(dim=-1)
        when = look_up(self.start_bin.weight, targets.start).expand_as(hidden)
        log_shares = torch.where(new[:, None], 0.0, memory.durations[rows, own_slot])
        durations = self.duration(torch.cat([hidden, where, when], dim=-1)) + self.trust[2] * log_shares
        durations = durations.log_softmax(dim=-1)
        return Outlook(
            place,
            _take(starts, targets.start),
            torch.where(targets.is_timed, _take(durations, targets.duration), 0.0),
            torch.where(new & (targets.category > 0), kind, 0.0),
            places,
            starts,
            durations,
        )

    def _density(self, hidden: Tensor, target: Tensor, memory: Memory, targets: Targets, *, scale: float) -> Tensor:
        """Log-density of a new place per km²: Cauchy kernels around own places, and anywhere: [T, M]."""
        weight = torch.einsum("tmd,mkd->tmk", self.around(hidden), target) * scale
        weight = weight.masked_fill(memory.absent, HIDDEN).log_softmax(dim=-1)  # [T, M, K]
        reach = self.reach(hidden).log_softmax(dim=-1)  # [T, M, S]
        square = (memory.x - targets.x[:, None]) ** 2 + (memory.y - targets.y[:, None]) ** 2  # [M, K]
        width = self.kernels.square()
        kernel = -1.5 * torch.log1p(square[..., None] / width) - torch.log(2 * math.pi * width)  # [M, K, S]
        around = torch.logsumexp(weight[..., None] + reach[..., None, :] + kernel, dim=(-1, -2))
        around = torch.where(memory.absent.all(dim=-1), HIDDEN, around)
        anywhere = torch.full_like(around, math.log(FLOOR) - 2 * math.log(2 * AREA_KM))
        return torch.logaddexp(around + math.log1p(-FLOOR), anywhere)


def _take(values: Tensor, index: Tensor) -> Tensor:
    """One of the last dimension: values [T, M, n], index [M] -> [T, M]."""
    return values.gather(-1, index.expand(values.shape[:-1])[..., None])[..., 0]


def _smooth_hours(hours: Tensor) -> Tensor:
    """Counts by hour, a quarter of each lent to the hours beside it: what is near in time is alike."""
    return 0.5 * hours + 0.25 * (hours.roll(1, dims=-1) + hours.roll(-1, dims=-1))


def _log_shares(counts: Tensor, bins: int) -> Tensor:
    """Log of smoothed shares along the last axis, each bin divided into finer ones: [..., n] -> [..., bins]."""
    n = counts.shape[-1]
    shares = (counts + 0.5 / n) / (counts.sum(dim=-1, keepdim=True) + 0.5)
    return torch.log(shares).repeat_interleave(bins // n, dim=-1)
