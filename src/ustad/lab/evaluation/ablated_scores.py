"""The paper's event score from some of its parts alone: losses, distances, errors or uncertainties."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ustad.distribution import Distribution, Ranks, Tail
from ustad.scoring.calibration import Parts, apply_tails, highest

Ablation = Literal["loss_knn", "loss", "knn", "pe", "eu", "pe_au_eu"]
ABLATIONS: tuple[Ablation, ...] = ("loss_knn", "loss", "knn", "pe", "eu", "pe_au_eu")


def combine(parts: Parts, how: Ablation = "loss_knn", reference: Parts | None = None) -> np.ndarray:
    """The event score: −log₁₀ of the smallest tail share among its columns: float64 [n], never NaN.

    It rises with the paper's AS(e) = max of percentiles (AS = 1 − 10^−score). Tail shares are ranks within `parts` (the
    paper), none smaller than 1 in n, or against a reference (calibrated), where a fitted tail goes on below that.
    Missing columns are left out.
    """
    return highest(log10_tails(parts, how, reference))


def log10_tails(parts: Parts, how: Ablation = "loss_knn", reference: Parts | None = None) -> np.ndarray:
    columns = pick_columns(parts, how)
    normal = columns if reference is None else pick_columns(reference, how)
    tails: list[Tail] = [Ranks.of(c) if reference is None else Distribution.fit(c) for c in normal.T]
    return apply_tails(tails, columns)


def pick_columns(parts: Parts, how: Ablation) -> np.ndarray:
    """The columns whose highest percentile is the score: [n, columns]."""
    return {
        "loss_knn": lambda: parts.columns,
        "loss": lambda: parts.loss,
        "knn": lambda: parts.knn[:, None],
        "pe": lambda: parts.error,
        "eu": lambda: parts.eu,
        "pe_au_eu": lambda: parts.error + parts.au + parts.eu,
    }[how]()
