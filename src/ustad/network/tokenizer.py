"""The feature tokenizer: each field of an event becomes one token of width D.

In go the fields of some events in network units; out comes [..., F, D], numbers first, then categories, then
vectors. A number has its own weight and bias, a category its own row of a table, a vector its own linear map, as
in the paper's appendix on the tokenizer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ustad.events.windows import Features
from ustad.network.lookup import look_up
from ustad.schema import Field


class FeatureTokenizer(nn.Module):
    """Fields to tokens.

    Shape: features of [...] events -> [..., F, D].
    """

    offsets: Tensor

    def __init__(self, fields: Sequence[Field], width: int) -> None:
        super().__init__()
        sizes = {kind: [f.size for f in fields if f.kind == kind] for kind in ("number", "category", "vector")}
        n_numbers, classes, self.vector_sizes = len(sizes["number"]), sizes["category"], sizes["vector"]
        self.weight = nn.Parameter(torch.empty(n_numbers, width))
        self.bias = nn.Parameter(torch.empty(n_numbers, width))
        # The tables of all categories lie one below the other, so that one lookup serves them all.
        self.table = nn.Parameter(torch.empty(sum(classes), width))
        starts = [sum(classes[:i]) for i in range(len(classes))]
        self.register_buffer("offsets", torch.tensor(starts, dtype=torch.int64), persistent=False)
        self.vectors = nn.ModuleList(nn.Linear(size, width) for size in self.vector_sizes)
        # Departure from the paper: a field that is missing has a learned token of its own, instead of a made-up value.
        self.missing = nn.Parameter(torch.empty(len(fields), width))
        bound = 1 / math.sqrt(width)
        for parameter in (self.weight, self.bias, self.table, self.missing):
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, features: Features) -> Tensor:
        tokens = [features.numbers[..., None] * self.weight + self.bias]  # [..., Fn, D]
        if len(self.offsets):
            tokens.append(look_up(self.table, features.categories + self.offsets))  # [..., Fc, D]
        if self.vector_sizes:
            parts = torch.split(features.vectors, self.vector_sizes, dim=-1)
            tokens.append(torch.stack([m(v) for m, v in zip(self.vectors, parts, strict=True)], dim=-2))
        return torch.where(features.missing[..., None], self.missing, torch.cat(tokens, dim=-2))  # [..., F, D]
