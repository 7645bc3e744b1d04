"""Training and calibration of the paper's network: lessons go in, its judge comes out.

A cluster takes over the long steps (`engine/train_job.py`, `engine/calibrate_job.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from ustad import artefact, progress
from ustad.config import Config
from ustad.events.encoder import Encoder, EventArrays
from ustad.events.visit_counts import VisitCounts
from ustad.events.windows import EventTensors, Queries, Windows, make_queries, make_windows
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.paper_network import PaperNetwork, embed_reference, sample_queries, scored_terms
from ustad.network.training.estimate import announce
from ustad.network.training.loop import FitResult
from ustad.network.training.masked_task import MaskedTask, fit
from ustad.periods import Lessons, query_period
from ustad.scoring.calibration import Calibration, Parts
from ustad.scoring.paper_judge import TENSORS, PaperJudge
from ustad.tables import DataError

#: Below this many steps of training the losses, which then are the score, have hardly begun to fall.
FEW_STEPS = 200


def new_network(
    encoder: Encoder, config: Config, device: torch.device | str, start: DualTransformer | None = None
) -> DualTransformer:
    """A network whose first weights follow from the seed, or are those of `start`."""
    torch.manual_seed(config.seed)
    network = DualTransformer(encoder.fields, config.model, config.window.max_events)
    if start is not None:
        network.load_state_dict(start.state_dict())
    return network.to(device)


def training_tensors(
    lessons: Lessons, config: Config, device: torch.device | str
) -> tuple[EventTensors, Windows, tuple[EventTensors, Queries]]:
    """Training windows and, one at a time, the questions of the early-stopping entities."""
    arrays = lessons.encoder.encode(lessons.train)
    stopping, questions = query_period(lessons.encoder, lessons.train, lessons.stopping, config)
    windows = make_windows(arrays, config.window)
    return EventTensors(arrays, device), windows, (EventTensors(stopping, device), questions)


def train_network(
    network: DualTransformer,
    lessons: Lessons,
    config: Config,
    device: torch.device | str,
    *,
    directory: Path | None = None,
    resume: bool = False,
) -> FitResult:
    """Train; with a directory, checkpoints are written there, and `resume` goes on from the last one."""
    tensors, windows, validation = training_tensors(lessons, config, device)
    training = config.training
    steps = training.epochs * math.ceil(len(windows) / training.batch_size)
    if steps < FEW_STEPS:
        progress.warn(
            f"{len(windows):,} windows are at most {steps:,} steps, too few to learn much in; lower "
            f"training.batch_size ({training.batch_size}) or raise training.epochs ({training.epochs})"
        )
    announce(MaskedTask(network, tensors, *validation, config), windows, config)
    return fit(network, tensors, windows, validation, config=config, device=device, directory=directory, resume=resume)


def fit_reference(
    network: DualTransformer,
    encoder: Encoder,
    config: Config,
    train: pa.Table,
    *,
    calibration: pa.Table,
    calibration_first_day: int,
    device: torch.device | str = "cpu",
) -> PaperJudge[PaperNetwork]:
    """Reference embeddings from the training events, calibration from agents that were not trained on that week.

    `calibration` holds the calibration agents' validation week and, before `calibration_first_day` (local date as
    days since 1970-01-01), what came before it as context.
    """
    network.to(device)
    neighbours = embed_reference(network, encoder, config, train, device=device) if config.scoring.neighbours else None
    source = PaperNetwork(network, encoder, config, neighbours, VisitCounts.fit(train, encoder.schema))
    arrays = encoder.encode(calibration)

    def calibrate(source: PaperNetwork) -> Calibration:
        parts, entity = measure_period(source, arrays, calibration_first_day)
        if not len(parts):
            raise DataError("calibration: no event of the calibration agents falls into the validation week")
        return Calibration.fit(parts, entity, int(arrays.day.max()) - calibration_first_day + 1)

    # A live event sees less than one scored in bulk by days: its p-value needs a reference that saw as little.
    past = None if config.window.mode == "past" else calibrate(replace(source, config=see_past(config)))
    return PaperJudge(source, calibrate(source), past, by_rank=config.scoring.percentiles == "batch")


def see_past(config: Config) -> Config:
    """With windows that end with the event."""
    return config.replace({"window.mode": "past"})


def make_causal(judge: PaperJudge[PaperNetwork]) -> PaperJudge[PaperNetwork]:
    """The same judge seeing nothing later than the event, with percentiles of a calibration made that way."""
    source = replace(judge.source, config=see_past(judge.source.config))
    return PaperJudge(source, judge.past or judge.calibration)


def load_paper(
    place: Path, encoder: Encoder, config: Config, device: torch.device | str, *, whole: bool, files: Collection[str]
) -> PaperJudge[PaperNetwork]:
    """From the `files` that were checked; without the `whole` of it, the reference events are left on disk."""
    tensors = artefact.arrays(place / TENSORS, "" if whole else "neighbours.")
    source = PaperNetwork.load(place, encoder, config, device, tensors=tensors, files=files)
    return PaperJudge.load(source, tensors, scored_terms(encoder), by_rank=config.scoring.percentiles == "batch")


def measure_period(source: PaperNetwork, arrays: EventArrays, first_day: int) -> tuple[Parts, np.ndarray]:
    """The parts of the score of every event from `first_day` on, and the codes of their entities: int32 [n]."""
    window, names = source.config.window, scored_terms(source.encoder)
    queries = make_queries(arrays, make_windows(arrays, window, first_day=first_day), window)
    if not len(queries):
        nothing = np.zeros((0, len(names)), np.float32)
        return Parts(names, nothing, nothing, nothing, nothing, np.zeros(0, np.float32)), np.zeros(0, np.int32)
    return Parts.of(names, *sample_queries(source, arrays, queries)), arrays.entity[queries.target]
