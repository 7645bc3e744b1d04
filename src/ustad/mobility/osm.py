"""POIs from OpenStreetMap: nodes and areas of an .osm.pbf extract whose tags a table of categories knows.

In: the extract, and a YAML file of categories (`osm_categories.yaml` by default). Out: the POI table.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from ustad.config import NO_YAML
from ustad.tables import DataError, first_line

ATTRIBUTION = "© OpenStreetMap contributors, ODbL"
Rules = dict[tuple[str, str], tuple[int, str]]  # (key, value or *) → (rank of the category, category)


def read_categories(path: Path | None = None) -> Rules:
    """The rules of a YAML file that maps each category to its tags; without a path the ones that come along."""
    source = files("ustad.mobility").joinpath("osm_categories.yaml") if path is None else path
    name = str(path or "osm_categories.yaml")
    if path is not None and not path.exists():
        raise DataError(f"{path}: no such file of categories")
    try:
        content = yaml.safe_load(source.read_text())
    except NO_YAML as error:
        raise DataError(f"{name}: not valid YAML ({first_line(error)})") from error
    if not isinstance(content, dict) or not all(isinstance(tags, list) for tags in content.values()):
        raise DataError(f"{name}: expected a mapping from each category to a list of tags such as amenity=cafe")
    rules: Rules = {}
    for rank, (category, tags) in enumerate(content.items()):
        for tag in tags:
            key, sign, value = tag.partition("=") if isinstance(tag, str) else ("", "", "")  # no list: it may be huge
            if not (key and sign and value):
                text = tag if isinstance(tag, str) else type(tag).__name__
                raise DataError(f"{name}: category '{category}': '{text}' is not KEY=VALUE or KEY=*")
            rules.setdefault((key.strip(), value.strip()), (rank, str(category)))
    return rules


def category_of(tags: Any, rules: Rules) -> str | None:
    """The first category, in the order of the table, that one of the tags has; None where none has."""
    best: tuple[int, str] | None = None
    for key, value in tags:
        if value == "no":
            continue
        for category in (rules.get((key, value)), rules.get((key, "*"))):
            if category is not None and (best is None or category < best):
                best = category
    return best[1] if best else None


def read_osm(path: Path | str, categories: Path | None = None) -> pa.Table:
    """The POI table of an extract; an area stands at the middle of its outline."""
    try:
        import osmium
    except ImportError as error:
        raise DataError("reading OpenStreetMap needs osmium; install it with pip install 'ustad[geo]'") from error
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file")
    rules = read_categories(categories)
    keys = osmium.filter.KeyFilter(*sorted({key for key, _ in rules}))
    rows: list[tuple[str, float, float, str, str | None]] = []
    try:
        for item in osmium.FileProcessor(str(path)).with_areas(keys).with_filter(keys):
            if isinstance(item, (osmium.osm.Node, osmium.osm.Area)):  # closed ways come again as areas
                _append(rows, item, category_of(item.tags, rules))
    except Exception as error:  # osmium has errors of its own kinds for numbers and places that are none
        raise DataError(f"{path}: not an OpenStreetMap file ({first_line(error)})") from error
    if not rows:
        raise DataError(f"{path}: no object has a tag that the table of categories knows")
    identifier, lat, lon, category, name = zip(*sorted(rows), strict=True)
    return pa.table(
        {"poi_id": identifier, "lat": lat, "lon": lon, "category": category, "name": pa.array(name, pa.string())}
    )


def _append(rows: list[tuple[str, float, float, str, str | None]], item: Any, category: str | None) -> None:
    if category is None:
        return
    if item.is_node():
        identifier, lat, lon = f"n{item.id}", item.location.lat, item.location.lon
    else:
        kind = "w" if item.from_way() else "r"
        outline = [(n.lat, n.lon) for ring in item.outer_rings() for n in list(ring)[:-1] if n.location.valid()]
        if not outline:
            return
        identifier, (lat, lon) = f"{kind}{item.orig_id()}", np.mean(outline, axis=0)
    rows.append((identifier, float(lat), float(lon), category, item.tags.get("name") or ""))
