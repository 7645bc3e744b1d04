"""Learning curves: validation loss by epoch of every network, one panel a method, one line a data set.

In go results, out come figures that are not drawn yet.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ustad.lab.evaluation.drawing import SMALL, Figure, draw_panels
from ustad.lab.evaluation.fairness_tables import WITH_NETWORKS
from ustad.lab.evaluation.fitted_models import SAME
from ustad.lab.evaluation.method_styles import family, style_of
from ustad.lab.evaluation.result_tables import NAMES, Line, Results, select_lines, sets, slug
from ustad.lab.evaluation.stopping import OLDER_MARK, add_older_rule, has_ended, is_of_older_rule, list_stages

COLUMNS = 2
#: Panels of one figure: more would not fit a page.
MOST_PANELS = 12
DOT = "black"  # at the weights that were kept
Curves = dict[str, list[dict[str, Any]]]


def curve_figures(results: Results) -> list[Figure]:
    """Of every data set with trainings: networks of the baselines, then those of USTAD and our presets."""
    lines = [line for name in WITH_NETWORKS for line in results.get(name, [])]
    by_data = {data: select_lines(lines, data=data) for data in sets(lines)}
    return [figure for data, own in by_data.items() for figure in _figures_of(data, own)]


def _figures_of(data: str, lines: list[Line]) -> list[Figure]:
    figures = []
    for group, words in (("baselines", "networks of the baselines"), ("ustad", "USTAD, its variants and our presets")):
        own = [line for line in lines if (family(line["method"]) == "deep") == (group == "baselines")]
        curves = curves_by_method(own)
        for part, methods in enumerate(_split(list(curves))):
            name = f"curves-{slug(data)}-{group}{f'-{part + 1}' if part else ''}"
            draw = partial(draw_curves, curves={method: curves[method] for method in methods})
            figures.append(Figure(name, _caption(words, data, own), draw))
    return figures


def _split(methods: list[str]) -> list[list[str]]:
    """Methods of each figure, as even as can be."""
    parts = -(-len(methods) // MOST_PANELS)
    return [list(part) for part in np.array_split(methods, parts)] if parts else []


def _caption(words: str, data: str, lines: list[Line]) -> str:
    """What the curves are of; where networks stopped by the older rule, what the mark in their titles means."""
    caption = f"Validation loss by epoch (each method's own units), {words}, {data}. Dots: the weights that were kept."
    two_stages = dict.fromkeys(NAMES[x["method"]] for x in lines if len(list_stages(x.get("training", {}))) > 1)
    caption += f" Of {', '.join(two_stages)} the second of two trainings." if two_stages else ""
    return add_older_rule(caption, lines).removesuffix(".")


def curves_by_method(lines: list[Line]) -> Curves:
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


def draw_curves(plt: Any, curves: Curves) -> Any:
    """A dot marks the weights that were kept; a line without room after it was cut before it stopped by itself."""
    figure, axes = draw_panels(plt, len(curves), columns=COLUMNS, height=1.25)
    for axis, (method, runs) in zip(axes, curves.items(), strict=True):
        _draw_runs(axis, method, runs)
        _limit_losses(axis, runs)
        axis.set_title(_title(method, runs), fontsize=SMALL)
        axis.xaxis.get_major_locator().set_params(integer=True)
    figure.supxlabel("training (epochs)", fontsize=SMALL)
    figure.supylabel("validation loss\n(own units)", fontsize=SMALL)
    return figure


def _draw_runs(axis: Any, method: str, runs: list[dict[str, Any]]) -> None:
    for run in runs:
        curve = np.array(run["curve"], float)
        axis.plot(np.arange(1, len(curve) + 1), curve, color=style_of(method).colour, linewidth=0.9)
        axis.plot(run["best_epoch"] + 1, curve.min(), "o", color=DOT, markersize=2.5)


def _limit_losses(axis: Any, runs: list[dict[str, Any]]) -> None:
    """The losses that can be compared: the first epoch's are far above the rest."""
    values = np.concatenate([np.array(run["curve"], float)[1:] for run in runs] or [np.zeros(1)])
    if len(values):
        low, high = values.min(), np.quantile(values, 0.97)
        axis.set_ylim(low - 0.08 * (high - low + 1e-9), high + 0.1 * (high - low + 1e-9))


def _title(method: str, runs: list[dict[str, Any]]) -> str:
    """The method; below how many networks were trained, stopped by themselves, and did so by the older rule."""
    n_ended, n_older = (sum(run[key] for run in runs) for key in ("ended", "older"))
    mark = f" {OLDER_MARK}" if n_older == len(runs) else f" ({n_older} {OLDER_MARK})" if n_older else ""
    return f"{NAMES[method].replace('`', '')}\nn = {len(runs)}, {n_ended} ended{mark}"
