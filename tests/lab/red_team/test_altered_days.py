"""Altered days remain possible days, and what is marked as changed is what differs."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "events"))
sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from routine_stays import between, make_routine

from altered import LIVE, PAGE, RESULTS, SCHEMA, with_rule, write_page
from altered_days import ALTERATIONS, alter
from altered_facts import plain_facts
from ustad.events.visits import Frame, read_visits
from ustad.habits.history import Habits

COLUMNS = ("agent_id", "started_at", "finished_at", "lat", "lon")


@pytest.fixture(scope="module")
def week():
    return make_routine(seed=3, agents=20, days=7)


def rows_of(table):
    columns = [table[c].cast(pa.int64()) if pa.types.is_timestamp(table[c].type) else table[c] for c in COLUMNS]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize("kind", ALTERATIONS)
def test_an_altered_week_is_in_order_without_overlaps_and_its_other_stays_are_real(week, kind):
    table, is_changed = alter(week, (kind,), seed=7)
    rows, real = rows_of(table), set(rows_of(week))
    assert is_changed.any()
    assert {row for row, changed in zip(rows, is_changed, strict=True) if not changed} <= real
    for (who, start, end, *_), (other, next_start, *_) in pairwise(rows):
        assert start < end
        assert who != other or end <= next_start


@pytest.mark.parametrize(("kind", "more"), [("insert", 1), ("again", 1), ("split", 1), ("drop", -1), ("swap", 0)])
def test_visits_are_added_taken_away_or_only_changed(week, kind, more):
    table, _ = alter(week, (kind,), seed=7)
    assert np.sign(table.num_rows - week.num_rows) == more


def test_leaving_early_begins_the_next_stay_as_much_earlier(week):
    table, _ = alter(week, ("shorten",), seed=7)
    assert table.num_rows == week.num_rows
    before = np.array([row[1:3] for row in sorted(rows_of(week))])
    after = np.array([row[1:3] for row in sorted(rows_of(table))])
    start, end = (after - before).T
    ends, starts = np.flatnonzero(end), np.flatnonzero(start)
    assert np.array_equal(ends + 1, starts)
    assert np.array_equal(end[ends], start[starts])
    assert (end[ends] < 0).all()


def test_the_same_seed_alters_alike(week):
    tables = [alter(week, tuple(ALTERATIONS), seed=seed)[0] for seed in (1, 1, 2)]
    assert tables[0].equals(tables[1])
    assert not tables[0].equals(tables[2])


def test_the_page_is_written_from_the_result_file_and_its_verdict_from_the_figures():
    results = json.loads(RESULTS.read_text())
    assert PAGE.read_text() == write_page(results), "write it anew: python benchmarks/altered.py --page"
    for line in results["lines"]:
        for name in LIVE:
            line["figures"][with_rule(name)]["events"][1] += 0.5
    assert write_page(results).count("not built in") == len(LIVE)  # people gain nothing
    for i, name in enumerate(LIVE):
        for line in results["lines"]:
            line["figures"][with_rule(name)]["agents"][1] += 0.5
        assert write_page(results).count("not built in") == len(LIVE) - i - 1


def test_minutes_to_the_nearest_own_start_and_end_are_those_of_a_loop(week):
    frame = Frame.fit(week, SCHEMA)
    first, later = between(week, 0, 5), between(week, 5, 7)
    facts = plain_facts(Habits.fit(read_visits(first, SCHEMA, frame)), read_visits(later, SCHEMA, frame))
    rows = later.sort_by([("agent_id", "ascending"), ("started_at", "ascending")]).to_pylist()
    known = first.to_pylist()
    for i, row in enumerate(rows):
        own = [r for r in known if r["poi_id"] == row["poi_id"]]
        assert facts["visits_a_day"][i] == len(own) / 5
        for name, column in (("from_own_start", "started_at"), ("from_own_end", "finished_at")):
            minute, *others = ((r[column].hour * 60 + r[column].minute) for r in (row, *own))
            # midnight is where the table ends, and nobody leaves
            others = [other for other in others if name == "from_own_start" or other]
            away = [min(abs(minute - other), 1440 - abs(minute - other)) for other in others]
            is_known = bool(away) and (name == "from_own_start" or minute != 0)
            assert facts[name][i] == pytest.approx(min(away) if is_known else np.nan, nan_ok=True)
