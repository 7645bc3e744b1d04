"""`ustad forget`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ustad.cli.shared import out
from ustad.config import ConfigError


def forget(
    model: Annotated[Path, typer.Argument(help="A model directory.")],
    agents: Annotated[list[str], typer.Argument(help="Whom to forget, by identifier.")],
) -> None:
    """Delete what a model keeps of some agents: habits, history and training events. Weights stay as they are.

    Example: `ustad forget runs/demo/model 17`
    """
    from ustad.artefact import is_baseline
    from ustad.versions import ModelVersions, find_model

    if is_baseline(model):
        raise ConfigError(f"{model}: a model of another method cannot forget; delete it, and train it without them")
    if find_model(model) == model:
        word = _forget_in([model], agents)
        out.print(f"forgot {len(agents)} {word}(s); the model was written anew")
        return
    versions = ModelVersions(model)
    with versions.alone():
        word = _forget_in([versions[number] for number in versions.numbers()], agents)
    out.print(f"forgot {len(agents)} {word}(s) in every version")


def _forget_in(models: list[Path], agents: list[str]) -> str:
    """Forget the agents in each model that knows them, one model in memory at a time; an agent whom none knows is an
    error. Returns what an agent is called."""
    from ustad.detector import Detector
    from ustad.schema import plural
    from ustad.tables import DataError

    knowing, word = [], "agent"
    for model in models:
        detector = Detector.load(model, device="cpu")
        knowing.append({agent for agent, is_known in zip(agents, detector.knows(agents), strict=True) if is_known})
        word = detector.schema.entity_word
    absent = set(agents).difference(*knowing)
    if absent:
        where = f"{len(absent)} of {len(agents)} {plural(word)} are not in this model"
        raise DataError(f"{where}; nothing was forgotten")
    for model, own in zip(models, knowing, strict=True):
        if own:
            Detector.load(model, device="cpu").forget(*sorted(own)).save(model)
    return word
