"""How well a baseline predicts masked events: MAE, MAPE and accuracy, by the same function for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ustad.config import ConfigError
from ustad.lab.prediction import prediction_metrics


def prediction_errors(detector: Any, events: Any, context: Any = None, reject: float = 0.0) -> pa.Table:
    """One row per term (`term, unit, n_events, mae, mape, n_zero_targets, accuracy`) of a fitted baseline.

    `reject` leaves out the most uncertain share of events, where the method knows its uncertainty.
    """
    if not detector.abilities.predicts:
        raise ConfigError(f"{detector.name} does not predict masked events")
    table = detector.predict(events, context, reject)
    names = [t.name for t in detector.encoder.terms if f"observed_{t.name}" in table.column_names]
    expected, observed = (
        {name: _values(table[f"{what}_{name}"]) for name in names} for what in ("expected", "observed")
    )
    return prediction_metrics(detector.encoder, expected, observed)


def _values(column: pa.ChunkedArray) -> np.ndarray:
    """Words as objects, numbers with NaN where nothing was observed."""
    if pa.types.is_string(column.type):
        return np.array(column.to_pylist(), dtype=object)
    return column.to_numpy().astype(np.float64)
