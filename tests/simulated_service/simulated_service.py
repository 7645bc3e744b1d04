"""`simulate(seed, days)`: one service from one seed. The same seed gives the same digest of all that happened."""

from __future__ import annotations

import gc
import logging
import shutil
import tempfile
from functools import cache
from pathlib import Path
from unittest import mock

from plain_list import ViolatedError
from service_example import tiny_stays
from simulated_days import KNOWN_DAYS, Result, Simulation
from simulated_life import without_threads
from simulated_machine import injected, on_disk

from ustad.config import Config
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.service import stay_journal


@cache
def small_detector() -> Detector:
    """Habits of six people, fitted in seconds."""
    data = Dataset(tiny_stays(days=KNOWN_DAYS), meta={"name": "tiny"})
    detector = Detector(Config.preset("quick"), device="cpu").fit(data)
    gc.freeze()  # libraries and the model stay: to look through them again and again takes a third of a simulated day
    return detector


def simulate(seed: int, days: int, detector: Detector | None = None) -> Result:
    """Days of one service; raises `ViolatedError` where something that must hold does not."""
    quick = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # a disk in memory, where there is one
    folder = Path(tempfile.mkdtemp(prefix="ustad-simulation-", dir=quick))
    simulation = Simulation(detector or small_detector(), seed, folder)
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            injected(simulation.clock),
            on_disk(simulation.disk),
            without_threads(),
            mock.patch.object(stay_journal, "SNAPSHOT_FIXES", 400),
        ):
            return simulation.run(days)
    except BaseException as error:
        lines = "\n".join(simulation.lines)
        problem = f"seed {seed}, {days} days: {type(error).__name__}: {error}; the last of what happened:\n{lines}"
        raise ViolatedError(problem) from error
    finally:
        logging.disable(before)
        shutil.rmtree(folder, ignore_errors=True)
