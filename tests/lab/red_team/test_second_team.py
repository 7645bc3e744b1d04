"""The second red team: possible days, exact labels, sizes that are what they say, and no change that goes unnoticed."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "simulate"))
from small_towns import AGENTS, digest, rows, seconds, simulation, town

from ustad.config import ConfigError
from ustad.dataset import load_directory
from ustad.lab.red_team import KINDS, SecondTeam, second_red_team
from ustad.simulate import simulate, simulate_tables
from ustad.simulate.assembly import Part, make_part
from ustad.simulate.days import DAY
from ustad.simulate.routes import travel_seconds
from ustad.tables import Complaints, check_overlaps

TEST_DAY = 14
Stay = tuple[int, int, int]  # place, start, end in seconds since the first midnight
FROZEN = {7: "70f278fa049da03c", 8: "8a56874db0e0fb6a"}


@lru_cache(maxsize=40)
def part(kind: str = "all", size: float = 1.0) -> Part:
    team = replace(simulation(), red_team=SecondTeam(kind, size))
    return make_part(team, 0, AGENTS)


@lru_cache(maxsize=1)
def normal() -> Part:
    return make_part(simulation(0.0), 0, AGENTS)


def lives(table: pa.Table) -> dict[int, list[Stay]]:
    """Stays by agent, in seconds since the first midnight."""
    begin = simulation().first_us // 1_000_000
    columns = (table["agent_id"].to_pylist(), table["poi_id"].to_pylist())
    times = ((seconds(table, name) - begin).tolist() for name in ("started_at", "finished_at"))
    result: dict[int, list[Stay]] = {}
    for agent, place, start, end in zip(*columns, *times, strict=True):
        result.setdefault(agent, []).append((place, start, end))
    return result


def meant(made: Part) -> dict[int, list[Stay]]:
    """Stays by agent that are no mere neighbours."""
    chosen = made.labels.filter(pc.not_equal(made.labels["role"], "neighbour"))
    return lives(made.stays.filter(pc.is_in(made.stays["stay_id"], chosen["stay_id"].combine_chunks())))


def km(a: int, b: int) -> float:
    world = simulation().city.world
    return float(np.hypot(world.x[a] - world.x[b], world.y[a] - world.y[b]))


def before_and_after(made: Part) -> list[tuple[int, list[Stay], list[Stay], list[Stay]]]:
    """Per anomalous agent: the normal life, the changed one, what was meant in it."""
    old, new, chosen = lives(normal().stays), lives(made.stays), meant(made)
    return [(agent, old[agent], new[agent], stays) for agent, stays in chosen.items()]


# ------------------------------------------------------------------------------------------- every kind
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0.3, 3.0])
def test_changed_days_are_possible(kind: str, size: float) -> None:
    made, world, off = part(kind, size), simulation().city.world, simulation().off
    assert check_overlaps(made.stays, Complaints("stays")).equals(made.stays)
    assert kind == "meeting" or made.agent_labels.num_rows > 2
    old = lives(normal().stays)
    for agent, stays in lives(made.stays).items():
        known = {(a[0], a[2], b[0], b[1]) for a, b in pairwise(old[agent])}
        for (place, start, end), (next_place, arrival, _) in pairwise(stays):
            assert end - start >= 360
            if (place, end, next_place, arrival) in known:
                continue
            road = travel_seconds(world, off, place, next_place, float(end))
            slower = 60 * KINDS[kind].standard * size if kind == "slow drive" else 0
            assert place != next_place
            assert 0 <= arrival - end - road <= slower + 60


@pytest.mark.parametrize("kind", [*KINDS, "all"])
def test_labels_are_the_difference_of_the_two_tables(kind: str) -> None:
    made = part(kind)
    labelled = made.stays.filter(pc.is_in(made.stays["stay_id"], made.labels["stay_id"].combine_chunks()))
    assert rows(labelled) == rows(made.stays) - rows(normal().stays)
    assert labelled.num_rows == made.labels.num_rows > 10
    assert set(made.labels["agent_id"].to_pylist()) == set(made.agent_labels["agent_id"].to_pylist())
    of_agent = dict(zip(*(made.agent_labels[n].to_pylist() for n in ("agent_id", "kind")), strict=True))
    for agent, its_kind, role in zip(*(made.labels[n].to_pylist() for n in ("agent_id", "kind", "role")), strict=True):
        assert its_kind == of_agent[agent]
        assert role in (KINDS[its_kind].role, "neighbour")
    assert set(meant(made)) == set(of_agent)


def test_agents_that_are_not_labelled_are_as_they_were_to_the_bit() -> None:
    made = part()
    others = pc.invert(pc.is_in(made.stays["agent_id"], made.agent_labels["agent_id"].combine_chunks()))
    same = normal().stays.filter(pc.is_in(normal().stays["agent_id"], made.stays["agent_id"].filter(others)))
    assert made.stays.filter(others).equals(same)
    early = {row for row in rows(made.stays) if row[3] <= _test_second()}
    assert early == {row for row in rows(normal().stays) if row[3] <= _test_second()}


def _test_second() -> int:
    return simulation().first_us // 1_000_000 + TEST_DAY * int(DAY)


def test_all_kinds_are_used_in_equal_parts_and_everybody_chosen_misbehaves() -> None:
    made = simulate_tables("town", 160, 3, anomalous_share=0.4, red_team=SecondTeam())
    kinds = made.agent_labels["kind"].to_pylist()
    assert len(kinds) == 64
    assert set(kinds) == set(KINDS)
    assert max(kinds.count(kind) for kind in KINDS) <= 12


@pytest.mark.parametrize("kind", [*KINDS, "all"])
def test_size_zero_changes_nothing(kind: str) -> None:
    made = part(kind, 0.0)
    assert made.stays.equals(normal().stays)
    assert made.labels.num_rows == made.agent_labels.num_rows == 0


def test_the_parts_of_a_simulation_do_not_change_what_is_done() -> None:
    team = replace(simulation(), red_team=SecondTeam())
    halves = [make_part(team, 0, 50), make_part(team, 50, AGENTS)]
    assert pa.concat_tables([half.stays for half in halves]).equals(part().stays)
    assert pa.concat_tables([half.labels for half in halves]).equals(part().labels)


# ------------------------------------------------------------------------------------ sizes, kind by kind
@pytest.mark.parametrize("kind", ["scouting", "other bed", "moved day", "dead drop", "shadow", "clockwork"])
def test_counted_kinds_happen_as_often_as_the_size_says(kind: str) -> None:
    wanted = KINDS[kind].standard * 0.6
    counts = [len(stays) for stays in meant(part(kind, 0.6)).values()]
    assert max(counts) <= np.ceil(wanted)
    assert np.mean(np.array(counts) >= np.floor(wanted)) > 0.8


@pytest.mark.parametrize("minutes", [4.0, 40.0])
def test_lingering_prolongs_visits_by_the_size(minutes: float) -> None:
    for _, old, _, chosen in before_and_after(part("lingering", minutes / 40)):
        ends = {stay[:2]: stay[2] for stay in old}
        assert {end - ends[place, start] for place, start, end in chosen} == {60 * minutes}
        assert len({place for place, _, _ in chosen}) == 1


def test_creeping_start_shifts_by_more_every_day_up_to_the_size() -> None:
    for _, old, _, chosen in before_and_after(part("creeping start", 0.5)):
        starts = {(place, end): start for place, start, end in old}
        shifts = np.abs([start - starts[place, end] for place, start, end in chosen])
        assert (np.diff(shifts) > 0).all()
        assert shifts.max() <= 30 * 60
        assert shifts.max() > 30 * 60 * 0.7 or len(shifts) < 4


def test_other_beds_are_somebody_elses() -> None:
    home = simulation().people.home
    for agent, _, _, chosen in before_and_after(part("other bed")):
        assert len({place for place, _, _ in chosen}) == 1
        assert chosen[0][0] in set(home.tolist()) - {int(home[agent])}
        for _, start, end in chosen:
            two = -(-(start - 7200) // DAY) * DAY + 7200  # the next two o'clock
            assert end >= two + 7200
            assert start > two - 12 * 3600


@pytest.mark.parametrize("metres", [1000.0, 4000.0])
def test_detours_are_as_long_as_the_size(metres: float) -> None:
    extra = []
    for _, _, new, chosen in before_and_after(part("detour", metres / 4000)):
        for stay in chosen:
            a, b = new[new.index(stay) - 1][0], new[new.index(stay) + 1][0]
            extra.append(km(a, stay[0]) + km(stay[0], b) - km(a, b))
            assert stay[2] - stay[1] == 420
    assert np.abs(np.array(extra) - metres / 1000).max() <= 0.25 * metres / 1000
    assert np.median(np.abs(np.array(extra) - metres / 1000)) < 0.1


@pytest.mark.parametrize("metres", [500.0, 2000.0])
def test_other_shops_lie_as_far_off_as_the_size(metres: float) -> None:
    category, moved = simulation().city.category, []
    for _, old, new, chosen in before_and_after(part("other shop", metres / 2000)):
        usual = _replaced(old, new, chosen)
        assert all(category[a] == category[b] for a, (b, _, _) in zip(usual, chosen, strict=True))
        moved += [km(a, b) for a, (b, _, _) in zip(usual, chosen, strict=True)]
    assert np.abs(np.array(moved) - metres / 1000).max() <= 0.25 * metres / 1000
    assert len(moved) > 20


def _replaced(old: list[Stay], new: list[Stay], chosen: list[Stay]) -> list[int]:
    """The places that gave way: both lives have as many stays."""
    assert len(old) == len(new)
    return [old[new.index(stay)][0] for stay in chosen]


def test_the_circle_widens_up_to_the_size() -> None:
    last, trends = [], []
    for agent, old, new, chosen in before_and_after(part("wider circle", 0.5)):
        home = int(simulation().people.home[agent])
        usual = _replaced(old, new, chosen)
        farther = [km(home, b) - km(home, a) for a, (b, _, _) in zip(usual, chosen, strict=True)]
        assert max(farther) <= 1.25 * 3.0
        last.append(farther[-1])
        trends += [np.corrcoef(np.arange(len(farther)), farther)[0, 1]] if len(farther) > 2 else []
    assert np.median(last) > 0.75 * 3.0
    assert min(trends) > 0.5


def test_a_moved_errand_keeps_place_hour_and_length() -> None:
    for _, old, new, chosen in before_and_after(part("moved day")):
        gone = [stay for stay in old if stay not in new]
        for place, start, end in chosen:
            steps = [(start - s) / DAY for p, s, e in gone if p == place and e - s == end - start]
            assert any(abs(step) in (1, 2, 3) for step in steps)


@pytest.mark.parametrize("hours", [5.0, 20.0])
def test_the_phone_rests_at_home_for_as_long_as_the_size(hours: float) -> None:
    rested = []
    for agent, old, new, chosen in before_and_after(part("phone at home", hours / 10)):
        home = int(simulation().people.home[agent])
        at_home = [sum(end - start for place, start, end in life if place == home) for life in (old, new)]
        rested.append((at_home[1] - at_home[0]) / 3600)
        assert {place for place, _, _ in chosen} == {home}
    assert max(rested) <= 1.25 * hours
    assert np.median(rested) > 0.75 * hours


@pytest.mark.parametrize("minutes", [15.0, 90.0])
def test_two_meet_at_a_new_place_for_as_long_as_the_size(minutes: float) -> None:
    people = before_and_after(part("meeting", minutes / 45))
    meetings = [stay for _, _, _, chosen in people for stay in chosen]
    assert {end - start for _, start, end in meetings} == {60 * minutes}
    assert all(meetings.count(stay) == 2 for stay in meetings)
    for _, old, _, chosen in people:
        assert not {place for place, _, _ in chosen} & {place for place, _, _ in old}


def test_letters_are_fetched_one_to_three_days_later() -> None:
    visits: dict[int, dict[int, list[int]]] = {}
    for agent, _, _, chosen in before_and_after(part("dead drop")):
        for place, start, _ in chosen:
            visits.setdefault(place, {}).setdefault(agent, []).append(int(start // DAY))
    for by_agent in visits.values():
        assert len(by_agent) == 2
        a, b = by_agent.values()
        assert any(all(any(0 <= y - x <= 4 for y in second) for x in first) for first, second in ((a, b), (b, a)))


def test_shadows_are_where_one_stranger_is() -> None:
    others = lives(normal().stays)
    for agent, _, _, chosen in before_and_after(part("shadow")):
        present = [
            {other for other, life in others.items() if other != agent and any(_is_inside(stay, s) for s in life)}
            for stay in chosen
        ]
        assert set.intersection(*present)


def _is_inside(inner: Stay, outer: Stay) -> bool:
    return inner[0] == outer[0] and outer[1] <= inner[1] and inner[2] <= outer[2]


def test_clockwork_days_have_one_start_and_one_end() -> None:
    for _, _, _, chosen in before_and_after(part("clockwork")):
        assert len({start % DAY for _, start, _ in chosen}) == 1
        assert len({end % DAY for _, _, end in chosen}) == 1


@pytest.mark.parametrize("minutes", [5.0, 50.0])
def test_slow_drives_arrive_later_by_the_size(minutes: float) -> None:
    for _, old, _, chosen in before_and_after(part("slow drive", minutes / 25)):
        starts = {(place, end): start for place, start, end in old}
        assert {start - starts[place, end] for place, start, end in chosen} == {60 * minutes}


# ------------------------------------------------------------------------------------------ from outside
def test_the_same_seed_makes_the_same_town() -> None:
    a, b, c = (simulate_tables("town", 60, seed, anomalous_share=0.5, red_team=SecondTeam()) for seed in (4, 4, 5))
    assert a.events.equals(b.events)
    assert a.labels.equals(b.labels)
    assert not a.labels.equals(c.labels)


def test_phones_record_the_changed_days(tmp_path: Path) -> None:
    team = SecondTeam("scouting", 2.0)
    meta = simulate("town", 12, 3, tmp_path, days=8, phone="logger", anomalous_share=0.5, red_team=team)
    data = load_directory(tmp_path)
    fixes = pa.concat_tables([pa.parquet.read_table(f) for f in sorted((tmp_path / "fixes").glob("*.parquet"))])
    assert (meta["red_team"], meta["red_team_kind"], meta["red_team_size"]) == ("second", "scouting", 2.0)
    visits = data.labels.filter(pc.equal(data.labels["role"], "inserted"))
    stays = data.events.filter(pc.is_in(data.events["stay_id"], visits["stay_id"].combine_chunks()))
    near = []
    for agent, start, end, lat, lon in zip(
        *(stays[n].to_pylist() for n in ("agent_id", "started_at", "finished_at", "lat", "lon")), strict=True
    ):
        there = fixes.filter(
            pc.and_(
                pc.equal(fixes["agent_id"], agent),
                pc.and_(pc.greater(fixes["time"], start), pc.less(fixes["time"], end)),
            )
        )
        off = np.hypot(there["lat"].to_numpy() - lat, (there["lon"].to_numpy() - lon) * np.cos(np.radians(lat))) * 111e3
        near += [float(np.median(off))] if len(off) else []
    assert len(near) > 0.8 * stays.num_rows > 5
    assert np.median(near) < 30


def test_wrong_wishes_are_refused_in_a_line() -> None:
    with pytest.raises(ConfigError, match="scouting, lingering"):
        SecondTeam("scoutin")
    with pytest.raises(ConfigError, match="0 or more"):
        SecondTeam(size=-1.0)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        second_red_team(town(), 1.5, 3)


@pytest.mark.parametrize("seed", FROZEN)
def test_the_red_team_is_frozen(seed: int) -> None:
    """Figures measured on it are comparable only while it makes the same; a new hand makes a third red team."""
    data = simulate_tables("town", 120, seed, anomalous_share=0.5, red_team=SecondTeam())
    assert digest(data) == FROZEN[seed]
