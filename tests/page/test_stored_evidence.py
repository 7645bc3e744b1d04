"""Evidence in the store and on the page: one path, whatever was asked and whoever wrote it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_example import make_run, tables_of

from ustad.kind_words import QUESTION_WORDS
from ustad.page.answers import freeze
from ustad.page.stored_evidence import FACTS, pack_evidence, stands_apart, unpack_evidence, unpack_facts
from ustad.schema import mobility_schema
from ustad.scoring.evidence import evidence_column

#: Questions of every source there is, and of one that nobody knows.
NAMES = (*QUESTION_WORDS, "x", "y", "poi", "knn", "rain", "wind_here")
TERMS = [term.name for term in mobility_schema().terms()]

questions = st.dictionaries(st.sampled_from(NAMES), st.floats(0, 9), min_size=1)


def one_answer(name, surprise, share, **numbers):
    return {"name": name, "surprise": surprise, "share": share, "expected": None, "observed": None, **numbers}


@given(questions)
def test_what_is_stored_comes_back(surprises):
    evidence = [one_answer(name, value, 1 / len(surprises)) for name, value in surprises.items()]
    content = json.loads(json.dumps(pack_evidence(evidence, {})))
    wanted = [{name: one[name] for name in ("name", "surprise", "share")} for one in evidence]
    assert unpack_evidence(content) == wanted
    assert unpack_facts(content) == dict.fromkeys(FACTS)


def test_facts_come_from_the_answers_where_no_column_has_them():
    evidence = [
        one_answer("recurrence", 2.0, 0.6, expected=0.0, observed=3.0),
        one_answer("distance", 1.0, 0.4, observed=2.5),
    ]
    content = pack_evidence(evidence, {})
    assert unpack_facts(content) == {"visits_now": 3, "km_from_own_places": 2.5, "new_place": True, "at_home": None}
    content = pack_evidence(evidence, {"visits_now": 4, "km_from_own_places": None, "new_place": False})
    assert unpack_facts(content) == {"visits_now": 4, "km_from_own_places": 2.5, "new_place": False, "at_home": None}


def test_details_of_older_stores_are_read():
    """Until 0.3 a score by habits was stored by itself, and one of the network by its percentiles."""
    older = {"habits": {"surprise": {"start": 1.0, "end": 3.0}, "share": {"start": 0.2, "end": 0.8}, "new_place": True}}
    assert unpack_evidence({**older, "terms": {"start": {"pct": 0.99}}}) == [
        pytest.approx(one_answer("end", 3.0, 0.8, spread=None, noise=None, doubt=None)),
        pytest.approx(one_answer("start", 1.0, 0.2, spread=None, noise=None, doubt=None)),
    ]
    assert unpack_facts(older) == {"visits_now": None, "km_from_own_places": None, "new_place": True, "at_home": None}
    ranks = {"terms": {"start": {"pct": 0.999}, "poi": {"expected": "shop"}}, "pct_knn": 0.9}
    assert [(one["name"], one["share"]) for one in unpack_evidence(ranks)] == [
        ("start", pytest.approx(0.75)),
        ("knn", pytest.approx(0.25)),
    ]
    assert unpack_evidence({"given": {}}) == []


@given(questions)
def test_questions_stand_apart_where_no_feature_can_show_one(surprises):
    evidence = [one_answer(name, value, 0.0) for name, value in surprises.items()]
    assert stands_apart(evidence, TERMS) == bool(set(surprises) - {*TERMS, "knn"})


@pytest.fixture(scope="module")
def run():
    return make_run(6, 14)


@settings(max_examples=12, deadline=None)
@given(st.sets(st.sampled_from(NAMES), min_size=1), st.integers(0, 10**6))
def test_every_share_of_the_score_is_shown_once_whoever_was_asked(run, names, seed):
    """A question that nobody has words for is shown with its name and its share, like any other."""
    table, agents, data, facts = run
    columns = [name for name in table.column_names if name != "evidence" and not name.startswith("pct_")]
    rng = np.random.default_rng(seed)
    surprise = {name: rng.exponential(size=table.num_rows) for name in sorted(names)}
    total = np.sum(list(surprise.values()), axis=0)
    evidence = evidence_column(surprise, {name: values / total for name, values in surprise.items()})
    table = pa.table({**{name: table[name] for name in columns}, "evidence": evidence})
    frozen = freeze(tables_of(table, agents, facts, data), cases=3, lanes=3, alerts=5)
    details = [
        answer
        for answers in frozen.agents.values()
        for address, answer in answers.items()
        if address.startswith("/v1/events/") and answer["event"]["score"] is not None
    ]
    assert details
    for detail in details:
        listed = detail["questions"]["terms"] if detail["questions"] else []
        shares = [one["share"] for one in (*listed, *detail["features"], detail["knn"])]
        assert sum(shares) == pytest.approx(1.0, abs=1e-5)
        assert {one["name"] for one in listed} in ({*names}, set())
        assert "wind here" in {one["label"] for one in listed} or "wind_here" not in names
