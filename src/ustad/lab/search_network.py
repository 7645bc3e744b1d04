"""The paper's search for settings of its network, judged by masked validation loss alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ustad import progress
from ustad.detector import Detector
from ustad.judges import check_by_paper
from ustad.lab.search_settings import SearchResult, data_digest, tune
from ustad.network.training.dual_training import new_network, training_tensors
from ustad.network.training.estimate import rough_seconds
from ustad.network.training.masked_task import MaskedTask


def search(detector: Detector, data: Any, directory: Path, trials: int) -> SearchResult:
    """Try settings of the paper's space with a detector that is not fitted; carries on where it stopped."""
    lessons = detector.prepare(data)
    config = detector.config
    check_by_paper(config, "the search")
    tensors, windows, validation = training_tensors(lessons, config, detector.device)
    if progress.is_shown():
        task = MaskedTask(new_network(lessons.encoder, config, detector.device), tensors, *validation, config)
        seconds = rough_seconds(task, windows, config)
        progress.say(
            f"{trials} trials on {len(windows):,} windows: {progress.roughly(trials * seconds)} in all, less as "
            "trials stop early"
        )
    digest = data_digest((lessons.train, lessons.stopping), lessons.encoder.schema)
    return tune(
        tensors, windows, validation, config, trials=trials, directory=directory, device=detector.device, data=digest
    )
