"""The decoder: what the network says about each field of an event, with its own noise.

In goes the event's vector [..., D]; out come `Predictions`: mean and log-variance of numbers and vectors, mean
logits and log-σ of categories. Always in fp32, whatever the blocks run in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ustad.schema import Field

#: Bounds of every log-variance: beyond them a loss explodes (below) or learns nothing (above). Departure from the
#: paper, where they are free.
LOG_VARIANCE = (-9.0, 4.0)
#: The logit of `unknown`, which is an input but never a target: a probability of exactly 0 beside any known class.
#: Departure from the paper, which has no such class.
IMPOSSIBLE = -1e9


@dataclass
class Predictions:
    """What is expected of some events; leading dimensions are the caller's."""

    mean: Tensor  # [..., Fn] number fields
    log_variance: Tensor  # [..., Fn] within LOG_VARIANCE; zeros without aleatoric uncertainty
    logits: tuple[Tensor, ...]  # per category field [..., C]; class 0 (unknown) is IMPOSSIBLE
    log_sigma: tuple[Tensor, ...]  # per category field [..., C]; empty without aleatoric uncertainty
    vectors: tuple[Tensor, ...]  # per vector field [..., size]
    vector_log_variance: tuple[Tensor, ...]  # per vector field [..., 1]; zeros without aleatoric uncertainty

    def map(self, function: Callable[[Tensor], Tensor]) -> Predictions:
        """The same function over every part, for example to select or reshape leading dimensions."""
        return Predictions(
            function(self.mean),
            function(self.log_variance),
            tuple(map(function, self.logits)),
            tuple(map(function, self.log_sigma)),
            tuple(map(function, self.vectors)),
            tuple(map(function, self.vector_log_variance)),
        )


def clamp_smoothly(raw: Tensor, low: float, high: float) -> Tensor:
    """A smooth clamp to [low, high] that leaves the middle as it is and never loses its gradient."""
    above = low + nn.functional.softplus(raw - low)
    return high - nn.functional.softplus(high - above)


class Heads(nn.Module):
    """One linear head per field (side by side in one matrix).

    Shape: [..., D] -> Predictions with leading dimensions [...].
    """

    def __init__(self, fields: Sequence[Field], width: int, aleatoric: bool) -> None:
        super().__init__()
        self.aleatoric = aleatoric
        n_numbers = sum(f.kind == "number" for f in fields)
        self.classes = [f.size for f in fields if f.kind == "category"]
        vectors = [f.size for f in fields if f.kind == "vector"]
        class_outputs = [size - 1 for size in self.classes]  # unknown has no output
        self.means = [n_numbers, *class_outputs, *vectors]
        self.spreads = [n_numbers, *class_outputs, *([1] * len(vectors))] if aleatoric else []
        self.linear = nn.Linear(width, sum(self.means) + sum(self.spreads))

    def forward(self, hidden: Tensor) -> Predictions:
        parts = torch.split(self.linear(hidden), self.means + self.spreads, dim=-1)
        means, spreads = parts[: len(self.means)], parts[len(self.means) :]
        n_classes = len(self.classes)
        logits = tuple(nn.functional.pad(u, (1, 0), value=IMPOSSIBLE) for u in means[1 : 1 + n_classes])
        vectors = means[1 + n_classes :]
        if not self.aleatoric:
            blank = tuple(torch.zeros_like(v[..., :1]) for v in vectors)
            return Predictions(means[0], torch.zeros_like(means[0]), logits, (), vectors, blank)
        # log σ = ½ log σ²: half of the same bounds
        low, high = LOG_VARIANCE[0] / 2, LOG_VARIANCE[1] / 2
        log_sigma = tuple(nn.functional.pad(clamp_smoothly(s, low, high), (1, 0)) for s in spreads[1 : 1 + n_classes])
        vector_spread = tuple(clamp_smoothly(s, *LOG_VARIANCE) for s in spreads[1 + n_classes :])
        return Predictions(
            means[0], clamp_smoothly(spreads[0], *LOG_VARIANCE), logits, log_sigma, vectors, vector_spread
        )
