"""T samples of what the network predicts, reduced to one line per event and term.

In go the predictions of T samples for B events and their true values, in network units; out come, for every term
of the schema, the mean prediction, the error, the loss L′, AU and EU: float32 [B] each, NaN where the truth is
missing. Everything here is fp32 or better, whatever the precision of the blocks was.

| term | error | L′ | AU | EU |
|---|---|---|---|---|
| number | \\|y − ŷ\\| | (y − ŷ)² / 2β | β, mean variance | variance over T |
| angle | \\|δ\\|, wrapped | δ² / 2β | β, mean of the two fields' | mean squared wrapped deviation |
| vector | root mean square | mean square / 2β | β, mean variance | mean variance over T |
| category | 1 − p(true) | −log mean softmax of noisy logits | mean σ² of the true class | entropy of the mean softmax |
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ustad.events.windows import Features
from ustad.network.heads import Predictions
from ustad.network.inference.counter import normal_noise
from ustad.schema import Field, Term


@dataclass
class TermResult:
    """One term of B events. `expected` is a number, radians or a category code; NaN for a vector."""

    expected: Tensor
    error: Tensor
    loss: Tensor
    au: Tensor
    eu: Tensor
    probabilities: Tensor | None = None  # category: mean noise-free softmax [B, C]
    vector: Tensor | None = None  # vector: mean prediction [B, size]


@dataclass(frozen=True)
class Layout:
    """Where each field's values stand in `Features` and `Predictions`."""

    terms: tuple[Term, ...]
    numbers: dict[str, int]
    categories: dict[str, int]
    vectors: dict[str, tuple[int, slice]]
    order: dict[str, int]  # field → column of `missing`
    aleatoric: bool
    draws: int  # of the noise on logits: as many as passes, or more where without dropout one pass stands for all

    @classmethod
    def of(cls, fields: tuple[Field, ...], terms: tuple[Term, ...], aleatoric: bool, draws: int = 1) -> Layout:
        by_kind = {k: [f for f in fields if f.kind == k] for k in ("number", "category", "vector")}
        ends, stop = {}, 0
        for i, field in enumerate(by_kind["vector"]):
            ends[field.name] = (i, slice(stop, stop + field.size))
            stop += field.size
        return cls(
            terms,
            {f.name: i for i, f in enumerate(by_kind["number"])},
            {f.name: i for i, f in enumerate(by_kind["category"])},
            ends,
            {f.name: i for i, f in enumerate(fields)},
            aleatoric,
            draws,
        )


def wrap_angle(angle: Tensor) -> Tensor:
    """The same angle in [−π, π)."""
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi


def reduce_term(
    term: Term, layout: Layout, predictions: Predictions, truth: Features, *, key: Tensor, seed: int
) -> TermResult:
    """One term of predictions [T, B, …] against the true features [B, …]."""
    if term.kind == "category":
        result = _category(term.fields[0], layout, predictions, truth, key=key, seed=seed)
    elif term.kind == "vector":
        result = _vector(term.fields[0], layout, predictions, truth)
    elif term.kind == "angle":
        result = _angle(term.fields, layout, predictions, truth)
    else:
        result = _number(term.fields[0], layout, predictions, truth)
    missing = functools.reduce(torch.logical_or, (truth.missing[:, layout.order[name]] for name in term.fields))
    for name in ("error", "loss", "au") if term.kind == "category" else ("error", "loss"):
        setattr(result, name, getattr(result, name).masked_fill(missing, math.nan))
    return result


def _number(name: str, layout: Layout, predictions: Predictions, truth: Features) -> TermResult:
    column = layout.numbers[name]
    samples = predictions.mean[..., column]  # [T, B]
    expected, au, beta = samples.mean(0), *_variance(predictions.log_variance[..., column], layout)
    error = truth.numbers[:, column] - expected
    return TermResult(expected, error.abs(), error.square() / (2 * beta), au, samples.var(0, correction=0))


def _angle(names: tuple[str, ...], layout: Layout, predictions: Predictions, truth: Features) -> TermResult:
    x, y = (layout.numbers[name] for name in names)
    angles = torch.atan2(predictions.mean[..., y], predictions.mean[..., x])  # [T, B]
    expected = torch.atan2(predictions.mean[..., y].mean(0), predictions.mean[..., x].mean(0))
    au, beta = _variance(torch.cat([predictions.log_variance[..., x], predictions.log_variance[..., y]]), layout)
    delta = wrap_angle(torch.atan2(truth.numbers[:, y], truth.numbers[:, x]) - expected)
    spread = wrap_angle(angles - expected).square().mean(0)
    return TermResult(expected, delta.abs(), delta.square() / (2 * beta), au, spread)


def _vector(name: str, layout: Layout, predictions: Predictions, truth: Features) -> TermResult:
    position, columns = layout.vectors[name]
    samples = predictions.vectors[position]  # [T, B, size]
    log_variance = predictions.vector_log_variance[position][..., 0] if layout.aleatoric else samples[..., 0]
    expected, au, beta = samples.mean(0), *_variance(log_variance, layout)
    square = (truth.vectors[:, columns] - expected).square().mean(-1)
    nothing = torch.full_like(square, torch.nan)
    spread = samples.var(0, correction=0).mean(-1)
    return TermResult(nothing, square.sqrt(), square / (2 * beta), au, spread, vector=expected)


def _category(
    name: str, layout: Layout, predictions: Predictions, truth: Features, *, key: Tensor, seed: int
) -> TermResult:
    column = layout.categories[name]
    logits = predictions.logits[column]  # [T, B, C]
    T, B, C = logits.shape
    target = truth.categories[:, column]  # [B]
    plain = torch.softmax(logits, -1).mean(0)
    likelihood = plain.gather(1, target[:, None])[:, 0]
    entropy = -torch.xlogy(plain, plain).sum(-1)
    if layout.aleatoric:
        sigma = predictions.log_sigma[column].exp()
        au = sigma.square().gather(2, target.view(1, B, 1).expand(T, B, 1))[..., 0].mean(0)
        T = max(T, layout.draws)
        noise = normal_noise(key, seed, T, layout.order[name], classes=C).to(logits.dtype)
        logits = logits + sigma * noise
    else:
        au = torch.zeros_like(likelihood)
    log_chance = torch.log_softmax(logits, -1).gather(2, target.view(1, B, 1).expand(T, B, 1))[..., 0]  # [T, B]
    loss = math.log(T) - torch.logsumexp(log_chance, 0)
    return TermResult(plain.argmax(-1).to(plain.dtype), 1 - likelihood, loss, au, entropy, probabilities=plain)


def _variance(log_variance: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """AU as reported and the β that divides the squared error; without AU they are 0 and 1 (half the square)."""
    variance = log_variance.exp().mean(0)
    return (variance, variance) if layout.aleatoric else (torch.zeros_like(variance), torch.ones_like(variance))
