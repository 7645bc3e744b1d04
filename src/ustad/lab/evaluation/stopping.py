"""How trainings ended: by themselves or cut, and by which rule their validation loss was told to stand still.

In go result lines, out come words for tables. Where USTAD predicts variances, its validation loss leaves out the
largest hundredth of the losses; a line says so in `left_out`. Lines from before that rule do not, and are marked, so
that no row holds figures of two rules without saying it.
"""

from __future__ import annotations

from ustad.lab.evaluation.result_files import Line

#: Methods whose learning rate falls to zero over a number of epochs of their own.
OWN_SCHEDULE = ("ustad-default",)
#: USTAD where it predicts variances, so that single events can outweigh all others in validation.
WITH_VARIANCES = ("ustad-plain", "ustad-au", "ustad-minmax", "ustad-lambda", "ustad-trips")
OLDER_MARK = "†"
OLDER_RULE = (
    f"{OLDER_MARK} stopped by the mean loss of all validation events; newer cells of USTAD with variances leave out "
    "the largest hundredth"
)


def has_ended(line: Line) -> bool:
    """Whether a network stopped by itself: its validation loss stood still, or its own schedule came to its end."""
    training = line["training"]
    return training["converged"] or (line["method"] in OWN_SCHEDULE and training["stopped"] == "epochs")


def is_of_older_rule(line: Line) -> bool:
    """Whether single events could decide when a network of variances stopped; lines without a method are of USTAD."""
    training = line.get("training") or {}
    is_of_variances = line.get("method", "ustad-plain") in WITH_VARIANCES
    return bool(training) and is_of_variances and "left_out" not in training


def mark_older_rule(line: Line) -> str:
    """What stands behind a figure of one training of the older rule."""
    return f" {OLDER_MARK}" if is_of_older_rule(line) else ""


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
