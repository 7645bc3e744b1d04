"""Nearest neighbours against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from ustad.network.inference import neighbours
from ustad.network.inference.inverted_lists import InvertedLists, has_faiss
from ustad.network.inference.neighbours import Reference, exact_distances

needs_faiss = pytest.mark.skipif(not has_faiss(), reason="FAISS is not installed: pip install 'ustad[knn]'")


def _cloud(count: int, seed: int, width: int = 8) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(count, 3)) @ rng.normal(size=(3, width)) + 100 + 0.1 * rng.normal(size=(count, width))
    ).astype(np.float32)


def _truth(points: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    finder = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(points.astype(np.float64))
    return finder.kneighbors(queries.astype(np.float64))[0]


@settings(max_examples=15, deadline=None)
@given(count=st.integers(1, 700), k=st.integers(1, 40), seed=st.integers(0, 99))
def test_exact_distances_equal_scikit_learn(count: int, k: int, seed: int) -> None:
    points, queries = _cloud(count, seed), _cloud(20, seed + 1)
    k = min(k, count)
    found = exact_distances(points, queries, k, torch.device("cpu"))
    np.testing.assert_allclose(found, _truth(points, queries, k), rtol=1e-4, atol=1e-4)


@needs_faiss
def test_torch_and_faiss_agree() -> None:
    points, queries = _cloud(2000, 1), _cloud(50, 2)
    found = neighbours._faiss_distances(points, queries, 30)
    np.testing.assert_allclose(found, exact_distances(points, queries, 30, torch.device("cpu")), rtol=2e-3, atol=2e-3)


def test_a_query_that_is_a_reference_point_is_at_distance_zero_from_it() -> None:
    points = _cloud(500, 3)
    assert exact_distances(points, points[:5], 1, torch.device("cpu")).max() < 1e-5


@needs_faiss
def test_inverted_lists_state_the_error_they_have() -> None:
    points, queries = _cloud(4000, 4), _cloud(100, 5)
    lists = InvertedLists.fit(points, k=20)
    exact = _truth(points, queries, 20)
    found = lists.distances(queries, 20)
    error = (found.mean(1) / exact.mean(1) - 1).mean()
    assert lists.probes < len(lists.centres)
    assert 0 <= lists.error <= 0.005
    assert error < 0.01
    assert (found >= exact * (1 - 1e-3) - 1e-3).all()  # never nearer than the truth
    assert np.allclose(lists.distances(queries[:1], 20), found[:1], rtol=1e-5)
    assert "recall" in lists.describe()


@needs_faiss
def test_lists_that_are_too_short_are_joined_until_k_points_are_found() -> None:
    points = _cloud(60, 6)
    lists = InvertedLists.fit(points, k=5)
    lists.probes = 1
    assert np.isfinite(lists.distances(points[:3], 50)).all()


def test_own_scope_looks_at_the_owners_events_only() -> None:
    points, owner = _cloud(300, 7), np.repeat([5, -9, 12], 100)
    queries, asks = _cloud(6, 8), np.array([5, 5, -9, 12, 77, -9])
    found = Reference(points, owner).mean_distance(queries, 10, owner=asks)
    for i, who in enumerate(asks):
        if who == 77:
            assert np.isnan(found[i])
        else:
            assert found[i] == pytest.approx(_truth(points[owner == who], queries[i : i + 1], 10).mean(), rel=1e-4)


def test_more_neighbours_than_events_means_all_events() -> None:
    points, queries = _cloud(7, 9), _cloud(3, 10)
    found = Reference(points, np.zeros(7, np.int64)).mean_distance(queries, 150)
    np.testing.assert_allclose(found, _truth(points, queries, 7).mean(1), rtol=1e-3)


@needs_faiss
def test_beyond_the_limit_the_lists_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(neighbours.EXACT_LIMIT, "cpu", 100)
    points, queries = _cloud(2000, 11), _cloud(20, 12)
    reference = Reference(points, np.zeros(2000, np.int64))
    found = reference.mean_distance(queries, 15)
    assert reference.lists is not None
    np.testing.assert_allclose(found, _truth(points, queries, 15).mean(1), rtol=0.05)


def test_a_reference_survives_storing() -> None:
    reference = Reference(_cloud(20, 1), np.arange(20))
    again = Reference.from_tensors(reference.to_tensors())
    assert np.array_equal(again.embeddings, reference.embeddings)
    assert np.array_equal(again.owner, reference.owner)


@needs_faiss
def test_lists_are_stored_with_what_was_measured_of_them() -> None:
    reference = Reference(_cloud(3000, 1), np.arange(3000))
    lists = reference.approximate(20)
    assert reference.facts() == {"reference": 3000, **lists.facts()}
    again = Reference.from_tensors(reference.to_tensors())
    assert again.facts() == reference.facts()
    assert again.lists is not None
    assert 0.5 < again.lists.recall <= 1
    queries = _cloud(9, 5)
    assert np.array_equal(again.lists.distances(queries, 20), lists.distances(queries, 20))
    assert Reference(_cloud(9, 1), np.arange(9)).facts() == {"reference": 9}


@needs_faiss
def test_one_event_at_a_time_is_compared_exactly_on_a_gpu_and_through_lists_on_a_cpu() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda:0")
    assert not neighbours.live_through_lists(neighbours.APPROXIMATE_ABOVE, cpu)
    assert neighbours.live_through_lists(neighbours.APPROXIMATE_ABOVE + 1, cpu)
    assert not neighbours.live_through_lists(1_300_000, cuda)
    assert neighbours.live_through_lists(neighbours.EXACT_LIMIT["cuda"] + 1, cuda)


@needs_faiss
def test_the_measured_recall_is_that_of_new_queries() -> None:
    points = _cloud(6000, 21)
    lists = Reference(points, np.zeros(len(points), np.int64)).approximate(20)
    queries = _cloud(300, 22)
    truth = np.sort(np.linalg.norm(points[None] - queries[:, None], axis=-1), axis=1)[:, :20]
    found = (lists.distances(queries, 20) <= truth[:, -1:] * (1 + 1e-5)).mean()
    assert found == pytest.approx(lists.recall, abs=0.1)


def test_without_faiss_everything_is_compared_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    points, queries = _cloud(2000, 11), _cloud(20, 12)
    stored = Reference(points, np.zeros(2000, np.int64))
    stored.lists = InvertedLists.fit(points, 15) if has_faiss() else None
    monkeypatch.setattr(neighbours, "has_faiss", lambda: False)
    monkeypatch.setitem(neighbours.EXACT_LIMIT, "cpu", 100)
    reference = Reference.from_tensors(stored.to_tensors())
    np.testing.assert_allclose(reference.mean_distance(queries, 15), _truth(points, queries, 15).mean(1), rtol=1e-4)
    assert not neighbours.live_through_lists(10**9, torch.device("cpu"))
    reference.index_for_live(15)
    assert reference.lists is None
    with pytest.raises(ImportError, match="knn"):
        reference.approximate()
