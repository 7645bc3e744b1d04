"""Own values as a source of evidence: how unusual each value of an event is for its entity.

In go events with what is known of their entities; out come an answer for every feature that habits do not look at, the
numbers behind it, and a sentence. Own values are those of the days that were learnt from; they do not move on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from safetensors.numpy import load_file, save_file

from ustad import progress
from ustad.evidence_source import Answers, Arrays, Inquiry, ModelContent, OtherSource, SourceFit, Training
from ustad.files import read_json, read_table, write_json, write_table
from ustad.lessons import Lessons
from ustad.own_values.own_events import OwnEvents
from ustad.own_values.value_features import ValueFeature, find_kind, read_values, value_features
from ustad.own_values.value_live import LiveValues
from ustad.own_values.value_models import BY_FEATURE, BY_NAME, Comparison, Model, OwnValues, find_codes
from ustad.own_values.value_words import tell_values
from ustad.schema import EventSchema
from ustad.tables import agent_codes, identity_hash

#: Files of a model directory: remembered values, what is usual for everybody, and the rest.
VALUES, ARRAYS, FACTS = "own_values.parquet", "own_values.safetensors", "own_values.json"


@dataclass(frozen=True)
class ValueSource(OtherSource):
    """What is usual of every feature, and the own values that are remembered."""

    schema: EventSchema
    kinds: tuple[str, ...]  # of events, in training
    models: Mapping[str, Model]  # by question
    events: OwnEvents

    name = "values"

    @classmethod
    def fit(cls, lessons: Lessons, training: Training) -> SourceFit[ValueSource]:
        """The validation week is compared with own values of the weeks before it; they are remembered of both."""
        schema, train = lessons.schema, lessons.train
        labels = ", ".join(one.feature.label for one in value_features(schema))
        progress.say(f"habits do not look at everything here: {labels} are compared with each one's own values")
        both = pa.concat_tables([train, lessons.validation], promote_options="permissive")
        return SourceFit(cls.learn(both, schema), cls.learn(train, schema).answer)

    @classmethod
    def learn(cls, train: pa.Table, schema: EventSchema) -> ValueSource:
        """From training events."""
        features = value_features(schema)
        values, kind = read_values(train, schema, features)
        kinds = tuple(sorted(pc.unique(kind).drop_null().to_pylist()))
        source = cls(schema, kinds, {}, OwnEvents(np.zeros(0, np.uint64), np.zeros(1, np.int64), {}))
        codes = source._codes(kind)
        models, own_values = {}, {}
        for one in features:
            code = codes if one.by_kind else np.zeros_like(codes)
            model = BY_FEATURE[one.feature.kind].fit(one.feature, values[one.question], code, len(kinds))
            models[one.question] = model
            own_values[one.question] = model.remember(values[one.question], code)
        return replace(source, models=models, events=OwnEvents.fit(train, schema, own_values))

    @cached_property
    def features(self) -> tuple[ValueFeature, ...]:
        return value_features(self.schema)

    @cached_property
    def looks(self) -> Mapping[str, tuple[str, ...]]:  # type: ignore[override]  # which questions there are, the schema says
        """Beside what habits say of a visit, and by themselves; a number of its own column also alone, so that one that
        is far out is not lost among others."""
        numbers = [one for one in self.features if one.feature.kind == "numeric" and one.feature.columns]
        alone = {f"value_{one.question}": (one.question,) for one in numbers}
        return {"visit": tuple(self.models), "values": tuple(self.models), **alone}

    # ---------------------------------------------------------------------------------------- events
    def answer(self, inquiry: Inquiry) -> Answers:
        earlier = [
            one for one in (inquiry.earlier, inquiry.table.slice(0, inquiry.first)) if one is not None and one.num_rows
        ]
        before = pa.concat_tables(earlier, promote_options="permissive") if earlier else None
        return self.answer_events(inquiry.table.slice(inquiry.first), before)

    def answer_events(self, events: pa.Table, before: pa.Table | None) -> Answers:
        """Of all rows; `before` is what came before them."""
        values, kind = read_values(events, self.schema, self.features, before)
        entity, names = agent_codes(events[self.schema.entity])
        owner, codes = self.events.owners(identity_hash(names))[entity], self._codes(kind)
        facts = {
            one.question: self.models[one.question].compare(
                self._own[one.question], owner, values[one.question], codes if one.by_kind else np.zeros_like(codes)
            )
            for one in self.features
        }
        return Answers({question: one.raw for question, one in facts.items()}, facts=facts)

    def _codes(self, kind: pa.Array) -> np.ndarray:
        """Codes of kinds, 0 where unknown: int64 [n]."""
        return find_codes(kind, self.kinds) + 1

    @cached_property
    def _own(self) -> dict[str, OwnValues]:
        own = self.events
        return {
            name: OwnValues(own.offsets, own.values[name], model.summarise(own, name))
            for name, model in self.models.items()
        }

    def find_kinds(self, answers: Answers, leads: np.ndarray, about: np.ndarray) -> np.ndarray:
        """`novel` where a word leads that the entity never had, else `predictable` where a value leads."""
        kinds = np.full(len(leads), None, dtype=object)
        for question, one in answers.facts.items():
            is_new = np.zeros(len(leads), bool) if one.same is None else one.same == 0
            kinds = np.where(leads == question, np.where(is_new, "novel", "predictable"), kinds)
        return kinds

    def measure(self, answers: Answers, events: pa.Table) -> dict[str, np.ndarray]:
        columns: dict[str, np.ndarray] = {}
        for one in self.features:
            facts, name = answers.facts[one.question], one.feature.name
            if one.feature not in self.schema.features or one.feature is find_kind(self.schema):
                continue  # no feature of its own, or one that habits tell
            if facts.expected is not None:
                columns |= {f"expected_{name}": facts.expected, f"observed_{name}": facts.observed}
            if facts.spread is not None:
                columns |= {f"spread_{name}": facts.spread, f"error_{name}": _error(facts, one.feature.period)}
        return columns

    def numbers(self, schema: EventSchema, answers: Answers, measurements: Arrays) -> dict[str, Arrays]:
        return {
            question: {"expected": one.expected, "observed": one.observed, "spread": one.spread}
            for question, one in answers.facts.items()
            if one.expected is not None and one.spread is not None
        }

    def explain(self, answers: Answers, judgement: Any, events: pa.Table, rows: np.ndarray) -> list[str]:
        return [
            self.explain_row(answers.facts, {name: float(share[row]) for name, share in judgement.shares.items()}, row)
            for row in rows
        ]

    def explain_row(self, facts: Mapping[str, Comparison], shares: Mapping[str, float], row: int) -> str:
        """Sentences for the values that make much of the score, empty where none does."""
        return tell_values(self.schema, self.features, facts, shares, row=row)

    # --------------------------------------------------------------------------------------- keeping
    def forget(self, entities: Sequence[Any]) -> ValueSource:
        return replace(self, events=self.events.forget(entities))

    def live(self) -> LiveValues:
        return LiveValues(self)

    def save(self, place: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        write_table(self.events.to_table(), place / VALUES)
        parts = {name: model.to_parts() for name, model in self.models.items()}
        arrays = {f"{name}.{key}": values for name, (own, _) in parts.items() for key, values in own.items()}
        save_file({name: np.ascontiguousarray(values) for name, values in arrays.items()}, place / ARRAYS)
        write_json({"kinds": self.kinds, "models": {name: facts for name, (_, facts) in parts.items()}}, place / FACTS)
        return {}, {"values": True}

    @classmethod
    def load(cls, content: ModelContent) -> ValueSource:
        arrays, facts = load_file(content.place / ARRAYS), read_json(content.place / FACTS)
        models = {}
        for name, own in facts["models"].items():
            mine = {key.removeprefix(f"{name}."): v for key, v in arrays.items() if key.startswith(f"{name}.")}
            models[name] = BY_NAME[own["model"]].from_parts(mine, own)
        events = OwnEvents.from_table(read_table(content.place / VALUES))
        return cls(content.encoder.schema, tuple(facts["kinds"]), models, events)


def _error(facts: Comparison, period: float) -> np.ndarray:
    assert facts.expected is not None
    away = np.abs(facts.observed - facts.expected)
    return np.minimum(away, period - away) if period else away
