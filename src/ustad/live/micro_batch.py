"""Events that came together, compared and judged at once: what `HabitLive.update` does for one, for many.

In go events that were prepared one after the other (read, their histories moved on, their places counted); out come
their rows. The numbers are those of one at a time: a row does not depend on who stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ustad.events.one_visit import RowColumns
from ustad.events.visits import Visits, kind_feature
from ustad.evidence_source import Answers, OneAnswer, expected_numbers
from ustad.habits.habit_model import HabitFacts
from ustad.habits.habit_source import HabitSource
from ustad.habits.habit_words import ToldEvent
from ustad.habits.history import Habits
from ustad.habits.leaving import Left
from ustad.habits.questions import compare
from ustad.habits.side_by_side import side_by_side
from ustad.habits.usual import usual, usual_columns
from ustad.live.one_judgement import add_sentences, join_numbers, plain_value
from ustad.live.prepared_event import LiveEvent
from ustad.scoring.adding_judge import Judgement, first_known, p_values
from ustad.scoring.evidence import evidence_of_one
from ustad.scoring.judge import find_leads, last_kinds
from ustad.ties import raised

if TYPE_CHECKING:
    from ustad.live.habit_live import HabitLive

_BY_ENTITY = ("entity_ids", "entity_key", "entity", "row", "days_off")
_BY_VISIT = tuple(field.name for field in fields(Visits) if field.name not in _BY_ENTITY)


def judge_together(live: HabitLive, events: Sequence[LiveEvent]) -> list[dict[str, Any]]:
    """Rows of the events, in their order."""
    rows: list[dict[str, Any]] = [{}] * len(events)
    for group in _groups(events):
        for i, row in zip(group, _judge_group(live, [events[i] for i in group]), strict=True):
            rows[i] = row
    return rows


def _groups(events: Sequence[LiveEvent]) -> list[list[int]]:
    """Events whose histories end on one day, each entity with one history, and that have the same columns."""
    groups: dict[Any, list[int]] = {}
    versions: dict[Any, list[Habits]] = {}
    for i, event in enumerate(events):
        habits = event.habits
        kind = (
            habits.first_day,
            habits.last_day,
            event.since,
            tuple(event.row),
            tuple(tuple(one.raw) for one in event.answers),
        )
        own = versions.setdefault((kind, event.visits.entity_ids[0]), [])
        if not any(one is habits for one in own):
            own.append(habits)
        version = next(n for n, one in enumerate(own) if one is habits)
        groups.setdefault((kind, version), []).append(i)
    return list(groups.values())


def _judge_group(live: HabitLive, events: Sequence[LiveEvent]) -> list[dict[str, Any]]:
    history, columns = live.history, RowColumns(events[0].row)
    visits = join_visits([event.visits for event in events])
    habits = side_by_side(list({id(event.habits): event.habits for event in events}.values()))
    own_history = replace(history, habits=habits)
    place = np.array([event.place for event in events])
    if len(habits.place_key):
        place = np.where(place >= 0, place + habits.place_offsets[:-1][habits.owners(visits)], -1)
    comparison = compare(
        habits, history.population, history.recurrence, visits, period=(events[0].since, 0), counting="past",
        counts=np.array([event.count for event in events]),
        places=(place, np.array([event.key for event in events], np.uint64)),
        left=_ask_left(own_history, [event.earlier for event in events]),
    )  # fmt: skip
    unseen = {part: np.concatenate([event.unseen[part] for event in events]) for part in events[0].unseen}
    facts = HabitFacts(comparison, unseen, visits.entity_ids, visits.entity)
    judgement = _judge(live, comparison.terms, facts, events)
    usual_visits = usual(habits, visits, comparison.place, history.widths)
    usual_facts = usual_columns(
        habits, history.frame, history.schema, columns, visits=visits, usual_visits=usual_visits
    )
    numbers: dict[str, Mapping[str, np.ndarray]] = dict(
        history.numbers(history.schema, Answers({}, facts=facts), usual_facts)
    )
    if live.others:
        numbers |= expected_numbers(history.schema, usual_facts, live.others_about)
    evidence = _evidence(judgement, numbers, events)
    scores, p_value = judgement.score.tolist(), p_values(judgement.score)
    alert = (p_value <= raised(live.p_value, floor=0.0)).tolist()
    parts = {
        "visits_now": comparison.count.tolist(),
        "km_from_own_places": _plain(comparison.distance),
        "new_place": (comparison.place < 0).tolist(),
        "at_home": [own_history.is_home(place) for place in comparison.place.tolist()],
        "uncertainty_noise": _plain(_first_known([[one.noise for one in event.answers] for event in events])),
        "uncertainty_model": _plain(_doubt(events)),
        **{name: _plain(values) for name, values in usual_facts.items()},
        "kind": [str(kind) for kind in judgement.kind],
        "evidence": evidence,
        "score": scores,
        "p_value": p_value.tolist(),
        "alert": alert,
    }
    names = [c for c in (history.schema.entity, history.schema.time, history.schema.event_id) if c in events[0].row]
    kind = kind_feature(columns, history.schema)
    rows = []
    for i, (event, values) in enumerate(zip(events, zip(*parts.values(), strict=True), strict=True)):
        row = {**{c: event.row[c] for c in names}, "final": True, **dict(zip(parts, values, strict=True))}
        row |= {name: plain_value(value) for one in event.answers for name, value in one.columns.items()}
        row["reason"] = None
        if live.reasons == "all" or (live.reasons == "flagged" and alert[i]):
            word = event.row[kind.columns[0]] if kind is not None else None
            told_event = ToldEvent.of(comparison, judgement, i)
            reason = own_history.explain_one(told_event, visits, kind=word, usual_visits=usual_visits, at=i)
            answers = [OneAnswer(dict.fromkeys(comparison.terms, 0.0)), *event.answers]
            shares = {name: float(values[i]) for name, values in judgement.shares.items()}
            row["reason"] = add_sentences(reason, answers, shares)
        row |= {"absences": event.absences} if event.absences else {}
        rows.append(row if event.change is None else {**row, "change": event.change})
    return rows


def _ask_left(history: HabitSource, earlier: Sequence[Visits | None]) -> Left:
    """How the visits before N visits were left, of each the one that is known."""
    is_known = np.array([one is not None for one in earlier])
    if not is_known.any():
        return Left.unknown(len(earlier))
    before = np.where(is_known, np.cumsum(is_known) - 1, -1)
    visits = join_visits([one for one in earlier if one is not None])
    return Left.ask(history.habits, history.population, visits, before)


def join_visits(visits: Sequence[Visits]) -> Visits:
    """Visits of one entity each, behind one another; entities in the order in which they come."""
    first = {one.entity_ids[0]: one for one in reversed(visits)}
    code = {entity: i for i, entity in enumerate(first)}
    ids = np.empty(len(first), object)
    ids[:] = list(first)
    by_visit: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in visits]) for name in _BY_VISIT}
    return replace(
        visits[0],
        entity_ids=ids,
        entity_key=np.concatenate([one.entity_key for one in first.values()]),
        entity=np.array([code[one.entity_ids[0]] for one in visits]),
        row=np.arange(len(visits)),
        **by_visit,
    )


def _judge(
    live: HabitLive, terms: Mapping[str, np.ndarray], facts: HabitFacts, events: Sequence[LiveEvent]
) -> Judgement:
    """As `judge_one`, of many."""
    answers = {
        name: np.array([event.answers[n].raw[name] for event in events])
        for n, one in enumerate(events[0].answers)
        for name in one.raw
    }
    surprise, looks, score = live.looks.weigh({**terms, **answers})
    shares = live.looks.share(looks, surprise)
    leads = find_leads(shares)
    about = np.array([live.about.get(name) for name in leads], dtype=object)
    kinds = [live.history.find_kinds(Answers({}, facts=facts), leads, about)]
    for n, one in enumerate(live.others):
        own = [one.find_kind(event.answers[n], *lead) for event, *lead in zip(events, leads, about, strict=True)]
        kinds.append(np.array(own, dtype=object))
    kind = last_kinds(kinds, live.looks.is_unsure(_doubt(events), len(events)))
    return Judgement(surprise, looks, shares, score, kind, live.about, facts.entity_ids, facts.entity, {}, ())


def _doubt(events: Sequence[LiveEvent]) -> np.ndarray:
    return _first_known([[one.doubt for one in event.answers] for event in events])


def _first_known(values: Sequence[Sequence[float | None]]) -> np.ndarray:
    """Of each event what the first source says that says it, NaN where none does."""
    first_values = (first_known(of_event) for of_event in values)
    return np.array([np.nan if value is None else value for value in first_values], np.float64)


def _evidence(
    judgement: Judgement, numbers: Mapping[str, Mapping[str, np.ndarray]], events: Sequence[LiveEvent]
) -> list[list[dict[str, Any]]]:
    """The evidence of each event."""
    surprise, share = (
        [dict(zip(values, line, strict=True)) for line in np.stack(list(values.values()), axis=1).tolist()]
        for values in (judgement.surprise, judgement.shares)
    )
    plain = {name: {what: v.tolist() for what, v in values.items()} for name, values in numbers.items()}
    return [
        evidence_of_one(
            surprise[i],
            share[i],
            {
                **{n: {what: v[i] for what, v in values.items()} for n, values in plain.items()},
                **join_numbers(events[i].answers),
            },
        )
        for i in range(len(surprise))
    ]


def _plain(values: np.ndarray) -> list[Any]:
    """Words as they are, numbers or None where they are missing."""
    if values.dtype == object:
        return values.tolist()
    return [value if is_finite else None for value, is_finite in zip(
        values.astype(np.float64).tolist(), np.isfinite(values).tolist(), strict=True
    )]  # fmt: skip
