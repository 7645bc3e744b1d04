"""Calibration: tail shares and p-values against a normal reference period, and conformal intervals.

The reference is what the calibration agents did in the validation week: their losses, errors, uncertainties and
neighbour distances. Out of it come the distribution of every part of the score, of the final score itself, and of
each entity's maximum over the span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ustad.distribution import FOLDS, MOST_VALUES, Distribution, Tail, log10_any, spread_of

_MATRICES = ("error", "loss", "au", "eu")


@dataclass(frozen=True)
class Parts:
    """What scores are made of, for n events: one column per scored term, and the neighbour distance."""

    names: tuple[str, ...]
    error: np.ndarray  # float32 [n, K], NaN where the truth is missing
    loss: np.ndarray
    au: np.ndarray
    eu: np.ndarray
    knn: np.ndarray  # float32 [n], NaN without neighbours

    @classmethod
    def of(cls, names: tuple[str, ...], samples: Any, knn: np.ndarray) -> Parts:
        """From samples of the terms, which give a `matrix` of each."""
        error, loss, au, eu = (samples.matrix(what, names) for what in _MATRICES)
        return cls(names, error, loss, au, eu, knn)

    def __len__(self) -> int:
        return len(self.knn)

    def take(self, rows: np.ndarray) -> Parts:
        return Parts(self.names, *(getattr(self, m)[rows] for m in (*_MATRICES, "knn")))

    @property
    def columns(self) -> np.ndarray:
        """The columns whose highest percentile is the score, most unusual largest: [n, K + 1]."""
        return np.concatenate([self.loss, self.knn[:, None]], axis=1)


def apply_tails(tails: list[Tail], columns: np.ndarray) -> np.ndarray:
    """log₁₀ tail shares [n, columns], one distribution per column."""
    return np.stack([t.log10_tail(c) for t, c in zip(tails, columns.T, strict=True)], axis=1)


def highest(tails: np.ndarray) -> np.ndarray:
    """−min over the columns, 0 where every column is missing."""
    return np.max(np.where(np.isnan(tails), 0.0, -tails), axis=1, initial=0.0)


@dataclass(frozen=True)
class Calibration:
    """The reference period: what its events are made of, codes of their agents (`entity`), and its span in `days`."""

    parts: Parts
    entity: np.ndarray  # int32 [n]
    days: int
    n_events: int = field(default=0)  # events it was made of, before thinning

    @classmethod
    def fit(cls, parts: Parts, entity: np.ndarray, days: int) -> Calibration:
        """From the calibration agents' events. Of very many events whole agents are left out."""
        if len(parts) > MOST_VALUES:
            agents = np.random.default_rng(0).permutation(np.unique(entity))
            sizes = np.bincount(entity)[agents]
            sample = agents[: max(1, int(np.searchsorted(np.cumsum(sizes), MOST_VALUES)))]
            rows = np.flatnonzero(np.isin(entity, sample))
            return cls(parts.take(rows), entity[rows], days, len(parts))
        return cls(parts, entity, days, len(parts))

    # ------------------------------------------------------------------------------- distributions
    @cached_property
    def tails(self) -> list[Tail]:
        """One distribution per column of the paper's score: the losses of the terms, then the distance."""
        return [Distribution.fit(c) for c in self.parts.columns.T]

    @cached_property
    def scores(self) -> np.ndarray:
        """Calibrated scores of the reference events, each by what people of the other groups did.

        Among the distributions that it is part of itself, an event looks less unusual than the same event of a new
        person would, and the more so the fewer people there are: p-values came out too small.
        """
        columns = self.parts.columns
        people, person = np.unique(self.entity, return_inverse=True)
        group = person % FOLDS
        scores = np.zeros(len(columns))
        for i in range(min(FOLDS, len(people))):
            mine = group == i
            others = [Distribution.fit(c) for c in columns[~mine].T] if len(people) > 1 else self.tails
            scores[mine] = highest(apply_tails(list(others), columns[mine]))
        return scores

    @cached_property
    def score_tail(self) -> Distribution:
        return Distribution.fit(self.scores)

    @cached_property
    def uncertainty_tails(self) -> list[Tail]:
        """One distribution per term of its total uncertainty AU + EU."""
        return [Distribution.fit(c) for c in (self.parts.au + self.parts.eu).T]

    @cached_property
    def normal(self) -> np.ndarray:
        """log₁₀ p of the reference events themselves."""
        return self.score_tail.log10_tail(self.scores)

    def log10_p(self, scores: np.ndarray) -> np.ndarray:
        """How often a normal event scores at least this: of the final score itself, not of its parts."""
        return self.score_tail.log10_tail(scores)

    def agent_log10_p(self, smallest: np.ndarray, days: float, normal: np.ndarray | None = None) -> np.ndarray:
        """log₁₀ p of entities over a span of `days`, from the block maxima of the reference agents.

        `smallest` is the log₁₀ p of each entity's most unusual event. One block is a reference agent over the
        reference span; a span of another length is that many blocks, each of another reference agent:
        1 − (1 − p)^(days / block days). That is exact for equal spans and on the safe side for longer ones.
        """
        blocks, _ = entity_maxima(-(self.normal if normal is None else normal), self.entity)
        return log10_any(Distribution.fit(blocks).log10_tail(-smallest), max(days / self.days, 1e-9))

    # ---------------------------------------------------------------------------------- intervals
    def radius(self, coverage: float, categories: tuple[bool, ...]) -> np.ndarray:
        """Split-conformal radius of each term: spreads for numbers, 1 − p for categories. Infinite if too few."""
        scale = np.where(categories, 1.0, spread_of(self.parts.au, self.parts.eu))
        residual = np.sort(self.parts.error / scale, axis=0)  # NaN sorts last
        n_finite = np.isfinite(residual).sum(axis=0)
        rank = np.ceil((n_finite + 1) * coverage).astype(int)
        radius = residual[np.clip(rank - 1, 0, len(residual) - 1), np.arange(residual.shape[1])]
        return np.where(rank <= n_finite, radius, np.inf)

    # ------------------------------------------------------------------------------------ storing
    def to_tensors(self, name: str = "calibration") -> dict[str, np.ndarray]:
        matrices = {f"{name}.{m}": getattr(self.parts, m) for m in (*_MATRICES, "knn")}
        span = np.array([self.days, self.n_events], np.int64)
        return {**matrices, f"{name}.entity": self.entity, f"{name}.span": span}

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, np.ndarray], terms: tuple[str, ...], name: str = "calibration"
    ) -> Calibration:
        parts = Parts(terms, *(tensors[f"{name}.{m}"] for m in (*_MATRICES, "knn")))
        days, n_events = tensors[f"{name}.span"].tolist()
        return cls(parts, tensors[f"{name}.entity"], int(days), int(n_events))


def entity_maxima(scores: np.ndarray, entity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Highest score and number of events of each entity, in the order of their codes."""
    order = np.argsort(entity, kind="stable")
    _, first, counts = np.unique(entity[order], return_index=True, return_counts=True)
    return np.maximum.reduceat(scores[order], first) if len(first) else np.zeros(0), counts
