"""Inverted lists of FAISS: an approximate search for near points that is fast for one query at a time.

Reference points are gathered around centres (k-means); a query looks only into the lists of the nearest centres.
How many lists are probed is chosen when the index is built, so that the error of the mean distance, measured
against the exact search on a sample, stays below a stated one.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np


def has_faiss() -> bool:
    """Whether lists can be had: pip install 'ustad[knn]'."""
    return importlib.util.find_spec("faiss") is not None


@dataclass
class InvertedLists:
    """Points in lists; they are moved to their middle, where squares of distances are exact to more digits."""

    index: Any  # faiss.IndexIVFFlat
    middle: np.ndarray  # float32 [D]
    centres: np.ndarray  # float32 [C, D]
    list_of: np.ndarray  # int64 [M], the list of each point
    recall: float = 0.0  # share of the true k nearest that are found, measured
    error: float = 0.0  # mean relative error of the mean distance, measured

    @classmethod
    def of(cls, points: np.ndarray, centres: np.ndarray, list_of: np.ndarray | None = None) -> InvertedLists:
        """Points [M, D] around centres [C, D]: in these lists, or each in the list of its nearest centre."""
        import faiss

        middle = points.mean(axis=0, dtype=np.float64).astype(np.float32)
        width = points.shape[1]
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(width), width, len(centres))
        index.quantizer.add(np.ascontiguousarray(centres - middle))
        index.is_trained = True
        from_middle = np.ascontiguousarray(points - middle, np.float32)
        list_of = index.quantizer.search(from_middle, 1)[1][:, 0] if list_of is None else list_of
        index.add_core(len(from_middle), faiss.swig_ptr(from_middle), None, faiss.swig_ptr(list_of))
        return cls(index, middle, centres, list_of)

    @classmethod
    def fit(
        cls, points: np.ndarray, k: int = 150, target_error: float = 0.005, seed: int = 7, *, sample: int = 128
    ) -> InvertedLists:
        """Cluster the points and choose the number of probes on a sample of them (each moved a little)."""
        import faiss

        rng = np.random.default_rng(seed)
        count = int(np.clip(np.sqrt(len(points)), 1, 4096))
        some = points[rng.permutation(len(points))[: 64 * count]]
        middle = some.mean(axis=0, dtype=np.float64).astype(np.float32)
        clusters = faiss.Kmeans(points.shape[1], count, niter=8, seed=seed, min_points_per_centroid=1)
        clusters.train(np.ascontiguousarray(some - middle, np.float32))
        lists = cls.of(points, clusters.centroids + middle)
        trial = points[rng.permutation(len(points))[:sample]]
        trial = (trial + rng.normal(0, 0.1 * points.std(axis=0), trial.shape)).astype(np.float32)
        lists._choose_probes(trial, min(k, len(points)), target_error)
        return lists

    @property
    def probes(self) -> int:
        """Lists that a query looks into."""
        return int(self.index.nprobe)

    @probes.setter
    def probes(self, number: int) -> None:
        self.index.nprobe = number

    def distances(self, queries: np.ndarray, k: int) -> np.ndarray:
        """Distances to (about) the k nearest points, ascending: float32 [Q, k]."""
        import faiss

        from_middle = np.ascontiguousarray(queries - self.middle, np.float32)
        squares, numbers = self.index.search(from_middle, k)
        short = numbers[:, -1] < 0  # the probed lists hold fewer than k points: look into all of them
        if short.any():
            every = faiss.SearchParametersIVF()
            every.nprobe = len(self.centres)
            squares[short], _ = self.index.search(from_middle[short], k, params=every)
        return np.sqrt(squares)

    def describe(self) -> str:
        return (
            f"{len(self.list_of):,} reference events in {len(self.centres):,} lists, {self.probes} probed: "
            f"recall {self.recall:.3f}, error of the mean distance {self.error:.2%}"
        )

    def facts(self) -> dict[str, float]:
        """What was measured when the lists were built."""
        return {"lists": len(self.centres), "probes": self.probes, "recall": self.recall, "error": self.error}

    def to_tensors(self) -> dict[str, np.ndarray]:
        """For storing; the points are stored once, beside them. List i is points order[offsets[i] : offsets[i + 1]]."""
        quality = np.array([self.probes, self.recall, self.error], np.float64)
        order = np.argsort(self.list_of, kind="stable")
        offsets = np.searchsorted(self.list_of[order], np.arange(len(self.centres) + 1))
        return {"centres": self.centres, "order": order, "offsets": offsets, "measured": quality}

    @classmethod
    def from_tensors(cls, tensors: dict[str, np.ndarray], points: np.ndarray) -> InvertedLists:
        list_of = np.empty(len(points), np.int64)
        list_of[tensors["order"]] = np.repeat(np.arange(len(tensors["centres"])), np.diff(tensors["offsets"]))
        lists = cls.of(points, tensors["centres"], list_of)
        probes, lists.recall, lists.error = tensors["measured"].tolist()
        lists.probes = int(probes)
        return lists

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
