"""Our judge: what speaks together against an event adds up, and its most unusual look is the score.

It asks its sources, calibrates and adds up what they answer (`looks.py`), and makes scores, incidents, kinds, reasons
and scores of entities of it. It knows nothing of habits or networks: a source is what keeps the contract of
`ustad.evidence_source`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from safetensors.numpy import load_file, save_file

from ustad.config import ConfigError
from ustad.distribution import Distribution, Tail
from ustad.events.together import PairTails
from ustad.evidence_source import Answers, Arrays, HistorySource, OtherSource, Source, VisitInquiry
from ustad.files import set_columns
from ustad.schema import EventSchema
from ustad.scoring.alerts import flag_events
from ustad.scoring.entity_tests import AgentReference, Period, combine_tests, strongest
from ustad.scoring.evidence import evidence_column
from ustad.scoring.incidents import (
    Count,
    count_incidents,
    find_incidents,
    order_by_time,
    rows_with_reason,
)
from ustad.scoring.judge import Request, Span, find_kinds, find_leads, worst_rows
from ustad.scoring.looks import Groups, Looks, minus_log10_p, unit_weights
from ustad.scoring.score_table import add_measurements, make_agent_table
from ustad.tables import agent_codes

#: The smallest p-value that is written is ten to the minus this.
SMALLEST = 300.0
#: Files of a model directory with what the judge knows, and what its sources leave to it. Stored models have these
#: names, which are of the first source; the files hold what is of all sources.
TENSORS, FACTS = "habits.safetensors", "habits.json"
#: The array of pairs of people there.
TOGETHER = "together"
CROWD_PLACES = "together.crowd_places"
T = TypeVar("T")
History = TypeVar("History", bound=HistorySource)


@dataclass(frozen=True)
class Judgement:
    """N events judged, in the order of their table, and E entities."""

    surprise: dict[str, np.ndarray]  # question → -log10 p, float64 [N]
    looks: dict[str, np.ndarray]  # look → -log10 p, float64 [N]
    shares: dict[str, np.ndarray]  # question → its share of the look that decides, float64 [N]
    score: np.ndarray  # float64 [N] -log10 p of the event by itself
    kind: np.ndarray  # object [N] what sort of unusual
    about: Mapping[str, str]  # questions about a `start`, a `length` or an `end`
    entity_ids: np.ndarray
    entity: np.ndarray  # int64 [N] index into entity_ids
    agents: dict[str, np.ndarray]  # test of entities → -log10 p, float64 [E]
    answers: tuple[Answers, ...]  # of each source

    @cached_property
    def leads(self) -> np.ndarray:
        """The question that makes each event unusual: object [N]."""
        return find_leads(self.shares)

    @property
    def agent_score(self) -> np.ndarray:
        """What the tests say together: float64 [E]."""
        return combine_tests(self.agents)

    def uncertainty(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Noise and doubt of each event, None where no source knows them."""
        return first_known(one.noise for one in self.answers), first_known(one.doubt for one in self.answers)


@dataclass(frozen=True)
class AddingJudge(Generic[History]):
    """Sources, and what their answers about normal events are like."""

    history: History  # keeps what is known of entities, and answers questions itself
    others: tuple[OtherSource, ...]
    looks: Looks
    agents: AgentReference
    counts: tuple[Count, ...] = ()  # how many incidents unusual events of normal people make
    beside: Mapping[str, Distribution] = field(default_factory=dict)  # of what sources measure beside answers
    together: PairTails | None = None  # of two people at one place and time

    @classmethod
    def fit(
        cls,
        sources: tuple[History, tuple[OtherSource, ...]],
        week: VisitInquiry,
        answers: Sequence[Answers],
        calibrates: np.ndarray,
        *,
        without: tuple[str, ...] = (),
    ) -> Self:
        """Calibrate on what the sources answer about a week of normal events; `calibrates` says of each whether it
        does. Questions `without` are left out."""
        raw = {name: values for name, values in _join(answers, "raw").items() if name not in without}
        history, others = sources
        both: tuple[Source, ...] = (history, *others)
        period = _period(week)
        groups = Groups.of(period.entity, period.entity_key, calibrates)
        weights = unit_weights(source.looks for source in both)
        looks, score = Looks.of_week(raw, first_known(one.doubt for one in answers), groups, weights)
        is_reference = np.bincount(period.entity[calibrates], minlength=len(period.entity_key)) > 0
        agents = AgentReference.fit(score, period, is_reference, _join(answers, "tests"))
        counts = count_incidents(week.table.filter(pa.array(calibrates)), history.schema, score[calibrates])
        beside = _fit_beside(both, answers)
        together = PairTails.of_week(week.table, history.schema, history.find_new(answers[0]))
        looks = replace(looks, remaining=history.share_remaining(week))
        return cls(history, others, looks, agents, tuple(counts), beside, together)

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.history, *self.others)

    def source(self, name: str) -> Any:
        """A source by its name, None where this judge does not ask it."""
        return next((source for source in self.sources if source.name == name), None)

    @property
    def about(self) -> dict[str, str]:
        """Questions about a `start` or a `length`."""
        return {question: part for source in self.sources for question, part in source.about.items()}

    @property
    def schema(self) -> EventSchema:
        return self.history.schema

    @property
    def reference(self) -> int:
        return self.looks.events.count

    @property
    def known_until(self) -> int | None:
        return self.history.known_until

    @property
    def ranked_columns(self) -> tuple[str, ...]:
        return ()

    # ------------------------------------------------------------------------------------ judging
    def judge(
        self,
        events: pa.Table,
        context: pa.Table | None = None,
        count_days: tuple[int, int] | None = None,
        test_days: tuple[int, int] | None = None,
    ) -> Judgement:
        """Scores of every row of `events` and of their entities. Local days in which visits are counted, and entities
        tested: by default those of the events, and of context that is counted (`HistorySource.open_inquiry`)."""
        inquiry = self.history.open_inquiry(events, context, count_days, test_days)
        answers = tuple(source.answer(inquiry) for source in self.sources)
        surprise, looks, score = self.looks.weigh(_join(answers, "raw"))
        shares = self.looks.share(looks, surprise)
        is_unsure = self.looks.is_unsure(first_known(one.doubt for one in answers), len(score))
        period = _period(inquiry)
        agents = self.agents.judge(score, period, _join(answers, "tests")) | _join(answers, "evidence")
        return Judgement(
            surprise,
            looks,
            shares,
            score,
            find_kinds(self.sources, answers, find_leads(shares), is_unsure),
            self.about,
            inquiry.visits.entity_ids,
            period.entity,
            agents,
            answers,
        )

    def measure(
        self, events: pa.Table, context: pa.Table | None, span: Span, request: Request
    ) -> tuple[pa.Table, pa.Table | None]:
        """Everything but the alerts. Events that may become alerts have their reason already."""
        if request.coverage is not None:
            raise ConfigError("prediction intervals come from the paper's network; train with the preset paper")
        judgement = self.judge(events, context, span.counted_days, (span.first, span.last))
        score, p_value = judgement.score, p_values(judgement.score)
        incidents = find_incidents(events, self.schema, p_value, score)
        worst = worst_rows(score, judgement.entity)
        rows = np.arange(events.num_rows if request.reasons == "all" else 0)
        if request.reasons == "flagged":
            rule = request.rule.widest(span.days)
            likely, _ = flag_events(p_value, score, incidents.echo, rule, days=span.days, order=incidents.order)
            rows = np.union1d(rows_with_reason(incidents.incident_id, incidents.order, likely), worst)
        pairs = tuple(zip(self.sources, judgement.answers, strict=True))
        measurements = {name: c for source, own in pairs for name, c in source.measure(own, events).items()}
        numbers = {n: v for source, own in pairs for n, v in source.numbers(self.schema, own, measurements).items()}
        noise, doubt = (_floats(values, events.num_rows) for values in judgement.uncertainty())
        columns = {
            "uncertainty_noise": noise,
            "uncertainty_model": doubt,
            "evidence": evidence_column(judgement.surprise, judgement.shares, numbers),
            "score": score,
            "p_value": p_value,
            "incident_id": pa.array(incidents.incident_id.tolist(), pa.string()),
            "echo": incidents.echo,
            "final": np.ones(events.num_rows, bool),
            "kind": pa.array(judgement.kind.tolist(), pa.string()),
            "reason": pa.array(self._explain(judgement, events, rows), pa.string()),
        }
        table = set_columns(events.drop_columns([c for c in events.column_names if c in columns]), **columns)
        return add_measurements(table, measurements), self.agent_table(judgement, table, worst)

    def _explain(self, judgement: Judgement, events: pa.Table, rows: np.ndarray) -> list[str | None]:
        """What the sources say of each of the rows, None for the others."""
        texts: list[str | None] = [None] * events.num_rows
        parts = [
            (answers.raw, source.explain(answers, judgement, events, rows))
            for source, answers in zip(self.sources, judgement.answers, strict=True)
        ]
        for i, row in enumerate(rows):
            own = [(questions, sentences[i]) for questions, sentences in parts if sentences is not None]
            texts[row] = join_sentences(judgement.leads[row], own)
        return texts

    def agent_table(self, judgement: Judgement, event_scores: pa.Table, worst: np.ndarray) -> pa.Table:
        """A row for each entity; `worst` are the rows of their most unusual events."""
        tests, score = strongest(judgement.agents), judgement.agent_score
        reasons: Sequence[str | None] = event_scores["reason"].take(pa.array(worst)).to_pylist()
        more: dict[str, Any] = {f"surprise_{name}": values for name, values in judgement.agents.items()}
        for source, answers in zip(self.sources, judgement.answers, strict=True):
            reasons = source.explain_entities(answers, tests, reasons)
            more |= source.describe_entities(answers, event_scores, self.calibrate(answers.beside))
        return make_agent_table(
            self.schema,
            event_scores,
            judgement.entity_ids,
            {"score": score, "p_value": p_values(score)},
            entity=judgement.entity,
            worst=worst,
            reason=pa.array(reasons, pa.string()),
            **more,
        )

    def calibrate(self, beside: Arrays) -> dict[str, np.ndarray]:
        """-log10 p of what a source measured beside its answers; without what this judge was not calibrated for."""
        names = (name for name in beside if name in self.beside)
        return {name: minus_log10_p(self.beside[name], beside[name]) for name in names}

    def stand(self, ranks: Sequence[Tail] | None) -> None:
        """Scores rest on the reference alone."""

    def settle(self, measurements: pa.Table, standing: None) -> pa.Table:
        return measurements

    def tell(
        self, event_scores: pa.Table, agents: pa.Table | None, standing: None, *, span: Span, request: Request
    ) -> tuple[pa.Table, pa.Table]:
        assert agents is not None
        if request.reasons != "flagged":
            return event_scores, agents
        codes, _ = agent_codes(event_scores[self.schema.entity])
        alert = event_scores["alert"].to_numpy(zero_copy_only=False).astype(bool)
        incident_id = event_scores["incident_id"].to_numpy(zero_copy_only=False)
        has_reason = np.zeros(len(codes), bool)
        has_reason[rows_with_reason(incident_id, order_by_time(event_scores, self.schema), alert)] = True
        has_reason[worst_rows(event_scores["score"].to_numpy(), codes)] = True
        reason = pc.if_else(pa.array(has_reason), event_scores["reason"], pa.scalar(None, pa.string()))
        return set_columns(event_scores, reason=reason), agents

    # ------------------------------------------------------------------------------------ keeping
    def knows(self, entities: np.ndarray) -> np.ndarray:
        return np.r_[self.history.entity_key, self.agents.entity_key]

    def forget(self, entities: Sequence[Any]) -> Self:
        """Without histories and reference weeks; what is normal stays, in which nobody can be told apart."""
        others = tuple(source.forget(entities) for source in self.others)
        return replace(self, history=self.history.forget(entities), others=others, agents=self.agents.forget(entities))

    def facts(self) -> dict[str, Any]:
        return {name: fact for source in self.sources for name, fact in source.facts().items()}

    def name_places(self, stays: pa.Table, radius_m: float) -> Sequence[str | None]:
        return self.history.name_places(stays, radius_m)

    def with_histories(self, table: pa.Table) -> Self:
        return replace(self, history=self.history.with_histories(table))

    def save(self, place: Path) -> None:
        """The files of all sources, and the judge's own: arrays as safetensors, the rest as JSON."""
        tensors = {**self.looks.to_tensors(), **self.agents.to_tensors()}
        for name, distribution in self.beside.items():
            tensors |= distribution.to_tensors(f"final.{name}")
        if self.together is not None:
            tensors |= {TOGETHER: self.together.p_value, CROWD_PLACES: self.together.crowd_places}
        facts = {**self.looks.facts(), "incidents": self.counts}
        for source in self.sources:
            arrays, own = source.save(place)
            tensors, facts = {**tensors, **arrays}, {**facts, **own}
        save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, place / TENSORS)
        (place / FACTS).write_text(json.dumps(facts))

    @classmethod
    def load(cls, history: History, others: tuple[OtherSource, ...], tensors: Arrays, facts: Mapping[str, Any]) -> Self:
        """From loaded sources and what `read_judge` says."""
        sources: tuple[Source, ...] = (history, *others)
        counts = tuple((p, n, k) for p, n, k in facts.get("incidents", ()))
        weights = facts["weights"] if "weights" in facts else unit_weights(one.looks for one in sources)
        looks = Looks.from_tensors(tensors, facts, weights)
        names = [name for source in sources for name in source.beside if f"final.{name}.values" in tensors]
        beside = {name: Distribution.from_tensors(tensors, f"final.{name}") for name in names}
        together = read_pair_tails(tensors)
        return cls(history, others, looks, AgentReference.from_tensors(tensors), counts, beside, together)


def read_pair_tails(tensors: Mapping[str, np.ndarray]) -> PairTails | None:
    """What a model knows of pairs of people; an older one knows no places."""
    if TOGETHER not in tensors:
        return None
    return PairTails(tensors[TOGETHER], tensors.get(CROWD_PLACES, np.zeros(0, np.uint64)))


def read_judge(place: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and facts that `AddingJudge.save` wrote; nothing in them is executed."""
    return load_file(place / TENSORS), json.loads((place / FACTS).read_text())


def p_values(score: np.ndarray) -> np.ndarray:
    """From -log10 p; never exactly 0, however extreme."""
    return np.power(10.0, -np.minimum(score, SMALLEST))


def _floats(values: np.ndarray | None, rows: int) -> Any:
    return pa.nulls(rows, pa.float64()) if values is None else np.asarray(values, np.float64)


def _fit_beside(sources: Sequence[Source], answers: Sequence[Answers]) -> dict[str, Distribution]:
    """Of what sources measured beside answers, where there was anything; no tail is narrower than they allow."""
    least = {name: scale for source in sources for name, scale in source.beside.items()}
    fits = {name: Distribution.fit(values) for name, values in _join(answers, "beside").items() if len(values)}
    return {name: replace(one, scale=max(one.scale, least[name])) for name, one in fits.items()}


def _join(answers: Sequence[Answers], what: str) -> dict[str, np.ndarray]:
    """What all sources say, by name."""
    return {name: values for one in answers for name, values in getattr(one, what).items()}


def join_sentences(lead: str, parts: Iterable[tuple[Iterable[str], str]]) -> str | None:
    """A reason from what each source says, with the questions that it asks: first who asks the one that leads."""
    in_order = sorted(((questions, text) for questions, text in parts if text), key=lambda part: lead not in part[0])
    return " ".join(text for _, text in in_order) or None


def first_known(values: Iterable[T | None]) -> T | None:
    """What the first source says that says it."""
    return next((value for value in values if value is not None), None)


def _period(inquiry: VisitInquiry) -> Period:
    """The events of an inquiry, as tests of entities see them."""
    visits = inquiry.visits
    return Period(inquiry.entity, visits.entity_key, visits.day[inquiry.order], inquiry.test_days)
