"""The memory network for one entity, one event at a time: what its latest event was, given those before it.

In goes the newest event of an entity whose recent events are held as embeddings; out come the raw terms that batch
scoring with the window `past` would give. What does not change from event to event is kept: the tokens of the own
places, what the passes make of them (of the entities seen last), and each event's embeddings under every sample.
"""

from __future__ import annotations

import copy
import weakref
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ustad.events.encoded_row import RowEncoder
from ustad.events.encoder import EventArrays
from ustad.events.visits import Visits, read_visits
from ustad.events.windows import Features
from ustad.evidence_source import OneAnswer
from ustad.habits.history import Habits
from ustad.network.inference.counter import keep_masks_here
from ustad.network.inference.memory_model import MemoryModel
from ustad.network.inference.memory_passes import EntityMaps, MemoryPasses
from ustad.network.inference.memory_terms import DOUBT, NOISE, at_most_usual, chain_terms, uncertainties
from ustad.network.inference.worker_threads import alone
from ustad.network.live.compiled_heads import CompiledHeads, Target
from ustad.network.live.compiled_pass import CompiledPass
from ustad.network.place_counts import MemoryTensors, OwnPlaces
from ustad.network.place_memory import Memory
from ustad.network.training.memory_step import recall, targets_of

#: Entities whose maps are kept, those asked about last. Maps are several times as large as the memory they come from:
#: about a sixth of a megabyte at the width of the preset.
MOST_MAPS = 512
#: Events that are asked about at once: no more than there may be maps.
MOST_AT_ONCE = 256
#: Fewer events than this are not worth waking threads for: one takes a quarter of a millisecond.
LEAST_SIDE_BY_SIDE = 8


@dataclass
class MemoryWindow:
    """What the network has seen of one entity lately, oldest first, and its own places."""

    habits: Habits
    places: OwnPlaces
    memory: Memory | None = None
    maps: EntityMaps | None = None
    arrays: tuple[Any, ...] = ()  # of the maps, see `know` of the compiled pass and heads
    slots: np.ndarray | None = None  # int64 [P + 1] slot of each own place, last that of any other place
    embedding: list[np.ndarray] = field(default_factory=list)  # [T, D] each
    day: list[int] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)
    weekday: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # within its own day


#: A window, its one or two rows, the last of them as a visit, and its own place (-1: somewhere new).
Question = tuple[MemoryWindow, Sequence[Mapping[str, Any]], Visits, int]


@dataclass(frozen=True)
class _Look:
    """One question: events first … stop of a window, of which the last is asked about."""

    window: MemoryWindow
    first: int
    stop: int
    maps: EntityMaps
    arrays: tuple[Any, ...]
    visits: Visits
    slot: int


class MemoryLive:
    """Answers about newest events; windows are the caller's to keep."""

    def __init__(self, model: MemoryModel) -> None:
        model = replace(model, config=model.config.replace({"window.mode": "past"}))
        if model.device.type != "cpu":  # starting a GPU takes longer than computing one event
            here = torch.device("cpu")
            model = replace(model, network=copy.deepcopy(model.network).to(here), device=here)
        self.model, self.network = model, model.network.eval()
        self.passes = MemoryPasses(self.network)
        self.samples = model.config.scoring.samples if self.network.config.epistemic else 1
        self.compiled: tuple[CompiledPass, CompiledHeads] | None = None
        if self.network.masked_token.dtype == torch.float32:
            self.compiled = CompiledPass(self.passes), CompiledHeads(self.passes)
        threads = torch.get_num_threads() if self.compiled is not None else 1
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.most_events, self._rows = model.config.window.max_events, RowEncoder(model.encoder)
        self._only = torch.zeros(1, dtype=torch.long, device=model.device)
        self._with_maps: OrderedDict[int, weakref.ref[MemoryWindow]] = OrderedDict()  # by identity, the latest last

    @torch.inference_mode()
    def start(self, habits: Habits, before: pa.Table | None) -> MemoryWindow:
        """The window of an entity with this history, after what came before."""
        window = MemoryWindow(habits, OwnPlaces.fit(habits, self.model.config.model.places))
        if before is not None and before.num_rows:
            arrays = self.model.encoder.encode(before)
            visits = read_visits(before, self.model.encoder.schema, self.model.frame)
            config, first = self.model.config.window, 0
            if config.unit == "days":  # no later event's window shows older ones
                first = bisect_left(arrays.day.tolist(), int(arrays.day[-1]) - config.length)
            data = MemoryTensors(window.places, habits, visits.take(np.arange(first, len(visits))), self.model.device)
            embeddings = self._embed(arrays, slice(first, None))
            self._remember(window, embeddings.numpy(), arrays.day[first:].tolist(), data.slot.tolist())
            window.weekday += data.weekday.tolist()
            window.memory = recall(self.network, data, self._only)
        return window

    def alone(self) -> AbstractContextManager[None]:
        return alone()

    def ask_row(
        self,
        window: MemoryWindow,
        rows: Sequence[Mapping[str, Any]],
        visits: Visits,
        place: int,
        *,
        table: Callable[[list[Any]], pa.Table],
    ) -> OneAnswer:
        """What the last of one or two rows says, which is then remembered; `visits` is it alone, at the own `place`
        (-1: somewhere new)."""
        return self._ask([(window, rows, visits, place)], table)[0]

    def find_kind(self, answer: OneAnswer, lead: str, about: str | None) -> None:
        """That is for others to say, as in bulk."""

    def ask_many(self, questions: Sequence[Question], *, table: Callable[[list[Any]], pa.Table]) -> list[OneAnswer]:
        """What `ask_row` says of each, in their order; those of one window are remembered one after the other."""
        answers = []
        for first in range(0, len(questions), MOST_AT_ONCE):
            answers += self._ask(questions[first : first + MOST_AT_ONCE], table)
        return answers

    def _ask(self, questions: Sequence[Question], table: Callable[[list[Any]], pa.Table]) -> list[OneAnswer]:
        starts: dict[int, tuple[MemoryWindow, int]] = {}
        looks = []
        for window, rows, visits, place in questions:
            arrays = self._encode(rows, table)
            day = max([int(arrays.day[-1]), *window.day[-1:]])
            first = self._oldest(window, day, starts[id(window)][1] if id(window) in starts else 0)
            starts[id(window)] = window, first
            slot = self._slot(window, place)
            self._remember(window, self._embed_last(arrays), [day], [slot])
            window.weekday.append(int(visits.weekday[0]))
            maps = self._know(window, visits)
            looks.append(_Look(window, first, len(window.day), maps, window.arrays, visits, slot))
        pool = self._pool if len(looks) >= LEAST_SIDE_BY_SIDE else None
        answers = list(map(self._answer, looks) if pool is None else pool.map(self._answer, looks))
        for window, first in starts.values():
            _forget_first(window, first)
        return answers

    def _answer(self, look: _Look) -> OneAnswer:
        """From the embeddings of a window to what its last event was."""
        window, span = look.window, slice(look.first, look.stop)
        embeddings = np.stack(window.embedding[span], axis=1)  # [T, L, D]
        columns = np.array((window.order[span], window.weekday[span], window.slot[span]))
        if self.compiled is None:
            return _one_answer(self._by_tensors(look, embeddings, columns))
        to_states, to_answers = self.compiled
        own_arrays, head_arrays = look.arrays
        states = to_states.states(embeddings, columns, own_arrays)
        return _one_answer(to_answers(states, head_arrays, _target(window.habits, look.visits, look.slot)))

    def _encode(self, rows: Sequence[Mapping[str, Any]], table: Callable[[list[Any]], pa.Table]) -> EventArrays:
        """The last of one or two rows; values that only a table knows how to convert go through one."""
        arrays = self._rows.encode(rows[-1], rows[0] if len(rows) > 1 else None)
        if arrays is not None:
            return arrays
        pair = pa.concat_tables([table([row]) for row in rows], promote_options="permissive")
        return self.model.encoder.encode(pair)

    def _slot(self, window: MemoryWindow, place: int) -> int:
        if window.slots is None:
            window.slots = window.places.slots(len(window.habits.place_key))
        return int(window.slots[place])

    @torch.inference_mode()
    def _by_tensors(self, look: _Look, embeddings: np.ndarray, columns: np.ndarray) -> dict[str, float]:
        """The answers of networks that are not in single precision."""
        tensors = torch.from_numpy(embeddings), torch.from_numpy(columns)
        states = self.passes.states_of_newest(*tensors, look.maps)  # [1, T, D]
        data = MemoryTensors(look.window.places, look.window.habits, look.visits, self.model.device)
        outlook = self.passes.foresee(states, look.maps, targets_of(data, self._only))
        outlook = at_most_usual(outlook, data, self._only)
        noise, doubt = uncertainties([outlook.places, outlook.starts, outlook.durations])
        answers = {**chain_terms(outlook), NOISE: noise, DOUBT: doubt}
        return {name: float(value[0]) for name, value in answers.items()}

    def _know(self, window: MemoryWindow, visits: Visits) -> EntityMaps:
        """What the passes need of the window's entity; of those asked about longest ago it is let go."""
        maps = window.maps or self._make_maps(window, visits)
        self._with_maps[id(window)] = weakref.ref(window)
        self._with_maps.move_to_end(id(window))
        while len(self._with_maps) > MOST_MAPS:
            quiet = self._with_maps.popitem(last=False)[1]()
            if quiet is not None:
                quiet.maps, quiet.arrays = None, ()
        return maps

    @torch.inference_mode()
    def _make_maps(self, window: MemoryWindow, visits: Visits) -> EntityMaps:
        if window.memory is None:
            data = MemoryTensors(window.places, window.habits, visits, self.model.device)
            window.memory = recall(self.network, data, self._only)
        maps = self.passes.know(window.memory, self._only + 1)
        window.arrays = tuple(part.know(maps) for part in self.compiled or ())
        window.maps = maps if self.compiled is None else replace(maps, place_maps=())  # the arrays have them
        return window.maps

    def _remember(self, window: MemoryWindow, embeddings: np.ndarray, days: list[int], slots: list[int]) -> None:
        """Embeddings [T, n, D], days and own places of the newest events."""
        window.embedding += list(embeddings.swapaxes(0, 1))
        window.slot += slots
        for day in days:
            window.order.append(window.order[-1] + 1 if window.day and window.day[-1] == day else 0)
            window.day.append(day)

    def _oldest(self, window: MemoryWindow, day: int, first: int) -> int:
        """The first event of the window, from `first` on, that one which ends with a new event on `day` still shows."""
        config, n = self.model.config.window, len(window.day)
        oldest = bisect_left(window.day, day - config.length) if config.unit == "days" else n - config.length
        return max(first, oldest, n + 1 - config.max_events)

    def _embed_last(self, arrays: EventArrays) -> np.ndarray:
        """The last event: [T, 1, D]."""
        if self.compiled is None or self.compiled[0].has_vectors or not self.network.config.epistemic:
            return self._embed(arrays, slice(len(arrays) - 1, None)).numpy()
        codes, keep = arrays.categories[-1].astype(np.int64), self._keep(arrays.key[-1:])[0]
        return self.compiled[0].embed(arrays.numbers[-1], codes, arrays.missing[-1], keep)[:, None]

    @torch.inference_mode()
    def _embed(self, arrays: EventArrays, rows: slice) -> Tensor:
        """[T, n, D]."""
        columns = (arrays.numbers, arrays.categories.astype(np.int64), arrays.vectors, arrays.missing, arrays.key)
        tensors = [torch.from_numpy(np.ascontiguousarray(v[rows])).to(self.model.device) for v in columns]
        features = Features(*(v[:, None] for v in tensors[:4]))  # [n, 1, …]
        keep = torch.from_numpy(self._keep(tensors[4].numpy())) if self.network.config.epistemic else None
        return self.passes.embed(features, keep).transpose(0, 1)

    def _keep(self, key: np.ndarray) -> np.ndarray:
        """Masks of dropout of events by their keys [n]: [n, T, F, D]."""
        config, fields, seed = self.network.config, len(self.network.fields), self.model.config.seed
        return keep_masks_here(key, seed, self.samples, fields, width=config.width, rate=config.dropout)


def _forget_first(window: MemoryWindow, number: int) -> None:
    """Drop the oldest events."""
    if number:
        for column in (window.embedding, window.day, window.slot, window.weekday, window.order):
            del column[:number]


def _one_answer(raw: dict[str, float]) -> OneAnswer:
    """Terms apart from noise and doubt."""
    return OneAnswer(raw, raw.pop(NOISE), raw.pop(DOUBT))


def _target(habits: Habits, visits: Visits, slot: int) -> Target:
    """What the only visit was."""
    minute, duration, x, y = visits.minute.item(), visits.duration.item(), visits.x.item(), visits.y.item()
    early, late = visits.early.item(), visits.late.item()
    is_hidden = bool(visits.silent[0] and habits.hidden_minutes(visits, habits.owners(visits))[0] > 0)
    return Target.of(
        slot,
        (int(visits.weekday[0]), minute),
        duration,
        (x, y, int(visits.category[0])),
        unseen=(early, late, is_hidden),
    )
