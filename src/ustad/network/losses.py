"""The paper's losses: Gaussian likelihood through log-variance, categorical likelihood under noisy logits.

In go `Predictions` and the true fields of the same events; out comes one number to minimise and one per field.
A target that is missing (or a category that is `unknown`) has no loss term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ustad.config import TrainingConfig
from ustad.events.windows import Features
from ustad.network.heads import Predictions
from ustad.schema import Field

#: Numbers of noise (samples × events × classes) that are drawn at once, on a CPU and on a GPU.
DRAWS, DRAWS_CUDA = 1 << 25, 1 << 28


@dataclass
class Loss:
    """`total` is the mean over masked events of the sum over fields; `fields` [F] are means over present targets."""

    total: Tensor
    fields: Tensor


def gaussian_nll(mean: Tensor, log_variance: Tensor, target: Tensor) -> Tensor:
    """½ exp(-r) (y - ŷ)² + ½ r with r = log σ²; elementwise. With r = 0 it is half the squared error."""
    return 0.5 * torch.exp(-log_variance) * (target - mean) ** 2 + 0.5 * log_variance


def categorical_nll(
    logits: Tensor, log_sigma: Tensor | None, target: Tensor, noise: Tensor | tuple[int, torch.Generator | None]
) -> Tensor:
    """-log of the mean over T of softmax(u + σ ε_t) at the true class: [..., C], target [...] -> [...].

    `noise` is ε itself [T, ..., C], or (T, generator) to draw it. Without σ it is plain cross-entropy. The paper
    prints the loss without its minus sign. Both sums run in log space, so nothing over- or underflows. Departure from
    the paper, which samples the parameters for each t too: u and σ are of one pass.
    """
    if log_sigma is None:
        return -logits.log_softmax(dim=-1).gather(-1, target[..., None])[..., 0]
    if not isinstance(noise, Tensor):
        most = DRAWS_CUDA if logits.is_cuda else DRAWS
        if noise[1] is None and noise[0] * logits.numel() > most and logits.dim() == 2:
            return _in_parts(logits, log_sigma, target, noise[0], most=most)
        noise = _draw(logits, *noise)
    return _noisy_nll(logits, log_sigma, target, noise)


def _noisy_nll(logits: Tensor, log_sigma: Tensor, target: Tensor, noise: Tensor) -> Tensor:
    noisy = logits + torch.exp(log_sigma) * noise  # [T, ..., C]
    index = target[None, ..., None].expand(len(noise), *target.shape, 1)
    log_p = noisy.gather(-1, index)[..., 0] - noisy.logsumexp(dim=-1)  # [T, ...]
    return math.log(len(noise)) - log_p.logsumexp(dim=0)


def _in_parts(logits: Tensor, log_sigma: Tensor, target: Tensor, samples: int, *, most: int) -> Tensor:
    """The same for many classes: a few rows at a time, their noise drawn again for the gradient, not kept."""
    rows = max(1, most // (samples * logits.shape[-1]))
    parts = zip(logits.split(rows), log_sigma.split(rows), target.split(rows), strict=True)
    return torch.cat([checkpoint(_drawn_nll, *part, samples, use_reentrant=False) for part in parts])


def _drawn_nll(logits: Tensor, log_sigma: Tensor, target: Tensor, samples: int) -> Tensor:
    return _noisy_nll(logits, log_sigma, target, _draw(logits, samples, None))


def _draw(like: Tensor, samples: int, generator: torch.Generator | None) -> Tensor:
    """Standard normal noise [T, ..., C]; without a generator in a form that can be compiled for any shape."""
    if generator is None:
        return torch.randn_like(like.expand(samples, *like.shape), memory_format=torch.contiguous_format)
    return torch.randn((samples, *like.shape), dtype=like.dtype, device=like.device, generator=generator)


def field_losses(
    predictions: Predictions,
    features: Features,
    fields: Sequence[Field],
    config: TrainingConfig,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The loss of every field of every event, 0 where its target is missing: [...] events -> [..., F].

    λ is not applied yet. Departure from the paper: a vector counts as one number, by the mean over its length.
    """
    numbers = gaussian_nll(predictions.mean, predictions.log_variance, features.numbers)  # [..., Fn]
    columns = list(numbers.unbind(dim=-1))
    for i, logits in enumerate(predictions.logits):
        log_sigma = predictions.log_sigma[i] if predictions.log_sigma else None
        noise = (config.noise_samples, generator)
        columns.append(categorical_nll(logits, log_sigma, features.categories[..., i], noise))
    sizes = [f.size for f in fields if f.kind == "vector"]
    targets = torch.split(features.vectors, sizes, dim=-1) if sizes else ()
    for vector, spread, target in zip(predictions.vectors, predictions.vector_log_variance, targets, strict=True):
        columns.append(gaussian_nll(vector, spread, target).mean(dim=-1))
    return torch.stack(columns, dim=-1).masked_fill(features.missing, 0.0)


def weigh(losses: Tensor, fields: Sequence[Field], config: TrainingConfig) -> Tensor:
    """An event's loss: its fields added up, categories with the weight λ. [..., F] -> [...]."""
    first = sum(f.kind == "number" for f in fields)
    last = first + sum(f.kind == "category" for f in fields)
    return losses.sum(dim=-1) + (config.category_weight - 1.0) * losses[..., first:last].sum(dim=-1)


def masked_loss(
    predictions: Predictions,
    features: Features,
    masked: Tensor,
    fields: Sequence[Field],
    *,
    config: TrainingConfig,
    generator: torch.Generator | None = None,
) -> Loss:
    """The loss on masked events only; predictions, features and masked share their leading dimensions."""
    losses = field_losses(predictions, features, fields, config, generator=generator)
    return Loss(
        masked_mean(weigh(losses, fields, config), masked),
        field_means(losses, features.missing, masked),
    )


def masked_mean(values: Tensor, masked: Tensor) -> Tensor:
    """The mean of values [...] where masked [...]; 0 where nothing is."""
    return values.masked_fill(~masked, 0.0).sum() / masked.sum().clamp(min=1)


def field_means(losses: Tensor, missing: Tensor, masked: Tensor) -> Tensor:
    """Means per field [F] over masked events whose target is present, without gradient."""
    counts = (masked[..., None] & ~missing).flatten(0, -2)
    return (losses.detach().flatten(0, -2) * counts).sum(dim=0) / counts.sum(dim=0).clamp(min=1)
