"""Uncertainty against surprise with its regions, and whether p-values are what they say.

In: the scored events. Out: small dictionaries for the page.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ustad.page.score_columns import numbers, rounded, texts
from ustad.page.scored import Scored
from ustad.ties import first_highest, lowered

SAMPLE = 20_000  # events from which quantiles of the uncertainties are taken
DOTS = 2_500


def doubt(table: pa.Table, rows: np.ndarray) -> np.ndarray | None:
    """How uncertain (AU and EU) the model was about what drove each event's score: the share of events that are
    surer about that term, for these rows. None where the run knows no uncertainty."""
    names = [n[4:] for n in table.column_names if n.startswith("pct_") and f"eu_{n[4:]}" in table.column_names]
    subset = table.take(pa.array(rows))
    step = max(1, table.num_rows // SAMPLE)
    ranks, loud = [], []
    for name in names:
        total = numbers(table, f"au_{name}") + numbers(table, f"eu_{name}")
        sample = np.sort(total[::step][np.isfinite(total[::step])])
        if not len(sample) or sample[0] == sample[-1]:
            continue
        rank = np.searchsorted(sample, lowered(total[rows])) / len(sample)
        ranks.append(np.where(np.isnan(total[rows]), np.nan, rank))
        loud.append(np.nan_to_num(numbers(subset, f"pct_{name}"), nan=-1.0))
    if not ranks:
        return None
    return np.take_along_axis(np.array(ranks), first_highest(loud)[None], axis=0)[0]


def scatter(run_scores: Scored, seed: int = 7) -> dict[str, Any] | None:
    """Dots (rank of the uncertainty, surprise, kind, alert): every top event, and a sample of the rest; and how many
    events and alerts of each kind there are in all."""
    top = run_scores.ranked[: DOTS // 5]
    rest = run_scores.ranked[DOTS // 5 :]
    order = np.random.default_rng(seed).permutation(len(rest))[: DOTS - len(top)]
    rows = np.concatenate([rest[np.sort(order)], top[::-1]])
    x = doubt(run_scores.table, rows)
    if x is None:
        return None
    kinds = texts(run_scores.table.take(pa.array(rows)), "kind")
    words = sorted(set(kinds))
    kind = np.array([words.index(k) for k in kinds])
    return {
        "kinds": words,
        "x": rounded(x, 3),
        "y": rounded(run_scores.surprise[rows], 2),
        "kind": kind.tolist(),
        "alert": run_scores.alert[rows].astype(int).tolist(),
        "line": round(float(run_scores.surprise[run_scores.alert].min()), 3) if run_scores.alert.any() else None,
        "counts": _counts(run_scores),
        "of": len(run_scores.score),
    }


def _counts(run_scores: Scored) -> dict[str, list[int]]:
    """Events and alerts of each kind."""
    kinds = pa.array(texts(run_scores.table, "kind"), pa.string())
    all_, alerts = (_count(part) for part in (kinds, kinds.filter(pa.array(run_scores.alert))))
    return {kind: [n, alerts.get(kind, 0)] for kind, n in sorted(all_.items())}


def _count(values: pa.Array) -> dict[str, int]:
    return {part["values"]: part["counts"] for part in values.value_counts().to_pylist()}


def calibration(run_scores: Scored) -> dict[str, Any] | None:
    """Share of events at or below each p-value: the diagonal where p-values are what they say."""
    if "p_value" not in run_scores.table.column_names:
        return None
    low = max(1.0 / len(run_scores.p), 1e-6)
    at = np.geomspace(low, 1.0, 40)
    share = np.searchsorted(np.sort(run_scores.p), at, "right") / len(run_scores.p)
    bins = np.histogram(np.clip(run_scores.p, 0, 1), np.linspace(0, 1, 21))[0] / len(run_scores.p) * 20
    return {
        "at": [float(f"{v:.4g}") for v in at],
        "share": [float(f"{v:.4g}") for v in share],
        "bins": rounded(bins, 3),
        "n": len(run_scores.p),
    }
