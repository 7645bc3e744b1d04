"""Meetings against a loop over all pairs, whole and in parts; at a place that many visit nobody meets."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ustad.cli.group_people import note_meetings
from ustad.schema import mobility_schema
from ustad.triage.meetings import MOST_PEOPLE, P_VALUE, find_meetings

SCHEMA = mobility_schema()
Visit = tuple[str, int, float, float, bool, float]
HOUR, NOON = 3_600_000_000, 19_700 * 86_400_000_000 + 12 * 3_600_000_000


def visits(rows: list[Visit]) -> pa.Table:
    """Agent, place, hours from noon to hours from noon, whether it is new, p-value."""
    agent, place, first, last, new, p_value = zip(*rows, strict=True)
    moments = {n: [NOON + int(h * HOUR) for h in hours] for n, hours in (("started_at", first), ("finished_at", last))}
    return pa.table(
        {
            "agent_id": list(agent),
            "stay_id": [f"s{n}" for n in range(len(rows))],
            "poi_id": list(place),
            "poi_category": ["bar"] * len(rows),
            **{n: pa.array(values, pa.timestamp("us", tz="UTC")) for n, values in moments.items()},
            "timezone": ["UTC"] * len(rows),
            "new_place": list(new),
            "p_value": list(p_value),
        }
    )


def test_two_who_were_never_there_and_meet_where_nobody_goes_are_told_in_words() -> None:
    table = visits([("b", 1, 0, 1, True, 0.1), ("a", 1, 0.5, 3, True, 0.2), ("c", 1, 40, 41, True, 0.1)])
    (meeting,) = find_meetings([table], SCHEMA).to_pylist()
    assert (meeting["agent_ids"], meeting["event_ids"]) == (["a", "b"], ["s0", "s1"])
    assert [meeting[n].hour for n in ("started_at", "finished_at")] == [12, 13]
    words = (
        "At the same place, a bar, at 12:30 on 9 December: a and b. New to each of them; hardly anybody else in the "
    )
    words += "data goes there."
    assert meeting["reason"] == words


@pytest.mark.parametrize(
    "second",
    [
        ("a", 1, 1.0, 2, True, 0.1),  # comes when the first has gone
        ("a", 2, 0.5, 2, True, 0.1),  # somewhere else
        ("a", 1, 0.5, 2, False, 0.1),  # knows the place
        ("b", 1, 0.5, 2, True, 0.1),  # the same person
        ("a", 1, 0.5, 2, True, 2 * P_VALUE),  # nothing unusual
    ],
)
def test_no_meeting_without_two_strangers_at_one_place_and_time(second: Visit) -> None:
    assert not find_meetings([visits([("b", 1, 0, 1, True, 0.1), second])], SCHEMA).num_rows


def test_a_place_that_many_visit_has_no_meetings() -> None:
    pair: list[Visit] = [("b", 1, 0, 1, True, 0.1), ("a", 1, 0.5, 3, True, 0.2)]
    others: list[Visit] = [(f"c{n}", 1, 50 + 2 * n, 51 + 2 * n, False, 1.0) for n in range(MOST_PEOPLE - 1)]
    assert find_meetings([visits(pair + others[:-1])], SCHEMA).num_rows == 1
    assert find_meetings([visits(pair + others)], SCHEMA).num_rows == 0


def test_meetings_are_those_of_a_loop_over_pairs_whole_and_in_parts(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows: list[Visit] = []
    for agent in range(60):
        for _ in range(4):
            start = float(rng.uniform(0, 48))
            rows.append((f"p{agent}", int(rng.integers(0, 110)), start, start + 2, bool(rng.random() < 0.8), 0.1))
    table = visits(rows)
    people: dict[int, set[str]] = {}
    for row in rows:
        people.setdefault(row[1], set()).add(row[0])
    pairs = set()
    for i, j in combinations(range(len(rows)), 2):
        (a, place, first, last, new, _), (b, other, first_b, last_b, new_b, _) = rows[i], rows[j]
        alike = place == other and a != b and new and new_b and len(people[place]) <= MOST_PEOPLE
        if alike and first < last_b and first_b < last:
            pairs.add((f"s{i}", f"s{j}"))
    assert len(pairs) > 5
    whole = find_meetings([table], SCHEMA)
    told = [set(one) for one in whole["event_ids"].to_pylist()]
    assert all(any(set(pair) <= one for one in told) for pair in pairs)
    assert all(any(set(pair) <= one for pair in pairs) for one in told)
    half = np.array([int(row[0][1:]) < 30 for row in rows])
    parts = [table.filter(pa.array(mask)) for mask in (half, ~half)]
    assert find_meetings(parts, SCHEMA).drop_columns(["event_ids"]).equals(whole.drop_columns(["event_ids"]))
    (tmp_path / "events").mkdir()
    for n, part in enumerate(parts):
        pq.write_table(part, tmp_path / "events" / f"{n}.parquet")
    assert note_meetings(tmp_path, SCHEMA) == whole.num_rows
    assert pq.read_table(tmp_path / "meetings.parquet")["reason"].to_pylist() == whole["reason"].to_pylist()
