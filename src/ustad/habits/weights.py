"""Looks: which terms are added up, and how much each counts in its look. Every term counts once.

Models of 0.2 may hold other weights, which are read with them and used.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

#: Terms that are added up, by look. `memory_…` are there only with the memory network.
LOOKS: dict[str, tuple[str, ...]] = {
    "visit": (
        "recurrence",
        "distance",
        "start",
        "duration",
        "elsewhere",
        "memory_place",
        "memory_start",
        "memory_duration",
    ),
    "stay": ("duration",),
    "start": ("start",),
    "elsewhere": ("elsewhere",),
}
#: The look that `scoring.silence` adds.
SILENCE = {"silence": ("silence",)}
Weights = dict[str, dict[str, float]]


def unit_weights(silence: bool = False) -> Weights:
    """One for every term of every look, with that of `silence` where asked for."""
    looks = {**LOOKS, **(SILENCE if silence else {})}
    return {look: dict.fromkeys(terms, 1.0) for look, terms in looks.items()}


def look_sum(surprise: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> np.ndarray:
    """Weighted sum of the terms of a look that are there: float64 [N]."""
    parts = [weight * surprise[name] for name, weight in weights.items() if name in surprise]
    return np.sum(parts, axis=0) if parts else np.zeros(len(next(iter(surprise.values()))))
