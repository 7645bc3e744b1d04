"""Scores of whole tables by one judge, in one call."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from ustad.dataset import event_days
from ustad.judges import Trainer
from ustad.lessons import Lessons, split_entities
from ustad.scores import join_details
from ustad.scoring.alerts import AlertRule
from ustad.scoring.judge import Request, Span
from ustad.scoring.scored_parts import score_whole


def score_by_paper(judge, events, context=None, first_day=None, rule=None, reasons="flagged", coverage=None):
    """Event scores with their details, and agent scores; `first_day` leaves earlier local dates of `events` unscored
    (they are context)."""
    if first_day is not None:
        late = event_days(events, judge.schema) >= first_day
        early = events.filter(pa.array(~late))
        context = early if context is None else pa.concat_tables([context, early], promote_options="permissive")
        events = events.filter(pa.array(late))
    wanted = Request(rule or AlertRule(), reasons, coverage, details=True)
    return _tables(judge, events, context, wanted)


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
    scores = score_whole(judge, events, context, wanted, span=span)
    return join_details(scores.events, scores.details, judge.schema), scores.agents


def with_history(judge, **changes):
    """The judge with other histories, or another way to use them."""
    return replace(judge, history=replace(judge.history, **changes))


def with_source(judge, **changes):
    """The paper's judge with another source."""
    return replace(judge, source=replace(judge.source, **changes))


def facts_of(judgement):
    """What habits know of judged events, and how these were judged."""
    return judgement.answers[0].facts, judgement


def fit_judge(train, validation, encoder, config, device, directory=None, resume=False):
    """Our judge, whatever the configuration says of the paper's."""
    lessons = Lessons(encoder, train, *split_entities(validation, encoder.schema.entity))
    return Trainer(config, device, directory=directory, resume=resume).fit_ours(lessons)
