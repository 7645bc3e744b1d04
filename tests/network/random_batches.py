"""Random batches for tests of the network."""

from __future__ import annotations

import torch

from ustad.events.windows import Batch, Features
from ustad.schema import Field

FIELDS = (
    Field("x", "number"),
    Field("y", "number"),
    Field("poi", "category", 5),
    Field("weekday", "category", 8),
    Field("trip", "vector", 3),
)


def make_features(fields: tuple[Field, ...], *lead: int, dtype: torch.dtype = torch.float32) -> Features:
    """Random fields, one in ten missing; a category is missing exactly where its code is 0."""
    sizes = {kind: [f.size for f in fields if f.kind == kind] for kind in ("number", "category", "vector")}
    missing = torch.rand(*lead, len(fields)) < 0.1
    codes = [torch.randint(0, max(size, 1), lead) for size in sizes["category"]]
    categories = torch.stack(codes, dim=-1) if codes else torch.zeros(*lead, 0, dtype=torch.int64)
    first = len(sizes["number"])
    missing[..., first : first + len(codes)] = categories == 0
    return Features(
        torch.randn(*lead, first, dtype=dtype),
        categories,
        torch.randn(*lead, sum(sizes["vector"]), dtype=dtype),
        missing,
    )


def make_batch(
    lengths: tuple[int, ...] = (5, 3, 1), fields: tuple[Field, ...] = FIELDS, dtype: torch.dtype = torch.float32
) -> Batch:
    B, L = len(lengths), max(max(lengths), 1)
    place = torch.arange(L).expand(B, L)
    padding = place >= torch.tensor(lengths)[:, None]
    return Batch(make_features(fields, B, L, dtype=dtype), padding, place, place % 2, place.clone())
