"""POI join, own places with home and work, categories from lists, time zones, OpenStreetMap."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from town import fixes, minutes

from ustad.clock import local_time
from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.geo import Projection, haversine_km
from ustad.mobility.extraction import extract_tables
from ustad.mobility.osm import category_of, read_categories, read_osm
from ustad.mobility.own_places import _hours, first_of_test, own_places
from ustad.mobility.places import PoiIndex, join_pois, one_category, read_pois
from ustad.mobility.reading import Reading
from ustad.mobility.timezones import with_timezone
from ustad.tables import TIMESTAMP, DataError

DATA = Path(os.environ.get("USTAD_DATA", Path(__file__).parents[2].parent / "shared" / "data"))


def stays(agent, start_minutes, end_minutes, lat, lon, zone: str | None = "UTC") -> pa.Table:
    n = len(lat)
    columns = {
        "agent_id": pa.array(agent),
        "started_at": pa.array(minutes(start_minutes), TIMESTAMP),
        "finished_at": pa.array(minutes(end_minutes), TIMESTAMP),
        "lat": pa.array(np.asarray(lat, float)),
        "lon": pa.array(np.asarray(lon, float)),
    }
    return pa.table({**columns, "timezone": pa.array([zone] * n)} if zone else columns)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 9999), lat0=st.floats(-89.9, 89.9), lon0=st.floats(-180, 180))
def test_the_nearest_poi_is_the_one_that_a_full_search_finds(seed, lat0, lon0):
    rng = np.random.default_rng(seed)
    centre = Projection(lat0, lon0)
    lat, lon = centre.backward(*rng.normal(0, 0.3, (2, 30)))
    poi_lat, poi_lon = centre.backward(*rng.normal(0, 0.3, (2, 12)))
    pois = pa.table({"poi_id": np.arange(12), "lat": poi_lat, "lon": poi_lon, "category": ["c"] * 12})
    metres = 1000 * haversine_km(lat[:, None], lon[:, None], poi_lat, poi_lon)
    expected = np.where(metres.min(axis=1) <= 150, metres.argmin(axis=1), -1)
    assert np.array_equal(PoiIndex(pois).nearest(lat, lon, 150.0), expected)


def test_a_stay_without_a_poi_nearby_is_unknown():
    pois = pa.table({"poi_id": ["cafe"], "lat": [50.0], "lon": [8.0], "category": ["EatOut"]})
    joined = join_pois(stays([1, 1], [0, 60], [50, 99], [50.0005, 50.01], [8.0, 8.0]), pois, 150)
    assert joined["poi_category"].to_pylist() == ["EatOut", "unknown"]
    assert joined["poi_id"].to_pylist() == ["cafe", None]


def test_of_several_categories_the_rarest_is_chosen_and_ties_go_by_the_alphabet():
    lists = pa.chunked_array([[["Drop", "Visit", "Home"], ["Drop", "Work"], []], [["Home", "Visit", "Drop"], None]])
    assert one_category(lists).to_pylist() == ["Home", "Work", "unknown", "Home", "unknown"]


def test_pois_with_lists_and_other_names_are_read():
    table = pa.table(
        {"poi_id": [1, 2], "latitude": [1.0, 2.0], "longitude": [3.0, 4.0], "act_types": [["a", "b"], ["b"]]}
    )
    reading = Reading()
    assert read_pois(table, reading)["category"].to_pylist() == ["a", "b"]
    assert any("several categories" in note for note in reading.notes)


def test_home_and_work_are_found_from_when_they_are_visited():
    day = 1440
    rows = []
    for d in range(7):  # 2024-01-01 is a Monday
        rows.append((d * day, d * day + 8 * 60, 50.0))
        if d < 5:
            rows.append((d * day + 9 * 60, d * day + 17 * 60, 50.1))
        rows.append((d * day + 18 * 60, d * day + 19 * 60, 50.2))
        rows.append((d * day + 20 * 60, d * day + 24 * 60, 50.0001))
    start, end, lat = map(list, zip(*rows, strict=True))
    found = own_places(stays([3] * len(rows), start, end, lat, [8.0] * len(rows)))
    kinds = dict(zip(np.round(lat, 1).tolist(), found["poi_category"].to_pylist(), strict=True))
    assert kinds == {50.0: "home", 50.1: "work", 50.2: "other"}
    names = dict(zip(np.round(lat, 1).tolist(), found["poi_id"].to_pylist(), strict=True))
    assert len(set(names.values())) == len(set(found["poi_id"].to_pylist())) == 3
    assert all(re.fullmatch("3:[0-9a-z]{8}", name) for name in names.values())


def test_the_local_clock_decides_what_is_night():
    start = np.arange(5) * 1440 + 8 * 60  # 8:00 to 18:00 UTC: the night of Honolulu (22:00 to 8:00)
    there = stays([1] * 5, start, start + 600, [21.3] * 5, [-157.8] * 5, "Pacific/Honolulu")
    here = stays([1] * 5, start, start + 600, [21.3] * 5, [-157.8] * 5, "UTC")
    assert set(own_places(there)["poi_category"].to_pylist()) == {"home"}
    assert set(own_places(here)["poi_category"].to_pylist()) == {"work"}


def test_what_comes_after_until_does_not_say_what_a_place_is():
    start = np.arange(10) * 1440
    lat = [50.0] * 4 + [50.5] * 6  # moves house on the fifth day
    table = stays([1] * 10, start, start + 480, lat, [8.0] * 10)
    later = own_places(table, until=table["started_at"][4].as_py())["poi_category"].to_pylist()
    assert later == ["home"] * 4 + ["other"] * 6
    assert own_places(table)["poi_category"].to_pylist() == ["other"] * 4 + ["home"] * 6


def test_office_hours_after_until_do_not_say_where_work_is():
    """Two weeks of work in one place, then four in another: the scored weeks must not move the word."""
    weekdays = np.array([day for day in range(42) if day % 7 < 5])  # 2024-01-01 is a Monday
    start = weekdays * 1440 + 9 * 60
    lat = np.where(weekdays < 14, 50.1, 50.3)
    table = stays([1] * len(lat), start, start + 480, lat, [8.0] * len(lat))
    until = datetime(2024, 1, 15, tzinfo=UTC)
    assert own_places(table, until=until)["poi_category"].to_pylist() == ["work"] * 10 + ["other"] * 20
    assert own_places(table)["poi_category"].to_pylist() == ["other"] * 10 + ["work"] * 20


def test_a_place_of_weekends_is_not_work_however_long_the_hours():
    days = np.array([day for day in range(21) if day % 7 in (0, 5, 6)])  # Mondays, Saturdays, Sundays
    monday = days % 7 == 0
    start = days * 1440 + 9 * 60
    end = start + np.where(monday, 300, 480)
    table = stays([1] * len(days), start, end, np.where(monday, 50.1, 50.3), [8.0] * len(days))
    assert own_places(table)["poi_category"].to_pylist() == ["work", "other", "other"] * 3


@settings(max_examples=40, deadline=None)
@given(start=st.integers(0, 1439), weekday=st.integers(0, 6), length=st.integers(0, 6000))
def test_hours_of_night_and_office_are_those_of_counting_every_minute(start, weekday, length):
    clock = np.arange(start, start + length)
    hour, day = clock % 1440 // 60, (weekday + clock // 1440) % 7
    night, office = _hours(np.array([start / 60]), np.array([weekday]), np.array([length / 60]))
    assert night[0] == pytest.approx(((hour >= 22) | (hour < 6)).sum() / 60)
    assert office[0] == pytest.approx(((hour >= 9) & (hour < 17) & (day < 5)).sum() / 60)


def nights(agent: int, first_day: int, days: int) -> pa.Table:
    """Nights at one place, days at another."""
    night = first_day * 1440 + np.arange(days) * 1440 - 120.0
    start = np.sort(np.r_[night, night + 660])
    lat = np.tile([50.0, 50.2], days)
    return stays([agent] * (2 * days), start, start + 480, lat, [8.0] * (2 * days))


def test_home_of_somebody_who_joins_late_is_where_their_own_first_nights_were():
    table = pa.concat_tables([nights(1, 1, 56), nights(2, 43, 14)])
    until = datetime(2024, 1, 29, tzinfo=UTC)
    found = own_places(table, until=until)
    assert found.slice(0, 112).equals(own_places(nights(1, 1, 56), until=until))
    assert found["poi_category"].to_pylist()[112:116] == ["home", "work", "home", "work"]


def test_home_of_somebody_who_moved_is_where_they_lived_in_the_half_year_before_the_test_part():
    """Three hundred nights at one place, then a hundred at another; until lies twenty nights before the end."""
    start = np.arange(400) * 24 * 60 + 20 * 60
    lat = np.where(np.arange(400) < 300, 52.5, 52.6)
    table = stays(np.ones(400, int), start, start + 10 * 60, lat, np.full(400, 13.4))
    until = table["started_at"][380].as_py()
    kinds = own_places(table, until=until)["poi_category"].to_pylist()
    assert kinds[:300] == ["home"] * 300  # 102 of the last 182 nights, against 80
    kinds = own_places(table.slice(60), until=table["started_at"][395].as_py())["poi_category"].to_pylist()
    assert kinds == ["other"] * 240 + ["home"] * 100


def test_homes_do_not_hang_on_a_few_fixes_of_another_decade():
    odd = stays([1, 1, 1], [-12_000_000, -11_999_000, -11_998_000], [-11_999_900, -11_998_900, -11_997_900],
                [50.4] * 3, [8.0] * 3)  # fmt: skip
    table = pa.concat_tables([odd, nights(1, 1, 56), nights(2, 1, 56)])
    span = (int(minutes([-12_000_000])[0]), int(minutes([57 * 1440])[0]))
    found = own_places(table, until=first_of_test(span, "UTC", None))["poi_category"].to_pylist()
    assert set(found[:3]) == {"other"}
    assert found[3:] == ["home", "work"] * 112


@pytest.mark.parametrize("ends_at", [0.1, 23.0])
def test_what_says_home_and_work_ends_before_the_test_part_whatever_the_length(ends_at):
    for days in (*range(4, 60), 167, 170, 176, 180, 400):
        stayed = np.arange(days - (ends_at < 1)) * 1440.0 + 600  # no stay begins in the minutes after the last midnight
        data = Dataset(stays([1] * len(stayed), stayed, stayed + 60, [50.0] * len(stayed), [8.0] * len(stayed)))
        span = minutes([5.0, (days - 1) * 1440 + ends_at * 60])
        begins = first_of_test((int(span[0]), int(span[1])), "UTC", None)
        test_day = data.split(SplitConfig()).test_first
        assert begins is not None
        assert 0 <= test_day - begins.timestamp() / 86400 <= 1


def test_three_days_can_be_split_and_one_cannot():
    three = minutes([5.0, 2 * 1440 + 600])
    assert first_of_test((int(three[0]), int(three[1])), "UTC", None) == datetime(2024, 1, 3, tzinfo=UTC)
    assert first_of_test((int(three[0]), int(three[0]) + 10**9), "UTC", None) is None


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 9999))
def test_an_agents_places_do_not_depend_on_other_agents(seed):
    rng = np.random.default_rng(seed)
    n = 30
    agent = np.sort(rng.integers(0, 3, n))
    start = np.arange(n) * 100
    table = stays(agent, start, start + 90, 50 + rng.normal(0, 0.002, n), 8 + rng.normal(0, 0.002, n))
    together = own_places(table)
    for a in np.unique(agent):
        rows = pa.array(agent == a)
        alone = own_places(table.filter(rows)).combine_chunks()
        assert alone.equals(together.filter(rows).combine_chunks())


def test_zones_come_from_the_argument_then_the_coordinates():
    pytest.importorskip("timezonefinder")
    table = stays([1, 2, 3], [0, 0, 0], [9, 9, 9], [34.05, 60.17, -17.7], [-118.25, 24.94, 178.0], zone=None)
    found = with_timezone(table, None, Reading())["timezone"].to_pylist()
    assert found == ["America/Los_Angeles", "Europe/Helsinki", "Pacific/Fiji"]
    assert with_timezone(table, "Asia/Tokyo", Reading())["timezone"].to_pylist() == ["Asia/Tokyo"] * 3
    with pytest.raises(DataError, match="Mars/Base"):
        with_timezone(table, "Mars/Base", Reading())


def test_a_stay_keeps_its_local_clock_across_daylight_saving():
    at_eight = [np.datetime64("2024-03-30T07:00"), np.datetime64("2024-03-31T06:00")]  # 8:00 in Berlin, both days
    time = np.concatenate([np.array([t, t + np.timedelta64(20, "m")], "datetime64[us]") for t in at_eight])
    table = fixes([1] * 4, time.astype(np.int64), [52.5, 52.5, 52.6, 52.6], [13.4] * 4)
    found = extract_tables(table, timezone="Europe/Berlin").events
    assert local_time(found["started_at"], found["timezone"]).minute.tolist() == [480.0, 480.0]


def test_the_table_of_categories_can_be_edited(tmp_path):
    rules = read_categories()
    assert category_of([("amenity", "cafe"), ("building", "yes")], rules) == "EatOut"
    assert category_of([("shop", "hairdresser")], rules) == "Services"
    assert category_of([("shop", "toys")], rules) == "BuyGoods"
    assert category_of([("shop", "no")], rules) is None
    (tmp_path / "mine.yaml").write_text("Fun: [amenity=cafe]\n")
    assert category_of([("amenity", "cafe")], read_categories(tmp_path / "mine.yaml")) == "Fun"
    (tmp_path / "mine.yaml").write_text("Fun: [amenity]\n")
    with pytest.raises(DataError, match="'amenity' is not KEY=VALUE"):
        read_categories(tmp_path / "mine.yaml")


OSM = """<?xml version='1.0' encoding='UTF-8'?><osm version="0.6">
<node id="1" lat="60.0" lon="25.0" version="1"><tag k="amenity" v="cafe"/><tag k="name" v="Corner"/></node>
<node id="2" lat="60.1" lon="25.0" version="1"/><node id="3" lat="60.1" lon="25.2" version="1"/>
<node id="4" lat="60.3" lon="25.2" version="1"/><node id="5" lat="60.3" lon="25.0" version="1"/>
<way id="7" version="1"><nd ref="2"/><nd ref="3"/><nd ref="4"/><nd ref="5"/><nd ref="2"/>
<tag k="building" v="school"/></way>
<way id="8" version="1"><nd ref="2"/><nd ref="3"/><tag k="highway" v="residential"/></way></osm>"""


def test_nodes_and_areas_of_openstreetmap_become_pois(tmp_path):
    pytest.importorskip("osmium")
    (tmp_path / "town.osm").write_text(OSM)
    pois = read_osm(tmp_path / "town.osm").to_pylist()
    assert [(p["poi_id"], p["category"], p["name"]) for p in pois] == [("n1", "EatOut", "Corner"), ("w7", "School", "")]
    assert (round(pois[1]["lat"], 6), round(pois[1]["lon"], 6)) == (60.2, 25.1)


@pytest.mark.skipif(not (DATA / "osm" / "Helsinki.osm.pbf").exists(), reason="the extract is not here")
def test_a_real_extract_gives_many_kinds_of_pois():
    pytest.importorskip("osmium")
    pois = read_pois(read_osm(DATA / "osm" / "Helsinki.osm.pbf"))
    assert pois.num_rows > 1000
    assert {"EatOut", "BuyGoods", "Transportation", "Home"} <= set(pois["category"].to_pylist())
