"""Incidents: what belongs together is told once, the same in bulk, in parts and one event at a time."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.schema import mobility_schema
from ustad.scoring.incidents import UNUSUAL, IncidentLog, find_incidents, incident_table
from ustad.tables import TIMESTAMP

SCHEMA = mobility_schema()
HOUR = 3_600_000_000
MOMENT = pa.timestamp("us", tz="UTC")


def stays(rows: list[tuple[int, float, str | None, float]]) -> tuple[pa.Table, np.ndarray]:
    """Stays of (agent, hour, place, p-value), each an hour long."""
    start = np.array([int(r[1] * HOUR) for r in rows], np.int64)
    table = pa.table(
        {
            "stay_id": pa.array(range(100, 100 + len(rows))),
            "agent_id": pa.array([r[0] for r in rows]),
            "started_at": pa.array(start).cast(MOMENT),
            "finished_at": pa.array(start + HOUR).cast(MOMENT),
            "poi_id": pa.array([r[2] for r in rows], pa.string()),
        }
    )
    return table, np.array([r[3] for r in rows])


def told(rows: list[tuple[int, float, str | None, float]]) -> tuple[list[str | None], list[bool]]:
    table, p = stays(rows)
    found = find_incidents(table, SCHEMA, p, -np.log10(p))
    return found.incident_id.tolist(), found.echo.tolist()


def test_unusual_events_in_a_row_are_one_incident_led_by_the_most_unusual() -> None:
    ids, echo = told([(1, 8, "a", 0.5), (1, 9, "b", 0.04), (1, 11, "c", 0.001), (1, 13, "d", 0.03), (1, 15, "e", 0.6)])
    assert ids == [None, "101", "101", "101", None]
    assert echo == [False, True, False, True, False]


def test_a_usual_event_between_parts_incidents_and_so_does_another_agent() -> None:
    ids, echo = told([(1, 8, "a", 0.01), (1, 9, "b", 0.5), (1, 10, "c", 0.01), (2, 11, "d", 0.01)])
    assert ids == ["100", None, "102", "103"]
    assert not any(echo)


def test_the_same_place_at_the_same_hour_within_a_week_is_the_same_incident() -> None:
    night = [(1, 23.0, "bar", 0.01), (1, 30, "home", 0.9)]
    again = [(1, 3 * 24 + 0.5, "bar", 0.02)]  # half past midnight, three nights later
    late = [(1, 3 * 24 + 12, "bar", 0.02)]
    elsewhere = [(1, 3 * 24 + 0.5, "gym", 0.02)]
    long_after = [(1, 8 * 24 + 23.5, "bar", 0.02)]
    unnamed = [(1, 23.0, None, 0.01), (1, 30, "home", 0.9), (1, 47.0, None, 0.02)]
    assert told(night + again)[0] == ["100", None, "100"]
    assert told(night + again)[1] == [False, False, True]
    for other in (late, elsewhere, long_after):
        assert told(night + other)[0] == ["100", None, "102"], other
    assert told(unnamed)[0] == ["100", None, "102"]


def test_unusual_events_more_than_a_day_apart_are_two_incidents() -> None:
    assert told([(1, 8, "a", 0.01), (1, 32, "b", 0.01)])[0] == ["100", "100"]
    assert told([(1, 8, "a", 0.01), (1, 32.1, "b", 0.01)])[0] == ["100", "101"]


def test_the_limit_of_what_is_unusual_belongs_to_it() -> None:
    assert told([(1, 1, "a", UNUSUAL), (2, 1, "a", UNUSUAL * 1.001)])[0] == ["100", None]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 600),
            st.sampled_from(["a", "b", None]),
            st.sampled_from([0.5, 0.2, 0.05, 0.01, 0.001]),
        ),
        min_size=1,
        max_size=40,
        unique_by=lambda r: (r[0], r[1]),
    ),
    st.randoms(use_true_random=False),
)
def test_bulk_parts_and_live_say_the_same_whatever_the_order(rows, random) -> None:
    """An event alone after another (state written and read in between) is what the whole table says."""
    shuffled = list(rows)
    random.shuffle(shuffled)
    table, p = stays(shuffled)
    names = {str(i): r[:2] for i, r in zip(table["stay_id"].to_pylist(), shuffled, strict=True)}
    found = find_incidents(table, SCHEMA, p, -np.log10(p))
    bulk = {r[:2]: (names.get(i), e) for r, i, e in zip(shuffled, found.incident_id, found.echo, strict=True)}
    live: dict = {}
    for agent in {r[0] for r in rows}:
        log = IncidentLog()
        for one in sorted(r for r in rows if r[0] == agent):
            log = IncidentLog.from_json(json.loads(json.dumps(log.to_json())))
            joined = log.add(str(one[1]), str(one[1]), one[1] * HOUR, one[2], one[3], -np.log10(one[3]))
            live[one[:2]] = (None, False) if joined is None else ((agent, int(joined.incident_id)), not joined.leads)
            if joined is not None and joined.led_before is not None:
                before = (agent, int(joined.led_before))
                live[before] = (live[before][0], True)
    assert live == bulk
    for incident in {i for i in found.incident_id if i is not None}:
        mine = found.incident_id == incident
        assert (mine & ~found.echo).sum() == 1
        assert p[mine].min() == pytest.approx(p[mine & ~found.echo][0])


def test_the_table_of_incidents_names_its_stays_and_its_leader() -> None:
    table, p = stays([(1, 8, "a", 0.04), (1, 9, "b", 0.001), (2, 9, "c", 0.01), (2, 12, "c", 0.9)])
    found = find_incidents(table, SCHEMA, p, -np.log10(p))
    table = table.append_column("score", pa.array(-np.log10(p))).append_column("p_value", pa.array(p))
    table = table.append_column("incident_id", pa.array(found.incident_id.tolist(), pa.string()))
    table = table.append_column("echo", pa.array(found.echo)).append_column("alert", pa.array(p < 0.005))
    table = table.append_column("kind", pa.array(["novel"] * 4)).append_column("reason", pa.array(list("wxyz")))
    first, second = incident_table(table, SCHEMA, pa.table({})).to_pylist()
    assert (first["stay_ids"], first["leading_stay_id"], first["reason"]) == ([100, 101], 101, "x")
    assert (first["started_at"].hour, first["finished_at"].hour) == (8, 10)
    assert (first["alert"], first["n_events"], second["alert"], second["n_events"]) == (True, 2, False, 1)
    assert incident_table(table.slice(3, 1), SCHEMA, pa.table({})).num_rows == 0


def test_events_without_an_id_are_named_by_entity_and_time() -> None:
    table, p = stays([(1, 8, "a", 0.01), (2, 8, "a", 0.01)])
    found = find_incidents(table.drop_columns(["stay_id"]), SCHEMA, p, -np.log10(p))
    assert found.incident_id.tolist() == [f"1@{8 * HOUR}", f"2@{8 * HOUR}"]


@pytest.mark.parametrize(
    ("places", "new", "lead_says", "led_by"),
    [
        (["bar", "home"], [False, False], "At home at 04:48 for 1 h.", 0),  # came home from there
        (["bar", "home"], [True, False], "At an office at 04:48.", 0),  # came from somewhere new
        (["bar", "home"], [False, False], "At an office at 04:48.", 1),
        (["bar", "home"], [True, True], "At an office at 04:48.", 1),  # new itself: that is the story
        (["home", "home"], [False, False], "At home at 04:48.", 1),  # was there already
    ],
)
def test_an_incident_is_led_by_the_stay_that_explains_it_and_ranked_by_the_most_unusual(places, new, lead_says, led_by):
    start = pa.array([86_400_000_000, 93_600_000_000]).cast(TIMESTAMP)
    event_scores = pa.table(
        {
            "stay_id": [10, 11], "agent_id": ["a", "a"], "started_at": start, "finished_at": start, "poi_id": places,
            "score": [3.0, 4.0], "p_value": [1e-3, 1e-4], "alert": [False, True], "incident_id": ["10", "10"],
            "echo": [True, False], "kind": ["novel", "predictable"], "reason": ["At a bar.", lead_says],
        }
    )  # fmt: skip
    measurements = pa.table({"new_place": new, "at_home": [False, lead_says.startswith("At home")]})
    (row,) = incident_table(event_scores, mobility_schema(), measurements).to_pylist()
    assert row["leading_stay_id"] == [10, 11][led_by]
    assert (row["reason"], row["kind"]) == [("At a bar.", "novel"), (lead_says, "predictable")][led_by]
    assert (row["score"], row["p_value"], row["alert"]) == (4.0, 1e-4, True), (
        "its rank is that of the most unusual stay"
    )
