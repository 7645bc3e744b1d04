"""Baselines that predict masked events: the same encoder, windows, training, questions and scores for all.

In go events; a network of `networks.py` learns to predict masked ones; out come expected values (`predict`) and
scores: |error| of numbers, 1 − p of categories, as percentiles among the scored events, the maximum over terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from scipy.stats import rankdata
from torch import Tensor, nn

from ustad.config import Config, ConfigError, WindowConfig
from ustad.dataset import event_days
from ustad.distribution import Distribution, Tail
from ustad.events.encoder import Encoder, EventArrays
from ustad.events.observed import GAP_COLUMNS
from ustad.events.windows import EventTensors, Features, Queries, make_queries, make_windows
from ustad.lab.baselines.base import Baseline, State, without
from ustad.lab.baselines.fitting import build, loop_settings, pack, unpack
from ustad.lab.baselines.networks import DeepSettings, SequenceNetwork
from ustad.lab.baselines.protocol import Abilities, event_table
from ustad.network.heads import Predictions
from ustad.network.inference.sampled_terms import Layout, TermResult, reduce_term
from ustad.network.inference.sampling import Samples, TermSamples
from ustad.network.inference.term_columns import term_columns, to_arrow
from ustad.network.training.masked_task import fit
from ustad.progress import track
from ustad.schema import EventSchema
from ustad.scoring.calibration import apply_tails, highest


@dataclass(frozen=True)
class Questions:
    """One question per event of a period, seen among what came before it."""

    arrays: EventArrays
    queries: Queries
    row: np.ndarray  # int64 [Q] row of the period's table


class EncodedNetwork(Baseline):
    """A network that reads encoded events: how the two are built and kept. A subclass names its network."""

    encoder: Encoder

    def _network(self) -> nn.Module:
        raise TypeError(f"{type(self).__name__} does not name its network")

    def _build(self) -> Any:
        return build(self._network, self.seed, self.device)

    def _state(self) -> State:
        return State(tensors=pack(self.network), facts={"encoder": self.encoder.to_dict()})

    def _restore(self, state: State) -> None:
        self.encoder = Encoder.from_dict(state.facts["encoder"])
        self.network = self._build()
        unpack(self.network, state.tensors)


class MaskedPredictor(EncodedNetwork):
    """Fit by masked prediction, score by the error of it. A subclass names its network."""

    abilities: ClassVar[Abilities] = Abilities(scores_events=True, scores_agents=True, predicts=True, causal=False)
    settings_class: ClassVar[type] = DeepSettings
    kinds_left_out: ClassVar[tuple[str, ...]] = ()  # kinds of features that the baseline cannot take
    network: SequenceNetwork

    # ---------------------------------------------------------------------------------------- learning
    def _learn(self, train: pa.Table, validation: pa.Table) -> None:
        self.encoder = Encoder.fit(train, without(self.schema, *self.kinds_left_out))
        self._prepare(train)
        self.network = self._build()
        self._train(train, validation)

    def _prepare(self, train: pa.Table) -> None:
        """What a network needs to know of the data beside its encoding."""

    def targets_an_epoch(self) -> float:
        return share_asked(self.settings, self.settings.mask_ratio)

    def loop_config(self) -> Config:
        return loop_config(self.settings, self.seed, self.targets_an_epoch())

    def _train(self, train: pa.Table, validation: pa.Table) -> None:
        """The detector's own loop, with this baseline's budget."""
        config = self.loop_config()
        arrays = self.encoder.encode(train)
        questions = ask(self.encoder, validation, train, config.window)
        result = fit(
            self.network,  # type: ignore[arg-type]  # offers the methods of the dual Transformer
            EventTensors(arrays, self.device),
            make_windows(arrays, config.window),
            (EventTensors(questions.arrays, self.device), questions.queries),
            config=config,
            device=self.device,
        )
        self._keep_training(result, train.num_rows)

    # ----------------------------------------------------------------------------------------- scoring
    def _rate(self, events: pa.Table, context: pa.Table | None) -> np.ndarray:
        """Maximum over the scored terms of the percentile of the term's error: float64 [n] in (0, 1]."""
        errors, row = self._term_errors(events, context)
        ranks = np.stack([percentiles(column) for column in errors.T])
        return in_rows(ranks.max(axis=0), row)

    def rate_calibrated(self, events: pa.Table, context: pa.Table, normal: pa.Table, before: pa.Table) -> np.ndarray:
        """Scores as tail shares among `normal` events (with what came `before` them): −log₁₀, float64 [n]. Ranks among
        the scored events cannot tell the most extreme ones apart; tail shares can."""
        errors, row = self._term_errors(events, context)
        tails: list[Tail] = [Distribution.fit(column) for column in self._term_errors(normal, before)[0].T]
        return in_rows(highest(apply_tails(tails, errors)), row)

    def _term_errors(self, events: pa.Table, context: pa.Table | None) -> tuple[np.ndarray, np.ndarray]:
        """Errors of the scored terms [Q, terms] and the row that each question is about [Q]."""
        questions = self._ask(events, context)
        terms = tuple(t.name for t in self.encoder.terms if t.scored)
        return self._reduce(questions).matrix("error", terms), questions.row

    def predict(self, events: Any, context: Any = None, reject: float = 0.0) -> pa.Table:
        """What each event's features were expected to be when it was masked, beside what they were.

        Columns: the identifying ones and, for each term, `expected_TERM` and `observed_TERM` in its own unit; of a
        vector only what was expected.
        """
        if reject:
            raise ConfigError(f"{self.name} has no uncertainty to reject by")
        table, before = self.scored_part(events, context)
        questions = self._ask(table, before)
        columns = term_columns(self.encoder, questions.arrays, questions.queries.target, self._reduce(questions))
        details = {k: in_rows(v, questions.row) for k, v in columns.items() if k.startswith(("expected_", "observed_"))}
        result = event_table(table, self.schema, np.zeros(table.num_rows)).drop_columns(["score"])
        for name, values in to_arrow(details).items():
            result = result.append_column(name, values)
        return result

    def _ask(self, events: pa.Table, context: pa.Table | None) -> Questions:
        return ask(self.encoder, events, context, loop_config(self.settings, self.seed).window)

    def _reduce(self, questions: Questions) -> Samples:
        """Each term's expectation and error, one value per question."""
        layout = Layout.of(self.encoder.fields, self.encoder.terms, self.network.config.aleatoric)
        reduced_terms: dict[str, list[TermResult]] = {t.name: [] for t in self.encoder.terms}
        tensors = EventTensors(questions.arrays, self.device)
        for predictions, truth, key in masked_predictions(self.network, tensors, questions.queries):
            one = predictions.map(lambda value: value[None])  # T = 1
            for term in self.encoder.terms:
                reduced_terms[term.name].append(reduce_term(term, layout, one, truth, key=key, seed=self.seed))
        return Samples({name: _join(parts) for name, parts in reduced_terms.items()})


# -------------------------------------------------------------------------------------------- the parts
def share_asked(settings: DeepSettings, ratio: float) -> float:
    """How often an epoch asks about each event: it is in the windows of so many days, and masked in a share of them."""
    return (settings.window_days + 1) * ratio


def loop_config(settings: DeepSettings, seed: int, targets_an_epoch: float | None = None) -> Config:
    """The detector's configuration with a baseline's budget; the rest as in the paper."""
    return Config().replace(
        {
            "seed": seed,
            "window.length": settings.window_days,
            "window.max_events": settings.max_events,
            "training.mask_ratio": settings.mask_ratio,
            **loop_settings(settings, targets_an_epoch or share_asked(settings, settings.mask_ratio)),
        }
    )


def ask(encoder: Encoder, events: pa.Table, context: pa.Table | None, window: WindowConfig) -> Questions:
    """One question per event; `context` gives what its agents did in the days before."""
    schema = encoder.schema
    first = int(event_days(events, schema).min())
    before = _recent(context, events, schema, first - window.length)
    n_before = before.num_rows
    arrays = encoder.encode(pa.concat_tables([before, _select_columns(events, schema)], promote_options="default"))
    queries = make_queries(arrays, make_windows(arrays, window, first_day=first), window)
    row = arrays.row[queries.target] - n_before
    own = np.flatnonzero(row >= 0)
    return Questions(arrays, queries.take(own), row[own])


def _recent(context: pa.Table | None, events: pa.Table, schema: EventSchema, first: int) -> pa.Table:
    """Events of the same agents from day `first` on, none of them later than the scored ones begin."""
    if context is None or context.num_rows == 0:
        return _select_columns(events, schema).slice(0, 0)
    entity = context[schema.entity]
    same = pc.is_in(entity, pc.unique(events[schema.entity]).cast(entity.type)).to_numpy()
    time, start = context[schema.time].cast(pa.int64()).to_numpy(), pc.min(events[schema.time].cast(pa.int64())).as_py()
    recent = (event_days(context, schema) >= first) & (time < start)
    return _select_columns(context, schema).filter(pa.array(same & recent))


def _select_columns(events: pa.Table, schema: EventSchema) -> pa.Table:
    """The columns of the schema, the zone and what was not observed, as far as they are there."""
    names = dict.fromkeys([*schema.columns, schema.timezone, *GAP_COLUMNS])
    return events.select([name for name in names if name in events.column_names])


@torch.no_grad()
def masked_predictions(
    network: SequenceNetwork, tensors: EventTensors, queries: Queries
) -> Iterator[tuple[Predictions, Features, Tensor]]:
    """Predictions of each question's event when it alone is masked, its true features and its key, in order."""
    network.eval()
    large = tensors.device.type == "cuda"
    chunks = torch.arange(len(tensors), device=tensors.device).split(65_536 if large else 4_096)
    embeddings = torch.cat([network.embed(tensors.features[chunk]) for chunk in chunks])
    size = 4_096 if large else 1_024  # heads × windows stay within what CUDA's fused attention takes
    with track("predicting masked events", len(queries)) as advance:
        for first in range(0, len(queries), size):
            part = queries.take(np.arange(first, min(first + size, len(queries))))
            start, stop, target = (torch.from_numpy(a).to(tensors.device) for a in (part.start, part.stop, part.target))
            batch = tensors.batch(start, stop, int(part.length.max()))
            masked = batch.index == target[:, None]
            masked &= ~batch.padding
            hidden = network.contextualise_at(
                embeddings[batch.index],
                masked,
                batch.padding,
                batch.position,
                day_position=batch.day_position,
                at=target - start,
            )
            yield network.decode(hidden), tensors.features[target], tensors.key[target]
            advance(len(part))


def percentiles(values: np.ndarray) -> np.ndarray:
    """Rank of each value among all, in (0, 1]; ties share their mean rank, what is missing ranks 0."""
    is_finite = np.isfinite(values)
    ranks = np.zeros(len(values))
    if is_finite.any():
        ranks[is_finite] = rankdata(values[is_finite]) / is_finite.sum()
    return ranks


def in_rows(values: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Values of questions put back into the order of the table's rows."""
    result = np.empty_like(values)
    result[row] = values
    return result


def _join(parts: list[TermResult]) -> TermSamples:
    names = ["expected", "error", "loss", "au", "eu", *(["vector"] if parts[0].vector is not None else [])]
    return TermSamples(**{name: torch.cat([getattr(p, name) for p in parts]).cpu().numpy() for name in names})
