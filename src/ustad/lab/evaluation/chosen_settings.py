"""Settings of the methods by validation loss, read from the result lines of what was tried on development people.

In go lines of `ustad lab experiment --try`; out comes for each method the change whose network had the lowest
validation loss. No label is read. The trials are result lines like any others, so a choice can be looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ustad.config import ConfigError
from ustad.lab.evaluation.budgets import Changes
from ustad.lab.evaluation.fitted_models import USTAD, class_name
from ustad.lab.evaluation.result_files import Line

#: Variants of USTAD that are to differ from it in one point alone, so they take its settings.
AS_USTAD = ("ustad-au", "ustad-eu", "ustad-minmax")


def choose_settings(lines: Iterable[Line]) -> dict[str, Changes]:
    """By method, the change with the lowest validation loss; trials of two data sets do not compare."""
    best: dict[str, tuple[float, Changes]] = {}
    data: set[tuple[str, int]] = set()
    rules: set[bool] = set()
    for line in lines:
        if not line.get("training"):
            continue
        data.add((line["data"], line["seed"]))
        if line["training"].get("fields"):
            rules.add("unweighed" in line["training"])
        loss, method = validation_loss(line), class_name(line.get("method", USTAD))
        if method not in best or loss < best[method][0]:
            best[method] = (loss, tuple(sorted(line["budget"].get("changes", {}).items())))
    if len(data) > 1:
        raise ConfigError(f"--chosen: the trials are of {len(data)} data sets; give a directory with those of one")
    if len(rules) > 1:
        raise ConfigError(
            "--chosen: some of the trials have losses of all events, others leave the largest out, and the two do not "
            "compare; run the older ones again"
        )
    return {method: changes for method, (_, changes) in best.items()}


def validation_loss(line: Line) -> float:
    """Of a training; where fields are weighed, the mean without their weights, so that two λ compare. Older lines have
    the means of each field alone, of all events."""
    training: dict[str, Any] = line["training"]
    fields = training.get("fields", {})
    return float(training.get("unweighed", sum(fields.values()) if fields else training["best_loss"]))


def chosen_for(method: str, choices: dict[str, Changes]) -> Changes:
    """What was chosen for a method; nothing where it was not among the trials."""
    name = class_name(method)
    return choices.get(USTAD if name in AS_USTAD else name, ())
