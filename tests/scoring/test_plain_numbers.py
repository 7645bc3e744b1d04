"""What is worked out of one event in plain numbers is what arrays of many say; and no kernel leaves numbers behind that
slow processors down."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ustad.geo import Projection
from ustad.habits.recurrence import Recurrence
from ustad.habits.widths import Widths
from ustad.network.inference.inference_kernels import softmax

KM = st.floats(-19_000, 19_000) | st.just(math.nan) | st.just(0.0)


@given(lat=st.floats(-90, 90), lon=st.floats(-180, 180), x=KM, y=KM)
def test_one_point_goes_back_as_many_do(lat, lon, x, y):
    projection = Projection(lat, lon)
    one, many = projection.backward_one(x, y), projection.backward(np.array([x]), np.array([y]))
    assert one == pytest.approx([float(values[0]) for values in many], abs=1e-6, nan_ok=True)
    assert math.isnan(one[0]) == math.isnan(one[1]) == math.isnan(x + y)


@given(
    before=st.integers(0, 200), count=st.integers(0, 60), days=st.integers(1, 400), exposure=st.integers(1, 90),
    known=st.none() | st.floats(1, 60),
)  # fmt: skip
def test_the_surprise_of_one_count_is_that_of_many(before, count, days, exposure, known):
    prior = Recurrence(0.3, 20.0, 0.5, known)
    (many,) = prior.surprise(np.array([before]), np.array([count]), days, np.array([float(exposure)]))
    assert prior.surprise_of(before, count, days, exposure) == pytest.approx(float(many), rel=1e-9, abs=1e-12)


@given(
    spread=st.tuples(st.floats(0, 900), st.floats(0, 900) | st.just(math.nan)),
    kind=st.integers(0, 5),
    visits=st.integers(1, 40),
)
def test_one_spread_is_widened_as_many_are(spread, kind, visits):
    rng = np.random.default_rng(0)
    widths = Widths(rng.uniform(0.5, 2, (2, 4)), rng.uniform(0.5, 2, (2, 6)))
    many = widths.widen(np.array(spread)[:, None], np.array([kind]), np.array([visits]))[:, 0]
    assert widths.widen_one(spread, kind, visits) == pytest.approx(many.tolist(), nan_ok=True)


def test_what_is_hidden_weighs_nothing_at_all():
    """Weights of hidden places are 0 and not some number below the smallest normal one."""
    logits = np.array([[0.5, -1e9, 2.0, -1e9], [-3.0, -80.0, -85.0, -1e9]], np.float32)
    weights = logits.copy()
    softmax(weights, np.empty(weights.size, np.float32))
    plain = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(weights, plain / plain.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-30)
    assert (weights[logits == -1e9] == 0).all()
    assert (weights[weights > 0] >= np.finfo(np.float32).tiny).all()
