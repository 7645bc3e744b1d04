"""`USTADDetector`: the detector in the manners of PyOD and scikit-learn, for tables of events.

In goes a table of events with its schema; out come numbers per row, in the order of the rows. Higher is more
abnormal, label 1 is an outlier, `contamination` is the share of the training events that are flagged.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
from scipy.special import erf
from scipy.stats import binom
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ustad.config import Config, ConfigError
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.files import as_table
from ustad.frames import without_index
from ustad.mobility.readers import open_data
from ustad.schema import EventSchema
from ustad.schema_infer import infer
from ustad.tables import DataError

#: Carries the order of the rows through sorting by entity and time.
ROW = "__row"


class USTADDetector(BaseEstimator):
    """Unusual events of a table, PyOD's way.

    `schema` is an `EventSchema`, the path of its YAML file, or None to infer it; `config` a preset's name or a
    `Config`. After `fit`: `decision_scores_`, `threshold_`, `labels_` of the training rows, `schema_`, `detector_`,
    `feature_names_in_`.

    >>> detector = USTADDetector("cards.yaml", contamination=0.01).fit(payments)  # doctest: +SKIP
    >>> detector.predict(new_payments)  # doctest: +SKIP
    """

    def __init__(
        self,
        schema: EventSchema | Path | str | None = None,
        config: Config | str = "quick",
        contamination: float = 0.1,
        device: str = "auto",
        *,
        random_state: int | None = None,
    ) -> None:
        self.schema = schema
        self.config = config
        self.contamination = contamination
        self.device = device
        self.random_state = random_state

    # ---------------------------------------------------------------------------------------- fitting
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a table of events; `y` is not looked at. Its last quarter of days stops and calibrates."""
        if not 0 < self.contamination <= 0.5:
            raise ConfigError(f"contamination must be above 0 and at most 0.5, got {self.contamination!r}")
        table = without_index(as_table(X, "X"))
        self.schema_ = self._read_schema(table)
        self.feature_names_in_ = np.array(table.column_names, dtype=object)
        data = self._data(table)
        config = Config.preset(self.config) if isinstance(self.config, str) else self.config
        if self.random_state is not None:
            config = config.replace({"seed": self.random_state})
        self.detector_ = Detector(config, self.device).fit(replace(data, meta={**data.meta, "training": True}))
        self.history_ = data.events.drop_columns([ROW])
        self.decision_scores_ = self._score(data, None)
        self.threshold_ = float(np.quantile(self.decision_scores_, 1 - self.contamination))
        self.labels_ = (self.decision_scores_ > self.threshold_).astype(int)
        return self

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Labels of the training rows: int [n]."""
        return self.fit(X).labels_

    # ---------------------------------------------------------------------------------------- scoring
    def decision_function(self, X: Any) -> np.ndarray:
        """How abnormal each row is, higher is more: float64 [n]. The training events are what came before."""
        check_is_fitted(self)
        return self._score(self._data(without_index(as_table(X, "X"))), self.history_)

    def predict(self, X: Any, return_confidence: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """1 for an outlier, 0 for an inlier: int [n]; with its confidence where asked for."""
        scores = self.decision_function(X)
        labels = (scores > self.threshold_).astype(int)
        return (labels, self._confidence(scores)) if return_confidence else labels

    def predict_proba(self, X: Any, method: Literal["linear", "unify"] = "linear") -> np.ndarray:
        """Chances of inlier and outlier: float64 [n, 2]. `linear` stretches the training scores over 0 … 1,
        `unify` takes them as normally distributed."""
        scores = self.decision_function(X)
        reference = self.decision_scores_
        if method == "linear":
            outlier = (scores - reference.min()) / max(float(np.ptp(reference)), 1e-12)
        elif method == "unify":
            outlier = erf((scores - reference.mean()) / (max(float(reference.std()), 1e-12) * np.sqrt(2)))
        else:
            raise ConfigError(f"method must be linear or unify, got {method!r}")
        outlier = np.clip(outlier, 0.0, 1.0)
        return np.stack([1 - outlier, outlier], axis=1)

    def predict_confidence(self, X: Any) -> np.ndarray:
        """How likely each label would stay the same under another training sample (Perini et al.): float64 [n]."""
        return self._confidence(self.decision_function(X))

    # ------------------------------------------------------------------------------------------ parts
    def _confidence(self, scores: np.ndarray) -> np.ndarray:
        n = len(self.decision_scores_)
        below = np.searchsorted(np.sort(self.decision_scores_), scores, side="right")
        chance = (1 + below) / (2 + n)
        chance_of_alert = 1 - binom.cdf(n - int(n * self.contamination), n, chance)
        return np.where(scores > self.threshold_, chance_of_alert, 1 - chance_of_alert)

    def _score(self, data: Dataset, context: pa.Table | None) -> np.ndarray:
        events = self.detector_.score(data.events, context=context, everything=True).events
        if events is None or events.num_rows != data.events.num_rows:
            raise DataError("not every row could be scored; check the times of the events")
        scores = np.empty(events.num_rows)
        scores[events[ROW].to_numpy()] = events["score"].to_numpy()
        return scores

    def _data(self, table: pa.Table) -> Dataset:
        with_rows = table.append_column(ROW, pa.array(np.arange(table.num_rows)))
        return open_data(with_rows, schema=self.schema_)

    def _read_schema(self, table: pa.Table) -> EventSchema:
        if self.schema is None:
            return infer(table).schema
        return self.schema if isinstance(self.schema, EventSchema) else EventSchema.from_yaml(self.schema)
