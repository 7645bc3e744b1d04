"""Own values one event at a time: the same answers, from a table of the event and the one before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ustad.evidence_source import OneAnswer

if TYPE_CHECKING:
    from ustad.own_values.value_source import ValueSource

Row = Mapping[str, Any]


class LiveValues:
    """Answers about newest events. All that it keeps of an entity is the latest event before going live."""

    most_events = 1

    def __init__(self, source: ValueSource) -> None:
        self.source = source

    def start(self, history: Any, before: pa.Table | None) -> Row | None:
        """The event before the first one that is asked about, where it is known."""
        return before.slice(before.num_rows - 1).to_pylist()[0] if before is not None and before.num_rows else None

    def ask_row(self, window: Row | None, rows: Sequence[Row], visits: Any, place: int, *, table: Any) -> OneAnswer:
        *before, row = rows if len(rows) > 1 or window is None else (window, *rows)
        answers = self.source.answer_events(table([row]), table(before) if before else None)
        columns = self.source.measure(answers, None)
        numbers = self.source.numbers(self.source.schema, answers, {})
        return OneAnswer(
            {name: float(values[0]) for name, values in answers.raw.items()},
            facts=answers.facts,
            columns={name: values[0] for name, values in columns.items()},
            numbers={name: {what: v[0] for what, v in values.items()} for name, values in numbers.items()},
            explain=partial(self.source.explain_row, answers.facts, row=0),
        )

    def find_kind(self, answer: OneAnswer, lead: str, about: str | None) -> str | None:
        if lead not in answer.facts:
            return None
        same = answer.facts[lead].same
        return "novel" if same is not None and same[0] == 0 else "predictable"

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()
