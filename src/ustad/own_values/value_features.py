"""Which features of a schema are compared with an entity's own values, and how they are read.

In goes a table of events; out come plain arrays by feature: numbers (NaN where missing), words and vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ustad.clock import local_time
from ustad.dataset import zone_of
from ustad.events.encoder import read_number, read_vector, read_words
from ustad.habits.questions import TERMS
from ustad.schema import MOBILITY, EventSchema, Feature

#: What others ask about by these names: a feature so called has another question.
_ASKED_ALREADY = {*TERMS, "knn"}
_OF_VISITS = ("@minute_of_day", "@duration", "@weekday")


@dataclass(frozen=True)
class ValueFeature:
    """One feature that is compared with own values."""

    feature: Feature
    question: str  # the name of its question
    by_kind: bool  # whether what is usual depends on the kind of event


def find_kind(schema: EventSchema) -> Feature | None:
    """The first category that is read from a column: the kind of shop, of screen."""
    return next((f for f in schema.features if f.kind == "categorical" and f.columns), None)


def beyond_habits(schema: EventSchema) -> list[str]:
    """Scored features that habits (of place, kind, start and duration) do not look at: an amount, a device."""
    if schema.name == MOBILITY:
        return []
    kind = find_kind(schema)
    return [
        f.name
        for f in schema.features
        if f.scored and f.kind != "place" and f.source[0] not in (*_OF_VISITS, schema.habitat) and f is not kind
    ]


def value_features(schema: EventSchema) -> tuple[ValueFeature, ...]:
    """The features beyond habits. With them, where events have no place on a map, the habitat and the kind: how far a
    new one is from the own ones nobody can say, but how rare it is."""
    names = beyond_habits(schema)
    if not names:
        return ()
    features = [schema.feature(name) for name in names]
    kind = find_kind(schema)
    if not any(f.kind == "place" for f in schema.features):
        features = [*_words_of_places(schema, kind), *features]
    bare = {schema.habitat, *(kind.columns if kind is not None else ())}
    return tuple(ValueFeature(f, _question(f), kind is not None and f.source[0] not in bare) for f in features)


def _words_of_places(schema: EventSchema, kind: Feature | None) -> list[Feature]:
    of_habitat = next((f for f in schema.features if f.source == (schema.habitat,)), None)
    if schema.habitat is not None and of_habitat is None:
        of_habitat = Feature(schema.habitat, "categorical")
    features = [f for f in (kind, of_habitat) if f is not None and f.scored and f.kind == "categorical"]
    return list({f.name: f for f in features}.values())


def _question(feature: Feature) -> str:
    return f"own_{feature.name}" if feature.name in _ASKED_ALREADY else feature.name


def read_values(
    events: pa.Table, schema: EventSchema, features: Sequence[ValueFeature], before: pa.Table | None = None
) -> tuple[dict[str, Any], pa.Array]:
    """By question: float64 [n] in the feature's own unit, words (text, null where missing) or float64 [n, size]. And
    the kind of each event in words. `before` holds earlier events, which the time since the previous one is from."""
    clock = local_time(events[schema.time], zone_of(events, schema))
    values: dict[str, Any] = {}
    for one in features:
        feature = replace(one.feature, transform="none")
        if feature.kind == "categorical":  # a habitat's column may not be there
            is_there = set(feature.columns) <= set(events.column_names)
            values[one.question] = (
                read_words(events, feature, clock) if is_there else pa.nulls(events.num_rows, pa.string())
            )
        elif feature.kind == "vector":
            values[one.question] = read_vector(events, feature)
        elif feature.source == ("@elapsed",) and before is not None:
            both = _join(before, events, schema)
            values[one.question] = read_number(both, feature, schema, clock)[before.num_rows :]
        else:
            values[one.question] = read_number(events, feature, schema, clock)
    kind = find_kind(schema)
    kinds = pa.nulls(events.num_rows, pa.string()) if kind is None else read_words(events, kind, clock)
    return values, kinds


def _join(before: pa.Table, events: pa.Table, schema: EventSchema) -> pa.Table:
    """Whose events, and when, one table after the other."""
    columns = [name for name in (schema.entity, schema.time, schema.end) if name]
    return pa.concat_tables([one.select(columns) for one in (before, events)], promote_options="permissive")
