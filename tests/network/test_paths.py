"""The path auto-encoder against the mean path and against principal components."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from ustad.network.paths import PathEncoder, fit_paths
from ustad.tables import DataError

POINTS = 16


def make_paths(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Arcs of random heading, length and bend, driven at a random cruising speed with one stop on the way."""
    random = np.random.default_rng(seed)
    along = np.linspace(0, 1, POINTS)
    heading, length, bend = random.uniform(0, 2 * np.pi, n), random.gamma(2, 3, n), random.normal(0, 0.8, n)
    angle = heading[:, None] + bend[:, None] * along
    shape = np.stack([np.cos(angle), np.sin(angle)], axis=-1) * (along * length[:, None])[..., None]
    stop, cruise = random.uniform(0.2, 0.8, n), random.uniform(10, 60, n)
    profile = cruise[:, None] * (1 - np.exp(-(((along - stop[:, None]) / 0.1) ** 2)))
    return shape, profile


def error(one: np.ndarray, other: np.ndarray) -> float:
    return float(((one - other) ** 2).mean())


def components_error(train: np.ndarray, test: np.ndarray, size: int) -> float:
    train, test = train.reshape(len(train), -1), test.reshape(len(test), -1)
    centre = train.mean(axis=0)
    rows = np.linalg.svd(train - centre, full_matrices=False)[2][:size]
    return error((test - centre) @ rows.T @ rows + centre, test)


@pytest.fixture(scope="module")
def encoder() -> PathEncoder:
    torch.set_num_threads(1)
    return fit_paths(*make_paths(2_000, 0), size=4, seed=1, epochs=12)


def test_unseen_paths_are_drawn_far_better_than_the_mean_path_and_about_as_well_as_by_components(
    encoder: PathEncoder,
) -> None:
    train, test = make_paths(2_000, 0), make_paths(500, 9)
    shape, profile = (
        (
            error(drawn, seen) / error(np.broadcast_to(known.mean(axis=0), seen.shape), seen),
            error(drawn, seen) / components_error(known, seen, 4),
        )
        for known, seen, drawn in zip(train, test, encoder.reconstruct(*test), strict=True)
    )
    assert shape[0] < 0.01
    assert shape[1] < 1.25  # arcs are nearly linear: components leave little to gain
    assert profile[0] < 0.1
    assert profile[1] < 0.5  # a stop that moves along the way is not linear


def test_the_vectors_have_the_size_asked_for_and_tell_paths_apart(encoder: PathEncoder) -> None:
    shape, speed = encoder.encode(*make_paths(50, 3))
    assert shape.shape == speed.shape == (50, 4)
    assert shape.dtype == np.float32
    assert len(np.unique(shape.round(4), axis=0)) == 50


def test_the_same_seed_gives_the_same_vectors() -> None:
    paths = make_paths(300, 0)
    one, other = (fit_paths(*paths, size=3, seed=2, epochs=2).encode(*paths) for _ in range(2))
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])


def test_it_survives_being_stored(encoder: PathEncoder) -> None:
    again = PathEncoder.from_state_dict(load(save(encoder.state_dict())))
    paths = make_paths(20, 5)
    assert (again.points, again.size) == (POINTS, 4)
    np.testing.assert_array_equal(again.encode(*paths)[1], encoder.encode(*paths)[1])


def test_constant_paths_and_vectors_longer_than_the_path_work() -> None:
    shape, profile = np.ones((5, 3, 2)), np.zeros((5, 3))
    encoder = fit_paths(shape, profile, size=8, seed=0, epochs=1)
    drawn = encoder.reconstruct(shape, profile)
    np.testing.assert_allclose(drawn[0], shape, atol=1e-3)
    np.testing.assert_allclose(drawn[1], profile, atol=1e-3)


def test_paths_of_another_length_are_refused(encoder: PathEncoder) -> None:
    with pytest.raises(DataError, match="expected 16 points"):
        encoder.encode(np.zeros((2, 5, 2)), np.zeros((2, 5)))
    with pytest.raises(DataError, match="as many shapes as profiles"):
        fit_paths(np.zeros((0, 5, 2)), np.zeros((0, 5)), 4, 0)
