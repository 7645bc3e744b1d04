"""The two loops of the half-precision search as Triton kernels, for CUDA. `half_search` has both in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # it comes with torch where there is CUDA; elsewhere nobody launches these
    triton = tl = None

_QUERIES, _GROUP, _GROUPS = 128, 64, 32


def _kernel(function: Callable[..., None]) -> Any:
    return function if triton is None else triton.jit(function)


@_kernel
def _minima(  # type: ignore[no-untyped-def]
    query_high, query_low, high, low, norms, out, queries, groups, D: tl.constexpr, Q: tl.constexpr, G: tl.constexpr,
    N: tl.constexpr,
):  # fmt: skip  # pragma: no cover - compiled
    """One block of queries against N groups; out [groups, queries]."""
    row = tl.program_id(0) * Q + tl.arange(0, Q)
    width, member = tl.arange(0, D), tl.arange(0, G)
    real = row < queries
    at = row[:, None].to(tl.int64) * D + width[None, :]
    first = tl.load(query_high + at, mask=real[:, None], other=0.0)
    second = tl.load(query_low + at, mask=real[:, None], other=0.0)
    start = tl.program_id(1) * N
    for group in range(start, min(start + N, groups)):
        column = group * G + member
        place = column[None, :].to(tl.int64) * D + width[:, None]  # [D, G]
        other = tl.load(high + place)
        small = tl.dot(first, tl.load(low + place))
        small = tl.dot(second, other, small)
        dots = tl.dot(first, other) + small * (1.0 / 2048.0)
        square = tl.load(norms + column)[None, :] - 2.0 * dots
        tl.store(out + tl.cast(group, tl.int64) * queries + row, tl.min(square, axis=1), mask=real)


@_kernel
def _squares(query, points, best, out, K, D: tl.constexpr, G: tl.constexpr):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """One query against all points of its K groups; out [queries, K · G]."""
    row = tl.program_id(0).to(tl.int64)
    width, member = tl.arange(0, D), tl.arange(0, G)
    centre = tl.load(query + row * D + width)
    for k in range(K):
        group = tl.load(best + row * K + k)
        point = tl.load(points + (group * G + member[:, None]) * D + width[None, :])  # [G, D]
        apart = point - centre[None, :]
        tl.store(out + (row * K + k) * G + member, tl.sum(apart * apart, axis=1))


def launch_minima(query_high: Tensor, query_low: Tensor, high: Tensor, low: Tensor, *, norms: Tensor) -> Tensor:
    queries, width = query_high.shape
    groups = len(norms) // _GROUP
    out = torch.empty(groups, queries, device=norms.device)
    grid = (triton.cdiv(queries, _QUERIES), triton.cdiv(groups, _GROUPS))
    _minima[grid](
        query_high.contiguous(), query_low.contiguous(), high, low, norms, out, queries, groups, width, _QUERIES,
        _GROUP, _GROUPS, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out.t().contiguous()


def launch_squares(block: Tensor, points: Tensor, best: Tensor) -> Tensor:
    out = torch.empty(len(block), best.shape[1] * _GROUP, device=block.device)
    _squares[(len(block),)](
        block.contiguous(), points, best.contiguous(), out, best.shape[1], block.shape[1], _GROUP, num_warps=4
    )
    return out
