"""What bulk scoring by habits makes of many events, for one, in plain numbers.

In go the raw terms of one event and the facts behind them; out comes its judgement: surprise by term and look, score,
shares and kind, as `HabitModel.weigh`, `driven` and `calibrated` give them (a test compares them). Arrays of one
element cost a hundred times their arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ustad.distribution import UNSURE, Distribution
from ustad.habits.habit_model import HabitModel, Judged
from ustad.habits.kinds import DOUBT, LENGTHS, NOISE, STARTS
from ustad.habits.questions import Compared
from ustad.ties import highest_of, raised


def judge_one(
    model: HabitModel,
    compared: Compared,
    raw: Mapping[str, float],
    unseen: Mapping[str, np.ndarray],
    entity: np.ndarray,
) -> Judged:
    """The event judged; `entity` [1] is whose it is."""
    asked = (name for name in model.tails if name != DOUBT and name in raw)
    surprise = {name: _minus_log10_p(model.tails[name], raw[name]) for name in asked}
    looks = {}
    for look, own in model.weights.items():
        total = sum(weight * surprise[name] for name, weight in own.items() if name in surprise)
        looks[look] = _minus_log10_p(model.looks[look], float(total))
    shares = _shares(model, looks, surprise)
    return Judged(
        {name: np.array([value]) for name, value in surprise.items()},
        {name: np.array([value]) for name, value in looks.items()},
        np.array([_minus_log10_p(model.events, max(looks.values()))]),
        compared,
        entity,
        np.zeros(1, np.int64),
        {},
        {name: np.array([value]) for name, value in shares.items()},
        np.array([_kind(model, compared, raw, shares, unseen=unseen)], object),
        {name: np.array([raw[name]]) for name in (DOUBT, NOISE) if name in raw},
    )


def _minus_log10_p(distribution: Distribution, value: float) -> float:
    surprise = -distribution.log10_tail_of(value)
    return surprise if surprise == surprise else 0.0


def _shares(model: HabitModel, looks: Mapping[str, float], surprise: Mapping[str, float]) -> dict[str, float]:
    """As `kinds.driving_shares`."""
    own = model.weights[list(looks)[highest_of(list(looks.values()))]]
    parts = {name: own[name] * value if name in own else 0.0 for name, value in surprise.items()}
    total = sum(parts.values())
    return {name: value / total if total > 0 else 0.0 for name, value in parts.items()}


def _kind(
    model: HabitModel,
    compared: Compared,
    raw: Mapping[str, float],
    shares: Mapping[str, float],
    *,
    unseen: Mapping[str, np.ndarray],
) -> str:
    """As `kinds.kinds`."""
    leads = list(shares)[highest_of(list(shares.values()))]
    start, end, most = (bool(unseen[part][0]) for part in ("start", "end", "most"))
    if most or (start and leads in (*STARTS, *LENGTHS)) or (end and leads in LENGTHS):
        return "unobserved"
    if leads == "recurrence" and compared.count[0] > max(compared.before[0], 1):
        return "routine"
    if compared.place[0] < 0:
        return "novel"
    if DOUBT in model.tails and DOUBT in raw:
        doubt = model.tails[DOUBT].log10_tail_of(raw[DOUBT])
        return "unsure" if (doubt if doubt == doubt else 0.0) <= raised(UNSURE) else "predictable"
    return "predictable"
