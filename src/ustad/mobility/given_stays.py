"""A data directory of stays that an export holds already: checked and named as extracted ones are, not found anew.

In: files whose kind gives stays (`exports`). Out: their stays, with the trips and gaps between them and the quality of
each agent's data. Check-ins, which have no end, say nothing of the time between: no trips, no gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.config import ExtractionConfig
from ustad.files import set_columns
from ustad.geo import haversine_km
from ustad.mobility.archives import is_archive
from ustad.mobility.core import Fixes, Step, gap_table
from ustad.mobility.exports import gives_stays, read_given_stays
from ustad.mobility.formats import expand
from ustad.mobility.joining import MOVED, UNBRIDGED
from ustad.mobility.parameters import Wish
from ustad.mobility.publish import write_part
from ustad.mobility.quality import Losses, quality_table
from ustad.mobility.readers import check_stays
from ustad.mobility.reading import Reading
from ustad.mobility.sphere import sphere_points
from ustad.mobility.staypoints import GAP, MICROSECONDS, STAY, TRIP, Scan
from ustad.mobility.trips import trip_table
from ustad.tables import DataError, agent_codes


def choose_files(files: Sequence[Path], reading: Reading) -> tuple[list[Path], bool]:
    """The files to read, and whether they hold stays. Where some hold fixes, those with stays are left out."""
    stays = [file for file in files if gives_stays(file)]
    if len(stays) in (0, len(files)):
        return list(files), bool(stays)
    reading.say(f"left out: {len(stays):,} files that hold stays, because others hold fixes (first: {stays[0].name})")
    return [file for file in files if file not in set(stays)], False


def is_for_one_machine(sources: Sequence[Path | str]) -> bool:
    """Whether sources are archives, or files that all hold stays: there is nothing to divide among workers."""
    return any(is_archive(source) for source in sources) or all(gives_stays(path) for path in expand(sources))


def given_config(config: ExtractionConfig | Wish | None) -> ExtractionConfig:
    """Settings for stays that are given: as asked for, because there are no fixes that could suggest others."""
    if isinstance(config, ExtractionConfig):
        return config
    return replace(ExtractionConfig(), **(config.changes if config is not None else {}))


def write_given_stays(
    files: Sequence[Path], work: Path, reading: Reading, name_places: Callable[[pa.Table], pa.Table], *,
    rename: bool, config: ExtractionConfig,
) -> dict[str, pa.Table]:  # fmt: skip
    """Write stays, trips, gaps and quality to `work`.

    `name_places` is for exports that name no places, or to `rename` those they name.
    """
    table = read_given_stays(files, reading)
    has_ids = "poi_id" in table.column_names and not rename
    stays = check_stays(table, str(files[0]), reading)
    if not stays.num_rows:
        raise DataError(f"{files[0]}: no usable stay in {len(files)} file(s)")
    if not has_ids:
        reading.notes[:] = [note for note in reading.notes if not note.startswith("no column of categories")]
        stays = name_places(stays.drop_columns(["poi_id", "poi_category"]))
    tables = {"stays": stays, **describe_between(stays, config)}
    for name, content in tables.items():
        write_part(content, work / name / "part-00000.parquet")
    return tables


def describe_between(stays: pa.Table, config: ExtractionConfig) -> dict[str, pa.Table]:
    """Trips and gaps between stays that are in order of agent and time, and the quality table.

    A trip leads from every stay to the next one; its path is the two places. Longer than `gap_minutes` between two
    stays is a gap.
    """
    codes, names = agent_codes(stays["agent_id"])
    start, end = (stays[name].cast(pa.int64()).to_numpy() for name in ("started_at", "finished_at"))
    lat, lon = stays["lat"].to_numpy(), stays["lon"].to_numpy()
    i = np.flatnonzero((codes[1:] == codes[:-1]) & (end[:-1] > start[:-1]))  # stay i + 1 comes after stay i
    is_gap = start[i + 1] - end[i] > config.gap_minutes * 60 * MICROSECONDS if config.gap_minutes else i < 0
    trips, gaps = np.zeros(len(i), TRIP), np.zeros(int(is_gap.sum()), GAP)
    trips["agent"], trips["start"], trips["end"], trips["crosses_gap"] = codes[i], end[i], start[i + 1], is_gap
    trips["origin_start"], trips["destination_start"] = start[i], start[i + 1]
    trips["first"], trips["last"] = 2 * i + 1, 2 * i + 2
    j = i[is_gap]
    far = 1000 * haversine_km(lat[j], lon[j], lat[j + 1], lon[j + 1]) > config.distance_m
    gaps["agent"], gaps["start"], gaps["end"], gaps["cause"] = codes[j], end[j], start[j + 1], _causes(far)
    ends = Fixes(
        np.repeat(codes.astype(np.int64), 2), np.stack([start, end], 1).ravel(), np.repeat(lat, 2), np.repeat(lon, 2),
        np.zeros(2 * len(codes), np.float32),
    )  # fmt: skip
    agents = pa.array(names.tolist(), stays["agent_id"].type)
    points = sphere_points(ends.lat, ends.lon)
    quality = _quality(Scan(_records(codes), trips, gaps, np.zeros(0, bool)), ends, points, agents, config=config)
    has_length = np.bincount(codes, end - start, len(names)) > 0
    coverage = np.where(has_length, quality["coverage"].to_numpy(), 0.0)
    return {
        "trips": _with_stay_ids(trip_table(trips, agents, ends.time, ends.lat, lon=ends.lon, points=points), stays, i),
        "gaps": gap_table(gaps, agents),
        "quality": set_columns(quality, coverage=pa.array(coverage)),
    }


def _causes(far: np.ndarray) -> np.ndarray:
    return np.where(far, MOVED, UNBRIDGED)


def _records(codes: np.ndarray) -> np.ndarray:
    """Stays as the kernel has them, as far as the quality table looks at them."""
    records = np.zeros(len(codes), STAY)
    records["agent"] = codes
    return records


def _quality(scan: Scan, ends: Fixes, points: np.ndarray, agents: pa.Array, *, config: ExtractionConfig) -> pa.Table:
    """The quality table of stays without fixes: spans, gaps and counts."""
    nobody = np.zeros(len(agents), np.int64)
    table = quality_table(Step(scan, ends, points, nobody, nobody), agents, Losses(nobody, nobody), config)
    no_interval = pa.nulls(len(agents), pa.float64())
    return set_columns(
        table, n_fixes=pa.array(nobody), median_interval_s=no_interval, too_sparse=pa.array(nobody.astype(bool))
    )


def _with_stay_ids(trips: pa.Table, stays: pa.Table, origin: np.ndarray) -> pa.Table:
    """Trips with the identifiers that the stays have, which may be the export's own."""
    ids = stays["stay_id"]
    return set_columns(
        trips, origin_stay_id=ids.take(pa.array(origin)), destination_stay_id=ids.take(pa.array(origin + 1))
    )


def span_of(stays: pa.Table) -> tuple[int, int]:
    """First start and last end, microseconds."""
    return pc.min(stays["started_at"].cast(pa.int64())).as_py(), pc.max(stays["finished_at"].cast(pa.int64())).as_py()
