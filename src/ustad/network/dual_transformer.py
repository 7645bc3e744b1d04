"""The dual Transformer: fields attend to each other inside an event, then events inside a window.

In goes a padded batch and which events are masked; out come `Predictions` for every event. With place memory every
event block also attends to the entity's own places, and what comes out is an `Outlook` by chained heads. Symbols as in
the paper: B windows of L events of F fields, width D; T samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ustad.config import Config, ModelConfig
from ustad.events.windows import Batch, Features
from ustad.network.blocks import HIDDEN, Block
from ustad.network.heads import Heads, Predictions
from ustad.network.lookup import look_up
from ustad.network.place_memory import Memory, Outlook, PlaceMemory, Targets, WindowMemory
from ustad.network.tokenizer import FeatureTokenizer
from ustad.schema import Field

#: Branches of the feature blocks begin quietly: as this share of torch's own first weights.
QUIET = 0.1


class DualTransformer(nn.Module):
    """Tokenizer → dropout → M1 feature blocks → sum over fields → positions → M2 event blocks → heads.

    Where the paper is silent: the first weights (`_begin`), and how fast embeddings learn (`gains`).
    """

    heads: Heads  # the paper's; a network with place memory has `memory.heads` instead
    memory: PlaceMemory  # where there is one

    def __init__(
        self, fields: Sequence[Field], config: ModelConfig, max_events: int, kinds_of_places: int | None = None
    ) -> None:
        """With `kinds_of_places`, unknown included, it has place memory."""
        super().__init__()
        self.fields = tuple(fields)
        self.config = config
        self.has_memory = kinds_of_places is not None
        D = config.width
        self.tokenizer = FeatureTokenizer(self.fields, D)
        self.dropout = nn.Dropout(config.dropout if config.epistemic else 0.0)
        self.feature_blocks = nn.ModuleList(Block(D, config.heads) for _ in range(config.feature_blocks))
        self.masked_token = nn.Parameter(torch.randn(D) * 0.02)
        self.position = nn.Embedding(max_events, D)
        self.day_position = nn.Embedding(max_events, D)
        self.event_blocks = nn.ModuleList(Block(D, config.heads) for _ in range(config.event_blocks))
        self.norm = nn.LayerNorm(D)
        if kinds_of_places is not None:
            self.memory = PlaceMemory(config, kinds_of_places)
            for table in (self.position, self.day_position):
                nn.init.normal_(table.weight, std=0.02)
        else:
            self.heads = Heads(self.fields, D, config.aleatoric)
            self._begin()

    # ----------------------------------------------------------------------------------- before training
    @torch.no_grad()
    def _begin(self) -> None:
        """First weights under which order can be seen: positions are as loud as all fields of an event together.

        A block's branches add about as much to every token, whatever the token: summed over fields, that drowns
        both the fields and the positions. So they begin quietly and without bias, and grow as they are needed.
        """
        D = self.config.width
        token = 1 / math.sqrt(3 * D)  # the standard deviation of what `FeatureTokenizer` begins with
        for table in (self.position, self.day_position):
            nn.init.normal_(table.weight, std=token * math.sqrt(len(self.fields) / 2))
        for linear, size in zip(self.tokenizer.vectors, self.tokenizer.vector_sizes, strict=True):
            nn.init.normal_(linear.weight, std=token / math.sqrt(size))  # type: ignore[arg-type]  # a Linear
            nn.init.normal_(linear.bias, std=token)  # type: ignore[arg-type]  # a Linear
        for block in self.feature_blocks:
            for last in (block.attention.out, block.forward_out):  # type: ignore[union-attr]  # a Block
                last.weight.mul_(QUIET)  # type: ignore[operator, union-attr]  # a Linear
                last.bias.zero_()  # type: ignore[operator, union-attr]  # a Linear

    def gains(self) -> dict[str, float]:
        """Parameters that learn faster than the rest, by name: embeddings, √D times. A departure from the paper.

        A step moves each weight by about the learning rate. Behind a linear map D such moves add up; an embedding,
        which an event is the sum of, has one. Transformers since the first multiply their embeddings by √D.
        """
        if self.has_memory:
            return {}
        tokens = ("tokenizer.weight", "tokenizer.bias", "tokenizer.table", "tokenizer.missing")
        names = (*tokens, "masked_token", "position.weight", "day_position.weight")
        return dict.fromkeys(names, math.sqrt(self.config.width))

    # ---------------------------------------------------------------------------------- feature level
    def embed(self, features: Features, keep: Tensor | None = None) -> Tensor:
        """Events one by one: [...] events of F fields -> [..., D].

        `keep` [..., F, D] is a multiplicative dropout mask (0 or 1/(1-p)) given by the caller. Without it dropout
        is torch's own in training mode, and the identity in evaluation mode.
        """
        tokens = self.tokenizer(features)  # [..., F, D]
        tokens = self.dropout(tokens) if keep is None else tokens * keep
        leading, (F, D) = tokens.shape[:-2], tokens.shape[-2:]
        x = tokens.reshape(-1, F, D)  # each event is a sequence of its fields, in no order
        *blocks, last = self.feature_blocks
        for block in blocks:
            x = block(x)
        return last.total(x).view(*leading, D)  # type: ignore[operator]  # a Block, which ModuleList forgets

    # ------------------------------------------------------------------------------------ event level
    def contextualise(
        self, events: Tensor, masked: Tensor, padding: Tensor, position: Tensor, *, day_position: Tensor
    ) -> Tensor:
        """Events in their windows: [B, L, D] from `embed`, masked and padding [B, L] -> [B, L, D]."""
        x, bias, last = self._up_to_last(events, masked, padding, position, day_position=day_position)
        return self.norm(last(x, bias))

    def contextualise_at(
        self, events: Tensor, masked: Tensor, padding: Tensor, position: Tensor, *, day_position: Tensor, at: Tensor
    ) -> Tensor:
        """The same for one event of each window, at [B] -> [B, D]; the last block computes only that query."""
        x, bias, last = self._up_to_last(events, masked, padding, position, day_position=day_position)
        return self.norm(last.at(x, bias, at))

    def contextualise_where(
        self,
        events: Tensor,
        masked: Tensor,
        padding: Tensor,
        position: Tensor,
        *,
        day_position: Tensor,
        flat: Tensor,
        window_memory: WindowMemory | None = None,
    ) -> Tensor:
        """The same for some events, by their place in the flattened batch, flat [M] of B·L -> [M, D].

        Events may have a leading dimension of samples, [T, B, L, D] -> [T, M, D]. `window_memory` is what place memory
        has of the windows: a masked event then shows only its place in the window and its day of the week.
        """
        leading, (B, L, D) = events.shape[:-3], events.shape[-3:]
        x, bias, last = self._up_to_last(
            events, masked, padding, position, day_position=day_position, window_memory=window_memory
        )
        if leading:
            flat = (torch.arange(leading[0], device=flat.device)[:, None] * (B * L) + flat).flatten()
        return self.norm(last.where(x, bias, flat)).view(*leading, -1, D)

    def _up_to_last(
        self,
        events: Tensor,
        masked: Tensor,
        padding: Tensor,
        position: Tensor,
        *,
        day_position: Tensor,
        window_memory: WindowMemory | None = None,
    ) -> tuple[Tensor, Tensor, Block]:
        """Events with masks and positions after all event blocks but the last [T·B, L, D], the bias that hides padded
        keys [T·B, 1, 1, L], and that block."""
        x = events if window_memory is None else events + self.memory.own_place(window_memory)
        x = torch.where(masked[..., None], self.masked_token.to(x.dtype), x)
        limit = self.position.num_embeddings - 1
        x = x + look_up(self.position.weight, position.clamp(max=limit))
        x = x + look_up(self.day_position.weight, day_position.clamp(max=limit))
        if window_memory is not None:
            x = x + look_up(self.memory.weekday.weight, window_memory.weekday)
        bias = (padding.to(x.dtype) * HIDDEN)[:, None, None, :]
        if x.dim() > 3:
            bias = bias.repeat(len(x), 1, 1, 1)
        x = x.flatten(0, -3)
        *blocks, last = self.event_blocks
        for number, block in enumerate(blocks):
            x = block(self._ask_memory(number, x, window_memory), bias)
        return self._ask_memory(len(blocks), x, window_memory), bias, last  # type: ignore[return-value]  # a Block

    def _ask_memory(self, number: int, x: Tensor, window_memory: WindowMemory | None) -> Tensor:
        """What the events of block `number` see of the own places, added to them."""
        return x if window_memory is None else self.memory.attend(number, x, window_memory.memory)

    # --------------------------------------------------------------------------------------- decoding
    def decode(self, hidden: Tensor) -> Predictions:
        """[..., D] -> Predictions, in at least fp32 whatever the precision of the blocks."""
        with torch.autocast(hidden.device.type, enabled=False):
            return self.heads(hidden.to(self.heads.linear.weight.dtype))

    def foresee(self, hidden: Tensor, memory: Memory, targets: Targets) -> Outlook:
        """What was expected of M events by place memory: hidden [T, M, D], memory of each of the M -> [T, M]."""
        with torch.autocast(hidden.device.type, enabled=False):
            return self.memory.foresee(hidden, memory, targets)

    def forward(self, batch: Batch, masked: Tensor) -> Predictions:
        """Predictions of every event of every window: leading dimensions [B, L]."""
        events = self.embed(batch.features)
        return self.decode(
            self.contextualise(events, masked, batch.padding, batch.position, day_position=batch.day_position)
        )


def build_network(fields: Sequence[Field], config: Config, kinds_of_places: int | None = None) -> DualTransformer:
    """A new network whose first weights follow from the seed; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        return DualTransformer(fields, config.model, config.window.max_events, kinds_of_places)
