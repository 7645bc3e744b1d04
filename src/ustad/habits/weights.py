"""How much each term counts in its look: one each, or chosen on anomalies injected into the validation week.

In go calibrated terms of normal and of injected events; out come weights by look and term. Each weight in turn is set
to what finds the injected events best (average precision, mean over their kinds); labels of a test period are never
seen. A weight leaves one only where that helps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from ustad.distribution import Distribution
from ustad.ties import descending, raised

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
Weighing = Literal["unit", "injected"]
CHOICES = (0.0, 0.5, 2.0)
#: A choice has to be this much better than what stands.
BETTER = 0.005
ROUNDS = 2


def unit_weights(silence: bool = False) -> Weights:
    """One for every term of every look, with that of `silence` where asked for."""
    looks = {**LOOKS, **(SILENCE if silence else {})}
    return {look: dict.fromkeys(terms, 1.0) for look, terms in looks.items()}


def look_sum(surprise: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> np.ndarray:
    """Weighted sum of the terms of a look that are there: float64 [N]."""
    parts = [weight * surprise[name] for name, weight in weights.items() if name in surprise]
    return np.sum(parts, axis=0) if parts else np.zeros(len(next(iter(surprise.values()))))


def choose_weights(
    normal: Mapping[str, np.ndarray], injected: Mapping[str, np.ndarray], kinds: np.ndarray, silence: bool = False
) -> Weights:
    """From terms of the clean week [N] and of the injected one [M]; `kinds` [M] says what was done ("" nothing)."""
    weights = unit_weights(silence)
    parts = {look: _look(normal, injected, own) for look, own in weights.items()}
    best = _mean_precision(parts, kinds)
    for _ in range(ROUNDS):
        before = best
        for look, own in weights.items():
            for term in [name for name in own if name in normal]:
                for choice in CHOICES:
                    trial = {**own, term: choice}
                    if not any(weight for name, weight in trial.items() if name in normal):
                        continue
                    value = _look(normal, injected, trial)
                    precision = _mean_precision({**parts, look: value}, kinds)
                    if precision > raised(best + BETTER):
                        best, parts[look], weights[look] = precision, value, trial
                        own = trial
        if best == before:
            break
    return weights


def _look(normal: Mapping[str, np.ndarray], injected: Mapping[str, np.ndarray], own: Mapping[str, float]) -> np.ndarray:
    """-log10 p of a look of the injected events, by the clean ones."""
    return -Distribution.fit(look_sum(normal, own)).log10_tail(look_sum(injected, own))


def _mean_precision(parts: Mapping[str, np.ndarray], kinds: np.ndarray) -> float:
    """Mean over the kinds of the average precision with which their events are found."""
    highest = np.max(list(parts.values()), axis=0)
    present = [kind for kind in np.unique(kinds.astype(str)) if kind]
    return float(np.mean([_precision(highest, kinds, kind) for kind in present])) if present else 0.0


def _precision(score: np.ndarray, kinds: np.ndarray, kind: str) -> float:
    """Average precision of one kind against untouched events."""
    rows = (kinds == kind) | (kinds == "")
    truth = (kinds[rows] == kind)[descending(score[rows])]
    hits = np.cumsum(truth)
    return float((hits[truth] / (np.flatnonzero(truth) + 1)).mean()) if truth.any() else 0.0
