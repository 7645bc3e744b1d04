"""Stays, trips and gaps from fixes: against a slow obvious version, against trackintel, and case by case."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from town import fixes, minutes, walks

from ustad.config import ExtractionConfig
from ustad.geo import haversine_km
from ustad.mobility.extraction import extract_tables
from ustad.tables import DataError, event_keys

HERE = (52.5, 13.4)
FAR = (52.52, 13.4)  # 2.2 km north


def run(table: pa.Table, **changes):
    return extract_tables(table, ExtractionConfig(**changes), timezone="UTC")


def seconds(column) -> list[float]:
    return [None if v is None else v for v in column.to_pylist()]


def at(places, times) -> pa.Table:
    return fixes(np.zeros(len(times), int), minutes(times), [p[0] for p in places], [p[1] for p in places])


def naive_stays(table: pa.Table, config: ExtractionConfig) -> list[tuple[int, int, int, int]]:
    """(agent, start, end, fixes), written as the definition reads, one fix after the other."""
    found = []
    agents = table["agent_id"].to_numpy()
    for agent in np.unique(agents):
        rows = table.filter(pa.array(agents == agent))
        order = np.argsort(rows["time"].cast(pa.int64()).to_numpy(), kind="stable")
        t = rows["time"].cast(pa.int64()).to_numpy()[order]
        lat, lon = rows["lat"].to_numpy()[order], rows["lon"].to_numpy()[order]
        first = np.r_[True, np.diff(t) > 0]
        t, lat, lon = t[first], lat[first], lon[first]
        start = 0
        for k in range(1, len(t) + 1):
            last = k == len(t)
            gap = not last and config.gap_minutes > 0 and t[k] - t[k - 1] > config.gap_minutes * 60e6
            outside = not last and 1000 * haversine_km(lat[start], lon[start], lat[k], lon[k]) >= config.distance_m
            if not (last or gap or outside):
                continue
            end = t[k] if outside and not gap and config.end_rule == "first-outside" else t[k - 1]
            if end - t[start] >= config.minutes * 60e6 and (not last or config.include_last):
                found.append((int(agent), int(t[start]), int(end), k - start))
            start = k
    return found


@pytest.mark.parametrize("end_rule", ["first-outside", "last-inside"])
@pytest.mark.parametrize("gap_minutes", [0.0, 30.0])
def test_stays_equal_the_slow_obvious_version(end_rule, gap_minutes):
    table = walks(agents=3, gaps=True, noise_m=25.0)
    config = ExtractionConfig(
        end_rule=end_rule, gap_minutes=gap_minutes, include_last=gap_minutes == 0, drop_outliers=False, join=False
    )
    stays = extract_tables(table, config, timezone="UTC").events
    ours = list(
        zip(
            stays["agent_id"].to_pylist(),
            stays["started_at"].cast(pa.int64()).to_pylist(),
            stays["finished_at"].cast(pa.int64()).to_pylist(),
            stays["n_fixes"].to_pylist(),
            strict=True,
        )
    )
    assert len(ours) > 20
    assert ours == naive_stays(table, config)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.randoms(use_true_random=False))
def test_unsorted_and_repeated_fixes_give_the_same_stays(seed, order):
    table = walks(agents=2, hours=12, step_s=240, seed=seed)
    rows = list(range(table.num_rows))
    mixed = rows + order.sample(rows, len(rows) // 4)
    order.shuffle(mixed)
    ours, theirs = run(table), run(table.take(pa.array(mixed)))
    assert ours.events.equals(theirs.events)
    assert ours.trips.equals(theirs.trips)
    assert sum(theirs.quality["n_duplicates"].to_pylist()) == len(mixed) - len(rows)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_stays_keep_the_rules_of_the_table(seed):
    data = run(walks(agents=2, hours=24, step_s=120, seed=seed, gaps=True))
    stays = data.events
    start, end = (stays[c].cast(pa.int64()).to_numpy() for c in ("started_at", "finished_at"))
    agent = stays["agent_id"].to_numpy()
    same = agent[1:] == agent[:-1]
    assert np.all(end - start >= 5 * 60e6)
    assert np.all(start[1:][same] >= end[:-1][same])
    assert np.array_equal(stays["stay_id"].to_numpy(), event_keys(stays["agent_id"], stays["started_at"]))
    trips = data.trips
    assert trips.num_rows == int(same.sum())
    assert np.array_equal(trips["origin_stay_id"].to_numpy(), stays["stay_id"].to_numpy()[:-1][same])
    assert np.array_equal(trips["destination_stay_id"].to_numpy(), stays["stay_id"].to_numpy()[1:][same])
    assert np.array_equal(trips["started_at"].cast(pa.int64()).to_numpy(), end[:-1][same])
    assert np.array_equal(trips["finished_at"].cast(pa.int64()).to_numpy(), start[1:][same])


def test_the_end_rule_decides_between_the_last_fix_inside_and_the_first_outside():
    table = at([HERE, HERE, HERE, FAR], [0, 5, 10, 14])
    outside, inside = run(table), run(table, end_rule="last-inside")
    assert outside.events["finished_at"].cast(pa.int64()).to_pylist()[0] == minutes([14])[0]
    assert inside.events["finished_at"].cast(pa.int64()).to_pylist()[0] == minutes([10])[0]


def test_without_joining_a_gap_ends_a_stay_and_is_a_record_of_its_own():
    data = run(at([HERE] * 6, [0, 5, 10, 130, 135, 140]), join=False)
    assert data.events.num_rows == 2
    assert seconds(data.events["end_gap_s"]) == [7200.0, None]
    assert seconds(data.events["start_gap_s"]) == [None, 7200.0]
    assert data.gaps["started_at"].cast(pa.int64()).to_pylist() == [minutes([10])[0]]
    assert data.gaps["finished_at"].cast(pa.int64()).to_pylist() == [minutes([130])[0]]
    assert data.trips["crosses_gap"].to_pylist() == [True]


def test_without_a_gap_limit_silence_is_part_of_the_stay():
    data = run(at([HERE] * 6, [0, 5, 10, 130, 135, 140]), gap_minutes=0)
    assert data.events.num_rows == 1
    assert data.gaps.num_rows == 0


def test_the_last_stay_is_kept_only_on_request_and_reported_as_unfinished():
    table = at([FAR, HERE, HERE, HERE], [0, 10, 15, 20])
    kept, left = run(table), run(table, include_last=False)
    assert kept.events.num_rows == left.events.num_rows + 1
    assert kept.quality["unfinished_last"].to_pylist() == [True]


def test_a_spike_is_dropped_and_counted():
    table = at([HERE, HERE, FAR, HERE, HERE], [0, 3, 3.1, 3.2, 10])
    assert run(table, drop_outliers=False).events.num_rows == 1  # the last one; the spike cut the first short
    spared = run(table, max_speed_kmh=200, drop_outliers=False)
    assert spared.quality["n_spikes"].to_pylist() == [1]
    assert spared.events["n_fixes"].to_pylist() == [4]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 9999))
def test_single_outliers_do_not_cut_a_stay(seed):
    rng = np.random.default_rng(seed)
    lat, lon = _offset(*HERE, rng.normal(0, 8, (120, 2)))
    off = np.arange(3, 117)[rng.random(114) < 0.1]
    off = off[np.r_[True, np.diff(off) > 2]] if len(off) else off  # single ones
    lat[off] += rng.choice([-1, 1], len(off)) * rng.uniform(0.0015, 0.02, len(off))
    table = fixes(np.zeros(120, int), minutes(np.arange(120)), lat, lon)
    data = run(table)
    assert data.events.num_rows == 1
    assert data.events["n_fixes"].to_pylist() == [120 - len(off)]
    assert data.quality["n_spikes"].to_pylist() == [len(off)]
    assert run(table, drop_outliers=False).events.num_rows >= data.events.num_rows


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0.05, 1.5), distance=st.sampled_from([60.0, 100.0, 250.0]), bearing=st.floats(0.0, 6.28))
@example(share=0.48, distance=100.0, bearing=1.0)
@example(share=0.52, distance=100.0, bearing=1.0)
@example(share=0.98, distance=100.0, bearing=1.0)
def test_a_single_fix_is_an_outlier_from_half_the_distance_on(share, distance, bearing):
    metres = share * distance
    assume(abs(metres - distance / 2) > 0.5)
    off = np.zeros((9, 2))
    off[4] = metres * np.cos(bearing), metres * np.sin(bearing)
    lat, lon = _offset(*HERE, off)
    data = run(fixes(np.zeros(9, int), minutes(np.arange(9)), lat, lon), distance_m=distance)
    assert data.quality["n_spikes"].to_pylist() == [int(metres > distance / 2)]


@pytest.mark.parametrize("join", [True, False])
@pytest.mark.parametrize("then", [HERE, FAR])
def test_silence_of_exactly_the_gap_limit_is_no_gap_and_a_second_more_is_one(join, then):
    for limit in (30.0, 60.0):
        for second in (0, 1):
            back = 10 + limit + second / 60
            table = at([HERE] * 3 + [then] * 3, [0, 5, 10, back, back + 5, back + 10])
            data = run(table, gap_minutes=limit, join=join)
            assert data.gaps.num_rows == second
            assert data.quality["n_gaps"].to_pylist() == [second]
            if then == HERE:
                unseen = (limit * 60 + 1) * second
                assert sum(data.events["observed_s"].to_pylist()) == (20 + limit) * 60 + second - unseen


def test_a_short_visit_that_could_be_a_stay_is_no_outlier():
    table = at([HERE, HERE, FAR, HERE, HERE], [0, 5, 10, 15, 20])  # five minutes there: a stay of its own
    assert run(table, join=False).events.num_rows == 3
    assert run(table).quality["n_spikes"].to_pylist() == [0]


def test_inaccurate_fixes_are_dropped_and_counted_and_unknown_accuracy_is_kept():
    table = at([HERE, FAR, HERE, HERE], [0, 3, 6, 12]).append_column("accuracy_m", pa.array([5.0, 900.0, None, 5.0]))
    data = run(table, max_accuracy_m=100, drop_outliers=False)
    assert data.quality["n_inaccurate"].to_pylist() == [1]
    assert data.events["n_fixes"].to_pylist() == [3]


def test_an_agent_sampled_too_sparsely_is_reported_as_such():
    sparse = fixes(np.ones(20, int), minutes(np.arange(20) * 180), np.full(20, 52.5), np.full(20, 13.4))
    data = run(pa.concat_tables([walks(agents=1), sparse]), join=False)
    assert data.quality["too_sparse"].to_pylist() == [False, True]
    assert data.quality["n_stays"].to_pylist()[1] == 0
    assert data.quality["coverage"].to_pylist()[1] == pytest.approx(0.0)


@pytest.mark.parametrize(("lat0", "lon0"), [(0.0, 179.999), (-17.0, -179.999), (89.9995, 10.0), (-89.9999, 100.0)])
def test_the_antimeridian_and_the_poles_change_nothing(lat0, lon0):
    rng = np.random.default_rng(0)
    away = rng.normal(0, 15, (40, 2))  # metres around the site
    lat, lon = _offset(lat0, lon0, away)
    stays = run(fixes(np.zeros(40, int), minutes(np.arange(40)), lat, lon)).events
    assert stays.num_rows == 1
    assert stays["n_fixes"].to_pylist() == [40]
    off = 1000 * haversine_km(stays["lat"].to_numpy(), stays["lon"].to_numpy(), lat0, lon0)
    assert off[0] < 15


def _offset(lat0: float, lon0: float, metres: np.ndarray):
    from ustad.geo import Projection

    return Projection(lat0, lon0).backward(metres[:, 0] / 1000, metres[:, 1] / 1000)


def test_an_empty_table_is_an_error_that_says_so():
    with pytest.raises(DataError, match="empty"):
        run(walks(agents=1).slice(0, 0))


# ------------------------------------------------------------------------------------------------- oracle
def iou_share(ours, theirs) -> float:
    """Share of `ours` with a stay in `theirs` of the same agent whose times overlap by half of their union."""
    hit = 0
    for agent, start, end in ours:
        spans = theirs.get(agent, np.zeros((0, 2)))
        both = np.minimum(end, spans[:, 1]) - np.maximum(start, spans[:, 0])
        union = np.maximum(end, spans[:, 1]) - np.minimum(start, spans[:, 0])
        hit += bool(len(spans)) and bool(np.any(both / np.maximum(union, 1) >= 0.5))
    return hit / max(len(ours), 1)


def by_agent(stays):
    agents = {a for a, _, _ in stays}
    return {a: np.array([(s, e) for b, s, e in stays if b == a], float) for a in agents}


@pytest.mark.parametrize("noise_m", [8.0, 30.0])
def test_trackintel_finds_the_same_stays(noise_m):
    ti = pytest.importorskip("trackintel")
    import geopandas as gpd

    table = walks(agents=3, hours=24, noise_m=noise_m, seed=3)
    frame = table.to_pandas().rename(columns={"agent_id": "user_id", "time": "tracked_at"})
    points = gpd.GeoDataFrame(frame, geometry=gpd.points_from_xy(frame.lon, frame.lat), crs="EPSG:4326")
    positions = ti.Positionfixes(points.rename_geometry("geom"))
    _, theirs = positions.generate_staypoints(
        method="sliding", dist_threshold=100, time_threshold=5.0, gap_threshold=1e9, include_last=True
    )
    stays = run(table, gap_minutes=0, drop_outliers=False, join=False).events
    mine = [
        (a, float(s), float(e))
        for a, s, e in zip(
            stays["agent_id"].to_pylist(),
            stays["started_at"].cast(pa.int64()).to_pylist(),
            stays["finished_at"].cast(pa.int64()).to_pylist(),
            strict=True,
        )
    ]
    them = [
        (int(a), s.timestamp() * 1e6, e.timestamp() * 1e6)
        for a, s, e in zip(theirs["user_id"], theirs["started_at"], theirs["finished_at"], strict=True)
    ]
    assert len(mine) > 20
    assert iou_share(mine, by_agent(them)) >= 0.98
    assert iou_share(them, by_agent(mine)) >= 0.98


def test_stays_come_in_order_of_agent_and_time_whatever_the_identifiers():
    table = walks(agents=3, hours=12)
    names = pa.array(["zoe", "abe", "mia"])
    named = table.set_column(0, "agent_id", names.take(table["agent_id"].combine_chunks()))
    stays = run(named).events
    keys = list(zip(stays["agent_id"].to_pylist(), stays["started_at"].cast(pa.int64()).to_pylist(), strict=True))
    assert keys == sorted(keys)
    assert all(a != b for a, b in pairwise(keys))
