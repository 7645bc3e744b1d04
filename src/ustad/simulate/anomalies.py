"""The red team: which agents misbehave, how, and what their days would have been.

Some follow NUMOSIM's published rules. A visit is inserted; its neighbours give up the time and are labelled too. A
recurring anomaly keeps its place and time of day. Most inserted places come from other agents' lives. Other kinds are
ours: odd hours at own places, leaving early or late, skipped routines, swapped order, changed frequency, long stays.
Labels are the stays that differ from the normal life, found by comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ustad.simulate.chance import generator, keys
from ustad.simulate.days import DAY, Lives
from ustad.simulate.edits import (
    Diary,
    Edit,
    Travel,
    insert_at,
    insert_between,
    leave_early,
    leave_late,
    skip,
    stay_long,
    swap_order,
)
from ustad.simulate.presets import Preset
from ustad.simulate.routes import World, travel_seconds

_CHOICE_STREAM, _RED_STREAM, _DIRTY_STREAM = 31, 32, 33
_TRIES = 60
ALWAYS_RECURRING = {"frequency"}


@dataclass(frozen=True)
class Incident:
    """What the red team did to one agent: the new diary, which of its stays changed, and their roles."""

    agent: int
    kind: str
    recurring: bool
    place: np.ndarray
    arrival: np.ndarray
    departure: np.ndarray
    is_changed: np.ndarray  # bool: differs from the normal life
    role: np.ndarray  # str: inserted, changed or neighbour, "" where nothing changed
    before: np.ndarray  # int64 [n, 3]: place, arrival, departure of the same days in the normal life


@dataclass(frozen=True)
class RedTeam:
    """What the red team knows of the world. `life(agent)` gives the normal life of any agent."""

    preset: Preset
    world: World
    off: np.ndarray
    home: np.ndarray
    life: Callable[[int], Lives]
    seed: int

    def travel(self, origin: int, destination: int, departure: int) -> int:
        return int(travel_seconds(self.world, self.off, origin, destination, float(departure)))


def choose_agents(agents: int, share: float, seed: int, dirty: bool = False) -> np.ndarray:
    """Exactly the share of the agents (at least one where the share is above 0), by a hash of their number."""
    count = min(agents, max(1, round(share * agents))) if share > 0 else 0
    key = keys(seed, _DIRTY_STREAM if dirty else _CHOICE_STREAM, np.arange(agents))
    return np.sort(np.argsort(key, kind="stable")[:count])


def make_incident(
    team: RedTeam, agent: int, lives: Lives, window: tuple[int, int], *, dirty: bool = False
) -> Incident | None:
    """An anomaly of one agent inside the window (seconds); None where its life leaves no room for any."""
    rng = generator(team.seed, (_DIRTY_STREAM if dirty else _RED_STREAM) + 100, agent)
    row = agent - lives.first
    rows = slice(lives.offsets[row], lives.offsets[row + 1])
    absent = lives.absent[lives.absent_offsets[row] : lives.absent_offsets[row + 1]]
    normal = open_diary(team.travel, lives, rows, absent, window=window)
    kinds, weights = list(team.preset.kinds), np.array(list(team.preset.kinds.values()))
    for attempt in range(8):
        kind = str(rng.choice(kinds, p=weights / weights.sum())) if attempt < 6 else "new place"
        recurring = bool(rng.random() < team.preset.recurring_share) or kind in ALWAYS_RECURRING
        diary, on_purpose = _misbehave(team, agent, normal, kind, recurring=recurring, window=window, rng=rng)
        if on_purpose:
            role = "inserted" if kind in ("new place", "odd hour", "frequency") else "changed"
            return compare_lives(
                agent,
                kind,
                normal,
                diary,
                on_purpose=on_purpose,
                meant_role=role,
                recurring=recurring and len(on_purpose) > 1,
            )
    return None


def open_diary(travel: Travel, lives: Lives, rows: slice, absent: np.ndarray, *, window: tuple[int, int]) -> Diary:
    """The diary of one agent; free are the stays inside the window that no absence touches."""
    arrival, departure = lives.arrival[rows], lives.departure[rows]
    free = (arrival >= window[0]) & (departure < window[1])
    free &= ~np.isin(departure, absent[:, 0]) & ~np.isin(arrival, absent[:, 1])
    return Diary(lives.place[rows], arrival, departure, free, travel)


def _misbehave(
    team: RedTeam,
    agent: int,
    normal: Diary,
    kind: str,
    *,
    recurring: bool,
    window: tuple[int, int],
    rng: np.random.Generator,
) -> tuple[Diary, list[int]]:
    """Apply one kind once, or on several days where it recurs; returns the diary and the arrivals that were meant."""
    low, high = team.preset.recurring_days
    count = int(rng.integers(low, high + 1)) if recurring else 1
    act = _actor(team, agent, normal, kind, count=count, window=window, rng=rng)
    diary = normal
    on_purpose: list[int] = []
    for _ in range(_TRIES):
        if len(on_purpose) >= count or act is None:
            break
        edit = act(diary)
        if edit is not None:
            diary, on_purpose = edit[0], on_purpose + edit[1]
    return diary, on_purpose


def _actor(
    team: RedTeam,
    agent: int,
    normal: Diary,
    kind: str,
    *,
    count: int,
    window: tuple[int, int],
    rng: np.random.Generator,
) -> Callable[[Diary], Edit] | None:
    """A function that tries the anomaly once, at the same place and hour each time it is called."""
    home = int(team.home[agent])
    if kind == "new place":
        return _new_place(team, agent, normal, count, window=window, rng=rng)
    if kind == "odd hour":
        return _odd_hour(normal, home, window, rng)
    if kind == "frequency":
        return _frequency(normal, home, window, rng)
    simple: dict[str, Callable[[Diary, int], Edit]] = {
        "left early": lambda diary, k: leave_early(diary, k, rng.uniform(0.15, 0.5)),
        "left late": lambda diary, k: leave_late(diary, k, int(rng.uniform(2.0, 5.0) * 3600)),
        "skipped": skip,
        "swapped order": swap_order,
        "long stay": lambda diary, k: stay_long(diary, k, int(rng.uniform(6.0, 14.0) * 3600)),
    }
    edit = simple[kind]
    least = {"swapped order": 600, "long stay": 1200}.get(kind, 2 * 3600)

    def act(diary: Diary) -> Edit:
        away = np.flatnonzero(diary.free & (diary.place != home) & (diary.departure - diary.arrival >= least))
        return edit(diary, int(rng.choice(away))) if len(away) else None

    return act


def _new_place(
    team: RedTeam, agent: int, normal: Diary, count: int, *, window: tuple[int, int], rng: np.random.Generator
) -> Callable[[Diary], Edit] | None:
    """NUMOSIM's insertion: once between two stays at random; recurring at the same place and time of day."""
    place = _pick_place(team, agent, normal, window, rng=rng)
    slot: list[int] = []  # second of the day and length of the first insertion

    def once(diary: Diary) -> Edit:
        candidates = np.flatnonzero(diary.free[:-1] & diary.free[1:])
        if not len(candidates):
            return None
        edit = insert_between(
            diary, int(rng.choice(candidates)), place, rng.uniform(0.05, 0.95), kept_after=rng.uniform(0.05, 0.95)
        )
        if edit is not None:
            k = int(np.searchsorted(edit[0].arrival, edit[1][0]))
            slot[:] = [edit[1][0] % int(DAY), int(edit[0].departure[k]) - edit[1][0]]
        return edit

    def again(diary: Diary) -> Edit:
        day = int(rng.integers(window[0] // int(DAY), window[1] // int(DAY)))
        start = day * int(DAY) + slot[0] + int(rng.normal(0, 420))
        return insert_at(diary, place, start, start + max(900, slot[1] + int(rng.normal(0, 600))))

    return lambda diary: again(diary) if slot and count > 1 else once(diary)


def _pick_place(team: RedTeam, agent: int, normal: Diary, window: tuple[int, int], *, rng: np.random.Generator) -> int:
    """Sometimes from the own past, else from another agent's life; near home where the preset wants it."""
    home = int(team.home[agent])
    own = np.unique(normal.place)
    past = np.unique(normal.place[(normal.arrival < window[0]) & (normal.place != home)])
    if len(past) and rng.random() < team.preset.own_share:
        return int(rng.choice(past))
    if team.preset.within_km > 0:
        distance = np.hypot(team.world.x - team.world.x[home], team.world.y - team.world.y[home])
        near = np.setdiff1d(np.flatnonzero(distance <= team.preset.within_km), own)
        return int(rng.choice(near)) if len(near) else int(rng.integers(len(distance)))
    for _ in range(20):
        other = team.life(int(rng.integers(len(team.home))))
        if len(other.place):
            place = int(rng.choice(other.place))
            if place not in own:
                return place
    return int(rng.integers(len(team.world.x)))


def _odd_hour(
    normal: Diary, home: int, window: tuple[int, int], rng: np.random.Generator
) -> Callable[[Diary], Edit] | None:
    """An own place in the middle of the night."""
    past = normal.place[(normal.place != home) & (normal.arrival < window[0])]
    past = past if len(past) else normal.place[normal.place != home]
    if not len(past) or window[1] - window[0] < 2 * DAY:
        return None
    place, second = int(rng.choice(np.unique(past))), int(rng.uniform(-1.0, 4.0) * 3600)
    length = int(rng.uniform(0.7, 2.5) * 3600)

    def act(diary: Diary) -> Edit:
        start = int(rng.integers(window[0] // int(DAY) + 1, window[1] // int(DAY))) * int(DAY) + second
        start += int(rng.normal(0, 600))
        return insert_at(diary, place, start, start + length, may_drop=0)

    return act


def _frequency(
    normal: Diary, home: int, window: tuple[int, int], rng: np.random.Generator
) -> Callable[[Diary], Edit] | None:
    """An own, rarely visited place becomes a daily one, at an hour when places are open."""
    past = normal.place[(normal.place != home) & (normal.arrival < window[0])]
    places, visits = np.unique(past, return_counts=True)
    rare = places[visits <= 2]
    if not len(rare):
        return None
    place, second = int(rng.choice(rare)), int(rng.uniform(10.0, 19.0) * 3600)

    def act(diary: Diary) -> Edit:
        start = int(rng.integers(window[0] // int(DAY), window[1] // int(DAY))) * int(DAY) + second
        start += int(rng.normal(0, 1200))
        return insert_at(diary, place, start, start + int(rng.uniform(0.5, 1.2) * 3600))

    return act


def compare_lives(
    agent: int, kind: str, normal: Diary, diary: Diary, *, on_purpose: list[int], meant_role: str, recurring: bool
) -> Incident:
    """What differs between the two lives is labelled; the days around it are kept as they would have been."""
    old = {normal.row(k) for k in range(len(normal))}
    differs = np.array([diary.row(k) not in old for k in range(len(diary))])
    role = np.where(differs, np.where(np.isin(diary.arrival, on_purpose), meant_role, "neighbour"), "")
    days = np.unique(np.r_[diary.arrival[differs] // int(DAY), (diary.departure[differs] - 1) // int(DAY)])
    days = np.unique(np.r_[days, *_removed_days(normal, diary)])
    keep = np.isin(normal.arrival // int(DAY), days) | np.isin((normal.departure - 1) // int(DAY), days)
    before = np.stack([normal.place, normal.arrival, normal.departure], axis=1)[keep].astype(np.int64)
    return Incident(agent, kind, recurring, diary.place, diary.arrival, diary.departure, differs, role, before)


def _removed_days(normal: Diary, diary: Diary) -> list[np.ndarray]:
    new = {diary.row(k) for k in range(len(diary))}
    is_gone = np.array([normal.row(k) not in new for k in range(len(normal))])
    return [normal.arrival[is_gone] // int(DAY)]
