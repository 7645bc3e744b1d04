"""Prediction metrics against small sums done by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ustad.events.encoder import Encoder, Scale
from ustad.geo import Projection
from ustad.lab.prediction import angular_difference, most_certain, prediction_metrics
from ustad.schema import mobility_schema
from ustad.tables import DataError


@pytest.fixture
def encoder() -> Encoder:
    scales = {name: Scale() for name in ("duration", "x", "y")}
    words = {"poi": ["home", "work"], "weekday": ["Monday"]}
    return Encoder(mobility_schema(), scales, words, {"place": Projection(0.0, 0.0)})


def rows_of(table: object) -> dict[tuple[str, float], dict]:
    return {(r["term"], r["rejected"]): r for r in table.to_pylist()}  # type: ignore[attr-defined]  # a pyarrow table


def test_metrics_are_the_plain_means(encoder: Encoder) -> None:
    expected = {
        "start": np.array([10.0, 1430.0, 700.0]),
        "duration": np.array([60.0, 0.0, 5.0]),
        "poi": np.array(["home", "work", "home"], object),
    }
    observed = {
        "start": np.array([1430.0, 10.0, 640.0]),
        "duration": np.array([30.0, 0.0, np.nan]),
        "poi": np.array(["home", "home", "unknown"], object),
    }
    found = rows_of(prediction_metrics(encoder, expected, observed))
    assert found["start", 0.0]["mae"] == pytest.approx((20 + 20 + 60) / 3)
    assert found["duration", 0.0]["mae"] == pytest.approx(15.0)
    assert found["duration", 0.0]["mape"] == pytest.approx(100.0)
    assert found["duration", 0.0]["n_zero_targets"] == 1
    assert found["duration", 0.0]["n_events"] == 2
    assert found["poi", 0.0]["accuracy"] == pytest.approx(50.0)
    assert found["poi", 0.0]["n_events"] == 2


def test_the_most_uncertain_are_rejected(encoder: Encoder) -> None:
    error = np.arange(100.0)
    expected, observed = {"x": error + 1}, {"x": np.ones(100)}
    found = rows_of(prediction_metrics(encoder, expected, observed, uncertainty=error))
    assert found["x", 0.0]["mae"] == pytest.approx(49.5)
    assert found["x", 0.05]["mae"] == pytest.approx(47.0)
    assert found["x", 0.05]["n_events"] == 95


@given(st.floats(0, 1440), st.floats(0, 1440))
def test_angular_differences_go_the_shorter_way(one: float, other: float) -> None:
    found = float(angular_difference(np.array(one), np.array(other), 1440.0))
    assert 0 <= found <= 720
    assert found == pytest.approx(min(abs(one - other), 1440 - abs(one - other)), abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.floats(0, 0.99))
def test_rejection_leaves_out_its_share_and_the_highest(values: list[float], share: float) -> None:
    uncertainty = np.array(values)
    kept = most_certain(uncertainty, share)
    assert (~kept).sum() == int(share * len(values))
    assert kept.all() or uncertainty[kept].max() <= uncertainty[~kept].min()


def test_terms_that_are_not_given_are_an_error(encoder: Encoder) -> None:
    with pytest.raises(DataError, match="none of the terms"):
        prediction_metrics(encoder, {"nonsense": np.ones(2)}, {})
    with pytest.raises(DataError, match="no observed values of x"):
        prediction_metrics(encoder, {"x": np.ones(2)}, {})
