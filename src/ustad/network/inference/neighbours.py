"""How far an event is from everything seen in training: the mean distance to its k nearest reference events.

In go embeddings of reference and scored events, out come mean Euclidean distances. Exact on a GPU (torch) and on a
CPU (FAISS where it is installed, else torch). Where FAISS is installed, beyond `EXACT_LIMIT` reference events, and for
one event at a time on a CPU beyond `APPROXIMATE_ABOVE`, through inverted lists whose recall and error are measured when
they are built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ustad.network.inference.half_search import GROUP, Halves, find_nearest, fits
from ustad.network.inference.inverted_lists import InvertedLists, has_faiss
from ustad.progress import say, track, warn

#: More reference events than this are searched through inverted lists: by device.
EXACT_LIMIT = {"cpu": 4_000_000, "cuda": 60_000_000}
#: With more than this, lists are built in training, so that live scoring on a CPU finds them; their error is measured.
APPROXIMATE_ABOVE = 20_000
#: Coordinates of the points that fill the last group: farther than anything.
NOWHERE = 1e18


@dataclass(frozen=True)
class SearchPoints:
    """Reference points on a device, moved to their centre and padded to whole groups; padding has infinite norm."""

    centre: np.ndarray
    points: Tensor  # [M', D]
    norms: Tensor  # [M'] squared
    halves: Halves | None = None  # where candidates come from half precision

    @classmethod
    def of(cls, reference: np.ndarray, device: torch.device, halves: bool | None = None) -> SearchPoints:
        """With `halves` (by default where the device has tensor cores) for the search in half precision."""
        centre = reference.mean(axis=0, dtype=np.float64).astype(np.float32)
        points = torch.from_numpy(reference - centre).to(device)
        spare = -len(points) % GROUP
        whole = torch.cat([points, points.new_full((spare, points.shape[1]), NOWHERE)])
        norms = whole.square().sum(1)
        norms[len(points) :] = torch.inf
        use_halves = fits(device, points.shape[1]) if halves is None else halves
        return cls(centre, whole, norms, Halves.of(whole, spare) if use_halves else None)


@dataclass
class Reference:
    """M training events in the embedding space; `owner` is a hash of each one's entity."""

    embeddings: np.ndarray  # float32 [M, D]
    owner: np.ndarray  # int64 [M]
    lists: InvertedLists | None = field(default=None, repr=False)
    _by_device: dict[str, SearchPoints] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.embeddings)

    def mean_distance(
        self,
        queries: np.ndarray,
        k: int,
        device: torch.device | str = "cpu",
        owner: np.ndarray | None = None,
    ) -> np.ndarray:
        """Mean distance of each query [Q, D] to its k nearest: float32 [Q].

        With `owner` [Q] only reference events of the same owner count; NaN where it has none.
        """
        device = torch.device(device)
        if owner is not None:
            return self._own(queries, k, owner)
        k = _clip(k, len(self))
        if len(self) > EXACT_LIMIT[device.type] and has_faiss():
            return self.approximate().distances(queries, k).mean(axis=1)
        return self.nearest(queries, k, device).mean(axis=1)

    def nearest(self, queries: np.ndarray, k: int, device: torch.device) -> np.ndarray:
        """Exact distances to the k nearest, ascending: float32 [Q, k]."""
        if device.type == "cpu" and has_faiss():
            return _faiss_distances(self.embeddings, queries, k)
        if str(device) not in self._by_device:  # kept on the device: live scoring asks again and again
            self._by_device[str(device)] = SearchPoints.of(self.embeddings, device)
        return nearest_distances(self._by_device[str(device)], queries, k)

    def approximate(self, k: int = 150) -> InvertedLists:
        """The inverted lists, built on first use for about k neighbours; says the recall it measured."""
        if not has_faiss():
            raise ImportError("an approximate search needs FAISS: pip install 'ustad[knn]'")
        if self.lists is None:
            self.lists = InvertedLists.fit(self.embeddings, k)
            say(f"neighbours: {self.lists.describe()}")
        return self.lists

    def index_for_live(self, k: int) -> None:
        """Build the lists where scoring one event at a time on a CPU will use them."""
        if live_through_lists(len(self), torch.device("cpu")):
            self.approximate(k)

    def _own(self, queries: np.ndarray, k: int, owner: np.ndarray) -> np.ndarray:
        order, by_owner = np.argsort(self.owner, kind="stable"), np.argsort(owner, kind="stable")
        names, first = np.unique(owner[by_owner], return_index=True)
        lows, highs = (np.searchsorted(self.owner[order], names, side=side) for side in ("left", "right"))
        result = np.full(len(queries), np.nan, np.float32)
        for rows, low, high in zip(np.split(by_owner, first[1:]), lows, highs, strict=True):  # entities, not events
            if low == high:
                continue
            mine = self.embeddings[order[low:high]]
            distances = exact_distances(mine, queries[rows], min(k, high - low), torch.device("cpu"))
            result[rows] = distances.mean(axis=1)
        return result

    def facts(self) -> dict[str, float]:
        """How many events are searched and, where they are searched through lists, how well that was measured."""
        return {"reference": len(self), **(self.lists.facts() if self.lists is not None else {})}

    def to_tensors(self) -> dict[str, np.ndarray]:
        tensors = {"neighbours.embeddings": self.embeddings, "neighbours.owner": self.owner}
        lists = self.lists.to_tensors() if self.lists is not None else {}
        return tensors | {f"neighbours.lists.{name}": values for name, values in lists.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Reference:
        start = "neighbours.lists."
        list_tensors = {name[len(start) :]: values for name, values in tensors.items() if name.startswith(start)}
        embeddings = tensors["neighbours.embeddings"]
        lists = InvertedLists.from_tensors(list_tensors, embeddings) if list_tensors and has_faiss() else None
        return cls(embeddings, tensors["neighbours.owner"], lists)


def live_through_lists(references: int, device: torch.device) -> bool:
    """Whether one event at a time is compared with so many through lists: on a CPU early, on a GPU as in bulk."""
    return has_faiss() and references > (APPROXIMATE_ABOVE if device.type == "cpu" else EXACT_LIMIT[device.type])


def shared_room(device: torch.device, most: int) -> int:
    """Bytes of a GPU to work in: at most so many, and one in sixteen of what is free now, since others may share it."""
    free, _ = torch.cuda.mem_get_info(device)
    reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(64 << 20, min(most, (free + reusable) // 16))


def exact_distances(reference: np.ndarray, queries: np.ndarray, k: int, device: torch.device) -> np.ndarray:
    """Distances to the k nearest of M reference points, ascending: float32 [Q, k]."""
    return nearest_distances(SearchPoints.of(reference, device), queries, k)


def nearest_distances(reference: SearchPoints, queries: np.ndarray, k: int) -> np.ndarray:
    """The same against points that are already on their device.

    The matrix of squared distances is made in blocks. Its columns are compared in groups of 64 first: the k
    nearest points lie in the k groups with the smallest minima, so only those are searched. The distances of the
    chosen are then computed again from the differences, free of cancellation.
    """
    device = reference.points.device
    room = shared_room(device, 6 << 30) if device.type == "cuda" else (256 << 20)
    # The matrix (of which half precision keeps the minima of groups, twice), and what is looked at again.
    columns = len(reference.points) // (1 if reference.halves is None else GROUP // 2) + 3 * k * GROUP
    size = max(1, min(len(queries), room // (4 * columns)))
    blocks = []
    with torch.inference_mode(), track("neighbours", len(queries)) as advance:
        for begin in range(0, len(queries), size):
            block = torch.from_numpy(queries[begin : begin + size] - reference.centre).to(device)
            blocks.append(_search(block, reference, k).cpu().numpy())
            advance(len(block))
    return np.concatenate(blocks) if blocks else np.zeros((0, k), np.float32)


def _search(block: Tensor, reference: SearchPoints, k: int) -> Tensor:
    """Distances of a block of queries to their k nearest, ascending; those that half precision leaves open in full."""
    points, norms, halves = reference.points, reference.norms, reference.halves
    if halves is None:
        return _nearest(block, points, norms, k)
    distances, proven = find_nearest(block, points, halves, k)
    left = (~proven).nonzero()[:, 0]
    if not len(left):
        return distances
    for some in left.split(max(1, (1 << 28) // len(points))):  # blocks of a matrix of 1 GiB
        distances[some] = _nearest(block[some], points, norms, k)
    return distances


def _nearest(block: Tensor, points: Tensor, norms: Tensor, k: int) -> Tensor:
    square = torch.addmm(norms, block, points.t(), alpha=-2.0)  # [B, M], less each query's own norm
    groups = square.view(len(block), -1, GROUP)
    best = groups.amin(-1).topk(min(k, groups.shape[1]), largest=False, sorted=False).indices  # [B, k]
    near = groups.gather(1, best[..., None].expand(-1, -1, GROUP)).flatten(1)  # [B, k · 64]
    pick = near.topk(k, largest=False, sorted=False).indices
    candidate = best.gather(1, pick // GROUP) * GROUP + pick % GROUP
    step = max(1, (1 << 28) // (4 * k * block.shape[1]))
    exact = [
        (points[candidate[i : i + step]] - block[i : i + step, None]).square().sum(-1).sqrt()
        for i in range(0, len(block), step)
    ]
    return torch.cat(exact).sort(dim=1).values


def _faiss_distances(reference: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """The same from FAISS; its squared distances may fall below zero by rounding."""
    import faiss

    centre = reference.mean(axis=0, dtype=np.float64).astype(np.float32)
    square, _ = faiss.knn(
        np.ascontiguousarray(queries - centre, np.float32), np.ascontiguousarray(reference - centre, np.float32), k
    )
    return np.sqrt(np.maximum(square, 0.0))


def _clip(k: int, available: int) -> int:
    if available == 0:
        raise ValueError("there are no reference events to measure distances to")
    if k > available:
        warn(f"only {available:,} reference events for {k} neighbours; all of them are used")
    return min(k, available)
