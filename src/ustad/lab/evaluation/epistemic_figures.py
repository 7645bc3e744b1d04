"""Figures of epistemic uncertainty (EU): against the loss, and against the distance to the training events.

In go result lines with counts in hexagons, out come figures that are not drawn yet. Everything is of USTAD.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ustad.lab.evaluation.drawing import Figure, add_count, draw_panels
from ustad.lab.evaluation.method_styles import NO_METHODS
from ustad.lab.evaluation.result_tables import TERMS, Line, of_first_seed, slug

#: Features whose loss and EU are in nats; those of numbers are of scaled values.
CATEGORIES = ("poi", "weekday")
ENDS = {"knn_low_eu": "5 % lowest EU", "knn_high_eu": "5 % highest EU"}


def epistemic_figures(lines: list[Line]) -> list[Figure]:
    figures = []
    for line in of_first_seed(lines):
        data, result, seed = line["data"], line["result"], line["seed"]
        caption = f"Loss against EU for each feature (lighter: more events), {data}, seed {seed}"
        figures.append(Figure(f"loss-eu-{slug(data)}", caption, partial(draw_loss_and_eu, result=result)))
        caption = f"Distance to the training events and EU, {data}, seed {seed}"
        figures.append(Figure(f"distance-eu-{slug(data)}", caption, partial(draw_distance_and_eu, result=result)))
    return figures


def draw_loss_and_eu(plt: Any, result: dict[str, Any]) -> Any:
    """A panel a feature, all on one scale of colours."""
    terms = [t for t, bins in result["terms"].items() if bins["x"]]
    figure, axes = draw_panels(plt, len(terms), columns=3, height=2.2)
    most = max((max(result["terms"][term]["count"]) for term in terms), default=1)
    for axis, term in zip(axes, terms, strict=True):
        hexagons = _draw_hexagons(plt, axis, result["terms"][term], most)
        axis.set_title(add_count(TERMS.get(term, term).split(" (")[0], sum(result["terms"][term]["count"])))
        is_category = term in CATEGORIES
        axis.set_xlabel(f"log₁₀ EU ({'nats' if is_category else 'scaled²'})")
        axis.set_ylabel(f"log₁₀ loss ({'nats' if is_category else 'no unit'})")
    if terms:
        _add_scale(figure, hexagons, axes)
    return figure


def draw_distance_and_eu(plt: Any, result: dict[str, Any]) -> Any:
    figure, (left, right) = draw_panels(plt, 2, columns=2, height=2.9)
    _draw_shares(left, result)
    hexagons = _draw_hexagons(plt, right, result["hexagons"], max(result["hexagons"]["count"]))
    ends = np.array([min(result["hexagons"]["x"]), max(result["hexagons"]["x"])])
    line = result["fit"]["slope"] * ends + result["fit"]["intercept"]
    right.plot(ends, line, color="black", linestyle="--")
    words = f"r = {result['pearson']:.2f}; highest 5 % EU: {result['pearson_tail']:.2f}"
    right.set_title(f"{words}\nn = {result['n']:,} events")
    right.set_xlabel("EU, summed over features (mixed units)")
    right.set_ylabel("distance (network's units)")
    _add_scale(figure, hexagons, [right])
    return figure


def _draw_shares(axis: Any, result: dict[str, Any]) -> None:
    """How far the surest and the least sure events are from the training events."""
    edges = np.array(result["edges"])
    for style, (key, label) in zip(NO_METHODS, ENDS.items(), strict=False):
        counts = np.array(result[key], float)
        shares = 100 * counts / max(counts.sum(), 1)
        label = add_count(label, int(counts.sum()))
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
    bar = figure.colorbar(hexagons, ax=axes, shrink=0.8, aspect=30 if len(axes) > 3 else 20, pad=0.02)
    bar.set_label("events in a hexagon (count)")
    bar.ax.yaxis.set_major_formatter("{x:,.0f}")
    bar.ax.minorticks_off()
