"""One small town and one small model, made once for all tests that need something real."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several test processes share few cores

import pytest

from ustad.config import Config

TINY = {
    "model.width": 16,
    "model.event_blocks": 2,
    "training.epochs": 4,
    "training.batch_size": 64,
    "scoring.samples": 6,
    "scoring.neighbours": 20,
}


@pytest.fixture(autouse=True)
def quiet():
    """A test that runs the command line turns progress on for its process; the next one starts without it."""
    from ustad import progress

    progress.disable()


@pytest.fixture(scope="session")
def tiny_config():
    """The fast preset made tiny: seconds instead of minutes."""
    return Config.preset("fast", **TINY)


@pytest.fixture(scope="session")
def town():
    """A simulated town of 24 people over 14 days, in memory."""
    from ustad.simulate import simulate_tables

    return simulate_tables("town", agents=24, seed=3, days=14)


@pytest.fixture(scope="session")
def town_directory(town, tmp_path_factory):
    from ustad.dataset import save_directory

    path = tmp_path_factory.mktemp("town") / "data"
    save_directory(town, path)
    return path


@pytest.fixture(scope="session")
def fitted(town, tiny_config):
    """A detector fitted on the town."""
    from ustad.detector import Detector

    return Detector(tiny_config, device="cpu").fit(town)


@pytest.fixture(scope="session")
def model_directory(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    fitted.save(path)
    return path
