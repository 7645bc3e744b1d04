"""The paper's source of evidence, ready to be asked: the detector holds one, the live scorer holds one.

In go a trained network, its encoder and the training and calibration events; out comes a `ScoringModel`, which is
stored as tensors (`reference.safetensors`) and one Parquet table (`history.parquet`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from safetensors.numpy import save_file as save_arrays

from ustad import progress
from ustad.config import Config
from ustad.events.encoder import Encoder, EventArrays
from ustad.events.visit_counts import History
from ustad.events.windows import EventTensors, Queries, Windows, make_queries, make_windows, periods
from ustad.periods import Lessons, query_period
from ustad.scoring.calibration import Calibration, Parts
from ustad.scoring.score_table import add_measurements
from ustad.tables import DataError, event_keys, identity_hash

if TYPE_CHECKING:  # torch is loaded where a network is asked, so that habits can do without it
    import torch

    from ustad.network.dual_transformer import DualTransformer
    from ustad.network.inference.neighbours import Reference
    from ustad.network.inference.sampling import Samples
    from ustad.network.training.loop import FitResult

#: Below this many steps of training the losses, which then are the score, have hardly begun to fall.
FEW_STEPS = 200
_PILOT = 200  # events that are timed to say how long the others will take


@dataclass
class ScoringModel:
    """A network with everything that turns its samples into scores."""

    network: DualTransformer
    encoder: Encoder
    config: Config
    neighbours: Reference | None
    calibration: Calibration
    history: History | None = field(default=None, repr=False)
    past: Calibration | None = None  # the calibration of causal windows, where `calibration` is of another kind

    def causal(self) -> ScoringModel:
        """The same model seeing nothing later than the event, with percentiles of a calibration made that way."""
        config = self.config.replace({"window.mode": "past", "scoring.percentiles": "calibrated"})
        return replace(self, config=config, calibration=self.past or self.calibration, past=None)

    def index_neighbours(self) -> dict[str, float] | None:
        """Lists for live scoring where there are many reference events; how well they find neighbours, measured."""
        if self.neighbours is None:
            return None
        self.neighbours.index_for_live(self.config.scoring.neighbours)
        return self.neighbours.facts()

    def forget(self, entities: Iterable[Any]) -> ScoringModel:
        """Without the training events and the history of some entities. The network's weights stay as they are."""
        from ustad.network.inference.neighbours import Reference

        neighbours, owners = self.neighbours, identity_hash(entities).view(np.int64)
        if neighbours is not None:
            keep = ~np.isin(neighbours.owner, owners)
            if not keep.any():
                raise DataError("no training event would be left to compare with; delete the model instead")
            neighbours = Reference(neighbours.embeddings[keep], neighbours.owner[keep])
        return replace(self, neighbours=neighbours, history=self.history.forget(entities) if self.history else None)

    @property
    def scored_terms(self) -> tuple[str, ...]:
        """Names of the terms that are part of the score."""
        return scored_terms(self.encoder)

    def ask(
        self, events: pa.Table, context: pa.Table | None, device: torch.device | str, coverage: float | None = None
    ) -> pa.Table:
        """The events in their order with what was measured: what was expected, losses, uncertainties, distance, and
        prediction intervals that hold so large a share of normal events where `coverage` is given."""
        from ustad.network.inference.term_columns import interval_columns, term_columns, to_arrow

        table, arrays, queries = self._questions(events, context)
        samples, parts = measure(
            self.network.to(device),
            self.encoder,
            self.config,
            self.neighbours,
            arrays=arrays,
            queries=queries,
            device=device,
            keep_probabilities=coverage is not None,
        )
        columns = term_columns(self.encoder, arrays, queries.target, samples)
        columns |= {"knn": parts.knn, "history_days": self._history_days(arrays, queries)}
        if coverage is not None:
            columns |= interval_columns(self.encoder, samples, self._radii(coverage))
        asked_events = table.take(pa.array(arrays.row[queries.target]))
        order = np.argsort(arrays.row[queries.target], kind="stable")
        return add_measurements(asked_events, to_arrow(columns)).take(pa.array(order))

    def _questions(self, events: pa.Table, context: pa.Table | None) -> tuple[pa.Table, EventArrays, Queries]:
        """Context and events in one table, its arrays, and a query for every event that is to be scored."""
        schema = self.encoder.schema
        before = 0
        table = events
        if context is not None:
            old, new = (event_keys(t[schema.entity], t[schema.time]) for t in (context, events))
            earlier = context.filter(pa.array(~np.isin(old, new)))  # an event in both is scored, not context
            before = len(earlier)
            table = pa.concat_tables([earlier, events], promote_options="permissive")
        arrays = self.encoder.encode(table)
        queries = make_queries(arrays, make_windows(arrays, self.config.window), self.config.window)
        queries = queries.take(np.flatnonzero(arrays.row[queries.target] >= before))
        if not len(queries):
            raise DataError(f"{schema.name}: there is no event to score; check the dates")
        return table, arrays, queries

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

    def _radii(self, coverage: float) -> dict[str, float]:
        """Conformal radius of each scored term."""
        categories = tuple(t.kind == "category" for t in self.encoder.terms if t.scored)
        return dict(zip(self.scored_terms, self.calibration.radius(coverage, categories).tolist(), strict=True))

    def save(self, place: Path) -> None:
        """The network, its reference and the history that its sentences tell of, into a model directory."""
        from safetensors.torch import save_file

        state = self.network.state_dict()
        save_file({k: v.cpu().contiguous() for k, v in state.items()}, place / "model.safetensors")
        tensors = {k: np.ascontiguousarray(v) for k, v in self.to_tensors().items()}
        save_arrays(tensors, place / "reference.safetensors")
        if self.history is not None:
            self.history.save(place / "history.parquet")

    def to_tensors(self) -> dict[str, np.ndarray]:
        """Calibration and neighbours, for safetensors."""
        tensors = self.calibration.to_tensors()
        if self.past is not None:
            tensors |= self.past.to_tensors("past")
        return {**tensors, **self.neighbours.to_tensors()} if self.neighbours is not None else tensors

    @classmethod
    def from_tensors(
        cls,
        network: DualTransformer,
        encoder: Encoder,
        config: Config,
        tensors: dict[str, np.ndarray],
        *,
        history: History | None = None,
    ) -> ScoringModel:
        from ustad.network.inference.neighbours import Reference

        neighbours = Reference.from_tensors(tensors) if "neighbours.embeddings" in tensors else None
        terms = scored_terms(encoder)
        calibration = Calibration.from_tensors(tensors, terms)
        past = Calibration.from_tensors(tensors, terms, "past") if "past.span" in tensors else None
        return cls(network, encoder, config, neighbours, calibration, history, past)


def new_network(
    encoder: Encoder, config: Config, device: torch.device | str, start: DualTransformer | None = None
) -> DualTransformer:
    """A network whose first weights follow from the seed, or are those of `start`."""
    import torch

    from ustad.network.dual_transformer import DualTransformer

    torch.manual_seed(config.seed)
    network = DualTransformer(encoder.fields, config.model, config.window.max_events)
    if start is not None:
        network.load_state_dict(start.state_dict())
    return network.to(device)


def training_tensors(
    lessons: Lessons, config: Config, device: torch.device | str
) -> tuple[EventTensors, Windows, tuple[EventTensors, Queries]]:
    """Training windows and, one at a time, the questions of the early-stopping entities."""
    arrays = lessons.encoder.encode(lessons.train)
    stopping, questions = query_period(lessons.encoder, lessons.train, lessons.stopping, config)
    windows = make_windows(arrays, config.window)
    return EventTensors(arrays, device), windows, (EventTensors(stopping, device), questions)


def train_network(
    network: DualTransformer,
    lessons: Lessons,
    config: Config,
    device: torch.device | str,
    *,
    directory: Path | None = None,
    resume: bool = False,
) -> FitResult:
    """Train; with a directory, checkpoints are written there, and `resume` goes on from the last one."""
    from ustad.network.training.estimate import announce
    from ustad.network.training.masked_task import MaskedTask, fit

    tensors, windows, validation = training_tensors(lessons, config, device)
    training = config.training
    steps = training.epochs * math.ceil(len(windows) / training.batch_size)
    if steps < FEW_STEPS:
        progress.warn(
            f"{len(windows):,} windows are at most {steps:,} steps, too few to learn much in; lower "
            f"training.batch_size ({training.batch_size}) or raise training.epochs ({training.epochs})"
        )
    announce(MaskedTask(network, tensors, *validation, config), windows, config)
    return fit(network, tensors, windows, validation, config=config, device=device, directory=directory, resume=resume)


def scored_terms(encoder: Encoder) -> tuple[str, ...]:
    return tuple(t.name for t in encoder.terms if t.scored)


def fit_reference(
    network: DualTransformer,
    encoder: Encoder,
    config: Config,
    train: pa.Table,
    *,
    calibration: pa.Table,
    calibration_first_day: int,
    device: torch.device | str = "cpu",
) -> ScoringModel:
    """Reference embeddings from the training events, calibration from agents that were not trained on that week.

    `calibration` holds the calibration agents' validation week and, before `calibration_first_day` (local date as
    days since 1970-01-01), what came before it as context.
    """
    network.to(device)
    neighbours = embed_reference(network, encoder, config, train, device=device) if config.scoring.neighbours else None
    arrays = encoder.encode(calibration)

    def calibrate(config: Config) -> Calibration:
        parts, entity = measure_period(
            network, encoder, config, neighbours, arrays=arrays, first_day=calibration_first_day, device=device
        )
        if not len(parts):
            raise DataError("calibration: no event of the calibration agents falls into the validation week")
        return Calibration.fit(parts, entity, int(arrays.day.max()) - calibration_first_day + 1)

    # A live event sees less than one scored in bulk by days: its p-value needs a reference that saw as little.
    past = None if config.window.mode == "past" else calibrate(config.replace({"window.mode": "past"}))
    history = History.fit(train, encoder.schema)
    return ScoringModel(network, encoder, config, neighbours, calibrate(config), history, past)


def measure_period(
    network: DualTransformer,
    encoder: Encoder,
    config: Config,
    neighbours: Reference | None,
    *,
    arrays: EventArrays,
    first_day: int,
    device: torch.device | str = "cpu",
) -> tuple[Parts, np.ndarray]:
    """The parts of the score of every event from `first_day` on, and the codes of their entities: int32 [n]."""
    queries = make_queries(arrays, make_windows(arrays, config.window, first_day=first_day), config.window)
    if not len(queries):
        names, nothing = scored_terms(encoder), np.zeros((0, len(scored_terms(encoder))), np.float32)
        return Parts(names, nothing, nothing, nothing, nothing, np.zeros(0, np.float32)), np.zeros(0, np.int32)
    _, parts = measure(network, encoder, config, neighbours, arrays=arrays, queries=queries, device=device)
    return parts, arrays.entity[queries.target]


def measure(
    network: DualTransformer,
    encoder: Encoder,
    config: Config,
    neighbours: Reference | None,
    *,
    arrays: EventArrays,
    queries: Queries,
    device: torch.device | str,
    keep_probabilities: bool = False,
) -> tuple[Samples, Parts]:
    """Samples of all terms, and the parts of the score (scored terms and neighbour distance), of every query."""
    from ustad.network.inference.sampling import embed_events, sample
    from ustad.network.inference.unseen_losses import lessen_losses

    tensors = EventTensors(arrays, device)
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
    if neighbours is not None and len(queries):
        embeddings = embed_events(network, tensors, queries, config.scoring.knn_target == "visible")
        owner = owners(arrays)[queries.target] if config.scoring.knn_scope == "own" else None
        knn = neighbours.mean_distance(embeddings, config.scoring.neighbours, device, owner)
    return samples, parts_of(samples, scored_terms(encoder), knn)


def _rough_time(
    network: DualTransformer, tensors: EventTensors, queries: Queries, encoder: Encoder, *, config: Config
) -> str:
    """What a few events take, scaled up."""
    from ustad.network.inference.sampling import sample

    few = queries.take(np.linspace(0, len(queries) - 1, _PILOT).astype(np.int64))
    with progress.silence():
        for _ in range(2):  # the first call warms up
            began = time.perf_counter()
            sample(network, tensors, few, encoder, samples=config.scoring.samples, seed=config.seed)
    return progress.roughly((time.perf_counter() - began) * len(queries) / _PILOT)


def parts_of(samples: Samples, names: tuple[str, ...], knn: np.ndarray) -> Parts:
    error, loss, au, eu = (samples.matrix(what, names) for what in ("error", "loss", "au", "eu"))
    return Parts(names, error, loss, au, eu, knn)


def owners(arrays: EventArrays) -> np.ndarray:
    """A hash of each event's entity, the same in every table: int64 [N]."""
    return identity_hash(arrays.entity_ids).view(np.int64)[arrays.entity]


def embed_reference(
    network: DualTransformer, encoder: Encoder, config: Config, train: pa.Table, *, device: torch.device | str
) -> Reference:
    """The embeddings of training events, for the neighbours."""
    from ustad.network.inference.neighbours import Reference
    from ustad.network.inference.sampling import embed_events

    arrays = encoder.encode(train)
    queries = make_queries(arrays, make_windows(arrays, config.window), config.window)
    visible = config.scoring.knn_target == "visible"
    embeddings = embed_events(network, EventTensors(arrays, device), queries, visible)
    return Reference(embeddings, owners(arrays)[queries.target])
