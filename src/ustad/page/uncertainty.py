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
    chosen = table.take(pa.array(rows))
    step = max(1, table.num_rows // SAMPLE)
    ranks, loud = [], []
    for name in names:
        total = numbers(table, f"au_{name}") + numbers(table, f"eu_{name}")
        sample = np.sort(total[::step][np.isfinite(total[::step])])
        if not len(sample) or sample[0] == sample[-1]:
            continue
        rank = np.searchsorted(sample, lowered(total[rows])) / len(sample)
        ranks.append(np.where(np.isnan(total[rows]), np.nan, rank))
        loud.append(np.nan_to_num(numbers(chosen, f"pct_{name}"), nan=-1.0))
    if not ranks:
        return None
    return np.take_along_axis(np.array(ranks), first_highest(loud)[None], axis=0)[0]


def scatter(scored: Scored, seed: int = 7) -> dict[str, Any] | None:
    """Dots (rank of the uncertainty, surprise, kind, alert): every top event, and a sample of the rest; and how many
    events and alerts of each kind there are in all."""
    top = scored.ranked[: DOTS // 5]
    rest = scored.ranked[DOTS // 5 :]
    chosen = np.random.default_rng(seed).permutation(len(rest))[: DOTS - len(top)]
    rows = np.concatenate([rest[np.sort(chosen)], top[::-1]])
    x = doubt(scored.table, rows)
    if x is None:
        return None
    kinds = texts(scored.table.take(pa.array(rows)), "kind")
    words = sorted(set(kinds))
    kind = np.array([words.index(k) for k in kinds])
    return {
        "kinds": words,
        "x": rounded(x, 3),
        "y": rounded(scored.surprise[rows], 2),
        "kind": kind.tolist(),
        "alert": scored.alert[rows].astype(int).tolist(),
        "line": round(float(scored.surprise[scored.alert].min()), 3) if scored.alert.any() else None,
        "counts": _counts(scored),
        "of": len(scored.score),
    }


def _counts(scored: Scored) -> dict[str, list[int]]:
    """Events and alerts of each kind."""
    kinds = pa.array(texts(scored.table, "kind"), pa.string())
    all_, alerts = (_count(part) for part in (kinds, kinds.filter(pa.array(scored.alert))))
    return {kind: [n, alerts.get(kind, 0)] for kind, n in sorted(all_.items())}


def _count(values: pa.Array) -> dict[str, int]:
    return {part["values"]: part["counts"] for part in values.value_counts().to_pylist()}


def calibration(scored: Scored) -> dict[str, Any] | None:
    """Share of events at or below each p-value: the diagonal where p-values are what they say."""
    if "p_value" not in scored.table.column_names:
        return None
    low = max(1.0 / len(scored.p), 1e-6)
    at = np.geomspace(low, 1.0, 40)
    share = np.searchsorted(np.sort(scored.p), at, "right") / len(scored.p)
    bins = np.histogram(np.clip(scored.p, 0, 1), np.linspace(0, 1, 21))[0] / len(scored.p) * 20
    return {
        "at": [float(f"{v:.4g}") for v in at],
        "share": [float(f"{v:.4g}") for v in share],
        "bins": rounded(bins, 3),
        "n": len(scored.p),
    }
