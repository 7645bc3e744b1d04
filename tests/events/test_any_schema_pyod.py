"""The detector in PyOD's and scikit-learn's manners."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from ustad.config import Config, ConfigError
from ustad.pyod_style import USTADDetector
from ustad.schema import EventSchema, Feature
from ustad.tables import TIMESTAMP

DAY = 86_400_000_000
SCHEMA = EventSchema(
    "payments", (Feature("amount", "numeric"), Feature("shop", "categorical")), entity="card", time="at"
)
TINY = Config.preset("quick").replace(
    {
        "model.width": 8, "model.event_blocks": 1, "model.heads": 2, "training.epochs": 3, "scoring.samples": 2,
        "scoring.neighbours": 5, "window.unit": "events", "window.length": 4, "window.max_events": 8,
    },
)  # fmt: skip


def payments(n: int, first_day: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    moment = first_day * DAY + rng.permutation(n) * (DAY // 20)
    columns = {"card": rng.integers(0, 6, n), "at": pa.array(moment).cast(TIMESTAMP)}
    return pa.table({**columns, "amount": rng.normal(10, 1, n), "shop": rng.choice(["a", "b"], n)})


@pytest.fixture(scope="module")
def fitted() -> USTADDetector:
    return USTADDetector(SCHEMA, TINY, contamination=0.05, device="cpu", random_state=3).fit(payments(400, 0, 1))


def test_training_rows_have_scores_labels_and_a_threshold(fitted):
    assert fitted.decision_scores_.shape == fitted.labels_.shape == (400,)
    assert fitted.labels_.sum() == pytest.approx(0.05 * 400, abs=2)
    assert ((fitted.decision_scores_ > fitted.threshold_) == fitted.labels_.astype(bool)).all()


def test_an_absurd_amount_is_an_outlier_and_rows_keep_their_order(fitted):
    new = payments(60, 21, 2)
    amount = new["amount"].to_numpy().copy()
    amount[17] = 500.0
    new = new.set_column(2, "amount", pa.array(amount))
    scores = fitted.decision_function(new)
    assert scores.argmax() == 17
    labels, confidence = fitted.predict(new, return_confidence=True)
    assert labels[17] == 1
    assert set(labels) <= {0, 1}
    assert confidence[17] > 0.9
    back = new.take(np.arange(59, -1, -1))
    assert np.allclose(fitted.decision_function(back)[::-1], scores, atol=1e-5)


@pytest.mark.parametrize("method", ["linear", "unify"])
def test_chances_add_up_to_one_and_rise_with_the_score(fitted, method):
    new = payments(60, 21, 2)
    chances = fitted.predict_proba(new, method)
    assert np.allclose(chances.sum(axis=1), 1)
    order = np.argsort(fitted.decision_function(new))
    assert (np.diff(chances[order, 1]) >= -1e-9).all()


def test_confidence_is_lowest_at_the_threshold(fitted):
    confidence = fitted.predict_confidence(payments(200, 21, 4))
    assert ((confidence >= 0) & (confidence <= 1)).all()
    far = fitted._confidence(np.array([fitted.decision_scores_.min() - 1, fitted.threshold_, 1e3]))
    assert far[1] < min(far[0], far[2])


def test_it_can_be_cloned_and_asked_for_its_parameters(fitted):
    other = clone(fitted)
    assert other.get_params()["contamination"] == 0.05
    with pytest.raises(NotFittedError):
        other.predict(payments(10, 0, 1))


def test_it_is_a_step_of_a_pipeline_and_a_data_frames_index_changes_nothing(fitted):
    pd = pytest.importorskip("pandas")
    new = payments(30, 21, 4)
    frame = new.to_pandas().set_axis(pd.Index([f"row {i}" for i in range(30)]))
    steps = Pipeline([("same", FunctionTransformer()), ("detector", fitted)])
    assert np.array_equal(steps.decision_function(frame), fitted.decision_function(new))
    assert fitted.feature_names_in_.tolist() == ["card", "at", "amount", "shop"]
    assert clone(fitted).set_params(contamination=0.2).contamination == 0.2


def test_a_share_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="contamination"):
        USTADDetector(SCHEMA, TINY, contamination=0.7).fit(payments(10, 0, 1))
