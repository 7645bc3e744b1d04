"""Settings of a baseline by validation loss: the paper's search space, the same number of trials for each.

In go a method's name and the training and validation events; out comes the choice with the lowest validation loss.
No label and no test event is seen. A method without a validation loss (IBAT, the trivial ones) keeps its defaults.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ustad.baselines.protocol import find, make
from ustad.progress import track
from ustad.schema import EventSchema


@dataclass(frozen=True)
class Choice:
    """The best settings found, their loss, and every trial as (settings, loss)."""

    settings: dict[str, Any]
    loss: float
    trials: tuple[tuple[dict[str, Any], float], ...]


def space(name: str) -> dict[str, tuple[Any, ...]]:
    """What is searched for a method: setting → choices."""
    fields = dataclasses.fields(find(name).settings_class)
    return {f.name: f.metadata["search"] for f in fields if "search" in f.metadata}


def search(
    name: str,
    train: Any,
    validation: Any = None,
    schema: EventSchema | None = None,
    trials: int = 8,
    seed: int = 7,
    device: str = "auto",
    **fixed: Any,
) -> Choice:
    """Try `trials` settings (all of them where there are no more) and keep the one with the lowest loss.

    `fixed` settings are the same in every trial. The defaults are always among the trials.
    """
    found: list[tuple[dict[str, Any], float]] = []
    candidates = draw(name, trials, seed, fixed)
    with track(f"searching {name}", len(candidates)) as advance:
        for settings in candidates:
            detector: Any = make(name, schema, seed, device=device, **{**settings, **fixed})
            detector.fit(train, validation)
            if detector.validation_loss is None:
                return Choice({}, float("nan"), ())
            found.append((settings, float(detector.validation_loss)))
            advance(1, f"loss {found[-1][1]:.4f}")
    best = min(found, key=lambda pair: pair[1])
    return Choice(best[0], best[1], tuple(found))


def draw(name: str, trials: int, seed: int, fixed: dict[str, Any]) -> list[dict[str, Any]]:
    """Distinct settings to try: the defaults first, then others at random."""
    choices = {key: values for key, values in space(name).items() if key not in fixed}
    every = [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
    kind = find(name).settings_class
    usual = {f.name: f.default for f in dataclasses.fields(kind) if f.name in choices}
    others = [settings for settings in every if settings != usual]
    order = np.random.default_rng(seed).permutation(len(others))[: max(0, trials - 1)]
    return [usual, *(others[i] for i in order)]
