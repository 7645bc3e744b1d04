"""A second red team, by another hand than the first: fourteen ways to plan something and to look normal.

In: lives of a simulation, or any data set of stays. Out: incidents with exact labels. Every kind has a size in a unit
of its own, minutes to kilometres; size 1 is the standard of each kind, 0 changes nothing. The kinds are frozen: a test
keeps a digest of what they make, so that figures measured on them stay comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ustad.config import ConfigError
from ustad.lab.red_team.second_pairs import Pair, drop_letters, meet
from ustad.lab.red_team.second_people import Person, Surroundings, know_person
from ustad.lab.red_team.second_places import (
    make_detour,
    scout,
    shadow,
    sleep_elsewhere,
    substitute,
    widen_circle,
)
from ustad.lab.red_team.second_times import creep_start, drive_slowly, keep_clock, leave_phone, linger, move_day
from ustad.simulate.anomalies import Incident, RedTeam, compare_lives, open_diary
from ustad.simulate.chance import generator, keys
from ustad.simulate.days import Lives
from ustad.simulate.edits import Diary, Edit
from ustad.simulate.setting import Simulation

_ORDER_STREAM, _ACT_STREAM = 61, 70
Act = Callable[[Person, float, np.random.Generator], Edit]
ActTogether = Callable[[Person, Person, float, np.random.Generator], Pair]


@dataclass(frozen=True)
class Kind:
    """One way to misbehave. `standard`: its size in `unit` where the size asked for is 1."""

    unit: str
    standard: float
    role: str  # of the stays that are meant
    act: Act | None = None
    act_together: ActTogether | None = None


KINDS: Mapping[str, Kind] = {
    "scouting": Kind("visits", 4, "inserted", scout),
    "lingering": Kind("minutes", 40, "changed", linger),
    "creeping start": Kind("minutes", 60, "changed", creep_start),
    "other bed": Kind("nights", 2, "changed", sleep_elsewhere),
    "detour": Kind("metres", 4000, "inserted", make_detour),
    "other shop": Kind("metres", 2000, "changed", substitute),
    "wider circle": Kind("metres", 6000, "changed", widen_circle),
    "moved day": Kind("visits", 3, "inserted", move_day),
    "phone at home": Kind("hours", 10, "changed", leave_phone),
    "meeting": Kind("minutes", 45, "inserted", act_together=meet),
    "dead drop": Kind("visits", 3, "inserted", act_together=drop_letters),
    "shadow": Kind("visits", 4, "inserted", shadow),
    "clockwork": Kind("days", 8, "changed", keep_clock),
    "slow drive": Kind("minutes", 25, "changed", drive_slowly),
}


@dataclass(frozen=True)
class Unit:
    """Agents who act together (one, or two) and how."""

    kind: str
    agents: tuple[int, ...]


@dataclass(frozen=True)
class SecondTeam:
    """The second red team for `simulate(…, red_team=SecondTeam(kind, size))`: one kind or `all`, of that size."""

    kind: str = "all"
    size: float = 1.0  # multiplies the standard size of each kind

    def __post_init__(self) -> None:
        check_kind(self.kind, self.size)

    def make_incidents(self, simulation: Simulation, lives: Lives, window: tuple[int, int]) -> list[Incident]:
        """What it does to the agents of these lives, in order of the agents."""
        kinds, around = check_kind(self.kind, self.size), _surroundings(simulation, window)
        here = range(lives.first, lives.first + len(lives.offsets) - 1)
        incidents: list[Incident] = []
        for unit in assign_kinds(around, kinds, simulation.seed):
            if any(agent in here for agent in unit.agents):
                incidents += make_incidents(around, unit, kinds, self.size, seed=simulation.seed)
        return sorted((i for i in incidents if i.agent in here), key=lambda incident: incident.agent)

    def describe(self) -> dict[str, Any]:
        """What `meta.json` says of it."""
        return {"red_team": "second", "red_team_kind": self.kind, "red_team_size": self.size}


def check_kind(kind: str, size: float) -> tuple[str, ...]:
    """The kinds to use: the one named, or all."""
    if kind != "all" and kind not in KINDS:
        raise ConfigError(f"unknown kind '{kind}' of the second red team; choose one of {', '.join(KINDS)} or all")
    if not 0 <= size < float("inf"):
        raise ConfigError(f"red_team_size: a size is 0 or more, got {size}")
    return tuple(KINDS) if kind == "all" else (kind,)


def assign_kinds(around: Surroundings, kinds: Sequence[str], seed: int) -> list[Unit]:
    """Every agent that misbehaves gets a kind in turn; those of a kind for two are paired with a near one."""
    in_order = around.offenders[np.argsort(keys(seed, _ORDER_STREAM, around.offenders), kind="stable")]
    turns = [kind for kind in kinds for _ in range(2 if KINDS[kind].act_together else 1)]
    units: list[Unit] = []
    for kind in kinds:
        agents = [int(agent) for n, agent in enumerate(in_order) if turns[n % len(turns)] == kind]
        pairs = _pair_up(around, agents) if KINDS[kind].act_together else [(agent,) for agent in agents]
        units += [Unit(kind, pair) for pair in pairs]
    return units


def _pair_up(around: Surroundings, agents: list[int]) -> list[tuple[int, ...]]:
    """Each with the nearest of the others who lives elsewhere; one may be left alone."""
    pairs: list[tuple[int, ...]] = []
    left = list(agents)
    while left:
        first = left.pop(0)
        others = [agent for agent in left if around.home[agent] != around.home[first]]
        if others:
            away = around.km(int(around.home[first]), around.home[others])
            second = others[int(np.argmin(away))]
            left.remove(second)
            pairs.append((first, second))
        else:
            pairs.append((first,))
    return pairs


def make_incidents(around: Surroundings, unit: Unit, kinds: Sequence[str], size: float, *, seed: int) -> list[Incident]:
    """What a unit does. Where there are several kinds, an agent without room for its own takes the next with room."""
    people = [know_person(around, agent) for agent in unit.agents]
    together = KINDS[unit.kind].act_together
    if size == 0:
        return []
    if together is not None and len(people) == 2:
        rng = _rng(unit.kind, people[0], seed)
        both = together(people[0], people[1], size * KINDS[unit.kind].standard, rng)
        if both is not None:
            return [_incident(person, unit.kind, edit) for person, edit in zip(people, both, strict=True)]
    at = kinds.index(unit.kind)
    turn = [*kinds[at:], *kinds[:at]]
    results = [_first_with_room(person, turn, size, seed) for person in people]
    return [incident for incident in results if incident is not None]


def _first_with_room(person: Person, kinds: Sequence[str], size: float, seed: int) -> Incident | None:
    for kind in kinds:
        act = KINDS[kind].act
        edit = act(person, size * KINDS[kind].standard, _rng(kind, person, seed)) if act is not None else None
        if edit is not None:
            return _incident(person, kind, edit)
    return None


def _rng(kind: str, person: Person, seed: int) -> np.random.Generator:
    """Of one kind and agent alone, so that other kinds and sizes do not change what is drawn."""
    return generator(seed, _ACT_STREAM + list(KINDS).index(kind), person.agent)


def _incident(person: Person, kind: str, edit: tuple[Diary, list[int]]) -> Incident:
    diary, on_purpose = edit
    return compare_lives(
        person.agent,
        kind,
        person.normal,
        diary,
        on_purpose=on_purpose,
        meant_role=KINDS[kind].role,
        recurring=len(on_purpose) > 1,
    )


def _surroundings(simulation: Simulation, window: tuple[int, int]) -> Surroundings:
    city = simulation.city
    team = RedTeam(
        simulation.preset, city.world, simulation.off, simulation.people.home,
        lambda agent: simulation.normal_lives(agent, agent + 1), simulation.seed,
    )  # fmt: skip

    @lru_cache(maxsize=256)
    def life(agent: int) -> Diary:
        lives = team.life(agent)
        return open_diary(team.travel, lives, slice(0, len(lives.place)), lives.absent, window=window)

    return Surroundings(
        x=city.world.x,
        y=city.world.y,
        category=city.category,
        home=simulation.people.home.astype(np.int64),
        offenders=simulation.anomalous,
        life=life,
    )
