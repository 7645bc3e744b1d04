"""Who lives in the city: households and the roles of their members, one row per agent.

Every value follows from the seed and the number of the household or agent alone, so the first thousand people
are the same in a town of a thousand and in one of a million.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ustad.simulate.catalogue import BY_NAME
from ustad.simulate.chance import uniforms
from ustad.simulate.city import City

OFFICE, SHIFT, PUPIL, STUDENT, RETIREE, FREELANCER, CARER, TOURIST = range(8)
ROLES = ("office worker", "shift worker", "pupil", "student", "retiree", "freelancer", "carer", "tourist")
_SIZE_STREAM, _ROLE_STREAM, _HOTEL_STREAM = 11, 12, 13
_SIZES = np.cumsum([0.28, 0.34, 0.16, 0.15, 0.07])
_TOURIST_SHARE = 0.015
_RETIRED_SHARE = 0.27  # of households of one or two
_ADULT_ROLES = ((OFFICE, 0.55), (SHIFT, 0.2), (FREELANCER, 0.13), (STUDENT, 0.07), (CARER, 0.05))


@dataclass(frozen=True)
class Households:
    """Which household each agent belongs to, and each agent's position in it."""

    of_agent: np.ndarray  # int64 [A]
    member: np.ndarray  # int64 [A]: 0 is the first adult
    size: np.ndarray  # int64 [H]


@dataclass(frozen=True)
class People:
    """One row per agent."""

    household: np.ndarray  # int64
    role: np.ndarray  # int8
    home: np.ndarray  # int32: a place
    drives_child: np.ndarray  # bool: takes a child of the household to school


def make_households(agents: int, seed: int) -> Households:
    """Households of one to five until every agent has one."""
    draw = uniforms(seed, _SIZE_STREAM, np.arange(agents))
    size = np.minimum(np.searchsorted(_SIZES, draw, side="right"), 4) + 1
    last = np.cumsum(size)
    count = int(np.searchsorted(last, agents)) + 1
    size, last = size[:count].copy(), last[:count]
    size[-1] -= last[-1] - agents
    of_agent = np.repeat(np.arange(count), size)
    member = np.arange(agents) - np.repeat(np.cumsum(size) - size, size)
    return Households(of_agent, member, size)


def make_people(city: City, households: Households, seed: int) -> People:
    """Roles and homes of all agents."""
    number = np.arange(len(households.size))
    size = households.size[households.of_agent]
    role = _adult_roles(seed, len(size))
    child = households.member >= 2
    student = uniforms(seed, _ROLE_STREAM + 200, np.arange(len(size))) < 0.22
    role = np.where(child, np.where(student, STUDENT, PUPIL), role)
    at_home = (households.member == 1) & (size >= 3) & (uniforms(seed, _ROLE_STREAM + 300, np.arange(len(size))) < 0.22)
    role = np.where(at_home, CARER, role)
    is_retired = (uniforms(seed, _ROLE_STREAM + 400, number) < _RETIRED_SHARE) & (households.size <= 2)
    role = np.where(is_retired[households.of_agent], RETIREE, role)
    home = city.first_home + households.of_agent
    visiting = uniforms(seed, _HOTEL_STREAM, number) < _TOURIST_SHARE
    hotels = np.flatnonzero(city.category[: city.first_home] == BY_NAME["hotel"])
    if len(hotels):
        hotel = hotels[(uniforms(seed, _HOTEL_STREAM + 100, number) * len(hotels)).astype(np.int64)]
        tourist = visiting[households.of_agent]
        role = np.where(tourist, TOURIST, role)
        home = np.where(tourist, hotel[households.of_agent], home)
    drives = _drivers(households, role)
    return People(households.of_agent, role.astype(np.int8), home.astype(np.int32), drives)


def _adult_roles(seed: int, agents: int) -> np.ndarray:
    bounds = np.cumsum([share for _, share in _ADULT_ROLES])
    draw = uniforms(seed, _ROLE_STREAM, np.arange(agents))
    codes = np.array([role for role, _ in _ADULT_ROLES])
    return codes[np.minimum(np.searchsorted(bounds, draw, side="right"), len(codes) - 1)]


def _drivers(households: Households, role: np.ndarray) -> np.ndarray:
    """The second adult of a household with a pupil takes the child to school."""
    with_pupil = np.zeros(len(households.size), bool)
    with_pupil[households.of_agent[role == PUPIL]] = True
    return with_pupil[households.of_agent] & (households.member == 1) & (role != TOURIST)
