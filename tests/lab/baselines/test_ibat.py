"""IBAT isolates a planted detour sooner, and agrees with a slow version."""

import numpy as np
import pytest
from example_towns import changed, town

from ustad.config import ConfigError
from ustad.lab.baselines.ibat import Ibat, _isolate, _membership, _path_length, distinct_cells
from ustad.lab.baselines.trajectory_grid import agent_days
from ustad.schema import EventSchema, Feature
from ustad.tables import DataError

SETTINGS = {"trials": 50, "subsample": 64, "device": "cpu"}


@pytest.fixture(scope="module")
def fitted():
    return Ibat(**SETTINGS).fit(town(), town(days=2, first_day=8))


def test_a_planted_detour_is_isolated_sooner_than_every_other_agent(fitted):
    test = town(days=3, first_day=10)
    detour = changed(test, 6, lat=60.4, lon=24.1)  # agent 0's shop on its second day, far from everything
    agents = fitted.score(detour).agents
    score = agents["score"].to_numpy()
    assert score[0] > score[1:].max()
    assert fitted.score(test).agents["score"].to_numpy()[0] < score[0]


def test_an_agent_is_as_unusual_as_its_most_unusual_day(fitted):
    test = town(days=3, first_day=10)
    days = agent_days(test, fitted.schema, fitted.projection, "ibat")
    by_day = fitted.rate_days(days)
    expected = [by_day[days.agent == a].max() for a in range(len(days.agents))]
    assert np.allclose(fitted.score(test).agents["score"].to_numpy(), expected)


def test_isolation_agrees_with_a_slow_version(fitted):
    test = agent_days(town(days=3, first_day=10), fitted.schema, fitted.projection, "ibat")
    cells, offsets = distinct_cells(test, fitted.grid)
    chosen = np.arange(0, len(fitted.offsets) - 1, 3)
    members = _membership(fitted.cells, fitted.offsets, chosen, fitted.grid.size)
    fast = _isolate(cells, offsets, test.key, members, len(chosen))
    reference = [set(fitted.cells[fitted.offsets[d] : fitted.offsets[d + 1]]) for d in chosen]
    for day in range(len(test)):
        mine = set(cells[offsets[day] : offsets[day + 1]])
        survivors = [r for r in reference if mine <= r]
        if survivors:  # never alone: every cell is used, whatever the order
            assert fast[day] == pytest.approx(len(mine) + (_path_length(len(survivors)) if len(survivors) > 1 else 0))
        else:
            assert 1 <= fast[day] <= len(mine)


def test_a_day_in_an_unknown_cell_needs_one_cell_when_it_has_no_other(fitted):
    alone = changed(town(agents=1, days=1, first_day=10).slice(0, 1), 0, lat=61.0)
    assert fitted.score(alone).agents["score"][0].as_py() > 2.0 ** (-1.01 / _path_length(64.0))


def test_scores_do_not_depend_on_which_agents_are_scored_together(fitted):
    test = town(days=3, first_day=10)
    whole = fitted.score(test).agents["score"].to_numpy()
    part = fitted.score(test.slice(0, 12 * 5)).agents["score"].to_numpy()
    assert np.array_equal(whole[:5], part)


def test_another_seed_draws_other_cells_but_the_same_seed_the_same(fitted):
    test = town(days=2, first_day=10)
    again = Ibat(**SETTINGS).fit(town(), town(days=2, first_day=8)).score(test).agents["score"].to_numpy()
    other = Ibat(seed=8, **SETTINGS).fit(town(), town(days=2, first_day=8)).score(test).agents["score"].to_numpy()
    assert np.array_equal(again, fitted.score(test).agents["score"].to_numpy())
    assert not np.array_equal(again, other)


def test_it_scores_no_events_and_says_what_is_wrong():
    with pytest.raises(ConfigError, match="did you mean 'trials'"):
        Ibat(trails=3)
    with pytest.raises(DataError, match="before scoring"):
        Ibat().score(town())
    cards = EventSchema("cards", (Feature("amount", "numeric"),), entity="agent_id", time="started_at")
    with pytest.raises(DataError, match="needs a place"):
        Ibat(cards).fit(town(), town())
