"""How soon a lasting change of somebody's life is found, and how often one is found in an unchanged life.

    OMP_NUM_THREADS=1 python benchmarks/lasting.py [--agents 300] [--seeds 131 132]

Simulated cities without a red team. From one of the first days of the test weeks on, half of the people live
differently, each in one way (`KINDS`); the other half are as they were. Nothing but the test of lasting changes is
asked (`habits/lasting.py`), day by day. By city and kind: how many changes are found within 14 days at
p ≤ `lasting.LEVEL`, after how many days in the median, how far the day named is from the true one; of unchanged people
the share with p ≤ .05, .01 and .001 in all the weeks. Writes benchmarks/results/lasting.json.
"""

from __future__ import annotations

import argparse
import datetime
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from measured import write_result
from ustad import progress
from ustad.config import SplitConfig
from ustad.dataset import Dataset, event_days
from ustad.events.visits import Frame, read_visits
from ustad.habits.history import Habits
from ustad.habits.lasting import LEVEL, find_changes
from ustad.schema import mobility_schema
from ustad.simulate.setting import SimulationPlan
from ustad.simulate.simulation import in_memory

RESULTS = Path(__file__).parent / "results" / "lasting.json"
SCHEMA = mobility_schema()
CITIES = ("town", "simla", "simjordan", "numosim-la")
KINDS = ("another workplace", "another home", "no work", "evenings at home", "evenings out")
WITHIN, LEVELS = 14, (0.05, 0.01, 0.001)
SHOWS = 0.5  # a change must show on so many of the weekdays since, or it is none
EVENING = (17, 19, 21)  # outings from the first hour on are left out, or new ones go from the second to the third
PLACE = ("poi_id", "poi_category", "lat", "lon")
Row = dict[str, Any]


def make_city(preset: str, agents: int, seed: int) -> Dataset:
    """Normal lives alone."""
    return in_memory(SimulationPlan(preset, agents, seed, anomalous_share=0.0).prepare())


def change_lives(
    test: pa.Table, before: pa.Table, rng: np.random.Generator
) -> tuple[pa.Table, dict[Any, tuple[str, int]]]:
    """The test weeks with every second person changed, and how and since which day each of them is."""
    first, room = int(event_days(test, SCHEMA).min()), 1 + len(np.unique(event_days(test, SCHEMA))) - WITHIN
    lives, known = _by_agent(test), _by_agent(before)
    people = sorted(set(lives) & set(known))
    homes = {agent: _home(rows) for agent, rows in known.items()}
    works = {agent: work for agent, rows in known.items() if (work := _work(rows, homes[agent])) is not None}
    changed: dict[Any, tuple[str, int]] = {}
    rows: list[Row] = []
    for number, agent in enumerate(people):
        if number % 2:
            kind, since = KINDS[number // 2 % len(KINDS)], first + int(rng.integers(0, max(1, min(7, room))))
            other = people[(number + 2 * len(KINDS)) % len(people)]
            new = _change(lives[agent], kind, since, homes[agent], works.get(agent), homes[other], works.get(other))
            if new is not None:
                changed[agent], lives[agent] = (kind, since), new
            else:
                continue  # neither changed nor as they were
        rows += lives[agent]
    return pa.Table.from_pylist(rows, schema=test.schema), changed


def _by_agent(table: pa.Table) -> dict[Any, list[Row]]:
    lives: dict[Any, list[Row]] = defaultdict(list)
    days = event_days(table, SCHEMA).tolist()
    minutes = read_visits(table, SCHEMA, Frame.fit(table, SCHEMA))
    hour = np.empty(len(days))
    hour[minutes.row] = minutes.minute / 60
    for row, day, at in zip(table.to_pylist(), days, hour.tolist(), strict=True):
        lives[row["agent_id"]].append({**row, "day": day, "hour": at})
    return lives


def _home(rows: list[Row]) -> Row:
    """Where most of the time goes."""
    time: Counter[Any] = Counter()
    for row in rows:
        time[row["poi_id"]] += (row["finished_at"] - row["started_at"]).total_seconds()
    most = time.most_common(1)[0][0]
    return next(row for row in rows if row["poi_id"] == most)


def _work(rows: list[Row], home: Row) -> Row | None:
    """Where most of the other time goes on weekdays, if it is a habit."""
    away = [row for row in rows if row["poi_id"] != home["poi_id"] and (row["day"] + 3) % 7 < 5]
    long = [row for row in away if (row["finished_at"] - row["started_at"]).total_seconds() > 3 * 3600]
    visits = Counter(row["poi_id"] for row in long).most_common(1)
    return next(row for row in long if row["poi_id"] == visits[0][0]) if visits else None


def _change(
    rows: list[Row], kind: str, since: int, home: Row, work: Row | None, other_home: Row, other_work: Row | None
) -> list[Row] | None:
    """The life as it goes on from a day; None where there is nothing to change."""
    if kind in ("another workplace", "no work") and work is None:
        return None
    place = {
        "another workplace": other_work or other_home, "another home": other_home, "no work": home,
        "evenings at home": home, "evenings out": other_work or other_home,
    }[kind]  # fmt: skip
    result: list[Row] = []
    touched = set()
    for row in rows:
        if row["day"] < since:
            result.append(row)
        elif kind == "evenings out":
            parts = _evening_out(row, home, place)
            result += parts
            touched |= {row["day"]} if len(parts) > 1 else set()
        else:
            at_home = row["poi_id"] == home["poi_id"]
            moves = {
                "another workplace": work is not None and row["poi_id"] == work["poi_id"],
                "no work": work is not None and row["poi_id"] == work["poi_id"],
                "another home": at_home,
                "evenings at home": not at_home and row["hour"] >= EVENING[0],
            }[kind]
            result.append({**row, **{name: place[name] for name in PLACE}} if moves else row)
            touched |= {row["day"]} if moves else set()
    weekdays = [day for day in range(since, rows[-1]["day"] + 1) if (day + 3) % 7 < 5]
    return _join(result) if len(touched & set(weekdays)) >= SHOWS * len(weekdays) else None


def _evening_out(row: Row, home: Row, place: Row) -> list[Row]:
    """An evening at home with two hours elsewhere."""
    midnight = row["started_at"] - datetime.timedelta(hours=row["hour"])
    leave, back = (midnight + datetime.timedelta(hours=hour) for hour in EVENING[1:])
    if row["poi_id"] != home["poi_id"] or row["started_at"] > leave or row["finished_at"] < back:
        return [row]
    out = {name: place[name] for name in PLACE}
    return [
        {**row, "finished_at": leave},
        {**row, **out, "started_at": leave, "finished_at": back},
        {**row, "started_at": back},
    ]


def _join(rows: list[Row]) -> list[Row]:
    """Stays at one place after the other become one."""
    result: list[Row] = []
    for row in rows:
        if result and result[-1]["poi_id"] == row["poi_id"]:
            result[-1] = {**result[-1], "finished_at": row["finished_at"]}
        else:
            result.append(row)
    return result


def measure(preset: str, agents: int, seed: int) -> dict[str, Any]:
    """Figures of one city."""
    data = make_city(preset, agents, seed)
    split = data.split(SplitConfig())
    before = data.between(split.train_first, split.test_first - 1)
    test, changed = change_lives(data.between(split.test_first, split.test_last), before, np.random.default_rng(seed))
    frame = Frame.fit(before, SCHEMA)
    habits, visits = Habits.fit(read_visits(before, SCHEMA, frame)), read_visits(test, SCHEMA, frame)
    ids = visits.entity_ids.tolist()
    result = find_changes(habits, visits)
    normal = np.array([agent not in changed for agent in ids])
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for number, agent in enumerate(ids):
        if agent in changed:
            kind, since = changed[agent]
            told = int(result.told_day[number])
            found[kind].append(
                {"days": told - since + 1 if told else None, "off": int(result.since[number]) - since if told else None}
            )
    return {
        "preset": preset,
        "seed": seed,
        "normal": int(normal.sum()),
        "false": [float((result.evidence[normal] >= -np.log10(level)).mean()) for level in LEVELS],
        "kinds": found,
    }


def summarise(cities: list[dict[str, Any]]) -> dict[str, Any]:
    """Over all cities, by kind."""
    kinds: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        people = [person for city in cities for person in city["kinds"][kind]]
        soon = [person for person in people if person["days"] is not None and person["days"] <= WITHIN]
        kinds[kind] = {
            "people": len(people),
            "found": len(soon) / max(1, len(people)),
            "days": float(np.median([person["days"] for person in soon])) if soon else None,
            "off": float(np.median([abs(person["off"]) for person in soon])) if soon else None,
        }
    total = sum(city["normal"] for city in cities)
    false = [sum(city["normal"] * city["false"][n] for city in cities) / total for n in range(len(LEVELS))]
    everybody = sum(kind["people"] for kind in kinds.values())
    share = sum(kind["people"] * kind["found"] for kind in kinds.values()) / everybody
    return {"kinds": kinds, "found": share, "people": everybody, "normal": total, "false": false, "level": LEVEL}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[131, 132])
    parser.add_argument("--cities", nargs="+", default=list(CITIES))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    progress.disable()
    cities = []
    for seed in options.seeds:
        for preset in options.cities:
            cities.append(measure(preset, options.agents, seed))
            one = summarise(cities[-1:])
            shares = ", ".join(f"{kind} {figures['found']:.2f}" for kind, figures in one["kinds"].items())
            print(preset, seed, f"found {one['found']:.2f} ({shares}), false {one['false']}", flush=True)
    summary = summarise(cities)
    print(summary)
    counted = [{**city, "kinds": {kind: len(people) for kind, people in city["kinds"].items()}} for city in cities]
    write_result(options.out, {"agents": options.agents, "seeds": options.seeds, **summary, "cities": counted})


if __name__ == "__main__":
    main()
