"""Unusual days of everybody: found where there is one, seldom where there is none, one note instead of many alerts."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ustad.calendar_days import country_of_zone, name_days, public_holidays, read_calendar
from ustad.cli.group_days import note_days
from ustad.clock import day_number, iso_date
from ustad.schema import mobility_schema
from ustad.tables import TIMESTAMP, DataError
from ustad.triage.unusual_days import find_unusual_days

SNOW = day_number("2024-05-20")
FIRST = SNOW - 10


def make_days(seed, people=120, days=21, rate=0.08, more=0.0):
    """Each person's most unusual event of every day; days differ a little, and on one `more` people stayed away."""
    chance = np.random.default_rng(seed)
    day = np.repeat(np.arange(FIRST, FIRST + days), people)
    entity = np.tile(np.arange(people), days)
    level = np.clip(rate + chance.normal(0, 0.015, days), 0.01, 1)[day - FIRST]
    unusual = chance.random(len(day)) < level + more * (day == SNOW)
    p_value = np.where(unusual, chance.uniform(1e-4, 0.049, len(day)), chance.uniform(0.051, 1, len(day)))
    lead = np.where((day == SNOW) & unusual & (more > 0), "elsewhere", chance.choice(["start", "distance"], len(day)))
    return day, entity, p_value, lead


def test_a_day_on_which_many_are_unusual_is_found_with_its_question():
    for seed in range(10):
        (found,) = find_unusual_days(*make_days(seed, more=0.3))
        assert (found.day, found.entities, found.questions) == (SNOW, 120, ("elsewhere",))
        assert found.share > 3 * found.usual


def test_where_nothing_happened_a_day_is_seldom_called_unusual():
    alarms = [bool(find_unusual_days(*make_days(seed))) for seed in range(300)]
    assert np.mean(alarms) <= 0.02


def test_few_people_or_few_days_say_nothing():
    assert find_unusual_days(*make_days(1, people=20, more=0.9)) == []
    day, *rest = make_days(1, more=0.5)
    few = np.abs(day - SNOW) < 3
    assert find_unusual_days(day[few], *(values[few] for values in rest)) == []


def test_the_order_of_events_does_not_matter():
    arrays = make_days(3, more=0.3)
    order = np.random.default_rng(0).permutation(len(arrays[0]))
    assert find_unusual_days(*(values[order] for values in arrays)) == find_unusual_days(*arrays)


@pytest.fixture
def scores(tmp_path):
    day, entity, p_value, lead = make_days(2, more=0.3)
    start = (day - 1) * 86_400_000_000 + 18 * 3_600_000_000  # from the evening before until the evening
    alert = p_value < 0.01
    columns = {
        "agent_id": entity, "started_at": pa.array(start).cast(TIMESTAMP), "score": -np.log10(p_value),
        "finished_at": pa.array(start + 86_400_000_000).cast(TIMESTAMP), "p_value": p_value, "alert": alert,
        "evidence": [[{"name": name, "share": 1.0}] for name in lead], "incident_id": [str(i) for i in range(len(day))],
        "lat": np.full(len(day), 60.0), "lon": np.full(len(day), 25.0), "kind": ["novel"] * len(day),
        "timezone": ["Europe/Berlin"] * len(day), "reason": ["."] * len(day),
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "events.parquet")
    (tmp_path / "run.json").write_text(json.dumps({"alerts": int(alert.sum()), "warnings": ["w"]}))
    (tmp_path / "days.csv").write_text("date,name\n2024-05-20,strike\n")
    return tmp_path, (day == SNOW) & (lead == "elsewhere") & alert, alert


def test_alerts_of_such_a_day_become_one_note_and_keep_their_scores(scores):
    place, grouped, alert = scores
    before = pq.read_table(place / "events.parquet")
    run = note_days(place, mobility_schema(), country=None, calendar=place / "days.csv", group=True)
    after = pq.read_table(place / "events.parquet")
    assert after["score"].equals(before["score"])
    np.testing.assert_array_equal(after["alert"].to_numpy(zero_copy_only=False), alert & ~grouped)
    hidden = np.array([text is not None for text in after["hidden_by"].to_pylist()])
    np.testing.assert_array_equal(hidden, grouped)
    assert run["alerts"] == int((alert & ~grouped).sum())
    first, note = run["warnings"]
    assert first == "w"
    assert note.startswith("2024-05-20 (strike) was unusual for everybody: ")
    assert f"{int(grouped.sum())} alerts of that day with the same cause are left out" in note
    assert run["calendar"] == {"2024-05-20": "strike, unusual for everybody"}


def test_without_grouping_only_names_are_kept(scores):
    place, _, alert = scores
    run = note_days(place, mobility_schema(), country=None, calendar=place / "days.csv", group=False)
    assert run["calendar"] == {"2024-05-20": "strike"}
    assert run["warnings"] == ["w"]
    assert pq.read_table(place / "events.parquet")["alert"].to_pylist() == alert.tolist()


# -------------------------------------------------------------------------------------------------- calendar
ICS = """BEGIN:VCALENDAR\r
BEGIN:VEVENT\r
DTSTART;VALUE=DATE:20240518\r
DTEND;VALUE=DATE:20240521\r
SUMMARY:Fair\\, the\r
  large one\r
GEO:52.5;13.4\r
END:VEVENT\r
BEGIN:VEVENT\r
DTSTART:20240522T100000Z\r
DTEND:20240522T120000Z\r
SUMMARY:Strike\r
END:VEVENT\r
END:VCALENDAR\r
"""


def test_events_of_both_kinds_of_files_name_their_days(tmp_path: Path):
    (tmp_path / "a.ics").write_bytes(ICS.encode())
    (tmp_path / "a.csv").write_text(
        'date,name,until,lat,lon\n2024-05-18,"Fair, the large one",2024-05-20,52.5,13.4\n2024-05-22,Strike,,,\n'
    )
    ics, table = (read_calendar(tmp_path / name) for name in ("a.ics", "a.csv"))
    assert ics == table
    days = name_days(SNOW - 1, SNOW + 5, {SNOW: "Whit Monday"}, ics)
    assert days["2024-05-20"] == "Whit Monday, Fair, the large one (in one area)"
    assert list(days) == ["2024-05-19", "2024-05-20", "2024-05-22"]


def test_bad_calendars_are_refused_in_one_line(tmp_path: Path):
    for text, problem in (
        ("when,what\n1,2\n", "columns date and name"),
        ("date,name\n20 May,x\n", "line 2"),
        ("date,name,until\n2024-05-20,x,2024-05-01\n", "before it begins"),
        ("date,name,lat\n2024-05-20,x,3\n", "both lat and lon"),
    ):
        (tmp_path / "c.csv").write_text(text)
        with pytest.raises(DataError, match=problem):
            read_calendar(tmp_path / "c.csv")


def test_the_country_follows_from_the_zone():
    assert (country_of_zone("Europe/Berlin"), country_of_zone("America/Los_Angeles")) == ("DE", "US")
    assert country_of_zone("UTC") is None


def test_public_holidays_come_from_the_library():
    pytest.importorskip("holidays", reason="the library of holidays is not installed: pip install 'ustad[calendar]'")
    names = public_holidays("DE", SNOW - 12, SNOW)
    assert [iso_date(day) for day in names] == ["2024-05-09", "2024-05-20"]
    with pytest.raises(DataError, match="no public holidays are known of 'XX'"):
        public_holidays("XX", SNOW, SNOW)
