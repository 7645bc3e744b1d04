"""Answers for those who need no exact place: positions on a coarse grid, and nothing else that would tell them.

In: an answer of the service, and metres. Out: the same answer in the same form. Positions and paths move to the middle
of their cell; distances are rounded to the grid. Names of places, free texts, ids of other systems and other people are
left out. With 0 metres there are no positions at all.
"""

from __future__ import annotations

import re
from typing import Any

from ustad.geo import snap_to_grid

#: Distances, sentences that may hold one, and what is left out, each with what stands there instead.
_DISTANCES = ("km", "km_from_own_places")
_SENTENCES = ("reason", "change", "with_it")
_LEFT_OUT: dict[str, Any] = {"place_name": None, "event_id": None, "company": None, "cases": []}
#: What a feature in metres would tell of a place.
_MEASUREMENTS = ("expected", "observed", "error", "spread", "loss", "au", "eu")
_DISTANCE_WORDS = re.compile(r"(\d[\d,]*(?:\.\d+)?) (km|m)\b")


def coarsen(answer: Any, metres: float) -> Any:
    """An answer (what JSON holds) with no position finer than the grid."""
    if isinstance(answer, list):
        return [coarsen(one, metres) for one in answer]
    if not isinstance(answer, dict):
        return answer
    coarse = {name: _value(name, value, metres) for name, value in answer.items()}
    if "lat" in coarse and "lon" in coarse:
        coarse["lat"], coarse["lon"] = _point(answer["lat"], answer["lon"], metres)
        coarse |= {"name": None} if "name" in coarse else {}
    if "kind" in coarse and "expected" in coarse:
        coarse |= _feature(coarse)
    if "verdict" in coarse and "note" in coarse:  # texts of people
        coarse |= {"reason": "", "note": ""}
    return coarse


def _value(name: str, value: Any, metres: float) -> Any:
    if name in _LEFT_OUT:
        return _LEFT_OUT[name]
    if name in _DISTANCES:
        return _kilometres(value, metres) if isinstance(value, (int, float)) else None
    if name in _SENTENCES and isinstance(value, str):
        return _DISTANCE_WORDS.sub(lambda match: _words(match, metres), value)
    if name == "path" and isinstance(value, list):
        return _path(value, metres)
    return coarsen(value, metres)


def _point(lat: Any, lon: Any, metres: float) -> tuple[float | None, float | None]:
    if metres <= 0 or not isinstance(lat, (int, float)) or not isinstance(lon, (int, float)):
        return None, None
    middle, across = snap_to_grid(lat, lon, metres)  # type: ignore[arg-type]  # numbers are arrays of none
    return float(middle), float(across)


def _path(points: list[Any], metres: float) -> list[list[float | None]]:
    """Cells that a path leads through; how long it stays in one is not said."""
    cells: list[list[float | None]] = []
    for lon, lat in points if metres > 0 else ():
        middle, across = _point(lat, lon, metres)
        if not cells or cells[-1] != [across, middle]:
            cells.append([across, middle])
    return cells


def _feature(feature: dict[str, Any]) -> dict[str, Any]:
    """A place keeps its cell alone; of what is counted in metres nothing stays."""
    if feature["kind"] == "place":
        return dict.fromkeys(("error", "spread", "loss", "au", "eu"))
    return dict.fromkeys(_MEASUREMENTS) if feature.get("unit") in ("km", "m") else {}


def _kilometres(kilometres: float, metres: float) -> float | None:
    return round(round(kilometres * 1000 / metres) * metres / 1000, 3) if metres > 0 else None


def _words(match: re.Match[str], metres: float) -> str:
    number = float(match[1].replace(",", "")) / (1 if match[2] == "km" else 1000)
    kilometres = _kilometres(number, metres)
    if kilometres is None:
        return "some way"
    return f"about {kilometres:g} km" if kilometres else f"less than {metres / 1000:g} km"
