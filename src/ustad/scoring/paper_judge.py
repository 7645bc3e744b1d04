"""The paper's judge: an event's score is the highest percentile among its terms' losses and its neighbour distance.

Its source answers with a loss for each term, and how far the event lies from all events of training. The score is
−log₁₀ of the smallest tail share among them. It rises with the paper's AS(e), the
highest percentile. A score of 3 means that one event in a thousand is as extreme in the loss or distance that decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
from safetensors.numpy import save_file

from ustad.distribution import UNSURE, Distribution, Tail
from ustad.evidence_source import Answers, Arrays, Inquiry, MeasuredSource
from ustad.files import set_columns
from ustad.schema import EventSchema
from ustad.scoring.calibration import Calibration, apply_tails, highest
from ustad.scoring.evidence import evidence_column
from ustad.scoring.incidents import Count, find_incidents
from ustad.scoring.judge import Request, Span, find_kinds, find_leads, worst_rows
from ustad.scoring.score_table import add_measurements, make_agent_table, read_measurements
from ustad.tables import agent_codes
from ustad.ties import raised

#: The file of a model directory with what the judge knows, and what its source leaves to it.
TENSORS = "reference.safetensors"
Network = TypeVar("Network", bound=MeasuredSource)


@dataclass(frozen=True)
class Standing:
    """How measured columns become scores."""

    tails: list[Tail]  # of every column: ranks among all scored events (the paper), or the reference's
    tail: Distribution  # of the highest of them in normal events
    normal: np.ndarray  # log₁₀ p of the reference events by it


@dataclass(frozen=True)
class Judgement:
    """n events by a standing."""

    surprise: dict[str, np.ndarray]  # question → −log₁₀ tail share [n], NaN where it has no answer
    leads: np.ndarray  # object [n] the most unusual question
    score: np.ndarray
    log10_p: np.ndarray

    @classmethod
    def of(cls, answers: Answers, standing: Standing) -> Judgement:
        names = tuple(answers.raw)
        tails = apply_tails(standing.tails, np.stack(list(answers.raw.values()), axis=1))
        score = highest(tails)
        leads = find_leads(dict(zip(names, np.where(np.isnan(tails), 0.0, -tails).T, strict=True)))
        return cls(dict(zip(names, -tails.T, strict=True)), leads, score, standing.tail.log10_tail(score))

    @property
    def shares(self) -> dict[str, np.ndarray]:
        """Each question's share of the score: its −log p over the sum of all, 0 where missing."""
        weight = {name: np.where(np.isnan(values), 0.0, values) for name, values in self.surprise.items()}
        total = np.sum(list(weight.values()), axis=0)
        return {name: np.divide(one, total, out=np.zeros_like(one), where=total > 0) for name, one in weight.items()}


@dataclass(frozen=True)
class PaperJudge(Generic[Network]):
    """A source, and what its answers about normal events are like."""

    source: Network
    calibration: Calibration
    past: Calibration | None = None  # of windows that end with the event, where those of `calibration` do not
    by_rank: bool = False  # whether events are ranked among all that are scored (the paper); else by the calibration

    @property
    def schema(self) -> EventSchema:
        return self.source.schema

    @property
    def reference(self) -> int:
        return len(self.calibration.parts)

    @property
    def sources(self) -> tuple[Network]:
        return (self.source,)

    @property
    def known_until(self) -> None:
        """What is known of an entity is the events just before."""

    @property
    def ranked_columns(self) -> tuple[str, ...]:
        return tuple(self.source.answer_columns.values()) if self.by_rank else ()

    @property
    def counts(self) -> tuple[Count, ...]:
        return ()

    # ------------------------------------------------------------------------------------ scoring
    def measure(
        self, events: pa.Table, context: pa.Table | None, span: Span, request: Request
    ) -> tuple[pa.Table, pa.Table | None]:
        radii = self._radii(request.coverage) if request.coverage is not None else None
        inquiry = Inquiry(events, 0, context, radii=radii)
        answers = self.source.answer(inquiry)
        table = set_columns(events, uncertainty_noise=answers.noise, uncertainty_model=answers.doubt)
        return add_measurements(table, self.source.measure(answers, events)), None

    def _radii(self, coverage: float) -> dict[str, float]:
        """How wide intervals are that hold so large a share of normal events, by question."""
        names, words = self.calibration.parts.names, {f.name for f in self.schema.features if f.kind == "categorical"}
        radii = self.calibration.radius(coverage, tuple(name in words for name in names))
        return dict(zip(names, radii.tolist(), strict=True))

    def stand(self, ranks: Sequence[Tail] | None) -> Standing:
        calibration = self.calibration
        if ranks is None:
            return Standing(calibration.tails, calibration.score_tail, calibration.normal)
        normal = highest(apply_tails(list(ranks), calibration.parts.columns))
        tail = Distribution.fit(normal)
        return Standing(list(ranks), tail, tail.log10_tail(normal))

    def settle(self, measurements: pa.Table, standing: Standing) -> pa.Table:
        answers = self.source.read_answers(measurements, read_measurements(measurements))
        judgement = Judgement.of(answers, standing)
        numbers = self.source.numbers(self.schema, answers, self.source.measure(answers, measurements))
        kind = find_kinds((self.source,), (answers,), judgement.leads, self._is_unsure(judgement.leads, numbers))
        p_value = np.power(10.0, judgement.log10_p)
        incidents = find_incidents(measurements, self.schema, p_value, judgement.score)
        ranks = {f"pct_{name}": 1 - np.power(10.0, -values) for name, values in judgement.surprise.items()}
        return set_columns(
            add_measurements(measurements, ranks),
            evidence=evidence_column(judgement.surprise, judgement.shares, numbers),
            score=judgement.score,
            p_value=p_value,
            incident_id=pa.array(incidents.incident_id.tolist(), pa.string()),
            echo=incidents.echo,
            final=np.ones(len(measurements), bool),
            kind=pa.array(kind.tolist(), pa.string()),
        )

    def _is_unsure(self, leads: np.ndarray, numbers: Mapping[str, Arrays]) -> np.ndarray:
        """Where the uncertainty of what leads is among its reference's highest 5 %: bool [N]."""
        is_unsure = np.zeros(len(leads), bool)
        for name, tail in zip(self.calibration.parts.names, self.calibration.uncertainty_tails, strict=True):
            doubt = tail.log10_tail(numbers[name]["noise"] + numbers[name]["doubt"])
            is_unsure |= (leads == name) & (np.nan_to_num(doubt) <= raised(UNSURE))
        return is_unsure

    def tell(
        self, event_scores: pa.Table, agents: pa.Table | None, standing: Standing, *, span: Span, request: Request
    ) -> tuple[pa.Table, pa.Table]:
        answers = self.source.read_answers(event_scores, read_measurements(event_scores))
        judgement = Judgement.of(answers, standing)
        codes, names = agent_codes(event_scores[self.schema.entity])
        worst = worst_rows(judgement.score, codes)
        rows = np.arange(len(event_scores) if request.reasons == "all" else 0)
        if request.reasons == "flagged":
            rows = np.union1d(np.flatnonzero(event_scores["alert"].to_numpy(zero_copy_only=False)), worst)
        texts: list[str | None] = [None] * len(event_scores)
        sentences = self.source.explain(answers, judgement, event_scores, rows)
        for row, text in zip(rows, sentences or (), strict=True):
            texts[row] = text
        table = set_columns(event_scores, reason=pa.array(texts, pa.string()))
        log10_p = self.calibration.agent_log10_p(judgement.log10_p[worst], span.days, standing.normal)
        scores = {"score": judgement.score[worst], "p_value": np.power(10.0, log10_p)}
        return table, make_agent_table(self.schema, table, names, scores, entity=codes, worst=worst)

    # ------------------------------------------------------------------------------------ keeping
    def knows(self, entities: np.ndarray) -> np.ndarray:
        return self.source.entity_key

    def forget(self, entities: Sequence[Any]) -> Self:
        return replace(self, source=self.source.forget(entities))

    def facts(self) -> dict[str, Any]:
        return dict(self.source.facts())

    def name_places(self, stays: pa.Table, radius_m: float) -> Sequence[str | None]:
        return [None] * stays.num_rows

    def with_histories(self, table: pa.Table) -> Self:
        return self

    def save(self, place: Path) -> None:
        """The files of the source, and the judge's own."""
        tensors = {**self.calibration.to_tensors(), **(self.past.to_tensors("past") if self.past is not None else {})}
        tensors |= self.source.save(place)[0]
        save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, place / TENSORS)

    @classmethod
    def load(cls, source: Network, tensors: Arrays, names: tuple[str, ...], *, by_rank: bool) -> Self:
        """From a loaded source with terms of these `names`, and the arrays of the judge's file."""
        past = Calibration.from_tensors(tensors, names, "past") if "past.span" in tensors else None
        return cls(source, Calibration.from_tensors(tensors, names), past, by_rank)
