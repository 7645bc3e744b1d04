"""The files of a model directory, one by one; `Detector.save` and `load` put them together.

In: the parts of a fitted detector, or a directory that `artefact.check` has passed. Nothing read is executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from ustad import artefact
from ustad.card import card
from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.events.visit_counts import History
from ustad.network.dual_transformer import DualTransformer
from ustad.schema import EventSchema
from ustad.scoring.network_model import ScoringModel
from ustad.trip_features import TripFeatures


def write_encoder(place: Path, encoder: Encoder, config: Config, trips: TripFeatures) -> None:
    """Settings, schema and how events become numbers."""
    config.to_yaml(place / "config.yaml")
    (place / "schema.json").write_text(json.dumps(encoder.schema.to_dict(), indent=2))
    (place / "encoder.json").write_text(json.dumps(encoder.to_dict()))
    if trips.to_tensors():
        save_file(trips.to_tensors(), place / "trips.safetensors")


def read_encoder(path: Path, files: Iterable[str], config: Config) -> tuple[Encoder, TripFeatures]:
    encoder = Encoder.from_dict(json.loads((path / "encoder.json").read_text()))
    learned = load_file(path / "trips.safetensors") if "trips.safetensors" in files else {}
    return encoder, TripFeatures.from_tensors(config.model.trips, learned)


def write_network(place: Path, model: ScoringModel) -> None:
    """The paper's network, its reference and the history that its sentences tell of."""
    save_file({k: v.cpu().contiguous() for k, v in model.network.state_dict().items()}, place / "model.safetensors")
    tensors = {k: np.ascontiguousarray(v) for k, v in model.to_tensors().items()}
    save_arrays(tensors, place / "reference.safetensors")
    if model.history is not None:
        model.history.save(place / "history.parquet")


def read_network(
    path: Path, encoder: Encoder, config: Config, device: torch.device, *, whole: bool, files: Iterable[str]
) -> ScoringModel:
    """From the `files` that were checked; without the `whole` of it, the reference events are left on disk."""
    network = DualTransformer(encoder.fields, config.model, config.window.max_events)
    network.load_state_dict(load_file(path / "model.safetensors"))
    network.to(device).eval()
    history = History.load(path / "history.parquet", encoder.schema) if "history.parquet" in files else None
    tensors = artefact.arrays(path / "reference.safetensors", "" if whole else "neighbours.")
    return ScoringModel.from_tensors(network, encoder, config, tensors, history)


def write_facts(place: Path, facts: dict[str, Any], config: Config, schema: EventSchema) -> None:
    """What was learnt from, and the card that says it in words."""
    (place / "facts.json").write_text(json.dumps(facts, indent=2))
    (place / "card.md").write_text(card(facts, config, schema))


def read_facts(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((path / "facts.json").read_text())
    return facts
