"""Labels that travel from true stays to extracted ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from ustad.simulate import match_labels
from ustad.tables import TIMESTAMP, DataError

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)


def stays(rows: list[tuple[int, float, float]], first_id: int = 100) -> pa.Table:
    """Rows of agent, start and end in hours after noon."""
    return pa.table(
        {
            "stay_id": pa.array(range(first_id, first_id + len(rows)), pa.int64()),
            "agent_id": pa.array([r[0] for r in rows], pa.int64()),
            "started_at": pa.array([NOON + timedelta(hours=r[1]) for r in rows], TIMESTAMP),
            "finished_at": pa.array([NOON + timedelta(hours=r[2]) for r in rows], TIMESTAMP),
        }
    )


def labels(rows: list[tuple[int, float, float]]) -> pa.Table:
    table = stays(rows, 1)
    return table.append_column("anomaly", pa.array([True] * len(rows))).append_column(
        "kind", pa.array([f"kind {k}" for k in range(len(rows))])
    )


def test_a_stay_that_overlaps_by_half_is_labelled() -> None:
    found = match_labels(labels([(1, 0, 2)]), stays([(1, 1.0, 4), (1, 5, 6)]))
    assert found["stay_id"].to_pylist() == [100]
    assert found["kind"].to_pylist() == ["kind 0"]


def test_less_than_half_of_either_is_no_match() -> None:
    assert match_labels(labels([(1, 0, 2)]), stays([(1, 1.2, 4)])).num_rows == 0


def test_half_of_a_short_extracted_stay_is_enough() -> None:
    assert match_labels(labels([(1, 0, 10)]), stays([(1, 9.5, 10.4)]))["stay_id"].to_pylist() == [100]


def test_other_agents_are_not_labelled() -> None:
    assert match_labels(labels([(1, 0, 2)]), stays([(2, 0, 2)])).num_rows == 0


def test_the_best_overlap_names_the_kind() -> None:
    found = match_labels(labels([(1, 0, 2), (1, 2, 9)]), stays([(1, 1, 8)]))
    assert found["kind"].to_pylist() == ["kind 1"]
    assert found.num_rows == 1


def test_one_true_stay_may_become_two_extracted_ones() -> None:
    found = match_labels(labels([(1, 0, 8)]), stays([(1, 0, 3), (1, 4, 8)]))
    assert found["stay_id"].to_pylist() == [100, 101]


def test_no_label_gives_no_label() -> None:
    assert match_labels(labels([]), stays([(1, 0, 1)])).num_rows == 0


def test_labels_without_times_are_refused() -> None:
    with pytest.raises(DataError, match="needs column started_at"):
        match_labels(labels([(1, 0, 2)]).drop_columns(["started_at"]), stays([(1, 0, 1)]))
