"""One ranking of agents: alerts first, and a sentence wherever p-values say otherwise."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ustad.agent_order import add_alerts, order_agents, order_note

P_VALUES = st.one_of(st.floats(1e-12, 1.0), st.sampled_from([0.049, 0.05, 0.051, 1.0]))
AGENTS = st.lists(st.tuples(st.integers(0, 3), P_VALUES), min_size=1, max_size=12)


@given(AGENTS)
def test_who_has_an_alert_is_never_below_who_has_none_and_contradictions_are_explained(
    agents: list[tuple[int, float]],
) -> None:
    n_alerts, p_values = (np.array(values) for values in zip(*agents, strict=True))
    order = order_agents(-np.log10(p_values), n_alerts)
    for above, below in combinations(order.tolist(), 2):
        assert n_alerts[above] > 0 or n_alerts[below] == 0
        if p_values[above] > p_values[below] * (1 + 1e-6):
            notes = [order_note(int(n_alerts[i]), float(p_values[i])) for i in (above, below)]
            assert any(notes), "the row above or the one below says why"


@pytest.mark.parametrize(
    ("n_alerts", "p_value", "note"),
    [
        (1, 0.3, "Ordered by their alert; over the whole period not unusual (p = 0.3)."),
        (2, 0.051, "Ordered by their 2 alerts; over the whole period not unusual (p = 0.051)."),
        (0, 0.002, "No alert, so after everybody with one; over the whole period unusual (p = 0.002)."),
        (1, 0.05, None),
        (0, 0.051, None),
        (3, float("nan"), None),
        (3, None, None),
    ],
)
def test_a_note_says_both_sides_and_is_silent_where_they_agree(
    n_alerts: int, p_value: float | None, note: str | None
) -> None:
    assert order_note(n_alerts, p_value) == note


@given(st.lists(st.integers(0, 6), max_size=30))
def test_alerts_are_counted_of_every_agent_and_anew_when_they_change(owners: list[int]) -> None:
    agents = pa.table({"who": [5, 3, 1, 0], "n_incidents": [9] * 4, "p_value": [0.5, 0.01, 0.5, 0.01]})
    agents = agents.append_column("reason", pa.array(["x"] * 4))
    table = add_alerts(agents, pa.chunked_array([pa.array(owners, pa.int32())]), "who")
    assert table.column_names == ["who", "n_incidents", "n_alerts", "p_value", "reason", "order_note"]
    counts = [owners.count(who) for who in (5, 3, 1, 0)]
    assert table["n_alerts"].to_pylist() == counts
    assert table["order_note"].to_pylist() == [
        order_note(*pair) for pair in zip(counts, [0.5, 0.01, 0.5, 0.01], strict=True)
    ]
    assert add_alerts(table, pa.chunked_array([pa.array([], pa.int32())]), "who")["n_alerts"].to_pylist() == [0] * 4
