"""The memory network for one entity, one event at a time: what its latest event was, given those before it.

In goes the newest event of an entity whose recent events are held as embeddings; out come the raw terms that batch
scoring with the window `past` would give. What does not change from event to event is kept: the tokens of the own
places, and each event's embeddings under every sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ustad.events.encoder import EventArrays
from ustad.events.visits import Visits, read_visits
from ustad.events.windows import Features
from ustad.habits.history import Habits
from ustad.habits.kinds import DOUBT
from ustad.network.inference.counter import keep_masks
from ustad.network.inference.memory_model import MemoryModel
from ustad.network.inference.memory_passes import MemoryPasses, WindowRows
from ustad.network.inference.memory_terms import at_most_usual, chain_terms, uncertainties
from ustad.network.place_counts import MemoryTensors, OwnPlaces
from ustad.network.place_memory import Memory
from ustad.network.training.memory_step import recall, targets_of


@dataclass
class MemoryWindow:
    """What the network has seen of one entity lately, oldest first, and its own places."""

    habits: Habits
    places: OwnPlaces
    memory: Memory | None = None
    embedding: list[Tensor] = field(default_factory=list)  # [T, D] each
    day: list[int] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)
    weekday: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # within its own day


class MemoryLive:
    """Answers about newest events; windows are the caller's to keep."""

    def __init__(self, model: MemoryModel) -> None:
        self.model, self.network = model, model.network.eval()
        self.passes = MemoryPasses(self.network)
        self.samples = model.config.scoring.samples if self.network.config.epistemic else 1

    @torch.inference_mode()
    def start(self, habits: Habits, before: pa.Table | None) -> MemoryWindow:
        """The window of an entity with this history, after what came before."""
        window = MemoryWindow(habits, OwnPlaces.fit(habits, self.model.config.model.places))
        if before is not None and before.num_rows:
            arrays = self.model.encoder.encode(before)
            visits = read_visits(before, self.model.encoder.schema, self.model.frame)
            data = MemoryTensors(window.places, habits, visits, self.model.device)
            self._remember(window, self._embed(arrays, np.arange(len(arrays))), arrays.day.tolist(), data)
        return window

    @torch.inference_mode()
    def ask(self, window: MemoryWindow, arrays: EventArrays, visits: Visits) -> dict[str, float]:
        """Terms and doubt about the last event of `arrays`, which is then remembered; `visits` is that one alone."""
        data = MemoryTensors(window.places, window.habits, visits, self.model.device)
        day = max([int(arrays.day[-1]), *window.day[-1:]])
        self._trim(window, day)
        self._remember(window, self._embed(arrays, np.array([len(arrays) - 1])), [day], data)
        only = torch.zeros(1, dtype=torch.long, device=self.model.device)
        if window.memory is None:
            window.memory = recall(self.network, data, only)
        rows = self._rows_of(window)
        embeddings = torch.stack(window.embedding, dim=1)  # [T, L, D]
        entities = self.passes.know(window.memory, only + 1)  # not kept: it is several times as large as the memory
        outlook = at_most_usual(self.passes.outlook(embeddings, rows, entities, targets_of(data, only)), data, only)
        doubt = uncertainties([outlook.places, outlook.starts, outlook.durations])[1]
        return {name: float(value[0]) for name, value in {**chain_terms(outlook), DOUBT: doubt}.items()}

    def _rows_of(self, window: MemoryWindow) -> WindowRows:
        """The window, asked about its last event."""
        columns = (list(range(len(window.day))), window.order, window.weekday, window.slot)
        row, order, weekday, slot = torch.tensor(columns, device=self.model.device)[:, None]  # [1, L] each
        return WindowRows(row, order, weekday, slot, row[:, -1])

    def _remember(self, window: MemoryWindow, embeddings: Tensor, days: list[int], data: MemoryTensors) -> None:
        """Embeddings [T, n, D], days and own places of the newest events."""
        window.embedding += list(embeddings.unbind(dim=1))
        window.slot += data.slot.tolist()
        window.weekday += data.weekday.tolist()
        for day in days:
            window.order.append(window.order[-1] + 1 if window.day and window.day[-1] == day else 0)
            window.day.append(day)

    def _trim(self, window: MemoryWindow, day: int) -> None:
        """Drop what a window that ends with an event on `day` no longer shows."""
        config = self.model.config.window
        n = len(window.day)
        oldest = int(np.searchsorted(window.day, day - config.length)) if config.unit == "days" else n - config.length
        first = max(0, oldest, n + 1 - config.max_events)
        if first:
            for column in (window.embedding, window.day, window.slot, window.weekday, window.order):
                del column[:first]

    def _embed(self, arrays: EventArrays, rows: np.ndarray) -> Tensor:
        """[T, n, D]."""
        columns = (arrays.numbers, arrays.categories.astype(np.int64), arrays.vectors, arrays.missing, arrays.key)
        tensors = [torch.from_numpy(np.ascontiguousarray(v[rows])).to(self.model.device) for v in columns]
        every = torch.arange(len(rows), device=self.model.device)[:, None]
        features, config = Features(*tensors[:4])[every], self.network.config  # [n, 1, …]
        keep = None
        if config.epistemic:
            seed, fields = self.model.config.seed, len(self.network.fields)
            keep = keep_masks(tensors[4], seed, self.samples, fields, width=config.width, rate=config.dropout)
        return self.passes.embed(features, keep).transpose(0, 1)
