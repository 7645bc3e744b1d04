"""Own places known from an earlier extraction, on a cluster as in a local run."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from same_tables import assert_same

from ustad.engine.cluster import Cluster
from ustad.engine.extract_job import extract
from ustad.engine.folder import Place
from ustad.engine.jobs import fingerprint
from ustad.files import find_table, read_table
from ustad.mobility.extraction import extract as extract_here
from ustad.tables import TIMESTAMP, DataError


def commuters(agents: int = 6, days: int = 3) -> pa.Table:
    """A fix every ten minutes: each agent at a place of its own by night, at another by day."""
    moment = np.arange(days * 144)
    away = (moment % 144 > 54) & (moment % 144 < 102)
    rows = [
        {
            "agent_id": pa.array(np.full(len(moment), agent)),
            "time": pa.array(1_704_067_200_000_000 + moment * 600_000_000, TIMESTAMP),
            "lat": pa.array(60.0 + 0.01 * agent + 0.05 * away),
            "lon": pa.array(np.full(len(moment), 25.0)),
        }
        for agent in range(agents)
    ]
    return pa.concat_tables([pa.table(columns) for columns in rows])


def test_own_places_of_an_earlier_extraction_keep_their_names(cluster, tmp_path):
    fixes, before = tmp_path / "fixes.parquet", tmp_path / "before"
    pq.write_table(commuters(), fixes)
    pq.write_table(commuters().slice(0, 144 * 4), tmp_path / "first.parquet")
    extract_here(tmp_path / "first.parquet", before, timezone="UTC")
    extract_here(fixes, tmp_path / "local", timezone="UTC", places=[before])
    extract(fixes, tmp_path / "ray", timezone="UTC", workers=2, places=[f"file://{before}"])
    known, local, ray = (read_table(find_table(tmp_path / name, "stays")) for name in ("before", "local", "ray"))
    assert_same(local, ray, ["stay_id"])
    assert len(set(ray["poi_id"].to_pylist())) == 2 * 6
    assert set(known["poi_id"].to_pylist()) <= set(ray["poi_id"].to_pylist())


def test_places_are_not_those_of_the_directory_that_is_written(tmp_path):
    fixes, before = tmp_path / "fixes.parquet", tmp_path / "before"
    pq.write_table(commuters(agents=1), fixes)
    extract_here(fixes, before, timezone="UTC")
    for places in (before, f"file://{before}"):
        for source in (fixes, f"file://{fixes}"):
            with pytest.raises(DataError, match="choose another --out"):
                extract(source, before, timezone="UTC", places=[places])


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("kind", ["places", "pois", "beside"])
def test_a_job_does_not_carry_on_with_partitions_that_knew_other_places(tmp_path, monkeypatch, scheme, kind):
    def open_nothing(out: Place, verb: str, identity: object, cluster: Cluster) -> None:
        raise InterruptedError(fingerprint(identity))

    monkeypatch.setattr("ustad.engine.extract_job.connect", lambda *_: nullcontext(Cluster(workers=1)))
    monkeypatch.setattr("ustad.engine.extract_job.Job.open", open_nothing)
    source, before, pois = tmp_path / "town", tmp_path / "before", tmp_path / "pois.parquet"
    source.mkdir()
    pq.write_table(commuters(agents=2), source / "fixes.parquet")
    extract_here(source, before, timezone="UTC")
    changed = {"places": before / "stays.parquet", "pois": pois, "beside": source / "pois.parquet"}[kind]
    if kind != "places":
        columns = {"poi_id": [1, 2], "lat": [60.0, 60.1], "lon": [25.0, 25.0], "category": ["home", "shop"]}
        pq.write_table(pa.table(columns), changed)
    given = {"places": {"places": [f"{scheme}{before}"]}, "pois": {"pois": pois}, "beside": {}}[kind]

    def identity() -> str:
        with pytest.raises(InterruptedError) as opened:
            extract(f"{scheme}{source}", tmp_path / "out", timezone="UTC", **given)
        return str(opened.value)

    first = identity()
    assert identity() == first
    pq.write_table(pq.read_table(changed).slice(1), changed)
    assert identity() != first
