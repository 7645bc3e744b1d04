"""An incident led by a dull stay names the stay that its story is about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Connection

from ustad.files import set_columns
from ustad.page import queries
from ustad.page import records as r
from ustad.page.store import Store
from ustad.page.translate import Layout, store_rows
from ustad.schema import mobility_schema
from ustad.scoring.incidents import incident_table
from ustad.tables import TIMESTAMP

MINUTE = 60_000_000
MIDNIGHT = 19_869 * 1440 - 120  # in Berlin, 26 May 2024, as minutes in UTC
HOME, SHOP, HOUSE = (51.3000, 9.5000), (51.3100, 9.5000), (51.3800, 9.5000)


@pytest.fixture
def connection() -> Iterator[Connection]:
    store = Store("sqlite://")
    with store.writing() as connection:
        yield connection
    store.close()


def put(connection: Connection, key: int, minutes: tuple[int, int], place: tuple[float, float], **more: Any) -> None:
    start, end = ((MIDNIGHT + m) * MINUTE for m in minutes)
    row = {
        "key": key, "agent": "a", "started_at": start, "finished_at": end, "day": 19_869 + minutes[0] // 1440,
        "timezone": "Europe/Berlin", "lat": place[0], "lon": place[1], "category": "shop", "score": 2.0,
        "p_value": 0.01, "alert": False, "incident": "one", "echo": True,
    }  # fmt: skip
    connection.execute(r.events.insert(), {**row, **more})


def put_lead(connection: Connection, new_place: bool = False, reason: str = "At home at 02:26 for 14 min.") -> None:
    put(connection, 1, (146, 160), HOME, category="apartment", score=5.0, alert=True, echo=False, reason=reason)
    content = json.dumps({"habits": {"surprise": {}, "new_place": new_place}})
    connection.execute(r.details.insert(), {"key": 1, "content": content})


def with_it(connection: Connection) -> str | None:
    _, _, (line,) = queries.alerts(connection, queries.Filter(), 0, "score", limit=10, offset=0)
    _, events = queries.agent_events(connection, "a", None, None, limit=10, offset=0)
    (opened,) = queries.events_by_key(connection, [1])
    same = [line["with_it"], opened["with_it"], *(e["with_it"] for e in events if e["id"] == "1")]
    assert same == [line["with_it"]] * 3, "the list, the panel and the person's own list say one thing"
    assert all(e["with_it"] is None for e in events if e["id"] != "1")
    return line["with_it"]


@pytest.mark.parametrize(
    "reason",
    [
        "At home at 02:26 for 14 min.",
        "Left home at 02:40, there since 02:26 (14 min).",
        "Left the office at 02:20 and was at home at 02:26 for 14 min.",
        "Left home at 02:20 and was back at 02:26 for 14 min.",
    ],
)
def test_the_most_unusual_other_stay_is_named_beside_a_lead_at_home(connection: Connection, reason: str) -> None:
    put_lead(connection, reason=reason)
    put(connection, 2, (64, 140), SHOP, score=4.0)
    put(connection, 3, (-300, -200), HOUSE, score=1.0, category="house")
    put(connection, 4, (200, 400), HOME, score=4.9, category="apartment")  # where the lead is: says nothing more
    put(connection, 5, (64, 140), HOUSE, score=9.0, incident="another")
    put(connection, 6, (141, 143), HOUSE, incident="another")  # something else came between
    assert with_it(connection) == "Also part of it: at a shop 01:04–02:20, 1.1 km from home."


def led_by(connection: Connection) -> str | None:
    (opened,) = queries.events_by_key(connection, [1])
    assert opened["led_by"] is None or opened["with_it"] is None
    return opened["led_by"] and opened["led_by"]["id"]


def test_who_comes_home_from_elsewhere_is_told_by_where_they_came_from(connection: Connection) -> None:
    put_lead(connection)
    put(connection, 2, (64, 140), SHOP, score=4.0, reason="At a shop at 01:04 for 1 h 16 min.", kind="predictable")
    put(connection, 3, (-300, -200), HOUSE, score=4.5, category="house")
    assert led_by(connection) == "2"
    (told,) = [e["led_by"] for e in queries.events_by_key(connection, [1])]
    assert (told["started_at"], told["reason"]) == ("2024-05-25T23:04:00Z", "At a shop at 01:04 for 1 h 16 min.")
    put(connection, 4, (141, 143), HOME, category="apartment")  # home already: the late return is another matter
    assert led_by(connection) is None


@pytest.mark.parametrize("is_new", [True, False])
def test_elsewhere_than_home_only_a_new_place_explains_what_came_next(connection: Connection, is_new: bool) -> None:
    put_lead(connection, reason="At an office at 02:26 for 14 min.")
    put(connection, 2, (64, 140), SHOP, score=4.0)
    content = json.dumps({"habits": {"surprise": {}, "new_place": is_new}})
    connection.execute(r.details.insert(), {"key": 2, "content": content})
    assert led_by(connection) == ("2" if is_new else None)


def test_a_stay_of_another_day_comes_with_its_date(connection: Connection) -> None:
    put_lead(connection, reason="At a gym at 02:26.")
    put(connection, 2, (-300, -200), HOUSE, category="house")
    assert with_it(connection) == "Also part of it: at a house on 25 May 19:00–20:40, 8.9 km away."


def test_a_lead_at_a_new_place_and_one_alone_name_nothing(connection: Connection) -> None:
    put_lead(connection, new_place=True)
    assert with_it(connection) is None
    put(connection, 2, (64, 140), SHOP, score=4.0)
    assert with_it(connection) is None


@pytest.mark.parametrize("places", [("bar", "home"), ("home", "home"), (None, None)])
@pytest.mark.parametrize("apart", [0.0, 0.02])
@pytest.mark.parametrize("facts", list(product([False, True], repeat=3)))
def test_the_page_tells_the_stay_that_the_table_of_incidents_names(
    connection: Connection, places: tuple[str, str], apart: float, facts: tuple[bool, bool, bool]
) -> None:
    before_new, lead_new, lead_home = facts
    start = pa.array([86_400_000_000, 93_600_000_000]).cast(TIMESTAMP)
    events = pa.table(
        {
            "stay_id": [10, 11], "agent_id": ["a", "a"], "started_at": start, "finished_at": start, "poi_id": places,
            "lat": [51.3 + apart, 51.3], "lon": [9.5, 9.5], "timezone": ["UTC"] * 2, "poi_category": ["bar", "house"],
            "score": [3.0, 4.0], "p_value": [1e-3, 1e-4], "alert": [False, True], "incident_id": ["10", "10"],
            "echo": [True, False], "kind": ["novel", "predictable"], "reason": ["At a bar.", "At a house."],
        }
    )  # fmt: skip
    measurements = pa.table({"new_place": [before_new, lead_new], "at_home": [False, lead_home]})
    schema = mobility_schema()
    (incident,) = incident_table(events, schema, measurements).to_pylist()
    whole = set_columns(events, new_place=measurements["new_place"], at_home=measurements["at_home"])
    rows, details = store_rows(whole, Layout.of(schema))
    connection.execute(r.events.insert(), rows)
    connection.execute(r.details.insert(), [{"key": key, "content": content} for key, content in details.items()])
    (lead,) = queries.events_by_key(connection, [rows[1]["key"]])
    told = lead["led_by"]["id"] if lead["led_by"] else lead["id"]
    assert told == str(rows[[10, 11].index(incident["leading_stay_id"])]["key"])
