"""Calibration of the paper's network: the network and the events that calibrate go in, its judge comes out.

A cluster takes over the long steps (`engine/calibrate_job.py`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from ustad.config import Config
from ustad.events.encoder import EventArrays
from ustad.events.windows import make_queries, make_windows
from ustad.evidence_source import ModelContent
from ustad.network.inference.paper_network import PaperNetwork, sample_queries, scored_terms
from ustad.scoring.calibration import Calibration, Parts
from ustad.scoring.paper_judge import PaperJudge
from ustad.tables import DataError


def calibrate(source: PaperNetwork, events: pa.Table, first_day: int) -> PaperJudge[PaperNetwork]:
    """The judge of a network, calibrated on agents that it was not trained on in that week.

    `events` holds the calibration agents' validation week and, before `first_day` (local date as days since
    1970-01-01), what came before it as context.
    """
    config, arrays = source.config, source.encoder.encode(events)

    def fit(source: PaperNetwork) -> Calibration:
        parts, entity = measure_period(source, arrays, first_day)
        if not len(parts):
            raise DataError("calibration: no event of the calibration agents falls into the validation week")
        return Calibration.fit(parts, entity, int(arrays.day.max()) - first_day + 1)

    # A live event sees less than one scored in bulk by days: its p-value needs a reference that saw as little.
    past = None if config.window.mode == "past" else fit(replace(source, config=see_past(config)))
    return PaperJudge(source, fit(source), past, by_rank=config.scoring.percentiles == "batch")


def see_past(config: Config) -> Config:
    """With windows that end with the event."""
    return config.replace({"window.mode": "past"})


def make_causal(judge: PaperJudge[PaperNetwork]) -> PaperJudge[PaperNetwork]:
    """The same judge seeing nothing later than the event, with percentiles of a calibration made that way."""
    source = replace(judge.source, config=see_past(judge.source.config))
    return PaperJudge(source, judge.past or judge.calibration)


def load_paper(content: ModelContent) -> PaperJudge[PaperNetwork]:
    by_rank = content.config.scoring.percentiles == "batch"
    return PaperJudge.load(PaperNetwork.load(content), content.arrays, scored_terms(content.encoder), by_rank=by_rank)


def measure_period(source: PaperNetwork, arrays: EventArrays, first_day: int) -> tuple[Parts, np.ndarray]:
    """The parts of the score of every event from `first_day` on, and the codes of their entities: int32 [n]."""
    window, names = source.config.window, scored_terms(source.encoder)
    queries = make_queries(arrays, make_windows(arrays, window, first_day=first_day), window)
    if not len(queries):
        nothing = np.zeros((0, len(names)), np.float32)
        return Parts(names, nothing, nothing, nothing, nothing, np.zeros(0, np.float32)), np.zeros(0, np.int32)
    return Parts.of(names, *sample_queries(source, arrays, queries)), arrays.entity[queries.target]
