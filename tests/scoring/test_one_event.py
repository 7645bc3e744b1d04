"""One event at a time, without tables: equal to what the encoder and the batch make of many."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.distribution import Distribution
from ustad.events.encoded_row import RowEncoder
from ustad.events.encoder import Encoder
from ustad.events.one_visit import VisitReader
from ustad.events.visits import Frame, read_visits
from ustad.network.live.network_step import _padded_size, _views
from ustad.schema import EventSchema, Feature

FEATURES = (
    Feature("start", "cyclic", ("@minute_of_day",), period=1440),
    Feature("wait", "numeric", ("@elapsed",)),
    Feature("length", "numeric", ("@duration",), transform="log"),
    Feature("amount", "numeric"),
    Feature("shop", "categorical"),
    Feature("branch", "categorical"),
    Feature("weekday", "categorical", ("@weekday",)),
    Feature("month", "cyclic", ("@month",), period=12),
    Feature("ends", "categorical", ("@ends_seen",)),
    Feature("place", "place", ("lat", "lon")),
    Feature("shape", "vector", size=3),
)
SCHEMA = EventSchema("cards", FEATURES, entity="card", time="time", end="end", timezone="zone")
ARRAYS = ("time", "day", "key", "numbers", "categories", "vectors", "missing", "entity_ids")
MOMENT = pa.timestamp("us", tz="UTC")

numbers = st.none() | st.floats(-1e6, 1e6) | st.integers(-1000, 1000) | st.just(float("nan"))
gaps = st.none() | st.sampled_from([0.0, 1800.0, 1801, float("nan")]) | st.floats(0, 1e5)
events = st.fixed_dictionaries(
    {
        "time": st.datetimes(datetime(2023, 1, 1), datetime(2024, 12, 31), timezones=st.just(UTC)),
        "minutes": st.none() | st.integers(0, 5000),
        "amount": numbers,
        "shop": st.sampled_from(["bakery", "market", "never seen", None]),
        "branch": st.sampled_from([3, 14, 15, None]),
        "zone": st.sampled_from(["UTC", "Europe/Helsinki", "America/Los_Angeles", "Australia/Lord_Howe", None]),
        "lat": st.none() | st.floats(-89, 89),
        "lon": st.none() | st.floats(-180, 180),
        "shape": st.none() | st.lists(st.floats(-5, 5), min_size=3, max_size=3),
        "start_gap_s": gaps,
        "end_gap_s": gaps,
    }
)


def _event(drawn: dict[str, Any], card: Any) -> dict[str, Any]:
    minutes = drawn.pop("minutes")
    end = None if minutes is None else drawn["time"] + timedelta(minutes=minutes)
    return {"card": card, "end": end, **drawn}


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    types = {"time": MOMENT, "end": MOMENT, "amount": pa.float64(), "shop": pa.string(), "branch": pa.int64()}
    types |= {"zone": pa.string(), "lat": pa.float64(), "lon": pa.float64(), "shape": pa.list_(pa.float64())}
    types |= dict.fromkeys(("start_gap_s", "end_gap_s", "observed_s"), pa.float64())
    return pa.table({name: pa.array([r[name] for r in rows], types.get(name)) for name in rows[0]})


@pytest.fixture(scope="module")
def fitted() -> Encoder:
    rng = np.random.default_rng(0)
    rows = [
        {
            "card": i % 7,
            "time": datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=i),
            "end": datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=i, minutes=int(rng.integers(1, 90))),
            "amount": float(rng.normal(20, 5)),
            "shop": ["bakery", "market"][i % 2],
            "branch": [3, 14][i % 2],
            "zone": "Europe/Helsinki",
            "lat": 60 + rng.normal(0, 0.1),
            "lon": 25 + rng.normal(0, 0.1),
            "shape": rng.normal(size=3).tolist(),
        }
        for i in range(60)
    ]
    return Encoder.fit(_table(rows), SCHEMA)


@settings(max_examples=150, deadline=None)
@given(drawn=st.lists(events, min_size=1, max_size=2), card=st.sampled_from([7, "a card", "7"]))
def test_a_row_is_encoded_as_a_table_would_be(fitted: Encoder, drawn: list[dict[str, Any]], card: Any) -> None:
    rows = [_event(dict(d), card) for d in sorted(drawn, key=lambda d: d["time"])]
    rows[0]["end"] = rows[0]["end"] or rows[0]["time"]  # nobody knows how long ago an open end was
    previous = rows[0] if len(rows) > 1 else None
    wanted = fitted.encode(_table(rows))
    made = RowEncoder(fitted).encode(rows[-1], previous)
    assert made is not None
    if len(rows) > 1 and rows[0]["time"] == rows[1]["time"]:
        return  # the same key twice: which comes last is not said
    for name in ARRAYS:
        expected = getattr(wanted, name)
        expected = expected if name == "entity_ids" else expected[-1:]
        if name == "day" and previous is not None:
            assert made.day[0] <= expected[0]  # a date that falls is lifted where the events are put together
        elif getattr(made, name).dtype.kind == "f":
            np.testing.assert_allclose(getattr(made, name), expected, rtol=1e-6, atol=1e-6, err_msg=name)
        else:
            assert getattr(made, name).tolist() == expected.tolist(), name


@settings(max_examples=150, deadline=None)
@given(
    drawn=events,
    observed=gaps,
    card=st.sampled_from([7, "a card", "7"]),
    habitat=st.sampled_from([None, "shop", "branch"]),
    without=st.sets(st.sampled_from(["lat", "shop", "end", "zone", "start_gap_s", "end_gap_s", "observed_s"])),
    has_places=st.booleans(),
)
def test_a_visit_is_read_as_from_a_table(
    drawn: dict[str, Any], observed: Any, card: Any, habitat: str | None, without: set[str], has_places: bool
) -> None:
    row = {**_event(dict(drawn), card), "observed_s": observed}
    frame = Frame.from_dict({"centre": [60.0, 25.0] if has_places else None, "categories": ["bakery", "market"]})
    schema, row = replace(SCHEMA, habitat=habitat), {name: v for name, v in row.items() if name not in without}
    table = _table([row])
    wanted, visit = read_visits(table, schema, frame), VisitReader(schema, frame).read(row)
    assert visit is not None
    for name in (f.name for f in fields(visit)):
        made, expected = getattr(visit, name), getattr(wanted, name)
        np.testing.assert_array_equal(made, expected, err_msg=name)
        assert np.asarray(made).dtype == np.asarray(expected).dtype, name


@pytest.mark.parametrize(
    "change", [{"amount": Decimal("3.5")}, {"shop": b"bakery"}, {"time": "2024-01-05"}, {"zone": "Mars/Olympus"}]
)
def test_what_only_a_table_can_convert_is_left_to_it(fitted: Encoder, change: dict[str, Any]) -> None:
    moment = datetime(2024, 1, 5, tzinfo=UTC)
    row = {"card": 1, "time": moment, "end": moment, "amount": 1.0, "shop": "bakery", "branch": 3, "zone": "UTC"}
    row |= {"lat": 60.0, "lon": 25.0, "shape": [0.0, 0.0, 0.0]}
    assert RowEncoder(fitted).encode(row, None) is not None
    assert RowEncoder(fitted).encode({**row, **change}, None) is None
    visits = VisitReader(SCHEMA, Frame.from_dict({"centre": None, "categories": []}))
    assert visits.read(row) is not None
    assert "amount" in change or visits.read({**row, **change}) is None
    del row["shop"]
    assert RowEncoder(fitted).encode(row, None) is None


@given(
    reference=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=200), x=st.floats(-1e6, 1e6) | st.just(float("nan"))
)
def test_the_tail_of_one_value_equals_that_of_many(reference: list[float], x: float) -> None:
    fitted = Distribution.fit(np.array(reference))
    assert fitted.log10_tail_of(x) == pytest.approx(float(fitted.log10_tail(np.array([x]))[0]), rel=1e-9, nan_ok=True)


def test_arrays_packed_into_bytes_come_back() -> None:
    given = [np.ones((1, 3), np.float32) / 3, np.array([[5, 6]]), np.zeros((1, 0), np.float32), np.array([[True]])]
    host = torch.zeros(sum(map(_padded_size, given)), dtype=torch.uint8)
    for view, fresh in zip(_views(host, given), given, strict=True):
        view.copy_(torch.from_numpy(fresh))
    for view, fresh in zip(_views(host, given), given, strict=True):
        assert np.array_equal(view.numpy(), fresh)
