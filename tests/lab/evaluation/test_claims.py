"""Verdicts follow from effects by one rule; `test_claim_worlds` has the effects of every claim."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ustad.lab.evaluation.claims import CLAIMS, Claim, judge_claims, whole_texts
from ustad.lab.evaluation.experiments import EXPERIMENTS


@pytest.mark.parametrize(
    ("effects", "verdict"),
    [
        ((), "not measured"),
        ((0.1, 0.2), "not confirmed"),  # too few to say
        ((0.1, 0.2, 0.3), "confirmed"),
        ((-0.1, -0.2, -0.3), "reversed"),
        ((0.1, 0.2, -0.1), "not confirmed"),
        ((0.1, 0.1, 0.1, 0.1, 0.0), "confirmed"),
        ((0.1, 0.1, 0.1, 0.1, -0.1), "not confirmed"),  # as large as the spread between data sets
        ((0.1, 0.1, 0.1, 0.1, -9.0), "not confirmed"),
        ((0.0, 0.0, 0.0), "not confirmed"),
    ],
)
def test_verdicts_need_a_mean_above_the_spread(effects, verdict):
    assert Claim("", "", effects).verdict == verdict


@given(st.lists(st.floats(-1, 1), min_size=1))
def test_turning_the_signs_round_turns_the_verdict_round(effects):
    turned = {"confirmed": "reversed", "reversed": "confirmed", "not confirmed": "not confirmed"}
    one = Claim("", "", tuple(effects)).verdict
    assert Claim("", "", tuple(-e for e in effects)).verdict == turned[one]


def test_without_results_nothing_is_claimed():
    claims = judge_claims({name: [] for name in EXPERIMENTS})
    assert len(claims) == len(CLAIMS)
    assert {c.verdict for c in claims} == {"not measured"}


def test_a_claim_that_leans_on_another_reads_alone():
    texts = ["EU helps", "– the same, over nothing at all", "AU stays"]
    assert whole_texts(texts) == ["EU helps", "EU helps: over nothing at all", "AU stays"]


def test_errors_rise_steadily_only_where_those_of_every_feature_do():
    """Twenty shares kept; four features rise all the way, lengths fall for half of it."""
    kept = [share / 20 for share in range(1, 21)]
    curves = {term: list(kept) for term in ("x", "y", "start", "poi")}
    curves["duration"] = [*kept[9::-1], *kept[10:]]  # rank correlation 0.75: over all features the mean is 0.95
    lines = [
        {
            "data": "town",
            "seed": seed,
            "method": "ustad-plain",
            "result": {"kept": kept, "curves": curves, "classes": []},
        }
        for seed in (1, 2, 3)
    ]
    results = {**{name: [] for name in EXPERIMENTS}, "uncertainty": lines}

    def verdict():
        return next(c for c in judge_claims(results) if c.text.startswith("Errors rise steadily")).verdict

    assert verdict() == "not confirmed"
    del curves["duration"]
    assert verdict() == "confirmed"
