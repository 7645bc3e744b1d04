"""Exact nearest points with half-precision arithmetic: candidates from tensor cores, then distances in full precision.

In go reference points in groups of 64, and queries; out come the distances to the k nearest. Every coordinate is split
into two half-precision numbers, so that products on tensor cores are off by a known margin at most. The groups with the
smallest minima are searched in full precision. A query is proven when no other group can hold a nearer point, margin
included; the caller searches the few others by other means.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch
from torch import Tensor

#: Points that are first compared as one group.
GROUP = 64
#: The second half of a number is kept this many times as large, where half precision is finest.
LIFT = 2048.0
#: Groups that are searched beyond k, as a share of k, and at least so many.
SPARE, LEAST_SPARE = 8, 16
#: Bounds on what splitting and adding up 64 products is off by, relative to the lengths of both vectors, and on what
#: adding the squared length of a point is off by. About four times what rounding can do.
DOT_ERROR, NORM_ERROR = 2.0**-15, 2.0**-20
#: Coordinates of queries beyond this many times the largest of the points do not fit half precision.
FAR = 1000.0


@dataclass(frozen=True)
class Halves:
    """M' points (whole groups) in units of their largest coordinate, each in two halves; padding has infinite norm."""

    scale: float
    high: Tensor  # float16 [M', D]
    low: Tensor  # float16 [M', D], LIFT times as large
    norms: Tensor  # float32 [M'] squared lengths
    longest: float  # of all points

    @classmethod
    def of(cls, points: Tensor, padding: int) -> Halves:
        """Points [M', D], of which the last `padding` are none."""
        real = len(points) - padding
        scale = max(float(points[:real].abs().max()), 1e-30)
        unit = points / scale
        unit[real:] = 0.0
        norms = unit.square().sum(dim=1)
        longest = float(norms.max().sqrt())
        norms[real:] = torch.inf
        return cls(scale, *split_halves(unit), norms, longest)


def split_halves(values: Tensor) -> tuple[Tensor, Tensor]:
    high = values.to(torch.float16)
    return high, ((values - high.float()) * LIFT).to(torch.float16)


def fits(device: torch.device, width: int) -> bool:
    """Whether this search runs on a device, for points of so many coordinates."""
    powers = (16, 32, 64, 128)
    return device.type == "cuda" and width in powers and importlib.util.find_spec("triton") is not None


def find_nearest(block: Tensor, points: Tensor, halves: Halves, k: int) -> tuple[Tensor, Tensor]:
    """Distances of queries [B, D] to the k nearest points, ascending [B, k], and which queries are proven [B]."""
    groups = len(points) // GROUP
    n_candidates = min(groups, k + max(LEAST_SPARE, k // SPARE))
    unit = block / halves.scale
    minima = group_minima(*split_halves(unit), halves)  # [B, groups], less each query's own squared length
    lowest = minima.topk(n_candidates, largest=False, sorted=False)
    square = candidate_squares(block, points, lowest.indices)  # [B, n_candidates · 64]
    nearest = square.topk(k, largest=False).values  # ascending
    lengths = unit.square().sum(dim=1)
    margin = 2 * DOT_ERROR * lengths.sqrt() * halves.longest + NORM_ERROR * (halves.longest**2 + lengths)
    beyond = (lowest.values.amax(dim=1) + lengths - margin) * halves.scale**2 * (1 - 2.0**-20)
    proven = (nearest[:, -1] <= beyond) | (n_candidates == groups)
    return nearest.sqrt(), proven & (unit.abs().amax(dim=1) < FAR)


def group_minima(high: Tensor, low: Tensor, halves: Halves) -> Tensor:
    """The smallest squared distance of each query to each group, less the query's own squared length: [B, groups]."""
    if high.is_cuda:
        from ustad.network.inference.half_kernels import launch_minima

        return launch_minima(high, low, halves.high, halves.low, norms=halves.norms)
    first, second, others, rest = (part.float() for part in (high, low, halves.high, halves.low))
    dots = first @ others.t() + (first @ rest.t() + second @ others.t()) / LIFT
    return (halves.norms - 2 * dots).view(len(high), -1, GROUP).amin(dim=-1)


def candidate_squares(block: Tensor, points: Tensor, best: Tensor) -> Tensor:
    """Squared distances of each query to all points of its groups `best` [B, K], from differences: [B, K · 64]."""
    if block.is_cuda:
        from ustad.network.inference.half_kernels import launch_squares

        return launch_squares(block, points, best)
    candidates = points.view(-1, GROUP, points.shape[1])[best]  # [B, K, 64, D]
    return (candidates - block[:, None, None]).square().sum(dim=-1).flatten(1)
