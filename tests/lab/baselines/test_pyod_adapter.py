"""PyOD's detectors on encoded events."""

import numpy as np
import pytest
from example_towns import changed, town

from ustad.config import ConfigError
from ustad.events.encoder import Encoder
from ustad.lab.baselines import make
from ustad.lab.baselines.pyod_adapter import event_rows, make_detector
from ustad.schema import mobility_schema

pytest.importorskip("pyod")


@pytest.mark.parametrize("name", ["pyod-ecod", "pyod-knn"])
def test_an_event_unlike_all_others_scores_highest(name):
    model = make(name).fit(town(agents=8, days=5))
    odd = changed(town(agents=8, days=1, first_day=6), 9, lat=62.0, lon=23.0)
    assert model.score(odd).events["score"].to_numpy().argmax() == 9


def test_an_isolation_forest_scores_a_far_place_higher_than_the_usual_one():
    model, test = make("pyod").fit(town(agents=8, days=5)), town(agents=8, days=1, first_day=6)
    usual, odd = (model.score(t).events["score"].to_numpy() for t in (test, changed(test, 9, lat=62.0, lon=23.0)))
    assert odd[9] > usual[9]
    assert np.array_equal(np.delete(odd, 9), np.delete(usual, 9))


def test_rows_are_numbers_and_one_hot_words():
    encoder = Encoder.fit(town(agents=3, days=3), mobility_schema())
    arrays = encoder.encode(town(agents=3, days=1, first_day=4))
    rows = event_rows(arrays)
    assert rows.shape == (12, arrays.numbers.shape[1] + 4 + 8)  # three kinds of place, seven days, twice unknown
    assert np.allclose(rows[:, arrays.numbers.shape[1] :].sum(1), 2)


def test_a_sample_bounds_what_a_detector_is_fitted_on():
    assert len(make("pyod", sample=50).fit(town(agents=8, days=5)).rows) == 50


def test_an_unknown_detector_is_refused_with_names():
    with pytest.raises(ConfigError, match="try IForest"):
        make_detector("Nonsense", 7)
