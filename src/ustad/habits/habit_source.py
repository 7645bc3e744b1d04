"""Habits as a source of evidence: what they answer about events, the numbers behind it, and the words for it.

In go events with what is known of their entities; out come answers, columns of details, sentences, and what is said of
entities. A judge asks; nothing here knows who.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ustad.events.templates import say
from ustad.events.visits import Frame, HasColumns, Visits, read_visits
from ustad.evidence_source import Answers, Arrays, HistorySource, ModelContent, OneAnswer, SourceFit, Training
from ustad.files import read_table, write_table
from ustad.habits.absence_table import absence_column, tell_absences
from ustad.habits.absences import LEAST_SCALE, judge_visits, may_close
from ustad.habits.exploring import share_remaining
from ustad.habits.habit_model import HabitFacts, HabitModel
from ustad.habits.habit_words import ToldEvent, plain_words, sentences
from ustad.habits.history import Habits
from ustad.habits.kernels import nearest_place
from ustad.habits.kinds import find_kind, find_kinds, unseen_parts
from ustad.habits.lasting import find_changes
from ustad.habits.lasting_words import describe_changes
from ustad.habits.measurements import expected_columns, fact_columns, fact_numbers
from ustad.habits.population import Population
from ustad.habits.profile import profile_change
from ustad.habits.questions import ABOUT, LOOKS, Comparison
from ustad.habits.recurrence import Recurrence
from ustad.habits.stages import HistoryInquiry
from ustad.habits.usual import Usual
from ustad.habits.widths import Widths
from ustad.lessons import Lessons
from ustad.schema import EventSchema, plural

#: The file of the histories in a model directory.
HISTORIES = "habits.parquet"
#: What is measured beside answers: how surprising it is that a nearly certain visit did not come.
ABSENCES = "absences"


@dataclass(frozen=True)
class HabitSource(HabitModel, HistorySource):
    """A habit model that a judge can ask; it keeps the histories for all that are asked."""

    name, looks, about = "habits", LOOKS, ABOUT
    beside: ClassVar = {ABSENCES: LEAST_SCALE}

    @classmethod
    def fit(cls, lessons: Lessons, training: Training) -> SourceFit[HabitSource]:
        source, week, answers = cls.learn(
            lessons.train, lessons.validation, lessons.schema, lessons.calibrates,
            absorb_after=training.config.scoring.absorb_after, days_off=training.days_off,
        )  # fmt: skip
        return SourceFit(source, lambda _: answers, week)

    @classmethod
    def learn(cls, *lessons: Any, **settings: Any) -> tuple[HabitSource, HistoryInquiry, Answers]:
        """As `HabitModel.learn_habits`: the source, the validation week as an inquiry, and what it answers about it."""
        source, week, comparison = cls.learn_habits(*lessons, **settings)
        habits, visits, calibrates = week.history.trained_habits, week.visits, lessons[3]
        profile = profile_change(habits, visits, week.test_days[0])
        expected = source._expect(habits, visits, habits.locate(visits)[1], calibrates[visits.row])
        return source, week, source._answers(week, comparison, profile, expected=expected)

    # ---------------------------------------------------------------------------------------- events
    def answer(self, inquiry: HistoryInquiry) -> Answers:
        visits, (comparison, expected) = inquiry.visits, self.compare_inquiry(inquiry)
        changes = find_changes(self.habits, visits)
        words = describe_changes(self.schema, self.frame, self.habits, visits, changes=changes)
        profile = profile_change(self.habits, visits.take(inquiry.is_event), inquiry.test_days[0])
        more = {"changes": changes, "change_words": words, "expected": expected}
        return self._answers(inquiry, comparison, profile, lasting=changes.evidence, **more)

    def _answers(
        self,
        inquiry: HistoryInquiry,
        comparison: Comparison,
        profile: np.ndarray,
        lasting: np.ndarray | None = None,
        **more: Any,
    ) -> Answers:
        unseen = unseen_parts(inquiry.table, inquiry.visits, self.schema)
        facts = HabitFacts(
            comparison,
            {part: values[inquiry.order] for part, values in unseen.items()},
            inquiry.visits.entity_ids,
            inquiry.entity,
            inquiry.history,
            inquiry.history.end[inquiry.order],
            **more,
        )
        evidence = {"lasting": lasting} if lasting is not None else {}
        beside = {ABSENCES: facts.expected.surprise} if facts.expected is not None else {}
        return Answers(comparison.terms, tests={"profile": profile}, evidence=evidence, beside=beside, facts=facts)

    def find_kinds(self, answers: Answers, leads: np.ndarray, about: np.ndarray) -> np.ndarray:
        return find_kinds(answers.facts.comparison, leads, about, answers.facts.unseen)

    def measure(self, answers: Answers, events: pa.Table) -> dict[str, np.ndarray]:
        return {**expected_columns(self, answers.facts, events), **fact_columns(answers.facts)}

    def numbers(self, schema: EventSchema, answers: Answers, measurements: Arrays) -> dict[str, Arrays]:
        return {**fact_numbers(answers.facts.comparison), **super().numbers(schema, answers, measurements)}

    def find_new(self, answers: Answers) -> np.ndarray:
        comparison = answers.facts.comparison  # a distance is known of who has own places, where there are positions
        answer = comparison.distance if self.frame.projection is not None else comparison.terms["recurrence"]
        return (comparison.before == 0) & np.isfinite(answer)

    def explain(self, answers: Answers, judgement: Any, events: pa.Table, rows: np.ndarray) -> list[str]:
        return sentences(self, answers.facts, judgement, events, rows=rows)

    # -------------------------------------------------------------------------------------- entities
    def explain_entities(self, answers: Answers, tests: np.ndarray, reasons: Sequence[str | None]) -> list[str | None]:
        """The worst event's reason, after what changed on the whole where that is what makes the entity unusual."""
        events = plural(self.schema.event_word)
        return [
            say(test, events=events, reason=text, change=change)
            if text is not None and (test in ("shift", "profile") or (test == "lasting" and change))
            else text
            for test, text, change in zip(tests, reasons, answers.facts.change_words, strict=True)
        ]

    def describe_entities(self, answers: Answers, event_scores: pa.Table, surprises: Arrays) -> dict[str, pa.Array]:
        """The day that a lasting change began on, and a sentence; visits that did not come."""
        changes = answers.facts.changes
        days = pa.array(changes.since.astype(np.int32), mask=changes.told_day == 0)
        words = pa.array(answers.facts.change_words, pa.string())
        absences = absence_column(self, answers.facts, surprises.get(ABSENCES), event_scores)
        return {"changed_since": days.cast(pa.date32()), "change": words, **absences}

    def share_remaining(self, week: HistoryInquiry) -> float:
        first, last = week.count_days
        before = week.history.trained_habits.days
        return share_remaining(before, last - first + 1, self.habits.days, self.absorb_after)

    def name_places(self, stays: pa.Table, radius_m: float) -> list[str | None]:
        names = np.full(stays.num_rows, None, dtype=object)
        if self.frame.projection is not None and self.frame.categories:
            h, visits = self.habits, read_visits(stays, self.schema, self.frame)
            place, km = nearest_place(h.owners(visits), visits.x, visits.y, h.place_offsets, h.place_x, h.place_y)
            code = np.where(km <= radius_m / 1000.0, np.append(h.place_category, 0)[place], 0)
            names[visits.row] = np.array([None, *self.frame.categories], dtype=object)[code]
        return names.tolist()

    # ------------------------------------------------------------------------------ one event at a time
    def find_unseen(self, event: HasColumns, visits: Visits) -> dict[str, np.ndarray]:
        """What was not observed of each visit, see `kinds.unseen_parts`."""
        return unseen_parts(event, visits, self.schema)

    def find_kind(self, answer: OneAnswer, lead: str, about: str | None) -> str | None:
        return find_kind(answer.facts.comparison, lead, about, answer.facts.unseen)

    def explain_one(
        self, event: ToldEvent, visits: Visits, *, kind: str | None, usual_visits: Usual, at: int = 0
    ) -> str:
        """A sentence for the event `at` an index; `kind` is the word for its place."""
        return plain_words(self, event, visits, at=at, kind=kind, usual_visits=usual_visits)

    def describe_change(self, visits: Visits, since: int) -> str | None:
        """How the days of the only entity go on differently for good, where they do; `since` is the last day of its
        trained history."""
        changes = find_changes(self.habits, visits, since)
        return describe_changes(self.schema, self.frame, self.habits, visits, changes=changes)[0]

    def may_miss(self, known_until: float, end: float) -> bool:
        """Whether the time of a nearly certain visit of the only entity can have passed, see `absences.may_close`."""
        return may_close(self.habits, known_until, end)

    def tell_missed(
        self, visits: Visits, event: Callable[[], pa.Table], calibrate: Callable[[np.ndarray], np.ndarray]
    ) -> list[dict[str, Any]]:
        """Rows for the nearly certain visits of the only entity that did not come and whose time has passed with the
        last of its `visits`, which is the `event`. `calibrate` makes -log10 p of how surprising that is."""
        last = np.arange(len(visits)) == len(visits) - 1
        expected = judge_visits(self.habits, visits, self.habits.locate(visits)[1], last)
        if not expected.surprise.any():
            return []
        not_there = expected.of_rows(last.astype(np.int64) - 1)
        return tell_absences(self, not_there, calibrate(not_there.surprise), event())[1].to_pylist()

    # --------------------------------------------------------------------------------------- storing
    def save(self, place: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        write_table(self.habits.to_table(self.schema.entity), place / HISTORIES)
        tensors = {f"population.{field.name}": getattr(self.population, field.name) for field in fields(Population)}
        tensors |= {"widths.kind": self.widths.by_kind, "widths.visits": self.widths.by_visits}
        return tensors, {"frame": self.frame.to_dict(), "recurrence": list(astuple(self.recurrence))}

    @classmethod
    def load(cls, content: ModelContent) -> HabitSource:
        """Models of earlier versions lack widths."""
        tensors, file, plain = content.arrays, content.place / HISTORIES, astuple(Widths.plain(1))
        return cls(
            content.encoder.schema,
            Frame.from_dict(content.facts["frame"]),
            _read_population(tensors),
            Recurrence(*content.facts["recurrence"]),
            Habits.from_table(read_table(file) if content.whole else pq.read_schema(file).empty_table()),
            absorb_after=content.config.scoring.absorb_after,
            widths=Widths(*(tensors.get(f"widths.{n}", one) for n, one in zip(("kind", "visits"), plain, strict=True))),
        )


def _read_population(tensors: Mapping[str, np.ndarray]) -> Population:
    """Models of before do not tell seldom visited places from others, and know no first visits. Some ask nothing about
    ends: any is as usual as another there."""
    start, duration = tensors["population.start"], tensors["population.duration"]
    end = tensors.get("population.end", np.full_like(start, 1 / 1440.0))
    if "population.new_kind" in tensors:
        return Population(start, duration, end, tensors["population.new_kind"])
    start, duration, end = (np.stack([one, one]) for one in (start, duration, end))
    return Population(start, duration, end, np.ones(duration.shape[1]))
