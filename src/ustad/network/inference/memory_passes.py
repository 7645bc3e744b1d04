"""The memory network's forward pass as inference wants it: the same numbers, fewer of the steps.

In go event embeddings under T samples and what is remembered of their entities; out comes the `Outlook` that
`DualTransformer.contextualise_where` and `foresee` give, to float rounding (a test compares them). Beside what `passes`
saves: the keys and values of an entity's own places are computed once for all its questions and samples, and folded
with the query's and the output's maps, so that attending to them is two products and a softmax on states as they lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ustad.network.blocks import HIDDEN
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.memory_heads import FastHeads, Pointers
from ustad.network.inference.passes import FastBlock, Passes
from ustad.network.place_memory import CrossAttention, Memory, Outlook, Targets


@dataclass(frozen=True)
class OwnPlaceMaps:
    """Own places of E entities as a block attends to them, heads side by side: softmax(x · keys + bias) · values."""

    keys: Tensor  # [E, D, H·K]
    bias: Tensor  # [E, 1, H·K]
    values: Tensor  # [E, H·K, D]


@dataclass(frozen=True)
class EntityMaps:
    """All that the passes need of E entities, and whose each of B questions is."""

    memory: Memory
    own: Tensor  # [E, K + 1, D] what an event at each own place, or somewhere new, is given
    place_maps: tuple[OwnPlaceMaps, ...]  # by block
    pointers: Pointers
    owner: Tensor  # int64 [B], ascending
    counts: tuple[int, ...]  # questions of each entity; none on a GPU, which takes all entities together
    which: tuple[int, ...] = ()  # the entities that those are of, in this order; empty: all
    elsewhere: Tensor | None = None  # int64: questions about events at no own place, where that is known beforehand


@dataclass(frozen=True)
class WindowRows:
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

    def map_places(self, memory: Memory) -> OwnPlaceMaps:
        """What this block needs of the own places of E entities."""
        (E, K, D), H, dtype = memory.tokens.shape, self.heads, self.block.dtype
        key, value = self.pair(memory.tokens).view(E, K, 2, H, D // H).permute(2, 0, 3, 1, 4)  # 2 × [E, H, K, d]
        keys = (key @ self.query).permute(0, 3, 1, 2).reshape(E, D, H * K)
        bias = (key @ self.query_bias[..., None])[..., 0]  # [E, H, K]
        bias = bias.masked_fill(memory.absent[:, None], max(HIDDEN, torch.finfo(dtype).min / 2)).view(E, 1, H * K)
        values = (value @ self.out + self.out_bias).view(E, H * K, D)
        return OwnPlaceMaps(keys.to(dtype), bias.to(dtype), values.to(dtype))

    def __call__(self, x: Tensor, maps: OwnPlaceMaps, entities: EntityMaps) -> Tensor:
        """States of B questions, as many of each, x [B·n, D]; x is changed and returned."""
        normal = self.block.normalise(x)
        logits = self.block.buffer("attention", len(x), maps.keys.shape[-1])
        way = self._one_by_one if entities.counts else self._together
        return way(x, normal, logits, maps, entities=entities)

    def _together(
        self, x: Tensor, normal: Tensor, logits: Tensor, maps: OwnPlaceMaps, *, entities: EntityMaps
    ) -> Tensor:
        """In one product for all: every question has a copy of its entity's maps."""
        B = len(entities.owner)
        states, wide = (v.view(B, -1, v.shape[-1]) for v in (normal, logits))
        torch.baddbmm(maps.bias[entities.owner], states, maps.keys[entities.owner], out=wide)
        return x.add_(torch.bmm(self._softmax(wide), maps.values[entities.owner], out=states).view_as(x))

    def _one_by_one(
        self, x: Tensor, normal: Tensor, logits: Tensor, maps: OwnPlaceMaps, *, entities: EntityMaps
    ) -> Tensor:
        """Entity by entity, without copies."""
        size = [count * (len(x) // len(entities.owner)) for count in entities.counts]
        own_maps = list(_each(maps, entities.which or range(len(maps.keys))))
        for own, states, wide in zip(own_maps, normal.split(size), logits.split(size), strict=True):
            torch.addmm(own.bias, states, own.keys, out=wide)
        weights = self._softmax(logits)
        for own, states, wide in zip(own_maps, x.split(size), weights.split(size), strict=True):
            if x.dtype == self.block.dtype:
                states.addmm_(wide, own.values)
            else:
                states.add_(wide @ own.values)
        return x

    def _softmax(self, logits: Tensor) -> Tensor:
        """Over own places, head by head: [..., H·K]; `logits` may be overwritten."""
        return self.block.softmax_rows(logits.view(-1, logits.shape[-1] // self.heads)).view_as(logits)


def _each(maps: OwnPlaceMaps, which: Iterable[int]) -> Iterator[OwnPlaceMaps]:
    """Entity by entity."""
    for i in which:
        yield OwnPlaceMaps(maps.keys[i], maps.bias[i], maps.values[i])


class MemoryPasses(Passes):
    """Feature-level and event-level passes and heads of one memory network, with its weights as they are now."""

    def __init__(self, network: DualTransformer, dtype: torch.dtype | None = None) -> None:
        super().__init__(network, dtype)
        with torch.no_grad():
            pairs = zip(network.memory.crosses, self.event_blocks, strict=True)
            self.crosses = [FastCross(c, block) for c, block in pairs if isinstance(c, CrossAttention)]
            self.heads = FastHeads(network)

    def know(self, memory: Memory, counts: Tensor, questions: int | None = None) -> EntityMaps:
        """What the passes need of E entities, once for all their questions, which stand together: counts [E]. A GPU
        that is told the number of `questions` does not have to be waited for."""
        places = self.network.memory
        new = places.new_token.expand(len(memory.tokens), 1, -1)
        own = places.own(torch.cat([memory.tokens, new], dim=1))
        return EntityMaps(
            memory,
            own,
            tuple(cross.map_places(memory) for cross in self.crosses),
            self.heads.pointers(memory),
            torch.repeat_interleave(counts, output_size=questions),
            tuple(counts.tolist()) if counts.device.type == "cpu" else (),
        )

    def outlook(self, embeddings: Tensor, window: WindowRows, entities: EntityMaps, targets: Targets) -> Outlook:
        """What was expected of B events, they and the events beside them masked: leading dimensions [T, B].

        embeddings [T, n, D] are shared by all windows.
        """
        (B, L), T = window.row.shape, len(embeddings)
        x = self._enter(embeddings, window, entities)
        flat = (torch.arange(B * T, device=x.device) * L).view(B, T) + window.at[:, None]
        return self.foresee(self._contextualise(x, flat, L, entities), entities, targets)

    def states_of_newest(self, embeddings: Tensor, window: Tensor, entities: EntityMaps) -> Tensor:
        """What the heads see of the last event of one window, [1, T, D]: embeddings [T, L, D], which are overwritten,
        and the window's order within the day, weekdays and slots, int64 [3, L]."""
        (T, L, D), network = embeddings.shape, self.network
        (order, weekday, slot), K, limit = window, entities.own.shape[1] - 1, network.position.num_embeddings - 1
        is_new = (slot >= K) | entities.memory.absent[0][slot.clamp(max=K - 1)]
        addition = entities.own[0][torch.where(is_new, K, slot)]  # [L, D]
        first = max(L - 2, 0)  # the last event and the one beside it are masked
        addition[first:] = 0.0
        embeddings[:, first:] = network.masked_token
        positions = network.position.weight
        addition += positions[:L] if limit + 1 >= L else positions[torch.arange(L, device=slot.device).clamp(max=limit)]
        addition += network.day_position.weight[order.clamp(max=limit)] + network.memory.weekday.weight[weekday]
        x = embeddings.add_(addition).view(T * L, D)
        flat = torch.arange(L - 1, T * L, L, device=x.device)[None]
        return self._contextualise(x, flat, L, entities)

    def foresee(self, states: Tensor, entities: EntityMaps, targets: Targets) -> Outlook:
        """From states [B, T, D]: leading dimensions [T, B]."""
        own_places = (entities.memory, entities.pointers, entities.owner)
        return self.heads(states, *own_places, targets=targets, elsewhere=entities.elsewhere)

    def _contextualise(self, x: Tensor, flat: Tensor, length: int, entities: EntityMaps) -> Tensor:
        """States [B·T·L, D] of windows of one length to those of their rows `flat` [B, T]: [B, T, D]."""
        (B, T), L, D = flat.shape, length, x.shape[-1]
        *blocks, last = self.event_blocks
        *crosses, final = zip(self.crosses, entities.place_maps, strict=True)
        for (cross, maps), block in zip(crosses, blocks, strict=True):
            x = block(cross(x, maps, entities), L)
        x = last.at(final[0](x, final[1], entities), L, flat.flatten())
        states: Tensor = self.network.norm(x)
        return states.view(B, T, D)

    def _enter(self, embeddings: Tensor, window: WindowRows, entities: EntityMaps) -> Tensor:
        """Events with masks, own places, positions and days: [B·T·L, D]."""
        (B, L), (T, n, D), network = window.row.shape, embeddings.shape, self.network
        offset, sample = (torch.arange(size, device=embeddings.device) for size in (L, T))
        rows = (sample[:, None] * n + window.row[:, None]).flatten()  # [B, T, L]
        x = self.work.get("x", embeddings.dtype, B * T * L, D)
        torch.index_select(embeddings.view(T * n, D), 0, rows, out=x)
        x = x.view(B, T, L, D)
        masked = (offset - window.at[:, None]).abs() <= 1  # [B, L]
        K = entities.own.shape[1] - 1
        owner, own_slot = entities.owner[:, None], window.slot.clamp(max=K - 1)
        slot = torch.where(entities.memory.absent[owner, own_slot] | (window.slot >= K), K, own_slot)
        addition = entities.own[owner, slot]  # [B, L, D]
        hidden = masked[:, None, :, None]
        torch.where(hidden, network.masked_token.to(x.dtype), x, out=x)
        limit = network.position.num_embeddings - 1
        addition = torch.where(masked[..., None], 0.0, addition) + network.position(offset.clamp(max=limit))
        addition += network.day_position(window.day_position.clamp(max=limit)) + network.memory.weekday(window.weekday)
        return x.add_(addition[:, None]).view(B * T * L, D)
