"""What our judge makes of many events, for one, in plain numbers.

In go the raw answers about one event and the facts behind them; out comes its judgement: surprise by question and look,
score, shares and kind, as `AddingJudge.judge` gives them (a test compares them). Arrays of one element cost a hundred
times their arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ustad.distribution import UNSURE, Distribution
from ustad.evidence_source import DOUBT
from ustad.habits.habit_model import HabitFacts
from ustad.scoring.adding_judge import Judgement
from ustad.scoring.looks import Looks
from ustad.ties import highest_of, raised


def judge_one(looks: Looks, about: Mapping[str, str], raw: Mapping[str, float], facts: HabitFacts) -> Judgement:
    """The event judged. `raw` has the doubt beside the answers, where a source says it."""
    names = (name for name in looks.tails if name in raw)
    surprise = {name: _minus_log10_p(looks.tails[name], raw[name]) for name in names}
    heights = {}
    for look, own in looks.weights.items():
        total = sum(weight * surprise[name] for name, weight in own.items() if name in surprise)
        heights[look] = _minus_log10_p(looks.looks[look], float(total))
    shares = _shares(looks, heights, surprise)
    return Judgement(
        {name: np.array([value]) for name, value in surprise.items()},
        {name: np.array([value]) for name, value in heights.items()},
        {name: np.array([value]) for name, value in shares.items()},
        np.array([_minus_log10_p(looks.events, max(heights.values()))]),
        np.array([_find_kind(looks, about, raw, shares, facts=facts)], object),
        about,
        facts.entity_ids,
        facts.entity,
        {},
        (),
    )


def _minus_log10_p(distribution: Distribution, value: float) -> float:
    surprise = -distribution.log10_tail_of(value)
    return surprise if surprise == surprise else 0.0


def _shares(looks: Looks, heights: Mapping[str, float], surprise: Mapping[str, float]) -> dict[str, float]:
    """As `Looks.share`."""
    own = looks.weights[list(heights)[highest_of(list(heights.values()))]]
    parts = {name: own[name] * value if name in own else 0.0 for name, value in surprise.items()}
    total = sum(parts.values())
    return {name: value / total if total > 0 else 0.0 for name, value in parts.items()}


def _find_kind(
    looks: Looks, about: Mapping[str, str], raw: Mapping[str, float], shares: Mapping[str, float], *, facts: HabitFacts
) -> str:
    """As `AddingJudge` with what habits say (`kinds.find_kinds`)."""
    leads = list(shares)[highest_of(list(shares.values()))]
    start, end, most = (bool(facts.unseen[part][0]) for part in ("start", "end", "most"))
    part, comparison = about.get(leads), facts.comparison
    if most or (start and part in ("start", "length")) or (end and part in ("length", "end")):
        return "unobserved"
    if leads == "recurrence" and comparison.count[0] > max(comparison.before[0], 1):
        return "routine"
    if comparison.place[0] < 0:
        return "novel"
    if looks.doubt is not None and DOUBT in raw:
        doubt = looks.doubt.log10_tail_of(raw[DOUBT])
        return "unsure" if (doubt if doubt == doubt else 0.0) <= raised(UNSURE) else "predictable"
    return "predictable"
