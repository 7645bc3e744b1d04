"""Events that are not stays: the body, the rows and the way back to a table follow from the schema."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfoNotFoundError

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ustad.clock import local_time
from ustad.mobility.timezones import can_find_zones
from ustad.page import translate
from ustad.page.translate import (
    Layout,
    event_rows,
    event_table,
    fresh_rows,
    keys_for,
    keys_of,
    local_day,
    store_rows,
    table_rows,
)
from ustad.schema import EventSchema, Feature, mobility_schema
from ustad.service.live import event_zones
from ustad.service.messages import events_model
from ustad.service.routes_ingest import _row
from ustad.tables import TIMESTAMP, event_keys

CARDS = EventSchema(
    name="cards",
    features=(
        Feature("amount", "numeric", unit="EUR"),
        Feature("merchant", "categorical"),
        Feature("hour", "cyclic", ("@minute_of_day",), period=1440.0, display="clock"),
        Feature("shape", "vector", size=2),
    ),
    entity="card",
    time="paid_at",
    timezone="Europe/Paris",
)


def test_the_body_follows_the_schema_and_refuses_what_is_not_in_it() -> None:
    model = events_model(CARDS)
    payment = {"card": "c1", "paid_at": "2024-03-01T23:30:00Z", "amount": 12.5, "merchant": "food", "shape": [1, 2]}
    assert len(model(events=[payment]).events) == 1
    for change in ({"amount": "much"}, {"lat": 60.0}, {"merchant": 7}, {"card": None}):
        with pytest.raises(ValidationError):
            model(events=[{**payment, **change}])


def test_an_event_comes_back_from_the_store_as_the_model_reads_it() -> None:
    layout = Layout.of(CARDS)
    body = events_model(CARDS)(
        events=[{"card": 7, "paid_at": "2024-03-01T23:30:00Z", "amount": 12.5, "merchant": "food", "shape": [1, 2]}]
    )
    table = event_table([_row(body.events[0].model_dump(), layout)], layout)
    assert table.to_pylist()[0]["amount"] == 12.5
    rows, details = store_rows(table, layout)
    assert rows[0]["category"] == "food"
    assert rows[0]["day"] == 19784, "2 March in Paris"
    import json

    again = event_table([{**rows[0], "given": json.loads(details[rows[0]["key"]])["given"]}], layout)
    assert again.equals(table)


def test_rows_are_known_by_the_key_that_tables_give_them() -> None:
    rows = [
        {"agent": name, "started_at": moment} for name in ("a", "é 1", "7") for moment in (0, 1_700_000_000_123_456)
    ]
    agents, starts = (pa.array([row[name] for row in rows]) for name in ("agent", "started_at"))
    assert keys_for(rows) == event_keys(agents, starts.cast(TIMESTAMP)).tolist()
    assert keys_for([]) == []


def test_an_id_is_part_of_the_key_alike_in_tables_and_rows() -> None:
    schema = replace(CARDS, event_id="number")
    ids = [7, 8, None]
    table = pa.table({"card": ["c"] * 3, "paid_at": pa.array([5] * 3, pa.int64()).cast(TIMESTAMP), "number": ids})
    rows = [{"agent": "c", "started_at": 5, "event_id": None if i is None else str(i)} for i in ids]
    keys = keys_for(rows, by_id=True)
    assert keys == keys_of(table, schema)
    assert len(set(keys)) == 3
    assert min(keys) >= 0
    assert keys[2] == keys_for(rows)[2], "without an id, entity and time tell"
    assert len(set(keys_of(table, CARDS))) == 1


def test_rows_that_just_came_are_stored_like_rows_of_a_score_table() -> None:
    layout = Layout.of(CARDS)
    payment = {"card": "c", "paid_at": "2024-03-01T23:30:00Z", "amount": 12.5, "merchant": "food", "shape": [1, 2]}
    row = _row(events_model(CARDS)(events=[payment]).events[0].model_dump(), layout)
    score = {"score": 2.0, "p_value": 0.01, "alert": True, "kind": "novel", "reason": "because", "pct_amount": 0.9,
             "expected_amount": float("nan"), "knn": 0.5, "pct_knn": 0.2}  # fmt: skip
    table = event_table([row], layout)
    rows, details = fresh_rows([(row, keys_for([row])[0])], ["Europe/Paris"], [score], layout)
    for name, value in score.items():
        table = table.append_column(name, pa.array([value]))
    assert (rows, details) == store_rows(table, layout)
    assert event_table(table_rows(event_table([row], layout), layout), layout).equals(event_table([row], layout))


@pytest.mark.parametrize(
    "schema", [CARDS, replace(CARDS, timezone="zone"), mobility_schema()], ids=lambda s: s.timezone
)
def test_rows_are_read_by_the_model_as_their_table_would_be(schema: EventSchema) -> None:
    layout = Layout.of(schema)
    whole = {"agent": "é 1", "started_at": 1_700_000_000_123_456, "finished_at": 1_700_000_900_000_000,
             "timezone": "Asia/Tokyo", "lat": 60.5, "lon": 24.25, "poi_id": "p", "category": "food", "n_fixes": 3,
             "given": {"amount": 12, "shape": [1.0, 2.5]}}  # fmt: skip
    bare = {"agent": "b", "started_at": 0, "finished_at": 0, "timezone": None}
    assert event_rows([whole, bare], layout) == event_table([whole, bare], layout).to_pylist()


@pytest.mark.parametrize(("column", "lat", "lon"), [("zone", "lat", "lon"), ("timezone", "north", "east")])
def test_an_event_without_a_zone_gets_that_of_all_or_of_its_place_whatever_its_columns_are_called(
    column: str, lat: str, lon: str
) -> None:
    place = Feature("place", "place", (lat, lon))
    schema = replace(CARDS, features=(*CARDS.features, place), timezone=column)
    layout, body = Layout.of(schema), events_model(schema)
    payment = {"card": "c", "paid_at": "2024-03-01T23:30:00Z"}
    sent = [{**payment, column: "Asia/Tokyo", lat: 60.17, lon: 24.94}, {**payment, lat: 60.17, lon: 24.94}, payment]
    rows = [_row(event.model_dump(), layout) for event in body(events=sent).events]
    of_place = "Europe/Helsinki" if can_find_zones() else "Europe/Paris"
    assert event_zones(rows, layout, "Europe/Paris") == ["Asia/Tokyo", of_place, "Europe/Paris"]
    of_place = "Europe/Helsinki" if can_find_zones() else "UTC"
    assert event_zones(rows, layout, None) == ["Asia/Tokyo", of_place, "UTC"]
    assert event_zones(rows, Layout.of(CARDS), None) == ["Europe/Paris"] * 3


ZONES = ["UTC", "Europe/Helsinki", "America/St_Johns", "Pacific/Apia", "Africa/Casablanca", "+03:00"]


@given(st.integers(0, 2**52), st.sampled_from(ZONES))
def test_the_local_date_of_one_moment_is_that_of_a_table(moment: int, zone: str) -> None:
    assert local_day(moment, zone) == local_time(pa.array([moment], pa.int64()).cast(TIMESTAMP), zone).day[0]


def test_the_local_date_in_utc_needs_no_zone_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(name: str) -> None:
        raise ZoneInfoNotFoundError(name)

    monkeypatch.setattr(translate, "ZoneInfo", lacking)
    translate._zone.cache_clear()
    assert local_day(86_400_000_000 - 1, "UTC") == 0
    assert local_day(86_400_000_000, "UTC") == 1
