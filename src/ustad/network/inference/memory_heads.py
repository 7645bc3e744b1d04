"""The memory network's heads as inference wants them: the same log-probabilities, fewer of the steps.

In go the hidden states of B questions under T samples and what is known of their entities; out comes the `Outlook`
that `DualTransformer.foresee` gives, to float rounding (a test compares them). What is saved: maps of own places are
folded with the pointer's, once for each entity; what does not depend on the sample is computed once for all T; the
density of new places and their kinds are computed only for events at new places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ustad.network.blocks import HIDDEN
from ustad.network.dual_transformer import DualTransformer
from ustad.network.place_memory import AREA_KM, FLOOR, Memory, Outlook, Targets


@dataclass(frozen=True)
class Pointers:
    """The pointer and the kernels' weights of E entities as maps of hidden states, `new` in the last column."""

    places: Tensor  # [E, D, K + 1]
    places_bias: Tensor  # [E, 1, K + 1]
    around: Tensor  # [E, D, K]
    around_bias: Tensor  # [E, 1, K]


class FastHeads:
    """Heads of one network with its weights as they are now, in at least fp32."""

    def __init__(self, network: DualTransformer) -> None:
        self.memory, self.heads = network.memory, network.memory.heads
        D = network.config.width
        start, duration = self.heads.start[0], self.heads.duration[0]
        assert isinstance(start, nn.Linear)
        assert isinstance(duration, nn.Linear)
        self.hidden = torch.cat([start.weight[:, :D], duration.weight[:, :D]]).t().contiguous()  # [D, 4 D]
        self.where = torch.cat([start.weight[:, D:], duration.weight[:, D : 2 * D]]).t().contiguous()
        self.bias = torch.cat([start.bias, duration.bias])
        self.when = duration.weight[:, 2 * D :].t().contiguous()  # [D, 2 D]
        self.spread = self.heads.kernels.square()

    def pointers(self, memory: Memory) -> Pointers:
        """What the heads need of the own places of E entities."""
        heads, scale = self.heads, 1 / math.sqrt(memory.tokens.shape[-1])
        target = heads.target(memory.tokens) * scale  # [E, K, D]
        E, absent = len(target), memory.absent[:, None]
        places, around = ((target @ linear.weight).transpose(1, 2) for linear in (heads.pointer, heads.around))
        bias, around_bias = ((target @ linear.bias)[:, None] for linear in (heads.pointer, heads.around))
        bias = (bias + heads.trust[0] * memory.share[:, None]).masked_fill(absent, HIDDEN)
        return Pointers(
            torch.cat([places, heads.new.weight.t().expand(E, -1, 1)], dim=2),
            torch.cat([bias, heads.new.bias.expand(E, 1, 1)], dim=2),
            around,
            around_bias.masked_fill(absent, HIDDEN),
        )

    def __call__(
        self,
        hidden: Tensor,
        memory: Memory,
        pointers: Pointers,
        owner: Tensor,
        *,
        targets: Targets,
        elsewhere: Tensor | None = None,
    ) -> Outlook:
        """hidden [B, T, D], memory and pointers of E entities, owner [B] among them -> leading dimensions [T, B]. The
        events that are `elsewhere`, at no own place, are found where they are not told."""
        K = memory.absent.shape[1]
        own_slot = targets.slot.clamp(max=K - 1)
        new = (targets.slot >= K) | memory.absent[owner, own_slot]
        places = torch.baddbmm(pointers.places_bias[owner], hidden, pointers.places[owner]).log_softmax(dim=-1)
        at = torch.where(new, K, own_slot)
        place = _take(places, at)
        category = torch.zeros_like(place)
        fresh = new.nonzero()[:, 0] if elsewhere is None else elsewhere
        if len(fresh):
            some = targets[fresh]
            density = self._density(hidden[fresh], memory, pointers, owner[fresh], targets=some)
            place[fresh] += torch.where(some.is_located[:, None], density, 0.0)
            kind = _take(self.heads.kind(hidden[fresh]).log_softmax(dim=-1), some.category)
            category[fresh] = torch.where(some.category[:, None] > 0, kind, 0.0)
        starts, durations = self._times(hidden, memory, owner, own_slot, new=new, targets=targets)
        duration = torch.where(targets.is_timed[:, None], _take(durations, targets.duration), 0.0)
        outputs = (place, _take(starts, targets.start), duration, category, places, starts, durations)
        return Outlook(*(values.transpose(0, 1) for values in outputs))

    def _times(
        self, hidden: Tensor, memory: Memory, owner: Tensor, own_slot: Tensor, *, new: Tensor, targets: Targets
    ) -> tuple[Tensor, Tensor]:
        """Log-chances of every start given the place, and of every duration given both: [B, T, 48], [B, T, 32]."""
        (B, T, D), own, heads = hidden.shape, self.memory, self.heads
        fresh = own.new_token + own.category.weight[targets.category]
        where = torch.where(new[:, None], fresh, memory.tokens[owner, own_slot])  # [B, D]
        condition = torch.addmm(self.bias, where, self.where)  # [B, 4 D]
        condition[:, 2 * D :] += heads.start_bin(targets.start) @ self.when
        inner = (hidden.reshape(B * T, D) @ self.hidden).view(B, T, 4 * D).add_(condition[:, None])
        inner = torch.ops.aten.gelu.out(inner, out=inner)
        day = targets.weekend.long()
        chances = []
        for part, log_shares, (_, _, out), trust in (
            (inner[..., : 2 * D], memory.starts[owner, own_slot, day], heads.start, heads.trust[1]),
            (inner[..., 2 * D :], memory.durations[owner, own_slot], heads.duration, heads.trust[2]),
        ):
            logits = out(part)  # [B, T, bins]
            chances.append(logits.add_(torch.where(new[:, None], 0.0, trust * log_shares)[:, None]).log_softmax(dim=-1))
        return chances[0], chances[1]

    def _density(
        self, hidden: Tensor, memory: Memory, pointers: Pointers, owner: Tensor, *, targets: Targets
    ) -> Tensor:
        """Log-density of new places per km²: Cauchy kernels around own places, and anywhere: [M, T]."""
        weight = torch.baddbmm(pointers.around_bias[owner], hidden, pointers.around[owner]).softmax(dim=-1)
        reach = self.heads.reach(hidden).softmax(dim=-1)  # [M, T, S]
        square = (memory.x[owner] - targets.x[:, None]) ** 2 + (memory.y[owner] - targets.y[:, None]) ** 2  # [M, K]
        kernel = (1 + square[..., None] / self.spread) ** -1.5 / (2 * math.pi * self.spread)  # [M, K, S]
        around = ((weight @ kernel) * reach).sum(dim=-1)
        around = around.masked_fill(memory.absent[owner].all(dim=-1)[:, None], 0.0)
        return torch.log((1 - FLOOR) * around + FLOOR / (2 * AREA_KM) ** 2)


def _take(values: Tensor, index: Tensor) -> Tensor:
    """One of the last dimension: values [B, T, n], index [B] -> [B, T]."""
    return values[torch.arange(len(values), device=values.device), :, index]
