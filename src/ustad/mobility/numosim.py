"""A NUMOSIM directory as it is published: stays by POI, train and test in files of their own, labels in the test file.

In: the directory. Out: a `Dataset` whose stays carry the POI's coordinates and one category, labels by stay and by
agent, and the split by the files (`meta["split"]`). `truth` and `demographics` are not needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import iso_date, local_time
from ustad.dataset import Dataset
from ustad.files import read_table, set_columns
from ustad.mobility.columns import as_stays
from ustad.mobility.places import read_pois
from ustad.mobility.reading import Reading
from ustad.mobility.timezones import can_find_zones, with_timezone
from ustad.tables import Complaints, DataError, agent_codes, event_keys, sort_events

TRAIN, TEST, TRUTH = "stay_points_train.parquet", "stay_points_test_anomalous.parquet", "stay_points_test_truth.parquet"
POIS = "poi.parquet"
HOME_ZONE = "America/Los_Angeles"  # of the published data, where nothing else says it
KINDS = {0: None, 1: "modified stay", 2: "inserted stay"}
#: What a stay was in an incident: others give way to the one that is put in.
ROLES = {"modified stay": "neighbour", "inserted stay": "inserted"}


def is_numosim(path: Path) -> bool:
    return path.is_dir() and any((path / name).exists() for name in (TRAIN, TEST, TRUTH))


def read_numosim(path: Path, reading: Reading) -> Dataset:
    """All stays of both periods in one table; `anomalous` is the test period where it is there, else `truth`."""
    if not (path / POIS).exists():
        raise DataError(f"{path}: a NUMOSIM directory needs {POIS}, which says where the stays are")
    pois = read_pois(path / POIS, reading)
    parts = [_stays(path / name, pois, reading) for name in _files(path)]
    stays = pa.concat_tables([p.select(parts[0].column_names) for p in parts], promote_options="default")
    stays = _cut_overlaps(sort_events(stays, "agent_id", "started_at"), reading)
    stays = set_columns(stays, stay_id=pa.array(event_keys(stays["agent_id"], stays["started_at"])))
    stays = _zones(stays, reading)
    labels, agent_labels = _labels(stays)
    meta: dict[str, Any] = {"name": path.name, "kind": "numosim", "notes": reading.notes, "timezone": reading.timezone}
    if len(parts) == 2:
        meta["split"] = {"test_first": _test_first(stays)}
    return Dataset(
        events=stays.drop_columns(["anomaly", "kind", "in_test"]), pois=pois, labels=labels, agent_labels=agent_labels,
        meta=meta, path=path,
    )  # fmt: skip


def _files(path: Path) -> list[str]:
    test = TEST if (path / TEST).exists() else TRUTH
    return [name for name in (TRAIN, test) if (path / name).exists()]


def _stays(file: Path, pois: pa.Table, reading: Reading) -> pa.Table:
    """One file with coordinates, label columns and which period it is."""
    table = read_table(file)
    if "poi_id" not in table.column_names:
        raise DataError(f"{file}: missing column poi_id; found {', '.join(table.column_names)}")
    table = _place(table, pois, file, reading)
    naive = [n for n in ("start_datetime", "started_at") if n in table.column_names and _is_naive(table[n].type)]
    if naive and reading.timezone is None:
        reading.timezone = HOME_ZONE
        reading.say(f"NUMOSIM's times have no zone here: taken as {HOME_ZONE}")
    stays = as_stays(table, str(file), reading)
    nothing = {
        "anomaly": pa.array(np.zeros(stays.num_rows, bool)),
        "anomaly_type": pa.nulls(stays.num_rows, pa.int64()),
    }
    for name, column in nothing.items():
        stays = stays if name in stays.column_names else stays.append_column(name, column)
    return set_columns(
        stays.select(["agent_id", "started_at", "finished_at", "lat", "lon", "poi_id", "poi_category"]),
        anomaly=pc.fill_null(stays["anomaly"].cast(pa.bool_()), False),
        kind=_kind(stays["anomaly_type"]),
        in_test=pa.array(np.full(stays.num_rows, file.name != TRAIN)),
    )


def _is_naive(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is None


def _place(table: pa.Table, pois: pa.Table, file: Path, reading: Reading) -> pa.Table:
    """Coordinates and category of each stay's POI."""
    rows = pc.index_in(table["poi_id"], pois["poi_id"].combine_chunks().cast(table["poi_id"].type))
    is_lost = pc.is_null(rows).to_numpy(zero_copy_only=False)
    complaints = Complaints(str(file), reading.on_error)
    table = complaints.check(table, is_lost, "poi_id", f"name a POI that {POIS} does not have")
    reading.count(complaints)
    rows = rows.filter(pa.array(~is_lost))
    return set_columns(
        table, lat=pois["lat"].take(rows), lon=pois["lon"].take(rows), poi_category=pois["category"].take(rows)
    )


def _kind(column: pa.ChunkedArray) -> pa.Array:
    codes = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    names = {int(code): KINDS.get(int(code), f"type {code}") for code in np.unique(codes)}
    return pa.array([names[int(c)] for c in np.unique(codes)], pa.string()).take(
        pa.array(np.searchsorted(np.unique(codes), codes))
    )


def _cut_overlaps(stays: pa.Table, reading: Reading) -> pa.Table:
    """A stay that reaches into the agent's next one (at the boundary of the files) ends where that begins."""
    codes, _ = agent_codes(stays["agent_id"])
    start, end = (stays[n].cast(pa.int64()).to_numpy() for n in ("started_at", "finished_at"))
    until = np.where(np.r_[codes[1:] == codes[:-1], False], np.r_[start[1:], 0], np.iinfo(np.int64).max)
    long = end > until
    if not long.any():
        return stays
    reading.say(f"{int(long.sum()):,} stays reached into the agent's next one and were cut at its start")
    return set_columns(stays, finished_at=pa.array(np.minimum(end, until), stays["finished_at"].type))


def _zones(stays: pa.Table, reading: Reading) -> pa.Table:
    """The zone given, else by coordinates, else that of the published data."""
    if reading.timezone is None and not can_find_zones():
        reading.timezone = HOME_ZONE
        reading.say(f"time zone: {HOME_ZONE}, that of the published data (pip install 'ustad[geo]' to find it)")
    return with_timezone(stays, reading.timezone, reading)


def _labels(stays: pa.Table) -> tuple[pa.Table | None, pa.Table | None]:
    """Labels by stay and by agent (an agent is anomalous where one of its stays is), of the test period."""
    test = stays.filter(stays["in_test"])
    if test.num_rows == 0:
        return None, None
    roles = pa.array([*ROLES.values()]).take(pc.index_in(test["kind"], pa.array([*ROLES])).combine_chunks())
    labels = test.select(["stay_id", "anomaly", "kind"]).append_column("role", roles)
    codes, agents = agent_codes(test["agent_id"])
    anomalous = np.zeros(len(agents), bool)
    np.logical_or.at(anomalous, codes, test["anomaly"].to_numpy(zero_copy_only=False))
    if not anomalous.any():
        return None, None
    identifiers = pa.array(agents.tolist(), test["agent_id"].type)
    return labels, pa.table({"agent_id": identifiers, "anomaly": pa.array(anomalous)})


def _test_first(stays: pa.Table) -> str:
    test = stays.filter(stays["in_test"])
    return iso_date(local_time(test["started_at"], test["timezone"]).day.min())
