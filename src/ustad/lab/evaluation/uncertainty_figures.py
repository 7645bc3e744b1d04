"""Figures of uncertainty: errors of the events kept, kinds of place, AU and EU by weeks of training.

In go result lines, out come figures that are not drawn yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ustad.events.encoder import UNKNOWN
from ustad.lab.evaluation.drawing import (
    Figure,
    add_count,
    draw_panels,
    label_apart,
    plain_ticks,
    steps_that_fit,
)
from ustad.lab.evaluation.method_styles import NO_METHODS, style_of
from ustad.lab.evaluation.result_tables import (
    NAMES,
    TERMS,
    Line,
    after,
    count_seeds,
    of_first_seed,
    seed_words,
    select_lines,
    sets,
    slug,
)  # fmt: skip

METHODS = ("ustad-plain", "ustad-au", "ustad-eu", "ustad-none")


def uncertainty_figures(lines: list[Line]) -> list[Figure]:
    curves = [line for line in lines if "method" in line]
    sizes = _of_several_sizes(after(lines, "equal"))
    makers: tuple[tuple[list[Line], str, str, Callable[..., Any]], ...] = (
        (
            curves,
            "rejection",
            "Error against the share of events kept, surest first, mean and standard deviation over seeds",
            draw_rejection,
        ),
        (of_first_seed(curves), "classes", "EU and accuracy of each kind of place (area: how often)", draw_classes),
        (
            sizes,
            "training-size",
            "AU and EU by weeks of training, patience as long in steps, mean and standard deviation over seeds",
            draw_training_size,
        ),
    )
    return [
        Figure(
            f"{name}-{slug(data)}",
            f"{caption}, {data}{seed_words(result, data) if name == 'classes' else ''}",
            partial(draw, lines=select_lines(result, data=data)),
        )
        for result, name, caption, draw in makers
        for data in sets(result)
    ]


def _of_several_sizes(lines: list[Line]) -> list[Line]:
    """Of data sets with at least two numbers of weeks: one alone would be a line of one point."""
    weeks = {data: {line["weeks"] for line in select_lines(lines, data=data)} for data in sets(lines)}
    return [line for line in lines if len(weeks[line["data"]]) > 1]


# ---------------------------------------------------------------------------------------------- rejection
def draw_rejection(plt: Any, lines: list[Line]) -> Any:
    """A panel a feature, error bars over data sets; the legend says how many each method ran on."""
    terms = [t for t in TERMS if any(t in x["result"]["curves"] for x in lines)]
    figure, axes = draw_panels(plt, len(terms), columns=3, height=2.2)
    for axis, term in zip(axes, terms, strict=True):
        for method in METHODS:
            if own := select_lines(lines, method=method):
                _draw_kept(axis, own, method, term)
        name, unit = _name_and_unit(term)
        axis.set_title(add_count(name, _most_seeds(lines)))
        axis.set_ylabel(f"MAE ({unit})" if unit else "accuracy (%)")
        axis.set_xlabel("events kept (%)")
    handles, labels = axes[0].get_legend_handles_labels() if axes else ([], [])
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _name_and_unit(term: str) -> tuple[str, str]:
    """`x` and `km` of the term x; the kind of place has no unit."""
    name, _, unit = TERMS[term].removesuffix(")").partition(" (")
    return name, unit


def _most_seeds(lines: list[Line]) -> int:
    """Data sets of the method shown that ran on most."""
    return max((count_seeds(select_lines(lines, method=method)) for method in METHODS), default=0)


def _draw_kept(axis: Any, lines: list[Line], method: str, term: str) -> None:
    """One method's line in the panel of a term; USTAD also by the uncertainty of that term alone."""
    results, style = [line["result"] for line in lines], style_of(method)
    shares = 100 * np.array(results[0]["kept"])
    mean, spread = _mean_and_spread([result["curves"][term] for result in results], term)
    look = {"marker": style.marker, "linestyle": style.line, "color": style.colour, "markersize": 3}
    axis.errorbar(
        shares, mean, yerr=spread, label=add_count(NAMES[method], len(results)), elinewidth=0.7, linewidth=1.2, **look
    )
    if method == "ustad-plain" and all("own" in result for result in results):
        mean, _ = _mean_and_spread([result["own"][term] for result in results], term)
        label = add_count("USTAD, by the feature's own", len(results))
        axis.errorbar(shares, mean, color=style.colour, linestyle=(0, (1, 1)), linewidth=1.2, label=label)


def _mean_and_spread(errors: list[list[float]], term: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Over data sets, at each share kept; of the kind of place the percentage that is right."""
    values = np.array(errors, float)
    if term == "poi":
        values = 100 * (1 - values)
    return values.mean(axis=0), values.std(axis=0, ddof=1) if len(values) > 1 else None


# ------------------------------------------------------------------------------------------ kinds of place
def draw_classes(plt: Any, lines: list[Line]) -> Any:
    """A circle per kind of place; the most frequent kinds are named where there is room."""
    rows = [
        r for x in select_lines(lines, method="ustad-plain") for r in x["result"]["classes"] if r["class"] != UNKNOWN
    ]
    rows = sorted(rows, key=lambda r: -r["n"])
    figure, axis = plt.subplots(figsize=(5.2, 3.6))
    areas = [15 + 600 * row["n"] / rows[0]["n"] for row in rows]
    at = [(row["eu"], 100 * row["accuracy"]) for row in rows]
    colour = style_of("ustad-plain").colour
    axis.scatter(*np.reshape(at, (-1, 2)).T, s=areas, alpha=0.55, color=colour, edgecolor="white")
    axis.margins(0.12)
    axis.set_title(f"USTAD, n = {sum(row['n'] for row in rows):,} events")
    axis.set_xlabel("mean EU of the kind of place (nats)")
    axis.set_ylabel("accuracy (%)")
    circles = zip(at, np.sqrt(areas) / 2, rows, strict=True)
    label_apart(axis, [(*point, radius, row["class"]) for point, radius, row in circles])
    return figure


# -------------------------------------------------------------------------------------- weeks of training
def draw_training_size(plt: Any, lines: list[Line]) -> Any:
    """AU and EU of each feature against those after the fewest weeks; ticks say how many data sets each mean is of."""
    figure, axes = draw_panels(plt, 2, columns=2, height=2.9)
    weeks = sorted({line["weeks"] for line in lines})
    for axis, what in zip(axes, ("au", "eu"), strict=True):
        ratios = {term: against_first(lines, weeks, term, what) for term in TERMS}
        for number, term in enumerate(TERMS):
            _draw_term(axis, number, term, weeks, ratios=ratios[term])
        axis.axhline(1, color="0.7", linewidth=0.8, zorder=0)
        axis.set_xlabel("training (weeks)")
        counts = _count_values(list(ratios.values()), len(weeks))
        axis.set_xticks(weeks, [f"{number}\nn = {n}" for number, n in zip(weeks, counts, strict=True)])
        axis.set_title("USTAD")
        axis.set_ylabel(f"{what.upper()} (times that after {weeks[0]} week{'s' * (weeks[0] > 1)})")
        axis.set_yscale("log")
        plain_ticks(plt, axis.yaxis, steps_that_fit(axis.yaxis))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(TERMS))
    return figure


def _draw_term(axis: Any, number: int, term: str, weeks: list[int], *, ratios: np.ndarray) -> None:
    if not len(ratios):
        return
    spread = np.nanstd(ratios, axis=0, ddof=1) if len(ratios) > 1 else None
    style = NO_METHODS[number]
    beside = np.array(weeks) + 0.04 * (number - len(TERMS) // 2)  # so that no bar hides another
    look = {"marker": style.marker, "color": style.colour, "markersize": 5, "elinewidth": 0.8, "capsize": 2}
    axis.errorbar(beside, np.nanmean(ratios, axis=0), yerr=spread, label=_name_and_unit(term)[0], **look)


def _count_values(ratios: list[np.ndarray], columns: int) -> list[int]:
    """Data sets that the means of each column are of: those of the feature that has most."""
    counts = [np.isfinite(rows).sum(axis=0) for rows in ratios if len(rows)]
    return [int(n) for n in np.max(counts, axis=0)] if counts else [0] * columns


def against_first(lines: list[Line], weeks: list[int], term: str, what: str) -> np.ndarray:
    """AU or EU after each number of weeks over that after the fewest, NaN where it is missing: a row a seed."""
    rows = []
    for seed in sorted({line["seed"] for line in lines}):
        by_weeks = {x["weeks"]: x["result"]["terms"].get(term, {}).get(what) for x in select_lines(lines, seed=seed)}
        if first := by_weeks.get(weeks[0]):
            rows.append(np.array([by_weeks.get(w, np.nan) for w in weeks], float) / first)
    return np.array(rows)
