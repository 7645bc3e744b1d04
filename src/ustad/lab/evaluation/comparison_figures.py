"""Figures that compare: methods by how well they detect, scores of one model, losses and distances of injections.

In go result lines, out come figures that are not drawn yet.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ustad.lab.evaluation.drawing import WIDTH, Figure, add_count, draw_panels, plain_ticks, steps_that_fit
from ustad.lab.evaluation.method_styles import NO_METHODS, style_of
from ustad.lab.evaluation.result_tables import (
    KIND_NAMES,
    LEVELS,
    NAMES,
    SCORES,
    Line,
    detection_values,
    of_first_seed,
    score_values,
    seed_words,
    select_lines,
    sets,
    slug,
)  # fmt: skip

WHATS = {"auroc": "AUROC", "ap": "AUPR"}
SCORES_SHOWN = ("pe", "loss", "pe_au_eu", "loss_knn")
#: What matplotlib calls the five quantiles of a box.
BOX = ("whislo", "q1", "med", "q3", "whishi")
#: Names of two axes of the boxes: of the loss and of the distance.
BOX_AXES = {"loss": "loss (each feature scaled to 0–1)", "knn": "distance (units of the network's space)"}


# ---------------------------------------------------------------------------------------------- detection
def detection_figures(lines: list[Line]) -> list[Figure]:
    """A figure for each data set and level; a level without figures has none."""
    figures = []
    for data in sets(lines):
        own = select_lines(lines, data=data, window="day")
        for level in (level for level in LEVELS if values_by_method(own, level, "auroc")):
            caption = f"AUROC and AUPR of {level} by every detector, mean and standard deviation over seeds, {data}"
            draw = partial(draw_detectors, lines=own, level=level)
            figures.append(Figure(f"detection-{slug(data)}-{level}", caption, draw))
    return figures


def values_by_method(lines: list[Line], level: str, what: str) -> dict[str, list[float]]:
    """AUROC or AUPR of each method that has it, a number per seed; the lines are of one data set."""
    data, methods = lines[0]["data"] if lines else "", dict.fromkeys(x["method"] for x in lines)
    values = {method: detection_values(lines, data, method, level, what=what) for method in methods}
    return {method: numbers for method, numbers in values.items() if numbers}


def draw_detectors(plt: Any, lines: list[Line], level: str) -> Any:
    """A row per method, with its name and how many data sets it ran on at the left; AUROC beside AUPR."""
    values = {what: values_by_method(lines, level, what) for what in WHATS}
    methods = list(values["auroc"])[::-1]
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 0.19 * len(methods) + 0.8), sharey=True)
    for axis, what in zip(axes, WHATS, strict=True):
        for row, method in enumerate(methods):
            _draw_row(axis, row, method, values[what].get(method, []))
        axis.grid(axis="y", color="0.92")
        axis.set_axisbelow(True)
    axes[0].set_ylim(-0.6, len(methods) - 0.4)
    labels = [add_count(NAMES[method].replace("`", ""), len(values["auroc"][method])) for method in methods]
    axes[0].set_yticks(range(len(methods)), labels)
    axes[0].axvline(0.5, color="0.6", linewidth=0.8, linestyle=":")
    axes[0].set_xlabel(f"AUROC of {level} (0–1; dotted: chance)")
    axes[1].set_xlabel(f"AUPR of {level} (0–1, logarithmic)")
    axes[1].set_xscale("log")
    plain_ticks(plt, axes[1].xaxis, steps_that_fit(axes[1].xaxis))
    return figure


def _draw_row(axis: Any, row: int, method: str, values: list[float]) -> None:
    """Mean and sample standard deviation of a method; a single value has no bar."""
    if not values:
        return
    style = style_of(method)
    spread = np.std(values, ddof=1) if len(values) > 1 else None
    look = {"fmt": style.marker, "color": style.colour, "markersize": 6, "elinewidth": 1, "capsize": 2}
    axis.errorbar(np.mean(values), row, xerr=spread, **look)


# ------------------------------------------------------------------------------------------------- scores
def score_figures(lines: list[Line]) -> list[Figure]:
    return [
        Figure(
            f"scores-{what}",
            f"{word} of four scores of the same model (USTAD), mean and standard deviation over seeds",
            partial(draw_scores, lines=lines, what=what),
        )
        for what, word in WHATS.items()
    ]


def draw_scores(plt: Any, lines: list[Line], what: str) -> Any:
    """A panel per level, a group of bars per data set."""
    figure, axes = draw_panels(plt, len(LEVELS), columns=1, height=2.4)
    for axis, level in zip(axes, LEVELS, strict=True):
        names = [data for data in sets(lines) if score_values(lines, data, "loss", level, what=what)]
        for number, how in enumerate(SCORES_SHOWN):
            values = [score_values(lines, data, how, level, what=what) for data in names]
            _draw_bars(axis, number, how, values)
        counts = [len(score_values(lines, data, "loss", level, what=what)) for data in names]
        ticks = [add_count(name.replace(" (", "\n("), n) for name, n in zip(names, counts, strict=True)]
        axis.set_xticks(range(len(ticks)), [tick.replace(", n =", "\nn =") for tick in ticks])
        axis.set_title(level)
        axis.set_ylabel(f"{WHATS[what]} (0–1)")
        if what == "auroc":
            axis.axhline(0.5, color="0.6", linewidth=0.8, linestyle=":")
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(SCORES_SHOWN))
    return figure


def _draw_bars(axis: Any, number: int, how: str, values: list[list[float]]) -> None:
    """One score's bar in each group: mean and sample standard deviation."""
    at = np.arange(len(values)) + 0.2 * (number - 1.5)
    spread = [np.std(v, ddof=1) if len(v) > 1 else np.nan for v in values]
    style = {"color": NO_METHODS[number].colour, "error_kw": {"lw": 0.9}, "capsize": 2}
    axis.bar(at, [np.mean(v) for v in values], 0.18, yerr=spread, label=SCORES[how], **style)


# --------------------------------------------------------------------------------------------- injections
def injection_figures(lines: list[Line]) -> list[Figure]:
    first = of_first_seed(lines)
    return [
        Figure(
            f"injections-{slug(data)}",
            f"Loss and distance by kind of injection (USTAD), {data}{seed_words(first, data)}",
            partial(draw_boxes, lines=select_lines(first, data=data)),
        )
        for data in sets(first)
    ]


def draw_boxes(plt: Any, lines: list[Line]) -> Any:
    """Boxes from quantiles, of each kind's own injection; whiskers are the 5th and 95th percentile."""
    boxes = {x["kind"]: x["result"]["boxes"] for x in lines}
    groups = [("normal", next(iter(boxes.values())).get("normal"))]
    groups += [(name, boxes.get(kind, {}).get(kind)) for kind, name in KIND_NAMES.items()]
    rows = [(name, box) for name, box in groups if box][::-1]
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 0.3 * len(rows) + 0.8), sharey=True)
    for axis, (what, label) in zip(axes, BOX_AXES.items(), strict=True):
        quantile_rows = [(row, box[what]) for row, (_, box) in enumerate(rows) if box[what]]
        stats = [dict(zip(BOX, quantiles, strict=True)) for _, quantiles in quantile_rows]
        style = {"color": style_of("ustad-plain").colour, "linewidth": 2}
        axis.bxp(
            stats,
            [row for row, _ in quantile_rows],
            orientation="horizontal",
            showfliers=False,
            widths=0.6,
            medianprops=style,
        )
        axis.set_xlabel(label)
    axes[0].set_yticks(range(len(rows)), [add_count(name, box["n"]) for name, box in rows])
    return figure
