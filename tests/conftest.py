"""One small town and one small model, made once for all tests that need something real.

Every test begins alike, whichever ran before it in the same process, and sees the same examples in every run.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several test processes share few cores

import gc
import random
import sys

import numpy as np
import pytest

from ustad import progress
from ustad.config import Config

try:
    from hypothesis import HealthCheck, settings
    from hypothesis.internal.conjecture import providers
except ImportError:  # a bare machine with a GPU, where the tests without it run
    pass
else:
    # Examples are a function of the test, and a busy machine is no failure; `--hypothesis-profile search` finds others.
    settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("same", settings.get_profile("search"), derandomize=True, database=None)
    settings.load_profile("same")
    # Without this Hypothesis also tries the constants of whatever modules are loaded, which the tests before decide.
    providers._get_local_constants = providers.Constants

TINY = {
    "model.width": 16,
    "model.event_blocks": 2,
    "training.epochs": 4,
    "training.batch_size": 64,
    "scoring.samples": 6,
    "scoring.neighbours": 20,
}

#: Rooms that take longest, by their names.
LONG = ("engine", "service", "examples", "cli", "training", "scoring", "baselines")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long rooms begin, so that the processes of a parallel run end at about the same time."""
    items.sort(key=lambda item: LONG.index(room) if (room := item.path.parent.name) in LONG else len(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """In a parallel run one process makes the fixtures of a file, and one has the Ray cluster."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "ray" if nodeid.startswith("tests/engine/") else nodeid.split("::")[0]

    return ByFile(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--another-machine", type=int, metavar="SEED", help="move numpy's and math's last bits")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # one of several processes
        from compiled_once import compile_once

        compile_once()
    if (seed := config.getoption("--another-machine")) is not None:
        from another_machine import another_machine

        machine = another_machine(seed)
        machine.__enter__()
        config.add_cleanup(lambda: machine.__exit__(None, None, None))


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: garbage is looked for among what comes after it, and seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # full searches took a seventh of the processor time


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Before any fixture: no progress, which the command line turns on for its process, and chance from its start."""
    progress.disable()
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  # libraries use it
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def tiny_config():
    """The preset quick, with what is needed to make a network tiny."""
    return Config.preset("quick").replace(TINY)


@pytest.fixture(scope="session")
def network_config(tiny_config):
    """The paper's network and score made tiny: seconds instead of minutes."""
    return tiny_config.replace({"model.network": "dual", "model.trips": "summary"})


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
def fitted_network(town, network_config):
    """The paper's network fitted on the town."""
    from ustad.detector import Detector

    return Detector(network_config, device="cpu").fit(town)


@pytest.fixture(scope="session")
def network_directory(fitted_network, tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "model"
    fitted_network.save(path)
    return path


@pytest.fixture(scope="session")
def model_directory(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    fitted.save(path)
    return path
