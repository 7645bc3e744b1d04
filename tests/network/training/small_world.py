"""A small world for training tests: people with a daily rhythm, made with numpy alone."""

from __future__ import annotations

import numpy as np

from ustad.events.encoder import EventArrays
from ustad.schema import Field

FIELDS = (
    Field("start_x", "number"),
    Field("start_y", "number"),
    Field("duration", "number"),
    Field("poi", "category", 4),
    Field("trip", "vector", 3),
)
SMALL = {
    "model.width": 16,
    "model.event_blocks": 2,
    "training.batch_size": 32,
    "training.epochs": 2,
    "window.max_events": 16,
    "training.learning_rate": 3e-3,
}


def make_arrays(agents: int = 20, days: int = 8, seed: int = 0, noise: float = 0.05) -> EventArrays:
    """Each agent goes home, to work and elsewhere at its own hours; one event in ten has no trip."""
    random = np.random.default_rng(seed)
    per_day = random.integers(2, 5, (agents, days))
    entity = np.repeat(np.arange(agents), per_day.sum(axis=1)).astype(np.int32)
    day = np.concatenate([np.repeat(np.arange(days), row) for row in per_day]).astype(np.int32)
    order = np.concatenate([np.arange(n) for row in per_day for n in row])
    hour = order * 1.5 + random.normal(0, 0.2, agents)[entity] + random.normal(0, noise, len(entity))
    home = random.normal(0, 1, (agents, 3))[entity]
    missing = np.zeros((len(entity), len(FIELDS)), bool)
    missing[:, 4] = random.random(len(entity)) < 0.1
    return EventArrays(
        fields=FIELDS,
        entity_ids=np.arange(agents),
        entity=entity,
        time=(day * 24.0 + hour).astype(np.int64),
        day=day,
        key=np.arange(len(entity)),
        numbers=np.stack([np.cos(hour), np.sin(hour), home[:, 0]], axis=1).astype(np.float32),
        categories=(order[:, None] % 3 + 1).astype(np.int32),
        vectors=(home + random.normal(0, noise, home.shape)).astype(np.float32),
        missing=missing,
        row=np.arange(len(entity)),
    )
