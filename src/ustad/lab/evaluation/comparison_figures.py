"""Figures that compare: methods by how well they detect, scores of one model, losses and distances of injections.

In go result lines, out come figures that are not drawn yet.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ustad.lab.evaluation.drawing import WIDTH, Figure, add_count, thin_ticks
from ustad.lab.evaluation.method_styles import NO_METHODS, style_of
from ustad.lab.evaluation.result_tables import (
    KIND_NAMES,
    LEVELS,
    NAMES,
    SCORES,
    WHATS,
    Line,
    detection_values,
    pooled_words,
    score_values,
    select_lines,
    sets,
    slug,
    spread_of,
)  # fmt: skip

SCORES_SHOWN = ("pe", "loss", "pe_au_eu", "loss_knn")
#: What matplotlib calls the five quantiles of a box.
BOX = ("whislo", "q1", "med", "q3", "whishi")
#: Names of two axes of the boxes: of the loss and of the distance.
BOX_AXES = {"loss": "loss (features\nscaled to 0–1)", "knn": "distance\n(network's units)"}


# ---------------------------------------------------------------------------------------------- detection
def detection_figures(lines: list[Line]) -> list[Figure]:
    """A figure for each data set and level; a level without figures has none."""
    figures = []
    for data in sets(lines):
        own = select_lines(lines, data=data, window="day")
        for level in (level for level in LEVELS if values_by_method(own, level, "auroc")):
            caption = (
                f"AUROC and AUPR of {level} by every detector, mean and standard deviation over data sets, {data} "
                "(dotted: chance, for AUPR the share of anomalies)"
            )
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
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 0.16 * len(methods) + 0.8), sharey=True)
    for axis, what in zip(axes, WHATS, strict=True):
        for row, method in enumerate(methods):
            _draw_row(axis, row, method, values[what].get(method, []))
        axis.grid(axis="y", color="0.92")
        axis.set_axisbelow(True)
    axes[0].set_ylim(-0.6, len(methods) - 0.4)
    labels = [add_count(NAMES[method].replace("`", ""), len(values["auroc"][method])) for method in methods]
    axes[0].set_yticks(range(len(methods)), labels)
    axes[0].axvline(0.5, color="0.6", linewidth=0.8, linestyle=":")
    if shares := [x["result"][level]["prevalence"] for x in lines if "prevalence" in x["result"].get(level, {})]:
        axes[1].axvline(np.mean(shares), color="0.6", linewidth=0.8, linestyle=":")
    axes[0].set_xlabel("AUROC\n(0–1)")
    axes[1].set_xlabel("AUPR\n(0–1, log)")
    axes[1].set_xscale("log")
    thin_ticks(plt, axes[1].xaxis, least=0.4)
    return figure


def _draw_row(axis: Any, row: int, method: str, values: list[float]) -> None:
    """Mean and sample standard deviation of a method; a mean of few values has no bar."""
    if not values:
        return
    style = style_of(method)
    spread = spread_of(values)
    look = {"fmt": style.marker, "color": style.colour, "markersize": 4, "elinewidth": 0.8, "capsize": 1.5}
    axis.errorbar(np.mean(values), row, xerr=spread, **look)


# ------------------------------------------------------------------------------------------------- scores
def score_figures(lines: list[Line]) -> list[Figure]:
    return [
        Figure(
            f"scores-{what}",
            f"{word} of four scores of the same model (USTAD), mean and standard deviation over data sets"
            + (" (dotted: chance)" if what == "auroc" else ""),
            partial(draw_scores, lines=lines, what=what),
        )
        for what, word in WHATS.items()
    ]


def draw_scores(plt: Any, lines: list[Line], what: str) -> Any:
    """A row per data set, a panel per level, a dot per score."""
    names = sets(lines)[::-1]
    figure, axes = plt.subplots(1, len(LEVELS), figsize=(WIDTH, 0.5 * len(names) + 1.1), sharey=True)
    for axis, level in zip(axes, LEVELS, strict=True):
        for number, how in enumerate(SCORES_SHOWN):
            values = [score_values(lines, data, how, level, what=what) for data in names]
            _draw_dots(axis, number, how, values)
        axis.set_xlabel(f"{WHATS[what]} of {level}\n(0–1)")
        axis.grid(axis="x", color="0.92")
        axis.set_axisbelow(True)
        if what == "auroc":
            axis.axvline(0.5, color="0.6", linewidth=0.8, linestyle=":")
        else:
            axis.set_xlim(left=0)
    counts = [len({line["seed"] for line in select_lines(lines, data=data)}) for data in names]
    ticks = [add_count(name.replace(" (", "\n("), n) for name, n in zip(names, counts, strict=True)]
    axes[0].set_yticks(range(len(names)), ticks)
    axes[0].set_ylim(-0.6, len(names) - 0.4)
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(SCORES_SHOWN))
    return figure


def _draw_dots(axis: Any, number: int, how: str, values: list[list[float]]) -> None:
    """One score's dot in each row that has it: mean and sample standard deviation."""
    at = np.arange(len(values)) + 0.18 * (1.5 - number)
    mean = [np.mean(v) if v else np.nan for v in values]
    spread = [spread_of(v) or np.nan for v in values]
    style = NO_METHODS[number]
    look = {"fmt": style.marker, "color": style.colour, "elinewidth": 0.8, "capsize": 1.5}
    axis.errorbar(mean, at, xerr=spread, label=SCORES[how], **look)


# --------------------------------------------------------------------------------------------- injections
def injection_figures(lines: list[Line]) -> list[Figure]:
    return [
        Figure(
            f"injections-{slug(data)}",
            "Loss and distance by kind of injection (USTAD): each quantile is the mean over data sets, dots are the "
            f"medians of each, {data}{pooled_words(lines, data)}",
            partial(draw_boxes, lines=select_lines(lines, data=data)),
        )
        for data in sets(lines)
    ]


def draw_boxes(plt: Any, lines: list[Line]) -> Any:
    """Boxes of each kind's own injection over data sets; whiskers are the 5th and 95th percentile."""
    first = lines[0]["kind"]
    boxes = {"normal": [x["result"]["boxes"].get("normal") for x in select_lines(lines, kind=first)]}
    for kind, name in KIND_NAMES.items():
        boxes[name] = [x["result"]["boxes"].get(kind) for x in select_lines(lines, kind=kind)]
    rows = [(name, own) for name, parts in boxes.items() if (own := [part for part in parts if part])][::-1]
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 0.3 * len(rows) + 0.8), sharey=True)
    for axis, (what, label) in zip(axes, BOX_AXES.items(), strict=True):
        for row, (_, own) in enumerate(rows):
            _draw_box(axis, row, [part[what] for part in own if part[what]])
        axis.set_xlabel(label)
    labels = [add_count(name, sum(part["n"] for part in own)) for name, own in rows]
    axes[0].set_yticks(range(len(rows)), labels)
    return figure


def _draw_box(axis: Any, row: int, quantiles: list[list[float]]) -> None:
    """A box of the mean quantiles, and the median of each data set."""
    if not quantiles:
        return
    colour = style_of("ustad-plain").colour
    box = dict(zip(BOX, np.mean(quantiles, axis=0), strict=True))
    look = {"orientation": "horizontal", "showfliers": False, "widths": 0.6, "manage_ticks": False}
    axis.bxp([box], [row], medianprops={"color": colour, "linewidth": 1.5}, **look)
    medians = [own[BOX.index("med")] for own in quantiles]
    axis.plot(medians, np.full(len(medians), row), ".", color=colour, markersize=3, alpha=0.7)
