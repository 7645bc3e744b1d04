"""Masked prediction in the features' own units: how far off the network is, and how much surer it is where it says so.

In go, per term of the schema, what was expected and what was observed (minutes, kilometres, words); out comes a
table with MAE, MAPE or accuracy per term. Cyclic values are compared the shorter way round. Nothing is left out but
missing observations, and from MAPE alone the targets of zero, which are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.events.encoder import UNKNOWN, Encoder
from ustad.schema import Term
from ustad.tables import DataError

SCHEMA = pa.schema(
    [
        ("term", pa.string()),
        ("unit", pa.string()),
        ("rejected", pa.float64()),  # share of the most uncertain events left out
        ("n_events", pa.int64()),
        ("mae", pa.float64()),
        ("mape", pa.float64()),  # per cent
        ("n_zero_targets", pa.int64()),  # left out of MAPE
        ("accuracy", pa.float64()),  # per cent
    ]
)


def prediction_metrics(
    encoder: Encoder,
    expected: Mapping[str, np.ndarray],
    observed: Mapping[str, np.ndarray],
    uncertainty: np.ndarray | None = None,
    *,
    reject: float = 0.05,
) -> pa.Table:
    """One row per term over all events and, given each event's uncertainty [n], one without the most uncertain.

    Arrays hold a term's own unit: numbers [n], minutes (or the schema's period) for an angle, words or codes [n] for
    a category, [n, size] for a vector. NaN, None or `unknown` marks what was not observed.
    """
    terms = [t for t in encoder.terms if t.name in expected]
    if not terms:
        raise DataError(f"prediction: none of the terms {', '.join(t.name for t in encoder.terms)} is given")
    lacking = [t.name for t in terms if t.name not in observed]
    if lacking:
        raise DataError(f"prediction: no observed values of {', '.join(lacking)}")
    n = len(expected[terms[0].name])
    rows = [_row(encoder, t, expected[t.name], observed[t.name], certain=np.ones(n, bool), share=0.0) for t in terms]
    if uncertainty is not None:
        certain = most_certain(uncertainty, reject)
        rows += [_row(encoder, t, expected[t.name], observed[t.name], certain=certain, share=reject) for t in terms]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def most_certain(uncertainty: np.ndarray, reject: float) -> np.ndarray:
    """bool [n]: false for the given share of events with the highest uncertainty (ties: the later ones)."""
    certain = np.ones(len(uncertainty), bool)
    order = np.argsort(np.nan_to_num(uncertainty, nan=np.inf), kind="stable")
    certain[order[len(order) - int(reject * len(order)) :]] = False
    return certain


def angular_difference(one: np.ndarray, other: np.ndarray, period: float) -> np.ndarray:
    """The shorter way round, 0 … period / 2."""
    apart = np.abs(one - other) % period
    return np.minimum(apart, period - apart)


def _row(
    encoder: Encoder, term: Term, expected: np.ndarray, observed: np.ndarray, *, certain: np.ndarray, share: float
) -> dict[str, Any]:
    expected, observed = np.asarray(expected), np.asarray(observed)
    feature = encoder.schema.feature(term.feature)
    present = certain & _present(observed, term)
    row = {"term": term.name, "unit": feature.unit, "rejected": share, "n_events": int(present.sum())}
    expected, observed = expected[present], observed[present]
    if term.kind == "category":
        return {**row, "accuracy": _mean(100.0 * (expected == observed))}
    if term.kind == "angle":
        error = angular_difference(expected.astype(float), observed.astype(float), feature.period)
    else:
        error = np.abs(expected.astype(float) - observed.astype(float))
    nonzero = observed.astype(float) != 0
    shares = 100.0 * error[nonzero] / np.abs(observed[nonzero].astype(float))
    return {**row, "mae": _mean(error), "mape": _mean(shares), "n_zero_targets": int((~nonzero).sum())}


def _present(observed: np.ndarray, term: Term) -> np.ndarray:
    """Which events have a target: bool [n]."""
    if term.kind != "category":
        values = np.isfinite(observed.astype(float))
        return values.all(axis=1) if values.ndim == 2 else values
    if observed.dtype.kind in "iu":
        return observed > 0
    return np.array([value is not None and value != UNKNOWN for value in observed.tolist()], bool)


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
