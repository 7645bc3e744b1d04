"""A made-up run of the shape that scoring writes: regular days, some agents with an unusual stay now and then."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pa_dataset

from ustad.dataset import Dataset
from ustad.page.run_tables import RunTables
from ustad.schema import EventSchema, Feature
from ustad.scoring.evidence import evidence_column
from ustad.tables import PATH_POINT, TIMESTAMP

ZONE = "America/Los_Angeles"
FIRST = (date(2024, 1, 1) - date(1970, 1, 1)).days
CATEGORIES = np.array(
    [
        "Home",
        "Work",
        "EatOut",
        "BuyGoods",
        "Recreation",
        "Exercise",
        "Visit",
        "HealthCare",
        "Religious",
        "Errands",
        "School",
        "Services",
    ]
)
NUMBERS = ("start", "duration", "x", "y")
TERMS = ("start", "duration", "x", "y", "poi", "weekday", "trip_shape")


def make_stays(agents: int, days: int, seed: int = 0) -> tuple[pa.Table, np.ndarray]:
    """Four stays a day for each agent, and which of them (in the second half) are unusual."""
    g = np.random.default_rng(seed)
    n = agents * days * 4
    agent, day, slot = np.unravel_index(np.arange(n), (agents, days, 4))
    start = np.array([0, 510, 1050, 1150])[slot] + g.normal(0, 12, n) * (slot > 0)
    end = np.array([480, 1020, 1120, 1440])[slot] + g.normal(0, 12, n) * (slot < 3)
    category = np.where(slot == 1, 1, np.where(slot == 2, 2 + g.integers(0, 10, n), 0))
    place = np.where(slot == 2, 100 + category * 3 + g.integers(0, 2, n), category) + agent * 1000
    odd = (agent % 10 == 3) & (day >= days // 2) & (day % 7 == 2 + agent % 3) & (slot == 2)
    place = np.where(odd, agent * 1000 + 999, place)
    start, end = np.where(odd, start - 45, start), np.maximum(np.where(odd, end + 20, end), start + 10)
    centre = np.random.default_rng(1).normal(0, 0.06, (agents, 2))[agent]
    shift = np.stack([np.sin(place * 12.9898), np.cos(place * 78.233)], 1) * np.where(odd, 0.16, 0.035)[:, None]
    shift[category == 0] = 0
    micro = ((FIRST + day) * 1440 + 480)[:, None] + np.stack([start, end], 1)  # UTC is eight hours ahead
    times = np.round(micro * 60_000_000).astype(np.int64)
    table = pa.table(
        {
            "stay_id": pa.array(np.arange(n)),
            "agent_id": pa.array(agent + 1),
            "started_at": pa.array(times[:, 0]).cast(TIMESTAMP),
            "finished_at": pa.array(times[:, 1]).cast(TIMESTAMP),
            "lat": 34.05 + centre[:, 0] + shift[:, 0],
            "lon": -118.25 + centre[:, 1] + shift[:, 1],
            "poi_id": pa.array(place),
            "poi_category": pa.array(CATEGORIES[category]),
            "timezone": pa.array([ZONE] * n).dictionary_encode().cast(pa.string()),
        }
    )
    return table, odd


def add_scores(stays: pa.Table, odd: np.ndarray, seed: int = 0) -> pa.Table:
    """The columns of an event score table."""
    g = np.random.default_rng(seed + 1)
    n = stays.num_rows
    p = np.where(odd, 10 ** -g.uniform(2.5, 6, n), g.uniform(0, 1, n))
    local = stays["started_at"].cast(pa.int64()).to_numpy() / 60e6 - 480
    start, length = local % 1440, (stays["finished_at"].cast(pa.int64()).to_numpy() / 60e6 - 480) - local
    expected = {"start": start + g.normal(0, 20, n), "duration": length + g.normal(0, 20, n)}
    expected |= {"x": g.normal(0, 9, n), "y": g.normal(0, 9, n)}
    columns: dict[str, object] = {}
    for name in TERMS:
        columns[f"loss_{name}"] = g.exponential(1, n)
        columns[f"eu_{name}"] = g.exponential(1e-5, n)
        columns[f"au_{name}"] = g.exponential(1e-2, n)
        columns[f"pct_{name}"] = np.where(odd & (name in ("x", "start")), 1 - p, g.uniform(0, 0.9, n))
        if name in NUMBERS:
            columns[f"expected_{name}"] = expected[name] % 1440 if name == "start" else expected[name]
            columns[f"spread_{name}"] = {"start": 35.0, "duration": 40.0}.get(name, 2.5) * g.uniform(0.6, 1.6, n)
    columns["expected_poi"] = np.where(odd, "Home", stays["poi_category"].to_numpy(zero_copy_only=False))
    columns["expected_weekday"] = np.array(["Wednesday"] * n)
    columns["expected_lat"] = stays["lat"].to_numpy() - np.where(odd, 0.13, 0.004 * g.normal(size=n))
    columns["expected_lon"] = stays["lon"].to_numpy() - np.where(odd, 0.09, 0.004 * g.normal(size=n))
    columns["knn"], columns["pct_knn"] = g.exponential(1, n), np.where(odd, 0.99, g.uniform(0, 0.9, n))
    columns["score"], columns["p_value"], columns["alert"] = -np.log10(p), p, p < 3e-3 * (4000 / max(n, 4000))
    kinds = np.array(["predictable", "novel", "unsure", "unobserved"])
    columns["kind"] = kinds[np.where(odd, np.arange(n) // 28 % 4, g.integers(0, 3, n))]
    said = (
        "Unusual place and start: 21 km from the expected place, 45 min earlier than expected; not seen there before."
    )
    columns["reason"] = np.where(odd, said, "As expected.")
    for name, values in columns.items():
        stays = stays.append_column(name, pa.array(values))
    return stays


def agent_table(events: pa.Table) -> pa.Table:
    best = events.group_by("agent_id").aggregate([("score", "max"), ("p_value", "min"), ("score", "count")])
    best = best.rename_columns(["agent_id", "score", "p_value", "n_events"])
    said = ["Several stays at a place not seen before, always in the early evening."] * best.num_rows
    return best.append_column("reason", pa.array(said))


def make_trips(stays: pa.Table) -> pa.Table:
    """A bent path between each pair of neighbouring stays of one agent."""
    agent, end = stays["agent_id"].to_pylist(), stays["finished_at"].cast(pa.int64()).to_numpy()
    start = stays["started_at"].cast(pa.int64()).to_numpy()
    lat, lon = stays["lat"].to_numpy(), stays["lon"].to_numpy()
    rows = []
    for i in range(1, stays.num_rows):
        if agent[i] != agent[i - 1] or start[i] <= end[i - 1]:
            continue
        share = np.linspace(0, 1, 12)
        way = zip(
            np.linspace(end[i - 1], start[i], 12).astype(np.int64).tolist(),
            (lat[i - 1] + (lat[i] - lat[i - 1]) * np.minimum(1, 2 * share)).tolist(),
            (lon[i - 1] + (lon[i] - lon[i - 1]) * np.maximum(0, 2 * share - 1)).tolist(),
            strict=True,
        )
        path = [{"time": t, "lat": a, "lon": b} for t, a, b in way]
        rows.append((i, agent[i], int(end[i - 1]), int(start[i]), i - 1, i, path))
    names = ["trip_id", "agent_id", "started_at", "finished_at", "origin_stay_id", "destination_stay_id", "path"]
    kinds = [pa.int64(), pa.int64(), TIMESTAMP, TIMESTAMP, pa.int64(), pa.int64(), pa.list_(PATH_POINT)]
    columns = list(zip(*rows, strict=True))
    return pa.table({k: pa.array(list(c), t) for k, c, t in zip(names, columns, kinds, strict=True)})


def make_run(agents: int = 40, days: int = 28, seed: int = 0) -> tuple[pa.Table, pa.Table, Dataset, dict]:
    """(event scores, agent scores, data set, run)."""
    stays, odd = make_stays(agents, days, seed)
    day = (np.arange(stays.num_rows) // 4) % days
    test = pa.array(day >= days // 2)
    events = add_scores(stays.filter(test), odd[day >= days // 2], seed)
    gap = stays.filter(pa.array((day % 9 == 4) & (np.arange(stays.num_rows) % 4 == 2)))
    gaps = gap.select(["agent_id", "started_at", "finished_at"])
    quality = pa.table(
        {
            "agent_id": np.arange(agents) + 1,
            "coverage": np.linspace(0.8, 1, agents),
            "n_gaps": np.arange(agents) % 5,
            "too_sparse": np.arange(agents) % 20 == 0,
        }
    )
    trips = (
        make_trips(stays.filter(pa.array(np.isin(stays["agent_id"].to_numpy() % 10, [4])))) if agents < 200 else None
    )
    level = {
        "n": events.num_rows,
        "positives": int(odd.sum()),
        "auroc": 0.912,
        "ap": 0.412,
        "interval_95": {"auroc": [0.88, 0.94], "ap": [0.33, 0.49]},
        "by": {"recurring": {"recurring": {"positives": 12, "auroc": 0.93, "ap": 0.44}}},
    }
    chance = {k: {**level, "auroc": 0.5, "ap": 0.01, "interval_95": {}} for k in ("events", "agents")}
    run = {
        "name": "Small town",
        "method": "ustad",
        "rule": "alerts_per_day",
        "value": 5.0,
        "threshold": 0.0025,
        "seed": 7,
        "split": "train 2024-01-01 … 2024-01-10, validation … 2024-01-14, test … 2024-01-28",
        "evaluation": {"events": level, "agents": level},
        "baselines": {"random": chance, "visit-rate": {"events": {**level, "auroc": 0.81}, "agents": level}},
    }
    data = Dataset(stays, trips=trips, gaps=gaps, quality=quality)
    return events, agent_table(events), data, run


def card_schema() -> EventSchema:
    """Events without a place and without an end: card payments."""
    return EventSchema(
        name="cards",
        features=(
            Feature("amount", "numeric", transform="log", label="amount", unit="EUR"),
            Feature("hour", "cyclic", ("@minute_of_day",), period=1440.0, label="time", display="clock"),
            Feature("merchant", "categorical", label="merchant", display="category"),
        ),
        entity="card",
        time="time",
        entity_word="card",
        event_word="payment",
    )


def make_card_events(n: int = 60) -> pa.Table:
    g = np.random.default_rng(0)
    minutes = FIRST * 1440 + np.sort(g.integers(0, 14 * 1440, n))
    p = g.uniform(0, 1, n)
    return pa.table(
        {
            "card": [f"card {i % 3}" for i in range(n)],
            "time": pa.array(minutes * 60_000_000).cast(TIMESTAMP),
            "amount": g.exponential(30, n),
            "merchant": np.array(["food", "fuel", "toys"])[g.integers(0, 3, n)],
            "expected_amount": g.exponential(30, n),
            "spread_amount": np.full(n, 12.0),
            "pct_amount": g.uniform(0, 1, n),
            "expected_hour": g.uniform(0, 1440, n),
            "pct_hour": g.uniform(0, 1, n),
            "expected_merchant": ["food"] * n,
            "pct_merchant": g.uniform(0, 1, n),
            "score": 1 - p,
            "p_value": p,
            "alert": np.zeros(n, bool),
            "kind": ["predictable"] * n,
            "reason": ["An amount of 90 EUR, expected 30 EUR."] * n,
        }
    )


def add_habits(events: pa.Table) -> pa.Table:
    """The columns that a score by habits adds: two questions with what each of them said and its share."""
    g = np.random.default_rng(2)
    share = g.uniform(0, 1, events.num_rows)
    columns = {
        "evidence": evidence_column(
            {"start": 3 * share, "recurrence": 3 * (1 - share)}, {"start": share, "recurrence": 1 - share}
        ),
        "visits_now": np.ones(len(share), np.int64),
        "km_from_own_places": share, "new_place": share > 0.5,
    }  # fmt: skip
    for name, values in columns.items():
        events = events.append_column(name, values if isinstance(values, pa.Array) else pa.array(values))
    return events


def tables_of(
    events: pa.Table, agents: pa.Table | None = None, run: dict[str, Any] | None = None, data: Dataset | None = None,
    card: str = "", *, details: pa.Table | None = None,
) -> RunTables:  # fmt: skip
    """A run in memory; `data` gives the history, trips, gaps and quality."""
    tables = {"details": details}
    if data is not None:
        tables |= {"history": data.events, "trips": data.trips, "gaps": data.gaps}
    opened = {name: pa_dataset.dataset(table) for name, table in tables.items() if table is not None}
    quality = data.quality if data is not None else None
    return RunTables(pa_dataset.dataset(events), agents, run or {}, quality=quality, card=card, **opened)
