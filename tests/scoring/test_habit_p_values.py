"""p-values by habits of people who did not calibrate: as often small as they say, also where few people calibrated."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import between, make_routine
from whole_scores import with_history

from ustad.distribution import FOLDS, Distribution
from ustad.events.visits import Frame, read_visits
from ustad.habits.habit_source import HabitSource
from ustad.habits.history import Habits
from ustad.habits.population import Population
from ustad.habits.questions import TERMS
from ustad.judges import learn_from
from ustad.lessons import take_whole_week
from ustad.schema import mobility_schema
from ustad.scoring.adding_judge import p_values
from ustad.scoring.looks import Groups, LookTails, unit_weights

SCHEMA = mobility_schema()
PEOPLE, EVENTS, TOWNS = 12, 25, 180


def _terms(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Raw terms of people who differ from each other as much as their events do, with heavy tails."""
    shape = (PEOPLE, EVENTS)
    return {name: np.exp(rng.normal(size=(PEOPLE, 1)) + rng.normal(size=shape)).ravel() for name in TERMS}


@pytest.fixture(scope="module")
def shares() -> dict[str, dict[float, float]]:
    """How often new people have p-values up to a level: by the groups, and by what the reference says of itself."""
    rng, entity = np.random.default_rng(0), np.repeat(np.arange(PEOPLE), EVENTS)
    everybody, weights, levels = np.ones(len(entity), bool), unit_weights([HabitSource.looks]), (0.2, 0.05, 0.01)
    found: dict[str, dict[float, list[float]]] = {way: {p: [] for p in levels} for way in ("groups", "itself")}
    for _ in range(TOWNS):
        known, new = _terms(rng), _terms(rng)
        whole = LookTails.fit(known, everybody, weights)
        key = rng.integers(1, 2**60, PEOPLE).astype(np.uint64)
        groups = Groups.of(entity, key, everybody).scores(known, weights, whole)
        for way, reference in (("groups", groups), ("itself", whole.highest(known, weights))):
            p = 10 ** Distribution.fit(reference).log10_tail(whole.highest(new, weights))
            for level in levels:
                found[way][level].append(float((p <= level).mean()))
    return {way: {level: float(np.mean(v)) for level, v in of.items()} for way, of in found.items()}


@pytest.mark.parametrize(("level", "within"), [(0.2, 0.25), (0.05, 0.25), (0.01, 0.75)])
def test_new_people_have_small_p_values_as_often_as_they_say(shares: dict, level: float, within: float) -> None:
    """Twelve people calibrate; means over 180 towns, within a quarter of the level (three quarters of a hundredth:
    twelve people say little of what one in a hundred does)."""
    assert shares["groups"][level] == pytest.approx(level, rel=within)


def test_a_reference_that_judges_itself_claims_too_much(shares: dict) -> None:
    assert shares["itself"][0.05] > 1.15 * shares["groups"][0.05]


def test_people_who_were_held_back_from_a_small_town_are_not_flagged_too_often() -> None:
    """Eight people calibrate and eight are judged, in twelve towns: one event in twenty and one person in five, within
    three standard errors of what the towns themselves differ by. The bound is none that these seeds were fitted to."""
    found = []
    for seed in range(12):
        life = make_routine(seed=seed, agents=16, days=28)
        train, week = between(life, 0, 21), between(life, 21, 28)
        half = week["agent_id"].to_numpy() % 2 == 0
        model = learn_from(train, week, SCHEMA, half)
        alone = with_history(model, habits=Habits.fit(read_visits(train, SCHEMA, model.history.frame)))
        judged = alone.judge(week.filter(pa.array(~half)))
        top = np.power(10.0, -judged.agents["top"])
        found.append([(p_values(judged.score) <= 0.05).mean(), (top <= 0.2).mean()])
    share, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert (error < [0.025, 0.08]).all(), "twelve towns say something"
    np.testing.assert_array_less(np.abs(share - [0.05, 0.2]), 3 * error)


# --------------------------------------------------------------------------------------------------- groups
def test_groups_hold_whole_people_and_do_not_depend_on_the_order_of_codes() -> None:
    rng = np.random.default_rng(1)
    key, entity = rng.integers(1, 2**60, 23).astype(np.uint64), rng.integers(0, 23, 400)
    normal = entity % 3 > 0
    groups = Groups.of(entity, key, normal)
    assert set(groups.group[normal]) == set(range(FOLDS))
    assert (groups.group[~normal] == -1).all()
    assert all(len(np.unique(groups.group[entity == person])) == 1 for person in np.unique(entity))
    other = rng.permutation(23)
    renamed = Groups.of(np.argsort(other)[entity], key[other], normal)
    np.testing.assert_array_equal(renamed.group, groups.group)


def test_nobody_is_judged_by_terms_that_they_helped_to_fit() -> None:
    """A reference person whose events move away from all others scores as a stranger there would."""
    rng, entity = np.random.default_rng(2), np.repeat(np.arange(PEOPLE), EVENTS)
    key, everybody, weights = (
        np.arange(1, PEOPLE + 1).astype(np.uint64),
        np.ones(len(entity), bool),
        unit_weights([HabitSource.looks]),
    )
    raw = _terms(rng)
    raw = {name: np.where(entity == 3, 1e6, values) for name, values in raw.items()}
    groups = Groups.of(entity, key, everybody)
    scores = groups.scores(raw, weights, LookTails.fit(raw, everybody, weights))
    others = everybody & (groups.group != groups.group[entity == 3][0])
    stranger = LookTails.fit(raw, others, weights).highest(
        {name: values[entity == 3] for name, values in raw.items()}, weights
    )
    np.testing.assert_allclose(scores[entity == 3], stranger)


def test_a_single_person_calibrates_for_want_of_others() -> None:
    life = make_routine(seed=1, agents=1, days=28)
    model = learn_from(between(life, 0, 21), between(life, 21, 28), SCHEMA)
    assert np.isfinite(model.judge(between(life, 21, 28)).score).all()


# ------------------------------------------------------------------------------------------------- population
def test_the_population_of_a_group_leaves_out_its_own_calibration_week() -> None:
    life = make_routine(seed=4, agents=12, days=28)
    week = between(life, 21, 28)
    frame = Frame.fit(life, SCHEMA)
    learnt, judged = (read_visits(table, SCHEMA, frame) for table in (life, week))
    since, kinds, rows_seen = int(judged.day.min()), len(frame.categories) + 1, []
    for rows, population in Population.fit_others(learnt, judged, since, kinds):
        people = set(judged.entity_ids[np.unique(judged.entity[rows])].tolist())
        inside = np.isin(life["agent_id"].to_numpy(), list(people))
        late = np.isin(life["stay_id"].to_numpy(), week["stay_id"].to_numpy())
        by_hand = Population.fit(read_visits(life.filter(pa.array(~(inside & late))), SCHEMA, frame), kinds)
        np.testing.assert_allclose(population.start, by_hand.start)
        np.testing.assert_allclose(population.duration, by_hand.duration)
        rows_seen.append(rows)
    np.testing.assert_array_equal(np.sort(np.concatenate(rows_seen)), np.arange(len(judged)))


def test_where_two_weeks_are_known_the_last_of_them_calibrates() -> None:
    life = make_routine(seed=1, agents=3, days=28)
    train, week = take_whole_week(between(life, 0, 10), between(life, 10, 14), SCHEMA)
    assert week.equals(between(life, 7, 14)) or week.sort_by("stay_id").equals(between(life, 7, 14).sort_by("stay_id"))
    assert train.num_rows + week.num_rows == between(life, 0, 14).num_rows
    short, long = (between(life, 0, 9), between(life, 9, 12)), (between(life, 0, 14), between(life, 14, 21))
    for parts in (short, long):  # twelve days are not two weeks, and a week is one already
        assert take_whole_week(*parts, SCHEMA) == parts
