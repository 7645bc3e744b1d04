"""Figures of uncertainty: errors of the events kept, kinds of place, AU and EU by weeks of training.

In go result lines, out come figures that are not drawn yet.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ustad.events.encoder import UNKNOWN
from ustad.lab.evaluation.drawing import (
    WIDTH,
    Figure,
    add_count,
    draw_panels,
    label_apart,
    plain_ticks,
    steps_that_fit,
)
from ustad.lab.evaluation.method_styles import NO_METHODS, style_of
from ustad.lab.evaluation.result_tables import (
    ENOUGH,
    NAMES,
    TERMS,
    Line,
    after,
    count_seeds,
    pooled_words,
    select_lines,
    sets,
    slug,
    spread_of,
)  # fmt: skip

#: What error bars are.
BARS = "standard deviation over data sets"
METHODS = ("ustad-plain", "ustad-au", "ustad-eu", "ustad-none")


def uncertainty_figures(lines: list[Line]) -> list[Figure]:
    """Of each data set the rejection curves, the kinds of place and the weeks of training, as far as there are any."""
    curves = [line for line in lines if "method" in line]
    sizes = _of_several_sizes(after(lines, "equal"))
    figures = []
    for data in sets(curves):
        caption = f"Error against the share of events kept, surest first, mean and {BARS}, {data}"
        own = select_lines(curves, data=data)
        figures.append(Figure(f"rejection-{slug(data)}", caption, partial(draw_rejection, lines=own)))
        own = [line for line in own if line["method"] == "ustad-plain"]
        if own:
            caption = f"EU and accuracy of each kind of place (area: how often; bars: {BARS}), {data}"
            caption += pooled_words(own, data)
            figures.append(Figure(f"classes-{slug(data)}", caption, partial(draw_classes, lines=own)))
    for data in sets(sizes):
        own = select_lines(sizes, data=data)
        caption = (
            "AU and EU by weeks of training, patience as long in steps: geometric mean and standard deviation of the "
            f"logarithms over data sets, {data}{_say_absent(own)}"
        )
        figures.append(Figure(f"training-size-{slug(data)}", caption, partial(draw_training_size, lines=own)))
    return figures


def _say_absent(lines: list[Line]) -> str:
    """Weeks between the fewest and the most that were not run."""
    weeks = {line["weeks"] for line in lines}
    absent = sorted(set(range(min(weeks), max(weeks))) - weeks)
    return f"; not run: {', '.join(f'{number} weeks' for number in absent)}" if absent else ""


def _of_several_sizes(lines: list[Line]) -> list[Line]:
    """Of data sets with at least two numbers of weeks: one alone would be a line of one point."""
    weeks = {data: {line["weeks"] for line in select_lines(lines, data=data)} for data in sets(lines)}
    return [line for line in lines if len(weeks[line["data"]]) > 1]


# ---------------------------------------------------------------------------------------------- rejection
def draw_rejection(plt: Any, lines: list[Line]) -> Any:
    """A panel a feature, error bars over data sets; the legend says how many each method ran on."""
    terms = [t for t in TERMS if any(t in x["result"]["curves"] for x in lines)]
    figure, axes = draw_panels(plt, len(terms), columns=2, height=1.5)
    for axis, term in zip(axes, terms, strict=True):
        for method in METHODS:
            if own := select_lines(lines, method=method):
                _draw_kept(axis, own, method, term)
        name, unit = _name_and_unit(term)
        axis.set_title(add_count(name, _most_seeds(lines)))
        axis.set_ylabel(f"MAE ({unit})" if unit else "accuracy (%)")
        axis.set_xlabel("events kept (%)")
    handles, labels = axes[0].get_legend_handles_labels() if axes else ([], [])
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
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
    look = {"marker": style.marker, "linestyle": style.line, "color": style.colour, "markersize": 2}
    axis.errorbar(
        shares, mean, yerr=spread, label=add_count(NAMES[method], len(results)), elinewidth=0.6, linewidth=1.0, **look
    )
    if method == "ustad-plain" and all("own" in result for result in results):
        mean, _ = _mean_and_spread([result["own"][term] for result in results], term)
        label = add_count("USTAD, by the feature's own", len(results))
        axis.errorbar(shares, mean, color=style.colour, linestyle=(0, (1, 1)), linewidth=1.0, label=label)


def _mean_and_spread(errors: list[list[float]], term: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Over data sets, at each share kept; of the kind of place the percentage that is right."""
    values = np.array(errors, float)
    if term == "poi":
        values = 100 * (1 - values)
    return values.mean(axis=0), values.std(axis=0, ddof=1) if len(values) >= ENOUGH else None


# ------------------------------------------------------------------------------------------ kinds of place
def draw_classes(plt: Any, lines: list[Line]) -> Any:
    """A circle per kind of place; the most frequent kinds are named where there is room."""
    rows = sorted(_pool_classes(lines), key=lambda row: -row["n"])
    figure, axis = plt.subplots(figsize=(WIDTH, 2.8))
    areas = [8 + 300 * row["n"] / rows[0]["n"] for row in rows]
    at = np.array([(*row["eu"], *row["right"]) for row in rows]).reshape(-1, 4)
    colour = style_of("ustad-plain").colour
    axis.scatter(at[:, 0], at[:, 2], s=areas, alpha=0.55, color=colour, edgecolor="white", zorder=3)
    upright = [np.minimum(at[:, 3], at[:, 2]), np.minimum(at[:, 3], 100 - at[:, 2])]  # no share is beyond 0 and 100 %
    axis.errorbar(at[:, 0], at[:, 2], xerr=at[:, 1], yerr=upright, fmt="none", ecolor="0.6", elinewidth=0.6)
    axis.margins(0.12)
    axis.set_ylim(-8, 108)
    axis.set_title(f"USTAD, n = {sum(row['n'] for row in rows):,} events")
    axis.set_xlabel("mean EU of the kind of place (nats)")
    axis.set_ylabel("accuracy (%)")
    circles = zip(at, np.sqrt(areas) / 2, rows, strict=True)
    label_apart(axis, [(point[0], point[2], radius, row["class"]) for point, radius, row in circles])
    return figure


def _pool_classes(lines: list[Line]) -> list[dict[str, Any]]:
    """Of each known kind of place its events over all data sets, and (mean over events, standard deviation over data
    sets) of EU and of the percentage that is right."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in (row for line in lines for row in line["result"]["classes"]):
        if row["class"] != UNKNOWN:
            by_kind.setdefault(row["class"], []).append(row)
    kinds = []
    for kind, rows in by_kind.items():
        n, eu, right = (np.array([row[key] for row in rows], float) for key in ("n", "eu", "accuracy"))
        values = {
            name: (float(np.average(v, weights=n)), spread_of(v) or 0.0)
            for name, v in (("eu", eu), ("right", 100 * right))
        }
        kinds.append({"class": kind, "n": int(n.sum()), **values})
    return kinds


# -------------------------------------------------------------------------------------- weeks of training
def draw_training_size(plt: Any, lines: list[Line]) -> Any:
    """AU and EU of each feature against those after the fewest weeks; ticks say how many data sets each mean is of."""
    figure, axes = draw_panels(plt, 2, columns=2, height=2.3)
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
        axis.set_ylabel(f"{what.upper()} (times that of {weeks[0]} week{'s' * (weeks[0] > 1)})")
        axis.set_yscale("log")
    axes[1].sharey(axes[0])
    for axis in axes:
        plain_ticks(plt, axis.yaxis, steps_that_fit(axis.yaxis))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _draw_term(axis: Any, number: int, term: str, weeks: list[int], *, ratios: np.ndarray) -> None:
    """Geometric means, and bars of one standard deviation of the logarithms, as the axis is logarithmic."""
    if not len(ratios):
        return
    logs, style = np.log(ratios), NO_METHODS[number]
    mean = np.exp(np.nanmean(logs, axis=0))
    has_spread = np.isfinite(logs).sum(axis=0) >= ENOUGH
    factor = np.exp(np.where(has_spread, np.nanstd(logs, axis=0), 0.0) * _of_samples(logs))
    beside = np.array(weeks) + 0.05 * (number - len(TERMS) // 2)  # so that no bar hides another
    look = {"marker": style.marker, "color": style.colour, "markersize": 3.5, "elinewidth": 0.7, "capsize": 1.5}
    axis.errorbar(
        beside, mean, yerr=[mean - mean / factor, mean * factor - mean], label=_name_and_unit(term)[0], **look
    )


def _of_samples(logs: np.ndarray) -> np.ndarray:
    """What turns a standard deviation of n values into the sample's."""
    n = np.isfinite(logs).sum(axis=0)
    return np.sqrt(n / np.maximum(n - 1, 1))


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
