"""Fitted baselines on disk: `save(detector, path)` and `load(path)`.

A directory with `method.json` (name, seed, schema, settings, facts), `state.safetensors` and tables, under the same
manifest and checksums as the detector's own. Loading executes nothing.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from ustad import __version__, artefact
from ustad.files import read_table, write_json, write_table
from ustad.lab.baselines.base import Baseline, State
from ustad.lab.baselines.protocol import find
from ustad.schema import EventSchema
from ustad.tables import DataError

METHOD = artefact.METHOD
TENSORS = "state.safetensors"


def save(detector: Baseline, path: Path | str) -> None:
    """Write a fitted baseline; the directory appears whole or not at all."""
    inner = getattr(detector, "detector", None)  # an ablation is kept as the detector that it is
    state = detector.state() if inner is None else State()
    with artefact.writing(Path(path)) as place:
        write_json(_method(detector, state), place / METHOD)
        if inner is not None:
            inner.write(place)
        if state.tensors:
            save_file({k: v.detach().cpu().contiguous() for k, v in state.tensors.items()}, place / TENSORS)
        for name, table in state.tables.items():
            write_table(table, place / f"{name}.parquet")


def load(path: Path | str, device: str = "auto") -> Baseline:
    """Read what `save` wrote, after checking it."""
    path = Path(path)
    files = artefact.check(path)
    if not artefact.is_baseline(path):
        raise DataError(f"{path}: holds no baseline (no {METHOD}); make one with `ustad lab train --method NAME`")
    content = json.loads((path / METHOD).read_text())
    schema = EventSchema.from_dict(content["schema"])
    content["settings"].pop("weight_decay", None)  # fixed now, and no matter once a network is trained
    detector = find(content["method"])(schema, content["seed"], device, **content["settings"])
    detector.last_day, detector.training = content.get("last_day"), content.get("training", {})
    if hasattr(detector, "detector"):
        detector.detector = type(detector.detector).load(path, device)
        detector.fitted = True
        return detector
    tensors = load_file(path / TENSORS) if TENSORS in files else {}
    tables = {n.removesuffix(".parquet"): read_table(path / n) for n in files if n.endswith(".parquet")}
    detector.restore(State(tensors, tables, content["facts"]))
    return detector


def _method(detector: Baseline, state: State) -> dict[str, Any]:
    return {
        "method": detector.name,
        "version": __version__,
        "seed": detector.seed,
        "schema": detector.schema.to_dict(),
        "last_day": detector.last_day,
        "settings": dataclasses.asdict(detector.settings),
        "facts": state.facts,
        "training": detector.training,
    }
