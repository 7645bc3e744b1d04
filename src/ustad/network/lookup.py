"""Rows of a table by their number, with gradients that suit a GPU.

There torch adds up the gradients of looked-up rows by sorting their numbers, which takes a quarter of a training step.
Here it is one product with a matrix of ones and zeros: as exact, and the same in every run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """table[index]: table [n, …], index [*] -> [*, …]. For tables of few rows, or few looked up."""
    if not table.requires_grad:
        return table[index]
    if not table.is_cuda:
        return nn.functional.embedding(index, table) if table.dim() == 2 else table[index]
    return _Rows.apply(table[None], index.reshape(1, -1))[0].view(*index.shape, *table.shape[1:])


def look_up_each(tables: Tensor, index: Tensor) -> Tensor:
    """One table for each of B: tables [B, n, D], index [B, m] -> [B, m, D]."""
    if not tables.is_cuda or not tables.requires_grad:
        return tables[torch.arange(len(tables), device=tables.device)[:, None], index]
    return _Rows.apply(tables, index)


class _Rows(torch.autograd.Function):
    """tables [B, n, …], index [B, m] -> [B, m, …]."""

    @staticmethod
    def forward(context: Any, tables: Tensor, index: Tensor) -> Tensor:
        context.save_for_backward(index)
        context.shape = tables.shape
        return tables[torch.arange(len(tables), device=tables.device)[:, None], index]

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = context.saved_tensors
        rows = torch.arange(context.shape[1], device=grad.device)
        one_hot = (rows[:, None] == index[:, None]).to(grad.dtype)  # [B, n, m]
        return (one_hot @ grad.reshape(*index.shape, -1)).view(context.shape), None
