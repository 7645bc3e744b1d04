"""The contract of a source of evidence: something that is fitted on training weeks and answers named questions.

In goes an *inquiry*: events with what is known of their entities. Out come raw answers, larger for what is more
unusual. All that follows (calibration, adding up, scores) is the judge's; what was expected, and the words
for it, are the source's. A source that lacks what every source has (abstract here) fails when it is made; whoever has
nothing to say leaves another method as it is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.events.visits import Visits
from ustad.lessons import Lessons
from ustad.schema import EventSchema

Arrays = Mapping[str, np.ndarray]
S = TypeVar("S", bound="Source")


# ------------------------------------------------------------------------------------------------ fitting and loading
@dataclass
class Training:
    """How sources learn, beside what they learn from."""

    config: Config
    device: Any
    _: KW_ONLY
    directory: Path | None = None  # where checkpoints go
    resume: bool = False  # whether to go on from the last one
    start: tuple[Source, ...] = ()  # sources of the model carried on from, whose weights networks begin with
    days_off: tuple[int, ...] = ()  # local dates that habits take for weekend days

    def begins_with(self, kind: type[S]) -> S | None:
        """The source of a kind whose weights are begun with."""
        return next((one for one in self.start if isinstance(one, kind)), None)


@dataclass(frozen=True)
class SourceFit(Generic[S]):
    """A source, and who answers for it about the week that calibrates: the source has often learnt from that too."""

    source: S
    answer: Callable[[Any], Answers]
    week: Any = None  # that week as an inquiry, from a source that keeps the histories


@dataclass(frozen=True)
class ModelContent:
    """A model directory whose files were checked, and what its judge's file has of all sources."""

    place: Path
    encoder: Encoder
    config: Config
    device: Any
    files: Collection[str]
    arrays: Arrays
    facts: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = True  # whether histories and reference events are read too


# ------------------------------------------------------------------------------------------------ questions, answers
@dataclass(frozen=True)
class Inquiry:
    """N events that sources are asked about, and what came before them."""

    table: pa.Table  # counted context, then the events
    first: int  # the row where the events begin
    earlier: pa.Table | None  # context before that
    _: KW_ONLY
    radii: Mapping[str, float] | None = None  # question → how wide its prediction interval is, where one is asked for


@dataclass(frozen=True)
class VisitInquiry(Inquiry):
    """The same as visits of E entities; `habits/stages.py` adds histories."""

    visits: Visits  # of the table, by entity and time
    test_days: tuple[int, int]  # the first and last local day that entities are tested over

    @cached_property
    def is_event(self) -> np.ndarray:
        """Which visits are events, not context: bool."""
        return self.visits.row >= self.first

    @cached_property
    def order(self) -> np.ndarray:
        """Positions that bring visits into the order of the events: int64 [N]."""
        back = np.empty(len(self.visits), np.int64)
        back[self.visits.row] = np.arange(len(back))
        return back[self.first :]

    @property
    def entity(self) -> np.ndarray:
        """Index of each event's entity into those of the visits: int64 [N]."""
        return self.visits.entity[self.order]

    def events(self, rows: np.ndarray) -> pa.Table:
        """Some of the events, by their rows of N (ascending)."""
        if len(rows) == len(self.order):
            return self.table.slice(self.first)
        return self.table.take(pa.array(rows + self.first))


@dataclass(frozen=True)
class Answers:
    """What a source says of N events, in the order of their table, and of their E entities."""

    raw: Arrays  # question → value [N], larger is more unusual, NaN where it has no answer
    noise: np.ndarray | None = None  # aleatoric and epistemic uncertainty of each event [N], where it knows them
    doubt: np.ndarray | None = None
    tests: Arrays = field(default_factory=dict)  # test of entities → value [E], which the judge calibrates
    evidence: Arrays = field(default_factory=dict)  # test of entities that needs no calibration → -log10 p [E]
    beside: Arrays = field(default_factory=dict)  # what is neither of events nor of entities and is calibrated: [M]
    facts: Any = None  # what the source itself needs to measure, explain and describe


@dataclass(frozen=True)
class OneAnswer:
    """The same of a single event, in plain numbers."""

    raw: Mapping[str, float]
    noise: float | None = None
    doubt: float | None = None
    facts: Any = None
    columns: Mapping[str, Any] = field(default_factory=dict)  # what was measured, as columns of details
    numbers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by question, see `Source.numbers`
    explain: Callable[[Mapping[str, float]], str] | None = None  # a sentence, by each question's share of the score


class KindFinder(Protocol):
    """Who says of a single event what sort of unusual it is."""

    def find_kind(self, answer: OneAnswer, lead: str, about: str | None) -> str | None:
        """As `Source.find_kinds`, from what the source itself said of the event."""


class LiveSource(KindFinder, Protocol):
    """A source beside habits, asked about the newest event of an entity; what it has seen of it is a window."""

    @property
    def most_events(self) -> int:
        """How many events before the newest it wants to see."""

    def start(self, history: Any, before: pa.Table | None) -> Any:
        """The window of an entity with this history, after what came before."""

    def ask_row(
        self, window: Any, rows: Sequence[Mapping[str, Any]], visits: Any, place: int, *, table: Any
    ) -> OneAnswer:
        """What it says of the last of one or two rows, which is then remembered; `visits` is that one alone, at the
        own `place`. `table` makes a table of rows."""

    def alone(self) -> AbstractContextManager[None]:
        """What it computes in, once for each event."""


class Answerer(ABC):
    """What a judge asks."""

    name: ClassVar[str]
    #: The looks that its questions are added up in; a question of no look is shown and not scored. Sources that are
    #: asked together have questions of different names.
    looks: ClassVar[Mapping[str, tuple[str, ...]]]
    #: Its questions about the `start`, the `length` or the `end` of an event.
    about: ClassVar[Mapping[str, str]] = {}
    #: What it measures `beside` answers, with the least scale that the judge may give its tail.
    beside: ClassVar[Mapping[str, float]] = {}

    @abstractmethod
    def answer(self, inquiry: Any) -> Answers:
        """What it says of the events of an inquiry."""

    def find_kinds(self, answers: Answers, leads: np.ndarray, about: np.ndarray) -> np.ndarray | None:
        """What sort of unusual each event is, None where that is for others to say: object [N]. `leads` [N] is the
        question that makes each event unusual, and what that is `about`."""
        return None

    def measure(self, answers: Answers, events: pa.Table) -> Arrays:
        """What was measured, as columns of details."""
        return {}

    def numbers(self, schema: EventSchema, answers: Answers, measurements: Arrays) -> Mapping[str, Arrays]:
        """By question those numbers of its evidence that are known: `expected`, `observed`, `spread`, …"""
        return expected_numbers(schema, measurements, self.about)

    def explain(self, answers: Answers, judgement: Any, events: pa.Table, rows: np.ndarray) -> list[str] | None:
        """A sentence for each of these rows, once they are judged; empty where it has nothing to add."""
        return None

    def explain_entities(
        self, answers: Answers, tests: np.ndarray, reasons: Sequence[str | None]
    ) -> Sequence[str | None]:
        """The `reasons` of entities, with what it has to add; `tests` [E] are those that their p-values come from."""
        return reasons

    def describe_entities(self, answers: Answers, event_scores: pa.Table, surprises: Arrays) -> Mapping[str, pa.Array]:
        """Further columns of the table of entities. `surprises` are -log10 p of what was measured beside answers, where
        the judge knows what is normal."""
        return {}


class Source(Answerer):
    """Who answers, learns and is stored."""

    @classmethod
    @abstractmethod
    def fit(cls, lessons: Lessons, training: Training) -> SourceFit[Self]:
        """Learn from the lessons."""

    @abstractmethod
    def save(self, place: Path) -> tuple[Arrays, Mapping[str, Any]]:
        """Write its own files; arrays and facts that fit into the judge's files are given back."""

    @classmethod
    @abstractmethod
    def load(cls, content: ModelContent) -> Self:
        """Read what `save` wrote; nothing in it is executed."""

    def facts(self) -> Mapping[str, Any]:
        """What is said of it, and of its training where it was just trained."""
        return {}

    def forget(self, entities: Sequence[Any]) -> Self:
        """Without what is kept of some entities."""
        return self


class OtherSource(Source):
    """A source that is asked beside the one that keeps the histories."""

    #: Whether some of the validation week's entities say when its training stops, so that the others alone calibrate.
    stops_early: ClassVar[bool] = False

    @abstractmethod
    def live(self) -> LiveSource:
        """Who answers about one event at a time."""


class HistorySource(Source):
    """The source that also keeps what is known of entities, and hands it to all sources."""

    schema: EventSchema

    @property
    @abstractmethod
    def known_until(self) -> int:
        """The last local day of the histories."""

    @property
    @abstractmethod
    def entity_key(self) -> np.ndarray:
        """Hashes of the entities that have a history."""

    @abstractmethod
    def open_inquiry(
        self,
        events: pa.Table,
        context: pa.Table | None,
        count_days: tuple[int, int] | None,
        test_days: tuple[int, int] | None,
    ) -> VisitInquiry:
        """The events with what is known of their entities; local days in which visits are counted, and entities
        tested."""

    @abstractmethod
    def find_new(self, answers: Answers) -> np.ndarray | None:
        """Which events are at a place that the history of their entity does not hold: bool [N]. None where it cannot
        tell."""

    @abstractmethod
    def share_remaining(self, week: Any) -> float:
        """Of what was as unusual in the calibrating `week` (an inquiry), the share that still is beside the whole
        histories, which are longer than those that the week was compared with."""

    @abstractmethod
    def name_places(self, stays: pa.Table, radius_m: float) -> Sequence[str | None]:
        """The kind of each entity's nearest own place within the radius, None where none is known."""

    @abstractmethod
    def share(self, part: int, parts: int) -> Self:
        """The same with the histories of the entities of one of so many parts alone."""

    @abstractmethod
    def with_histories(self, table: pa.Table) -> Self:
        """The same with these histories alone."""


class MeasuredSource(Source):
    """A source without histories whose answers can be read from what was measured, by a judge who waits until all
    events are."""

    schema: EventSchema

    @property
    @abstractmethod
    def answer_columns(self) -> Mapping[str, str]:
        """Question → the column of measurements that has its raw answers."""

    @property
    @abstractmethod
    def entity_key(self) -> np.ndarray:
        """Hashes of the entities of which something is kept."""

    @abstractmethod
    def read_answers(self, events: pa.Table, measurements: pa.Table) -> Answers:
        """What it answered, from what was measured."""


def expected_numbers(schema: EventSchema, measurements: Arrays, about: Mapping[str, str]) -> dict[str, Arrays]:
    """Of questions about a start or a length: what was expected and observed, and the spread where it is known."""
    return {
        question: {what: measurements[name] for what, name in names.items() if name in measurements}
        for question, names in number_columns(schema, about).items()
    }


def number_columns(schema: EventSchema, about: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """By question about a start or a length: the columns of what was expected and observed, and of the spread."""
    parts = {"@minute_of_day": "start", "@duration": "length"}
    columns: dict[str, dict[str, str]] = {}
    for feature in schema.features:
        part = parts.get(feature.source[0]) if len(feature.source) == 1 else None
        for question in (question for question, of in about.items() if of == part):
            columns[question] = {what: f"{what}_{feature.name}" for what in ("expected", "observed", "spread")}
    return columns
