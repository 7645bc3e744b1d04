"""Where experiments get their data: simulated presets, data directories, NUMOSIM as published, Patterns of Life.

In go a `Source` (plain values, so that a result can say what it was made from) and a directory to keep made data in;
out comes a `Dataset`.
"""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from ustad.dataset import Dataset, save_directory
from ustad.lab.evaluation.recordings import record_people
from ustad.mobility.extraction import extract_tables
from ustad.mobility.readers import open_data
from ustad.simulate import PRESETS, simulate
from ustad.tables import DataError

#: With more people than this trips are straight: their ways along the roads take longer than everything else.
MOST_WITH_PATHS = 10_000
#: Type of changed agent that shows no effect in the data: neither positive nor negative.
POL_ATL_INVISIBLE = "Interest"
POL_ATL_ZONE = "America/New_York"
_POL_ATL_GPS = ("pol_atl_gps_train.parquet", "pol_atl_gps_test.parquet")


@dataclass(frozen=True)
class Source:
    """One data set: a preset to simulate (with its size and seed), or a path with the files of that `content`."""

    name: str
    path: str | None = None
    agents: int | None = None
    seed: int = 11
    days: int | None = None
    anomalous_share: float | None = None
    phone: str | None = None  # stays are extracted from what such a phone records of the simulated people
    content: str | None = None  # a short name of what the files at the path hold

    @property
    def label(self) -> str:
        """How tables call it: the name and, where it was simulated, its size."""
        return f"{self.name} ({self.agents:,} agents)" if self.agents else self.name

    @property
    def key(self) -> str:
        """A file name for what is made from it."""
        parts = [self.name, self.agents, self.seed, self.days, self.anomalous_share, self.phone, self.content]
        return "-".join(str(value) for value in parts if value is not None)

    def with_people(self, seed: int) -> Source:
        """The same with other people, where they are simulated."""
        return self if self.path is not None else replace(self, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """What a result says of it; a path stays on the machine it belongs to."""
        return {k: v for k, v in asdict(self).items() if k != "path" and v is not None}


def parse_source(text: str, agents: int | None, seed: int, days: int | None, *, share: float | None) -> Source | None:
    """`numosim-la`, `numosim-la:2000`, `pol_atl=DIRECTORY` or a path; None for `pol_atl` whose files are absent."""
    name, _, path = text.partition("=")
    if path:
        place = Path(path)
        if name == "pol_atl" and not all((place / file).exists() for file in _POL_ATL_GPS):
            return None
        return at_path(name, place, "pol_atl_*" if name == "pol_atl" else "*")
    preset, _, size = text.partition(":")
    if preset in PRESETS:
        if size and not size.isdigit():
            raise DataError(f"--data {text}: after the colon stands the number of agents")
        return Source(preset, None, int(size) if size else agents or PRESETS[preset].agents, seed, days, share)
    return at_path(Path(text).name, Path(text))


def at_path(name: str, path: Path, pattern: str = "*") -> Source:
    """The data at a path. Two directories of one name, or one with other files in it, are other data."""
    return Source(name, str(_existing(path)), content=name_content(path, pattern))


def name_content(path: Path, pattern: str = "*") -> str:
    """A short name of what the files at a path (those of a pattern) hold, whatever the place is called."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob(pattern) if file.is_file())
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(path).as_posix()} {file.stat().st_size}\n".encode())
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:8]


def open_source(source: Source, keep: Path) -> Dataset:
    """The data set; what is simulated or extracted is made once and kept under `keep`."""
    if source.path is not None and source.name != "pol_atl":
        return open_data(Path(source.path))
    place = keep / source.key
    if not (place / "meta.json").exists():
        # Each process makes its own and the first to end is kept, so that runs may share a directory.
        keep.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{place.name}.", suffix=".part", dir=keep) as making:
            _make(source, Path(making) / place.name)
            with suppress(OSError):
                (Path(making) / place.name).rename(place)
    return open_data(place)


def _make(source: Source, place: Path) -> None:
    if source.path is not None:
        save_directory(read_pol_atl(Path(source.path)), place)
        return
    people: dict[str, Any] = {"agents": source.agents, "seed": source.seed, "days": source.days}
    people["anomalous_share"] = source.anomalous_share
    if source.phone is None:
        simulate(source.name, out=place, paths=source.agents is None or source.agents <= MOST_WITH_PATHS, **people)
    else:
        record_people(source.name, place, source.phone, **people)


def read_pol_atl(directory: Path) -> Dataset:
    """Urban Patterns of Life, Atlanta: stays from its fixes, kinds of place from its check-ins, agent labels.

    Its times are seconds of the local wall clock.
    """
    fixes = pa.concat_tables([pq.read_table(directory / name) for name in _POL_ATL_GPS])
    data = extract_tables(fixes, pois=_venues(directory), timezone=POL_ATL_ZONE, times="local")
    first = pq.read_table(directory / _POL_ATL_GPS[1], columns=["t"])["t"]
    day = np.datetime64(int(pc.min(first).as_py()) // 86_400, "D")
    labels = pa_csv.read_csv(directory / "pol_atl_labels.csv")
    visible = pc.not_equal(labels["outlier_type"], POL_ATL_INVISIBLE)
    visible_labels = labels.filter(visible)
    truth = pa.table(
        {
            "agent_id": visible_labels["agent_id"].cast(data.events["agent_id"].type),
            "anomaly": np.ones(visible_labels.num_rows, bool),
            "kind": visible_labels["outlier_type"],
        }
    )
    meta = {
        **data.meta,
        "name": "pol_atl",
        "split": {"test_first": str(day)},
        "exclude_agents": labels.filter(pc.invert(visible))["agent_id"].to_pylist(),
    }
    return Dataset(data.events, trips=data.trips, gaps=data.gaps, agent_labels=truth, meta=meta)


def _venues(directory: Path) -> pa.Table:
    """One POI per venue that anybody checked in at."""
    checkins = pq.read_table(directory / "pol_atl_checkins_train.parquet")
    venues = checkins.group_by("venue_id").aggregate([("venue_type", "min"), ("lat", "min"), ("lon", "min")])
    return pa.table(
        {
            "poi_id": venues["venue_id"],
            "lat": venues["lat_min"],
            "lon": venues["lon_min"],
            "category": venues["venue_type_min"],
        }
    )


def _existing(path: Path) -> Path:
    if not path.exists():
        raise DataError(f"--data {path}: neither a preset ({', '.join(PRESETS)}) nor a file or directory")
    return path
