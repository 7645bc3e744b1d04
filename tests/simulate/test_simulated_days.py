"""Lives of simulated people: possible, complete, theirs alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_towns import AGENTS, DAYS, part, seconds, simulation, town

from ustad.config import ConfigError
from ustad.simulate import simulate_tables
from ustad.simulate.people import PUPIL, ROLES, TOURIST, make_households
from ustad.simulate.routes import travel_seconds
from ustad.tables import GAPS, POIS, STAYS, TRIPS, Complaints, check_overlaps, event_keys, validate


def test_tables_keep_their_contracts() -> None:
    made = part()
    for table, contract in ((made.stays, STAYS), (made.trips, TRIPS), (made.gaps, GAPS), (town().pois, POIS)):
        checked, complaints = validate(table, contract)
        assert complaints.bad_rows == 0
        assert checked.num_rows == table.num_rows
    check_overlaps(made.stays, Complaints("stays"))
    assert (made.stays["stay_id"].to_numpy() == event_keys(made.stays["agent_id"], made.stays["started_at"])).all()
    assert len(set(made.stays["stay_id"].to_pylist())) == made.stays.num_rows


def test_stays_trips_and_gaps_tile_every_agents_time() -> None:
    made = part()
    tables = (made.stays, made.trips, made.gaps)
    agent = np.concatenate([t["agent_id"].to_numpy() for t in tables])
    start = np.concatenate([seconds(t, "started_at") for t in tables])
    end = np.concatenate([seconds(t, "finished_at") for t in tables])
    order = np.lexsort((start, agent))
    agent, start, end = agent[order], start[order], end[order]
    same = agent[1:] == agent[:-1]
    assert (start[1:][same] == end[:-1][same]).all()
    first, last = np.r_[True, ~same], np.r_[~same, True]
    assert len(np.unique(start[first])) == 1
    assert (end[last] - start[first] == DAYS * 86_400).all()
    assert len(np.unique(agent)) == AGENTS


def test_every_trip_takes_what_the_road_takes() -> None:
    simulated, made = simulation(), part()
    place = dict(zip(made.stays["stay_id"].to_pylist(), made.stays["poi_id"].to_pylist(), strict=True))
    first = simulated.first_us // 1_000_000
    start, end = seconds(made.trips, "started_at") - first, seconds(made.trips, "finished_at") - first
    ends = zip(made.trips["origin_stay_id"].to_pylist(), made.trips["destination_stay_id"].to_pylist(), strict=True)
    for k, (origin, destination) in list(enumerate(ends))[::7]:
        needed = travel_seconds(simulated.city.world, simulated.off, place[origin], place[destination], float(start[k]))
        assert end[k] - start[k] == needed


def test_paths_begin_and_end_with_their_trips() -> None:
    trips = part().trips
    paths = trips["path"].combine_chunks()
    offsets = paths.offsets.to_numpy()
    time = paths.values.field("time").cast(pa.int64()).to_numpy() // 1_000_000
    assert (time[offsets[:-1]] == seconds(trips, "started_at")).all()
    assert (time[offsets[1:] - 1] == seconds(trips, "finished_at")).all()


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**40), st.integers(3, 40), st.integers(3, 12))
def test_any_seed_and_size_gives_valid_stays(seed: int, agents: int, days: int) -> None:
    data = simulate_tables("town", agents, seed, days)
    validate(data.events, STAYS)
    check_overlaps(data.events, Complaints("stays"))
    minutes = (seconds(data.events, "finished_at") - seconds(data.events, "started_at")) / 60
    assert minutes.min() >= 5
    assert set(data.events["timezone"].to_pylist()) == {"Europe/Berlin"}


def test_an_agents_life_does_not_depend_on_who_is_made_with_it() -> None:
    simulated = simulation()
    whole, alone = simulated.normal_lives(0, 60), simulated.normal_lives(37, 38)
    rows = slice(whole.offsets[37], whole.offsets[38])
    assert np.array_equal(whole.place[rows], alone.place)
    assert np.array_equal(whole.arrival[rows], alone.arrival)
    assert np.array_equal(whole.departure[rows], alone.departure)


def test_another_seed_is_another_town() -> None:
    a, b = (simulate_tables("town", 10, seed, 5) for seed in (1, 2))
    assert not a.pois.equals(b.pois)
    assert not a.events.equals(b.events)


def test_people_differ_in_role_and_regularity() -> None:
    simulated = simulation()
    lives = simulated.normal_lives(0, AGENTS)
    assert len(np.unique(simulated.people.role)) >= len(ROLES) - 2
    assert lives.regularity.min() < 0.4
    assert lives.regularity.max() > 0.9
    anchored = np.flatnonzero((lives.anchor >= 0) & (simulated.people.role != TOURIST))
    spread = []
    for agent in anchored:
        rows = slice(lives.offsets[agent], lives.offsets[agent + 1])
        arrivals = lives.arrival[rows][lives.place[rows] == lives.anchor[agent]]
        starts = arrivals[np.unique(arrivals // 86_400, return_index=True)[1]] % 86_400  # not after lunch
        spread.append(np.std(starts) if len(starts) > 4 else np.nan)
    spread, regular = np.array(spread), lives.regularity[anchored]
    fixed = simulated.people.role[anchored] == 0  # office workers, whose hours do not rotate
    clockwork, erratic = spread[fixed & (regular > 0.8)], spread[fixed & (regular < 0.6)]
    assert np.nanmedian(clockwork) < np.nanmedian(erratic)


def test_pupils_of_one_household_go_to_one_school() -> None:
    simulated = simulation()
    lives = simulated.normal_lives(0, AGENTS)
    pupils = np.flatnonzero(simulated.people.role == PUPIL)
    for household in np.unique(simulated.people.household[pupils]):
        schools = lives.anchor[pupils[simulated.people.household[pupils] == household]]
        assert len(np.unique(schools)) == 1


def test_households_are_the_same_in_a_larger_town() -> None:
    small, large = make_households(50, 9), make_households(5_000, 9)
    assert np.array_equal(small.of_agent, large.of_agent[:50])
    assert small.size.sum() == 50
    assert large.size.sum() == 5_000


def test_a_span_that_crosses_a_change_of_the_clock_is_refused() -> None:
    with pytest.raises(ConfigError, match="the clock changes in Europe/Berlin on 2024-10-27"):
        simulate_tables("town", 5, 1, days=200)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "atlantis"}, "unknown preset 'atlantis'; choose one of numosim-la"),
        ({"preset": "town", "variant": "easy"}, "unknown variant 'easy'"),
        ({"preset": "town", "agents": -1}, "agents: at least one"),
        ({"preset": "town", "agents": 5, "days": 2}, "days: at least three"),
        ({"preset": "town", "agents": 5, "dirty": 2.0}, "dirty: a share lies between 0 and 1"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate_tables(**arguments)  # type: ignore[arg-type]  # wrong on purpose
