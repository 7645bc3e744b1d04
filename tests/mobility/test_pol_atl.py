"""The Atlanta simulation, where it is at hand: agreement with its check-ins and with trackintel."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ustad.config import ExtractionConfig
from ustad.geo import haversine_km
from ustad.mobility.extraction import extract_tables

DATA = Path(os.environ.get("USTAD_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
GPS, CHECKINS = DATA / "pol_atl_gps_train.parquet", DATA / "pol_atl_checkins_train.parquet"
pytestmark = pytest.mark.skipif(not GPS.exists(), reason="the pol_atl files are not here")


@pytest.fixture(scope="module")
def fixes() -> pa.Table:
    return pq.read_table(GPS, filters=[("agent", "<", 60)])


def check_in_hits(stays: pa.Table, checkins: pa.Table) -> np.ndarray:
    """For each check-in that is followed by another ten minutes later or more: is a stay at its site (50 m)?"""
    hits = []
    for agent in pc.unique(checkins["agent"]).to_pylist():
        own = checkins.filter(pc.equal(checkins["agent"], agent)).sort_by("t")
        arrived = own["t"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
        mine = stays.filter(pc.equal(stays["agent_id"], agent))
        start, end = (mine[c].cast(pa.int64()).to_numpy() for c in ("started_at", "finished_at"))
        lat, lon = mine["lat"].to_numpy(), mine["lon"].to_numpy()
        near = 1000 * haversine_km(own["lat"].to_numpy()[:, None], own["lon"].to_numpy()[:, None], lat, lon) <= 50
        during = (end >= arrived[:, None]) & (start <= arrived[:, None] + 300_000_000)
        long_enough = np.r_[np.diff(arrived) >= 600_000_000, False]
        hits.append((near & during).any(axis=1)[long_enough])
    return np.concatenate(hits)


@pytest.mark.parametrize("config", [None, ExtractionConfig()], ids=["automatic", "plain"])
def test_check_ins_are_found_at_their_site(fixes, config):
    stays = extract_tables(fixes, config, timezone="UTC").events
    checkins = pq.read_table(CHECKINS, filters=[("agent", "<", 60)])
    hits = check_in_hits(stays, checkins)
    assert len(hits) > 5000
    assert hits.mean() >= 0.97


def test_trackintel_finds_the_same_stays_in_atlanta(fixes):
    ti = pytest.importorskip("trackintel")
    import geopandas as gpd
    from test_staypoints import by_agent, iou_share

    few = fixes.filter(pc.less(fixes["agent"], 3))
    stays = extract_tables(few, ExtractionConfig(gap_minutes=0, drop_outliers=False), timezone="UTC").events
    frame = few.to_pandas()
    points = gpd.GeoDataFrame(
        {"user_id": frame.agent, "tracked_at": frame.t.astype("datetime64[s]").dt.tz_localize("UTC")},
        geometry=gpd.points_from_xy(frame.lon_e6 / 1e6, frame.lat_e6 / 1e6),
        crs="EPSG:4326",
    ).rename_geometry("geom")
    _, theirs = ti.Positionfixes(points).generate_staypoints(
        method="sliding", dist_threshold=100, time_threshold=5.0, gap_threshold=1e9, include_last=True
    )
    columns = (stays[c].cast(pa.int64()).to_pylist() for c in ("agent_id", "started_at", "finished_at"))
    mine = list(zip(*columns, strict=True))
    rows = zip(theirs.user_id, theirs.started_at, theirs.finished_at, strict=True)
    them = [(int(a), start.timestamp() * 1e6, end.timestamp() * 1e6) for a, start, end in rows]
    assert iou_share(mine, by_agent(them)) >= 0.98
    assert iou_share(them, by_agent(mine)) >= 0.98
