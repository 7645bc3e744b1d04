"""`ustad extract --dry-run`: what would be read of some files, and what would be dropped. Nothing is written.

In: the sources and how to read them. Out: a `Preview`, and its positions as a small map of text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.config import ExtractionConfig
from ustad.mobility.archives import unpack_archives
from ustad.mobility.exports import kind_of, read_given_stays
from ustad.mobility.extraction import fit_config, sample_pieces, valid_pieces
from ustad.mobility.formats import expand, format_of
from ustad.mobility.given_stays import choose_files, given_config
from ustad.mobility.parameters import Wish
from ustad.mobility.reading import Reading
from ustad.mobility.summary import ExtractionSummary
from ustad.mobility.timezones import zones_of
from ustad.mobility.whose import choose_agents
from ustad.tables import DataError, agent_codes

MAP_POINTS = 200_000  # positions that the map and the zones are made of
FILES_NAMED = 8
MAP_COLUMNS, MAP_ROWS = 48, 14
SHADES = " .:+*#"


@dataclass
class Preview:
    """What was seen in the files."""

    kinds: dict[str, str] = field(default_factory=dict)  # file → what it is
    files: int = 0
    rows: int = 0
    gives: str = "fixes"
    agents: int = 0
    first: str = ""
    last: str = ""
    interval_s: float | None = None  # median from one fix to the next of an agent
    zones: list[str] = field(default_factory=list)  # of the places, most frequent first
    bad_rows: int = 0  # bad rows
    inaccurate: int = 0  # fixes worse than the accuracy limit
    lat: np.ndarray = field(default_factory=lambda: np.zeros(0))
    lon: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def describe(self) -> dict[str, Any]:
        """The same for a program, without positions."""
        hidden = ("lat", "lon")
        return {name: value for name, value in vars(self).items() if name not in hidden}

    def lines(self) -> list[str]:
        """The same for a person."""
        every = f", one every {_duration(self.interval_s)} (median)" if self.interval_s is not None else ""
        losses = f"{self.bad_rows:,} bad rows" + (f", {self.inaccurate:,} inaccurate fixes" if self.inaccurate else "")
        return [
            f"{self.rows:,} {self.gives} of {_count(self.agents, 'agent')} in {_count(self.files, 'file')}{every}",
            f"from {self.first} to {self.last} (UTC)",
            f"time zone of the places: {', '.join(self.zones[:3])}{' …' if len(self.zones) > 3 else ''}",
            f"would be dropped: {losses}",
        ]


def preview(
    sources: Sequence[str], config: ExtractionConfig | Wish | None, reading: Reading, agent: str | None = None
) -> Preview:
    """Read everything as `extract` would, and say what there is. Bad rows are counted instead of stopping it."""
    with unpack_archives(sources, reading) as paths:
        result = _look_at(choose_files(expand(paths), reading), config, reading, agent)
    for source, folder in zip(sources, paths, strict=True):
        result.kinds = {name.replace(str(folder), str(source)): kind for name, kind in result.kinds.items()}
    return result


def _look_at(
    chosen_files: tuple[list[Path], bool], config: ExtractionConfig | Wish | None, reading: Reading, agent: str | None
) -> Preview:  # fmt: skip
    files, are_stays = chosen_files
    choose_agents(files, agent, reading)
    reading.on_error = "skip"
    fitted_config = given_config(config) if are_stays else fit_config(sample_pieces(files, reading), config, reading)
    result = Preview(kinds={str(f): _kind(f) for f in files[:FILES_NAMED]}, files=len(files))
    result.gives = "stays" if are_stays else "fixes"
    summary = ExtractionSummary(Path())
    tables = [read_given_stays(files, reading)] if are_stays else valid_pieces(files, reading, summary)
    people: dict[Any, list[np.ndarray]] = {}
    spans: list[tuple[int, int]] = []
    for table in tables:
        _add(table, result, fitted_config, people, spans=spans)
    if not result.rows:
        losses = [note for note in reading.notes if note.startswith(("dropped", "skipped"))]
        raise DataError(f"{files[0]}: no usable row; {losses[-1] if losses else 'the files are empty'}")
    result.agents, result.bad_rows = len(people), reading.bad_rows
    result.first, result.last = (
        _day_time(f(t)) for f, t in ((min, [s[0] for s in spans]), (max, [s[1] for s in spans]))
    )
    steps = [np.diff(np.sort(np.concatenate(parts))) for parts in people.values()]
    all_steps = np.concatenate(steps) if steps else np.zeros(0)
    result.interval_s = float(np.median(all_steps)) / 1e6 if len(all_steps) and not are_stays else None
    result.zones = _zones(result, reading)
    return result


def _add(
    table: pa.Table, result: Preview, config: ExtractionConfig, people: dict[Any, list[np.ndarray]],
    *, spans: list[tuple[int, int]],
) -> None:  # fmt: skip
    if not table.num_rows:
        return
    start = "time" if result.gives == "fixes" else "started_at"
    end = "time" if result.gives == "fixes" else "finished_at"
    time, until = (table[name].cast(pa.int64()).to_numpy() for name in (start, end))
    spans.append((int(time.min()), int(until.max())))
    codes, names = agent_codes(table["agent_id"])
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(names) + 1))
    for i, name in enumerate(names):
        people.setdefault(name, []).append(time[order[edges[i] : edges[i + 1]]])
    if config.max_accuracy_m > 0 and "accuracy_m" in table.column_names:
        result.inaccurate += int(np.count_nonzero(table["accuracy_m"].to_numpy() > config.max_accuracy_m))
    result.rows += table.num_rows
    if len(result.lat) < MAP_POINTS:
        step = max(1, table.num_rows // MAP_POINTS)
        result.lat = np.concatenate([result.lat, table["lat"].to_numpy()[::step]])
        result.lon = np.concatenate([result.lon, table["lon"].to_numpy()[::step]])


def _kind(file: Path) -> str:
    export = kind_of(file)
    return f"{export.title} ({export.gives})" if export is not None else str(format_of(file))


def _zones(result: Preview, reading: Reading) -> list[str]:
    step = max(1, len(result.lat) // 5_000)
    quiet = Reading(reading.timezone)
    zones = zones_of(result.lat[::step], result.lon[::step], quiet).value_counts().to_pylist()
    return [entry["values"] for entry in sorted(zones, key=lambda e: -e["counts"])]


def _day_time(microseconds: int) -> str:
    return str(np.datetime64(microseconds, "us").astype("datetime64[s]")).replace("T", " ")


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def draw_map(lat: np.ndarray, lon: np.ndarray) -> str:
    """Where the positions are: a small map of signs, the darker the more, with its corners in degrees.

    The middle 99 % are shown, so that one stray position does not shrink the rest to a point.
    """
    if not len(lat):
        return ""
    south, north = np.quantile(lat, [0.005, 0.995])
    west, east = np.quantile(lon, [0.005, 0.995])
    width = max((east - west) * np.cos(np.radians((south + north) / 2)), 1e-4)
    height = max(north - south, 1e-4)
    # A sign is about twice as high as wide: the map keeps its proportions within the space it has.
    scale = max(width / MAP_COLUMNS, height / (2 * MAP_ROWS))
    middle_lat, middle_lon = (south + north) / 2, (west + east) / 2
    shrink = np.cos(np.radians(middle_lat))
    column = np.floor((lon - middle_lon) * shrink / scale + MAP_COLUMNS / 2).astype(np.int64)
    row = np.floor((middle_lat - lat) / (2 * scale) + MAP_ROWS / 2).astype(np.int64)
    inside = (column >= 0) & (column < MAP_COLUMNS) & (row >= 0) & (row < MAP_ROWS)
    counts = np.zeros((MAP_ROWS, MAP_COLUMNS), np.int64)
    np.add.at(counts, (row[inside], column[inside]), 1)
    top = np.log1p(counts.max()) or 1.0
    shade = np.ceil(np.log1p(counts) / top * (len(SHADES) - 1)).astype(np.int64)
    lines = ["|" + "".join(SHADES[k] for k in line) + "|" for line in shade]
    frame = "+" + "-" * MAP_COLUMNS + "+"
    corners = f"{south:.2f} … {north:.2f}° N, {west:.2f} … {east:.2f}° E, {MAP_COLUMNS * scale * 111.2:,.1f} km wide"
    return "\n".join([frame, *lines, frame, corners])
