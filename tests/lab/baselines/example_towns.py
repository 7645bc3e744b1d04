"""A small town by rule, so that the tests of this room know what is usual and what is not."""

import numpy as np
import pyarrow as pa

from ustad.tables import TIMESTAMP

DAY = 86_400_000_000
HOUR = 3_600_000_000
MONDAY = 19_723 * DAY  # 2024-01-01


def stays(agent, start, minutes, lat, lon, category, first_id=0) -> pa.Table:
    """A table of stays from columns; times are microseconds UTC."""
    agent, start = np.asarray(agent), np.asarray(start, np.int64)
    minutes = np.asarray(minutes, np.float64)
    return pa.table(
        {
            "stay_id": np.arange(first_id, first_id + len(agent)),
            "agent_id": agent,
            "started_at": pa.array(start, TIMESTAMP),
            "finished_at": pa.array(start + (minutes * 60_000_000).astype(np.int64), TIMESTAMP),
            "lat": np.asarray(lat, np.float64),
            "lon": np.asarray(lon, np.float64),
            "poi_category": pa.array(list(category), pa.string()),
            "timezone": ["UTC"] * len(agent),
        }
    )


def town(agents: int = 20, days: int = 8, seed: int = 0, first_day: int = 0) -> pa.Table:
    """Every agent: home from midnight, work at 8, a shop at 17, home again at 18, with some minutes of noise.

    Homes lie in the west, work in the middle, shops in the east; each agent keeps to its own.
    """
    rng, fixed = np.random.default_rng([seed, first_day]), np.random.default_rng(seed)
    home, shop = fixed.uniform(-0.05, 0.05, (agents, 2)), fixed.uniform(-0.02, 0.02, (agents, 2))
    plan = [(0.1, 400, "home"), (8, 500, "work"), (17, 40, "shop"), (18, 300, "home")]
    rows = []
    for agent in range(agents):
        for day in range(first_day, first_day + days):
            for hour, minutes, kind in plan:
                lat, lon = {
                    "home": (60 + home[agent, 0], 25 + home[agent, 1]),
                    "work": (60.0, 25.2),
                    "shop": (60 + shop[agent, 0], 25.4 + shop[agent, 1]),
                }[kind]
                start = MONDAY + day * DAY + int((hour + rng.uniform(0, 0.2)) * HOUR)
                rows.append((agent, start, minutes * rng.uniform(0.9, 1.0), lat, lon, kind))
    return stays(*zip(*rows, strict=True), first_id=first_day * 100_000)


def changed(table: pa.Table, row: int, **values: object) -> pa.Table:
    """The table with some values of one row replaced."""
    for name, value in values.items():
        column = table[name].to_pylist()
        column[row] = value
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array(column, table[name].type))
    return table
