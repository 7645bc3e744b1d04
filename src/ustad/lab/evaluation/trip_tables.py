"""What the way to each stay adds: every method that was told of trips, beside itself without them.

In go results, out come `Table`s. Figures of a row are of the same people.
"""

from __future__ import annotations

from collections.abc import Iterator

from ustad.lab.evaluation.code_states import score_trips
from ustad.lab.evaluation.fitted_models import WITH_TRIPS
from ustad.lab.evaluation.plain_tables import Table
from ustad.lab.evaluation.result_tables import (
    ERROR_DIGITS,
    NAMES,
    SHARE_DIGITS,
    TERMS,
    WHATS,
    Line,
    Results,
    detection_values,
    format_mean,
    prediction_values,
    select_lines,
    sets,
    slug,
)

TITLES = {"detection": "Detection with and without trips", "prediction": "Masked prediction with and without trips"}
NOTE = (
    "Each method without the way to a stay → with it, as two vectors (shape and speed) among its features. "
    "SensitiveHUE and Nov-Online score all features; to the others they are inputs. Trips follow the roads; of more "
    "than 10,000 people they are straight. IBAT, GM-VSAE, ATROM see days as places on a grid and cannot take them."
)
OLDER_SCORE = " USTAD with trips is of older code, which scored both vectors too."
FIGURE_OF = {term: "accuracy" if term == "poi" else "mae" for term in TERMS}


def trip_tables(results: Results, experiment: str) -> list[Table]:
    """A table for each data set of `detection` or `prediction` with such cells."""
    with_trips = results.get(f"{experiment} with trips", [])
    return [
        Table(
            f"{experiment}-trips-{slug(data)}",
            f"{TITLES[experiment]}, {data}",
            ("method", "data sets", *(_detection_heads() if experiment == "detection" else _prediction_heads())),
            tuple(_rows(results[experiment], with_trips, experiment, data)),
            NOTE
            + (OLDER_SCORE if score_trips(select_lines(with_trips, data=data)) else "")
            + _say_machines(select_lines(results[experiment], data=data), select_lines(with_trips, data=data)),
        )
        for data in sets(with_trips)
    ]


def _say_machines(without: list[Line], with_trips: list[Line]) -> str:
    """A sentence where networks with trips were trained on another kind of machine than those without."""
    names = dict.fromkeys(x["method"] for x in with_trips if x.get("device") == "cpu")
    plain = {WITH_TRIPS.get(name, name.removesuffix("-trips")): NAMES[name] for name in names}
    on_gpu = {x["method"] for x in without if x.get("device") == "cuda"}
    names_apart = [name for method, name in plain.items() if method in on_gpu]
    words = f" On a CPU in fp32, and without trips on a GPU in bf16: {', '.join(names_apart)}."
    return words if names_apart else ""


def _rows(without: list[Line], with_trips: list[Line], experiment: str, data: str) -> Iterator[tuple[str, ...]]:
    for name in dict.fromkeys(x["method"] for x in select_lines(with_trips, data=data)):
        plain = WITH_TRIPS.get(name, name.removesuffix("-trips"))  # `ustad-none` is trained as `dual-tr`
        sides = [select_lines(without, data=data, method=plain), select_lines(with_trips, data=data, method=name)]
        seeds = set.intersection(*({x["seed"] for x in side} for side in sides))
        pairs = [
            ([x for x in side if x["seed"] in seeds], method) for side, method in zip(sides, (plain, name), strict=True)
        ]
        if seeds:
            figures = _detection_figures if experiment == "detection" else _prediction_figures
            cells = zip(*(figures(lines, data, method) for lines, method in pairs), strict=True)
            yield (NAMES[plain], str(len(seeds)), *(f"{before} → {after}" for before, after in cells))


def _detection_heads() -> list[str]:
    return [f"{level} {word}" for level in ("events", "by incident", "agents") for word in ("AUROC", "AUPR")]


def _detection_figures(lines: list[Line], data: str, method: str) -> Iterator[str]:
    for level in ("events", "incidents", "agents"):
        for what in WHATS:
            yield format_mean(detection_values(lines, data, method, level, what=what), 3)


def _prediction_heads() -> list[str]:
    return ["kind of place, % right" if term == "poi" else f"MAE {name}" for term, name in TERMS.items()]


def _prediction_figures(lines: list[Line], data: str, method: str) -> Iterator[str]:
    for term, what in FIGURE_OF.items():
        yield format_mean(
            prediction_values(lines, data, method, what, term=term), SHARE_DIGITS if term == "poi" else ERROR_DIGITS
        )


__all__ = ["trip_tables"]
