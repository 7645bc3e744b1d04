"""The paper's six self-injected anomalies, into any data set of stays.

Predictable ones change single stays (`spatial`, `temporal`, `spatial_temporal`), the others whole days (`swap`,
`permutation`, `high_density`). In: a data set, the share of its agents to change, a seed. Out: a data set that still
keeps the contract – sorted, no overlaps – with labels for exactly the stays that were changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.config import ConfigError, SplitConfig
from ustad.dataset import Dataset
from ustad.lab.red_team.agent_labels import are_anomalous, with_agent_labels
from ustad.lab.red_team.stay_ledger import MINUTE, Ledger, open_ledger
from ustad.simulate.chance import generator
from ustad.tables import DataError, agent_codes

KINDS = ("spatial", "temporal", "spatial_temporal", "swap", "permutation", "high_density")
_STREAM = 51
_TRIES = 12
PERMUTED_DAYS, DENSE_DAYS = 6, 3
DAYS_PER_CHANGE = 7  # single stays: one change per agent and this many days


def inject(
    data: Dataset, kind: str, share: float, seed: int, *, first_day: int | None = None, last_day: int | None = None
) -> Dataset:
    """Change a share of the agents, one kind or `all` six in equal parts.

    Only stays whose local date of start lies in first_day … last_day (days since 1970-01-01; the test period by
    default) are changed. Agents that are labelled already are left alone.
    """
    kinds = KINDS if kind == "all" else (kind,)
    if kind != "all" and kind not in KINDS:
        raise ConfigError(f"unknown kind '{kind}'; choose one of {', '.join(KINDS)} or all")
    if not 0 < share <= 1:
        raise ConfigError(f"share: a share of the agents lies above 0 and at most at 1, got {share}")
    split = data.split(SplitConfig())
    first = split.test_first if first_day is None else first_day
    last = split.test_last if last_day is None else last_day
    ledger = open_ledger(data, first, last)
    rng = generator(seed, _STREAM)
    agents = _choose(data, ledger, share, kinds, rng=rng)
    for number, some in enumerate(np.array_split(agents, len(kinds))):
        count = _APPLY[kinds[number]](ledger, some, kinds[number], rng)
        if len(some) and not count:
            raise DataError(f"inject: no stay of {first} … {last} leaves room for '{kinds[number]}'")
    return _close(data, ledger, kind, share, seed=seed)


def _choose(
    data: Dataset, ledger: Ledger, share: float, kinds: tuple[str, ...], *, rng: np.random.Generator
) -> np.ndarray:
    """Agents to change, in random order: with stays in the period, not called anomalous."""
    present = np.unique(ledger.code[ledger.eligible])
    present = present[~are_anomalous(data, ledger.agents[present])]
    least = sum(2 if kind == "swap" else 1 for kind in kinds)
    if len(kinds) > 1:
        least = 2 * len(kinds)
    count = max(least, round(share * len(present)))
    if len(present) < count:
        raise DataError(f"inject: {count} unlabelled agents are needed in the period, {len(present)} are there")
    return rng.permutation(present)[:count]


# ------------------------------------------------------------------------------------------- single stays
def _single(ledger: Ledger, agents: np.ndarray, kind: str, rng: np.random.Generator) -> int:
    """Change single stays of each agent: where, when, or both."""
    count = 0
    for agent in agents:
        remaining = max(1, (ledger.last_day - ledger.first_day + 1) // DAYS_PER_CHANGE)
        for _ in range(_TRIES * remaining):
            row = int(rng.choice(ledger.rows_of(int(agent))))
            if remaining and ledger.kind[row] is None and _change_stay(ledger, row, kind, rng):
                remaining -= 1
                count += 1
    return count


def _change_stay(ledger: Ledger, row: int, kind: str, rng: np.random.Generator) -> bool:
    if kind != "spatial" and not _move_in_time(ledger, row, kind, rng):
        return False
    if kind != "temporal":
        ledger.move(row, ledger.rare_place(row, rng))
        ledger.mark(row, kind, "changed")
    return True


def _move_in_time(ledger: Ledger, row: int, kind: str, rng: np.random.Generator) -> bool:
    """Noise on start and duration; the stays before and after give way and are labelled as neighbours."""
    before, after = ledger.neighbours(row)
    if before is None or after is None or ledger.kind[before] is not None or ledger.kind[after] is not None:
        return False
    start, end = ledger.start[row], ledger.end[row]
    shift = int(rng.uniform(60, 300) * rng.choice([-1, 1]) * MINUTE)
    length = int((end - start) * np.exp(rng.uniform(0.4, 1.2) * rng.choice([-1, 1])))
    low, high = ledger.start[before] + MINUTE, ledger.end[after] - MINUTE
    if high - low < 10 * MINUTE:
        return False
    new_start = int(np.clip(start + shift, low, high - 5 * MINUTE))
    new_end = int(np.clip(new_start + max(length, 5 * MINUTE), new_start + 5 * MINUTE, high))
    if abs(new_start - start) < 20 * MINUTE or new_end > high or not ledger.in_period(row, new_start):
        return False
    ledger.set_times(row, new_start, new_end)
    ledger.mark(row, kind, "changed")
    if ledger.end[before] > new_start:
        ledger.set_times(before, ledger.start[before], new_start)
        ledger.mark(before, kind, "neighbour")
    if ledger.start[after] < new_end:
        ledger.set_times(after, new_end, ledger.end[after])
        ledger.mark(after, kind, "neighbour")
    return True


# -------------------------------------------------------------------------------------------- whole days
def _swap(ledger: Ledger, agents: np.ndarray, kind: str, rng: np.random.Generator) -> int:
    """One day of stays changes hands between two agents."""
    count = 0
    for a, b in zip(agents[0::2], agents[1::2], strict=False):
        for _ in range(_TRIES):
            day = int(rng.integers(ledger.first_day, ledger.last_day + 1))
            days = [ledger.days_of(int(agent), day, day) for agent in (a, b)]
            if all(len(rows) and ledger.opens(rows) for rows in days):
                _exchange(ledger, days[0], int(b), kind)
                _exchange(ledger, days[1], int(a), kind)
                _settle(ledger, days[0], days[1], kind)
                _settle(ledger, days[1], days[0], kind)
                count += 1
                break
    return count


def _exchange(ledger: Ledger, rows: np.ndarray, agent: int, kind: str) -> None:
    ledger.code[rows] = agent
    for row in rows:
        ledger.mark(int(row), kind, "changed")


def _settle(ledger: Ledger, new: np.ndarray, old: np.ndarray, kind: str) -> None:
    """Cut what the day an agent took overlaps of the agent's own life: the stay before, or the day's last stay."""
    before, after = ledger.before(int(new[0])), ledger.after(int(new[-1]))
    first, last = int(old[0]), int(old[-1])
    if before is not None and ledger.end[before] > ledger.start[first]:
        ledger.set_times(before, int(ledger.start[before]), int(ledger.start[first]))
        ledger.mark(before, kind, "neighbour")
    if after is not None and ledger.end[last] > ledger.start[after]:
        ledger.set_times(last, int(ledger.start[last]), int(ledger.start[after]))


def _permute(ledger: Ledger, agents: np.ndarray, kind: str, rng: np.random.Generator) -> int:
    """Places of six days in another order; times stay. Only stays whose place differs are labelled."""
    count = 0
    for agent in agents:
        for _ in range(_TRIES):
            rows = ledger.window_of(int(agent), PERMUTED_DAYS, rng)
            if len(np.unique(ledger.space[rows])) < 2:
                continue
            places = ledger.space[rows]
            permutation = rng.permutation(places)
            is_moved = ~ledger.same_place(places, permutation)
            for row, place in zip(rows[is_moved], permutation[is_moved], strict=True):
                ledger.move(int(row), int(place))
                ledger.mark(int(row), kind, "changed")
            if is_moved.any():
                count += 1
                break
    return count


def _crowd(ledger: Ledger, agents: np.ndarray, kind: str, rng: np.random.Generator) -> int:
    """Three days of many short visits at random places instead of the original stays."""
    count = 0
    for agent in agents:
        for _ in range(_TRIES):
            rows = ledger.window_of(int(agent), DENSE_DAYS, rng)
            if not len(rows) or not ledger.opens(rows):
                continue
            count += _fill_days(ledger, rows, kind, rng)
            break
    return count


def _fill_days(ledger: Ledger, rows: np.ndarray, kind: str, rng: np.random.Generator) -> int:
    """Visits of ten to forty minutes from 07:00 to 23:00 of every day in the window."""
    before, after = ledger.before(int(rows[0])), ledger.after(int(rows[-1]))
    earliest = int(ledger.end[before]) if before is not None else None
    ledger.remove(rows)
    latest = int(ledger.start[after]) if after is not None else None
    count = 0
    for day in np.unique(ledger.day[rows]):
        begin = ledger.local_midnight(int(rows[0]), int(day)) + 7 * 60 * MINUTE
        end = begin + 16 * 60 * MINUTE
        now = begin if earliest is None else max(begin, earliest)
        while True:
            now += int(rng.uniform(5, 20) * MINUTE)
            leave = now + int(rng.uniform(10, 40) * MINUTE)
            if leave > end or (latest is not None and leave > latest):
                break
            ledger.add(int(rows[0]), int(day), now, leave, place=ledger.any_place(rng), kind=kind)
            now, count = leave, count + 1
    return count


_APPLY: dict[str, Callable[[Ledger, np.ndarray, str, np.random.Generator], int]] = {
    "spatial": _single,
    "temporal": _single,
    "spatial_temporal": _single,
    "swap": _swap,
    "permutation": _permute,
    "high_density": _crowd,
}


# ------------------------------------------------------------------------------------------------ closing
def _close(data: Dataset, ledger: Ledger, kind: str, share: float, *, seed: int) -> Dataset:
    """The data set with the ledger's stays, its labels, and only the trips between unchanged stays."""
    events, labels = ledger.close()
    new_agent_labels = _agent_labels(labels)
    same_ids = _unchanged_ids(data.events, events, labels)
    trips = data.trips
    if trips is not None:
        ends = (pc.is_in(trips[name], same_ids) for name in ("origin_stay_id", "destination_stay_id"))
        trips = trips.filter(pc.and_(*ends))
    old = data.labels
    if old is not None:
        old = old.filter(pc.is_in(old["stay_id"], same_ids))
        labels = pa.concat_tables([old, labels], promote_options="default")
    meta = {**data.meta, "name": f"{data.name} + {kind}", "injected": {"kind": kind, "share": share, "seed": seed}}
    agent_labels = with_agent_labels(data, new_agent_labels)
    return replace(data, events=events, trips=trips, labels=labels, agent_labels=agent_labels, meta=meta, path=None)


def _unchanged_ids(before: pa.Table, after: pa.Table, labels: pa.Table) -> pa.Array:
    if "stay_id" not in before.column_names:
        return pa.array([], after["stay_id"].type)
    ids = after["stay_id"].filter(pc.invert(pc.is_in(after["stay_id"], labels["stay_id"].combine_chunks())))
    return ids.filter(pc.is_in(ids, before["stay_id"].combine_chunks())).combine_chunks()


def _agent_labels(labels: pa.Table) -> pa.Table:
    """One row per labelled agent, with the kind of its first label."""
    codes, agents = agent_codes(labels["agent_id"])
    _, first = np.unique(codes, return_index=True)
    kind = labels["kind"].take(pa.array(first))
    return pa.table(
        {"agent_id": pa.array(agents, labels["agent_id"].type), "anomaly": np.ones(len(agents), bool), "kind": kind}
    )
