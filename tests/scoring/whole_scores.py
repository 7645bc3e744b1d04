"""Scores of whole tables by one judge, in one call."""

import numpy as np
import pyarrow as pa

from ustad.dataset import event_days
from ustad.scores import join_details
from ustad.scoring.alerts import AlertRule
from ustad.scoring.judge import Request, Span
from ustad.scoring.paper_judge import PaperJudge
from ustad.scoring.scored_parts import score_whole


def score_by_paper(
    model, events, context=None, first_day=None, device="cpu", rule=None, reasons="flagged", coverage=None
):
    """Event scores with their details, and agent scores; `first_day` leaves earlier local dates of `events` unscored
    (they are context)."""
    if first_day is not None:
        late = event_days(events, model.encoder.schema) >= first_day
        early = events.filter(pa.array(~late))
        context = early if context is None else pa.concat_tables([context, early], promote_options="permissive")
        events = events.filter(pa.array(late))
    wanted = Request(rule or AlertRule(), reasons, coverage, details=True)
    return _tables(PaperJudge(model, device), events, context, wanted)


def score_by_habits(judge, events, context=None, rule=None, period=None, reasons="flagged", tested=None):
    """Event scores with their details, and agent scores. `period` are the days that visits are counted in, `tested`
    those of entities' tests."""
    span = Span.of(events, context, judge.schema, judge.known_until)
    if period is not None:
        days = tested or (period if context is None else (span.first, span.last))
        span = Span(int(days[0]), int(days[1]), (int(np.min(period)), int(np.max(period))))
    return _tables(judge, events, context, Request(rule or AlertRule(), reasons, details=True), span)


def _tables(judge, events, context, wanted, span=None):
    """Event scores with their details beside, and agents."""
    scores = score_whole(judge, events, context, wanted, span)
    return join_details(scores.events, scores.details, judge.schema), scores.agents
