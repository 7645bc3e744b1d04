"""Fixtures of the network's tests."""

from __future__ import annotations

import pytest
import torch
from random_batches import make_batch

from ustad.events.windows import Batch


@pytest.fixture
def batch() -> Batch:
    return make_batch()


@pytest.fixture(autouse=True)
def _same_every_time() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
