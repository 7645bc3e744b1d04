"""Rules that hide explained alerts: what they cover, against a slow and obvious version; and files of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ustad.schema import mobility_schema
from ustad.tables import DataError
from ustad.triage.hiding import HidingRule, hide_alerts, read_rules

START = datetime(2024, 3, 30, tzinfo=UTC)


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)


def an_event(hours: float = 0.0, **more: Any) -> dict[str, Any]:
    event = {"agent": "a", "timezone": "Europe/Helsinki", "lat": 60.0, "lon": 25.0, "category": "bar", "kind": "novel"}
    return {**event, "started_at": micros(START + timedelta(hours=hours)), **more}


def a_rule(**more: Any) -> HidingRule:
    return HidingRule(
        **{"name": "r", "until": micros(START + timedelta(days=9)), "reason": "why", "agent": "a", **more}
    )


@given(st.floats(0, 48), st.integers(0, 23), st.integers(0, 23))
def test_hours_are_those_of_the_wall_clock_also_past_midnight_and_at_a_change_of_clocks(
    at: float, begin: int, end: int
) -> None:
    moment = datetime.fromtimestamp(micros(START + timedelta(hours=at)) // 1_000_000, UTC)
    hour = moment.astimezone(ZoneInfo("Europe/Helsinki")).hour
    inside, now = set(), begin
    while now != end:
        inside.add(now)
        now = (now + 1) % 24
    rule = a_rule(hours=(60 * begin, 60 * end))
    assert rule.covers(an_event(started_at=micros(moment))) == (hour in inside)


@pytest.mark.parametrize(
    ("change", "covered"),
    [({}, True), ({"agent": "b"}, False), ({"kind": "unsure"}, False), ({"category": None}, False),
     ({"lat": 60.004}, True), ({"lat": 60.005}, False), ({"lat": None}, False), ({"hours": 24 * 9}, False)],
)  # fmt: skip
def test_everything_that_a_rule_names_narrows_it(change: dict[str, Any], covered: bool) -> None:
    rule = a_rule(category="bar", kind="novel", lat=60.0, lon=25.0)
    assert rule.covers(an_event(**change)) == covered


def score_table() -> pa.Table:
    times = pa.array([micros(START + timedelta(hours=h)) for h in (0, 1, 2, 3)], pa.timestamp("us", tz="UTC"))
    return pa.table({
        "agent_id": [1, 1, 2, 2], "started_at": times, "finished_at": times, "lat": [60.0] * 4, "lon": [25.0] * 4,
        "poi_category": ["bar", "home", "bar", "home"], "timezone": ["UTC"] * 4, "score": [4.0, 3.0, 2.0, 1.0],
        "alert": [True, True, True, False], "kind": ["novel"] * 4,
    })  # fmt: skip


def test_in_bulk_a_hidden_alert_keeps_its_score_and_names_its_rule() -> None:
    table = score_table()
    made = hide_alerts(table, [a_rule(agent="1", category="bar", name="night shift")], mobility_schema())
    assert made["alert"].to_pylist() == [False, True, True, False]
    assert made["hidden_by"].to_pylist() == ["night shift", None, None, None]
    assert made.select(["score", "kind"]).equals(table.select(["score", "kind"]))
    assert hide_alerts(made, [], mobility_schema())["hidden_by"].null_count == 4


def test_the_same_rules_come_from_yaml_and_from_csv(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "- {agent: 17, hours: '22:00-06:00', kind: novel, until: 2026-12-31, reason: night shift, name: n}\n"
        "- {lat: 60.1, lon: 24.9, radius_km: 2, until: 2026-12-31T12:00:00+02:00, reason: fair, name: f}\n"
    )
    (tmp_path / "rules.csv").write_text(
        "name,agent,lat,lon,radius_km,category,hours,kind,until,reason\n"
        "n,17,,,,,22:00-06:00,novel,2026-12-31,night shift\nf,,60.1,24.9,2,,,,2026-12-31T10:00:00Z,fair\n"
    )
    rules = read_rules(tmp_path / "rules.yaml")
    assert rules == read_rules(tmp_path / "rules.csv")
    assert rules[0].hours == (1320, 360)
    assert rules[0].until == micros(datetime(2027, 1, 1, tzinfo=UTC)), "to the end of the day"


@pytest.mark.parametrize(
    ("text", "said"),
    [("- {agent: a, reason: x}", "needs until"), ("- {agent: a, until: 2026-01-01}", "needs reason"),
     ("- {until: 2026-01-01, reason: x}", "needs a person"), ("a: b", "must hold a list"), ("- [", "not YAML"),
     ("- {agent: a, until: soon, reason: x}", "until must be a date"), ("- {agent: a, who: b}", "'who' is not known"),
     ("- {agent: a, until: 2026-01-01, reason: x, hours: 25-3}", "hours must look like"),
     ("- {lat: 1, until: 2026-01-01, reason: x}", "both lat and lon")],
)  # fmt: skip
def test_a_mistake_in_a_rule_is_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "rules.yaml").write_text(text)
    with pytest.raises(DataError, match=said) as error:
        read_rules(tmp_path / "rules.yaml")
    assert "\n" not in str(error.value)
