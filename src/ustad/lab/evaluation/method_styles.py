"""How methods are drawn: one colour, marker and line for each, the same in every figure.

In goes the name of a method, out comes its `Style`. The colour tells the family: blue is USTAD, vermilion a baseline
with a network, green a preset of ours, black a method without a network. Variants of USTAD are shades of blue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

OURS = ("ustad-default", "ustad-quick", "ustad-best")
NETWORKS = (
    "mlp", "lstm", "transformer", "lightpath", "ctle", "gm-vsae", "atrom", "sensitive-hue", "nov-online"
)  # fmt: skip


@dataclass(frozen=True)
class Style:
    """Colour, marker and line in matplotlib's words."""

    colour: str
    marker: str
    line: Any = "-"


#: Of a method without a style of its own.
FAMILIES = {
    "ustad": Style("#0072B2", "8"),
    "deep": Style("#D55E00", "s"),
    "ours": Style("#009E73", "^"),
    "plain": Style("#000000", "X"),
}
_WITHOUT_UNCERTAINTY = Style("#8CA3B3", "D", ":")
_STYLES = {
    "ustad-plain": Style("#0072B2", "o", "-"),
    "ustad-au": Style("#56B4E9", "<", "--"),
    "ustad-eu": Style("#08306B", ">", "-."),
    "ustad-none": _WITHOUT_UNCERTAINTY,
    "dual-tr": _WITHOUT_UNCERTAINTY,  # the same network
    "ustad-minmax": Style("#0072B2", "p"),
    "ustad-lambda": Style("#0072B2", "h"),
    "ustad-quick": Style("#009E73", "v"),
}
#: Marker of a method that is told the way to each stay; its colour is that of the same method without.
_TRIPS_MARKER = "P"
#: Of what is no method, such as scores and features: none of the colours above.
NO_METHODS = (
    Style("#AA4499", "o"), Style("#DDCC77", "s"), Style("#661133", "^"), Style("#999933", "D"), Style("#DD8899", "v")
)  # fmt: skip


def family(method: str) -> str:
    """The family of `FAMILIES` that a method is of, told of trips or not."""
    method = method.removesuffix("-trips")
    if method in OURS:
        return "ours"
    if method.startswith("ustad") or method == "dual-tr":
        return "ustad"
    return "deep" if method in NETWORKS else "plain"


def style_of(method: str) -> Style:
    """The style of a method in every figure."""
    base = method.removesuffix("-trips")
    if base != method:
        without = "ustad-plain" if base == "ustad" else base
        return replace(style_of(without), marker=_TRIPS_MARKER)
    return _STYLES.get(method, FAMILIES[family(method)])
