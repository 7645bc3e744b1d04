"""A small town of stays, for tests of scoring."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

FIRST_DAY = 19723  # 2024-01-01, a Monday
PLACES = {"home": (34.05, -118.25), "work": (34.10, -118.30), "shop": (34.02, -118.20), "gym": (34.07, -118.22)}


def make_stays(agents: int = 8, days: int = 14, seed: int = 1) -> pa.Table:
    """Home, work, and now and then a shop or the gym, with some noise; one row in fifty has no category."""
    rng = np.random.default_rng(seed)
    rows = []
    for agent in range(agents):
        shift = rng.normal(0, 0.02, 2)
        for day in range(days):
            evening = str(rng.choice(["shop", "gym", "home"]))
            plan = [("home", 0, 7), ("work", 8, 9), (evening, 18, 1.5), ("home", 20, 3)]
            for word, hour, hours in plan:
                start = ((FIRST_DAY + day) * 24 + hour) * 3600 + int(rng.normal(0, 600)) * (hour > 0)
                lat, lon = PLACES[word] + shift + rng.normal(0, 1e-4, 2)
                rows.append((agent, start, start + int(hours * 3600 * rng.uniform(0.8, 1.0)), lat, lon, word))
    columns = list(zip(*rows, strict=True))
    words = [None if rng.random() < 0.02 else w for w in columns[5]]
    moment = pa.timestamp("us", tz="UTC")
    return pa.table(
        {
            "stay_id": pa.array(range(len(rows))),
            "agent_id": pa.array(columns[0]),
            "started_at": pa.array(np.array(columns[1]) * 1_000_000).cast(moment),
            "finished_at": pa.array(np.array(columns[2]) * 1_000_000).cast(moment),
            "lat": pa.array(columns[3]),
            "lon": pa.array(columns[4]),
            "poi_id": pa.array([f"{w}-{a}" for w, a in zip(columns[5], columns[0], strict=True)]),
            "poi_category": pa.array(words, pa.string()),
        }
    )


def before(stays: pa.Table, day: int) -> pa.Table:
    return stays.filter(pa.array(stays["started_at"].cast(pa.int64()).to_numpy() < day * 86_400_000_000))


def since(stays: pa.Table, day: int) -> pa.Table:
    return stays.filter(pa.array(stays["started_at"].cast(pa.int64()).to_numpy() >= day * 86_400_000_000))
