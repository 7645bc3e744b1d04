"""Random tables of stays for the tests of this room."""

import numpy as np
import pyarrow as pa

from ustad.tables import TIMESTAMP

DAY = 86_400_000_000


def make_stays(seed: int = 0, agents: int = 4, days: int = 6, per_day: int = 4, zone: str = "America/Los_Angeles"):
    """Stays of some agents, in shuffled rows, with now and then something missing."""
    rng = np.random.default_rng(seed)
    rows = []
    for agent in range(agents):
        for day in range(days):
            times = np.sort(rng.choice(24 * 60, size=rng.integers(0, per_day + 1), replace=False))
            for minute in times:
                rows.append((agent, 19_700 * DAY + day * DAY + int(minute) * 60_000_000, int(rng.integers(1, 30))))
    rng.shuffle(rows)
    agent, start, minutes = (np.array(c) for c in zip(*rows, strict=True))
    n = len(agent)
    words = rng.choice(np.array(["home", "work", "shop", None], dtype=object), n)
    return pa.table(
        {
            "agent_id": pa.array(agent),
            "started_at": pa.array(start, TIMESTAMP),
            "finished_at": pa.array(start + minutes * 60_000_000, TIMESTAMP),
            "lat": 34 + rng.normal(0, 0.1, n),
            "lon": -118 + rng.normal(0, 0.1, n),
            "poi_category": pa.array(words.tolist(), pa.string()),
            "timezone": pa.array([zone] * n),
            "trip_summary": pa.array([None if rng.random() < 0.2 else rng.normal(size=3).tolist() for _ in range(n)]),
        }
    )
