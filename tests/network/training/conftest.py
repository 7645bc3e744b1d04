"""Fixtures of the training tests."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_world import SMALL, make_arrays

from ustad.config import Config
from ustad.events.windows import EventTensors, Queries, Windows, make_queries, make_windows


@pytest.fixture
def config() -> Config:
    return Config.preset("paper", **SMALL)


@pytest.fixture
def world(config: Config) -> tuple[EventTensors, Windows, Queries]:
    """Events, training windows of the first six days, questions about the last two."""
    arrays = make_arrays()
    windows = make_windows(arrays, config.window)
    train = windows.take(np.flatnonzero(arrays.day[windows.target] < 6))
    held = windows.take(np.flatnonzero(arrays.day[windows.target] >= 6))
    return EventTensors(arrays), train, make_queries(arrays, held, config.window)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
