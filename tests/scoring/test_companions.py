"""Company against plain loops: whom somebody never met, and who is missing where they usually are."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ustad.cli.after_scores import AfterScores, DaysWish
from ustad.cli.group_people import note_company
from ustad.dataset import Dataset
from ustad.events.together import FEW, MINUTES
from ustad.schema import mobility_schema
from ustad.triage.companions import FIRST, SHARE, VISITS, WITHOUT, find_company

SCHEMA = mobility_schema()
Visit = tuple[str, int, float, float]  # agent, place, from hour to hour
HOUR, MIDNIGHT = 3_600_000_000, 19_700 * 86_400_000_000
SINCE = MIDNIGHT + 10 * 24 * HOUR


def events(rows: list[Visit]) -> pa.Table:
    agent, place, first, last = zip(*rows, strict=True)
    moments = {"started_at": first, "finished_at": last}
    return pa.table(
        {
            "agent_id": list(agent),
            "stay_id": [f"s{n}" for n in range(len(rows))],
            "poi_id": list(place),
            "poi_category": ["bar"] * len(rows),
            "timezone": ["UTC"] * len(rows),
            **{
                name: pa.array([MIDNIGHT + int(h * HOUR) for h in hours], pa.timestamp("us", tz="UTC"))
                for name, hours in moments.items()
            },
        }
    )


def incidents(table: pa.Table, rows: list[int]) -> pa.Table:
    chosen = table.take(rows)
    return chosen.append_column("incident_id", pa.array([f"i{n}" for n in rows])).append_column(
        "p_value", pa.array([0.01 + 0.001 * n for n in rows])
    )


def daily(agent: str, place: int, days: int = 10) -> list[Visit]:
    return [(agent, place, 24 * day + 8, 24 * day + 10) for day in range(days)]


def test_who_is_met_for_the_first_time_is_told_with_the_minutes() -> None:
    rows = [*daily("a", 1), *daily("b", 2), ("a", 3, 250, 252), ("b", 3, 251, 254)]
    table = events(rows)
    (fact,) = find_company(table, SINCE, incidents(table, [20]), SCHEMA).to_pylist()
    assert (fact["event_id"], fact["incident_id"], fact["agent_id"], fact["other_id"]) == ("s20", "i20", "a", "b")
    assert (fact["fact"], fact["minutes"]) == (FIRST, 60)
    assert fact["reason"] == (
        "With b for 1 h at a bar that few people go to. In the weeks before they never were together at such a place."
    )


def test_a_usual_companion_is_missing_only_where_they_were_seen_elsewhere() -> None:
    alone: list[Visit] = [*daily("a", 1), *daily("b", 1), ("a", 1, 248, 250)]
    table = events(alone)
    assert not find_company(table, SINCE, incidents(table, [20]), SCHEMA).num_rows  # nobody knows where b was
    table = events([*alone, ("b", 2, 248, 250)])
    (fact,) = find_company(table, SINCE, incidents(table, [20]), SCHEMA).to_pylist()
    assert (fact["fact"], fact["other_id"], fact["times"], fact["visits"]) == (WITHOUT, "b", 10, 10)
    assert fact["reason"] == "Without b, who was there too on 10 of 10 visits before (a bar)."


@pytest.mark.parametrize("seed", range(3))
def test_facts_are_those_of_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows: list[Visit] = []
    for n in range(26):  # people of few places of their own, and one place of everybody
        for day in range(14):
            for hour in (8, 14, 20):
                own = int(rng.choice([n // 4 + 1, 20 + n // 8, 50])) if rng.random() < 0.8 else int(rng.integers(1, 30))
                first = 24 * day + hour + float(rng.uniform(0, 2))
                if rng.random() < 0.9:
                    rows.append((f"p{n}", own, first, first + float(rng.uniform(0.05, 3.5))))
    table, hours = events(rows), (SINCE - MIDNIGHT) / HOUR
    chosen = [i for i, row in enumerate(rows) if row[2] >= hours and rng.random() < 0.3]
    people: dict[int, set[str]] = {}
    for who, place, _, _ in rows:
        people.setdefault(place, set()).add(who)
    few = {place for place, names in people.items() if len(names) <= FEW}
    assert len(few) < len(people)

    def together(i: int, k: int) -> float:
        (a, place, first, last), (b, other, first_b, last_b) = rows[i], rows[k]
        seconds = [int(h * HOUR) // 1_000_000 for h in (min(last, last_b), max(first, first_b))]
        minutes = (seconds[0] - seconds[1]) / 60
        return minutes if a != b and place == other and place in few and minutes >= MINUTES else 0.0

    old = [i for i, row in enumerate(rows) if row[2] < hours]
    met = {frozenset((rows[i][0], rows[k][0])) for i, k in combinations(old, 2) if together(i, k)}
    wanted = set()
    for i in chosen:
        who, place, first, last = rows[i]
        for k in range(len(rows)):
            if together(i, k) and frozenset((who, rows[k][0])) not in met:
                wanted.add((f"s{i}", FIRST, rows[k][0], 0, 0))
        before = [j for j in old if rows[j][:2] == (who, place)]
        for whom in people[place] - {who} if place in few and len(before) >= VISITS else ():
            theirs = [k for k, row in enumerate(rows) if row[0] == whom]
            times = sum(any(together(j, k) for k in theirs if k in set(old)) for j in before)
            seen = any(rows[k][2] <= (first + last) / 2 < rows[k][3] for k in theirs)
            if times >= SHARE * len(before) and seen and not any(together(i, k) for k in theirs):
                wanted.add((f"s{i}", WITHOUT, whom, times, len(before)))
    facts = find_company(table, SINCE, incidents(table, chosen), SCHEMA).to_pylist()
    assert {(f["event_id"], f["fact"], f["other_id"], f["times"], f["visits"]) for f in facts} == wanted
    assert len({one for one in wanted if one[1] == FIRST}) > 3


def test_company_of_the_incidents_is_written_beside_their_scores(tmp_path: Path) -> None:
    table = events([("a", 1, 250, 253), ("b", 1, 251, 252), ("c", 1, 251.5, 254), ("d", 2, 250, 251)])
    scored = incidents(table, list(range(4)))
    pq.write_table(scored, tmp_path / "events.parquet")
    old = events([("a", 9, 0, 1), ("b", 8, 0, 1), ("c", 7, 0, 1)]).set_column(1, "stay_id", pa.array(["x", "y", "z"]))
    assert note_company(tmp_path, Dataset(pa.concat_tables([old, table]))) == {"company": 6}  # each with two others
    assert pq.read_table(tmp_path / "company.parquet").num_rows == 6


def test_tables_of_an_earlier_run_go_when_days_are_not_grouped(tmp_path: Path) -> None:
    names = ("company.parquet", "groups.parquet")
    for name in (*names, "events.parquet"):
        pq.write_table(pa.table({"x": [1]}), tmp_path / name)
    AfterScores({}, DaysWish(None, None, group=False), []).apply({}, tmp_path, SCHEMA, model=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["events.parquet"]
