"""What is asked of a simulation, and what its parts share: the city, its people, the calendar, who is anomalous."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ustad.clock import localise
from ustad.config import ConfigError
from ustad.simulate.anomalies import Incident, choose_agents
from ustad.simulate.city import City, Ground, build_city, build_ground
from ustad.simulate.days import Lives, live
from ustad.simulate.people import People, make_households, make_people
from ustad.simulate.presets import Preset, get_preset


class OtherTeam(Protocol):
    """A red team that takes the place of the preset's, such as `ustad.lab.red_team.SecondTeam`."""

    def make_incidents(self, simulation: Simulation, lives: Lives, window: tuple[int, int]) -> list[Incident]:
        """What it does to the agents of these lives within the window (seconds), in order of the agents."""

    def describe(self) -> dict[str, Any]:
        """What `meta.json` says of it."""


@dataclass(frozen=True)
class Simulation:
    """A city with its people and calendar."""

    preset: Preset
    seed: int
    agents: int
    city: City
    people: People
    weekdays: np.ndarray  # int8 [days]
    off: np.ndarray  # bool [days]: nobody has to work
    first_us: int  # UTC microseconds of the first local midnight
    anomalous: np.ndarray
    dirty: np.ndarray
    red_team: OtherTeam | None = None  # instead of the preset's
    plan: SimulationPlan | None = None  # None where it was prepared by hand

    @property
    def days(self) -> int:
        return len(self.weekdays)

    def normal_lives(self, first: int, last: int) -> Lives:
        """The lives of agents first … last - 1 before the red team."""
        return live(
            self.city.world,
            self.people,
            self.preset,
            self.weekdays,
            off=self.off,
            seed=self.seed,
            first=first,
            last=last,
        )


@dataclass(frozen=True)
class SimulationPlan:
    """What decides a simulation. What is None is as the preset has it."""

    preset: str
    agents: int | None = None
    seed: int = 7
    days: int | None = None
    variant: str = "standard"  # of the preset's red team
    dirty: float = 0.0  # share of agents with an anomaly in the training period
    anomalous_share: float | None = None
    osm: Path | None = None  # streets and places from an OpenStreetMap extract
    timezone: str | None = None
    red_team: OtherTeam | None = None  # instead of the preset's

    def prepare(self) -> Simulation:
        """Build the city and its people."""
        preset, ground = get_preset(self.preset, self.variant), None
        for name, share in (("dirty", self.dirty), ("anomalous_share", self.anomalous_share)):
            if share is not None and not 0 <= share <= 1:
                raise ConfigError(f"{name}: a share lies between 0 and 1, got {share}")
        if self.anomalous_share is not None:
            preset = replace(preset, anomalous_share=self.anomalous_share)
        if self.osm is not None:
            from ustad.simulate.osm_city import read_ground

            preset, ground = read_ground(preset, Path(self.osm), self.timezone, self.seed)
        elif self.timezone is not None:
            preset = replace(preset, timezone=self.timezone)
        agents = preset.agents if self.agents is None else self.agents
        days = preset.days if self.days is None else self.days
        simulation = prepare(preset, agents, self.seed, days, dirty=self.dirty, ground=ground)
        return replace(simulation, red_team=self.red_team, plan=self)


def prepare(
    preset: Preset, agents: int, seed: int, days: int, *, dirty: float = 0.0, ground: Ground | None = None
) -> Simulation:
    """Build the city and its people. `ground`: a real city instead of a procedural one."""
    if agents < 1:
        raise ConfigError(f"agents: at least one is needed, got {agents}")
    test_day = _test_day(preset, days)
    first_us = _first_midnight(preset, days)
    households = make_households(agents, seed)
    city = build_city(ground or build_ground(preset, seed), len(households.size), seed)
    weekdays = ((np.arange(days) + preset.first_day.weekday()) % 7).astype(np.int8)
    holidays = [(holiday - preset.first_day).days for holiday in preset.holidays]
    off = np.isin(weekdays, preset.weekend) | np.isin(np.arange(days), holidays)
    return Simulation(
        preset=replace(preset, days=days, test_day=test_day),
        seed=seed,
        agents=agents,
        city=city,
        people=make_people(city, households, seed),
        weekdays=weekdays,
        off=off,
        first_us=first_us,
        anomalous=choose_agents(agents, preset.anomalous_share, seed),
        dirty=choose_agents(agents, dirty, seed, dirty=True),
    )


def _test_day(preset: Preset, days: int) -> int:
    """The first test day: the preset's, or the same share of another span."""
    if days < 3:
        raise ConfigError(f"days: at least three are needed for train, validation and test, got {days}")
    return (
        preset.test_day if days == preset.days else min(days - 1, max(2, round(days * preset.test_day / preset.days)))
    )


def _first_midnight(preset: Preset, days: int) -> int:
    """UTC microseconds of the first midnight; spans that cross a change of the clock are refused."""
    dates = np.datetime64(preset.first_day.isoformat(), "us") + np.arange(days + 1) * np.timedelta64(1, "D")
    midnights = localise(pa.chunked_array([pa.array(dates)]), preset.timezone).cast(pa.int64()).to_numpy()
    days_changing = np.flatnonzero(np.diff(midnights) != 86_400_000_000)
    if len(days_changing):
        day = preset.first_day + timedelta(days=int(days_changing[0]))
        raise ConfigError(
            f"days: the clock changes in {preset.timezone} on {day}; simulate at most {days_changing[0]} days"
        )
    return int(midnights[0])
