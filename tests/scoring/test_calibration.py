"""Percentiles, p-values, agents, intervals: what calibration promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays
from scipy import stats

from ustad.distribution import Distribution, Ranks, log10_any
from ustad.evidence_source import Answers
from ustad.lab.evaluation.ablated_scores import ABLATIONS, combine, log10_tails, pick_columns
from ustad.scoring.calibration import (
    Calibration,
    Parts,
    entity_maxima,
    spread_of,
)
from ustad.scoring.paper_judge import Judgement, PaperJudge

FINITE = st.floats(-1e6, 1e6)


def make_parts(count: int, seed: int, shift: float = 0.0, missing: float = 0.05) -> Parts:
    """Terms with heavy and light tails, dependent on each other; some truths are missing."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(count, 1)) + shift
    loss = np.exp(np.c_[common + rng.normal(size=(count, 1)), rng.normal(size=(count, 2)) * [0.5, 1.0]])
    loss[rng.random(loss.shape) < missing] = np.nan
    au, eu = rng.uniform(0.5, 2, loss.shape), rng.uniform(0.01, 0.1, loss.shape)
    error = np.abs(rng.normal(size=loss.shape)) * np.sqrt(au + eu)
    return Parts(("a", "b", "c"), error, loss, au, eu, np.abs(rng.normal(size=count)) + common[:, 0] ** 2)


# ----------------------------------------------------------------------------------------- distributions
@settings(max_examples=60, deadline=None)
@given(reference=numpy_arrays(float, st.integers(1, 80), elements=FINITE), x=st.lists(FINITE, min_size=2, max_size=20))
def test_tail_shares_never_rise_with_the_value(reference: np.ndarray, x: list[float]) -> None:
    ordered = np.sort(np.array(x))
    for tail in (Distribution.fit(reference), Ranks.of(reference)):
        found = tail.log10_tail(ordered)
        assert (np.diff(found) <= 1e-12).all()
        assert (found <= 1e-12).all()


def test_extremes_do_not_tie() -> None:
    tail = Distribution.fit(np.random.default_rng(0).exponential(size=5000))
    found = tail.log10_tail(np.array([20.0, 40.0, 400.0, 4000.0]))
    assert (np.diff(found) < -0.1).all()
    assert np.isfinite(found).all()


def test_the_fitted_tail_is_close_to_the_true_one() -> None:
    values = stats.genpareto.rvs(0.2, size=100_000, random_state=1)
    tail = Distribution.fit(values)
    for rare in (1e-4, 1e-5):
        assert tail.log10_tail(stats.genpareto.isf(rare, 0.2)) == pytest.approx(np.log10(rare), abs=0.4)
    assert tail.shape == pytest.approx(0.2, abs=0.12)


def test_missing_values_stay_missing_and_empty_references_say_nothing() -> None:
    assert np.isnan(Distribution.fit(np.arange(9.0)).log10_tail(np.array([np.nan]))).all()
    assert Distribution.fit(np.array([np.nan])).log10_tail(np.array([0.0]))[0] == 0.0


def test_ranks_are_the_papers_percentiles() -> None:
    values = np.array([3.0, 1.0, 2.0, 2.0])
    shares = 1 - 10 ** Ranks.of(values).log10_tail(values)
    assert np.argsort(shares, kind="stable").tolist() == [1, 2, 3, 0]
    assert shares[2] == shares[3]


@given(p=st.floats(1e-30, 0.999), n=st.integers(1, 500))
def test_the_chance_of_any_is_exact(p: float, n: int) -> None:
    found = 10 ** float(log10_any(np.array([np.log10(p)]), n)[0])
    assert found == pytest.approx(-np.expm1(n * np.log1p(-p)), rel=1e-6)


# ------------------------------------------------------------------------------------------------ scores
def test_the_score_is_the_largest_percentile_and_leaves_missing_terms_out() -> None:
    parts = make_parts(300, 0)
    columns = np.c_[parts.loss, parts.knn]
    ranks = np.full(columns.shape, np.nan)
    for j, column in enumerate(columns.T):  # the paper, slowly
        seen = np.flatnonzero(np.isfinite(column))
        for i in seen:
            below = (column[seen] < column[i]).sum() + 0.5 * (column[seen] == column[i]).sum()
            ranks[i, j] = below / len(seen)
    slow = np.nanmax(ranks, axis=1)
    fast = combine(parts)
    assert stats.spearmanr(slow, fast).statistic > 0.99999


@pytest.mark.parametrize("how", ABLATIONS)
def test_every_ablation_is_finite_in_both_modes(how: str) -> None:
    parts, reference = make_parts(200, 1), make_parts(300, 2)
    for against in (None, reference):
        score = combine(parts, how, against)  # type: ignore[arg-type]  # parametrised by name
        assert np.isfinite(score).all()
        assert (score >= 0).all()
        assert score.std() > 0


def test_without_neighbours_or_truth_the_score_is_zero_and_not_missing() -> None:
    nothing = np.full((2, 1), np.nan)
    parts = Parts(("a",), nothing, nothing, nothing, nothing, np.full(2, np.nan))
    assert combine(parts).tolist() == [0, 0]


def test_p_values_of_the_final_score_are_uniform_on_held_back_normal_data() -> None:
    calibration = Calibration.fit(make_parts(20_000, 4), np.arange(20_000) // 20, 7)
    held_back = make_parts(20_000, 5)
    p = 10 ** calibration.log10_p(combine(held_back, reference=calibration.parts))
    assert stats.kstest(p, "uniform").statistic < 0.02  # stated tolerance
    for level in (0.1, 0.01, 0.001):
        assert (p <= level).mean() == pytest.approx(level, rel=0.5)


def _people(rng: np.random.Generator, count: int, events: int = 20, terms: int = 6) -> tuple[Parts, np.ndarray]:
    """People whose events are alike: as much between people as within one."""
    habits = rng.normal(size=(count, 1, terms + 1))
    values = np.exp(habits + rng.normal(size=(count, events, terms + 1))).reshape(count * events, -1)
    loss, names = values[:, :-1], tuple(f"term {i}" for i in range(terms))
    return Parts(names, loss, loss, loss, loss, values[:, -1]), np.repeat(np.arange(count), events)


def test_few_reference_people_do_not_make_new_ones_look_rare() -> None:
    shares = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        calibration = Calibration.fit(*_people(rng, 40), 7)
        new, _ = _people(rng, 300)
        p = 10 ** calibration.log10_p(combine(new, reference=calibration.parts))
        shares.append([(p <= level).mean() / level for level in (0.2, 0.01, 0.001)])
    often, seldom, rare = np.mean(shares, axis=0)
    assert often == pytest.approx(1, abs=0.15)
    assert seldom == pytest.approx(1, abs=0.5)  # 2.1 where each event is part of what it is compared with
    assert rare < 3  # 5.4 there


def test_one_reference_person_is_enough_to_give_p_values() -> None:
    parts = make_parts(30, 3)
    calibration = Calibration.fit(parts, np.zeros(30, int), 7)
    p = 10 ** calibration.log10_p(combine(parts, reference=parts))
    assert ((p > 0) & (p <= 1)).all()
    assert len(np.unique(p)) > 20


def test_batch_p_values_are_uniform_on_held_back_normal_data() -> None:
    calibration = Calibration.fit(make_parts(20_000, 6), np.arange(20_000) // 20, 7)
    held_back = make_parts(20_000, 7)
    ranks = [Ranks.of(column) for column in held_back.columns.T]
    standing = PaperJudge(None, calibration).stand(ranks)
    judgement = Judgement.of(Answers(dict(enumerate(held_back.columns.T))), standing)
    np.testing.assert_allclose(judgement.score, combine(held_back))
    assert stats.kstest(10**judgement.log10_p, "uniform").statistic < 0.02
    assert stats.kstest(10**standing.normal, "uniform").statistic < 0.02


def _agents(seed: int, agents: int, events: int) -> tuple[Parts, np.ndarray]:
    return make_parts(agents * events, seed), np.repeat(np.arange(agents), events)


def test_agent_p_values_are_uniform_over_equal_spans() -> None:
    calibration = Calibration.fit(*_agents(8, 1000, 21), 7)
    parts, entity = _agents(9, 1000, 21)
    smallest, _ = entity_maxima(-calibration.log10_p(combine(parts, reference=calibration.parts)), entity)
    p = 10 ** calibration.agent_log10_p(-smallest, 7)
    assert stats.kstest(p, "uniform").statistic < 0.06  # stated tolerance


def test_agent_p_values_hold_over_a_longer_span() -> None:
    calibration = Calibration.fit(*_agents(10, 2000, 21), 7)
    parts, entity = _agents(11, 500, 84)  # four weeks
    smallest, _ = entity_maxima(-calibration.log10_p(combine(parts, reference=calibration.parts)), entity)
    p = 10 ** calibration.agent_log10_p(-smallest, 28)
    assert stats.kstest(p, "uniform").statistic < 0.1
    assert (p <= 0.05).mean() < 0.1


def test_agents_of_a_batch_are_compared_with_what_the_batch_says_of_the_reference() -> None:
    """The ranks of the reference within a batch, where they are given, take the place of its own p-values."""
    parts, entity = _agents(21, 40, 5)
    calibration = Calibration.fit(parts, entity, 7)
    other = np.random.default_rng(22).permutation(calibration.normal) * 2.0
    smallest = np.array([-0.5, -1.0, -3.0])
    blocks = [-other[entity == agent].min() for agent in range(40)]
    expected = Distribution.fit(np.array(blocks)).log10_tail(-smallest)
    np.testing.assert_allclose(calibration.agent_log10_p(smallest, 7, normal=other), expected)
    own = calibration.agent_log10_p(smallest, 7)
    np.testing.assert_array_equal(own, calibration.agent_log10_p(smallest, 7, normal=calibration.normal))
    assert not np.allclose(own, expected)


def test_nobody_has_no_maxima() -> None:
    highest, counts = entity_maxima(np.zeros(0), np.zeros(0, int))
    assert (highest.shape, counts.shape) == ((0,), (0,))


# --------------------------------------------------------------------------------------------- intervals
def test_intervals_cover_what_they_promise() -> None:
    calibration = Calibration.fit(make_parts(20_000, 12, missing=0), np.arange(20_000), 7)
    fresh = make_parts(20_000, 13, missing=0)
    for coverage in (0.5, 0.9, 0.99):
        radius = calibration.radius(coverage, (False, False, True))
        scale = np.where([False, False, True], 1.0, spread_of(fresh.au, fresh.eu))
        covered = (fresh.error / scale <= radius).mean(axis=0)
        np.testing.assert_allclose(covered, coverage, atol=0.02)


def test_a_reference_too_small_for_the_coverage_gives_infinite_intervals() -> None:
    calibration = Calibration.fit(make_parts(20, 14, missing=0), np.arange(20), 7)
    assert np.isinf(calibration.radius(0.99, (False,) * 3)).all()
    assert np.isfinite(calibration.radius(0.5, (False,) * 3)).all()


# ----------------------------------------------------------------------------------------------- storing
def test_calibration_survives_storing() -> None:
    calibration = Calibration.fit(make_parts(500, 15), np.arange(500) // 5, 7)
    again = Calibration.from_tensors(calibration.to_tensors(), ("a", "b", "c"))
    scores = np.linspace(0, 6, 50)
    assert np.array_equal(again.log10_p(scores), calibration.log10_p(scores))
    assert again.days == 7


def test_very_many_events_are_thinned_by_whole_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ustad.scoring.calibration.MOST_VALUES", 300)
    entity = np.arange(1000) // 10
    calibration = Calibration.fit(make_parts(1000, 16), entity, 7)
    assert 200 <= len(calibration.parts) <= 310
    assert (np.unique(calibration.entity, return_counts=True)[1] == 10).all()
    assert calibration.n_events == 1000


def test_as_many_events_as_are_kept_are_not_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ustad.scoring.calibration.MOST_VALUES", 100)
    assert len(Calibration.fit(make_parts(100, 16), np.arange(100) // 10, 7).parts) == 100


def test_of_agents_with_more_events_than_are_kept_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ustad.scoring.calibration.MOST_VALUES", 5)
    calibration = Calibration.fit(make_parts(40, 16), np.arange(40) // 10, 7)
    assert len(np.unique(calibration.entity)) == 1
    assert len(calibration.parts) == 10


def test_reference_scores_are_by_the_other_people_and_of_one_person_by_its_own_events() -> None:
    parts = make_parts(60, 19, missing=0)
    columns = parts.columns
    alone = Calibration.fit(parts, np.zeros(60, int), 7)
    np.testing.assert_allclose(alone.scores, combine(parts, reference=parts))
    half = np.arange(60) < 30
    both = Calibration.fit(parts, half.astype(int), 7).scores
    for mine in (half, ~half):
        tails = [Distribution.fit(column).log10_tail(columns[mine, j]) for j, column in enumerate(columns[~mine].T)]
        np.testing.assert_allclose(both[mine], np.max(-np.array(tails), axis=0))


def test_tails_keep_the_order_of_each_column() -> None:
    parts, reference = make_parts(400, 17, missing=0), make_parts(400, 18, missing=0)
    tails = log10_tails(parts, reference=reference)
    for j, column in enumerate(np.c_[parts.loss, parts.knn].T):
        order = np.argsort(column)
        assert (np.diff(tails[order, j]) <= 1e-12).all()


def test_many_reference_values_are_kept_as_quantiles_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).normal(size=210_001)  # searching for each quantile took minutes
    kept = Distribution.fit(values)
    assert (len(kept.values), kept.count) == (200_000, len(values))
    assert (kept.values[0], kept.values[-1]) == (values.min(), values.max())
    monkeypatch.setattr("ustad.distribution.MOST_VALUES", 50)
    wanted = np.quantile(values, np.linspace(0, 1, 50))
    np.testing.assert_allclose(Distribution.fit(values).values, wanted, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------------- by hand, on few numbers
def test_the_columns_of_an_ablation_are_the_sums_it_names() -> None:
    parts = make_parts(20, seed=1)
    np.testing.assert_allclose(pick_columns(parts, "pe_au_eu"), parts.error + parts.au + parts.eu)
    np.testing.assert_allclose(pick_columns(parts, "eu"), parts.eu)


def test_a_spread_is_the_root_of_both_uncertainties_and_one_without_them() -> None:
    au, eu = np.array([3.0, 0.0, 0.25]), np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(spread_of(au, eu), [2.0, 1.0, 0.5])


def test_total_uncertainty_is_ranked_among_the_sums_of_the_reference() -> None:
    calibration = Calibration.fit(make_parts(200, seed=2), np.arange(200) % 7, days=10)
    total, x = calibration.parts.au + calibration.parts.eu, np.linspace(0.5, 2.5, 9)
    for column, tail in enumerate(calibration.uncertainty_tails):
        np.testing.assert_allclose(tail.log10_tail(x), Distribution.fit(total[:, column]).log10_tail(x))


@pytest.mark.parametrize(("coverage", "rank"), [(0.1, 1), (0.5, 5), (0.8, 8), (0.9, 9), (0.95, None)])
def test_the_radius_is_the_conformal_quantile_of_nine_errors(coverage: float, rank: int | None) -> None:
    """In spreads for a number (here 2), as it is for a category; of ten places the last is beyond all errors."""
    errors = np.array([7.0, 1, 9, 3, 5, 2, 8, 6, 4])
    both = np.stack([errors, errors], axis=1)
    parts = Parts(("number", "category"), both, both, np.full_like(both, 3.0), np.ones_like(both), errors)
    found = Calibration.fit(parts, np.arange(9), days=1).radius(coverage, (False, True))
    np.testing.assert_allclose(found, [np.inf, np.inf] if rank is None else [rank / 2, rank])
