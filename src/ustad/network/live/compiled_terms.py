"""What `sampled_terms.reduce_term` makes of T samples, for one event on a CPU: compiled loops, not many small steps.

In go the raw outputs of the heads for T samples of one event, float32 [T, outputs], and its true values; out comes one
line per term: expected, error, loss L′, AU and EU (the table of `terms` says what they are), equal to float rounding
(a test compares them).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numba
import numpy as np
import torch
from torch import Tensor

from ustad.network.dual_transformer import DualTransformer
from ustad.network.heads import LOG_VARIANCE
from ustad.network.inference.counter import noise_starts
from ustad.network.inference.inference_kernels import normal_at
from ustad.network.inference.sampled_terms import Layout
from ustad.schema import Term

_LOW, _HIGH = LOG_VARIANCE
# No `fastmath`: NaN marks what is missing.
_compile = numba.njit(cache=True, nogil=True, error_model="numpy")


class CompiledTerms:
    """The terms of one network's events, one event at a time."""

    def __init__(self, network: DualTransformer, layout: Layout, seed: int) -> None:
        heads = network.heads
        self._weight = heads.linear.weight.detach().t().contiguous()
        self._bias = heads.linear.bias.detach()
        starts = [0, *itertools.accumulate([*heads.means, *heads.spreads])]
        self._means, self._spreads = starts[: len(heads.means)], starts[len(heads.means) : -1]
        self._sizes = heads.means
        self.layout, self.seed = layout, seed

    def __call__(self, hidden: Tensor, fields: Sequence[np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """hidden [T, D]; numbers, categories, vectors, missing and key of the event, [1, …].

        Returns float32 [terms, 5] and the mean prediction of every vector.
        """
        raw = torch.addmm(self._bias, hidden, self._weight).numpy()
        numbers, categories, values, missing, key = fields
        start = noise_starts(key, self.seed)[0]
        lines = np.empty((len(self.layout.terms), 5), np.float32)
        vectors: dict[str, np.ndarray] = {}
        for line, term in zip(lines, self.layout.terms, strict=True):
            if term.kind == "category":
                self._category(raw, term, categories[0], start, line)
            elif term.kind == "vector":
                vectors[term.name] = self._vector(raw, term, values[0], line)
            elif term.kind == "angle":
                x, y = (self.layout.numbers[name] for name in term.fields)
                _angle(raw, x, y, self._spread(0), numbers[0, x], numbers[0, y], line)
            else:
                column = self.layout.numbers[term.fields[0]]
                _number(raw, column, self._spread(0), numbers[0, column], line)
            if any(missing[0, self.layout.order[name]] for name in term.fields):
                line[1 : 4 if term.kind == "category" else 3] = math.nan
        return lines, vectors

    def _spread(self, part: int) -> int:
        """The first column of a part's spreads, −1 where noise is not modelled."""
        return self._spreads[part] if self._spreads else -1

    def _category(self, raw: np.ndarray, term: Term, codes: np.ndarray, start: np.uint64, line: np.ndarray) -> None:
        part = 1 + self.layout.categories[term.fields[0]]
        code = codes[part - 1]
        field = self.layout.order[term.fields[0]]
        first, spread = self._means[part], self._spread(part)
        draws = max(len(raw), self.layout.draws) if spread >= 0 else len(raw)
        _category(raw, first, self._sizes[part], spread, draws, code, start, field, line)

    def _vector(self, raw: np.ndarray, term: Term, values: np.ndarray, line: np.ndarray) -> np.ndarray:
        position, columns = self.layout.vectors[term.fields[0]]
        part = 1 + len(self.layout.categories) + position
        expected = np.empty(self._sizes[part], np.float32)
        _vector(raw, self._means[part], self._spread(part), values[columns], expected, line)
        return expected


@_compile
def _bound(raw: float, low: float, high: float) -> float:
    """As `heads.clamp_smoothly`."""
    above_low = low + _softplus(raw - low)
    return high - _softplus(high - above_low)


@_compile
def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@_compile
def _noise(raw: np.ndarray, column: int) -> float:
    """Mean variance of a column of log-variances."""
    total = 0.0
    for t in range(raw.shape[0]):
        total += math.exp(_bound(raw[t, column], _LOW, _HIGH))
    return total / raw.shape[0]


@_compile
def _moments(raw: np.ndarray, column: int) -> tuple[float, float]:
    """Mean and variance of a column."""
    mean, square = 0.0, 0.0
    for t in range(raw.shape[0]):
        mean += raw[t, column]
    mean /= raw.shape[0]
    for t in range(raw.shape[0]):
        square += (raw[t, column] - mean) ** 2
    return mean, square / raw.shape[0]


@_compile
def _fill(line: np.ndarray, expected: float, error: float, loss: float, au: float, eu: float) -> None:
    line[0], line[1], line[2], line[3], line[4] = expected, error, loss, au, eu


@_compile
def _number(raw: np.ndarray, column: int, spread: int, truth: float, line: np.ndarray) -> None:
    mean, variance = _moments(raw, column)
    au = _noise(raw, spread + column) if spread >= 0 else 0.0
    error = abs(truth - mean)
    _fill(line, mean, error, error * error / (2 * (au if spread >= 0 else 1.0)), au, variance)


@_compile
def _wrap(angle: float) -> float:
    return (angle + math.pi) % (2 * math.pi) - math.pi


@_compile
def _angle(raw: np.ndarray, x: int, y: int, spread: int, truth_x: float, truth_y: float, line: np.ndarray) -> None:
    count = raw.shape[0]
    angles = np.empty(count)
    sine, cosine = 0.0, 0.0
    for t in range(count):
        angles[t] = math.atan2(raw[t, y], raw[t, x])
        sine += raw[t, y]
        cosine += raw[t, x]
    expected = math.atan2(sine / count, cosine / count)
    square = 0.0
    for t in range(count):
        square += _wrap(angles[t] - expected) ** 2
    au = (_noise(raw, spread + x) + _noise(raw, spread + y)) / 2 if spread >= 0 else 0.0
    error = abs(_wrap(math.atan2(truth_y, truth_x) - expected))
    _fill(line, expected, error, error * error / (2 * (au if spread >= 0 else 1.0)), au, square / count)


@_compile
def _vector(
    raw: np.ndarray, first: int, spread: int, truth: np.ndarray, expected: np.ndarray, line: np.ndarray
) -> None:
    square, variance = 0.0, 0.0
    for i in range(len(expected)):
        mean, around = _moments(raw, first + i)
        expected[i] = mean
        variance += around
        square += (truth[i] - mean) ** 2
    square, variance = square / len(expected), variance / len(expected)
    au = _noise(raw, spread) if spread >= 0 else 0.0
    _fill(line, math.nan, math.sqrt(square), square / (2 * (au if spread >= 0 else 1.0)), au, variance)


@_compile
def _category(
    raw: np.ndarray,
    first: int,
    classes: int,
    spread: int,
    draws: int,
    target: int,
    start: np.uint64,
    field: int,
    line: np.ndarray,
) -> None:
    """So many known `classes` from column `first` on; class 0, unknown, has no output, so class c stands at c − 1. One
    pass stands for all `draws` of the noise; several have a draw each."""
    share, sigma, logits, target_logs = np.zeros(classes), np.ones(classes), np.empty(classes), np.empty(draws)
    if classes == 0:
        _fill(line, 0.0, math.nan, math.nan, math.nan, 0.0)
        return
    au = 0.0
    for t in range(draws):
        row = t if raw.shape[0] > 1 else 0
        for c in range(classes):
            logits[c] = raw[row, first + c]
        total = _log_sum(logits)
        for c in range(classes):
            share[c] += math.exp(logits[c] - total) / draws
        if spread >= 0:
            for c in range(classes):
                sigma[c] = math.exp(_bound(raw[row, spread + c], _LOW / 2, _HIGH / 2))
                logits[c] += sigma[c] * normal_at(start, t, field, c + 1)
            total = _log_sum(logits)
            au += sigma[target - 1] ** 2 / draws
        target_logs[t] = logits[target - 1] - total
    entropy, best = 0.0, 0
    for c in range(classes):
        if share[c] > 0:
            entropy -= share[c] * math.log(share[c])
        if share[c] > share[best]:
            best = c
    _fill(line, best + 1.0, 1 - share[target - 1], math.log(draws) - _log_sum(target_logs), au, entropy)


@_compile
def _log_sum(logits: np.ndarray) -> float:
    """log Σ exp, without overflow."""
    top = logits.max()
    total = 0.0
    for value in logits:
        total += math.exp(value - top)
    return top + math.log(total)
