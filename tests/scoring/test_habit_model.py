"""Scores from history: what they find, what they must not see, and that they do not depend on how they are asked."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import nbinom

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import FIRST_DAY, between, insert_visit, make_routine, odd_week
from whole_scores import facts_of

from ustad.config import SplitConfig
from ustad.distribution import Distribution
from ustad.events.visits import read_visits
from ustad.habits.habit_words import sentences
from ustad.habits.history import Habits
from ustad.habits.population import Population
from ustad.habits.profile import profile_change
from ustad.habits.questions import TERMS, compare
from ustad.habits.recurrence import Recurrence
from ustad.judges import learn_from
from ustad.schema import EventSchema, Feature, mobility_schema
from ustad.scoring.adding_judge import p_values
from ustad.scoring.alerts import order_by_p
from ustad.scoring.entity_tests import AgentReference, Period, top_mean
from ustad.scoring.looks import minus_log10_p
from ustad.simulate import simulate_tables
from ustad.tables import TIMESTAMP, DataError

SCHEMA = mobility_schema()
PERIOD = (FIRST_DAY + 28, FIRST_DAY + 34)


@pytest.fixture(scope="module")
def life():
    return make_routine(seed=1, agents=12, days=35)


@pytest.fixture(scope="module")
def model(life):
    return learn_from(between(life, 0, 21), between(life, 21, 28), SCHEMA)


@pytest.fixture(scope="module")
def odd(life):
    return odd_week(life)


def test_a_far_place_visited_again_and_again_is_the_most_unusual_event_and_its_agent_leads(model, odd):
    judged = model.judge(odd, count_days=PERIOD)
    inserted = odd["poi_id"].to_numpy() == 999
    assert judged.score[inserted].min() > judged.score[~inserted].max()
    assert judged.entity_ids[np.argmax(judged.agent_score)] == 4
    assert judged.answers[0].facts.comparison.distance[inserted].min() > 10
    assert sorted(judged.answers[0].facts.comparison.count[inserted]) == [1, 2, 3]


def test_recurrence_rises_with_every_visit_to_a_new_place(model, odd):
    inserted = odd["poi_id"].to_numpy() == 999
    terms = model.judge(odd, count_days=PERIOD).answers[0].facts.comparison.terms["recurrence"][inserted]
    assert (np.diff(terms) > 0).all()
    assert terms[0] == pytest.approx(0.0, abs=1e-9)


# ------------------------------------------------------------------------------------------- no leakage
def test_labels_beside_the_events_change_nothing(model, odd):
    labels = np.random.default_rng(0).permutation(odd.num_rows) < 5
    told = odd.append_column("anomaly", pa.array(labels))
    np.testing.assert_array_equal(model.judge(told).score, model.judge(odd).score)


@settings(max_examples=12, deadline=None)
@given(cut=st.integers(1, 6), seed=st.integers(0, 99))
def test_later_events_never_change_an_earlier_score(model, odd, cut, seed):
    """Past counting: whatever happens after a day, the scores up to it stay as they are."""
    early = between(odd, 28, 28 + cut)
    later = between(odd, 28 + cut, 35)
    moved = later.set_column(
        later.column_names.index("lat"), "lat", pa.array(later["lat"].to_numpy() + np.random.default_rng(seed).normal())
    )
    whole = model.judge(pa.concat_tables([early, moved]), count_days=PERIOD)
    np.testing.assert_allclose(whole.score[: early.num_rows], model.judge(early, count_days=PERIOD).score, rtol=1e-12)


def test_the_calibration_week_is_compared_with_the_training_weeks_alone(life, model):
    train, week = between(life, 0, 21), between(life, 21, 28)
    visits = read_visits(week, SCHEMA, model.history.frame)
    alone = Habits.fit(read_visits(train, SCHEMA, model.history.frame))
    period = (FIRST_DAY + 21, FIRST_DAY + 27)
    learnt = read_visits(between(life, 0, 28), SCHEMA, model.history.frame)
    groups = Population.fit_others(learnt, visits, period[0], len(model.history.frame.categories) + 1)
    parts = [
        compare(alone, others, model.history.recurrence, visits.take(rows), period=period).terms
        for rows, others in groups
    ]
    for name in TERMS:
        raw = np.concatenate([terms[name] for terms in parts])
        np.testing.assert_array_equal(model.looks.tails[name].values, Distribution.fit(raw).values)
    assert model.history.habits.last_day == FIRST_DAY + 27  # later events are compared with both


def test_beyond_the_reference_the_order_of_alerts_is_that_of_the_evidence(model):
    """In a small town many events are rarer than the reference can show: they keep their order and do not tie."""
    evidence = float(model.looks.events.values.max()) + np.linspace(0.5, 40.0, 14)
    score = minus_log10_p(model.looks.events, np.random.default_rng(0).permutation(evidence))
    order = order_by_p(p_values(score), score)
    assert score[order[-1]] > np.log10(model.looks.events.count)  # all are beyond it
    np.testing.assert_allclose(score[order], minus_log10_p(model.looks.events, evidence[::-1]))
    assert (np.diff(score[order]) < 0).all()


def test_of_the_validation_week_only_those_who_calibrate_change_what_people_do_on_the_whole(life, model):
    week = between(life, 21, 28)
    mine = week["agent_id"].to_numpy() == 4
    changed = week
    for _ in range(3):
        changed = insert_visit(changed, 4, 23, 1350, minutes=40)
    away = changed["agent_id"].to_numpy() != 4
    held_back = [learn_from(between(life, 0, 21), w, SCHEMA, c) for w, c in ((week, ~mine), (changed, away))]
    assert held_back[0].history.recurrence == held_back[1].history.recurrence == model.history.recurrence
    np.testing.assert_array_equal(held_back[0].history.population.start, held_back[1].history.population.start)
    assert not np.array_equal(held_back[0].history.population.start, model.history.population.start)


def test_whole_counting_sees_the_later_visits(life, odd):
    model = learn_from(between(life, 0, 21), between(life, 21, 28), SCHEMA, counting="whole")
    inserted = odd["poi_id"].to_numpy() == 999
    assert model.judge(odd, count_days=PERIOD).answers[0].facts.comparison.count[inserted].tolist() == [3, 3, 3]


# ------------------------------------------------------------------------------ the same however asked
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000))
def test_scores_do_not_depend_on_the_order_of_rows(model, odd, seed):
    order = np.random.default_rng(seed).permutation(odd.num_rows)
    shuffled = model.judge(odd.take(pa.array(order)), count_days=PERIOD)
    np.testing.assert_allclose(shuffled.score, model.judge(odd, count_days=PERIOD).score[order], rtol=1e-12)


def test_agents_scored_in_parts_score_as_in_one(model, odd):
    whole = model.judge(odd, count_days=PERIOD)
    agents = odd["agent_id"].to_numpy()
    for part in (agents < 5, agents >= 5):
        judged = model.judge(odd.filter(pa.array(part)), count_days=PERIOD)
        np.testing.assert_allclose(judged.score, whole.score[part], rtol=1e-12)
        same = np.isin(whole.entity_ids, judged.entity_ids)
        np.testing.assert_allclose(judged.agent_score, whole.agent_score[same], rtol=1e-12)


def test_context_is_counted_and_not_scored(model, odd):
    early, late = between(odd, 28, 31), between(odd, 31, 35)
    judged = model.judge(late, context=pa.concat_tables([between(odd, 0, 28), early]), count_days=PERIOD)
    whole = model.judge(pa.concat_tables([early, late]), count_days=PERIOD)
    assert len(judged.score) == late.num_rows
    np.testing.assert_allclose(judged.score, whole.score[early.num_rows :], rtol=1e-12)


def test_an_agent_without_history_is_scored_by_the_population(model, odd):
    stranger = odd.set_column(1, "agent_id", pa.array(odd["agent_id"].to_numpy() + 1000))
    judged = model.judge(stranger, count_days=PERIOD)
    assert np.isfinite(judged.score).all()
    assert (judged.surprise["recurrence"] == 0).all()


def test_a_missed_day_at_work_shows_in_the_stay_that_took_its_place_and_says_where_one_was_expected(model, life):
    """Wednesday at home instead of at work, which is there on every weekday."""
    at_work = np.array(between(life, 28, 35)["poi_id"].to_numpy() == 51)
    week = between(life, 28, 35).to_pylist()
    missed = int(np.flatnonzero(at_work)[2])
    home = next(row for row in week if row["poi_id"] == 50)
    week[missed] |= {name: home[name] for name in ("poi_id", "lat", "lon", "poi_category")}
    table = pa.Table.from_pylist(week, schema=life.schema)
    judged = model.judge(table, count_days=PERIOD)
    mine = judged.entity == judged.entity[missed]
    assert int(np.argmax(np.where(mine, judged.surprise["elsewhere"], -1.0))) == missed
    (text,) = sentences(model.history, *facts_of(judged), table, rows=np.array([missed]))
    assert re.search(r"Not at Work on Wednesday; there at \d\d:\d\d on (\d+) of \1 weekdays, ", text), text


def test_a_model_of_an_earlier_version_scores_by_the_questions_that_are_still_asked(model, odd):
    looks = replace(
        model.looks,
        tails={**model.looks.tails, "presence": Distribution.fit(np.arange(9.0))},
        weights={**model.looks.weights, "stay": {**model.looks.weights["stay"], "presence": 1.0}},
    )
    older = replace(model, looks=looks)
    np.testing.assert_array_equal(older.judge(odd, count_days=PERIOD).score, model.judge(odd, count_days=PERIOD).score)


def test_forgetting_every_agent_leaves_a_model_that_still_scores(model, odd):
    assert np.isfinite(model.forget(list(range(12))).judge(odd, count_days=PERIOD).score).all()


def test_a_forgotten_agent_leaves_no_trace_in_habits_or_references(model, odd):
    left = model.forget([3])
    gone = np.setdiff1d(model.agents.entity_key, left.agents.entity_key)
    assert len(gone) == 1
    assert gone[0] not in left.history.entity_key
    same, before = left.judge(odd, count_days=PERIOD), model.judge(odd, count_days=PERIOD)
    others = before.entity_ids != 3
    np.testing.assert_allclose(same.agent_score[others], before.agent_score[others], rtol=1e-12)


def test_too_few_calibration_events_are_refused(life):
    nobody = np.zeros(between(life, 21, 28).num_rows, bool)
    with pytest.raises(DataError, match="fewer than two events"):
        learn_from(between(life, 0, 21), between(life, 21, 28), SCHEMA, nobody)


# ------------------------------------------------------------------------------------------ recurrence
def test_recurrence_is_the_tail_of_the_negative_binomial():
    prior = Recurrence(0.4, 10.0, 0.7)
    before, count, exposure = np.array([0, 3, 20]), np.array([2, 5, 1]), np.array([3.0, 7.0, 28.0])
    shape, p = 0.4 + 0.7 * before, (10 + 0.7 * 21) / (10 + 0.7 * 21 + exposure)
    expected = -np.log(nbinom.sf(count - 1, shape, p) / nbinom.sf(0, shape, p))
    np.testing.assert_allclose(prior.surprise(before, count, 21, exposure), expected, rtol=1e-9, atol=1e-12)


def test_a_history_longer_than_was_fitted_on_tells_the_rate_but_makes_no_surer():
    """The Gamma posterior of eight weeks, with the mean that they give and the rate parameter of a fortnight."""
    prior, days, before, exposure = Recurrence(0.4, 10.0, 0.7, days=14.0), 56, np.full(29, 24), np.full(29, 28.0)
    mean = (0.4 + 0.7 * 24) / (10 + 0.7 * 56)
    rate = 10 + 0.7 * 14
    count, p = np.arange(1, 30), rate / (rate + 28)
    expected = -np.log(nbinom.sf(count - 1, mean * rate, p) / nbinom.sf(0, mean * rate, p))
    np.testing.assert_allclose(prior.surprise(before, count, days, exposure), expected, rtol=1e-9, atol=1e-12)
    unbounded = Recurrence(0.4, 10.0, 0.7)
    assert (unbounded.surprise(before, count, days, exposure)[15:] > expected[15:]).all()
    short = (np.full(29, 3), count, 7, exposure)
    np.testing.assert_array_equal(prior.surprise(*short), unbounded.surprise(*short))


def test_recurrence_keeps_its_word_where_lives_change():
    """Rates of places that wander from fortnight to fortnight: of places visited at all, how many have small
    p-values over four weeks after eight of history?"""
    rng = np.random.default_rng(8)
    rate = rng.gamma(1.0, 0.2, 40_000)[:, None] * rng.gamma(2.0, 0.5, (40_000, 6))
    visits = rng.poisson(14 * rate)  # six fortnights
    prior = Recurrence.fit(visits[:, 0], visits[:, 1], 14, 14)
    before, after = visits[:, :4].sum(axis=1), visits[:, 4:].sum(axis=1)
    seen = after > 0
    found = prior.surprise(before[seen], after[seen], 56, np.full(seen.sum(), 28.0))
    sure = replace(prior, days=None).surprise(before[seen], after[seen], 56, np.full(seen.sum(), 28.0))
    small = float((found >= -np.log(0.01)).mean())
    assert small <= 0.02
    assert small < 0.6 * float((sure >= -np.log(0.01)).mean())


def test_recurrence_recovers_how_spread_the_counts_are():
    rng = np.random.default_rng(3)
    rate = rng.gamma(0.8, 1 / 6.0, 40_000)
    before, after = rng.poisson(rate * 14), rng.poisson(rate * 14)
    found = Recurrence.fit(before, after, 14, 14)
    assert (found.a, found.b) == (pytest.approx(0.8, rel=0.3), pytest.approx(6.0, rel=0.3))
    assert found.c > 0.85


# ---------------------------------------------------------------------------------------------- agents
def test_the_mean_of_the_top_three_is_that_of_a_sort_each_counting_half_as_much_as_the_one_above():
    rng = np.random.default_rng(4)
    score, entity = rng.normal(size=200), np.sort(rng.integers(0, 9, 200))
    entity[-3:] = 9, 9, 10  # with two events, and with one; 11 has none
    expected = []
    for e in range(11):
        highest = np.sort(score[entity == e])[::-1][:3]
        expected.append(np.average(highest, weights=[4, 2, 1][: len(highest)]))
    np.testing.assert_allclose(top_mean(score, entity, 12), [*expected, 0.0])


def test_a_diffuse_change_shows_in_the_shift_and_not_in_the_top(life, model):
    visits = read_visits(between(life, 28, 35), SCHEMA, model.history.frame)
    rng = np.random.default_rng(5)
    normal = rng.exponential(0.3, len(visits))
    raised = np.where(visits.entity == 7, 0.7, normal)  # higher than usual on the whole, without a peak
    period = Period(visits.entity, visits.entity_key, visits.day, PERIOD)
    reference = AgentReference.fit(normal, period, np.ones(12, bool), {})
    tests = reference.judge(raised, period, {})
    assert np.argmax(tests["shift"]) == 7
    assert np.argmax(tests["top"]) != 7


def test_a_changed_profile_of_visits_shows_in_the_g_test(life, model):
    week = between(life, 28, 35)
    shops = week["poi_id"].to_numpy() % 10
    moved = np.where((week["agent_id"].to_numpy() == 2) & (shops == 0), 20 + 3, week["poi_id"].to_numpy())
    visits = read_visits(
        week.set_column(week.column_names.index("poi_id"), "poi_id", pa.array(moved)), SCHEMA, model.history.frame
    )
    period = Period(visits.entity, visits.entity_key, visits.day, PERIOD)
    profile = {"profile": profile_change(model.history.habits, visits, PERIOD[0])}
    tests = model.agents.judge(np.zeros(len(visits)), period, profile)
    assert np.argmax(tests["profile"]) == 2


def test_the_period_of_one_day_is_enough(model, odd):
    assert np.isfinite(model.judge(between(odd, 29, 30)).agent_score).all()


# --------------------------------------------------------------------------------------- any other events
def test_cards_without_places_and_durations_are_judged_by_merchant_and_hour():
    rng = np.random.default_rng(6)
    days, cards = 35, 8
    n = days * cards
    card, day = np.repeat(np.arange(cards), days), np.tile(np.arange(days), cards)
    time = ((FIRST_DAY + day) * 1440 + 720 + rng.integers(-30, 31, n)) * 60_000_000
    table = pa.table(
        {
            "card": card,
            "at": pa.array(time, TIMESTAMP),
            "shop": pa.array([f"shop {c}-{k}" for c, k in zip(card, rng.integers(0, 3, n), strict=True)]),
            "kind": pa.array(["food"] * n),
        }
    )
    schema = EventSchema(
        "cards", (Feature("kind", "categorical"),), entity="card", time="at", habitat="shop", entity_word="card"
    )
    odd = table.slice(n - 1).set_column(1, "at", pa.array(time[-1:] - 540 * 60_000_000, TIMESTAMP))
    parts = [table.filter(pa.array((day >= a) & (day < b))) for a, b in ((0, 21), (21, 28), (28, 35))]
    model = learn_from(parts[0], parts[1], schema)
    judged = model.judge(pa.concat_tables([parts[2], odd]))
    assert np.isfinite(judged.score).all()
    assert int(np.argmax(judged.score)) == len(judged.score) - 1
    assert (judged.surprise["distance"] == 0).all()


# ---------------------------------------------------------------------------------------- entities' p-values
def judge_town(seed):
    """A simulated town: its model and the judgement of the four test weeks of agents that nothing was done to."""
    data = simulate_tables("numosim-la", agents=300, seed=seed)
    split = data.split(SplitConfig())
    train = data.between(split.train_first, split.validation_first - 1)
    week = data.between(split.validation_first, split.test_first - 1)
    test = data.between(split.test_first, split.test_last)
    model = learn_from(train, week, SCHEMA)
    judged = model.judge(test, context=pa.concat_tables([train, week]))
    return model, judged, ~np.isin(judged.entity_ids, data.agent_labels["agent_id"].to_numpy())


@pytest.fixture(scope="module")
def town():
    return judge_town(31)


@pytest.fixture(scope="module")
def towns(town):
    """In one town a few people decide: of 294, three are one in a hundred."""
    return [town, judge_town(131), judge_town(132)]


@pytest.mark.parametrize(("share", "least"), [(0.5, 3), (0.2, 4), (0.1, 3), (0.05, 6)])
def test_p_values_of_normal_agents_over_four_weeks_are_roughly_uniform(towns, share, least):
    """One week calibrates, four are judged: no more than twice what chance would give. No less than a third (a quarter
    of a fifth, a sixth of a twentieth): half of the false alarms are reserved for change without a peak, which normal
    people hardly show. The peaks alone: no more than twice, no less than two fifths."""
    found, peaks = (
        float(np.concatenate([p_values(scores(judged))[normal] <= share for _, judged, normal in towns]).mean())
        for scores in (lambda judged: judged.agent_score, lambda judged: judged.agents["top"])
    )
    assert share / least <= found <= 2 * share
    assert share / 2.5 <= peaks <= 2 * share


def test_a_test_for_diffuse_change_claims_no_more_than_its_reference_can_show(town):
    model, judged, _ = town
    agents = model.agents
    for test in ("shift", "profile"):
        extreme = agents._limit(test, np.array([1e3, 1e6]))
        assert extreme[0] < extreme[1] < np.log10(agents.tests[test].count + 1) + 0.2
    assert judged.agents["top"].max() > 0


def test_more_days_of_the_same_are_no_more_unusual():
    """Scores that are truly -log10 p: the test `top` over four weeks is as uniform as over the week it knows."""
    rng = np.random.default_rng(0)
    entities, a_week = 4000, 21
    week, month = (-np.log10(rng.random((entities, a_week * n))) for n in (1, 4))
    owner = np.arange(entities)
    reference = Distribution.fit(top_mean(week.ravel(), np.repeat(owner, a_week), entities))
    top = top_mean(month.ravel(), np.repeat(owner, 4 * a_week), entities) - np.log10(4)
    p = 10 ** reference.log10_tail(top)
    for share in (0.5, 0.1, 0.01):
        assert (p <= share).mean() == pytest.approx(share, rel=0.35)


def test_many_events_are_compared_in_parts_with_the_same_result(model, odd, monkeypatch):
    known = model.history
    visits = read_visits(odd, SCHEMA, known.frame)
    whole = compare(known.habits, known.population, known.recurrence, visits, period=PERIOD).terms
    monkeypatch.setattr("ustad.habits.in_parts.LEAST_ROWS", 7)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    parted = compare(known.habits, known.population, known.recurrence, visits, period=PERIOD).terms
    for name, values in whole.items():
        np.testing.assert_array_equal(parted[name], values)
