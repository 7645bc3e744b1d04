"""The reference events of kNN in shards: each is searched on its own, the k nearest of all are merged exactly.

The shards lie in Ray's shared memory, one copy per machine; a task holds one of them at a time. Stands in for
`network.inference.neighbours.Reference` in a scoring model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ustad.engine.cluster import import_ray
from ustad.network.inference.neighbours import Reference

#: Reference events of one shard: 128 MB at 64 dimensions.
SHARD_ROWS = 500_000


@dataclass
class ShardedReference:
    """Shards of M reference events; `shards` are object references, or callables that give a `Reference`."""

    shards: Sequence[Any]
    size: int

    def __len__(self) -> int:
        return self.size

    def mean_distance(
        self, queries: np.ndarray, k: int, device: torch.device | str = "cpu", owner: np.ndarray | None = None
    ) -> np.ndarray:
        """As `Reference.mean_distance`, and never approximate."""
        device = torch.device(device)
        if owner is not None:
            return self._own(queries, k, owner)
        if not self.size:
            raise ValueError("there are no reference events to measure distances to")
        k = min(k, self.size)
        best = np.zeros((len(queries), 0), np.float32)
        for shard in self.shards:
            part = _fetch(shard)
            best = merge_nearest(best, part.nearest(queries, min(k, len(part)), device), k)
        return best.mean(axis=1)

    def _own(self, queries: np.ndarray, k: int, owner: np.ndarray) -> np.ndarray:
        """Only events of the same owner count: those of the owners asked about are gathered first."""
        distances, owners = [], []
        for shard in self.shards:
            part = _fetch(shard)
            rows = np.isin(part.owner, owner)
            distances.append(part.embeddings[rows])
            owners.append(part.owner[rows])
        if not distances:
            return np.full(len(queries), np.nan, np.float32)
        return Reference(np.concatenate(distances), np.concatenate(owners)).mean_distance(queries, k, "cpu", owner)


def merge_nearest(left: np.ndarray, right: np.ndarray, k: int) -> np.ndarray:
    """The k smallest of two sets of distances, ascending: [Q, ≤ k] from [Q, a] and [Q, b]."""
    both = np.concatenate([left, right], axis=1)
    if both.shape[1] > k:
        both = np.partition(both, k - 1, axis=1)[:, :k]
    return np.sort(both, axis=1)


def share_out(embeddings: np.ndarray, owner: np.ndarray, rows: int = SHARD_ROWS) -> ShardedReference:
    """Put a reference into shared memory, shard by shard."""
    ray = import_ray()
    shards = [ray.put((embeddings[i : i + rows], owner[i : i + rows])) for i in range(0, len(embeddings), rows)]
    return ShardedReference(shards, len(embeddings))


def _fetch(shard: Any) -> Reference:
    if isinstance(shard, Callable):  # type: ignore[arg-type]  # mypy takes no special form here
        return shard()
    embeddings, owner = import_ray().get(shard)
    return Reference(embeddings, owner)
