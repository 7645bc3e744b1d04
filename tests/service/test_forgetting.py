"""Forgetting an agent in the tracker leaves the others as if the agent had never been."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.mobility.tracker import StayTracker
from ustad.tables import TIMESTAMP


def fixes(rows: list[tuple[str, int, float]]) -> pa.Table:
    return pa.table({
        "agent_id": pa.array([r[0] for r in rows], pa.string()),
        "time": pa.array([r[1] * 60_000_000 for r in rows], TIMESTAMP),
        "lat": [60.0 + r[2] for r in rows],
        "lon": [25.0] * len(rows),
    })  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=2, max_size=40),
    st.integers(0, 39),
)
def test_forgetting_an_agent_leaves_the_others_as_if_it_had_never_been(steps: list, cut: int) -> None:
    rows = [(agent, minute * 4, place * 0.01) for minute, (agent, place) in enumerate(steps)]
    tracker, alone = StayTracker(), StayTracker()
    first, second = rows[:cut], [r for r in rows[cut:] if r[0] != "b"]
    if first:
        tracker.update(fixes(first))
    tracker.forget(["b", "never seen"])
    others = [r for r in first if r[0] != "b"]
    if others:
        alone.update(fixes(others))
    found = [tracker.update(fixes(second)) if second else None, tracker.finish()]
    wanted = [alone.update(fixes(second)) if second else None, alone.finish()]
    key = [("agent_id", "ascending"), ("started_at", "ascending")]
    for one, other in zip(found, wanted, strict=True):
        if one is not None:
            assert one.stays.sort_by(key).to_pylist() == other.stays.sort_by(key).to_pylist()
            assert "b" not in one.stays["agent_id"].to_pylist()
