"""What was tried on development seeds: settings side by side, to choose by. Nothing of it is a result.

In go the lines that `read_results` calls `tried`, out comes one `Table`.
"""

from __future__ import annotations

from typing import Any

from ustad.lab.evaluation.chosen_settings import validation_loss
from ustad.lab.evaluation.plain_tables import Table
from ustad.lab.evaluation.result_tables import LEVELS, NAMES, TERMS, Line, plain
from ustad.lab.evaluation.stopping import say_stopped, sum_stages

NOTE = (
    "Development seeds; nothing here is a result. Validation loss: the mean by which training stops, λ in it; left "
    "out: the share of the largest losses that this mean does without. Without λ: so that one λ compares with "
    "another."
)
OLDER_SUMS = (
    " In older lines that loss is of all events, and the largest decide much of it: small differences mean little."
)
AS_IT_IS = "as it is"
_HEADS = (
    "data", "seed", "method", "budget", "setting", "epochs", "steps", "stopped by", "left out", "validation loss",
    "without λ", "MAE x, km", "MAE y, km", "MAE start, min", "MAE duration, min", "kind of place, % right",
    "events AUROC", "events AUPR", "agents AUROC", "agents AUPR",
)  # fmt: skip


def tried_tables(lines: list[Line]) -> list[Table]:
    """One row for each data set, seed, method and setting, from all experiments that were made with it."""
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in sorted(lines, key=lambda line: line["source"].get("agents", 0)):
        groups.setdefault(_describe(line), []).append(line)
    rows = tuple((*names, *_training(own), *_errors(own), *_areas(own)) for names, own in groups.items())
    title = "Settings tried on development seeds"
    older = [x for x in lines if x.get("training", {}).get("fields") and "unweighed" not in x["training"]]
    return [Table("tried", title, _HEADS, rows, NOTE + (OLDER_SUMS if older else ""))] if rows else []


def _describe(line: Line) -> tuple[str, ...]:
    """Data, seed, method, budget and what was changed; a cell without a method is about USTAD itself."""
    changes = line["budget"].get("changes", {})
    budget = line["budget"]["name"].removesuffix("".join(f"-{name}={value}" for name, value in changes.items()))
    setting = ", ".join(f"{name} {value}" for name, value in changes.items()) or AS_IT_IS
    method = str(line.get("method", "ustad-plain"))
    window = ", past only" if line.get("window") == "past" else ""
    return line["data"], str(line["seed"]), NAMES.get(method, method) + window, budget, setting


def _training(lines: list[Line]) -> tuple[str, ...]:
    """How the network behind the lines was trained; dashes where none was."""
    with_training = [line for line in lines if line.get("training")]
    if not with_training:
        return ("–",) * 6
    training = sum_stages(with_training[0]["training"])
    return (
        str(training["epochs"]),
        f"{training['steps']:,}",
        say_stopped(with_training[0]["training"]),
        f"{100 * training.get('left_out', 0.0):g} %",
        plain(training["best_loss"]),
        plain(validation_loss(with_training[0])) if training.get("fields") else "–",
    )


def _errors(lines: list[Line]) -> tuple[str, ...]:
    """Mean absolute errors and the share of kinds that are right, of all events."""
    rows = [row for line in lines for row in line["result"].get("rows", []) if not row["rejected"]]
    by_term = {row["term"]: row for row in rows}
    return tuple(
        plain(by_term.get(term, {}).get("accuracy" if term == "poi" else "mae"), 1 if term == "poi" else 2)
        for term in TERMS
    )


def _areas(lines: list[Line]) -> tuple[str, ...]:
    """AUROC and AUPR of events and agents, where detection was asked."""
    results = [line["result"] for line in lines if line["experiment"] == "detection"]
    result = results[0] if results else {}
    return tuple(plain(result.get(level, {}).get(what)) for level in LEVELS for what in ("auroc", "ap"))
