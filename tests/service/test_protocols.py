"""How requests of trackers are read: every form of a time, and nothing made up gets past."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phone_requests import RECORDED, Recorded

from ustad.service.errors import InvalidError
from ustad.service.protocols import PROTOCOLS, read_time

moments = st.datetimes(datetime(1980, 1, 1), datetime(2037, 12, 31)).map(lambda t: t.replace(microsecond=0, tzinfo=UTC))
offsets = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))


@given(moments, offsets)
def test_a_moment_is_the_same_however_an_app_writes_it(moment: datetime, zone: timezone) -> None:
    seconds = round(moment.timestamp())
    written: list[Any] = [
        seconds, float(seconds), str(seconds), str(seconds) + ".0", moment.isoformat(),
        moment.astimezone(zone).isoformat(), moment.astimezone(zone).strftime("%Y-%m-%dT%H:%M:%S%z"),
        moment.strftime("%Y-%m-%dT%H:%M:%S.000Z"), moment.strftime("%Y-%m-%d %H:%M:%S"),
    ]  # fmt: skip
    written += [1000 * seconds, str(1000 * seconds)] if 1000 * seconds >= 2**31 else []
    assert {read_time(text) for text in written} == {seconds * 1_000_000}


@pytest.mark.parametrize("value", [None, "", "yesterday", True, "NaN", 1e400, 10**400, [], {}, "%TIME"])
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(InvalidError):
        read_time(value)


made_up = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("2024-03-04T07:15:00Z"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["_type", "lat", "lon", "tst", "acc", "locations", "geometry", "coordinates", "properties", "timestamp",
         "location", "coords", "latitude", "longitude", "accuracy", "position", "device", "uniqueId", "fixTime", "batt"]
    ), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(PROTOCOLS)), made_up | st.binary(max_size=30), st.dictionaries(st.text(), st.text()))
def test_whatever_comes_is_read_or_refused(app: str, content: Any, parameters: dict[str, str]) -> None:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    with contextlib.suppress(InvalidError):
        report = PROTOCOLS[app].read(body, parameters)
        assert all(abs(p.lat) <= 90 and abs(p.lon) <= 180 for p in report.positions)
        assert report.battery is None or 0 <= report.battery <= 100


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([r for r in RECORDED if r.body.startswith("{")]), st.data())
def test_a_request_cut_anywhere_is_refused(recorded: Recorded, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(recorded.body) - 1))
    with pytest.raises(InvalidError):
        PROTOCOLS[recorded.app].read(recorded.body[:cut].encode(), {})


def test_positions_come_in_order_of_time_whatever_their_order_in_a_batch() -> None:
    batch = next(r for r in RECORDED if r.app == "overland")
    content = json.loads(batch.body)
    content["locations"].reverse()
    report = PROTOCOLS["overland"].read(json.dumps(content).encode(), {})
    assert [tuple(p) for p in report.positions] == batch.fixes
    assert report.left_out == 1, "the one whose accuracy says that it is none"


@pytest.mark.parametrize("change", [{"valid": False}, {"outdated": True}, {"accuracy": -1}])
def test_what_a_server_calls_no_position_is_left_out_and_counted(change: dict[str, Any]) -> None:
    content = json.loads(next(r for r in RECORDED if r.app == "traccar").body)
    content["position"] |= change
    report = PROTOCOLS["traccar"].read(json.dumps(content).encode(), {})
    assert (report.positions, report.left_out, report.device) == ([], 1, "anna")
