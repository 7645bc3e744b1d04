"""Groups against loops over all pairs, whole and in parts; p-values of pairs against counting; stored with a model."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from ustad.cli.group_people import note_groups, read_together
from ustad.events.together import FEW, MINUTES, P_VALUE, PairTails
from ustad.judges import learn_from
from ustad.schema import mobility_schema
from ustad.scoring.adding_judge import TENSORS, TOGETHER, AddingJudge, read_judge
from ustad.triage.groups import find_groups

SCHEMA = mobility_schema()
Visit = tuple[str, int, float, float, bool, float]
HOUR, NOON = 3_600_000_000, 19_700 * 86_400_000_000 + 12 * 3_600_000_000
#: A week of 8,000 pairs: nearly all at home, some guests, two pairs somewhere new to both where five people go.
TAILS = PairTails.fit(np.r_[np.zeros(7_500, int), np.ones(498, int), [2, 2]], np.r_[2 + np.arange(7_998) % 3, [5, 5]])


def visits(rows: list[Visit]) -> pa.Table:
    """Agent, place, hours from noon to hours from noon, whether it is new, score."""
    agent, place, first, last, new, score = zip(*rows, strict=True)
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
            "score": list(score),
            "incident_id": pa.array([f"i{n}" if score[n] > 1 else None for n in range(len(rows))], pa.string()),
        }
    )


def groups(rows: list[Visit]) -> list[dict]:
    assert TAILS is not None
    return find_groups([visits(rows)], SCHEMA, TAILS).to_pylist()


def test_p_values_of_pairs_are_shares_of_the_week() -> None:
    rng = np.random.default_rng(0)
    new, people = rng.choice(3, 500, p=[0.9, 0.08, 0.02]), rng.integers(2, FEW + 1, 500)
    tails = PairTails.fit(new, people)
    assert tails is not None

    def as_rare(n: int, k: int) -> int:
        return sum(bool(a >= n and b <= k) for a, b in zip(new, people, strict=True))

    number = {(n, k): as_rare(n, k) for n in range(3) for k in range(2, FEW + 1)}
    for cell, count in number.items():
        rarer = sum(number[a, b] <= count for a, b in zip(new.tolist(), people.tolist(), strict=True))
        assert tails.p_value[cell] == pytest.approx((1 + rarer) / 501)
    assert PairTails.fit(new[:0], people[:0]) is None


def test_two_who_were_never_there_and_meet_where_few_go_are_told_in_words() -> None:
    rows: list[Visit] = [("b", 1, 0, 1, True, 0.1), ("a", 1, 0.5, 3, True, 2.0), ("c", 1, 40, 41, True, 0.1)]
    (group,) = groups(rows)
    assert (group["agent_ids"], group["event_ids"], group["incident_ids"]) == (["a", "b"], ["s0", "s1"], ["i1"])
    assert [group[n].hour for n in ("started_at", "finished_at")] == [12, 13]
    assert (group["new_to"], group["people"]) == (2, 3)
    assert group["p_value"] == pytest.approx(1 / 8001)  # nobody of the week was new where so few go
    assert group["score"] == pytest.approx(np.log10(8001))
    assert group["reason"] == (
        "At the same place, a bar, at 12:30 on 9 December: a and b. New to each of them; 3 people in the data go there."
    )


@pytest.mark.parametrize(
    "second",
    [
        ("a", 1, 1 - (MINUTES - 1) / 60, 2, True, 0.1),  # comes when the first is about to go
        ("a", 2, 0.5, 2, True, 0.1),  # somewhere else
        ("a", 1, 0.5, 2, False, 0.1),  # a guest
        ("b", 1, 0.5, 2, True, 0.1),  # the same person
    ],
)
def test_no_group_without_two_people_at_one_place_and_time_that_are_new_there(second: Visit) -> None:
    assert groups([("b", 1, 0, 1, True, 0.1), second]) == []


def test_three_one_with_the_next_are_one_group_and_the_rarest_come_first() -> None:
    rows: list[Visit] = [
        ("a", 1, 0, 1, True, 0.1), ("b", 1, 0.8, 2, True, 0.1), ("c", 1, 1.8, 3, True, 0.1),
        ("d", 2, 0, 1, True, 0.4), ("e", 2, 0, 1, True, 0.5), ("f", 3, 0, 1, True, 0.1), ("g", 3, 0, 1, True, 3.0),
        *((f"x{n}", 1, 30 + 2 * n, 31 + 2 * n, False, 0.1) for n in range(2)),
    ]  # fmt: skip
    told = groups(rows)
    assert [group["agent_ids"] for group in told] == [["d", "e"], ["f", "g"], ["a", "b", "c"]]
    assert told[2]["p_value"] == pytest.approx(3 / 8001)  # five people go there, as in the two pairs of the week
    assert [group["group_id"] for group in told] == ["group-1", "group-2", "group-3"]


def test_a_place_that_many_visit_has_no_groups() -> None:
    pair: list[Visit] = [("b", 1, 0, 1, True, 0.1), ("a", 1, 0.5, 3, True, 0.2)]
    others: list[Visit] = [(f"c{n}", 1, 50 + 2 * n, 51 + 2 * n, False, 1.0) for n in range(FEW - 1)]
    assert len(groups(pair + others[:3])) == 1
    assert groups(pair + others) == []


def test_groups_are_those_of_a_loop_over_pairs_whole_and_in_parts(tmp_path: Path) -> None:
    assert TAILS is not None
    rng = np.random.default_rng(1)
    rows: list[Visit] = []
    for agent in range(60):
        for _ in range(4):
            start = float(rng.uniform(0, 48))
            rows.append((f"p{agent}", int(rng.integers(0, 90)), start, start + 2, bool(rng.random() < 0.8), 0.1))
    table = visits(rows)
    people: dict[int, set[str]] = {}
    for row in rows:
        people.setdefault(row[1], set()).add(row[0])
    pairs = set()
    for i, j in combinations(range(len(rows)), 2):
        (a, place, first, last, new, _), (b, other, first_b, last_b, new_b, _) = rows[i], rows[j]
        seconds = [int(h * HOUR) // 1_000_000 for h in (min(last, last_b), max(first, first_b))]
        together = place == other and a != b and seconds[0] - seconds[1] >= 60 * MINUTES
        if together and len(people[place]) <= FEW and TAILS.p_value[new + new_b, len(people[place])] <= P_VALUE:
            pairs.add((f"s{i}", f"s{j}"))
    assert len(pairs) > 5
    whole = find_groups([table], SCHEMA, TAILS)
    told = [set(one) for one in whole["event_ids"].to_pylist()]
    assert all(any(set(pair) <= one for one in told) for pair in pairs)
    assert all(any(set(pair) <= one for pair in pairs) for one in told)
    half = np.array([int(row[0][1:]) < 30 for row in rows])
    parts = [table.filter(pa.array(mask)) for mask in (half, ~half)]
    assert find_groups(parts, SCHEMA, TAILS).equals(whole)
    (tmp_path / "events").mkdir()
    for n, part in enumerate(parts):
        pq.write_table(part, tmp_path / "events" / f"{n}.parquet")
    save_file({TOGETHER: TAILS.p_value}, tmp_path / TENSORS)
    assert note_groups(tmp_path, SCHEMA, tmp_path) == {"groups": whole.num_rows}
    assert pq.read_table(tmp_path / "groups.parquet").equals(whole)


def test_a_model_keeps_what_pairs_of_its_week_are_like_and_older_ones_tell_no_groups(tmp_path: Path) -> None:
    days: list[Visit] = []
    for day in range(14):
        for n in range(12):  # six couples, and in the second week one of each visits another
            home, guest = (n // 2, n // 2 + 1 if day > 7 and n % 2 and day % 6 == n // 2 else None)
            days.append((f"p{n}", home, 24 * day, 24 * day + 8, False, 0.0))
            days.append((f"p{n}", 20 + n if guest is None else guest, 24 * day + 9, 24 * day + 12, False, 0.0))
            if n % 2 == 0:
                days.append((f"p{n}", home, 24 * day + 13, 24 * day + 20, False, 0.0))
    events = visits(days).drop_columns(["new_place", "score", "incident_id"])
    places = events["poi_id"].to_numpy()
    for name, step in (("lat", 0.01), ("lon", 0.02)):
        events = events.append_column(name, pa.array(40.0 + step * places))
    moment = pa.scalar(NOON + 7 * 24 * HOUR - HOUR, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    is_late = pa.compute.greater(events["started_at"], moment)
    week = events.filter(is_late)
    judge = learn_from(events.filter(pa.compute.invert(is_late)), week, SCHEMA)
    assert judge.together is not None
    is_new = [week["poi_id"][i].as_py() != int(str(week["agent_id"][i])[1:]) // 2 for i in range(week.num_rows)]
    is_new = [new and place < 20 for new, place in zip(is_new, week["poi_id"].to_pylist(), strict=True)]
    expected = PairTails.of_week(week, SCHEMA, np.array(is_new))
    assert expected is not None
    assert judge.together.p_value == pytest.approx(expected.p_value)
    assert len(np.unique(expected.p_value)) > 1
    for model, together in ((judge, True), (replace(judge, together=None), False)):
        model.save(tmp_path)
        assert (read_together(tmp_path) is not None) == together
        loaded = AddingJudge.load(judge.history, (), *read_judge(tmp_path))
        assert (loaded.together is not None) == together
    assert note_groups(tmp_path, SCHEMA, tmp_path) == {}
    assert read_together(tmp_path / "nowhere") is None
