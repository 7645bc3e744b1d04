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
    from ustad.detector import Detector

    if is_baseline(model):
        raise ConfigError(f"{model}: a model of another method cannot forget; delete it, and train it without them")
    detector = Detector.load(model, device="cpu").forget(*agents)
    detector.save(model)
    out.print(f"forgot {len(agents)} {detector.schema.entity_word}(s); the model was written anew", highlight=False)
