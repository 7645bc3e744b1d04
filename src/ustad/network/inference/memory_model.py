"""The network that attends to own places as a source of evidence: fitted on training events, it can be asked of any.

In go training and validation tables; out comes a `MemoryModel`. The own places it reads always come from the history
that an inquiry brings, so what is not in it cannot leak in.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from safetensors.torch import load_file, save_file

from ustad.config import Config
from ustad.dataset import event_days
from ustad.events.encoder import Encoder, EventArrays
from ustad.events.visits import Frame, read_visits
from ustad.events.windows import EventTensors, Queries, make_queries, make_windows
from ustad.evidence_source import Answerer, Answers, LiveSource, ModelContent, OtherSource, SourceFit, Training
from ustad.habits.history import Habits
from ustad.habits.stages import HistoryInquiry
from ustad.lessons import Lessons
from ustad.network.dual_transformer import DualTransformer, build_network
from ustad.network.inference.memory_terms import DOUBT, NOISE, RAW, MemorySamples, sample_memory
from ustad.network.place_counts import MemoryTensors, OwnPlaces
from ustad.network.training.loop import FitResult
from ustad.network.training.memory_step import Data
from ustad.network.training.memory_task import fit_memory
from ustad.progress import say

#: Weights of the network with a row for each kind of place.
BY_KIND = ("memory.category.weight", "memory.heads.kind.weight", "memory.heads.kind.bias")
#: The file of the weights in a model directory.
WEIGHTS = "memory.safetensors"
#: One question at a time: parts that are scored side by side share a network and its GPU.
_ASKING = Lock()


class NetworkAnswers(Answerer):
    """What such a network says, wherever it runs."""

    name = "network"
    looks: ClassVar = {"visit": RAW}
    about: ClassVar = {"memory_start": "start", "memory_duration": "length"}

    @abstractmethod
    def terms(self, habits: Habits, events: pa.Table, before: pa.Table | None) -> Mapping[str, np.ndarray]:
        """Raw answers about every event and both uncertainties, by row, with the own places of `habits`; `before` is
        context."""

    def answer(self, inquiry: HistoryInquiry) -> Answers:
        """Of each event with the own places of its history."""
        values: dict[str, np.ndarray] = {}
        for habits, rows, before in inquiry.stages():
            for name, answers in self.terms(habits, inquiry.events(rows), before).items():
                values.setdefault(name, np.full(len(inquiry.order), np.nan, answers.dtype))[rows] = answers
        noise, doubt = (values.pop(name, None) for name in (NOISE, DOUBT))
        return Answers(values, noise, doubt)


@dataclass
class MemoryModel(NetworkAnswers, OtherSource):
    """A memory network, its encoder and frame."""

    stops_early = True
    network: DualTransformer
    encoder: Encoder
    frame: Frame
    config: Config
    device: torch.device
    result: FitResult | None = None
    samples: MemorySamples | None = field(default=None, repr=False)  # of the latest question, by row
    _places_cache: tuple[Habits, OwnPlaces] | None = field(default=None, repr=False)

    @classmethod
    def fit(cls, lessons: Lessons, training: Training) -> SourceFit[MemoryModel]:
        """With a directory, checkpoints are written there."""
        encoder, config, train = lessons.encoder, training.config, lessons.train
        frame = Frame.fit(train, encoder.schema)
        network = first_network(encoder, frame, config, training.begins_with(cls))
        model = cls(network.to(training.device), encoder, frame, config, training.device)
        habits = Habits.fit(read_visits(train, encoder.schema, frame))
        arrays, data = model._data(train, habits)
        stopping_data, questions, _ = model._questions(lessons.stopping, train, habits)
        windows, validation = make_windows(arrays, config.window), (stopping_data, questions)
        model.result = fit_memory(
            model.network, data, windows, validation, config=config, directory=training.directory,
            resume=training.resume,
        )  # fmt: skip
        return SourceFit(model, model.answer)

    def live(self) -> LiveSource:
        from ustad.network.live.memory_live import MemoryLive

        return MemoryLive(self)

    def save(self, place: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Write the weights into a directory; all else follows from the encoder, the frame and the settings."""
        state = self.network.state_dict()
        save_file({k: v.detach().cpu().contiguous() for k, v in state.items()}, place / WEIGHTS)
        return {}, {"memory": True}

    @classmethod
    def load(cls, content: ModelContent) -> MemoryModel:
        """Kinds of places are numbered as habits have them."""
        encoder, frame, config = content.encoder, Frame.from_dict(content.facts["frame"]), content.config
        network = new_network(encoder, frame, config)
        network.load_state_dict(load_file(content.place / WEIGHTS))
        return cls(network.to(content.device).eval(), encoder, frame, config, content.device)

    def facts(self) -> dict[str, Any]:
        return self.result.facts() if self.result is not None else {}

    def terms(self, habits: Habits, events: pa.Table, before: pa.Table | None) -> dict[str, np.ndarray]:
        config = self.config
        samples, seed, precision = config.scoring.samples, config.seed, config.training.precision
        data, questions, row = self._questions(events, before, habits)
        with _ASKING:
            samples_in_order = sample_memory(self.network, data, questions, samples, seed=seed, precision=precision)
        self.samples = by_row = samples_in_order.by_row(row, events.num_rows)
        return {**by_row.terms, DOUBT: by_row.epistemic, NOISE: by_row.aleatoric}

    # ------------------------------------------------------------------------------------------ steps
    def _data(self, table: pa.Table, habits: Habits) -> tuple[EventArrays, Data]:
        arrays = self.encoder.encode(table)
        visits = read_visits(table, self.encoder.schema, self.frame)
        memory = MemoryTensors(self._own_places(habits), habits, visits, self.device)
        return arrays, Data(EventTensors(arrays, self.device), memory)

    def _questions(self, events: pa.Table, before: pa.Table | None, habits: Habits) -> tuple[Data, Queries, np.ndarray]:
        """Data with context, a question for each row of `events`, and that row."""
        schema, first = self.encoder.schema, 0
        table = events
        if before is not None and before.num_rows:
            context = self._recent(before, events)
            first, table = context.num_rows, pa.concat_tables([context, events], promote_options="permissive")
        arrays, data = self._data(table, habits)
        first_day = int(event_days(events, schema).min())
        windows = make_windows(arrays, self.config.window, first_day=first_day)
        questions = make_queries(arrays, windows, self.config.window)
        questions = questions.take(np.flatnonzero(arrays.row[questions.target] >= first))
        return data, questions, arrays.row[questions.target] - first

    def _recent(self, before: pa.Table, events: pa.Table) -> pa.Table:
        """Context of the events' own entities, no older than a window can show."""
        schema, window = self.encoder.schema, self.config.window
        mine = pc.is_in(before[schema.entity], pc.unique(events[schema.entity]))
        before = before.filter(mine)
        if window.unit != "days" or not before.num_rows:
            return before
        oldest = int(event_days(events, schema).min()) - window.length
        return before.filter(pa.array(event_days(before, schema) >= oldest))

    def _own_places(self, habits: Habits) -> OwnPlaces:
        """Kept for the habits of the latest question: live scoring asks again and again."""
        latest = self._places_cache  # another thread may put in another's
        if latest is None or latest[0] is not habits:
            latest = self._places_cache = (habits, OwnPlaces.fit(habits, self.config.model.places))
        return latest[1]


def new_network(encoder: Encoder, frame: Frame, config: Config) -> DualTransformer:
    """A network whose first weights follow from the seed; torch's own generator is left as it was."""
    return build_network(encoder.fields, config, len(frame.categories) + 1)


def first_network(encoder: Encoder, frame: Frame, config: Config, start: MemoryModel | None) -> DualTransformer:
    """A new network with the weights of `start`; those that belong to a kind of place are found by its name."""
    network = new_network(encoder, frame, config)
    if start is None:
        return network
    own, weights = network.state_dict(), start.network.state_dict()
    old_codes = {name: code for code, name in enumerate(start.frame.categories, 1)}
    code_pairs = [(code, old_codes[name]) for code, name in enumerate(frame.categories, 1) if name in old_codes]
    to, source = zip((0, 0), *code_pairs, strict=True)
    for name in BY_KIND:
        rows = own[name].clone()
        if rows.shape[1:] == weights[name].shape[1:]:
            rows[list(to)] = weights[name].to(rows.device)[list(source)]
            weights[name] = rows
    if {n: w.shape for n, w in weights.items()} != {n: w.shape for n, w in own.items()}:
        say("the memory network has another shape than that of the model carried on from: it starts anew")
        return network
    if len(code_pairs) < len(frame.categories):
        new = len(frame.categories) - len(code_pairs)
        say(f"{new} kind(s) of places are new to the memory network: what it knows of them starts anew")
    network.load_state_dict(weights)
    return network
