"""One event at a time: the live scorer.

In goes an event (a row as a mapping), out comes its row of the score table, as batch scoring with the window `past`
and calibrated percentiles would give it. State per entity is bounded: the events of its last window. Embeddings of
those events are kept too, up to a budget over all entities; what was let go is computed again when needed.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ustad.clock import microseconds
from ustad.events.encoded_row import RowEncoder
from ustad.events.encoder import EventArrays
from ustad.events.windows import EventTensors, Features, periods
from ustad.files import as_table
from ustad.live.one_row import RowJudge
from ustad.network.inference.neighbours import live_through_lists
from ustad.network.inference.paper_network import PaperNetwork, owners
from ustad.network.inference.sampled_terms import Layout
from ustad.network.inference.sampling import inference
from ustad.network.inference.worker_threads import alone
from ustad.network.live.network_step import LiveStep, Result
from ustad.network.network_words import Explainer
from ustad.paper_fitting import make_causal
from ustad.scoring.alerts import DEFAULT_P_VALUE
from ustad.scoring.paper_judge import PaperJudge
from ustad.tables import TIMESTAMP, DataError
from ustad.ties import raised

#: Of the events of windows, embeddings of so many bytes are kept.
CACHE_BYTES = 256 << 20
_ARRAYS = ("time", "day", "key", "numbers", "categories", "vectors", "missing")


@dataclass
class _State:
    """The last window of one entity, oldest first."""

    arrays: EventArrays  # its events, at most `max_events`
    day_position: np.ndarray  # int64, order of each within its own day
    first_day: int  # of everything ever seen of it
    n_events: int  # of it so far
    sessions: int  # sessions ever begun after its first
    last_row: dict[str, Any] = field(repr=False, default_factory=dict)


class LiveScorer:
    """Causal scores, event by event, for any interleaving of entities.

    >>> scorer = LiveScorer(detector.paper())  # doctest: +SKIP
    >>> scorer.warm(history)                 # doctest: +SKIP
    >>> scorer.update(stay)["p_value"]       # doctest: +SKIP
    """

    def __init__(
        self,
        judge: PaperJudge[PaperNetwork],
        device: torch.device | str = "cpu",
        p_value: float = DEFAULT_P_VALUE,
        neighbours: Literal["auto", "exact", "approximate"] = "auto",
        *,
        reasons: Literal["flagged", "all", "none"] = "flagged",
    ) -> None:
        judge = make_causal(judge)
        model = self.model = judge.source
        self.since = None  # the last window of each entity is all it remembers
        self.device, self.p_value, self.reasons = torch.device(device), p_value, reasons
        network = model.network.to(self.device).eval()
        T = model.config.scoring.samples
        self._samples = T if network.config.epistemic else 1
        layout = Layout.of(network.fields, model.encoder.terms, network.config.aleatoric, T)
        masked = self._samples + (model.config.scoring.knn_target == "masked")
        self._step = LiveStep(network, layout, self._samples, masked, seed=model.config.seed, device=self.device)
        self._rows, self._judge = RowEncoder(model.encoder), RowJudge(judge)
        self._states: dict[Any, _State] = {}
        self._embeddings: OrderedDict[int, Tensor] = OrderedDict()  # event key → [T + 1, D]
        self._kept = max(256, CACHE_BYTES // (4 * network.config.width * (self._samples + 1)))
        reference = model.neighbours
        self._approximate = neighbours == "approximate" or (
            neighbours == "auto" and reference is not None and live_through_lists(len(reference), self.device)
        )
        if self._approximate and reference is not None:
            reference.approximate(model.config.scoring.neighbours)

    # --------------------------------------------------------------------------------------- public
    def update(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Score one event and remember it. Events of one entity must arrive in the order of their times."""
        with alone():
            return {**event, **self._score(self._remember(self._encode(event), event), event)}

    def update_many(self, events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The same for several events at once, of any entities: the rows that `update` gives one by one.

        Where one of them is refused, none is remembered.
        """
        entity = self.model.encoder.schema.entity
        before = {e.get(entity): self._states.get(e.get(entity)) for e in events}
        try:
            states = [self._remember(self._encode(event), event) for event in events]
        except DataError:
            for name, state in before.items():
                self._states.pop(name, None)
                if state is not None:
                    self._states[name] = state
            raise
        measurements = self._measure_many(states)
        for event, state in zip(events, states, strict=True):  # what has left an entity's window meanwhile
            for key in set(state.arrays.key.tolist()) - set(self._states[event[entity]].arrays.key.tolist()):
                self._embeddings.pop(key, None)
        rows = [self._row(*one) for one in zip(states, events, measurements, strict=True)]
        return [{**event, **row} for event, row in zip(events, rows, strict=True)]

    def warm(self, events: Any) -> int:
        """Remember events without scoring them (what came before going live); returns how many entities."""
        table = as_table(events, "context")
        arrays = self.model.encoder.encode(table)
        tensors_day = EventTensors(arrays).day_position.numpy()
        period = periods(arrays, self.model.config.window)
        columns = [c for c in table.column_names if c in self._columns]
        offsets = arrays.offsets
        for code, entity in enumerate(arrays.entity_ids.tolist()):
            low, high = int(offsets[code]), int(offsets[code + 1])
            first = max(low, high - self.model.config.window.max_events)
            last = table.select(columns).slice(int(arrays.row[high - 1]), 1).to_pylist()[0]
            part = _cut(arrays, slice(first, high))
            sessions = int(period[high - 1] - period[low])
            state = _State(part, tensors_day[first:high], int(arrays.day[low]), high - low, sessions, last)
            self._states[entity] = self._trim(state)
        return len(arrays.entity_ids)

    def forget(self, entity: Any) -> None:
        """Drop everything held about one entity."""
        state = self._states.pop(entity, None)
        for key in state.arrays.key.tolist() if state is not None else ():
            self._embeddings.pop(key, None)

    def __len__(self) -> int:
        """Entities that are remembered."""
        return len(self._states)

    # ---------------------------------------------------------------------------------------- state
    @cached_property
    def _columns(self) -> tuple[str, ...]:
        """The columns of an event that are looked at."""
        schema = self.model.encoder.schema
        habitat = (schema.habitat,) if schema.habitat else ()
        return tuple(dict.fromkeys((*schema.columns, schema.timezone, *habitat, *schema.extra)))

    def _encode(self, event: Mapping[str, Any]) -> EventArrays:
        """The event on its own, in network units (some features look back at its entity's previous one)."""
        schema = self.model.encoder.schema
        entity, time = event.get(schema.entity), event.get(schema.time)
        if entity is None or time is None:
            raise DataError(f"an event needs '{schema.entity}' and '{schema.time}'")
        state = self._states.get(entity)
        previous = state.last_row if state is not None else None
        if previous is not None and time < previous[schema.time]:
            raise DataError(f"an event arrived before its {schema.entity_word}'s previous one; send them in order")
        row = self._rows.encode(event, previous)
        if row is None:  # values that only a table knows how to convert
            arrays = self.model.encoder.encode(self._table([previous, event] if previous is not None else [event]))
            row = _cut(arrays, slice(len(arrays) - 1, None))
        return row

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Rows as a table; the last says which columns there are."""
        schema = self.model.encoder.schema
        times = {schema.time, schema.end}
        names = [c for c in self._columns if c in rows[-1]]
        return pa.table({c: _column([r.get(c) for r in rows], c in times) for c in names})

    def _remember(self, new: EventArrays, event: Mapping[str, Any]) -> _State:
        entity = event[self.model.encoder.schema.entity]
        old = self._states.get(entity)
        last = {k: event[k] for k in self._columns if k in event}
        if old is None:
            state = _State(new, np.zeros(1, np.int64), int(new.day[0]), 1, 0, last)
        else:
            before = int(old.arrays.day[-1])
            day = max(int(new.day[0]), before)  # local dates never fall
            order = int(old.day_position[-1]) + 1 if day == before else 0
            new = dataclasses.replace(new, day=np.array([day], np.int32))
            arrays = _join(old.arrays, new)
            new_session = int(np.diff(periods(arrays, self.model.config.window)[-2:])[0] > 0)
            orders = np.append(old.day_position, order)
            state = _State(arrays, orders, old.first_day, old.n_events + 1, old.sessions + new_session, last)
        state = self._trim(state)
        self._states[entity] = state
        return state

    def _trim(self, state: _State) -> _State:
        """Only what a window that ends with the newest event can show."""
        window, arrays = self.model.config.window, state.arrays
        n = len(arrays)
        if window.unit == "events":
            first = max(0, n - 1 - window.length)
        else:
            period = periods(arrays, window)
            first = int(np.searchsorted(period, period[-1] - window.length, side="left"))
        first = max(first, n - window.max_events)
        if first == 0:
            return state
        for key in arrays.key[:first].tolist():
            self._embeddings.pop(key, None)
        return dataclasses.replace(
            state, arrays=_cut(arrays, slice(first, None)), day_position=state.day_position[first:]
        )

    # -------------------------------------------------------------------------------------- scoring
    def _score(self, state: _State, event: Mapping[str, Any]) -> dict[str, Any]:
        return self._row(state, event, self._measure(state))

    def _row(self, state: _State, event: Mapping[str, Any], measurement: tuple[Result, float]) -> dict[str, Any]:
        model, window = self.model, self.model.config.window
        row, tails = self._judge.row(event, state.arrays, *measurement)
        row["final"] = True
        row["alert"] = alert = row["p_value"] <= raised(self.p_value, floor=0.0)
        days = int(state.arrays.day[-1]) - state.first_day
        history = {"days": days, "events": state.n_events - 1, "sessions": state.sessions}[window.unit]
        row["history_days"], row["reason"] = min(history, window.length), None
        if self.reasons == "all" or (self.reasons == "flagged" and alert):
            facts = model.counts.facts(self._table([event])).row(0) if model.counts is not None else None
            row["reason"] = Explainer(model.encoder).sentence({**event, **row}, self._judge.lead(tails), facts)
        return row

    def _measure(self, state: _State) -> tuple[Result, float]:
        """What the samples say about the newest event of one window, and its neighbour distance."""
        arrays = state.arrays
        result = self._step(_fields(arrays, slice(-1, None)), self._embeddings_before(arrays), state.day_position)
        self._keep({int(arrays.key[-1]): result.embedding})
        return result, float(self._distance(result.hidden, [state])[0])

    def _measure_many(self, states: Sequence[_State]) -> list[tuple[Result, float]]:
        """The same for the newest events of several windows: those of one length together."""
        embeddings = self._embeddings_of_many(states)
        results: dict[int, Result] = {}
        for length in {len(s.arrays) for s in states}:
            members = [i for i, s in enumerate(states) if len(s.arrays) == length]
            fields = [_fields(states[i].arrays, slice(-1, None)) for i in members]
            together = [np.concatenate(column) for column in zip(*fields, strict=True)]
            positions = np.stack([states[i].day_position for i in members])
            group_results = self._step.many(together, [e for i in members for e in embeddings[i]], positions)
            results |= dict(zip(members, group_results, strict=True))
        if not states:
            return []
        hidden = np.concatenate([results[i].hidden for i in range(len(states))])
        distances = self._distance(hidden, states).tolist()
        return [(results[i], distance) for i, distance in enumerate(distances)]

    def _embeddings_of_many(self, states: Sequence[_State]) -> list[list[Tensor]]:
        """Embeddings of all events of each window; what is not at hand is made in one pass."""
        absent: dict[int, list[np.ndarray]] = {}
        for state in states:
            for i, key in enumerate(state.arrays.key.tolist()):
                if key not in self._embeddings and key not in absent:
                    absent[key] = _fields(state.arrays, slice(i, i + 1))
        fresh: dict[int, Tensor] = {}
        if absent:
            *fields, keys = (
                torch.from_numpy(np.concatenate(c)).to(self.device) for c in zip(*absent.values(), strict=True)
            )
            with inference(self.model.network):
                embeddings = self._step.embed(Features(*fields), keys)
                fresh = {key: embeddings[:, j].contiguous() for j, key in enumerate(absent)}
        at_hand = ChainMap(fresh, self._embeddings)
        windows = [[at_hand[key] for key in state.arrays.key.tolist()] for state in states]
        self._keep({key: at_hand[key] for state in states for key in state.arrays.key.tolist()})
        return windows

    def _keep(self, embeddings: Mapping[int, Tensor]) -> None:
        """Hold on to embeddings, and let go of those that were not asked for longest."""
        for key, value in embeddings.items():
            self._embeddings[key] = value
            self._embeddings.move_to_end(key)
        while len(self._embeddings) > self._kept:
            self._embeddings.popitem(last=False)

    def _distance(self, embedding: np.ndarray, states: Sequence[_State]) -> np.ndarray:
        """Mean distance to the nearest reference events: float32 [n] for embeddings [n, D]; NaN without any."""
        scoring, reference = self.model.config.scoring, self.model.neighbours
        if reference is None:
            return np.full(len(embedding), np.nan, np.float32)
        if scoring.knn_scope == "own":
            owner = np.concatenate([owners(s.arrays)[-1:] for s in states])
            return reference.mean_distance(embedding, scoring.neighbours, self.device, owner)
        if self._approximate:
            return reference.approximate().distances(embedding, min(scoring.neighbours, len(reference))).mean(axis=1)
        return reference.mean_distance(embedding, scoring.neighbours, self.device)

    def _embeddings_before(self, arrays: EventArrays) -> list[Tensor]:
        """Embeddings of the window's earlier events, every sample and without dropout: L - 1 of [T + 1, D]."""
        keys = arrays.key[:-1].tolist()
        absent = [i for i, key in enumerate(keys) if key not in self._embeddings]
        if absent:
            *fields, key = (torch.from_numpy(v).to(self.device) for v in _fields(arrays, np.array(absent)))
            with inference(self.model.network):
                embeddings = self._step.embed(Features(*fields), key)
            for j, i in enumerate(absent):
                self._embeddings[keys[i]] = embeddings[:, j].contiguous()
        for key in keys:
            self._embeddings.move_to_end(key)
        return [self._embeddings[key] for key in keys]


def _fields(arrays: EventArrays, rows: slice | np.ndarray) -> list[np.ndarray]:
    """numbers, categories, vectors, missing and keys of some events, as the network takes them."""
    columns = (arrays.numbers, arrays.categories.astype(np.int64), arrays.vectors, arrays.missing, arrays.key)
    return [np.ascontiguousarray(v[rows]) for v in columns]


def _column(values: list[Any], is_time: bool) -> pa.Array:
    """A column of two or fewer values. Moments go through integers: asking a library for their zone is slow."""
    if is_time and all(isinstance(v, datetime) and v.tzinfo is not None for v in values):
        return pa.array([microseconds(v) for v in values], pa.int64()).cast(TIMESTAMP)
    return pa.array(values)


def _cut(arrays: EventArrays, rows: slice) -> EventArrays:
    """Some events of one entity, on their own."""
    columns = {name: getattr(arrays, name)[rows] for name in _ARRAYS}
    n = len(columns["time"])
    entity = arrays.entity[rows]
    return EventArrays(
        fields=arrays.fields,
        entity_ids=arrays.entity_ids[entity[:1]] if n else arrays.entity_ids[:0],
        entity=np.zeros(n, np.int32),
        row=np.arange(n),
        **columns,
    )


def _join(old: EventArrays, new: EventArrays) -> EventArrays:
    columns = {name: np.concatenate([getattr(old, name), getattr(new, name)]) for name in _ARRAYS}
    n = len(columns["time"])
    return EventArrays(old.fields, old.entity_ids, np.zeros(n, np.int32), row=np.arange(n), **columns)
