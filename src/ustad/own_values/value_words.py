"""Sentences about values: what was observed, what is usual for the entity, and how much is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ustad.events.templates import say
from ustad.events.words import times_words, value_words
from ustad.own_values.value_features import ValueFeature
from ustad.own_values.value_models import LEAST_OWN, Comparison
from ustad.schema import EventSchema, Feature, plural
from ustad.ties import lowered

#: A value speaks in the sentence when it has at least this share of the score.
SPEAKS = 0.2


def tell_values(
    schema: EventSchema,
    features: Sequence[ValueFeature],
    facts: Mapping[str, Comparison],
    shares: Mapping[str, float],
    *,
    row: int,
) -> str:
    """Sentences for the values of one event that make much of its score, the largest share first."""
    own = [one for one in features if shares.get(one.question, 0.0) >= lowered(SPEAKS)]
    own.sort(key=lambda one: -shares[one.question])
    return " ".join(tell_value(schema, one.feature, facts[one.question], row) for one in own)


def tell_value(schema: EventSchema, feature: Feature, facts: Comparison, row: int) -> str:
    """One sentence."""
    own_count, label = int(facts.own_count[row]), feature.label
    events = f"{own_count:,} {plural(schema.event_word) if own_count != 1 else schema.event_word}"
    if feature.kind == "vector":
        return say("unusual", label=label)
    if facts.same is not None:
        return _tell_word(feature, facts, row, events)
    value = value_words(feature, float(facts.observed[row]))
    if facts.low is None or facts.high is None or not np.isfinite(facts.low[row]):
        return say("value", label=label, value=value)
    low, high = (value_words(feature, float(ends[row])) for ends in (facts.low, facts.high))
    if feature.unit and feature.display == "number":
        low = low.removesuffix(f" {feature.unit}")
    name = "own_range" if own_count >= LEAST_OWN else "everybody_range"
    return say(name, label=label, value=value, low=low, high=high, events=events)


def _tell_word(feature: Feature, facts: Comparison, row: int, events: str) -> str:
    assert facts.same is not None
    assert facts.expected is not None
    value, same, own_count = str(facts.observed[row]), int(facts.same[row]), int(facts.own_count[row])
    if own_count < LEAST_OWN:
        return say("value", label=feature.label, value=value)
    usual = facts.expected[row]
    often = "never before" if not same else f"{times_words(same)} before"
    mostly = f", mostly {usual}" if usual is not None and usual != value else ""
    return say("own_word", label=feature.label, value=value, often=often, events=events, mostly=mostly)
