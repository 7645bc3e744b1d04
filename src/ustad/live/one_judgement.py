"""What our judge makes of many events, for one, in plain numbers.

In goes what each source says of one event; out comes its judgement: surprise by question and look,
score, shares and kind, as `AddingJudge.judge` gives them (a test compares them). Arrays of one element cost a hundred
times their arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ustad.distribution import UNSURE, Distribution
from ustad.evidence_source import KindFinder, OneAnswer
from ustad.habits.habit_model import HabitFacts
from ustad.habits.habit_words import ToldEvent
from ustad.habits.measurements import fact_numbers
from ustad.habits.one_comparison import compare_alone, usual_alone, usual_row
from ustad.live.prepared_event import LiveEvent
from ustad.scoring.adding_judge import SMALLEST, first_known, join_sentences
from ustad.scoring.evidence import evidence_of_one
from ustad.scoring.looks import Looks
from ustad.ties import highest_of, raised

if TYPE_CHECKING:
    from ustad.live.habit_live import HabitLive

#: Who said something of an event, and what.
Replies = Sequence[tuple[KindFinder, OneAnswer]]


def judge_alone(live: HabitLive, events: Sequence[LiveEvent]) -> list[dict[str, Any]]:
    """Rows of the events, each by itself."""
    return [_judge_event(live, event) for event in events]


def _judge_event(live: HabitLive, event: LiveEvent) -> dict[str, Any]:
    history, habits, visits = live.history, event.habits, event.visits
    features = live.features_in(event.row)
    comparison = compare_alone(
        habits, history.population, history.recurrence, visits, since=event.since, count=event.count,
        place_and_key=(event.place, event.key), earlier=event.earlier,
    )  # fmt: skip
    facts = HabitFacts(comparison, event.unseen, visits.entity_ids, np.zeros(1, np.int64))
    raw = {name: float(values[0]) for name, values in comparison.terms.items()}
    answers = [OneAnswer(raw, facts=facts), *event.answers]
    replies = tuple(zip((history, *live.others), answers, strict=True))
    judgement = judge_one(live.looks, live.about, replies)
    usual_visits = usual_alone(habits, visits, event.place, history.widths)
    usual_facts = usual_row(habits, history.frame, history.schema, features, visits=visits, usual_visits=usual_visits)
    score, distance = judgement.score, float(comparison.distance[0])
    p_value = 10.0 ** -min(score, SMALLEST)
    names = (history.schema.entity, history.schema.time, history.schema.event_id)
    row = {
        **{c: event.row[c] for c in names if c in event.row},
        "final": True,
        "visits_now": int(comparison.count[0]),
        "km_from_own_places": distance if math.isfinite(distance) else None,
        "new_place": bool(comparison.place[0] < 0),
        "at_home": event.history.is_home(int(comparison.place[0])),
        "uncertainty_noise": plain_value(first_known(one.noise for one in answers)),
        "uncertainty_model": plain_value(first_known(one.doubt for one in answers)),
        **{name: plain_value(value) for name, value in usual_facts.items()},
        **{name: plain_value(value) for answer in event.answers for name, value in answer.columns.items()},
        "kind": judgement.kind,
        "evidence": _evidence(live, judgement, facts, usual_facts, answers=event.answers),
        "score": score,
        "p_value": p_value,
        "alert": p_value <= raised(live.p_value, floor=0.0),
        "reason": None,
    }
    if live.reasons == "all" or (live.reasons == "flagged" and row["alert"]):
        kind = features[0]
        word = event.row[kind.columns[0]] if kind is not None else None
        told_event = ToldEvent.by_shares(comparison, 0, judgement.shares, live.about, kind=judgement.kind)
        reason = event.history.explain_one(told_event, visits, kind=word, usual_visits=usual_visits)
        row["reason"] = add_sentences(reason, answers, judgement.shares)
    row |= {"absences": event.absences} if event.absences else {}
    return row if event.change is None else {**row, "change": event.change}


def _evidence(
    live: HabitLive,
    judgement: OneJudgement,
    facts: HabitFacts,
    usual_facts: Mapping[str, Any],
    *,
    answers: Sequence[OneAnswer],
) -> list[dict[str, Any]]:
    numbers: dict[str, Mapping[str, Any]] = {
        question: {what: float(values[0]) for what, values in own.items()}
        for question, own in fact_numbers(facts.comparison).items()
    }
    for question, names in live.number_columns.items():
        numbers[question] = {what: usual_facts[name] for what, name in names.items() if name in usual_facts}
    return evidence_of_one(judgement.surprise, judgement.shares, {**numbers, **join_numbers(answers)})


def join_numbers(answers: Iterable[OneAnswer]) -> dict[str, Mapping[str, Any]]:
    """By question the numbers that the other sources give."""
    return {question: numbers for answer in answers for question, numbers in answer.numbers.items()}


def add_sentences(reason: str, answers: Sequence[OneAnswer], shares: Mapping[str, float]) -> str | None:
    """A reason with what the other sources say; the first of the answers is that of habits."""
    lead = list(shares)[highest_of(list(shares.values()))]
    parts = [(answer.raw, answer.explain(shares)) for answer in answers[1:] if answer.explain is not None]
    return join_sentences(lead, [(answers[0].raw, reason), *parts])


def plain_value(value: Any) -> Any:
    """A word, or a number that is None where it is missing."""
    if value is None or isinstance(value, str):
        return value
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class OneJudgement:
    """As `Judgement`, of one event."""

    surprise: dict[str, float]
    shares: dict[str, float]
    score: float
    kind: str


def judge_one(looks: Looks, about: Mapping[str, str], replies: Replies) -> OneJudgement:
    """The event judged. `replies` is in the order of the judge's sources."""
    raw = {name: value for _, answer in replies for name, value in answer.raw.items()}
    names = (name for name in looks.tails if name in raw)
    surprise = {name: _minus_log10_p(looks.tails[name], raw[name]) for name in names}
    heights = {}
    for look, own in looks.weights.items():
        total = sum(weight * surprise[name] for name, weight in own.items() if name in surprise)
        heights[look] = _minus_log10_p(looks.looks[look], float(total))
    shares = _shares(looks, heights, surprise)
    score = looks.weigh_highest(max(heights.values()))
    return OneJudgement(surprise, shares, score, _find_kind(looks, about, shares, replies))


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
