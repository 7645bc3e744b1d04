"""Data of the default's benchmark: simulated NUMOSIM by seed and red team, divided by date, with its labels.

The harder red teams of a seed meet the same people with the same training weeks, so one model judges them all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.network.inference.memory_model import NetworkAnswers
from ustad.simulate import simulate_tables
from ustad.simulate.presets import VARIANTS

#: Seeds whose figures are reported, and those that choices are made on.
FIRST_SEED, DEVELOPMENT_SEED = 7, 101
HARD = tuple(name for name in VARIANTS if name != "standard")


@dataclass(frozen=True)
class Parts:
    """One data set by period, and its labels by row and by agent."""

    train: pa.Table
    validation: pa.Table
    test: pa.Table
    truth: np.ndarray  # bool by row of test
    recurring: np.ndarray  # bool by row of test
    agents: dict[Any, bool]  # anomalous agent → recurring

    @property
    def before(self) -> pa.Table:
        return pa.concat_tables([self.train, self.validation])


def simulated(agents: int, seed: int, variant: str = "standard") -> Parts:
    torch.set_num_threads(1)
    return divide(simulate_tables("numosim-la", agents=agents, seed=seed, variant=variant))


def divide(data: Dataset) -> Parts:
    split = data.split(SplitConfig())
    test = data.between(split.test_first, split.test_last)
    assert data.labels is not None
    assert data.agent_labels is not None
    labelled = dict(zip(data.labels["stay_id"].to_pylist(), data.labels["recurring"].to_pylist(), strict=True))
    ids = test["stay_id"].to_pylist()
    return Parts(
        data.between(split.train_first, split.validation_first - 1),
        data.between(split.validation_first, split.test_first - 1),
        test,
        np.array([i in labelled for i in ids]),
        np.array([bool(labelled.get(i, False)) for i in ids]),
        dict(zip(data.agent_labels["agent_id"].to_pylist(), data.agent_labels["recurring"].to_pylist(), strict=True)),
    )


def fingerprint(table: pa.Table) -> str:
    """The same for the same stays in the same order, on whatever machine."""
    digest = hashlib.sha256()
    for name in ("agent_id", "started_at", "finished_at"):
        digest.update(np.ascontiguousarray(table[name].cast(pa.int64()).to_numpy()).tobytes())
    return digest.hexdigest()[:16]


def changed_rows(test: pa.Table, standard: pa.Table) -> np.ndarray:
    """Rows of the agents whose test weeks differ from the standard ones: what has to be asked anew."""
    mine, theirs = _weeks(test), _weeks(standard)
    changed = [agent for agent, week in mine.items() if theirs.get(agent) != week]
    return np.flatnonzero(np.isin(test["agent_id"].to_numpy(), changed))


def _weeks(table: pa.Table) -> dict[int, bytes]:
    columns = [table[c].cast(pa.int64()).to_numpy() for c in ("started_at", "finished_at", "poi_id")]
    agent = table["agent_id"].to_numpy()
    order = np.lexsort((columns[0], agent))
    stacked = np.stack(columns, axis=1)[order]
    ids, first = np.unique(agent[order], return_index=True)
    return {int(i): rows.tobytes() for i, rows in zip(ids, np.split(stacked, first[1:]), strict=True)}


@dataclass
class StoredTerms(NetworkAnswers):
    """A source that answers what a network said before: (history, events, what came before) → answers."""

    stored: Callable[..., dict[str, np.ndarray]]

    def terms(self, habits: Any, events: pa.Table, before: pa.Table | None) -> dict[str, np.ndarray]:
        return self.stored(habits, events, before)
