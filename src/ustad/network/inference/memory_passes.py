"""The memory network's forward pass as inference wants it: the same numbers, fewer of the steps.

In go event embeddings under T samples and what is remembered of their entities; out comes the `Outlook` that
`MemoryTransformer.contextualise` and `decode` give, to float rounding (a test compares them). Beside what `passes`
saves: the keys and values of an entity's own places are computed once for all its questions and samples, and folded
with the query's and the output's maps, so that attending to them is two products and a softmax on states as they lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ustad.network.blocks import HIDDEN
from ustad.network.inference.memory_heads import FastHeads, Pointers
from ustad.network.inference.passes import FastBlock, Passes
from ustad.network.place_memory import CrossAttention, Memory, MemoryTransformer, Outlook, Targets


@dataclass(frozen=True)
class Attended:
    """Own places of E entities as a block attends to them, heads side by side: softmax(x · keys + bias) · values."""

    keys: Tensor  # [E, D, H·K]
    bias: Tensor  # [E, 1, H·K]
    values: Tensor  # [E, H·K, D]


@dataclass(frozen=True)
class Known:
    """All that the passes need of E entities, and whose each of B questions is."""

    memory: Memory
    own: Tensor  # [E, K + 1, D] what an event at each own place, or somewhere new, is given
    attended: tuple[Attended, ...]  # by block
    pointers: Pointers
    owner: Tensor  # int64 [B], ascending
    counts: tuple[int, ...]  # questions of each entity; not asked for on a GPU, which would have to wait for it


@dataclass(frozen=True)
class Seen:
    """B windows of L events without padding: int64 [B, L], but for at [B], the event that is asked about."""

    row: Tensor  # among the shared embeddings
    day_position: Tensor
    weekday: Tensor
    slot: Tensor
    at: Tensor


class FastCross:
    """Events attend to own places, in place; buffers and precision are those of the block that follows."""

    def __init__(self, cross: CrossAttention, block: FastBlock) -> None:
        self.block, self.heads = block, cross.heads
        D, H = cross.query.in_features, cross.heads
        scale, norm = 1 / math.sqrt(D // H), cross.norm
        self.query = (cross.query.weight * norm.weight * scale).detach().view(H, D // H, D)
        self.query_bias = ((cross.query.bias + cross.query.weight @ norm.bias) * scale).detach().view(H, D // H)
        self.pair = cross.pair
        self.out = cross.out.weight.detach().t().reshape(H, D // H, D)
        self.out_bias = cross.out.bias.detach() / H  # the weights of each head sum to 1

    def attended(self, memory: Memory) -> Attended:
        """What this block needs of the own places of E entities."""
        (E, K, D), H, dtype = memory.tokens.shape, self.heads, self.block.dtype
        key, value = self.pair(memory.tokens).view(E, K, 2, H, D // H).permute(2, 0, 3, 1, 4)  # 2 × [E, H, K, d]
        keys = (key @ self.query).permute(0, 3, 1, 2).reshape(E, D, H * K)
        bias = (key @ self.query_bias[..., None])[..., 0]  # [E, H, K]
        bias = bias.masked_fill(memory.absent[:, None], max(HIDDEN, torch.finfo(dtype).min / 2)).view(E, 1, H * K)
        values = (value @ self.out + self.out_bias).view(E, H * K, D)
        return Attended(keys.to(dtype), bias.to(dtype), values.to(dtype))

    def __call__(self, x: Tensor, attended: Attended, known: Known) -> Tensor:
        """States of B questions, as many of each, x [B·n, D]; x is changed and returned."""
        normed = self.block.normed(x)
        logits = self.block.buffer("attended", len(x), attended.keys.shape[-1])
        way = self._one_by_one if known.counts else self._together
        return way(x, normed, logits, attended, known)

    def _together(self, x: Tensor, normed: Tensor, logits: Tensor, attended: Attended, known: Known) -> Tensor:
        """In one product for all: every question has a copy of its entity's maps."""
        B = len(known.owner)
        states, wide = (v.view(B, -1, v.shape[-1]) for v in (normed, logits))
        torch.baddbmm(attended.bias[known.owner], states, attended.keys[known.owner], out=wide)
        return x.add_(torch.bmm(self._softmax(wide), attended.values[known.owner], out=states).view_as(x))

    def _one_by_one(self, x: Tensor, normed: Tensor, logits: Tensor, attended: Attended, known: Known) -> Tensor:
        """Entity by entity, without copies."""
        size = [count * (len(x) // len(known.owner)) for count in known.counts]
        for maps, states, wide in zip(_each(attended), normed.split(size), logits.split(size), strict=True):
            torch.addmm(maps.bias, states, maps.keys, out=wide)
        weights = self._softmax(logits)
        for maps, states, wide in zip(_each(attended), x.split(size), weights.split(size), strict=True):
            if x.dtype == self.block.dtype:
                states.addmm_(wide, maps.values)
            else:
                states.add_(wide @ maps.values)
        return x

    def _softmax(self, logits: Tensor) -> Tensor:
        """Over own places, head by head: [..., H·K]."""
        return logits.view(-1, logits.shape[-1] // self.heads).softmax(dim=-1).view_as(logits)


def _each(attended: Attended) -> Iterator[Attended]:
    """Entity by entity."""
    for maps in zip(attended.keys, attended.bias, attended.values, strict=True):
        yield Attended(*maps)


class MemoryPasses(Passes):
    """Feature-level and event-level passes and heads of one memory network, with its weights as they are now."""

    network: MemoryTransformer

    def __init__(self, network: MemoryTransformer, dtype: torch.dtype | None = None) -> None:
        super().__init__(network, dtype)
        with torch.no_grad():
            pairs = zip(network.crosses, self.event_blocks, strict=True)
            self.crosses = [FastCross(c, block) for c, block in pairs if isinstance(c, CrossAttention)]
            self.heads = FastHeads(network)

    def know(self, memory: Memory, counts: Tensor) -> Known:
        """What the passes need of E entities, once for all their questions, which stand together: counts [E]."""
        network = self.network
        new = network.new_token.expand(len(memory.tokens), 1, -1)
        own = network.own(torch.cat([memory.tokens, new], dim=1))
        return Known(
            memory,
            own,
            tuple(cross.attended(memory) for cross in self.crosses),
            self.heads.pointers(memory),
            torch.arange(len(counts), device=counts.device).repeat_interleave(counts),
            tuple(counts.tolist()) if counts.device.type == "cpu" else (),
        )

    def outlook(self, shared: Tensor, seen: Seen, known: Known, targets: Targets) -> Outlook:
        """What was expected of B events, they and the events beside them masked: leading dimensions [T, B].

        shared [T, n, D] are embeddings.
        """
        (B, L), (T, _, D) = seen.row.shape, shared.shape
        x = self._enter(shared, seen, known)
        flat = (torch.arange(B * T, device=x.device) * L).view(B, T) + seen.at[:, None]
        *blocks, last = self.event_blocks
        *crosses, final = zip(self.crosses, known.attended, strict=True)
        for (cross, attended), block in zip(crosses, blocks, strict=True):
            x = block(cross(x, attended, known), L)
        x = last.at(final[0](x, final[1], known), L, flat.flatten())
        return self.heads(self.network.norm(x).view(B, T, D), known.memory, known.pointers, known.owner, targets)

    def _enter(self, shared: Tensor, seen: Seen, known: Known) -> Tensor:
        """Events with masks, own places, positions and days: [B·T·L, D]."""
        (B, L), (T, n, D), network = seen.row.shape, shared.shape, self.network
        offset, sample = (torch.arange(size, device=shared.device) for size in (L, T))
        rows = (sample[:, None] * n + seen.row[:, None]).flatten()  # [B, T, L]
        x = self.work.get("x", shared.dtype, B * T * L, D)
        torch.index_select(shared.view(T * n, D), 0, rows, out=x)
        x = x.view(B, T, L, D)
        masked = (offset - seen.at[:, None]).abs() <= 1  # [B, L]
        K = known.own.shape[1] - 1
        owner, held = known.owner[:, None], seen.slot.clamp(max=K - 1)
        slot = torch.where(known.memory.absent[owner, held] | (seen.slot >= K), K, held)
        given = known.own[owner, slot]  # [B, L, D]
        hidden = masked[:, None, :, None]
        torch.where(hidden, network.masked_token.to(x.dtype), x, out=x)
        limit = network.position.num_embeddings - 1
        given = torch.where(masked[..., None], 0.0, given) + network.position(offset.clamp(max=limit))
        given += network.day_position(seen.day_position.clamp(max=limit)) + network.weekday(seen.weekday)
        return x.add_(given[:, None]).view(B * T * L, D)
