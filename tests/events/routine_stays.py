"""Stays of people with a routine, for tests of habits: home, work on weekdays, a shop now and then."""

import numpy as np
import pyarrow as pa

from ustad.tables import TIMESTAMP

FIRST_DAY = 19_723  # Monday 2024-01-01
DAY_US, MINUTE_US = 86_400_000_000, 60_000_000
CATEGORY = {0: "Home", 1: "Work", 2: "Shop"}


def make_routine(seed=0, agents=6, days=35, named=True):
    """A table of stays: home, work 9 to 17 on weekdays, one of two shops on some evenings. Zone is UTC."""
    rng = np.random.default_rng(seed)
    rows = []
    for agent in range(agents):
        centre = 34 + 0.02 * rng.normal(size=2)
        spots = centre + np.array([[0, 0], [0.05, 0.03], [0.02, -0.02], [-0.01, 0.03]]) * (1 + 0.1 * agent)
        free_since = 0
        for day in range(days):
            base = day * 1440
            plan = []
            if (FIRST_DAY + day + 3) % 7 < 5:
                plan.append((base + 540 + rng.integers(-15, 16), base + 1020 + rng.integers(-15, 16), 1, 1))
            if rng.random() < 0.4:
                shop = int(rng.integers(2, 4))
                plan.append((base + 1090 + rng.integers(-20, 21), base + 1130 + rng.integers(-10, 11), shop, 2))
            for start, end, spot, kind in plan:
                rows.append((agent, free_since, start - 20, 0, 0, spots[0]))
                rows.append((agent, start, end, spot, kind, spots[spot]))
                free_since = end + 20
        rows.append((agent, free_since, days * 1440, 0, 0, spots[0]))
    return as_table(rows, named)


def as_table(rows, named=True):
    agent, start, end, spot, kind = (np.array([r[i] for r in rows], np.int64) for i in range(5))
    where = np.array([r[5] for r in rows])
    columns = {
        "stay_id": pa.array(np.arange(len(rows))),
        "agent_id": pa.array(agent),
        "started_at": pa.array(FIRST_DAY * DAY_US + start * MINUTE_US, TIMESTAMP),
        "finished_at": pa.array(FIRST_DAY * DAY_US + end * MINUTE_US, TIMESTAMP),
        "lat": where[:, 0],
        "lon": where[:, 1],
        "poi_category": [CATEGORY[k] for k in kind],
        "timezone": ["UTC"] * len(rows),
    }
    if named:
        columns["poi_id"] = pa.array(agent * 10 + spot)
    return pa.table(columns)


def with_gaps(table, seed=0):
    """The same stays when not all of them was seen: some starts and ends unknown by hours, some silence, an agent's
    first start and last end unknown."""
    rng = np.random.default_rng(seed)
    number = table.num_rows
    start, end = (np.where(rng.random(number) < 0.3, rng.integers(0, 8 * 3600, number), 0.0) for _ in range(2))
    agent = table["agent_id"].to_numpy()
    first, last = np.r_[True, agent[1:] != agent[:-1]], np.r_[agent[1:] != agent[:-1], True]
    length = (table["finished_at"].cast(pa.int64()).to_numpy() - table["started_at"].cast(pa.int64()).to_numpy()) / 1e6
    seen = np.where(rng.random(number) < 0.2, length * rng.random(number), length)
    gaps = {"start_gap_s": pa.array(start, mask=first), "end_gap_s": pa.array(end, mask=last), "observed_s": seen}
    return pa.table({**{name: table[name] for name in table.column_names}, **gaps})


def insert_visit(table, agent, day, minute, spot=(34.6, 34.6), minutes=200, poi=999):
    """The table with one more stay of an agent at a far place; whatever it overlaps stays as it is."""
    start = (FIRST_DAY + day) * DAY_US + minute * MINUTE_US
    row = {
        "stay_id": [100_000 + day * 1440 + minute],
        "agent_id": [agent],
        "started_at": pa.array([start], TIMESTAMP),
        "finished_at": pa.array([start + minutes * MINUTE_US], TIMESTAMP),
        "lat": [spot[0]],
        "lon": [spot[1]],
        "poi_category": ["Shop"],
        "timezone": ["UTC"],
    }
    if "poi_id" in table.column_names:
        row["poi_id"] = [poi]
    for name in ("start_gap_s", "end_gap_s", "observed_s"):
        if name in table.column_names:
            row[name] = [60.0 * minutes if name == "observed_s" else 0.0]
    return pa.concat_tables([table, pa.table(row).select(table.column_names).cast(table.schema)])


def odd_week(life):
    """The last of five weeks, in which agent 4 goes far away late on three evenings."""
    week = between(life, 28, 35)
    for day in (29, 30, 32):
        week = insert_visit(week, 4, day, 1350, minutes=40)
    return week


def days_of(table):
    return table["started_at"].cast(pa.int64()).to_numpy() // DAY_US - FIRST_DAY


def between(table, first, last):
    """Stays that start on local days first … last - 1, counted from the first day."""
    days = days_of(table)
    return table.filter(pa.array((days >= first) & (days < last)))
