"""Figures against scikit-learn and against labels made by hand."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from ustad.lab.evaluation.detection_metrics import (
    Ranking,
    auroc,
    average_precision,
    bootstrap_interval,
    evaluate,
    incident_scores,
    precision_at,
)
from ustad.tables import DataError

rows = st.lists(st.tuples(st.booleans(), st.integers(-4, 4)), min_size=2, max_size=60)


@given(rows)
def test_both_areas_agree_with_scikit_learn_also_with_ties(pairs):
    truth, score = np.array([p[0] for p in pairs]), np.array([float(p[1]) for p in pairs])
    if truth.all() or not truth.any():
        assert math.isnan(auroc(truth, score))
        return
    assert auroc(truth, score) == pytest.approx(roc_auc_score(truth, score))
    assert average_precision(truth, score) == pytest.approx(average_precision_score(truth, score))


@given(rows, st.integers(0, 5))
def test_a_weight_of_k_equals_k_copies_of_the_row(pairs, seed):
    truth, score = np.array([p[0] for p in pairs]), np.array([float(p[1]) for p in pairs])
    weight = np.random.default_rng(seed).integers(0, 4, len(truth))
    whole = Ranking(np.repeat(truth, weight), np.repeat(score, weight)).measure()
    assert Ranking(truth, score).measure(weight) == pytest.approx(whole, nan_ok=True)


def test_precision_at_k_counts_ties_with_their_mean():
    truth, score = np.array([1, 0, 1, 0], bool), np.array([3.0, 2.0, 2.0, 1.0])
    assert precision_at(truth, score, 1) == 1.0
    assert precision_at(truth, score, 2) == pytest.approx(0.75)  # the second place is a tie of a hit and a miss
    assert precision_at(truth, score, 4) == 0.5
    assert math.isnan(precision_at(truth, score, 5))


def test_nan_scores_are_refused():
    with pytest.raises(DataError, match="1 of 2 rows are NaN"):
        auroc(np.array([True, False]), np.array([1.0, np.nan]))


def scores(n: int = 200, agents: int = 20) -> tuple[pa.Table, pa.Table]:
    generator = np.random.default_rng(3)
    owner = np.arange(n) % agents
    value = generator.normal(size=n)
    events = pa.table({"stay_id": np.arange(n), "agent_id": owner, "score": value})
    worst = np.array([value[owner == a].max() for a in range(agents)])
    return events, pa.table({"agent_id": np.arange(agents), "score": worst})


def labels(rows: list[int], **columns: list) -> pa.Table:
    return pa.table({"stay_id": rows, "anomaly": [True] * len(rows), **columns})


def test_absent_labels_are_ordinary_and_agents_follow_from_their_stays():
    events, agents = scores()
    result = evaluate(events, agents, labels([3, 23, 7]), bootstrap=0)
    truth = np.isin(events["stay_id"].to_numpy(), [3, 23, 7])
    assert result["events"]["positives"] == 3
    assert result["events"]["prevalence"] == pytest.approx(3 / 200)
    assert result["events"]["auroc"] == pytest.approx(roc_auc_score(truth, events["score"].to_numpy()))
    assert result["agents"]["positives"] == 2  # stays 3 and 23 are both of agent 3
    assert result["agents"]["labels"] == "derived from events"


def test_recurring_kinds_and_roles_are_measured_apart_against_ordinary_events_only():
    events, agents = scores()
    marked = labels([0, 1, 2], recurring=[True, True, False], kind=["new place", "odd hour", "odd hour"])
    result = evaluate(events, agents, marked, bootstrap=0)["events"]["by"]
    score = events["score"].to_numpy()
    keep = np.r_[[0, 1], np.arange(3, 200)]  # without the non-recurring one
    assert result["recurring"]["recurring"]["positives"] == 2
    assert result["recurring"]["recurring"]["auroc"] == pytest.approx(roc_auc_score(keep < 2, score[keep]))
    assert set(result["kind"]) == {"new place", "odd hour"}
    assert result["recurring"]["non-recurring"]["positives"] == 1


def test_agent_labels_learn_from_event_labels_which_agents_recur():
    events, agents = scores()
    whole = pa.table({"agent_id": [0, 1], "anomaly": [True, True]})
    result = evaluate(events, agents, labels([0, 1], recurring=[True, False]), whole, bootstrap=0)
    assert result["agents"]["labels"] == "by agent"
    assert result["agents"]["by"]["recurring"]["recurring"]["positives"] == 1


def test_excluded_agents_count_neither_as_found_nor_as_missed():
    events, agents = scores()
    whole = evaluate(events, agents, labels([0, 1]), bootstrap=0)
    without = evaluate(events, agents, labels([0, 1]), exclude_agents=[1, 5], bootstrap=0)
    assert without["events"]["n"] == whole["events"]["n"] - 20
    assert without["events"]["excluded"] == 20
    assert without["agents"]["n"] == 18
    assert without["events"]["positives"] == 1
    assert without["events"]["not_scored"] == 1


def test_one_class_gives_nan_with_its_reason():
    events, agents = scores()
    empty = pa.table({"stay_id": pa.array([], pa.int64()), "anomaly": pa.array([], pa.bool_())})
    result = evaluate(events, agents, empty)
    assert math.isnan(result["events"]["auroc"])
    assert "no row is labelled" in result["events"]["reason"]


def test_labels_of_other_data_are_refused():
    events, agents = scores()
    with pytest.raises(DataError, match="share no 'stay_id'"):
        evaluate(events, agents, labels([1000, 1001]))
    with pytest.raises(DataError, match="nothing to compare with"):
        evaluate(events, agents)
    with pytest.raises(DataError, match="missing column anomaly"):
        evaluate(events, agents, pa.table({"stay_id": [1]}))


def test_text_labels_match_integer_identifiers_or_say_why_not():
    events, agents = scores()
    marked = pa.table({"stay_id": ["3", "4"], "anomaly": [True, True]})
    assert evaluate(events, agents, marked, bootstrap=0)["events"]["positives"] == 2
    with pytest.raises(DataError, match="'stay_id' is string"):
        evaluate(events, agents, pa.table({"stay_id": ["a"], "anomaly": [True]}))


def test_the_interval_holds_the_estimate_repeats_with_the_seed_and_knows_that_agents_are_the_unit():
    generator = np.random.default_rng(0)
    agents = np.repeat(np.arange(60), 30)
    truth = agents < 20
    score = truth + np.repeat(generator.normal(size=60), 30) + 0.01 * generator.normal(size=1800)
    first = bootstrap_interval(truth, score, agents, 200, seed=1)
    assert first == bootstrap_interval(truth, score, agents, 200, seed=1)
    low, high = first["auroc"]
    assert low < auroc(truth, score) < high
    rowwise = bootstrap_interval(truth, score, np.arange(1800), 200, seed=1)["auroc"]
    assert high - low > 3 * (rowwise[1] - rowwise[0])  # rows of one agent are not independent


def test_only_agent_labels_and_agent_scores_are_enough():
    _, agents = scores()
    result = evaluate(None, agents, agent_labels=pa.table({"agent_id": [1, 2], "anomaly": [True, False]}), bootstrap=20)
    assert set(result) == {"agents"}
    assert result["agents"]["positives"] == 1


def test_an_event_by_its_incident_has_the_highest_score_beside_it() -> None:
    moment = pa.array([0, 1, 2, 3, 9, 4], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    table = pa.table({"agent_id": [1, 1, 1, 1, 1, 2], "started_at": moment, "score": [1.0, 5.0, 0.0, 2.0, 3.0, 7.0]})
    assert incident_scores(table).tolist() == [5.0, 5.0, 5.0, 3.0, 3.0, 7.0]
    named = table.append_column("incident_id", pa.array([None, "a", None, None, "a", "b"]))
    assert incident_scores(named).tolist() == [5.0, 5.0, 5.0, 3.0, 5.0, 7.0]
    shuffled = named.take([5, 2, 0, 4, 3, 1])
    assert incident_scores(shuffled).tolist() == [7.0, 5.0, 5.0, 5.0, 3.0, 5.0]
