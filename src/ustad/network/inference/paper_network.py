"""The paper's network as a source of evidence: what it expected of an event, and how far that lies from all it knows.

In goes an inquiry; out come losses by term and the distance to the nearest events of training, both uncertainties, and
columns in people's units. It is stored as tensors and one Parquet table.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file, save_file

from ustad import progress
from ustad.config import Config, ConfigError
from ustad.events.encoder import Encoder, EventArrays
from ustad.events.visit_counts import VisitCounts
from ustad.events.windows import EventTensors, Queries, make_queries, make_windows, periods
from ustad.evidence_source import Answers, Arrays, Inquiry, MeasuredSource, ModelContent, SourceFit, Training
from ustad.files import floats, set_columns
from ustad.lessons import Lessons
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.neighbours import Reference
from ustad.network.inference.sampling import Samples, embed_events, sample
from ustad.network.inference.term_columns import interval_columns, term_columns, to_arrow
from ustad.network.inference.unseen_losses import lessen_losses
from ustad.network.network_words import DISTANCE, Explainer, find_kinds
from ustad.network.training.dual_training import new_network, train_network
from ustad.network.training.loop import FitResult
from ustad.schema import EventSchema
from ustad.tables import DataError, event_keys, identity_hash

_PILOT = 200  # events that are timed to say how long the others will take
WEIGHTS, COUNTS = "model.safetensors", "history.parquet"


@dataclass
class PaperNetwork(MeasuredSource):
    """A trained network with what it compares events with: embeddings of training events and, for words, counts."""

    name = "network"
    network: DualTransformer
    encoder: Encoder
    config: Config
    neighbours: Reference | None
    counts: VisitCounts | None = field(default=None, repr=False)
    result: FitResult | None = field(default=None, repr=False)

    @classmethod
    def fit(cls, lessons: Lessons, training: Training) -> SourceFit[PaperNetwork]:
        network = cls.begin(lessons, training).network
        result = train_network(network, lessons, training)
        progress.say("building the reference and calibrating")
        source = cls.of_events(network, lessons.encoder, training.config, lessons.train)
        source.result = result
        return SourceFit(source, source.answer)

    @classmethod
    def begin(cls, lessons: Lessons, training: Training) -> PaperNetwork:
        """With the weights that training begins with, and nothing to compare events with."""
        start = training.begins_with(cls)
        if training.start and start is None:
            raise ConfigError("the model to carry on from holds no network of the paper; train without it")
        network = new_network(lessons.encoder, training.config, training.device, start.network if start else None)
        return cls(network, lessons.encoder, training.config, None)

    @classmethod
    def of_events(cls, network: DualTransformer, encoder: Encoder, config: Config, train: pa.Table) -> PaperNetwork:
        """A trained network that compares events with those of training."""
        source = cls(network, encoder, config, None, VisitCounts.fit(train, encoder.schema))
        if config.scoring.neighbours:
            source.neighbours = embed_reference(network, encoder, config, train, device=source.device)
        return source

    @property
    def schema(self) -> EventSchema:  # type: ignore[override]  # read, never set
        return self.encoder.schema

    @property
    def looks(self) -> dict[str, tuple[str, ...]]:  # type: ignore[override]  # they follow from the schema
        """Every question by itself."""
        return {name: (name,) for name in (*scored_terms(self.encoder), DISTANCE)}

    @property
    def about(self) -> dict[str, str]:  # type: ignore[override]  # as above
        parts = {"@minute_of_day": "start", "@duration": "length"}
        sources = {t.name: self.schema.feature(t.feature).source[0] for t in self.encoder.terms if t.scored}
        return {name: parts[source] for name, source in sources.items() if source in parts}

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def answer_columns(self) -> dict[str, str]:
        return {**{name: f"loss_{name}" for name in scored_terms(self.encoder)}, DISTANCE: DISTANCE}

    @property
    def entity_key(self) -> np.ndarray:
        return self.counts.entity_key if self.counts is not None else np.zeros(0, np.uint64)

    # ---------------------------------------------------------------------------------------- events
    def answer(self, inquiry: Inquiry) -> Answers:
        """Losses of the scored terms, and the distance to neighbours."""
        arrays, queries = self._questions(inquiry)
        samples, knn = sample_queries(self, arrays, queries, keep_probabilities=inquiry.radii is not None)
        columns = term_columns(self.encoder, arrays, queries.target, samples)
        columns |= {DISTANCE: knn, "history_days": self._history_days(arrays, queries)}
        if inquiry.radii is not None:
            columns |= interval_columns(self.encoder, samples, inquiry.radii)
        order = pa.array(np.argsort(arrays.row[queries.target], kind="stable"))
        return self.read_answers(inquiry.table.slice(inquiry.first), pa.table(to_arrow(columns)).take(order))

    def read_answers(self, events: pa.Table, measurements: pa.Table) -> Answers:
        terms = scored_terms(self.encoder)
        raw = {question: floats(measurements[column]) for question, column in self.answer_columns.items()}
        au, eu = ([floats(measurements[f"{what}_{name}"]) for name in terms] for what in ("au", "eu"))
        shape = (len(terms), len(events))
        noise, doubt = (np.nansum(np.reshape(one, shape).astype(np.float64), axis=0) for one in (au, eu))
        return Answers(raw, noise, doubt, facts=(events, measurements))

    def measure(self, answers: Answers, events: pa.Table) -> dict[str, Any]:
        """What was expected, losses, uncertainties, distance, and prediction intervals where they are asked for."""
        measurements = answers.facts[1]
        return dict(zip(measurements.column_names, measurements.columns, strict=True))

    def numbers(self, schema: EventSchema, answers: Answers, measurements: Mapping[str, Any]) -> dict[str, Arrays]:
        numbers: dict[str, Arrays] = {DISTANCE: {"observed": answers.raw[DISTANCE]}}
        columns = {"expected": "expected", "observed": "observed", "spread": "spread", "noise": "au", "doubt": "eu"}
        for name in scored_terms(self.encoder):
            values = {what: measurements.get(f"{column}_{name}") for what, column in columns.items()}
            numbers[name] = {
                what: one.to_numpy(zero_copy_only=False)
                for what, one in values.items()
                if one is not None and pa.types.is_floating(one.type)
            }
        return numbers

    def find_kinds(self, answers: Answers, leads: np.ndarray, about: np.ndarray) -> np.ndarray:
        missing = [np.isnan(values) for name, values in answers.raw.items() if name != DISTANCE]
        return find_kinds(leads, about, missing, answers.facts[0])

    def explain(self, answers: Answers, judgement: Any, events: pa.Table, rows: np.ndarray) -> list[str]:
        table = set_columns(events, **self.measure(answers, events)).take(pa.array(rows))
        facts = self.counts.facts(table) if self.counts is not None and len(rows) else None
        explainer, leads = Explainer(self.encoder), judgement.leads[rows]
        return [
            explainer.sentence(row, leads[i], facts.row(i) if facts is not None else None)
            for i, row in enumerate(table.to_pylist())
        ]

    def _questions(self, inquiry: Inquiry) -> tuple[EventArrays, Queries]:
        """Context and events as arrays, and a query for every event that is to be scored."""
        schema, table, before = self.schema, inquiry.table, inquiry.first
        if inquiry.earlier is not None:
            old, new = (event_keys(t[schema.entity], t[schema.time]) for t in (inquiry.earlier, table))
            earlier = inquiry.earlier.filter(pa.array(~np.isin(old, new)))  # an event in both is scored, not context
            before += len(earlier)
            table = pa.concat_tables([earlier, table], promote_options="permissive")
        arrays = self.encoder.encode(table)
        queries = make_queries(arrays, make_windows(arrays, self.config.window), self.config.window)
        queries = queries.take(np.flatnonzero(arrays.row[queries.target] >= before))
        if not len(queries):
            raise DataError(f"{schema.name}: there is no event to score; check the dates")
        return arrays, queries

    def _history_days(self, arrays: EventArrays, queries: Queries) -> np.ndarray:
        """How much of the window before each event its entity's data could fill (days, events or sessions): int32.

        Less than the window's length means a shorter history than the model was made for.
        """
        first = arrays.offsets[arrays.entity[queries.target]]
        window = self.config.window
        if window.unit == "events":
            return np.minimum(queries.target - first, window.length).astype(np.int32)
        period = periods(arrays, window)
        return np.minimum(period[queries.target] - period[first], window.length).astype(np.int32)

    # --------------------------------------------------------------------------------------- storing
    def facts(self) -> dict[str, Any]:
        """How well neighbours are found live, measured; lists are made for that where there are many."""
        facts = self.result.facts() if self.result is not None else {}
        if self.neighbours is None:
            return {**facts, "neighbours": None}
        self.neighbours.index_for_live(self.config.scoring.neighbours)
        return {**facts, "neighbours": self.neighbours.facts()}

    def forget(self, entities: Sequence[Any]) -> PaperNetwork:
        """Without the training events and the counts of some entities. The network's weights stay as they are."""
        neighbours, hashes = self.neighbours, identity_hash(entities).view(np.int64)
        if neighbours is not None:
            keep = ~np.isin(neighbours.owner, hashes)
            if not keep.any():
                raise DataError("no training event would be left to compare with; delete the model instead")
            neighbours = Reference(neighbours.embeddings[keep], neighbours.owner[keep])
        return replace(self, neighbours=neighbours, counts=self.counts.forget(entities) if self.counts else None)

    def save(self, place: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Weights and counts; the embeddings of training events go into the judge's file."""
        save_file({k: v.cpu().contiguous() for k, v in self.network.state_dict().items()}, place / WEIGHTS)
        if self.counts is not None:
            self.counts.save(place / COUNTS)
        return self.neighbours.to_tensors() if self.neighbours is not None else {}, {}

    @classmethod
    def load(cls, content: ModelContent) -> PaperNetwork:
        encoder, config, arrays = content.encoder, content.config, content.arrays
        network = DualTransformer(encoder.fields, config.model, config.window.max_events)
        network.load_state_dict(load_file(content.place / WEIGHTS))
        counts = VisitCounts.load(content.place / COUNTS, encoder.schema) if COUNTS in content.files else None
        neighbours = Reference.from_tensors(arrays) if "neighbours.embeddings" in arrays else None
        return cls(network.to(content.device).eval(), encoder, config, neighbours, counts)


def scored_terms(encoder: Encoder) -> tuple[str, ...]:
    return tuple(t.name for t in encoder.terms if t.scored)


def sample_queries(
    source: PaperNetwork, arrays: EventArrays, queries: Queries, *, keep_probabilities: bool = False
) -> tuple[Samples, np.ndarray]:
    """Samples of all terms, and the distance to neighbours (float32, NaN without any), of every query."""
    network, encoder, config = source.network, source.encoder, source.config
    tensors = EventTensors(arrays, source.device)
    if progress.is_shown() and len(queries) > 10 * _PILOT:
        progress.say(
            f"scoring {len(queries):,} events: {_rough_time(network, tensors, queries, encoder, config=config)}"
        )
    samples = sample(
        network,
        tensors,
        queries,
        encoder,
        samples=config.scoring.samples,
        seed=config.seed,
        keep_probabilities=keep_probabilities,
    )
    lessen_losses(samples, encoder, arrays, queries.target)
    knn = np.full(len(queries), np.nan, np.float32)
    if source.neighbours is not None and len(queries):
        embeddings = embed_events(network, tensors, queries, config.scoring.knn_target == "visible")
        owner = owners(arrays)[queries.target] if config.scoring.knn_scope == "own" else None
        knn = source.neighbours.mean_distance(embeddings, config.scoring.neighbours, source.device, owner)
    return samples, knn


def _rough_time(
    network: DualTransformer, tensors: EventTensors, queries: Queries, encoder: Encoder, *, config: Config
) -> str:
    """What a few events take, scaled up."""
    few = queries.take(np.linspace(0, len(queries) - 1, _PILOT).astype(np.int64))
    with progress.silence():
        for _ in range(2):  # the first call warms up
            began = time.perf_counter()
            sample(network, tensors, few, encoder, samples=config.scoring.samples, seed=config.seed)
    return progress.roughly((time.perf_counter() - began) * len(queries) / _PILOT)


def owners(arrays: EventArrays) -> np.ndarray:
    """A hash of each event's entity, the same in every table: int64 [N]."""
    return identity_hash(arrays.entity_ids).view(np.int64)[arrays.entity]


def embed_reference(
    network: DualTransformer, encoder: Encoder, config: Config, train: pa.Table, *, device: torch.device | str
) -> Reference:
    """The embeddings of training events, for the neighbours."""
    arrays = encoder.encode(train)
    queries = make_queries(arrays, make_windows(arrays, config.window), config.window)
    visible = config.scoring.knn_target == "visible"
    embeddings = embed_events(network, EventTensors(arrays, device), queries, visible)
    return Reference(embeddings, owners(arrays)[queries.target])
