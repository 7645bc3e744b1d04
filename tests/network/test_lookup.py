"""Looked-up rows and their gradients against torch's own indexing."""

from __future__ import annotations

import pytest
import torch

from ustad.network.lookup import _Rows, look_up, look_up_each


@pytest.mark.parametrize("shape", [(5, 3), (5, 4, 3)])
def test_gradients_of_looked_up_rows_are_those_of_indexing(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    table = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([[0, 4, 4], [2, 2, 2]])
    found = _Rows.apply(table[None], index.reshape(1, -1))[0].view(*index.shape, *shape[1:])  # type: ignore[no-untyped-call]
    weight = torch.randn(found.shape, dtype=torch.float64)
    (ours,) = torch.autograd.grad((found * weight).sum(), table)
    (wanted,) = torch.autograd.grad((table[index] * weight).sum(), table)
    torch.testing.assert_close(ours, wanted, rtol=1e-12, atol=1e-12)
    assert torch.equal(found, look_up(table, index))


def test_every_table_gets_the_gradient_of_its_own_rows() -> None:
    torch.manual_seed(1)
    tables = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    index = torch.randint(0, 4, (3, 7))
    found = _Rows.apply(tables, index)  # type: ignore[no-untyped-call]
    weight = torch.randn(found.shape, dtype=torch.float64)
    (ours,) = torch.autograd.grad((found * weight).sum(), tables)
    plain = look_up_each(tables, index)
    (wanted,) = torch.autograd.grad((plain * weight).sum(), tables)
    assert torch.equal(found, plain)
    torch.testing.assert_close(ours, wanted, rtol=1e-12, atol=1e-12)
