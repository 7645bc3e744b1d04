"""Inverted lists: an approximate search for near points that is fast for one query at a time.

Reference points are gathered around centres (k-means); a query looks only into the lists of the nearest centres.
How many lists are probed is chosen when the index is built, so that the error of the mean distance, measured
against the exact search on a sample, stays below a stated one. Works without FAISS.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numba
import numpy as np
import torch


@dataclass
class InvertedLists:
    """`points` sorted by list; list i is points[offsets[i] : offsets[i + 1]]."""

    centres: np.ndarray  # float32 [C, D]
    points: np.ndarray  # float32 [M, D]
    order: np.ndarray  # int64 [M], where each point stood before they were sorted
    offsets: np.ndarray  # int64 [C + 1]
    probes: int
    recall: float  # share of the true k nearest that are found, measured
    error: float  # mean relative error of the mean distance, measured

    @classmethod
    def fit(
        cls, points: np.ndarray, k: int = 150, target_error: float = 0.005, seed: int = 7, sample: int = 128
    ) -> InvertedLists:
        """Cluster the points and choose the number of probes on a sample of them (each moved a little)."""
        rng = np.random.default_rng(seed)
        count = int(np.clip(np.sqrt(len(points)), 1, 4096))
        centres = _k_means(points[rng.permutation(len(points))[: 64 * count]], count, rng)
        nearest = _assign(points, centres)
        order = np.argsort(nearest, kind="stable")
        offsets = np.searchsorted(nearest[order], np.arange(count + 1)).astype(np.int64)
        index = cls(centres, np.ascontiguousarray(points[order], np.float32), order, offsets, 1, 0.0, 0.0)
        trial = points[rng.permutation(len(points))[:sample]]
        trial = (trial + rng.normal(0, 0.1 * points.std(axis=0), trial.shape)).astype(np.float32)
        index._choose_probes(trial, min(k, len(points)), target_error)
        return index

    def distances(self, queries: np.ndarray, k: int) -> np.ndarray:
        """Distances to (about) the k nearest points, ascending: float32 [Q, k]."""
        queries = np.ascontiguousarray(queries, np.float32)
        size = max(1, (32 << 20) // len(self.centres))
        parts = [
            _search(queries[i : i + size], self.centres, self.points, self.offsets, probes=self.probes, k=k)
            for i in range(0, len(queries), size)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, k), np.float32)

    def describe(self) -> str:
        return (
            f"{len(self.points):,} reference events in {len(self.centres):,} lists, {self.probes} probed: "
            f"recall {self.recall:.3f}, error of the mean distance {self.error:.2%}"
        )

    def facts(self) -> dict[str, float]:
        """What was measured when the lists were built."""
        return {"lists": len(self.centres), "probes": self.probes, "recall": self.recall, "error": self.error}

    def to_tensors(self) -> dict[str, np.ndarray]:
        """For storing; the points are stored once, beside them."""
        quality = np.array([self.probes, self.recall, self.error], np.float64)
        return {"centres": self.centres, "order": self.order, "offsets": self.offsets, "measured": quality}

    @classmethod
    def from_tensors(cls, tensors: dict[str, np.ndarray], points: np.ndarray) -> InvertedLists:
        order = tensors["order"]
        probes, recall, error = tensors["measured"].tolist()
        points_by_list = np.ascontiguousarray(points[order], np.float32)
        return cls(tensors["centres"], points_by_list, order, tensors["offsets"], int(probes), recall, error)

    def _choose_probes(self, queries: np.ndarray, k: int, target_error: float) -> None:
        self.probes = len(self.centres)
        exact = self.distances(queries, k)
        probes = min(4, len(self.centres))
        while True:
            self.probes = probes
            distances = self.distances(queries, k)
            self.recall = float((distances <= exact[:, -1:] * (1 + 1e-6)).mean())
            self.error = float(np.mean(distances.mean(1) / np.maximum(exact.mean(1), 1e-12) - 1))
            if self.error <= target_error or probes == len(self.centres):
                return
            probes = min(2 * probes, len(self.centres))


def _k_means(points: np.ndarray, count: int, rng: np.random.Generator, rounds: int = 8) -> np.ndarray:
    centres = points[rng.permutation(len(points))[:count]].astype(np.float32)
    for _ in range(rounds):
        nearest = _assign(points, centres)
        order = np.argsort(nearest, kind="stable")
        sizes = np.bincount(nearest, minlength=count)
        nonempty = np.flatnonzero(sizes)
        totals = np.zeros_like(centres, dtype=np.float64)
        totals[nonempty] = np.add.reduceat(points[order].astype(np.float64), (np.cumsum(sizes) - sizes)[nonempty])
        centres = np.where(sizes[:, None] > 0, totals / np.maximum(sizes, 1)[:, None], centres).astype(np.float32)
    return centres


def _assign(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The nearest centre of each point, in blocks: int64 [M]."""
    middle = torch.from_numpy(np.ascontiguousarray(centres, np.float32))
    norms = middle.square().sum(1)
    size = max(1, (64 << 20) // (4 * len(centres)))
    with torch.inference_mode():
        parts = [
            torch.addmm(norms, torch.from_numpy(points[i : i + size].astype(np.float32)), middle.t(), alpha=-2.0)
            .argmin(1)
            .numpy()
            for i in range(0, len(points), size)
        ]
    return np.concatenate(parts)


@numba.njit(fastmath=True, cache=True)
def _squares(query: np.ndarray, points: np.ndarray, begin: int, end: int, out: np.ndarray, at: int) -> None:
    """Squared distances of one query to points begin … end, written to out[at:]."""
    for p in range(begin, end):
        total = np.float32(0)
        for d in range(points.shape[1]):
            difference = query[d] - points[p, d]
            total += difference * difference
        out[at + p - begin] = total


@numba.njit(cache=True)
def _gather(query: np.ndarray, order: np.ndarray, points: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Squared distances of one query to all points of the lists `order`."""
    size = 0
    for i in range(len(order)):
        size += offsets[order[i] + 1] - offsets[order[i]]
    squares = np.empty(size, np.float32)
    at = 0
    for i in range(len(order)):
        begin, end = offsets[order[i]], offsets[order[i] + 1]
        _squares(query, points, begin, end, squares, at)
        at += end - begin
    return squares


@numba.njit(cache=True)
def _smallest(values: np.ndarray, k: int, heap: np.ndarray) -> None:
    """The k smallest values into heap[:k], the largest of them on top."""
    heap[:] = np.inf
    for value in values:
        if value >= heap[0]:
            continue
        at = 0
        while True:  # sink to where both children are smaller
            child = 2 * at + 1
            if child >= k:
                break
            if child + 1 < k and heap[child + 1] > heap[child]:
                child += 1
            if heap[child] <= value:
                break
            heap[at] = heap[child]
            at = child
        heap[at] = value


@numba.njit(nogil=True, cache=True)
def _search_many(
    queries: np.ndarray, order: np.ndarray, n_lists: np.ndarray, points: np.ndarray, offsets: np.ndarray, k: int
) -> np.ndarray:
    result = np.empty((len(queries), k), np.float32)
    for q in range(len(queries)):
        _smallest(_gather(queries[q], order[q, : n_lists[q]], points, offsets), k, result[q])
    return result


def _in_threads(
    queries: np.ndarray, order: np.ndarray, n_lists: np.ndarray, points: np.ndarray, *, offsets: np.ndarray, k: int
) -> np.ndarray:
    """Plain threads, because numba's own would change how many threads torch uses."""
    pieces = np.array_split(np.arange(len(queries)), min(len(queries), torch.get_num_threads()))
    with ThreadPoolExecutor(len(pieces)) as pool:
        jobs = [pool.submit(_search_many, queries[i], order[i], n_lists[i], points, offsets, k) for i in pieces]
        return np.concatenate([job.result() for job in jobs])


def _search(
    queries: np.ndarray, centres: np.ndarray, points: np.ndarray, offsets: np.ndarray, *, probes: int, k: int
) -> np.ndarray:
    """Lists in the order of their centres; more than `probes` where those hold fewer than k points."""
    apart = (centres * centres).sum(1) - 2 * queries @ centres.T  # [Q, C]
    order = np.argsort(apart, axis=1)
    n_points = np.cumsum(np.diff(offsets)[order], axis=1)
    n_lists = np.maximum(probes, (n_points < k).sum(axis=1) + 1)
    if len(queries) > 1:
        return np.sqrt(np.sort(_in_threads(queries, order, n_lists, points, offsets=offsets, k=k), axis=1))
    squares = _gather(queries[0], order[0, : n_lists[0]], points, offsets)  # one event, live: no threads to wake
    return np.sqrt(np.sort(np.partition(squares, k - 1)[:k]))[None]
