"""How trainings ended: by themselves or cut, and by which rule their validation loss was told to stand still.

In go result lines, out come words for tables. Where USTAD predicts variances, its validation loss leaves out the
largest hundredth of the losses; a line says so in `left_out`. Lines from before that rule do not, and are marked, so
that no row holds figures of two rules without saying it. Baselines that read windows of several days once counted
training events of these windows in their validation loss; their lines from before that have no state of the code.
"""

from __future__ import annotations

from typing import Any

from ustad.lab.evaluation.result_files import Line

#: Trainings that came before the one whose losses a line tells, by their names in it: CTLE learns locations first.
EARLIER_STAGES = ("locations",)

#: Methods whose learning rate falls to zero over a number of epochs of their own.
OWN_SCHEDULE = ("ustad-default",)
#: USTAD where it predicts variances, so that single events can outweigh all others in validation.
WITH_VARIANCES = ("ustad-plain", "ustad-au", "ustad-minmax", "ustad-lambda", "ustad-trips")
OLDER_MARK = "†"
#: Baselines whose validation loss once counted training events too.
READING_BACK = ("sensitive-hue", "ctle", "lightpath")
OLDER_RULE = (
    f"{OLDER_MARK} stopped by an older rule: USTAD with variances by the mean loss of all validation events (newer "
    "cells leave out the largest hundredth), SensitiveHUE, CTLE and LightPath by a loss of training events too"
)


def list_stages(training: dict[str, Any]) -> list[dict[str, Any]]:
    """The trainings of a network one by one: one, or those before it too."""
    return [*(training[name] for name in EARLIER_STAGES if name in training), training]


def sum_stages(training: dict[str, Any]) -> dict[str, Any]:
    """A training with the epochs, steps, targets and seconds of the stages before it; converged if every one did."""
    stages = list_stages(training)
    counts = [key for key in ("epochs", "steps", "targets", "seconds") if all(key in stage for stage in stages)]
    sums = {key: sum(stage[key] for stage in stages) for key in counts}
    return {**training, **sums, "converged": all(stage["converged"] for stage in stages)}


def was_cut(training: dict[str, Any]) -> bool:
    """Whether the clock ended a training, in any of its stages."""
    return any(stage["stopped"] == "time" for stage in list_stages(training)) if training else False


def has_ended(line: Line) -> bool:
    """Whether a network stopped by itself: its validation loss stood still, in every stage, or its own schedule came
    to its end."""
    training = sum_stages(line["training"])
    return training["converged"] or (line["method"] in OWN_SCHEDULE and training["stopped"] == "epochs")


def say_stopped(training: dict[str, Any]) -> str:
    """What ended a training: its stages in their order, where they ended differently."""
    return ", ".join(dict.fromkeys(stage["stopped"] for stage in list_stages(training)))


def is_undated(line: Line) -> bool:
    """Whether a line is of before it was noted which state of the code made it; without versions nobody knows."""
    return "versions" in line and "code" not in line["versions"]


def is_of_older_rule(line: Line) -> bool:
    """Whether single events could decide when a network of variances stopped, or training events when a baseline did;
    lines without a method are of USTAD."""
    training, method = line.get("training"), line.get("method", "ustad-plain")
    if not training:
        return False
    if method in READING_BACK:
        return is_undated(line)
    return method in WITH_VARIANCES and "left_out" not in training


def mark_older_rule(*lines: Line) -> str:
    """What stands behind a figure of trainings of which any is of the older rule."""
    return f" {OLDER_MARK}" if any(map(is_of_older_rule, lines)) else ""


def count_ended(lines: list[Line]) -> str:
    """How many of the networks stopped by themselves, of all that were trained; a dash where none was.

    Marked where they did so by the older rule; with how many of them where only some did. Networks whose own schedule
    came to its end are counted apart: validation may have gone on improving.
    """
    trainings = [line for line in lines if line.get("training")]
    if not trainings:
        return "–"
    n_older = sum(map(is_of_older_rule, trainings))
    mark = f" {OLDER_MARK}" if n_older == len(trainings) else f" ({n_older} {OLDER_MARK})" if n_older else ""
    n_scheduled = sum(has_ended(line) and not line["training"]["converged"] for line in trainings)
    schedule = f" ({n_scheduled} at the end of the schedule)" if n_scheduled else ""
    return f"{sum(map(has_ended, trainings))} of {len(trainings)}{mark}{schedule}"


def add_older_rule(note: str, lines: list[Line]) -> str:
    """A table's note, with what the mark means where one of its lines has it."""
    if not any(map(is_of_older_rule, lines)):
        return note
    return f"{note} {OLDER_RULE}." if note else f"{OLDER_RULE}."
