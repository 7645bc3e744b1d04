"""Red teams among labels that also say who is normal, as NUMOSIM's do: nobody is protected by being called normal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "simulate"))
from small_towns import town

from ustad.dataset import Dataset
from ustad.lab.red_team import inject, second_red_team
from ustad.lab.red_team.agent_labels import anomalous_agents

RedTeam = Callable[[Dataset], Dataset]


def spatial(data: Dataset) -> Dataset:
    return inject(data, "spatial", 0.3, 3)


def second(data: Dataset) -> Dataset:
    return second_red_team(data, 0.3, 3)


def said_of_everybody() -> tuple[Dataset, list[object]]:
    """Everybody is labelled, two of them as anomalous; stay labels name no agent."""
    data = town(anomalous=0.0)
    agents = pc.unique(data.events["agent_id"])
    truth = np.arange(len(agents)) < 2
    first_stays = data.events.filter(pc.is_in(data.events["agent_id"], agents.filter(pa.array(truth))))
    labels = data.events.select(["stay_id"]).append_column(
        "anomaly", pc.is_in(data.events["stay_id"], first_stays["stay_id"][:1].combine_chunks())
    )
    agent_labels = pa.table({"agent_id": agents, "anomaly": pa.array(truth)})
    return replace(data, labels=labels, agent_labels=agent_labels), agents.filter(pa.array(truth)).to_pylist()


def test_agents_are_anomalous_by_a_label_of_their_own_or_of_a_stay() -> None:
    data, anomalous = said_of_everybody()
    assert anomalous_agents(data) == anomalous
    assert anomalous_agents(replace(data, agent_labels=None)) == anomalous[:1]
    assert anomalous_agents(replace(data, labels=None, agent_labels=None)) == []


@pytest.mark.parametrize("red_team", [spatial, second])
def test_who_is_called_normal_may_be_changed_and_is_then_called_anomalous_once(red_team: RedTeam) -> None:
    data, anomalous = said_of_everybody()
    made = red_team(data)
    changed = made.labels.filter(pc.and_(made.labels["anomaly"], pc.is_valid(made.labels["kind"])))
    new_agents = set(changed["agent_id"].to_pylist())
    assert len(new_agents) > 2
    assert not new_agents & set(anomalous)
    by_agent = made.agent_labels.to_pylist()
    assert len(by_agent) == len({row["agent_id"] for row in by_agent}) == data.agent_labels.num_rows
    assert {row["agent_id"] for row in by_agent if row["anomaly"]} == new_agents | set(anomalous)
    assert len(set(made.labels["stay_id"].to_pylist())) == made.labels.num_rows


@pytest.mark.parametrize("red_team", [spatial, second])
def test_who_has_an_anomalous_stay_stays_anomalous_where_agents_had_no_labels(red_team: RedTeam) -> None:
    data, anomalous = said_of_everybody()
    made = red_team(replace(data, agent_labels=None))
    named = made.agent_labels.filter(made.agent_labels["anomaly"])["agent_id"].to_pylist()
    assert anomalous[0] in named
    assert len(named) == len(set(named)) > 2
