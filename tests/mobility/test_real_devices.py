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


def gpx_file(path, start: str, minutes, north) -> None:
    """A GPX track from a moment on: minutes later, metres north of a street in Berlin."""
    points = []
    for minute, metres in zip(minutes, north, strict=True):
        stamp = np.datetime64(start) + np.timedelta64(round(minute * 60), "s")
        points.append(f'<trkpt lat="{52.5 + metres / 111_195.0:.6f}" lon="13.4"><time>{stamp}Z</time></trkpt>')
    head = '<?xml version="1.0"?><gpx version="1.1" creator="t" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>'
    path.write_text(head + "".join(points) + "</trkseg></trk></gpx>")


def test_walks_recorded_as_gpx_show_the_time_at_home_between_them(tmp_path):
    """Four days, a file each: from home at 17:00 half an hour to a park, 20 minutes on a bench, and back; the logger
    runs from door to door. The fourth walk begins two days later, elsewhere."""
    rng = np.random.default_rng(8)
    minutes = np.arange(0, 81, 0.25)
    walk = np.interp(minutes, [0, 30, 50, 80], [0, 2400, 2400, 0])
    (tmp_path / "ann").mkdir()
    for day, offset in ((1, 0), (2, 0), (3, 0), (5, 9000)):
        noisy = offset + walk + rng.normal(0, 5, len(walk))
        gpx_file(tmp_path / "ann" / f"{day}.gpx", f"2024-06-0{day}T17:00:00", minutes, noisy)
    extract(tmp_path / "ann", tmp_path / "out", agent="folder")
    stays = read_table(tmp_path / "out" / "stays.parquet").to_pylist()
    diary = [
        (f"{s['started_at']:%d %H}h", round((s["lat"] - 52.5) * 111.195, 1), round(s["observed_s"] / 60)) for s in stays
    ]
    assert [day for day, _, _ in diary] == ["01 17h", "01 18h", "02 17h", "02 18h", "03 17h", "05 17h"]
    assert [km for _, km, _ in diary] == pytest.approx([2.4, 0, 2.4, 0, 2.4, 11.4], abs=0.1)
    hours = [(s["finished_at"] - s["started_at"]).total_seconds() / 3600 for s in stays]
    assert hours == pytest.approx([0.37, 22.7, 0.37, 22.7, 0.37, 0.37], abs=0.1)
    assert max(seen for _, _, seen in diary) < 30
    gaps = read_table(tmp_path / "out" / "gaps.parquet")["cause"].to_pylist()
    assert gaps == ["bridged", "bridged", "moved"]
