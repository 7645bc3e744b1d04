"""Verdicts follow from effects by one rule, and the published tables say what the paper prints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ustad.evaluation.claims import CLAIMS, Claim, judged
from ustad.evaluation.experiments import EXPERIMENTS
from ustad.evaluation.tables import published


@pytest.mark.parametrize(
    ("effects", "verdict"),
    [
        ((), "not measured"),
        ((0.1, 0.2), "not confirmed"),  # too few to say
        ((0.1, 0.2, 0.3), "confirmed"),
        ((-0.1, -0.2, -0.3), "reversed"),
        ((0.1, 0.2, -0.1), "not confirmed"),
        ((0.1, 0.1, 0.1, 0.1, -0.1), "confirmed"),
        ((0.1, 0.1, 0.1, 0.1, -9.0), "not confirmed"),
        ((0.0, 0.0, 0.0), "not confirmed"),
    ],
)
def test_verdicts_need_the_mean_and_four_in_five(effects, verdict):
    assert Claim("", "", effects).verdict == verdict


@given(st.lists(st.floats(-1, 1), min_size=1))
def test_turning_the_signs_round_turns_the_verdict_round(effects):
    turned = {"confirmed": "reversed", "reversed": "confirmed", "not confirmed": "not confirmed"}
    one = Claim("", "", tuple(effects)).verdict
    assert Claim("", "", tuple(-e for e in effects)).verdict == turned[one]


def test_without_results_nothing_is_claimed():
    claims = judged({name: [] for name in EXPERIMENTS})
    assert len(claims) == len(CLAIMS)
    assert {c.verdict for c in claims} == {"not measured"}


def test_the_papers_own_injection_figures_confirm_what_it_says_of_loss_and_eu():
    rows = published()["injections"]["simla"]
    lines = [
        {
            "data": "simla",
            "seed": 1,
            "kind": kind,
            "result": {"scores": {how: {"auroc": v[0], "ap": v[1]} for how, v in scores.items()}},
        }
        for kind, scores in rows.items()
    ]
    found = {c.text: c.verdict for c in judged({**{n: [] for n in EXPERIMENTS}, "injections": lines})}
    assert found["Loss finds predictable anomalies"] == "confirmed"
    assert found["EU alone fails on novel events"] == "confirmed"
    assert found["Distance finds novel anomalies"] == "confirmed"


def test_published_tables_are_whole():
    tables = published()
    for rows in tables["prediction"].values():
        assert len(rows) == 7
        assert {len(row) for row in rows.values()} == {9}
    assert tables["detection"]["numosim-la"]["ustad-plain"] == {"events": [0.734, 0.0274], "agents": [0.728, 0.0813]}
    for levels in tables["detection"].values():
        for rows in levels.values():
            assert all(0.4 < auroc < 1 and 0 < ap < 0.2 for auroc, ap in rows.values())
    assert all(
        isinstance(v, float) for week in tables["training_size"]["simla"].values() for p in week.values() for v in p
    )
