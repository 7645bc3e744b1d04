"""Our judge: what speaks together against an event adds up, and its most unusual look is the score.

It asks a source and makes scores, incidents, kinds, reasons and scores of entities of the answers. It knows nothing
of habits or networks: a source is what keeps the protocol `Source`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.config import ConfigError
from ustad.distribution import Tail
from ustad.schema import EventSchema
from ustad.scoring.alerts import flag_events
from ustad.scoring.evidence import evidence_column
from ustad.scoring.incidents import find_incidents, leading_events, order_by_time, rows_with_reason
from ustad.scoring.judge import Answers, Request, Source, Span, worst_rows
from ustad.scoring.score_table import add_measurements, set_columns
from ustad.tables import agent_codes

#: The smallest p-value that is written is ten to the minus this.
SMALLEST = 300.0


class AddingJudge:
    """Scores by what a source answers; whoever derives from it says which source that is."""

    @property
    def source(self) -> Source:
        raise NotImplementedError

    @property
    def schema(self) -> EventSchema:
        return self.source.schema

    @property
    def reference(self) -> int:
        return self.source.reference

    @property
    def known_until(self) -> int | None:
        return self.source.known_until

    @property
    def ranked(self) -> tuple[str, ...]:
        return ()

    def measure(
        self, events: pa.Table, context: pa.Table | None, span: Span, request: Request
    ) -> tuple[pa.Table, pa.Table | None]:
        """Everything but the alerts. Events that may become alerts have their reason already."""
        if request.coverage is not None:
            raise ConfigError("prediction intervals come from the paper's network; train with the preset paper")
        source = self.source
        answers = source.ask(events, context, span.counted, (span.first, span.last))
        p_value = p_values(answers.score)
        incidents = find_incidents(events, self.schema, p_value, answers.score)
        worst = worst_rows(answers.score, answers.entity)
        rows = np.arange(events.num_rows if request.reasons == "all" else 0)
        if request.reasons == "flagged":
            rule = request.rule.widest(span.days)
            likely, _ = flag_events(p_value, answers.score, incidents.echo, rule, days=span.days, order=incidents.order)
            rows = np.union1d(rows_with_reason(incidents.incident_id, incidents.order, likely), worst)
        texts: list[str | None] = [None] * events.num_rows
        for row, text in zip(rows, source.explain(answers, events, rows), strict=True):
            texts[row] = text
        measurements = source.measure(answers, events)
        noise, doubt = (_floats(values, events.num_rows) for values in source.uncertainty(answers))
        columns = {
            "uncertainty_noise": noise,
            "uncertainty_model": doubt,
            "evidence": evidence_column(answers.surprise, answers.shares, source.numbers(answers, measurements)),
            "score": answers.score,
            "p_value": p_value,
            "incident_id": pa.array(incidents.incident_id.tolist(), pa.string()),
            "echo": incidents.echo,
            "final": np.ones(events.num_rows, bool),
            "kind": pa.array(answers.kind.tolist(), pa.string()),
            "reason": pa.array(texts, pa.string()),
        }
        table = set_columns(events.drop_columns([c for c in events.column_names if c in columns]), columns)
        return add_measurements(table, measurements), agent_table(source, answers, table, worst)

    def stand(self, ranks: Sequence[Tail] | None) -> None:
        """Scores rest on the reference alone."""

    def settle(self, measurements: pa.Table, standing: None) -> pa.Table:
        return measurements

    def tell(
        self, event_scores: pa.Table, agents: pa.Table | None, standing: None, span: Span, request: Request
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
        return set_columns(event_scores, {"reason": reason}), agents


def p_values(score: np.ndarray) -> np.ndarray:
    """From -log10 p; never exactly 0, however extreme."""
    return np.power(10.0, -np.minimum(score, SMALLEST))


def agent_table(source: Source, answers: Answers, event_scores: pa.Table, worst: np.ndarray) -> pa.Table:
    """A row for each entity; `worst` are the rows of their most unusual events."""
    schema = source.schema
    label = schema.event_id if schema.event_id in event_scores.column_names else schema.time
    score, at = answers.agent_score, pa.array(worst)
    reasons = source.explain_entities(answers, event_scores["reason"].take(at).to_pylist())
    return pa.table(
        {
            schema.entity: pa.array(answers.entity_ids.tolist()).cast(event_scores[schema.entity].type),
            "score": score,
            "p_value": p_values(score),
            "n_events": np.bincount(answers.entity, minlength=len(score)),
            "n_incidents": np.bincount(answers.entity[leading_events(event_scores)], minlength=len(score)),
            "worst_incident_id": event_scores["incident_id"].take(at),
            f"worst_{label}": event_scores[label].take(at),
            "reason": pa.array(reasons, pa.string()),
            **{f"surprise_{name}": values for name, values in answers.agents.items()},
            **source.describe_entities(answers, event_scores),
        }
    )


def _floats(values: np.ndarray | None, rows: int) -> Any:
    return pa.nulls(rows, pa.float64()) if values is None else np.asarray(values, np.float64)
