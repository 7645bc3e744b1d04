"""What all figures share: their size, matplotlib's settings, ticks that can be read, labels that stand apart.

Matplotlib is imported here alone, when a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ustad.config import ConfigError

#: Okabe and Ito's colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
#: Inches: half the width of a printed page, where type is read at its own size.
WIDTH = 3.5
#: Points: the smallest type, and that of titles and axes.
SMALL, LARGE = 7, 7.5
#: Where a label may stand beside its point: right, left, above and below, then the corners.
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
#: Share of a label that may lie over other points.
_MOST_COVERED = 0.1


@dataclass(frozen=True)
class Figure:
    """A file name without its ending, a caption, and how to draw it given matplotlib's pyplot."""

    name: str
    caption: str
    draw: Callable[[Any], Any]


def plots() -> Any:
    """Matplotlib without a screen, with settings that make the same file of the same figures."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError("figures need matplotlib: pip install 'ustad[lab]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "figure.dpi": 100,  # whatever a notebook set: labels are placed by their size in dots
            "svg.hashsalt": "ustad",
            "svg.fonttype": "none",  # text stays text: smaller files that can be searched
            "font.size": LARGE,
            "axes.titlesize": LARGE,
            "axes.linewidth": 0.6,
            "lines.linewidth": 1.0,
            "lines.markersize": 4,
            "xtick.major.width": 0.6,
            "ytick.major.width": 0.6,
            "xtick.labelsize": SMALL,
            "ytick.labelsize": SMALL,
            "legend.fontsize": SMALL,
            "legend.frameon": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": plt.cycler(color=COLOURS),
            "figure.constrained_layout.use": True,
        }
    )
    return plt


def draw_panels(plt: Any, count: int, *, columns: int, height: float) -> tuple[Any, list[Any]]:
    """A figure with so many panels in columns, each so many inches high, and the panels."""
    rows = max(1, -(-count // columns))
    figure, axes = plt.subplots(rows, columns, figsize=(WIDTH, height * rows), squeeze=False)
    for axis in list(axes.flat)[count:]:
        axis.set_axis_off()
    return figure, list(axes.flat)[:count]


def add_count(words: str, n: int) -> str:
    """`USTAD, n = 5`."""
    return f"{words}, n = {n:,}"


def plain_ticks(plt: Any, axis: Any, steps: Sequence[float]) -> None:
    """Ticks of a logarithmic axis at these multiples of powers of ten, as plain numbers."""
    ticker = plt.matplotlib.ticker
    axis.set_major_locator(ticker.LogLocator(subs=steps))
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.set_minor_formatter(ticker.NullFormatter())


def steps_that_fit(axis: Any) -> tuple[float, ...]:
    """Multiples of powers of ten whose labels have room above each other on a logarithmic axis, by how far it goes."""
    low, high = axis.get_view_interval()
    reach = np.log10(high / low)
    steps = ((3.0, "1"), (0.9, "125"), (0.5, "12357"), (0.0, "123456789"))
    return tuple(map(float, next(digits for least, digits in steps if reach > least)))


def thin_ticks(plt: Any, axis: Any, *, least: float) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten, from the right, each so large a share of the axis
    after the last: labels side by side take much room."""
    low, high = np.log10(axis.get_view_interval())
    powers = np.arange(np.floor(low), np.ceil(high) + 1)
    ticks: list[float] = []
    for tick in np.add.outer(powers, np.log10([1, 2, 5])).ravel()[::-1]:
        if low <= tick <= high and (not ticks or ticks[-1] - tick >= least * (high - low)):
            ticks.append(float(tick))
    axis.set_major_locator(plt.matplotlib.ticker.FixedLocator(sorted(10 ** np.array(ticks))))
    axis.set_major_formatter(plt.matplotlib.ticker.FormatStrFormatter("%g"))
    axis.set_minor_formatter(plt.matplotlib.ticker.NullFormatter())


def label_apart(axis: Any, points: Sequence[tuple[float, float, float, str]], size: float = SMALL) -> list[Any]:
    """Labels beside points, none over another; those without room are left out.

    `points`: (x, y, radius in typographic points, words), the most important first. Of the places beside its point a
    label takes the one that covers least of the other points. Returns the labels that stand.
    """
    figure = axis.figure
    figure.canvas.draw()  # only now is it known where a point lies on the paper
    scale = figure.dpi / 72
    centres = axis.transData.transform([point[:2] for point in points])
    circles = [
        np.array([*(centre - point[2] * scale), *(centre + point[2] * scale)])
        for centre, point in zip(centres, points, strict=True)
    ]
    paper = axis.get_window_extent().extents
    standing: list[Any] = []
    boxes_drawn: list[np.ndarray] = []
    for number, (x, y, radius, words) in enumerate(points):
        others = circles[:number] + circles[number + 1 :]
        labels = [_label(axis, (x, y), radius, words, side=side, size=size) for side in _SIDES]
        boxes = [label.get_window_extent().extents for label in labels]
        shares = [_overlap(box, others) / _overlap(box, [box]) for box in boxes]
        free = [i for i, box in enumerate(boxes) if _inside(box, paper) and not _overlap(box, boxes_drawn)]
        best = min((i for i in free if shares[i] < _MOST_COVERED), key=lambda i: (round(shares[i], 2), i), default=-1)
        for i, label in enumerate(labels):
            if i != best:
                label.remove()
        if best >= 0:
            standing.append(labels[best])
            boxes_drawn.append(boxes[best])
    return standing


def _label(
    axis: Any, point: tuple[float, float], radius: float, words: str, *, side: tuple[int, int], size: float
) -> Any:
    """Words at one side of a point, outside its circle."""
    length = float(np.hypot(*side))
    away = tuple((radius + 2) * part / length for part in side)
    across, up = {-1: "right", 0: "center", 1: "left"}[side[0]], {-1: "top", 0: "center", 1: "bottom"}[side[1]]
    label = axis.annotate(
        words, point, xytext=away, textcoords="offset points", ha=across, va=up, fontsize=size, annotation_clip=False
    )
    label.set_in_layout(False)
    return label


def _inside(box: np.ndarray, paper: np.ndarray) -> bool:
    return bool((box[:2] >= paper[:2]).all() and (box[2:] <= paper[2:]).all())


def _overlap(box: np.ndarray, others: Sequence[np.ndarray]) -> float:
    """The area that a box (left, bottom, right, top) shares with others."""
    overlaps = (np.clip(np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2]), 0, None) for other in others)
    return float(sum(width * height for width, height in overlaps))
