"""Extracted stays against true ones: which shows which, and the figures that follow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.lab.evaluation.stay_matching import carry_labels, match_stays, measure_extraction
from ustad.tables import TIMESTAMP

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)
Row = tuple[int, float, float, float]


def stays(rows: list[Row], first_id: int = 100, gap: float = 60.0) -> pa.Table:
    """Rows of agent, start and end in hours after noon, and km north of a point."""
    return pa.table(
        {
            "stay_id": pa.array(range(first_id, first_id + len(rows)), pa.int64()),
            "agent_id": pa.array([r[0] for r in rows], pa.int64()),
            "started_at": pa.array([NOON + timedelta(hours=r[1]) for r in rows], TIMESTAMP),
            "finished_at": pa.array([NOON + timedelta(hours=r[2]) for r in rows], TIMESTAMP),
            "lat": pa.array([50.0 + r[3] / 111.195 for r in rows], pa.float64()),
            "lon": pa.array([9.0] * len(rows), pa.float64()),
            "poi_id": pa.array([round(r[3]) for r in rows], pa.int64()),
            "start_gap_s": pa.array([gap] * len(rows), pa.float64()),
        }
    )


def test_an_extracted_stay_shows_the_true_stay_it_shares_most_time_with() -> None:
    truth = stays([(1, 0, 2, 0), (1, 2.5, 9, 5), (2, 0, 9, 5)])
    matching = match_stays(truth, stays([(1, 1, 4, 5), (2, 8, 12, 5), (2, 10, 11, 5)]))
    assert matching.truth_row.tolist() == [1, 2, -1]
    assert matching.near.tolist() == [True, True, False]


@st.composite
def two_days(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    def diary() -> list[Row]:
        rows = []
        for agent in (1, 2):
            cuts = sorted(draw(st.sets(st.integers(0, 96), max_size=12)))
            rows += [(agent, a / 4, b / 4, draw(st.sampled_from([0.0, 0.1, 3.0]))) for a, b in pairwise(cuts)]
        return rows

    return diary(), diary()


@settings(max_examples=60, deadline=None)
@given(two_days())
def test_matching_agrees_with_a_plain_loop(days: tuple[list[Row], list[Row]]) -> None:
    truth, extracted = days
    found = match_stays(stays(truth), stays(extracted))
    for k, (agent, start, end, north) in enumerate(extracted):
        shared = [min(end, b) - max(start, a) if who == agent else -1.0 for who, a, b, _ in truth]
        best = max(range(len(truth)), key=lambda t: (shared[t], -truth[t][1]), default=-1)
        if best < 0 or shared[best] <= 0:
            assert found.truth_row[k] == -1
            continue
        assert found.truth_row[k] == best
        assert found.metres[k] == pytest.approx(1000 * abs(north - truth[best][3]), abs=2)
        assert found.near[k] == (abs(north - truth[best][3]) < 0.25)


def test_a_stay_cut_in_three_counts_three_pieces_and_its_outer_ends() -> None:
    truth = stays([(1, 0, 8, 0), (1, 9, 10, 4)])
    extracted = stays([(1, 0.1, 2, 0), (1, 3, 4, 0), (1, 5, 7.8, 0), (1, 9, 10, 4)])
    found = measure_extraction(truth, extracted)
    assert found["pieces"] == 2.0
    assert found["stays_found"] == 1.0
    assert found["start_error_median_s"] == pytest.approx(180)
    assert found["end_error_median_s"] == pytest.approx(360)
    assert found["places_right"] == 1.0
    assert found["spurious"] == 0.0


def test_a_stay_that_is_not_there_is_not_found_and_one_nobody_made_is_spurious() -> None:
    found = measure_extraction(stays([(1, 0, 1, 0), (1, 5, 6, 0)]), stays([(1, 0, 1, 0), (1, 2, 3, 9)]))
    assert found["stays_found"] == 0.5
    assert found["spurious"] == 0.5
    assert found["pieces"] == 1.0


def test_another_place_at_the_same_time_is_wrong_and_no_piece() -> None:
    found = measure_extraction(stays([(1, 0, 1, 0), (1, 5, 6, 0)]), stays([(1, 0, 1, 0), (1, 5, 6, 2)]))
    assert found["places_right"] == found["places_near"] == found["stays_found"] == 0.5


def test_starts_after_silence_do_not_count_as_seen() -> None:
    truth = stays([(1, 0, 4, 0)])
    silent = measure_extraction(truth, stays([(1, 2, 4, 0)], gap=7200.0))
    assert silent["start_error_95_s"] == 7200
    assert silent["start_seen_error_95_s"] is None
    assert measure_extraction(truth, stays([(1, 2, 4, 0)]))["start_seen_error_95_s"] == 7200


def labels(truth: pa.Table, rows: list[int]) -> pa.Table:
    table = truth.select(["stay_id", "agent_id", "started_at", "finished_at"]).take(pa.array(rows))
    return table.append_column("kind", pa.array([f"kind {r}" for r in rows]))


def test_a_short_labelled_stay_swallowed_by_a_long_one_is_missed_and_labels_nothing() -> None:
    truth = stays([(1, 0, 5, 0), (1, 5.1, 5.3, 6), (1, 5.4, 12, 0)])
    carried = carry_labels(labels(truth, [1]), truth, stays([(1, 0, 12, 0)]))
    assert carried.labels.num_rows == 0
    assert (carried.positives, carried.n_missed) == (1, 1)


def test_every_piece_of_a_labelled_stay_is_labelled_with_its_kind() -> None:
    truth = stays([(1, 0, 5, 0), (1, 6, 9, 6)])
    carried = carry_labels(labels(truth, [0, 1]), truth, stays([(1, 0, 5, 0), (1, 6, 7, 6), (1, 8, 9, 6)]))
    assert carried.labels["stay_id"].to_pylist() == [100, 101, 102]
    assert carried.labels["kind"].to_pylist() == ["kind 0", "kind 1", "kind 1"]
    assert carried.n_missed == 0


def test_a_stay_at_another_place_is_not_labelled() -> None:
    truth = stays([(1, 0, 5, 0)])
    assert carry_labels(labels(truth, [0]), truth, stays([(1, 0, 5, 3)])).n_missed == 1
