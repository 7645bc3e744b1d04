"""CTLE: locations whose embedding depends on the visits around them and on the time.

Published (Lin et al., AAAI 2021) for next-location prediction: visits are location identifiers and times. A
bidirectional Transformer with a learned encoding of time is pre-trained to recover masked locations and hours. The
paper adapts it to stays: grid cells are the locations; duration, coordinates and kind of place are inputs too. Then
a Transformer reconstructs event features from the learned embeddings and is scored like the Transformer baseline.

Where we had to decide: embeddings are frozen after pre-training. Both stages have the common budget, not 200 epochs of
pre-training, and mask the scored event as a whole. Hours are those of the schema's cyclic feature. Cells are 1 km wide.
The width and the mask ratio are searched. Errors become one score as in `transformer.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import pyarrow as pa
import torch
from torch import Tensor, nn

from ustad.config import setting
from ustad.events.encoder import Encoder
from ustad.events.windows import Batch, Features
from ustad.lab.baselines.base import State, place_feature, search_field
from ustad.lab.baselines.deep import MaskedPredictor
from ustad.lab.baselines.networks import DeepSettings, SequenceNetwork
from ustad.lab.baselines.trajectory_grid import CellLookup, Grid
from ustad.lab.baselines.windowed import random_masks, window_items
from ustad.network.blocks import HIDDEN, Block
from ustad.network.losses import masked_mean
from ustad.network.training.masked_step import capacity, places
from ustad.tables import DataError

HOURS = 24


@dataclass(frozen=True)
class CtleSettings(DeepSettings):
    """What can be chosen."""

    width: int = search_field(64, (64, 128), "embedding size, as the paper searches it")
    context_blocks: int = setting(2, "blocks of the location encoder")
    blocks: int = setting(2, "blocks of the Transformer that reconstructs")
    cell_km: float = setting(1.0, "side of a grid cell, km")
    max_cells: int = setting(4000, "the most visited cells have a code of their own")


class LocationTransformer(SequenceNetwork):
    """Cell and time → contextual location embeddings → reconstruction."""

    def __init__(self, encoder: Encoder, settings: CtleSettings, grid: Grid) -> None:
        super().__init__(encoder.fields, settings)
        D, names = settings.width, [f.name for f in encoder.fields]
        place = place_feature(encoder.schema, "ctle").field_names
        self.columns, self.angle = ([names.index(n) for n in group] for group in (place, _cycle(encoder)))
        self.lookup = CellLookup(grid, [encoder.scales[n] for n in place])
        self.cell = nn.Embedding(grid.size, D)
        self.frequency = nn.Parameter(torch.randn(D))
        self.phase = nn.Parameter(torch.rand(D) * 2 * math.pi)
        self.context = nn.ModuleList(Block(D, settings.heads) for _ in range(settings.context_blocks))
        self.which_cell, self.which_hour = nn.Linear(D, grid.size), nn.Linear(D, HOURS)
        self.blocks = nn.ModuleList(Block(D, settings.heads) for _ in range(settings.blocks))

    def cells(self, features: Features) -> Tensor:
        """Codes of the events' cells, 0 where unknown: [...]."""
        x, y = self.columns  # a list as index would wait for the GPU
        has_cell = ~(features.missing[..., x] | features.missing[..., y])
        return self.lookup(torch.stack([features.numbers[..., x], features.numbers[..., y]], -1)) * has_cell

    def hours(self, features: Features) -> Tensor:
        """Hour of day of the events, with its fraction: [...]."""
        x, y = (features.numbers[..., column] for column in self.angle)
        return torch.atan2(y, x) / (2 * math.pi) * HOURS % HOURS

    def embed(self, features: Features) -> Tensor:
        time = torch.cos(self.frequency * self.hours(features)[..., None] + self.phase)
        return self.cell(self.cells(features)) + time + super().embed(features)

    def locate(self, x: Tensor, padding: Tensor) -> Tensor:
        """The learned location embeddings: [B, L, D] -> [B, L, D]."""
        bias = (padding.to(x.dtype) * HIDDEN)[:, None, None, :]
        return reduce(lambda hidden, block: block(hidden, bias), self.context, x)

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        bias = (padding.to(x.dtype) * HIDDEN)[:, None, None, :]
        return reduce(lambda hidden, block: block(hidden, bias), self.blocks, self.locate(x, padding))

    def pretraining_loss(self, batch: Batch, masked: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy of the cells and hours of those masked events that are targets."""
        x = self.enter(self.embed(batch.features), masked, batch.position, batch.day_position)
        flat, real = places(masked, capacity(len(masked), masked.shape[1], self.settings.mask_ratio))  # [M] each
        hidden = self.locate(x, batch.padding).flatten(0, 1)[flat]
        cells = self.cells(batch.features).flatten()[flat]
        hours = self.hours(batch.features).flatten()[flat].long().clamp(max=HOURS - 1)
        cell_loss = nn.functional.cross_entropy(self.which_cell(hidden), cells, reduction="none")
        hour_loss = nn.functional.cross_entropy(self.which_hour(hidden), hours, reduction="none")
        return masked_mean(cell_loss * (cells > 0) + hour_loss, real & targets.flatten()[flat])


class Ctle(MaskedPredictor):
    """CTLE: context- and time-aware location embeddings, then a Transformer that reconstructs."""

    name: ClassVar[str] = "ctle"
    settings_class: ClassVar[type] = CtleSettings
    networks: ClassVar[int] = 2
    network: LocationTransformer

    def _network(self) -> SequenceNetwork:
        return LocationTransformer(self.encoder, self.settings, self.grid)

    def _prepare(self, train: pa.Table) -> None:
        place = place_feature(self.schema, self.name)
        lat, lon = (train[c].to_numpy() for c in place.source)
        x, y = self.encoder.projections[place.name].forward(lat, lon)
        self.grid: Grid = Grid.fit(x, y, self.settings.cell_km, self.settings.max_cells)

    def _train(self, train: pa.Table, validation: pa.Table) -> None:
        parts = window_items(self.encoder, train, validation, self.loop_config().window, device=self.device)

        def loss(part: int, index: Tensor, length: int, noise: torch.Generator | None) -> Tensor:
            batch = parts[part].batch(index, length)
            masked = random_masks(batch.padding, self.settings.mask_ratio, noise)
            return self.network.pretraining_loss(batch, masked, parts[part].targets(index, batch))

        self._fit_network(loss, (parts[0].length, parts[1].length), train.num_rows, "ctle: locations")
        first = self.training
        for name, parameter in self.network.named_parameters():
            parameter.requires_grad_(name.split(".")[0] in ("blocks", "norm", "heads"))
        super()._train(train, validation)
        self.training["locations"] = first

    def _state(self) -> State:
        state = super()._state()
        state.tensors["known"] = torch.from_numpy(self.grid.keys_in_training)
        return state

    def _restore(self, state: State) -> None:
        self.grid = Grid(self.settings.cell_km, state.tensors["known"].cpu().numpy())
        super()._restore(state)


def _cycle(encoder: Encoder) -> tuple[str, ...]:
    feature = next((f for f in encoder.schema.features if f.kind == "cyclic"), None)
    if feature is None:
        raise DataError(f"ctle: needs a time of day, but the schema '{encoder.schema.name}' has no cyclic feature")
    return feature.field_names
