"""Places and local times, against pyproj, zoneinfo and closed forms."""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ustad.clock import check_zone, local_time, localise
from ustad.geo import EARTH_RADIUS_KM, Projection, haversine_km, unit_vectors
from ustad.tables import TIMESTAMP, DataError

latitudes = st.floats(-90, 90)
longitudes = st.floats(-180, 180)


@given(latitudes, longitudes, latitudes, longitudes)
def test_the_chord_of_unit_vectors_gives_the_great_circle(lat1, lon1, lat2, lon2):
    chord = np.linalg.norm(unit_vectors(lat1, lon1) - unit_vectors(lat2, lon2))
    expected = 2 * EARTH_RADIUS_KM * np.arcsin(min(chord / 2, 1.0))
    assert haversine_km(lat1, lon1, lat2, lon2) == pytest.approx(expected, abs=0.5)


def test_a_quarter_of_the_equator():
    assert haversine_km(0, 0, 0, 90) == pytest.approx(EARTH_RADIUS_KM * np.pi / 2)


@given(st.floats(-89.9, 89.9), longitudes, st.floats(-80, 80), st.floats(-80, 80))
def test_projection_keeps_distances_from_its_centre_and_inverts(lat0, lon0, x, y):
    projection = Projection(lat0, lon0)
    lat, lon = projection.backward(x, y)
    assert haversine_km(lat0, lon0, lat, lon) == pytest.approx(np.hypot(x, y), abs=1e-4)
    back = projection.forward(lat, lon)
    assert back[0] == pytest.approx(x, abs=1e-4)
    assert back[1] == pytest.approx(y, abs=1e-4)


def test_projection_agrees_with_pyproj():
    pyproj = pytest.importorskip("pyproj")
    crs = f"+proj=aeqd +lat_0=34.05 +lon_0=-118.25 +R={EARTH_RADIUS_KM * 1000}"
    transform = pyproj.Transformer.from_crs("+proj=longlat +R=6371008.8", crs, always_xy=True)
    lat, lon = np.array([34.5, 33.2, 34.05]), np.array([-117.9, -119.0, -118.25])
    x, y = Projection(34.05, -118.25).forward(lat, lon)
    east, north = transform.transform(lon, lat)
    assert np.allclose(x, np.array(east) / 1000, atol=1e-6)
    assert np.allclose(y, np.array(north) / 1000, atol=1e-6)


def test_a_town_on_the_antimeridian_is_one_town():
    lat, lon = np.array([-16.8, -16.8]), np.array([179.99, -179.99])
    projection = Projection.fit(lat, lon)
    x, _ = projection.forward(lat, lon)
    assert abs(abs(projection.lon) - 180) < 1e-6
    assert abs(x[0] - x[1]) < 3


def test_points_around_the_pole_stay_close():
    lat, lon = np.full(4, 89.9), np.array([0.0, 90.0, 180.0, -90.0])
    x, y = Projection.fit(lat, lon).forward(lat, lon)
    assert np.hypot(x, y).max() == pytest.approx(11.12, abs=0.1)


@given(
    st.datetimes(dt.datetime(1925, 1, 1), dt.datetime(2035, 1, 1)),
    st.sampled_from(["America/Los_Angeles", "Europe/Helsinki", "Asia/Kathmandu", "Pacific/Apia", "UTC"]),
)
def test_local_time_agrees_with_zoneinfo(moment, zone):
    moment = moment.replace(tzinfo=dt.UTC)
    ours = local_time(pa.array([moment], TIMESTAMP), zone)
    theirs = moment.astimezone(ZoneInfo(zone))
    assert ours.weekday[0] == theirs.weekday()
    assert ours.month[0] == theirs.month
    assert dt.date(1970, 1, 1) + dt.timedelta(days=int(ours.day[0])) == theirs.date()
    minutes = theirs.hour * 60 + theirs.minute + theirs.second / 60 + theirs.microsecond / 6e7
    assert ours.minute[0] == pytest.approx(minutes, abs=1e-6)


def test_rows_may_have_zones_of_their_own():
    noon = pa.chunked_array([pa.array([dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)] * 3, TIMESTAMP)])
    zones = pa.chunked_array([["Asia/Tokyo", "America/New_York", "Asia/Tokyo"]])
    assert local_time(noon, zones).minute.tolist() == [21 * 60, 8 * 60, 21 * 60]


def test_unknown_zones_are_named():
    with pytest.raises(DataError, match="Mars/Olympus"):
        check_zone("Mars/Olympus")


def test_naive_times_become_utc_also_where_daylight_saving_changes():
    naive = pa.chunked_array([pa.array([dt.datetime(2024, 3, 31, 3, 30), dt.datetime(2024, 1, 1)], pa.timestamp("us"))])
    utc = localise(naive, "Europe/Helsinki").to_pylist()
    assert utc[1] == dt.datetime(2023, 12, 31, 22, tzinfo=dt.UTC)
    assert utc[0] == dt.datetime(2024, 3, 31, 1, tzinfo=dt.UTC)
