"""What holds for every baseline that predicts masked events: no leak, no padding, same seed, good predictions."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from example_towns import changed, town
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from ustad.events.windows import EventTensors
from ustad.lab.baselines import make
from ustad.lab.baselines.deep import ask, loop_config, masked_predictions, percentiles
from ustad.schema import mobility_schema

NAMES = ("mlp", "lstm", "transformer", "lightpath", "ctle", "sensitive-hue")
SMALL = {"width": 16, "epochs": 15, "patience": 15, "batch_size": 32, "learning_rate": 1e-2, "device": "cpu"}


@pytest.fixture(scope="module")
def fitted():
    made = {}

    def get(name):
        if name not in made:
            made[name] = make(name, **SMALL).fit(town(agents=14), town(agents=14, days=2, first_day=8))
        return made[name]

    return get


@pytest.mark.parametrize("name", NAMES)
def test_a_prediction_never_sees_the_event_it_predicts(name, fitted):
    model = fitted(name)
    test, before = town(agents=4, days=2, first_day=10), town(agents=4, days=10)
    odd = changed(test, 5, lat=60.3, lon=24.5, poi_category="home")
    told, again = (model.predict(t, before) for t in (test, odd))
    expected = [c for c in told.column_names if c.startswith("expected_")]
    assert expected
    for column in expected:
        assert told[column][5] == again[column][5] or told[column][5].as_py() == pytest.approx(
            again[column][5].as_py(), rel=1e-4, abs=1e-4
        )


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_where_and_when_people_are(name, fitted):
    told = fitted(name).predict(town(days=2, first_day=10), town(days=10))
    wrong = np.abs(told["expected_x"].to_numpy() - told["observed_x"].to_numpy())
    observed = told["observed_x"].to_numpy()
    assert wrong.mean() < 0.6 * np.abs(observed - np.median(observed)).mean()
    late = np.abs((told["expected_start"].to_numpy() - told["observed_start"].to_numpy() + 720) % 1440 - 720)
    assert np.median(late) < 150
    if "expected_poi" in told.column_names:
        right = np.mean(np.array(told["expected_poi"].to_pylist()) == np.array(told["observed_poi"].to_pylist()))
        assert right > 0.8


@pytest.mark.parametrize("name", NAMES)
def test_a_stay_at_a_strange_place_is_among_the_most_unusual(name, fitted):
    odd = changed(town(days=2, first_day=10), 42, lat=60.3, lon=24.5)
    score = fitted(name).score(odd, town(days=10)).events["score"].to_numpy()
    assert score[42] >= np.quantile(score, 0.97)


def test_a_score_is_the_largest_percentile_of_its_features_errors(fitted):
    """|error| of each number (around the clock for the start), ranked by scipy, the maximum over the features."""
    test, before = town(days=2, first_day=10), town(days=10)
    told, score = fitted("lightpath").predict(test, before), fitted("lightpath").score(test, before).events["score"]
    ranks = []
    for name in ("x", "y", "start", "duration"):
        error = np.abs(told[f"expected_{name}"].to_numpy() - told[f"observed_{name}"].to_numpy())
        error = np.minimum(error, 1440 - error) if name == "start" else error
        ranks.append(rankdata(error) / len(error))
    near = 2 / len(score)  # predictions are in single precision, which may swap two ranks
    assert np.abs(np.max(ranks, axis=0) - score.to_numpy()).max() <= near


def test_a_kind_of_place_that_is_not_expected_raises_the_score_to_the_top(fitted):
    test, before = town(days=2, first_day=10), town(days=10)
    odd = changed(test, 42, poi_category="home")  # a shop
    assert test["poi_category"][42].as_py() == "shop"
    usual, score = (fitted("transformer").score(t, before).events["score"].to_numpy() for t in (test, odd))
    assert usual[42] < 1
    assert score[42] == 1


@pytest.mark.parametrize("name", ["transformer", "lstm", "mlp", "ctle", "sensitive-hue", "lightpath"])
def test_predictions_do_not_depend_on_padding_or_order(name, fitted):
    model = fitted(name)
    test, before = town(agents=4, days=2, first_day=10), town(agents=4, days=10)
    whole = model.predict(test, before)
    order = np.random.default_rng(0).permutation(test.num_rows)
    shuffled = model.predict(test.take(pa.array(order)), before.take(pa.array(np.arange(before.num_rows)[::-1])))
    alone = model.predict(test.slice(0, 4), before)
    for column in ("expected_x", "expected_start"):
        told = whole[column].to_numpy()
        assert np.allclose(shuffled[column].to_numpy(), told[order], atol=1e-3)
        assert np.allclose(alone[column].to_numpy(), told[:4], atol=1e-3)


def test_the_same_seed_gives_the_same_model_and_another_seed_another():
    events = [town(agents=6, days=5), town(agents=6, days=2, first_day=5), town(agents=6, days=1, first_day=7)]
    few = {**SMALL, "epochs": 1}
    first, again, other = (
        make("transformer", seed=seed, **few).fit(*events[:2]).predict(events[2], events[1])["expected_x"].to_numpy()
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_every_scored_event_is_asked_about_once_and_context_never(fitted):
    model = fitted("transformer")
    test, before = town(agents=4, days=2, first_day=10), town(agents=4, days=10)
    asked = ask(model.encoder, test, before, loop_config(model.settings, 7).window)
    assert sorted(asked.row) == list(range(test.num_rows))
    assert (asked.queries.stop > asked.queries.target).all()
    assert (asked.queries.length <= model.settings.max_events).all()


def test_context_that_repeats_or_follows_the_scored_events_is_not_shown(fitted):
    model = fitted("transformer")
    test, before = town(agents=4, days=2, first_day=10), town(agents=4, days=10)
    everything = pa.concat_tables([before, test, town(agents=4, days=3, first_day=12)])
    clean, careless = (model.predict(test, context)["expected_x"].to_numpy() for context in (before, everything))
    assert np.array_equal(clean, careless)


def test_the_question_shows_the_days_before_but_no_later_day(fitted):
    model = fitted("transformer")
    test, before = town(agents=2, days=3, first_day=10), town(agents=2, days=10)
    asked = ask(model.encoder, test, before, loop_config(model.settings, 7).window)
    day, queries = asked.arrays.day, asked.queries
    assert (day[queries.target] - day[queries.start] == 3).all()
    assert (day[queries.stop - 1] == day[queries.target]).all()


def test_masked_predictions_are_the_networks_own_forward_pass(fitted):
    model = fitted("lstm")
    test, before = town(agents=2, days=1, first_day=10), town(agents=2, days=10)
    asked = ask(model.encoder, test, before, loop_config(model.settings, 7).window)
    tensors = EventTensors(asked.arrays)
    told, _, _ = next(masked_predictions(model.network, tensors, asked.queries))
    one = asked.queries.take(np.array([3]))
    batch = tensors.batch(torch.from_numpy(one.start), torch.from_numpy(one.stop), int(one.length[0]))
    at = int(one.target[0] - one.start[0])
    masked = torch.zeros_like(batch.padding)
    masked[0, at] = True
    with torch.no_grad():
        whole = model.network(batch, masked)
    assert torch.allclose(whole.mean[0, at], told.mean[3], atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1e6) | st.just(float("nan")), min_size=1, max_size=30))
def test_percentiles_keep_the_order_and_what_is_missing_ranks_lowest(values):
    ranks = percentiles(np.array(values))
    known = ~np.isnan(values)
    assert (ranks[~known] == 0).all()
    assert ((ranks[known] > 0) & (ranks[known] <= 1)).all()
    for i in np.flatnonzero(known):
        for j in np.flatnonzero(known):
            assert (values[i] < values[j]) == (ranks[i] < ranks[j])


def test_numbers_only_baselines_predict_no_category(fitted):
    told = fitted("lightpath").predict(town(agents=2, days=1, first_day=10), town(agents=2, days=10))
    assert not any(c in told.column_names for c in ("expected_poi", "expected_weekday"))
    assert {"expected_duration", "observed_duration", "stay_id"} <= set(told.column_names)
    assert mobility_schema().feature("poi").kind == "categorical"
