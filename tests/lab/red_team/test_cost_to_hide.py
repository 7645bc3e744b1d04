"""The benchmark of the cost to hide: alerts are counted right, and a fake scorer runs through."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ustad.files import read_json
from ustad.lab.red_team import KINDS, SecondTeam
from ustad.simulate import simulate_tables

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import cost_to_hide as cost  # benchmarks are scripts, found by their path alone


def scored(**columns: object) -> SimpleNamespace:
    return SimpleNamespace(events=pa.table(columns))


def test_the_highest_scores_are_alerts_and_an_incident_is_one() -> None:
    single = scored(stay_id=[1, 2, 3, 4], score=[0.1, 0.9, float("nan"), 0.5])
    assert cost.list_alerts(single, 2) == [[2], [4]]
    joined = scored(stay_id=[1, 2, 3, 4], score=[0.1, 0.9, 0.8, 0.5], incident_id=["a", "b", "b", None])
    assert cost.list_alerts(joined, 2) == [[2, 3], [4]]
    joined.incidents = pa.table({"score": [1.0, 2.0], "stay_ids": [[1], [3, 4]]})
    assert cost.list_alerts(joined, 1) == [[3, 4]]


def test_a_scorer_that_knows_the_labels_catches_everybody() -> None:
    data = simulate_tables("town", 100, 3, anomalous_share=0.03, red_team=SecondTeam("scouting"))
    known = pc.is_in(data.events["stay_id"], data.labels["stay_id"].combine_chunks()).to_numpy(zero_copy_only=False)
    first_of_agent = np.zeros(len(known))
    _, first = np.unique(data.events["agent_id"].to_numpy()[known], return_index=True)
    first_of_agent[np.flatnonzero(known)[first]] = 1.0
    perfect = SimpleNamespace(events=data.events.append_column("score", pa.array(first_of_agent)))
    count = cost.count_caught(perfect, data)
    assert (count.agents_caught, count.agents, count.alerts, count.alerts_right) == (3, 3, 7, 3)
    assert cost.alert_budget(data) == 7  # five a day and 1,000 people: 100 people in 14 days


def test_half_is_hidden_where_the_curve_crosses_half() -> None:
    assert cost.half_hidden([1, 10, 100], [0.0, 0.25, 0.75]) == pytest.approx(10**1.5)
    assert cost.half_hidden([1, 10, 100], [0.6, 0.2, 0.5]) == pytest.approx(100)
    assert cost.half_hidden([1, 10], [0.5, 0.9]) == 0.0
    assert cost.half_hidden([1, 10], [0.5, 0.4]) is None
    assert cost.half_hidden([1, 10, 100], [None, 0.0, 1.0]) == pytest.approx(10**1.5)


def test_a_fake_scorer_runs_through(tmp_path: Path) -> None:
    out, figure = tmp_path / "cost.json", tmp_path / "cost.svg"
    where = ["--out", str(out), "--figure", str(figure), "--scorer", "random", "--agents", "40", "--days", "14"]
    for kinds in ("detour,shadow", "clockwork"):
        cost.main([*where, "--seeds", "3", "--share", "0.2", "--ladder", "0.5", "2", "--kinds", kinds])
    result = read_json(out)
    assert set(result["kinds"]) == {"detour", "shadow", "clockwork"}
    for kind, curve in result["kinds"].items():
        assert [row["size"] for row in curve["rows"]] == [0.5 * KINDS[kind].standard, 2 * KINDS[kind].standard]
        assert all(row["counts"]["agents"] > 3 and row["counts"]["alerts"] == 1 for row in curve["rows"])
    assert figure.exists() or find_spec("matplotlib") is None


def test_agents_with_labels_are_left_out_of_given_data() -> None:
    data = simulate_tables("town", 40, 3, anomalous_share=0.1, days=8)
    normal = cost.without_labelled(data)
    left = set(normal.events["agent_id"].to_pylist())
    assert len(left) == 36
    assert not left & set(data.agent_labels["agent_id"].to_pylist())


def test_what_is_counted_comes_in_whole_numbers() -> None:
    assert cost.factors_of("scouting", [0.05, 0.1, 0.5, 1.0]) == [0.25, 0.5, 1.0]
    assert cost.factors_of("detour", [0.05, 1.0]) == [0.05, 1.0]
