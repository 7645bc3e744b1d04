"""Evidence: one form for every source, in bulk and for one event."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.schema import mobility_schema
from ustad.scores import Scores
from ustad.scoring.evidence import evidence_column, evidence_of_one, most_unusual, read_evidence
from ustad.tables import EVIDENCE, DataError


def answers(seed, n=20):
    """Four questions, some without an answer, with shares that tie now and then."""
    rng = np.random.default_rng(seed)
    names = ("start", "duration", "place", "silence")
    surprise = {name: np.round(rng.exponential(size=n), 1) for name in names}
    surprise["place"][rng.random(n) < 0.5] = np.nan
    share = {name: np.round(rng.random(n), 1) for name in names}
    numbers = {"start": {"expected": rng.random(n), "observed": np.where(rng.random(n) < 0.3, np.nan, 1.0)}}
    return surprise, share, numbers


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_a_column_has_for_each_event_what_one_event_alone_would_have(seed):
    surprise, share, numbers = answers(seed)
    column = evidence_column(surprise, share, numbers)
    assert column.type == EVIDENCE
    for i, found in enumerate(column.to_pylist()):
        one = [{name: values[i] for name, values in group.items()} for group in (surprise, share)]
        wanted = evidence_of_one(*one, {q: {what: v[i] for what, v in own.items()} for q, own in numbers.items()})
        assert [entry["name"] for entry in found] == [entry["name"] for entry in wanted]
        for entry, other in zip(found, wanted, strict=True):
            assert {k for k, v in entry.items() if v is None} == {k for k, v in other.items() if v is None}
            numbers_of = [[v for v in e.values() if isinstance(v, float)] for e in (entry, other)]
            assert numbers_of[0] == pytest.approx(numbers_of[1], rel=1e-6)
        order = [(-entry["share"], -entry["surprise"]) for entry in found]
        assert order == sorted(order)


def test_scores_of_older_versions_have_the_same_evidence():
    row = {"surprise_start": 3.0, "surprise_place": 1.0, "share_start": 0.25, "share_place": 0.75, "score": 2.0}
    assert [(e["name"], e["share"]) for e in read_evidence(row)] == [("place", 0.75), ("start", 0.25)]
    ranks = {"pct_start": 0.999, "pct_knn": 0.9, "pct_poi": None}
    assert [(e["name"], round(e["surprise"], 6)) for e in read_evidence(ranks)] == [("start", 3.0), ("knn", 1.0)]
    assert read_evidence({"score": 1.0}) == []


def test_shares_that_an_older_table_does_not_say_are_in_proportion_to_the_surprise():
    """Of `surprise_…` without `share_…`, and of percentiles; where nothing is unusual they are 0."""
    for row in (
        {"surprise_a": 3.0, "surprise_b": 1.0, "surprise_c": 0.0},
        {"pct_a": 0.999, "pct_b": 0.9, "pct_c": 0.0},
    ):
        assert {e["name"]: round(e["share"], 9) for e in read_evidence(row)} == {"a": 0.75, "b": 0.25, "c": 0.0}
    assert [e["share"] for e in read_evidence({"surprise_a": 0.0, "surprise_b": 0.0})] == [0.0, 0.0]


def test_the_most_unusual_events_are_told_with_their_moment_as_text():
    moment = datetime(2024, 3, 1, 8, 30, tzinfo=UTC)
    about = {"agent_id": ["x", "y", "z"], "started_at": [moment] * 3, "score": [1.0, 3.0, 2.0]}
    events = pa.table({**about, "surprise_place": [1.0, 2.0, 0.5]})
    highest = most_unusual(events, mobility_schema(), 2)
    assert [(e["agent_id"], e["score"]) for e in highest] == [("y", 3.0), ("z", 2.0)]
    assert highest[0]["started_at"] == moment.isoformat()
    assert highest[0]["terms"] == {"place": {"surprise": 2.0, "share": 1.0}}


def test_one_question_of_every_event():
    surprise, share, _ = answers(3)
    table = pa.table({"score": np.arange(20.0), "evidence": evidence_column(surprise, share)})
    scores = Scores(events=pa.concat_tables([table.slice(0, 7), table.slice(7)]))
    for name, values in surprise.items():
        np.testing.assert_array_equal(scores.surprise(name), values)
    with pytest.raises(DataError, match="'hour' was not asked; known: duration, place, silence, start"):
        scores.surprise("hour")


def test_agents_with_an_alert_come_first():
    agents = pa.table({"agent_id": [1, 2, 3, 4], "score": [9.0, 1.0, 2.0, 8.0], "n_alerts": [0, 1, 2, 0]})
    assert Scores(agents=agents).top_agents(3)["agent_id"].to_pylist() == [3, 2, 1]
    assert Scores(agents=agents.drop_columns(["n_alerts"])).top_agents(2)["agent_id"].to_pylist() == [1, 4]
