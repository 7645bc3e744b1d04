"""Fixes as devices and walkers bring them: live equals batch for every phone, and loggers that are off at home."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from test_tracker import assert_same, batch, stream

from ustad.files import read_table
from ustad.mobility.extraction import extract
from ustad.mobility.parameters import choose_config
from ustad.mobility.tracker import StayTracker
from ustad.simulate import simulate


@pytest.mark.parametrize("phone", ["logger", "phone", "app", "sparse"])
def test_late_and_repeated_batches_of_a_phone_give_live_what_they_give_in_batch(phone, tmp_path):
    simulate("town", 3, 104, tmp_path / "town", days=3, phone=phone)
    table = pq.read_table(tmp_path / "town" / "fixes")  # in order of arrival: some batches hours late, some twice
    time = table["time"].cast(pa.int64()).to_numpy()
    assert np.any(np.diff(time) < 0)
    config, _ = choose_config([table], None)
    tracker = StayTracker(config, lateness_s=12 * 3600.0)
    cuts = np.random.default_rng(1).integers(0, table.num_rows, 7).tolist()
    assert_same(stream(tracker, table, cuts, restart=True), batch(table, config))


def plt_file(path, rows) -> None:
    """A GeoLife file of (minute of 2009-04-01, metres north of Beijing's centre)."""
    head = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n"
    lines = []
    for minute, north in rows:
        stamp = np.datetime64("2009-04-01") + np.timedelta64(round(minute * 60), "s")
        day, clock = str(stamp).split("T")
        lines.append(f"{39.9 + north / 111_195.0:.6f},116.4,0,492,39904.0,{day},{clock}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + "\n".join(lines) + "\n")


def test_a_logger_that_is_off_at_home_still_shows_the_nights_at_home(tmp_path):
    """Three days: from home at 8, work from 8:30 to 17:30, home at 18:00; the logger is switched off ten minutes
    later. On the third evening it is switched off on the way, and on again at a friend's next morning."""
    rng = np.random.default_rng(5)
    for day in range(3):
        minutes = np.arange(8 * 60 - 4, 18 * 60 + 10, 0.5)
        north = np.interp(minutes, [480, 510, 1050, 1080], [0, 9000, 9000, 0]) + rng.normal(0, 6, len(minutes))
        if day == 2:
            minutes, north = minutes[minutes < 1060], north[minutes < 1060]
        path = tmp_path / "Data" / "007" / "Trajectory" / f"2009040{day + 1}.plt"
        plt_file(path, zip(day * 1440 + minutes, north, strict=True))
    friend = np.arange(3 * 1440 + 420, 3 * 1440 + 480, 0.5)
    plt_file(tmp_path / "Data" / "007" / "Trajectory" / "20090404.plt", [(m, 4000.0) for m in friend])
    extract(tmp_path / "Data", tmp_path / "out")
    stays = read_table(tmp_path / "out" / "stays.parquet")
    home = (pc.less(stays["lat"], 39.91)).to_pylist()
    hours = pc.subtract(stays["finished_at"], stays["started_at"]).cast(pa.int64()).to_numpy() / 3.6e9
    assert home == [True, False, True, False, True, False, False]
    assert hours[[2, 4]] == pytest.approx([14.0, 14.0], abs=0.1)  # both nights, seen for a quarter of an hour each
    assert max(stays["observed_s"].to_pylist()[i] for i in (2, 4)) < 1200
    assert hours[5] == pytest.approx(9.0, abs=0.1)
    assert stays["end_gap_s"].to_pylist()[5] == 0.0  # it left work before the logger was switched off
    assert stays["start_gap_s"].to_pylist()[6] > 13 * 3600  # when it came to the friend nobody knows
    gaps = read_table(tmp_path / "out" / "gaps.parquet")
    assert gaps["cause"].to_pylist() == ["bridged", "bridged", "moved"]
