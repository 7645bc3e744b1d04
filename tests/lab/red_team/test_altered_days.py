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
from routine_stays import make_routine

from altered import PAGE, RESULTS, write_page
from altered_days import ALTERATIONS, alter

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
        line["figures"]["before: with the rule"]["events"][1] += 0.5
    assert "not built in" in write_page(results)  # people gain nothing
    for line in results["lines"]:
        line["figures"]["before: with the rule"]["agents"][1] += 0.5
    assert "not built in" not in write_page(results)
