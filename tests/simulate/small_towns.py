"""Small simulated towns that several test files share, made once per process."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ustad.dataset import Dataset
from ustad.simulate import simulate_tables
from ustad.simulate.assembly import Part, make_part
from ustad.simulate.presets import get_preset
from ustad.simulate.setting import Simulation, prepare

AGENTS, DAYS, SEED = 120, 28, 5


@lru_cache(maxsize=8)
def town(anomalous: float = 0.3, variant: str = "standard", dirty: float = 0.0) -> Dataset:
    return simulate_tables("town", AGENTS, SEED, variant=variant, anomalous_share=anomalous, dirty=dirty)


@lru_cache(maxsize=4)
def simulation(anomalous: float = 0.3, variant: str = "standard", dirty: float = 0.0) -> Simulation:
    preset = replace(get_preset("town", variant), anomalous_share=anomalous)
    return prepare(preset, AGENTS, SEED, DAYS, dirty=dirty)


@lru_cache(maxsize=4)
def part(anomalous: float = 0.3, variant: str = "standard", dirty: float = 0.0) -> Part:
    return make_part(simulation(anomalous, variant, dirty), 0, AGENTS, paths=True)


def seconds(table: pa.Table, name: str) -> np.ndarray:
    """A time column as seconds since 1970."""
    return table[name].cast(pa.int64()).to_numpy() // 1_000_000


def rows(table: pa.Table) -> set[tuple[int, int, int, int]]:
    """Stays as comparable tuples: agent, place, start, end."""
    columns = (table["agent_id"].to_numpy(), table["poi_id"].to_numpy())
    return set(
        zip(*(c.tolist() for c in (*columns, seconds(table, "started_at"), seconds(table, "finished_at"))), strict=True)
    )


def digest(data: Dataset) -> str:
    """Of who does what, when and where, and of what is labelled as what."""
    columns = ("agent_id", "started_at", "finished_at", "kind", "role")
    place = dict(zip(*(data.events[name].to_pylist() for name in ("stay_id", "poi_id")), strict=True))
    places = [place[key] for key in data.labels["stay_id"].to_pylist()]
    text = "\n".join(map(str, zip(*(_plain(data.labels[name]) for name in columns), places, strict=True)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(column: pa.ChunkedArray) -> list[object]:
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
