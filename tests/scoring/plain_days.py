"""People with plain days: home, work on weekdays, evenings at home or out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ustad.events.visits import Frame, Visits, read_visits
from ustad.habits.history import Habits
from ustad.judges import learn_from
from ustad.schema import mobility_schema
from ustad.scoring.adding_judge import AddingJudge

SCHEMA = mobility_schema()
MONDAY = 19723 + 7 * 40  # local days in UTC
HISTORY, DAY = 28, 86_400_000_000
OFFICE, BAR = {"poi_id": 2, "poi_category": "office", "lat": 51.01}, {"poi_id": 3, "poi_category": "bar", "lat": 51.02}
HOME = {"poi_id": 1, "poi_category": "house", "lat": 51.0}


def day_of(
    agent: int, day: int, evening: dict[str, object], work: dict[str, object] = OFFICE
) -> list[dict[str, object]]:
    """Home, and on weekdays work from 9 to 18 o'clock and the evening somewhere."""
    at = (MONDAY + day) * DAY
    hours = [(0, 9, HOME), (9, 18, work), (18, 24, evening)] if day % 7 < 5 else [(0, 24, HOME)]
    return [
        {
            "agent_id": agent,
            "started_at": at + low * DAY // 24,
            "finished_at": at + high * DAY // 24,
            "lon": 9.5,
            **place,
        }
        for low, high, place in hours
    ]


def as_events(rows: list[dict[str, object]]) -> pa.Table:
    table = pa.Table.from_pylist(rows)
    for name in ("started_at", "finished_at"):
        moments = table[name].cast(pa.timestamp("us", tz="UTC"))
        table = table.set_column(table.column_names.index(name), name, moments)
    return table.append_column("stay_id", pa.array(range(len(rows)))).append_column(
        "timezone", pa.array(["UTC"] * len(rows))
    )


def lives(agents: int, days: range, change: int | None, out: float = 0.15) -> pa.Table:
    """Evenings at home or, by a coin, at a bar; from the day `change` on always at the bar."""
    coin = np.random.default_rng(0).random((agents, 400)) < out
    rows: list[dict[str, object]] = []
    for agent in range(agents):
        for day in days:
            is_out = coin[agent, day] or (change is not None and day >= change)
            rows += day_of(agent, day, BAR if is_out else HOME)
    return as_events(rows)


def learn(events: pa.Table) -> tuple[Frame, Habits]:
    frame = Frame.fit(events, SCHEMA)
    return frame, Habits.fit(read_visits(events, SCHEMA, frame))


def read(frame: Frame, events: pa.Table) -> Visits:
    return read_visits(events, SCHEMA, frame)


def learn_town(known: pa.Table | None = None) -> AddingJudge:
    """A model of twelve such people or of these, calibrated on the last week of their history."""
    known = lives(12, range(HISTORY), None) if known is None else known
    days = known["started_at"].cast(pa.int64()).to_numpy() // DAY - MONDAY
    train, week = (known.filter(pa.array(mask)) for mask in (days < HISTORY - 7, days >= HISTORY - 7))
    return learn_from(train, week, SCHEMA)
