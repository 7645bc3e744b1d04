"""Compiling where it pays: the Transformer blocks, which do nearly all of the arithmetic.

A compiled block serves every block of its level and every window length, so compiling takes less than a minute
once, not for each shape of a whole step.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch
from torch import nn

from ustad.network.dual_transformer import DualTransformer


class CompiledBlocks(AbstractContextManager[None]):
    """While entered, the blocks of a network run compiled; outside (validation, scoring) they are as they were."""

    def __init__(self, network: DualTransformer, backend: str | Callable[..., Any] = "inductor") -> None:
        parts = [(block, "forward") for block in (*network.feature_blocks[:-1], *network.event_blocks[:-1])]
        parts += [(network.feature_blocks[-1], "total"), (network.event_blocks[-1], "where")]
        self.methods: list[tuple[nn.Module, str, Callable[..., torch.Tensor]]] = [
            (block, name, torch.compile(getattr(block, name), dynamic=True, backend=backend)) for block, name in parts
        ]

    def __enter__(self) -> None:
        for block, name, method in self.methods:
            block.__dict__[name] = method

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for block, name, _ in self.methods:
            del block.__dict__[name]
