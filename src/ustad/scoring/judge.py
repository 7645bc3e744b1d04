"""The judge: all that the rest of the house knows of how scores come about.

A judge asks its sources of evidence (habits, a network) about events and turns the answers into scores, kinds, reasons
and scores of entities. Scoring runs any judge, in memory, in parts or on a cluster, and never asks which one it is;
only fitting, loading and live scoring choose. There are two: `adding_judge` adds surprises up, `paper_judge` takes the
paper's highest percentile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from ustad.dataset import event_days
from ustad.distribution import Tail
from ustad.evidence_source import Answers, Source
from ustad.schema import EventSchema
from ustad.scoring.alerts import AlertRule
from ustad.scoring.incidents import Count
from ustad.ties import first_highest, tied_ranks

Reasons = Literal["flagged", "all", "none"]


@dataclass(frozen=True)
class Request:
    """What somebody asks of a run."""

    rule: AlertRule = AlertRule()
    reasons: Reasons = "flagged"
    coverage: float | None = None  # prediction intervals that hold so large a share of normal events
    details: bool = False  # what was measured of every event, not only of those of incidents

    @classmethod
    def of(cls, rule: AlertRule | None, reasons: Reasons, coverage: float | None, details: bool) -> Request:
        """Intervals are measured of every event, so they are details of every event."""
        return cls(rule or AlertRule(), reasons, coverage, details or coverage is not None)


@dataclass(frozen=True)
class Span:
    """Local days (since 1970-01-01) that rest on all events, so that no part is judged otherwise than the whole."""

    first: int  # of the scored events
    last: int
    counted_days: tuple[int, int]  # in which visits are counted: those of context that no history holds, too

    @property
    def days(self) -> int:
        return self.last - self.first + 1

    @classmethod
    def of(cls, events: pa.Table, context: pa.Table | None, schema: EventSchema, known_until: int | None) -> Span:
        days = event_days(events, schema)
        before = event_days(context, schema) if context is not None and known_until is not None else days[:0]
        return cls.between(int(days.min()), int(days.max()), before[before > (known_until or 0)])

    @classmethod
    def between(cls, first: int, last: int, context_days: Iterable[int]) -> Span:
        """Of the first and last scored day and the days of counted context."""
        every = [first, last, *(int(day) for day in context_days)]
        return cls(first, last, (min(every), max(every)))


class Judge(Protocol):
    """Sources of evidence and a rule."""

    @property
    def schema(self) -> EventSchema: ...

    @property
    def sources(self) -> tuple[Source, ...]: ...

    @property
    def reference(self) -> int:
        """How many normal events the p-values rest on."""

    @property
    def known_until(self) -> int | None:
        """The last day of the entities' histories, where it has any."""

    @property
    def ranked_columns(self) -> tuple[str, ...]:
        """Measurements whose ranks among all scored events make the scores; none where a reference does."""

    @property
    def counts(self) -> tuple[Count, ...]:
        """How many incidents unusual events of normal people make; nothing where that was not counted."""

    def measure(
        self, events: pa.Table, context: pa.Table | None, span: Span, request: Request
    ) -> tuple[pa.Table, pa.Table | None]:
        """What does not depend on other entities: events with what was measured (`score_table.add_measurements`), and
        the entities' scores where these are known already."""

    def stand(self, ranks: Sequence[Tail] | None) -> Any:
        """How measurements become scores: by these ranks, or by the judge's own reference."""

    def settle(self, measurements: pa.Table, standing: Any) -> pa.Table:
        """With score, p-value, kind and incident, where they were not known before."""

    def tell(
        self, event_scores: pa.Table, agents: pa.Table | None, standing: Any, *, span: Span, request: Request
    ) -> tuple[pa.Table, pa.Table]:
        """With reasons, once `alert` is known, and the scores of the entities."""

    def knows(self, entities: np.ndarray) -> np.ndarray:
        """Hashes of the entities of which something is kept; all of these where that cannot be told."""

    def forget(self, entities: Sequence[Any]) -> Judge:
        """Without what is kept of some entities."""

    def facts(self) -> dict[str, Any]:
        """What is said of it beside its training, for `facts.json` and the card."""

    def name_places(self, stays: pa.Table, radius_m: float) -> Sequence[str | None]:
        """The kind of each entity's nearest own place within the radius, None where none is known."""

    def with_histories(self, table: pa.Table) -> Judge:
        """The same with these histories of entities alone, where it has any."""

    def save(self, place: Path) -> None:
        """Its files into a model directory."""


def find_leads(weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """The question that weighs most in each event, of equal ones the first: object [N]."""
    return np.array(list(weights), dtype=object)[first_highest(list(weights.values()))]


def find_kinds(
    sources: Sequence[Source], answers: Sequence[Answers], leads: np.ndarray, is_unsure: np.ndarray
) -> np.ndarray:
    """What sort of unusual each event is: what the last source says that says it, else `unsure` or `predictable`."""
    part_of = {question: part for source in sources for question, part in source.about.items()}
    about = np.array([part_of.get(name) for name in leads], dtype=object)
    pairs = zip(sources, answers, strict=True)
    return last_kinds((source.find_kinds(own, leads, about) for source, own in pairs), is_unsure)


def last_kinds(kinds_of_sources: Iterable[np.ndarray | None], is_unsure: np.ndarray) -> np.ndarray:
    """The last of the kinds that sources find (object [N] each, None where that is for others to say)."""
    kind = np.where(is_unsure, "unsure", "predictable").astype(object)
    for kinds in kinds_of_sources:
        if kinds is not None:
            kind = np.where(kinds == None, kind, kinds)  # noqa: E711  # of each element
    return kind


def worst_rows(scores: np.ndarray, entity: np.ndarray) -> np.ndarray:
    """Row of each entity's most unusual event, in the order of the entities' codes: int64 [E]."""
    order = np.lexsort((tied_ranks(-scores), entity))
    return order[np.flatnonzero(np.diff(entity[order], prepend=-1))]
