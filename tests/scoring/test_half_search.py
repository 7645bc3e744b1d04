"""Neighbours through half precision are the neighbours: against double precision, near ties and outliers included."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.network.inference.half_search import find_nearest
from ustad.network.inference.neighbours import SearchPoints, nearest_distances


def truth(points: torch.Tensor, queries: torch.Tensor, k: int) -> np.ndarray:
    apart = (queries.double()[:, None] - points.double()[None]).square().sum(-1).sqrt()
    return np.sort(apart.numpy(), axis=1)[:, :k]


def search(points: torch.Tensor, queries: torch.Tensor, k: int) -> np.ndarray:
    return nearest_distances(SearchPoints.of(points.numpy(), torch.device("cpu"), halves=True), queries.numpy(), k)


def prove(points: torch.Tensor, queries: torch.Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances by half precision alone, and which of them are proven."""
    prepared = SearchPoints.of(points.numpy(), torch.device("cpu"), halves=True)
    assert prepared.halves is not None
    found, proven = find_nearest(queries - torch.from_numpy(prepared.centre), prepared.points, prepared.halves, k)
    return found.numpy(), proven.numpy()


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 3000), k=st.integers(1, 30), seed=st.integers(0, 999), scale=st.floats(1e-4, 1e4))
def test_distances_are_those_of_double_precision(count: int, k: int, seed: int, scale: float) -> None:
    random = torch.Generator().manual_seed(seed)
    points, queries = (torch.randn(n, 16, generator=random) * scale for n in (count, 12))
    k = min(k, count)
    np.testing.assert_allclose(search(points, queries, k), truth(points, queries, k), rtol=1e-5)


@pytest.mark.parametrize("apart", [1e-7, 1e-5, 1e-3, 1e-2])
def test_near_ties_and_far_outliers_are_told_apart_or_left_to_the_full_search(apart: float) -> None:
    """All points lie on a sphere around the queries, nearly as far as each other; one outlier stretches the scale."""
    random = torch.Generator().manual_seed(1)
    ray = torch.randn(4000, 32, generator=random)
    ray = ray / ray.norm(dim=1, keepdim=True)
    points = ray * (1 + apart * torch.rand(4000, 1, generator=random)) + 5
    points[17] = 400.0
    queries = torch.full((6, 32), 5.0) + apart * torch.randn(6, 32, generator=random)
    wanted = truth(points, queries, 20)
    found, proven = prove(points, queries, 20)
    np.testing.assert_allclose(found[proven], wanted[proven], rtol=1e-5)
    np.testing.assert_allclose(search(points, queries, 20), wanted, rtol=2e-5)
    if apart <= 1e-5:
        assert not proven.any(), "ties within the margin cannot be proven"


def test_well_spread_points_are_proven_without_the_full_search() -> None:
    random = torch.Generator().manual_seed(2)
    points, queries = torch.randn(30_000, 64, generator=random), torch.randn(50, 64, generator=random)
    found, proven = prove(points, queries, 30)
    assert proven.all()
    np.testing.assert_allclose(found, truth(points, queries, 30), rtol=1e-5)


def test_padding_is_never_a_neighbour_and_a_group_is_enough() -> None:
    points = torch.randn(5, 16, generator=torch.Generator().manual_seed(3)) + 50  # padding lies at 0
    queries = torch.zeros(2, 16)
    np.testing.assert_allclose(search(points, queries, 5), truth(points, queries, 5), rtol=1e-5)
