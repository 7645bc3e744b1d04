"""Habits as a source of evidence: what they answer about events, the numbers behind it, and the words for it.

In go events and what came before; out come answers, columns of details, sentences, and what is said of entities. A
judge asks; nothing here knows who.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.events.templates import say
from ustad.habits.absence_table import absence_column
from ustad.habits.entity_tests import strongest
from ustad.habits.habit_model import HabitModel, Judged
from ustad.habits.habit_words import sentences
from ustad.habits.kinds import DOUBT, NOISE
from ustad.habits.measurements import expected_columns, fact_columns, numbers_asked
from ustad.schema import EventSchema, plural


@dataclass(frozen=True)
class HabitSource:
    """A habit model that a judge can ask (`scoring/judge.py` has the protocol)."""

    model: HabitModel

    @property
    def schema(self) -> EventSchema:
        return self.model.schema

    @property
    def reference(self) -> int:
        return self.model.events.count

    @property
    def known_until(self) -> int:
        return self.model.habits.last_day

    # ---------------------------------------------------------------------------------------- events
    def ask(
        self, events: pa.Table, context: pa.Table | None, count_days: tuple[int, int], test_days: tuple[int, int]
    ) -> Judged:
        return self.model.judge(events, context, count_days, test_days)

    def measure(self, answers: Judged, events: pa.Table) -> dict[str, np.ndarray]:
        return {**expected_columns(self.model, answers, events), **fact_columns(answers)}

    def numbers(self, answers: Judged, measurements: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        return numbers_asked(self.schema, measurements, answers)

    def uncertainty(self, answers: Judged) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Those of the memory network, in nats."""
        return answers.doubts.get(NOISE), answers.doubts.get(DOUBT)

    def explain(self, answers: Judged, events: pa.Table, rows: np.ndarray) -> list[str]:
        return sentences(self.model, answers, events, rows)

    # -------------------------------------------------------------------------------------- entities
    def explain_entities(self, answers: Judged, worst: Sequence[str | None]) -> list[str | None]:
        """The worst event's reason, after what changed on the whole where that is what makes the entity unusual."""
        events = plural(self.schema.event_word)
        tests = strongest(answers.agents)
        return [
            say(test, events=events, reason=text, change=change)
            if text is not None and (test in ("shift", "profile") or (test == "lasting" and change))
            else text
            for test, text, change in zip(tests, worst, answers.change_words, strict=True)
        ]

    def describe_entities(self, answers: Judged, event_scores: pa.Table) -> dict[str, pa.Array]:
        """The day that a lasting change began on, and a sentence; visits that did not come."""
        changes = answers.changes
        assert changes is not None
        days = pa.array(changes.since.astype(np.int32), mask=changes.told == 0)
        words = pa.array(answers.change_words, pa.string())
        absences = absence_column(self.model, answers, event_scores)
        return {"changed_since": days.cast(pa.date32()), "change": words, **absences}
