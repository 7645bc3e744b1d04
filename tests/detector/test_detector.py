"""The facade: fit, score, save, load; no labels, no dependence on order; odd data gets a result or a clear line."""

import dataclasses
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ustad.card import card
from ustad.config import ConfigError
from ustad.dataset import event_days
from ustad.detector import Detector
from ustad.judges import Trainer
from ustad.lessons import split_entities
from ustad.periods import training_periods
from ustad.scoring.alerts import AlertRule
from ustad.simulate import simulate_tables
from ustad.tables import TIMESTAMP, DataError
from ustad.torch_device import choose_device

SCORE = "score"


def by_id(scores, column=SCORE):
    table = scores.with_details().sort_by("stay_id")
    return table["stay_id"].to_numpy(), table[column].to_numpy()


def test_the_test_part_is_scored_and_every_score_is_finite(town, fitted):
    scores = fitted.score(town)
    split = town.split(fitted.config.split)
    assert scores.events.num_rows == town.between(split.test_first, split.test_last).num_rows
    assert np.isfinite(scores.events[SCORE].to_numpy()).all()
    assert set(scores.agents["agent_id"].to_pylist()) == set(scores.events["agent_id"].to_pylist())
    p = scores.events["p_value"].to_numpy()
    assert ((p > 0) & (p <= 1)).all()


def test_by_the_paper_an_agents_score_is_its_most_unusual_stay(town, fitted_network):
    scores = fitted_network.score(town)
    highest = scores.events.group_by("agent_id").aggregate([(SCORE, "max")]).sort_by("agent_id")
    agents = scores.agents.sort_by("agent_id")
    assert np.allclose(agents[SCORE].to_numpy(), highest["score_max"].to_numpy())


def test_labels_change_nothing(town, fitted):
    without = dataclasses.replace(town, labels=None, agent_labels=None)
    assert np.array_equal(by_id(fitted.score(town))[1], by_id(fitted.score(without))[1])


def test_scores_do_not_depend_on_the_order_of_rows_or_on_other_agents(town, fitted):
    shuffled = town.events.take(np.random.default_rng(0).permutation(town.events.num_rows))
    ids, scores = by_id(fitted.score(town))
    again_ids, again = by_id(fitted.score(dataclasses.replace(town, events=shuffled)))
    assert np.array_equal(ids, again_ids)
    assert np.allclose(scores, again, atol=1e-4)
    some = sorted(set(town.events["agent_id"].to_pylist()))[:3]
    few_ids, few = by_id(fitted.score(town.only(some)))
    assert np.allclose(scores[np.isin(ids, few_ids)], few, atol=1e-4)


def test_a_saved_model_scores_the_same(town, fitted, model_directory):
    loaded = Detector.load(model_directory, device="cpu")
    assert np.allclose(by_id(fitted.score(town))[1], by_id(loaded.score(town))[1], atol=1e-5)
    assert loaded.config == fitted.config
    assert "24 agents" in (model_directory / "card.md").read_text()


def test_the_card_speaks_of_entities_and_events_in_the_words_of_the_schema(fitted_network, network_config):
    payments = dataclasses.replace(fitted_network.schema, entity_word="company", event_word="transfer")
    facts = {
        **fitted_network.facts,
        "neighbours": {"reference": 7, "lists": 2, "probes": 1, "recall": 1.0, "error": 0.0},
    }
    text = card(facts, network_config, payments, "The paper's network")
    assert "24 companies" in text
    assert f"{facts['events']:,} transfers" in text
    assert "half of the companies" in text
    assert "7 training transfers" in text
    assert "unusual for each company" in text
    assert not re.search(r"\b(entit|event[s ](?!block)|agent|stay)", text)


def test_the_same_seed_gives_the_same_scores(town, network_config):
    few = town.only(sorted(set(town.events["agent_id"].to_pylist()))[:8])
    a, b = (Detector(network_config, device="cpu").fit(few).score(few, details=True) for _ in range(2))
    assert np.array_equal(by_id(a)[1], by_id(b)[1])
    assert np.array_equal(by_id(a, "loss_duration")[1], by_id(b, "loss_duration")[1])
    other = Detector(network_config.replace({"seed": 8}), device="cpu").fit(few).score(few, details=True)
    assert not np.allclose(by_id(a, "loss_duration")[1], by_id(other, "loss_duration")[1])


def test_a_plain_table_can_be_fitted_and_scored_with_context(town, network_config):
    split = town.split(network_config.split)
    train = town.between(split.train_first, split.test_first - 1)
    test = town.between(split.test_first, split.test_last)
    detector = Detector(network_config.replace({"model.trips": "none"}), device="cpu").fit(train)
    scores = detector.score(test, context=train, details=True)
    assert scores.events["stay_id"].to_pylist() == scores.details["stay_id"].to_pylist() == test["stay_id"].to_pylist()
    alone = detector.score(test, details=True)
    assert (alone.details["history_days"].to_numpy() <= scores.details["history_days"].to_numpy()).all()
    assert alone.details["history_days"].to_numpy().min() == 0


def test_calibration_and_early_stopping_never_share_an_agent(town, tiny_config):
    validation = training_periods(town, tiny_config).validation
    stopping, calibration = split_entities(validation, "agent_id")
    assert stopping.num_rows + calibration.num_rows == validation.num_rows
    assert not set(stopping["agent_id"].to_pylist()) & set(calibration["agent_id"].to_pylist())


@pytest.mark.parametrize(("preset", "calibrate"), [("best", 0.75), ("quick", 0.75), ("paper", 0.5)])
def test_two_weeks_calibrate_a_whole_week_of_most_people_unless_by_the_paper(preset, calibrate):
    people = simulate_tables("town", agents=80, seed=3, days=28)
    lessons = Detector(preset, device="cpu").prepare(people)
    days = [len(np.unique(event_days(part, lessons.encoder.schema))) for part in (lessons.train, lessons.validation)]
    assert days == ([10, 4] if preset == "paper" else [7, 7])
    count = [len(set(part["agent_id"].to_pylist())) for part in (lessons.stopping, lessons.calibration)]
    assert count[1] / sum(count) == pytest.approx(calibrate, abs=0.12)


def test_trips_can_enter_as_vectors(town, network_config):
    few = town.only(sorted(set(town.events["agent_id"].to_pylist()))[:6])
    detector = Detector(network_config.replace({"model.trips": "embedding", "training.epochs": 1}), device="cpu").fit(
        few
    )
    scores = detector.score(few)
    assert {"loss_trip_shape", "loss_trip_speed"} <= set(scores.details.column_names)
    assert "trip_shape" not in scores.events.column_names


def test_carrying_on_from_a_model_begins_at_its_weights(town, fitted_network, network_config):
    once = network_config.replace({"training.epochs": 1})
    later = Detector(once, device="cpu").fit(town, start=fitted_network)
    fresh = Detector(once, device="cpu").fit(town)
    assert later.facts["validation_loss"] < fresh.facts["validation_loss"]


def test_the_papers_network_carries_on_from_one_of_its_kind_alone(town, fitted, network_config):
    lessons = Detector(network_config, device="cpu").prepare(town)
    trainer = Trainer(network_config, "cpu", start=fitted.judge.sources)
    with pytest.raises(ConfigError, match="no network of the paper"):
        trainer.fit(lessons)


def test_one_agent_alone_works(town, tiny_config):
    one = town.only([town.events["agent_id"][0].as_py()])
    scores = Detector(tiny_config, device="cpu").fit(one).score(one)
    assert scores.agents.num_rows == 1
    assert np.isfinite(scores.events[SCORE].to_numpy()).all()


def identical_days(agents: int, days: int) -> pa.Table:
    """One stay a day, always the same."""
    day, hour = 86_400_000_000, 3_600_000_000
    starts = [(19_700 + d) * day + 8 * hour for d in range(days)] * agents
    n = len(starts)
    return pa.table(
        {
            "stay_id": list(range(n)),
            "agent_id": np.repeat(range(agents), days),
            "started_at": pa.array(starts, TIMESTAMP),
            "finished_at": pa.array([s + hour for s in starts], TIMESTAMP),
            "lat": [1.0] * n,
            "lon": [2.0] * n,
            "poi_category": ["home"] * n,
            "timezone": ["UTC"] * n,
        }
    )


def test_events_that_are_all_the_same_get_finite_scores_and_are_not_called_impossible(tiny_config):
    table = identical_days(agents=6, days=16)
    scores = Detector(tiny_config, device="cpu").fit(table).score(table)
    p_values = scores.events["p_value"].to_numpy()
    assert np.isfinite(scores.events[SCORE].to_numpy()).all()
    assert np.median(p_values) > 0.001
    assert p_values.min() > 1e-6


def test_one_event_or_one_day_is_refused_with_a_reason(town, tiny_config):
    with pytest.raises(DataError, match="at least three days are needed"):
        Detector(tiny_config).fit(town.events.slice(0, 1))
    with pytest.raises(DataError, match="one day"):
        Detector(tiny_config).fit(town.events.slice(0, 1), everything=True)


def test_what_is_not_fitted_says_so():
    with pytest.raises(DataError, match="not fitted"):
        Detector("quick").score(pa.table({"a": [1]}))


def test_unknown_devices_are_refused():
    with pytest.raises(DataError, match="not one of"):
        choose_device("tpu")


def test_agents_never_seen_in_training_are_scored_too(town, tiny_config):
    agents = sorted(set(town.events["agent_id"].to_pylist()))
    detector = Detector(tiny_config, device="cpu").fit(town.only(agents[:16]))
    scores = detector.score(town.only(agents[16:]))
    assert set(scores.agents["agent_id"].to_pylist()) <= set(agents[16:])
    assert np.isfinite(scores.events[SCORE].to_numpy()).all()


def test_reasons_are_given_for_alerts_and_for_each_agents_worst_stay(town, fitted):
    scores = fitted.score(town)
    flagged = scores.events.filter(scores.events["alert"])
    assert pc.all(pc.is_valid(flagged["reason"])).as_py() in (True, None)
    assert pc.all(pc.is_valid(scores.agents["reason"])).as_py()


def test_data_that_begins_after_training_is_scored_whole(town, fitted):
    split = town.split(fitted.config.split)
    later = dataclasses.replace(town, events=town.between(split.test_first, split.test_last), meta={})
    assert fitted.score(later).events.num_rows == later.events.num_rows


@pytest.mark.parametrize(
    ("column", "value", "word"),
    [
        ("lat", 400.0, "lat"),
        ("lat", float("nan"), "lat"),
        ("agent_id", None, "agent_id"),
        ("started_at", None, "started_at"),
    ],
)
def test_bad_tables_are_refused_from_python_too(town, fitted, column, value, word):
    values = town.events[column].to_pylist()
    values[0] = value
    bad = town.events.set_column(
        town.events.column_names.index(column), column, pa.array(values, town.events.schema.field(column).type)
    )
    with pytest.raises(DataError, match=word):
        fitted.score(bad)
    with pytest.raises(DataError, match=word):
        Detector(fitted.config, device="cpu").fit(bad)


def test_pandas_tables_with_neighbours_names_are_taken(town, fitted):
    pytest.importorskip("pandas")
    names = {"agent_id": "user_id", "lat": "latitude", "lon": "longitude"}
    frame = town.events.rename_columns([names.get(c, c) for c in town.events.column_names]).to_pandas()
    assert fitted.score(frame, everything=True).events.num_rows == town.events.num_rows
    assert fitted.score(frame).events["stay_id"].to_pylist() == fitted.score(town).events["stay_id"].to_pylist()


@pytest.mark.parametrize("by_habits", [True, False])
def test_a_warning_is_said_once_whatever_gives_the_score(town, fitted, fitted_network, by_habits, recwarn):
    detector = fitted if by_habits else fitted_network
    warnings = detector.score(town, rule=AlertRule("p_value", 1e-6)).run["warnings"]
    assert warnings
    heard = [str(w.message) for w in recwarn.list]
    assert [heard.count(text) for text in warnings] == [1] * len(warnings)
