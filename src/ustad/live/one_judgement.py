"""What our judge makes of many events, for one, in plain numbers.

In goes what each source says of one event; out comes its judgement: surprise by question and look,
score, shares and kind, as `AddingJudge.judge` gives them (a test compares them). Arrays of one element cost a hundred
times their arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ustad.distribution import UNSURE, Distribution
from ustad.evidence_source import KindFinder, OneAnswer
from ustad.scoring.adding_judge import Judgement
from ustad.scoring.looks import Looks
from ustad.ties import highest_of, raised

#: Who said something of an event, and what.
Replies = Sequence[tuple[KindFinder, OneAnswer]]


def judge_one(looks: Looks, about: Mapping[str, str], replies: Replies, entity_ids: np.ndarray) -> Judgement:
    """The event judged, of the only entity. `replies` is in the order of the judge's sources."""
    raw = {name: value for _, answer in replies for name, value in answer.raw.items()}
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
        np.array([_find_kind(looks, about, shares, replies)], object),
        about,
        entity_ids,
        np.zeros(1, np.int64),
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


def _find_kind(looks: Looks, about: Mapping[str, str], shares: Mapping[str, float], replies: Replies) -> str:
    """As `AddingJudge`: the last source that has a word for it, else whether what was expected is in doubt."""
    lead = list(shares)[highest_of(list(shares.values()))]
    for source, answer in reversed(replies):
        kind = source.find_kind(answer, lead, about.get(lead))
        if kind is not None:
            return kind
    doubt = first_known(answer.doubt for _, answer in replies)
    if looks.doubt is None or doubt is None:
        return "predictable"
    tail = looks.doubt.log10_tail_of(doubt)
    return "unsure" if (tail if tail == tail else 0.0) <= raised(UNSURE) else "predictable"


def first_known(values: Iterable[float | None]) -> float | None:
    """What the first source says that says it."""
    return next((value for value in values if value is not None), None)
