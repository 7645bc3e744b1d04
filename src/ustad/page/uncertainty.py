"""Uncertainty against surprise with its regions, and whether p-values are what they say.

In: the tables of a run. Out: small dictionaries for the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.page.run_scores import RunScores
from ustad.page.run_tables import RunTables
from ustad.page.score_columns import numbers, round_values, texts
from ustad.scores import read_answers
from ustad.ties import first_highest, lowered

SAMPLE = 20_000  # events from which quantiles of the uncertainties are taken
DOTS = 2_500
HEAD = 1_000  # events that tell whether the evidence of a run has uncertainties


def doubt(run: RunTables, rows: np.ndarray) -> np.ndarray | None:
    """How uncertain the model was (noise and doubt) about the question that drove each event's score. For these rows:
    the share of events that are surer about that question. None where the run knows no uncertainty."""
    n = run.events.count_rows()
    sample_rows = np.arange(0, n, max(1, n // SAMPLE))
    ranks, loud = [], []
    for surprise, total in _answers(run, np.concatenate([sample_rows, rows])):
        sample = np.sort(total[: len(sample_rows)][np.isfinite(total[: len(sample_rows)])])
        own = total[len(sample_rows) :]
        if not len(sample) or sample[0] == sample[-1]:
            continue
        rank = np.searchsorted(sample, lowered(own)) / len(sample)
        ranks.append(np.where(np.isnan(own), np.nan, rank))
        loud.append(np.nan_to_num(surprise[len(sample_rows) :], nan=-1.0))
    if not ranks:
        return None
    return np.take_along_axis(np.array(ranks), first_highest(loud)[None], axis=0)[0]


def _answers(run: RunTables, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each question that an uncertainty belongs to: what orders answers by surprise, and noise and doubt together.
    Scores that were written before there was evidence have a column of each."""
    present = run.events.schema.names
    if "evidence" not in present:
        names = [n[4:] for n in present if n.startswith("pct_") and f"eu_{n[4:]}" in present]
        columns = [f"{what}_{name}" for name in names for what in ("pct", "au", "eu")]
        table = _take(run, rows, columns) if names else None
        for name in names:
            yield numbers(table, f"pct_{name}"), numbers(table, f"au_{name}") + numbers(table, f"eu_{name}")
        return
    if not _questions(run.events.head(HEAD, columns=["evidence"])):
        return
    table = _take(run, rows, ["evidence"])
    for name in _questions(table):
        surprise, noise, not_knowing = (
            read_answers(table["evidence"], name, what) for what in ("surprise", "noise", "doubt")
        )
        yield surprise, noise + not_knowing


def _questions(table: pa.Table) -> list[str]:
    """Questions whose answers come with noise and doubt."""
    entries = table["evidence"].combine_chunks().flatten()
    return sorted(pc.unique(entries.field("name").filter(entries.field("noise").is_valid())).to_pylist())


def _take(run: RunTables, rows: np.ndarray, columns: list[str]) -> pa.Table:
    unique, back = np.unique(rows, return_inverse=True)
    return run.events.take(pa.array(unique), columns=columns).take(pa.array(back))


def scatter(run: RunTables, run_scores: RunScores, seed: int = 7) -> dict[str, Any] | None:
    """Dots (rank of the uncertainty, surprise, kind, alert): every top event, and a sample of the rest; and how many
    events and alerts of each kind there are in all."""
    top = run_scores.by_surprise[: DOTS // 5]
    rest = run_scores.by_surprise[DOTS // 5 :]
    order = np.random.default_rng(seed).permutation(len(rest))[: DOTS - len(top)]
    rows = np.concatenate([rest[np.sort(order)], top[::-1]])
    x = doubt(run, rows)
    if x is None:
        return None
    kinds = texts(run_scores.table.take(pa.array(rows)), "kind")
    words = sorted(set(kinds))
    kind = np.array([words.index(k) for k in kinds])
    return {
        "kinds": words,
        "x": round_values(x, 3),
        "y": round_values(run_scores.surprise[rows], 2),
        "kind": kind.tolist(),
        "alert": run_scores.alert[rows].astype(int).tolist(),
        "line": round(float(run_scores.surprise[run_scores.alert].min()), 3) if run_scores.alert.any() else None,
        "counts": _counts(run_scores),
        "of": len(run_scores.score),
    }


def _counts(run_scores: RunScores) -> dict[str, list[int]]:
    """Events and alerts of each kind."""
    kinds = pa.array(texts(run_scores.table, "kind"), pa.string())
    all_, alerts = (_count(part) for part in (kinds, kinds.filter(pa.array(run_scores.alert))))
    return {kind: [n, alerts.get(kind, 0)] for kind, n in sorted(all_.items())}


def _count(values: pa.Array) -> dict[str, int]:
    return {part["values"]: part["counts"] for part in values.value_counts().to_pylist()}


def calibration(run_scores: RunScores) -> dict[str, Any] | None:
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
        "bins": round_values(bins, 3),
        "n": len(run_scores.p),
    }
