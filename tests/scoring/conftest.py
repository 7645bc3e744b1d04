"""A small town of stays and an untrained network on it: enough to hold scoring to its word."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa
import pytest
import torch
from small_town import FIRST_DAY, before, make_stays

from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.paper_network import PaperNetwork
from ustad.paper_fitting import calibrate
from ustad.schema import mobility_schema
from ustad.scoring.paper_judge import PaperJudge


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def stays() -> pa.Table:
    return make_stays()


@pytest.fixture(scope="session")
def config() -> Config:
    changes = {
        "model.width": 16,
        "model.event_blocks": 2,
        "scoring.samples": 6,
        "scoring.neighbours": 5,
        "scoring.percentiles": "calibrated",
        "window.length": 2,
    }
    return Config().replace(changes)


@pytest.fixture(scope="session")
def encoder(stays: pa.Table) -> Encoder:
    return Encoder.fit(stays, mobility_schema())


@pytest.fixture(scope="session")
def network(encoder: Encoder, config: Config) -> DualTransformer:
    torch.manual_seed(0)
    return DualTransformer(encoder.fields, config.model, config.window.max_events).eval()


@pytest.fixture(scope="session")
def model(network: DualTransformer, encoder: Encoder, config: Config, stays: pa.Table) -> PaperJudge:
    """Trained on nothing, but with a reference: days 0 … 4 of training, 5 … 8 of calibration."""
    return calibrate(
        PaperNetwork.of_events(network, encoder, config, before(stays, FIRST_DAY + 5)),
        before(stays, FIRST_DAY + 9),
        FIRST_DAY + 5,
    )
