"""Figures of epistemic uncertainty (EU): against the loss, and against the distance to the training events.

In go result lines with counts in hexagons, out come figures that are not drawn yet. Everything is of USTAD.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ustad.lab.evaluation.binning import pool_hexagons, pool_histograms
from ustad.lab.evaluation.drawing import Figure, add_count, draw_panels
from ustad.lab.evaluation.method_styles import NO_METHODS
from ustad.lab.evaluation.result_tables import TERMS, Line, format_mean, pooled_words, select_lines, sets, slug

#: Features whose loss and EU are in nats; those of numbers are of scaled values.
CATEGORIES = ("poi", "weekday")
ENDS = {"knn_low_eu": "5 % lowest EU", "knn_high_eu": "5 % highest EU"}


def epistemic_figures(lines: list[Line]) -> list[Figure]:
    figures = []
    for data in sets(lines):
        results = [line["result"] for line in select_lines(lines, data=data)]
        end = f"USTAD, {data}{pooled_words(lines, data)}"
        caption = f"Loss against EU for each feature (lighter: more events), {end}"
        figures.append(Figure(f"loss-eu-{slug(data)}", caption, partial(draw_loss_and_eu, results=results)))
        caption = f"Distance to the training events and EU (r and line: mean over data sets), {end}"
        figures.append(Figure(f"distance-eu-{slug(data)}", caption, partial(draw_distance_and_eu, results=results)))
    return figures


def draw_loss_and_eu(plt: Any, results: list[dict[str, Any]]) -> Any:
    """A panel a feature, all on one scale of colours."""
    bins_by_term = {
        term: pool_hexagons([r["terms"][term] for r in results if term in r["terms"]]) for term in _terms(results)
    }
    bins_by_term = {term: bins for term, bins in bins_by_term.items() if len(bins["x"])}
    figure, axes = draw_panels(plt, len(bins_by_term), columns=2, height=1.6)
    most = max((max(bins["count"]) for bins in bins_by_term.values()), default=1)
    for axis, (term, bins) in zip(axes, bins_by_term.items(), strict=True):
        hexagons = _draw_hexagons(plt, axis, bins, most)
        axis.set_title(add_count(TERMS.get(term, term).split(" (")[0], round(sum(bins["count"]))))
        is_category = term in CATEGORIES
        axis.set_xlabel(f"log₁₀ EU ({'nats' if is_category else 'scaled²'})")
        axis.set_ylabel(f"log₁₀ loss ({'nats' if is_category else 'no unit'})")
    if bins_by_term:
        _add_scale(figure, hexagons, axes)
    return figure


def _terms(results: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(term for result in results for term in result["terms"]))


def draw_distance_and_eu(plt: Any, results: list[dict[str, Any]]) -> Any:
    figure, (upper, lower) = draw_panels(plt, 2, columns=1, height=2.2)
    _draw_shares(upper, results)
    bins = pool_hexagons([result["hexagons"] for result in results])
    hexagons = _draw_hexagons(plt, lower, bins, max(bins["count"]))
    ends = np.array([min(bins["x"]), max(bins["x"])])
    slope, intercept = (np.mean([result["fit"][key] for result in results]) for key in ("slope", "intercept"))
    lower.plot(ends, slope * ends + intercept, color="black", linestyle="--")
    all_events, tail = (format_mean([result[key] for result in results], 2) for key in ("pearson", "pearson_tail"))
    n_events = sum(result["n"] for result in results)
    lower.set_title(f"r = {all_events}; of the 5 % highest EU {tail}\nn = {n_events:,} events")
    lower.set_xlabel("EU, summed over features (mixed units)")
    lower.set_ylabel("distance (network's units)")
    _add_scale(figure, hexagons, [lower])
    return figure


def _draw_shares(axis: Any, results: list[dict[str, Any]]) -> None:
    """How far the surest and the least sure events are from the training events."""
    for style, (key, label) in zip(NO_METHODS, ENDS.items(), strict=False):
        edges, counts = pool_histograms([r["edges"] for r in results], [r[key] for r in results])
        shares = 100 * counts / max(counts.sum(), 1)
        label = add_count(label, round(counts.sum()))
        axis.stairs(shares, edges, color=style.colour, label=label, fill=True, alpha=0.6)
    axis.set_ylim(0, 1.3 * axis.get_ylim()[1])  # room for the legend
    axis.set_xlabel("distance to the training events (network's units)")
    axis.set_ylabel("events (%)")
    axis.legend(loc="upper right")


def _draw_hexagons(plt: Any, axis: Any, bins: dict[str, Any], most: int) -> Any:
    """Hexagons of counted events, coloured by the logarithm of the count up to the most of all panels."""
    from matplotlib.collections import PolyCollection

    width, height = bins["size"]
    angles = np.pi / 6 + np.arange(6) * np.pi / 3
    corner = np.stack([np.cos(angles) * width, np.sin(angles) * height], axis=1) / np.sqrt(3)
    centres = np.stack([bins["x"], bins["y"]], axis=1).reshape(-1, 1, 2)
    scale = plt.matplotlib.colors.LogNorm(1, max(most, 2))
    counts = np.array(bins["count"], float)
    shapes = PolyCollection(centres + corner, array=counts, norm=scale, cmap="cividis", lw=0, rasterized=True)
    axis.add_collection(shapes)
    axis.autoscale_view()
    return shapes


def _add_scale(figure: Any, hexagons: Any, axes: list[Any]) -> None:
    """How many events a colour stands for."""
    bar = figure.colorbar(hexagons, ax=axes, location="bottom", aspect=40, pad=0.02)
    bar.set_label("events in a hexagon (count)")
    bar.ax.xaxis.set_major_formatter("{x:,.0f}")
    bar.ax.minorticks_off()
