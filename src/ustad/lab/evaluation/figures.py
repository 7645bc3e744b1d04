"""Figures from result lines: PNG, readable, in colours that colour-blind people can tell apart.

In go the lines that `experiments.read_results` returns and a directory; out come files and their names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ustad.events.encoder import UNKNOWN
from ustad.lab.evaluation.case_figures import case_figures
from ustad.lab.evaluation.curve_figures import curve_figures
from ustad.lab.evaluation.drawing import (
    COLOURS,
    FAMILIES,
    MARKERS,
    family,
    label_apart,
    plain_ticks,
    plots,
    steps_that_fit,
)
from ustad.lab.evaluation.result_tables import (
    KIND_NAMES,
    LEVELS,
    NAMES,
    SCORES,
    TERMS,
    Line,
    Results,
    after,
    detection_values,
    score_values,
    select_lines,
    sets,
    slug,
)  # fmt: skip

_RESOLUTION = 130
#: What matplotlib calls the five quantiles of a box.
BOX = ("whislo", "q1", "med", "q3", "whishi")


@dataclass(frozen=True)
class Figure:
    """A file name without its ending, a caption, and how to draw it given matplotlib's pyplot."""

    name: str
    caption: str
    draw: Callable[[Any], Any]


def draw_all(results: Results, directory: Path) -> None:
    """Every figure the results allow."""
    plt = plots()
    directory.mkdir(parents=True, exist_ok=True)
    for figures in _all(results).values():
        for figure in figures:
            picture = figure.draw(plt)
            picture.savefig(directory / f"{figure.name}.png", dpi=_RESOLUTION, metadata={"Software": None})
            plt.close(picture)


def plan_figures(results: Results) -> dict[str, list[tuple[str, str]]]:
    """(file name without its ending, caption) of every figure by experiment; draws nothing."""
    return {name: [(f.name, f.caption) for f in figures] for name, figures in _all(results).items()}


def _all(results: Results) -> dict[str, list[Figure]]:
    makers: dict[str, Callable[[list[Line]], list[Figure]]] = {
        "detection": _detection,
        "uncertainty": _uncertainty,
        "scores": _scores,
        "injections": _injections,
        "epistemic": _epistemic,
        "cases": lambda lines: [Figure(*case) for case in case_figures(lines)],
    }
    figures = {name: make(results[name]) if results[name] else [] for name, make in makers.items()}
    figures["detection"] = [*(Figure(*curve) for curve in curve_figures(results)), *figures["detection"]]
    figures["cases"] += makers["cases"](results.get("cases of best", []))
    return figures


# ---------------------------------------------------------------------------------------------- detection
def _detection(lines: list[Line]) -> list[Figure]:
    return [
        Figure(
            f"detection-{slug(data)}",
            f"AUROC and AUPR of every detector, mean and standard deviation over seeds, {data}",
            partial(_detectors, lines=select_lines(lines, data=data, window="day"), data=data),
        )
        for data in sets(lines)
    ]


def _detectors(plt: Any, lines: list[Line], data: str) -> Any:
    """A row per method; USTAD and its variants, deep baselines, our presets and the rest in colours of their own."""
    methods = list(dict.fromkeys(x["method"] for x in lines))[::-1]
    levels = [level for level in LEVELS if any(level in x["result"] for x in lines)]
    columns = [(level, what) for level in levels for what in ("auroc", "ap")]
    tall = 0.2 * len(methods) + 1.0
    figure, axes = plt.subplots(1, len(columns), figsize=(2.6 * len(columns) + 1, tall), sharey=True, squeeze=False)
    for axis, (level, what) in zip(axes[0], columns, strict=True):
        for row, method in enumerate(methods):
            values = detection_values(lines, data, method, level, what=what)
            if values:
                spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
                kind = FAMILIES[family(method)]
                axis.errorbar(np.mean(values), row, xerr=spread, fmt=MARKERS[kind], color=COLOURS[kind], capsize=2)
        axis.set_title(f"{'AUROC' if what == 'auroc' else 'AUPR'}, {level}, n = {_count_range(lines)}")
        axis.set_ylim(-0.6, len(methods) - 0.4)
        axis.set_yticks(range(len(methods)), [NAMES[m].replace("`", "") for m in methods])
        axis.grid(axis="y", color="0.92")
        if what == "auroc":
            axis.axvline(0.5, color="0.6", linewidth=0.8, linestyle=":")
        else:
            axis.set_xscale("log")
            plain_ticks(plt, axis.xaxis, (1.0, 3.0))
    return figure


# -------------------------------------------------------------------------------------------- uncertainty
def _uncertainty(lines: list[Line]) -> list[Figure]:
    curves = [line for line in lines if "method" in line]
    sizes = _of_several_sizes(after(lines, "equal"))
    makers: tuple[tuple[list[Line], str, str, Callable[..., Any]], ...] = (
        (curves, "rejection", "Error against the share of events kept, mean over seeds", _rejection),
        (_of_first_seed(curves), "classes", "EU and accuracy of each kind of place (area: how often)", _classes),
        (
            sizes,
            "training-size",
            "AU and EU by weeks of training, patience as long in steps, mean and standard deviation over seeds",
            _training_size,
        ),
    )
    return [
        Figure(
            f"{name}-{slug(data)}",
            f"{caption}, {data}{_seed_told(result, data) if name == 'classes' else ''}",
            partial(draw, lines=select_lines(result, data=data)),
        )
        for result, name, caption, draw in makers
        for data in sets(result)
    ]


def _of_several_sizes(lines: list[Line]) -> list[Line]:
    """Of data sets with at least two numbers of weeks: one alone would be a line of one point."""
    weeks = {data: {line["weeks"] for line in select_lines(lines, data=data)} for data in sets(lines)}
    return [line for line in lines if len(weeks[line["data"]]) > 1]


def _of_first_seed(lines: list[Line]) -> list[Line]:
    """Of each data set the lines of its lowest seed: what a figure of one model alone is drawn from."""
    first = {data: min(x["seed"] for x in select_lines(lines, data=data)) for data in sets(lines)}
    return [line for line in lines if line["seed"] == first[line["data"]]]


def _seed_told(lines: list[Line], data: str) -> str:
    return f", seed {select_lines(lines, data=data)[0]['seed']}"


def _rejection(plt: Any, lines: list[Line]) -> Any:
    """A panel a feature, error bars over data sets."""
    terms = [t for t in TERMS if any(t in x["result"]["curves"] for x in lines)]
    figure, axes = _panels(plt, len(terms))
    for axis, term in zip(axes, terms, strict=True):
        for i, method in enumerate(("ustad-plain", "ustad-au", "ustad-eu", "ustad-none")):
            results = [x["result"] for x in select_lines(lines, method=method)]
            if not results:
                continue
            values = np.mean([r["curves"][term] for r in results], axis=0)
            spread = np.std([r["curves"][term] for r in results], axis=0, ddof=1) if len(results) > 1 else None
            heights = 1 - values if term == "poi" else values
            shares = 100 * np.array(results[0]["kept"])
            style = {"marker": MARKERS[i], "markersize": 3, "color": COLOURS[i], "elinewidth": 0.7}
            axis.errorbar(shares, heights, yerr=spread, label=NAMES[method], **style)
            if method == "ustad-plain" and all("own" in r for r in results):
                own = np.mean([r["own"][term] for r in results], axis=0)
                label = "USTAD, by the feature's own"
                axis.plot(shares, 1 - own if term == "poi" else own, color=COLOURS[i], linestyle="--", label=label)
        title = "kind of place, share right" if term == "poi" else f"MAE, {TERMS[term]}"
        axis.set_title(f"{title}, n = {count_seeds(lines)}")
        axis.set_xlabel("% kept, surest first")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def _panels(plt: Any, count: int) -> tuple[Any, list[Any]]:
    """So many panels, three in a row: a figure that can be read at half a page."""
    rows = -(-count // 3)
    figure, axes = plt.subplots(rows, 3, figsize=(7.5, 2.4 * rows), squeeze=False)
    for axis in list(axes.flat)[count:]:
        axis.set_axis_off()
    return figure, list(axes.flat)[:count]


def _count_range(lines: list[Line]) -> str:
    """Data sets by method: `5`, or `1 to 5` where some methods were run on fewer than others."""
    counts = [count_seeds(select_lines(lines, method=m)) for m in dict.fromkeys(x["method"] for x in lines)]
    return str(max(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def count_seeds(lines: list[Line]) -> int:
    """Data sets (or runs on one) that a panel shows the mean of."""
    return len({line["seed"] for line in lines})


def _classes(plt: Any, lines: list[Line]) -> Any:
    """A circle per kind of place; the most frequent kinds are named where there is room."""
    rows = [
        r for x in select_lines(lines, method="ustad-plain") for r in x["result"]["classes"] if r["class"] != UNKNOWN
    ]
    rows = sorted(rows, key=lambda r: -r["n"])
    figure, axis = plt.subplots(figsize=(5.2, 3.6))
    areas = [15 + 600 * row["n"] / rows[0]["n"] for row in rows]
    at = [(row["eu"], 100 * row["accuracy"]) for row in rows]
    axis.scatter(*np.reshape(at, (-1, 2)).T, s=areas, alpha=0.55, color=COLOURS[0], edgecolor="white")
    axis.margins(0.12)
    axis.set_title(f"n = {sum(row['n'] for row in rows):,} events")
    axis.set_xlabel("mean EU of the kind of place, nats")
    axis.set_ylabel("accuracy, %")
    circles = zip(at, np.sqrt(areas) / 2, rows, strict=True)
    label_apart(axis, [(*point, radius, row["class"]) for point, radius, row in circles])
    return figure


def _training_size(plt: Any, lines: list[Line]) -> Any:
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.8))
    weeks = sorted({line["weeks"] for line in lines})
    for i, term in enumerate(TERMS):
        for axis, what in zip(axes, ("au", "eu"), strict=True):
            ratios = _against_first(lines, weeks, term, what)
            if len(ratios):
                spread = np.nanstd(ratios, axis=0, ddof=1) if len(ratios) > 1 else None
                style = {"marker": MARKERS[i], "color": COLOURS[i], "elinewidth": 0.8, "capsize": 2}
                beside = np.array(weeks) + 0.04 * (i - len(TERMS) // 2)  # so that no bar hides another
                axis.errorbar(
                    beside, np.nanmean(ratios, axis=0), yerr=spread, label=TERMS[term].split(" (")[0], **style
                )
    for axis, what in zip(axes, ("AU", "EU"), strict=True):
        axis.axhline(1, color="0.7", linewidth=0.8, zorder=0)
        axis.set_xlabel("weeks of training")
        axis.set_xticks(weeks)
        axis.set_title(f"{what}, against one week, n = {count_seeds(lines)}")
        axis.set_yscale("log")
        plain_ticks(plt, axis.yaxis, steps_that_fit(axis.yaxis))
    axes[0].legend(frameon=False, fontsize=7)
    return figure


def _against_first(lines: list[Line], weeks: list[int], term: str, what: str) -> np.ndarray:
    """AU or EU after each number of weeks over that after the fewest, NaN where it is missing: a row a seed."""
    rows = []
    for seed in sorted({line["seed"] for line in lines}):
        by_weeks = {x["weeks"]: x["result"]["terms"].get(term, {}).get(what) for x in select_lines(lines, seed=seed)}
        if first := by_weeks.get(weeks[0]):
            rows.append(np.array([by_weeks.get(w, np.nan) for w in weeks], float) / first)
    return np.array(rows)


# ------------------------------------------------------------------------------------------ scores, boxes
def _scores(lines: list[Line]) -> list[Figure]:
    return [
        Figure(f"scores-{what}", f"{word} of four scores of the same model", partial(_bars, lines=lines, what=what))
        for what, word in (("auroc", "AUROC"), ("ap", "AUPR"))
    ]


def _bars(plt: Any, lines: list[Line], what: str) -> Any:
    names = {level: [d for d in sets(lines) if score_values(lines, d, "loss", level, what=what)] for level in LEVELS}
    wide = [max(1, len(names[level])) for level in LEVELS]
    figure, axes = plt.subplots(1, 2, figsize=(1.3 * sum(wide) + 1, 3.2), width_ratios=wide)
    for axis, level in zip(axes, LEVELS, strict=True):
        for i, how in enumerate(("pe", "loss", "pe_au_eu", "loss_knn")):
            values = [score_values(lines, data, how, level, what=what) for data in names[level]]
            at = np.arange(len(values)) + 0.2 * (i - 1.5)
            spread = [np.std(v, ddof=1) if len(v) > 1 else 0 for v in values]
            heights = [np.mean(v) for v in values]
            axis.bar(at, heights, 0.18, yerr=spread, color=COLOURS[i], label=SCORES[how], error_kw={"lw": 0.8})
        counts = (count_seeds(select_lines(lines, data=data)) for data in names[level])
        ticks = [n.replace(" (", "\n(") + f", n = {k}" for n, k in zip(names[level], counts, strict=True)]
        axis.set_xticks(range(len(ticks)), ticks, fontsize=7)
        axis.set_title(f"{'AUROC' if what == 'auroc' else 'AUPR'}, {level}")
        if what == "auroc":
            axis.axhline(0.5, color="0.6", linewidth=0.8, linestyle=":")
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def _injections(lines: list[Line]) -> list[Figure]:
    first = _of_first_seed(lines)
    return [
        Figure(
            f"injections-{slug(data)}",
            f"Loss and distance by kind of injection, {data}{_seed_told(first, data)}",
            partial(_boxes, lines=select_lines(first, data=data)),
        )
        for data in sets(first)
    ]


def _boxes(plt: Any, lines: list[Line]) -> Any:
    """Boxes from quantiles, of each kind's own injection; whiskers are the 5th and 95th percentile."""
    boxes = {x["kind"]: x["result"]["boxes"] for x in lines}
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.1))
    titles = ("loss, scaled to [0, 1]", "distance in the network's space")
    for axis, what, title in zip(axes, ("loss", "knn"), titles, strict=True):
        groups = [("normal", next(iter(boxes.values()))["normal"])]
        groups += [(KIND_NAMES[k], boxes[k][k]) for k in KIND_NAMES if k in boxes and k in boxes[k]]
        stats = [
            {
                "label": f"{name}, n = {n:,}",
                "whislo": q[0],
                "q1": q[1],
                "med": q[2],
                "q3": q[3],
                "whishi": q[4],
                "fliers": [],
            }
            for name, n, q in ((name, box["n"], box[what]) for name, box in groups)
            if q
        ]
        axis.bxp(stats, showfliers=False, medianprops={"color": COLOURS[1]})
        plt.setp(axis.get_xticklabels(), rotation=30, ha="right")
        axis.set_title(title)
    return figure


# ----------------------------------------------------------------------------------------------- epistemic
def _epistemic(lines: list[Line]) -> list[Figure]:
    figures = []
    for line in _of_first_seed(lines):
        data, result, seed = line["data"], line["result"], line["seed"]
        caption = f"Loss against EU for each feature (lighter: more events), {data}, seed {seed}"
        figures.append(Figure(f"loss-eu-{slug(data)}", caption, partial(_loss_and_eu, result=result)))
        caption = f"Distance to the training events and EU, {data}, seed {seed}"
        figures.append(Figure(f"distance-eu-{slug(data)}", caption, partial(_distance_and_eu, result=result)))
    return figures


def _hexbin(axis: Any, bins: dict[str, Any]) -> None:
    """Hexagons of counted events, coloured by the logarithm of the count."""
    from matplotlib.collections import PolyCollection

    width, height = bins["size"]
    angles = np.pi / 6 + np.arange(6) * np.pi / 3
    corner = np.stack([np.cos(angles) * width, np.sin(angles) * height], axis=1) / np.sqrt(3)
    centres = np.stack([bins["x"], bins["y"]], axis=1).reshape(-1, 1, 2)
    counts = np.log10(np.array(bins["count"], float))
    shapes = PolyCollection(centres + corner, array=counts, cmap="cividis", lw=0, rasterized=True)
    axis.add_collection(shapes)
    axis.autoscale_view()


def _loss_and_eu(plt: Any, result: dict[str, Any]) -> Any:
    terms = [t for t, bins in result["terms"].items() if bins["x"]]
    figure, axes = _panels(plt, len(terms))
    for axis, term in zip(axes, terms, strict=True):
        _hexbin(axis, result["terms"][term])
        axis.set_title(f"{term}, n = {sum(result['terms'][term]['count']):,}")
        axis.set_xlabel("log₁₀ EU")
        axis.set_ylabel("log₁₀ loss")
    return figure


def _distance_and_eu(plt: Any, result: dict[str, Any]) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
    edges = np.array(result["edges"])
    for i, (key, label) in enumerate((("knn_low_eu", "5 % lowest EU"), ("knn_high_eu", "5 % highest EU"))):
        counts = np.array(result[key], float)
        left.stairs(counts / max(counts.sum(), 1), edges, color=COLOURS[i], label=label, fill=True, alpha=0.5)
    left.set_title(f"n = {result['n']:,} events")
    left.set_xlabel("distance to the training events")
    left.set_ylabel("share of events")
    left.legend(frameon=False, fontsize=7)
    _hexbin(right, result["hexagons"])
    ends = np.array([min(result["hexagons"]["x"]), max(result["hexagons"]["x"])])
    right.plot(ends, result["fit"]["slope"] * ends + result["fit"]["intercept"], color=COLOURS[1])
    right.set_title(f"r = {result['pearson']:.2f}; highest 5 % EU: {result['pearson_tail']:.2f}")
    right.set_xlabel("EU, summed over features")
    right.set_ylabel("distance")
    return figure
