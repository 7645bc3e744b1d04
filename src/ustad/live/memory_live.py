"""The memory network for one entity, one event at a time: what its latest event was, given those before it.

In goes the newest event of an entity whose recent events are held as embeddings; out come the raw terms that batch
scoring with the window `past` would give. What does not change from event to event is kept: the tokens of the own
places, what the passes make of them (of the entities seen last), and each event's embeddings under every sample.
"""

from __future__ import annotations

import math
import weakref
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import torch
from scipy.special import xlogy
from torch import Tensor

from ustad.events.encoder import EventArrays
from ustad.events.visits import Visits, read_visits
from ustad.events.windows import Features
from ustad.habits.history import Habits
from ustad.habits.kinds import DOUBT
from ustad.network.inference.counter import keep_masks
from ustad.network.inference.memory_model import MemoryModel
from ustad.network.inference.memory_passes import EntityMaps, MemoryPasses
from ustad.network.inference.memory_terms import RAW, at_most_usual, chain_terms, uncertainties
from ustad.network.place_counts import MemoryTensors, OwnPlaces
from ustad.network.place_memory import Memory, Outlook
from ustad.network.training.memory_step import recall, targets_of

#: Entities whose maps are kept, those asked about last. Maps are several times as large as the memory they come from:
#: about a sixth of a megabyte at the width of the preset.
MOST_MAPS = 512


@dataclass
class MemoryWindow:
    """What the network has seen of one entity lately, oldest first, and its own places."""

    habits: Habits
    places: OwnPlaces
    memory: Memory | None = None
    maps: EntityMaps | None = None
    tensors: MemoryTensors | None = None  # of the latest event; those of the own places serve the next one
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
        self._only = torch.zeros(1, dtype=torch.long, device=model.device)
        self._with_maps: OrderedDict[int, weakref.ref[MemoryWindow]] = OrderedDict()  # by identity, the latest last

    @torch.inference_mode()
    def start(self, habits: Habits, before: pa.Table | None) -> MemoryWindow:
        """The window of an entity with this history, after what came before."""
        window = MemoryWindow(habits, OwnPlaces.fit(habits, self.model.config.model.places))
        if before is not None and before.num_rows:
            arrays = self.model.encoder.encode(before)
            visits = read_visits(before, self.model.encoder.schema, self.model.frame)
            data = MemoryTensors(window.places, habits, visits, self.model.device)
            self._remember(window, self._embed(arrays, slice(None)), arrays.day.tolist(), data)
        return window

    @torch.inference_mode()
    def ask(self, window: MemoryWindow, arrays: EventArrays, visits: Visits) -> dict[str, float]:
        """Terms and doubt about the last event of `arrays`, which is then remembered; `visits` is that one alone."""
        data = MemoryTensors(window.places, window.habits, visits, self.model.device, same=window.tensors)
        day = max([int(arrays.day[-1]), *window.day[-1:]])
        self._trim(window, day)
        self._remember(window, self._embed(arrays, slice(len(arrays) - 1, None)), [day], data)
        if window.memory is None:
            window.memory = recall(self.network, data, self._only)
            data.counts = data.counts[:0]  # not needed any more
        window.tensors = data
        columns = torch.tensor((window.order, window.weekday, window.slot), device=self.model.device)
        embeddings = torch.stack(window.embedding, dim=1)  # [T, L, D]
        targets = targets_of(data, self._only)
        outlook = self.passes.outlook_of_newest(embeddings, columns, self._know(window, window.memory), targets)
        return read_outlook(at_most_usual(outlook, data, self._only))

    def _know(self, window: MemoryWindow, memory: Memory) -> EntityMaps:
        """What the passes need of the window's entity; of those asked about longest ago it is let go."""
        if window.maps is None:
            window.maps = self.passes.know(memory, self._only + 1)
        self._with_maps[id(window)] = weakref.ref(window)
        self._with_maps.move_to_end(id(window))
        while len(self._with_maps) > MOST_MAPS:
            quiet = self._with_maps.popitem(last=False)[1]()
            if quiet is not None:
                quiet.maps = None
        return window.maps

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

    def _embed(self, arrays: EventArrays, rows: slice) -> Tensor:
        """[T, n, D]."""
        columns = (arrays.numbers, arrays.categories.astype(np.int64), arrays.vectors, arrays.missing, arrays.key)
        tensors = [torch.from_numpy(np.ascontiguousarray(v[rows])).to(self.model.device) for v in columns]
        features, config = Features(*(v[:, None] for v in tensors[:4])), self.network.config  # [n, 1, …]
        keep = None
        if config.epistemic:
            seed, fields = self.model.config.seed, len(self.network.fields)
            keep = keep_masks(tensors[4], seed, self.samples, fields, width=config.width, rate=config.dropout)
        return self.passes.embed(features, keep).transpose(0, 1)


def read_outlook(outlook: Outlook) -> dict[str, float]:
    """Terms and doubt of one event, outlook [T, 1, …]: `chain_terms` and `uncertainties`, without tensors on a CPU."""
    distributions = [outlook.places, outlook.starts, outlook.durations]
    if outlook.place.device.type != "cpu":
        answers = {**chain_terms(outlook), DOUBT: uncertainties(distributions)[1]}
        return {name: float(value[0]) for name, value in answers.items()}
    place, category, start, duration = (
        values[:, 0].numpy().astype(np.float64)
        for values in (outlook.place, outlook.category, outlook.start, outlook.duration)
    )
    doubt = 0.0
    for values in distributions:
        logs = values[:, 0].numpy().astype(np.float64)  # [T, n]
        chance = np.exp(logs)
        entropy = -(chance * np.maximum(logs, -700.0)).sum() / len(logs)
        mean = chance.sum(axis=0) / len(logs)
        doubt += max(float(-xlogy(mean, mean).sum() - entropy), 0.0)
    terms = (_minus_log_mean(values) for values in (place + category, start, duration))
    return {**dict(zip(RAW, terms, strict=True)), DOUBT: doubt}


def _minus_log_mean(logs: np.ndarray) -> float:
    """-log of the mean of T chances from their logarithms."""
    top = logs.max()
    return float(-top - math.log(np.exp(logs - top).sum() / len(logs)))
