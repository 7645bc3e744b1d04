"""The files of a model directory, one by one; `Detector.save` and `load` put them together.

In: the parts of a fitted detector, or a directory that `artefact.check` has passed. Nothing read is executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ustad.card import card
from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.schema import EventSchema
from ustad.trip_features import TripFeatures


def write_encoder(place: Path, encoder: Encoder, config: Config, trips: TripFeatures) -> None:
    """Settings, schema and how events become numbers."""
    config.to_yaml(place / "config.yaml")
    (place / "schema.json").write_text(json.dumps(encoder.schema.to_dict(), indent=2))
    (place / "encoder.json").write_text(json.dumps(encoder.to_dict()))
    if trips.to_tensors():
        from safetensors.torch import save_file

        save_file(trips.to_tensors(), place / "trips.safetensors")


def read_encoder(path: Path, files: Iterable[str], config: Config) -> tuple[Encoder, TripFeatures]:
    encoder = Encoder.from_dict(json.loads((path / "encoder.json").read_text()))
    if "trips.safetensors" not in files:
        return encoder, TripFeatures(config.model.trips)
    from safetensors.torch import load_file

    return encoder, TripFeatures.from_tensors(config.model.trips, load_file(path / "trips.safetensors"))


def write_facts(place: Path, facts: dict[str, Any], config: Config, schema: EventSchema, *, scores_by: str) -> None:
    """What was learnt from, and the card that says it in words."""
    (place / "facts.json").write_text(json.dumps(facts, indent=2))
    (place / "card.md").write_text(card(facts, config, schema, scores_by))


def read_facts(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((path / "facts.json").read_text())
    return facts
