"""Learning curves: validation loss by epoch of every network, one panel a method, one line a data set.

In go results, out comes how to draw them, given matplotlib's pyplot.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ustad.lab.evaluation.drawing import COLOURS, FAMILIES, family
from ustad.lab.evaluation.fitted_models import SAME
from ustad.lab.evaluation.result_tables import NAMES, Line, Results, select_lines, sets, slug
from ustad.lab.evaluation.stopping import OLDER_MARK, add_older_rule, has_ended, is_of_older_rule

COLUMNS = 4
DOT = 6  # the colour of the dot at the weights that were kept


def curve_figures(results: Results) -> list[tuple[str, str, Callable[[Any], Any]]]:
    """File name, caption and how to draw it, for every data set with trainings: of detectors, then of predictors."""
    lines = [line for name in ("detection", "prediction") for line in results.get(name, [])]
    by_data = {data: select_lines(lines, data=data) for data in sets(lines)}
    return [
        (f"curves-{slug(data)}", _caption(data, own), partial(draw_curves, lines=own))
        for data, own in by_data.items()
        if curves_by_method(own)
    ]


def _caption(data: str, lines: list[Line]) -> str:
    """What the curves are of; where networks stopped by the older rule, what the mark in their titles means."""
    return add_older_rule(f"Validation loss by epoch, {data}.", lines).removesuffix(".")


def curves_by_method(lines: list[Line]) -> dict[str, list[dict[str, Any]]]:
    """The trainings of each method that says how its went; a network that answers two questions counts once."""
    runs: dict[str, dict[int, dict[str, Any]]] = {}
    for line in lines:
        if line.get("training", {}).get("curve"):
            method = str(line["method"])
            own = runs.setdefault(SAME.get(method, method), {})
            own.setdefault(
                line["seed"], {**line["training"], "ended": has_ended(line), "older": is_of_older_rule(line)}
            )
    return {method: list(own.values()) for method, own in runs.items()}


def draw_curves(plt: Any, lines: list[Line]) -> Any:
    """A dot marks the weights that were kept; a line without room after it was cut before it stopped by itself."""
    methods = curves_by_method(lines)
    rows = -(-len(methods) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(10, 2.1 * rows), squeeze=False)
    for axis, (method, runs) in zip(axes.flat, methods.items(), strict=False):
        for run in runs:
            curve = np.array(run["curve"], float)
            axis.plot(np.arange(1, len(curve) + 1), curve, color=COLOURS[FAMILIES[family(method)]], linewidth=0.9)
            axis.plot(run["best_epoch"] + 1, curve.min(), "o", color=COLOURS[DOT], markersize=3)
        values = np.concatenate([np.array(run["curve"], float)[1:] for run in runs] or [np.zeros(1)])
        if len(values):
            low, high = values.min(), np.quantile(values, 0.97)
            axis.set_ylim(low - 0.08 * (high - low + 1e-9), high + 0.1 * (high - low + 1e-9))
        count, older = (sum(run[key] for run in runs) for key in ("ended", "older"))
        mark = f", {older} {OLDER_MARK}" if older else ""
        axis.set_title(f"{NAMES[method].replace('`', '')}, n = {len(runs)}, {count} ended{mark}", fontsize=7)
        axis.set_xlabel("epoch", fontsize=7)
    for axis in list(axes.flat)[len(methods) :]:
        axis.set_axis_off()
    figure.supylabel("validation loss", fontsize=8)
    return figure
