"""StayTracker: the same stays as in one go, however the stream is cut, saved, restored, late or out of order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from town import fixes, minutes, walks

from ustad.config import ExtractionConfig
from ustad.mobility.core import StayTables
from ustad.mobility.extraction import extract_tables
from ustad.mobility.tracker import StayTracker
from ustad.tables import TIMESTAMP, DataError

TABLES = ("stays", "trips", "gaps")


def in_time_order(table: pa.Table) -> pa.Table:
    """As a stream brings them: everybody's fixes by time."""
    return table.take(pa.array(np.argsort(table["time"].cast(pa.int64()).to_numpy(), kind="stable")))


def stream(tracker: StayTracker, table: pa.Table, cuts: list[int], restart: bool = False) -> dict[str, pa.Table]:
    """Everything the tracker gives for the table cut at these rows, sorted as a batch would be."""
    edges = [0, *sorted(cuts), table.num_rows]
    found: list[StayTables] = []
    for begin, end in pairwise(edges):
        found.append(tracker.update(table.slice(begin, end - begin)))
        if restart:
            tracker = StayTracker.from_bytes(tracker.to_bytes())
    found.append(tracker.finish())
    together = {name: pa.concat_tables([getattr(f, name) for f in found]) for name in TABLES}
    return {name: t.sort_by([("agent_id", "ascending"), ("started_at", "ascending")]) for name, t in together.items()}


def batch(table: pa.Table, config: ExtractionConfig) -> dict[str, pa.Table]:
    data = extract_tables(table, config, timezone="UTC")
    return {"stays": data.events, "trips": data.trips, "gaps": data.gaps}


def assert_same(ours: dict[str, pa.Table], theirs: dict[str, pa.Table]) -> None:
    for name in TABLES:
        columns = ours[name].column_names
        expected = theirs[name].select(columns).combine_chunks()
        assert ours[name].combine_chunks().equals(expected), name


CONFIGS = st.builds(
    ExtractionConfig,
    minutes=st.sampled_from([5.0, 12.0]),
    gap_minutes=st.sampled_from([0.0, 45.0]),
    end_rule=st.sampled_from(["first-outside", "last-inside"]),
    include_last=st.booleans(),
    max_speed_kmh=st.sampled_from([0.0, 30.0]),
    drop_outliers=st.booleans(),
    join=st.booleans(),
    bridge_hours=st.sampled_from([2.0, 36.0]),
    reach_m=st.sampled_from([0.0, 2000.0]),
)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), config=CONFIGS, seed=st.integers(0, 500), restart=st.booleans())
def test_any_way_of_cutting_the_stream_gives_the_batch_result(data, config, seed, restart):
    table = in_time_order(walks(agents=2, hours=16, step_s=180, noise_m=20, seed=seed, gaps=True))
    claims = np.random.default_rng(seed).choice([5.0, 30.0, 200.0, np.nan], table.num_rows)
    table = table.append_column("accuracy_m", pa.array(claims))
    cuts = data.draw(st.lists(st.integers(0, table.num_rows), max_size=25))
    assert_same(stream(StayTracker(config), table, cuts, restart), batch(table, config))


def test_one_fix_at_a_time_gives_the_batch_result():
    table = in_time_order(walks(agents=2, hours=10, step_s=240, gaps=True))
    config = ExtractionConfig(max_speed_kmh=60)
    assert_same(stream(StayTracker(config), table, list(range(table.num_rows))), batch(table, config))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), seed=st.integers(0, 500))
def test_fixes_out_of_order_within_the_lateness_are_put_in_order(data, seed):
    table = in_time_order(walks(agents=2, hours=10, step_s=180, seed=seed, gaps=True))
    time = table["time"].cast(pa.int64()).to_numpy()
    shaken = table.take(pa.array(np.argsort(time + np.random.default_rng(seed).uniform(0, 590e6, len(time)))))
    cuts = data.draw(st.lists(st.integers(0, table.num_rows), max_size=10))
    tracker = StayTracker(lateness_s=600)
    assert_same(stream(tracker, shaken, cuts), batch(table, ExtractionConfig()))
    assert tracker.counts["late"] == 0


@settings(max_examples=30, deadline=None)
@given(data=st.data(), order=st.randoms(use_true_random=False), lateness=st.sampled_from([0.0, 400.0, 3600.0]))
def test_what_is_late_does_not_depend_on_the_cuts(data, order, lateness):
    table = walks(agents=2, hours=6, step_s=240)
    rows = list(range(table.num_rows))
    order.shuffle(rows)
    mixed = table.take(pa.array(rows))
    cuts = data.draw(st.lists(st.integers(0, table.num_rows), max_size=10))
    whole, cut = StayTracker(lateness_s=lateness), StayTracker(lateness_s=lateness)
    assert_same(stream(whole, mixed, []), stream(cut, mixed, cuts))
    assert whole.counts == cut.counts


def test_a_late_fix_is_dropped_and_counted():
    tracker = StayTracker()
    tracker.update(fixes([1, 1], minutes([0, 10]), [50.0, 50.0], [8.0, 8.0]))
    tracker.update(fixes([1, 1], minutes([5, 10]), [51.0, 51.0], [8.0, 8.0]))
    assert tracker.counts["late"] == 1
    assert tracker.counts["duplicates"] == 1
    assert tracker.finish().stays["n_fixes"].to_pylist() == [2]


def test_fixes_that_cannot_be_meant_are_dropped_and_counted():
    """One of 1970, one of 2611 (which would make all later ones late) and one at (0, 0) among those of a walk."""
    table = fixes([1] * 40, minutes(range(40)), [52.5] * 20 + [52.6] * 20, [13.4] * 40)
    wrong = fixes([1] * 3, minutes(range(3)), [52.5, 52.5, 0.0], [13.4, 13.4, 0.0])
    times = [47, 20_240_505_220_117_000_000 // 1000, int(wrong["time"].cast(pa.int64())[2].as_py())]
    wrong = wrong.set_column(1, "time", pa.array(times).cast(TIMESTAMP))
    clean, dirty = StayTracker(), StayTracker()
    wanted, got = clean.update(table), dirty.update(pa.concat_tables([wrong, table]))
    assert got.stays.equals(wanted.stays)
    assert dirty.counts == {**clean.counts, "implausible": 3}


def test_the_current_stay_can_be_seen_before_it_ends():
    tracker = StayTracker()
    found = tracker.update(fixes([7, 7], minutes([0, 20]), [50.0, 50.0], [8.0, 8.0]))
    now = tracker.current()
    assert found.stays.num_rows == 0
    assert now["agent_id"].to_pylist() == [7]
    assert now.equals(tracker.finish().stays)


def test_memory_does_not_grow_with_the_length_of_a_stay():
    tracker = StayTracker()
    for day in range(5):
        time = minutes(day * 1440 + np.arange(1440))
        tracker.update(fixes(np.ones(1440, int), time, np.full(1440, 50.0), np.full(1440, 8.0)))
    assert sum(len(f) for f in tracker._carry.values()) <= 2


def test_a_saved_tracker_goes_on_where_it_was(tmp_path):
    table = in_time_order(walks(agents=2, hours=10))
    tracker = StayTracker(ExtractionConfig(minutes=8), lateness_s=120)
    first = tracker.update(table.slice(0, 500))
    tracker.save(tmp_path / "tracker.npz")
    loaded = StayTracker.load(tmp_path / "tracker.npz")
    assert loaded.config == tracker.config
    assert loaded.update(table.slice(500)).stays.equals(tracker.update(table.slice(500)).stays)
    assert first.stays.num_rows + loaded.finish().stays.num_rows > 0


def test_a_broken_state_is_refused():
    with pytest.raises(DataError, match="saved state"):
        StayTracker.from_bytes(b"nothing of the kind")


def test_agents_may_be_text_but_not_text_and_numbers():
    tracker = StayTracker()
    tracker.update(fixes(["a", "b"], minutes([0, 1]), [50.0, 50.0], [8.0, 8.0]))
    with pytest.raises(DataError, match="mixes text and numbers"):
        tracker.update(fixes([1], minutes([2]), [50.0], [8.0]))


def test_an_empty_update_finishes_nothing():
    tracker = StayTracker()
    table = walks(agents=1, hours=1)
    assert tracker.update(table.slice(0, 0)).stays.num_rows == 0
    assert tracker.update(table).stays.num_rows + tracker.finish().stays.num_rows > 0


def test_forgetting_an_agent_leaves_the_others_as_they_were():
    table = in_time_order(walks(agents=3, hours=12, step_s=120, gaps=True))
    tracker = StayTracker()
    found = [tracker.update(table.slice(0, 400))]
    tracker.forget([1, "nobody"])
    others = table.filter(pa.array(table["agent_id"].to_numpy() != 1))
    seen = int((table.slice(0, 400)["agent_id"].to_numpy() != 1).sum())
    found += [tracker.update(others.slice(seen)), tracker.finish()]
    stays = pa.concat_tables([f.stays for f in found]).sort_by([("agent_id", "ascending"), ("started_at", "ascending")])
    stays = stays.filter(pa.array(stays["agent_id"].to_numpy() != 1)).combine_chunks()
    expected = batch(others, ExtractionConfig())["stays"].select(stays.column_names).combine_chunks()
    assert stays.equals(expected)
