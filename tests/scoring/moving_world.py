"""A model of four weeks and the eleven weeks that follow, for tests of histories that move on."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import DAY_US, FIRST_DAY, MINUTE_US, between, days_of, insert_visit, make_routine
from whole_scores import fit_judge

from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.schema import mobility_schema
from ustad.tables import TIMESTAMP

SMALL = {
    "model.width": 8, "model.heads": 2, "model.event_blocks": 1, "training.epochs": 1, "training.batch_size": 128,
    "scoring.samples": 2, "window.mode": "past",
}  # fmt: skip
KNOWN, DAYS = 28, 105  # the history ends with day 27; eleven weeks follow
SCHEMA = mobility_schema("none", 16, True)


def make_life(named=True, days=DAYS, agents=4):
    """Agent 1 finds a new place, the last agent is first seen three weeks after the history ends."""
    life = make_routine(seed=1, agents=agents, days=days, named=named)
    life = life.filter(pa.array((life["agent_id"].to_numpy() != agents - 1) | (days_of(life) >= KNOWN + 20)))
    for day in range(KNOWN + 10, days, 3):
        life = insert_visit(life, 1, day, 1350, minutes=40)
    return life


def make(network="none", named=True, days=DAYS, agents=4, life=None, **changes):
    """A model of four weeks, the life it was learnt from, and what follows."""
    life = make_life(named, days, agents) if life is None else life
    config = Config.preset("best").replace({**SMALL, "model.network": network, **changes})
    train, validation = between(life, 0, KNOWN - 7), between(life, KNOWN - 7, KNOWN)
    encoder = Encoder.fit(train, SCHEMA)
    model = fit_judge(train, validation, encoder, config, torch.device("cpu"))
    return model, between(life, 0, KNOWN), between(life, KNOWN, days)


def moved_job(later, agent=0, since=KNOWN):
    """The same life with another workplace, 15 km away."""
    there = (later["agent_id"].to_numpy() == agent) & (np.array(later["poi_category"].to_pylist()) == "Work")
    there &= days_of(later) >= since
    moved = {"poi_id": 7_000, "lat": 34.15, "lon": 34.1}
    for name, value in moved.items():
        values = np.where(there, value, later[name].to_numpy())
        later = later.set_column(later.schema.get_field_index(name), name, pa.array(values))
    return later, there


def disorderly(seed, agents=3, events=60):
    """Stays at any time over eleven weeks, some without a name, some without a position, in zones a day apart."""
    rng = np.random.default_rng(seed)
    number = agents * events
    minute = np.concatenate([np.sort(rng.integers(0, 77 * 1440, events)) for _ in range(agents)])
    spot = rng.integers(0, 6, number)
    start = (FIRST_DAY + KNOWN) * DAY_US + minute * MINUTE_US
    lost, named, away = rng.random(number) < 0.1, rng.random(number) < 0.5, rng.random(number) < 0.3
    zones = np.array(["Pacific/Kiritimati", "Etc/GMT+12", "America/St_Johns"])[rng.integers(0, 3, number)]
    near = 34 + 0.02 * spot + rng.normal(0, 0.0006, (2, number))
    return pa.table(
        {
            "stay_id": pa.array(np.arange(number)),
            "agent_id": pa.array(np.repeat(np.arange(agents), events)),
            "started_at": pa.array(start, TIMESTAMP),
            "finished_at": pa.array(start + rng.integers(5, 900, number) * MINUTE_US, TIMESTAMP),
            "lat": pa.array(near[0], mask=lost),
            "lon": pa.array(near[1], mask=lost),
            "poi_category": ["Shop"] * number,
            "timezone": np.where(away, zones, "UTC").tolist(),
            "poi_id": pa.array(spot, mask=~named),
        }
    )


def assert_same(one, other):
    """Equal but for the last bits of numbers."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-6, nan_ok=True)
    else:
        assert one == other
