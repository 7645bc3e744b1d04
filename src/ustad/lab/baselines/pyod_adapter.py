"""PyOD's detectors on encoded events, through one adapter (`pip install 'ustad[lab]'`).

An event is one row: its scaled numbers and its categories one-hot. There is no agent and no window in it: what these
detectors find is unusual for everybody. PyOD is imported only here, and only when a detector is fitted. Its own
files are pickles, so what is stored is the sample it was fitted on; loading fits it again, to the same scores.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch

from ustad.config import ConfigError, setting
from ustad.events.encoder import Encoder, EventArrays
from ustad.lab.baselines.base import Baseline, State, without
from ustad.lab.baselines.protocol import Abilities
from ustad.progress import say


@dataclass(frozen=True)
class PyodSettings:
    """What can be chosen."""

    detector: str = setting("IForest", "class of pyod.models: IForest, ECOD, KNN, LOF, HBOS, COPOD, PCA, …")
    sample: int = setting(20_000, "fit on at most this many training events; some detectors grow with the square")


class Pyod(Baseline):
    """PyOD: any of its detectors on single encoded events; IForest unless another is named."""

    name: ClassVar[str] = "pyod"
    abilities: ClassVar[Abilities] = Abilities(scores_events=True, scores_agents=True, predicts=False, causal=True)
    settings_class: ClassVar[type] = PyodSettings
    needs_validation: ClassVar[bool] = False
    encoder: Encoder
    rows: np.ndarray

    def _learn(self, train: pa.Table, validation: pa.Table) -> None:
        self.encoder = Encoder.fit(train, without(self.schema, "vector"))
        rows = event_rows(self.encoder.encode(train))
        sample = np.random.default_rng(self.seed).permutation(len(rows))[: self.settings.sample]
        self.rows = rows[np.sort(sample)]
        self._fit()

    def _fit(self) -> None:
        say(f"fitting PyOD's {self.settings.detector} on {len(self.rows):,} events")
        self.model = make_detector(self.settings.detector, self.seed)
        self.model.fit(self.rows)

    def _rate(self, events: pa.Table, context: pa.Table | None) -> np.ndarray:
        arrays = self.encoder.encode(events)
        score = np.empty(len(arrays))
        score[arrays.row] = self.model.decision_function(event_rows(arrays))
        return score

    def _state(self) -> State:
        return State(tensors={"rows": torch.from_numpy(self.rows)}, facts={"encoder": self.encoder.to_dict()})

    def _restore(self, state: State) -> None:
        self.encoder = Encoder.from_dict(state.facts["encoder"])
        self.rows = state.tensors["rows"].cpu().numpy()
        self._fit()


class PyodEcod(Pyod):
    """PyOD's ECOD: how far out in the tails of each feature an event lies."""

    name: ClassVar[str] = "pyod-ecod"

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"detector": "ECOD", **settings})


class PyodKnn(Pyod):
    """PyOD's KNN: distance to the nearest training events of anybody."""

    name: ClassVar[str] = "pyod-knn"

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"detector": "KNN", **settings})


def make_detector(name: str, seed: int) -> Any:
    """A detector of PyOD by the name of its class, seeded where it can be."""
    if importlib.util.find_spec("pyod") is None:
        raise ConfigError("PyOD is not installed; install it with pip install 'ustad[lab]'")
    try:
        kind = getattr(importlib.import_module(f"pyod.models.{name.lower()}"), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"pyod: no detector '{name}' that can be used here; try IForest, ECOD, KNN, LOF") from error
    takes_seed = "random_state" in inspect.signature(kind.__init__).parameters
    return kind(random_state=seed) if takes_seed else kind()


def event_rows(arrays: EventArrays) -> np.ndarray:
    """Numbers (0 where missing) and one-hot categories: float64 [N, columns]."""
    sizes = [f.size for f in arrays.fields if f.kind == "category"]
    words = [np.eye(size)[arrays.categories[:, i]] for i, size in enumerate(sizes)]
    return np.concatenate([arrays.numbers.astype(np.float64), *words], axis=1)
