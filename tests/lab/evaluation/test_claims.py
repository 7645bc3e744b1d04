"""Verdicts follow from effects by one rule; `test_claim_worlds` has the effects of every claim."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ustad.lab.evaluation.claim_verdicts import LEAST, RULE, TOO_FEW, Claim, Effect
from ustad.lab.evaluation.claims import CLAIMS, judge_claims, whole_texts
from ustad.lab.evaluation.experiments import EXPERIMENTS


def claim_of(*values, limit=False):
    """A claim with one effect for each of so many seeds of a data set."""
    return Claim("", "", tuple(Effect("town", seed, "", value) for seed, value in enumerate(values)), limit)


@pytest.mark.parametrize(
    ("effects", "verdict"),
    [
        ((), "not measured"),
        ((0.1, 0.2, 0.3, 0.4), TOO_FEW),
        ((0.1, 0.2, 0.3, 0.4, 0.5), "confirmed"),
        ((-0.1, -0.2, -0.3, -0.4, -0.5), "reversed"),
        ((0.1, 0.2, -0.1, 0.2, -0.1), "not confirmed"),
        ((0.1, 0.1, 0.1, 0.1, 0.0), "confirmed"),
        ((0.1, 0.1, 0.1, 0.1, -0.1), "not confirmed"),  # as large as the spread between data sets
        ((0.1, 0.1, 0.1, 0.1, -9.0), "not confirmed"),
        ((0.0,) * 5, "not confirmed"),
        ((LEAST,) * 5, "confirmed"),
        ((0.009,) * 5, "not confirmed"),  # too small to count, however sure
        ((-0.009,) * 5, "not confirmed"),
    ],
)
def test_verdicts_need_a_mean_above_the_spread(effects, verdict):
    assert claim_of(*effects).verdict == verdict


@given(st.lists(st.floats(-1, 1), min_size=1))
def test_turning_the_signs_round_turns_the_verdict_round(effects):
    turned = {"confirmed": "reversed", "reversed": "confirmed", "not confirmed": "not confirmed", TOO_FEW: TOO_FEW}
    assert claim_of(*(-e for e in effects)).verdict == turned[claim_of(*effects).verdict]


def test_the_smallest_effect_that_counts_is_said():
    assert f"at least {LEAST:g}" in RULE


def parts(**by_part):
    effects = ((seed, part, value) for part, values in by_part.items() for seed, value in enumerate(values))
    return Claim("", "", tuple(Effect("town", seed, part, value) for seed, part, value in effects))


FIVE = st.lists(st.floats(-1, 1), min_size=5, max_size=5)


@given(FIVE, FIVE)
def test_no_claim_is_confirmed_or_reversed_against_one_of_its_parts(one, other):
    claim = parts(x=one, y=other)
    means = [sum(values) / 5 for values in (one, other)]
    if claim.verdict == "confirmed":
        assert min(means) > -LEAST
    if claim.verdict == "reversed":
        assert max(means) < LEAST


@pytest.mark.parametrize(
    ("y", "verdict", "words"),
    [
        ((-0.02,) * 5, "mixed", " (on average +0.240, but y on town -0.020)"),
        ((-0.008,) * 5, "confirmed", ""),
        ((-0.9,) * 5, "mixed", " (on average -0.200, but x on town +0.500)"),
        ((-0.5,) * 5, "not confirmed", ""),
    ],
)
def test_what_goes_the_other_way_is_named(y, verdict, words):
    claim = parts(x=(0.5,) * 5, y=y)
    assert (claim.verdict, claim.exceptions) == (verdict, words)


def test_a_claim_against_a_limit_is_never_reversed():
    assert claim_of(*(-0.5,) * 5).verdict == "reversed"
    assert claim_of(*(-0.5,) * 5, limit=True).verdict == "not confirmed"


def one_seed(data, value):
    return Effect(data, 1, "", value)


@pytest.mark.parametrize(
    ("elsewhere", "doubts"),
    [(0.3, ""), (-0.005, ""), (-0.3, " (the other way where there are fewer than 5 data sets: on port -0.300)")],
)
def test_data_of_one_seed_decide_nothing_and_what_they_contradict_is_said(elsewhere, doubts):
    claim = Claim("", "", (*claim_of(*(0.3,) * 5).every_effect, one_seed("port", elsewhere)))
    assert (claim.verdict, claim.exceptions, claim.doubts) == ("confirmed", "", doubts)
    assert Claim("", "", (one_seed("port", elsewhere),)).verdict == TOO_FEW


def test_levels_have_no_spread_and_seeds_do():
    levels = Claim("", "", (Effect("town", None, "events", 0.1), Effect("town", None, "agents", 0.3)))
    assert levels.figures == "+0.200; 2 of 2 levels agree"
    assert claim_of(0.1, 0.3).figures == "+0.200; 2 of 2 agree"
    assert claim_of(0.1, 0.2, 0.3, 0.4, 0.5).figures == "+0.300 ± 0.158; 5 of 5 agree"


@pytest.mark.parametrize(
    ("effects", "verdict"),
    [
        ((0.1, 0.1), "confirmed"),
        ((0.1, -0.1), "not confirmed"),
        ((-0.1, -0.2), "reversed"),
        ((0.1, LEAST / 2), "not confirmed"),
        ((-0.1, -LEAST / 2), "not confirmed"),
    ],
)
def test_effects_beyond_a_spread_need_no_other(effects, verdict):
    every_effect = (
        Effect("town", None, level, value) for level, value in zip(("events", "agents"), effects, strict=True)
    )
    assert Claim("", "", tuple(every_effect)).verdict == verdict


def test_the_printed_effect_is_of_the_data_that_the_verdict_rests_on():
    few = tuple(Effect("port", seed, "", -9.0) for seed in range(4))
    claim = Claim("", "", (*claim_of(0.2, 0.2, 0.2, 0.2, 0.3).every_effect, *few))
    assert claim.figures == "+0.220 ± 0.045; 5 of 5 agree"
    assert Claim("", "", few).figures == "-9.000; 0 of 4 agree"


def test_two_data_that_disagree_confirm_nothing():
    other = (Effect("port", seed, "", -0.3) for seed in range(5))
    assert Claim("", "", (*claim_of(*(0.3,) * 5).every_effect, *other)).verdict == "not confirmed"


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
        for seed in range(5)
    ]
    results = {**{name: [] for name in EXPERIMENTS}, "uncertainty": lines}

    def verdict():
        return next(c for c in judge_claims(results) if c.text.startswith("Errors rise steadily")).verdict

    assert verdict() == "not confirmed"
    del curves["duration"]
    assert verdict() == "confirmed"
