"""Distance from the agent's own places against the great circle, and its neighbours' maximum."""

import numpy as np
import pytest
from example_towns import changed, town
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.geo import haversine_km
from ustad.lab.baselines.distance import OwnPlaceDistance
from ustad.lab.baselines.protocol import neighbours_maximum


@pytest.fixture(scope="module")
def fitted():
    return OwnPlaceDistance(spread=False, device="cpu").fit(town(agents=5, days=4), town(agents=5, days=1, first_day=4))


def test_a_stay_at_an_own_place_scores_nothing_and_a_new_place_its_distance(fitted):
    moved = changed(town(agents=5, days=2, first_day=6), 3, lat=60.0, lon=26.0)
    score = fitted.score(moved).events["score"].to_numpy()
    lat, lon = (fitted.places[c].to_numpy() for c in ("lat", "lon"))
    own = fitted.places["agent_id"].to_numpy() == 0
    assert score[3] == pytest.approx(haversine_km(60.0, 26.0, lat[own], lon[own]).min(), rel=1e-9)
    assert np.delete(score, 3).max() < 0.01  # places are rounded to about 10 m


def test_another_agents_place_is_not_an_own_place(fitted):
    homes = fitted.places["lat"].to_numpy()
    other = homes[fitted.places["agent_id"].to_numpy() == 1][0]
    lon = fitted.places["lon"].to_numpy()[fitted.places["agent_id"].to_numpy() == 1][0]
    moved = changed(town(agents=5, days=1, first_day=6), 0, lat=float(other), lon=float(lon))
    assert fitted.score(moved).events["score"][0].as_py() > 0.1


def test_an_agent_nobody_knows_is_measured_against_everybodys_places(fitted):
    stranger = changed(town(agents=5, days=1, first_day=6), 1, agent_id=99)  # at work, where everybody works
    assert fitted.score(stranger).events["score"][1].as_py() < 0.01


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=12, max_size=12))
def test_the_neighbours_maximum_stays_within_an_agent(values):
    events = town(agents=3, days=1)
    score = np.array(values)
    spread = neighbours_maximum(score, events, "agent_id", "started_at")
    for agent in range(3):
        own = score[4 * agent : 4 * agent + 4]
        slow = [max(own[max(0, i - 1) : i + 2]) for i in range(4)]
        assert spread[4 * agent : 4 * agent + 4].tolist() == slow


def test_with_spread_the_neighbours_of_a_new_place_score_as_high(fitted):
    moved = changed(town(agents=5, days=2, first_day=6), 2, lat=60.0, lon=26.0)
    spread = OwnPlaceDistance(device="cpu").fit(town(agents=5, days=4), town(agents=5, days=1, first_day=4))
    score = spread.score(moved).events["score"].to_numpy()
    assert score[1] == score[2] == score[3] > 10
