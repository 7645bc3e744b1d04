"""Who is called anomalous in a data set, and the same labels with those of a red team among them.

Labels may also say of a stay or an agent that it is normal (`anomaly` is false), as those of NUMOSIM do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.dataset import Dataset


def anomalous_agents(data: Dataset) -> list[Any]:
    """The agents whom a label of themselves or of one of their stays calls anomalous."""
    agents: list[Any] = []
    if data.agent_labels is not None:
        agents += data.agent_labels.filter(data.agent_labels["anomaly"])["agent_id"].to_pylist()
    if data.labels is not None:
        labels = data.labels.filter(data.labels["anomaly"])
        if "agent_id" in labels.column_names:
            agents += labels["agent_id"].to_pylist()
        else:
            is_labelled = pc.is_in(data.events["stay_id"], labels["stay_id"].combine_chunks())
            agents += data.events.filter(is_labelled)["agent_id"].to_pylist()
    return list(dict.fromkeys(agents))


def are_anomalous(data: Dataset, agents: np.ndarray) -> np.ndarray:
    """Which of `agents` are among them: bool, in their order."""
    names = pa.array(agents)
    return pc.is_in(names, pa.array(anomalous_agents(data), names.type)).to_numpy(zero_copy_only=False)


def with_agent_labels(data: Dataset, new: pa.Table) -> pa.Table:
    """Those that the data set has, or that its labelled stays amount to, with `new`: one row for each agent. What `new`
    says of an agent is true now."""
    old = data.agent_labels
    if old is None:
        agents = pa.array(anomalous_agents(data), new["agent_id"].type)
        old = pa.table({"agent_id": agents, "anomaly": pa.array([True] * len(agents), pa.bool_())})
    is_new = pc.is_in(old["agent_id"], new["agent_id"].cast(old["agent_id"].type).combine_chunks())
    return pa.concat_tables([old.filter(pc.invert(is_new)), new], promote_options="default")
