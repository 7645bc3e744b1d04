"""The memory network on many events at once on a CPU, compiled: what `CompiledPass` and `CompiledHeads` say of each.

In go the fields of events, or windows into one run of embeddings, what is known of their entities, and what the events
were; out come embeddings, or answers. Parts of the events go side by side in threads. An event's numbers do not depend
on who stands beside it: a single event goes the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from ustad.network.live.compiled_heads import CompiledHeads, Target, answer_one
from ustad.network.live.compiled_pass import Arrays, CompiledPass, compile_pass, embed_one, states_of_last

#: Fewer events than this are not worth another piece of work.
_LEAST_EVENTS = 4
#: Pieces for each thread: the last ones are short.
_PIECES = 3
#: The samples of one event go in so many pieces where there are threads enough that one is idle at any time.
_PIECES_OF_ONE, _MANY_THREADS = 4, 8
#: What of an event the heads are told, see `Target`: its numbers in this order.
_TARGET = 13


class CompiledMany:
    """Passes and heads of one network for many events at once, on so many threads."""

    def __init__(self, way: CompiledPass, heads: CompiledHeads, threads: int) -> None:
        self._way, self._heads, self._threads = way, heads, threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def embed(self, numbers: np.ndarray, codes: np.ndarray, missing: np.ndarray, keep: np.ndarray) -> np.ndarray:
        """Of n events: fields [n, …], masks of dropout [n, T, F, D] -> [n, T, D]."""
        n, T, _, D = keep.shape
        out = np.empty((n, T, D), np.float32)
        codes = codes + self._way.offsets
        self._share(n, lambda first, stop: _embed_rows(
            first, stop, numbers, codes, missing, keep, *self._way.feature_arrays, out,
        ))  # fmt: skip
        return out

    def states(
        self, embeddings: np.ndarray, window: np.ndarray, entity_arrays: tuple[Arrays, Arrays, Arrays, Arrays]
    ) -> np.ndarray:
        """`CompiledPass.states` of one event; where there are many threads, its samples side by side in a few."""
        pieces = min(_PIECES_OF_ONE, len(embeddings))
        if self._pool is None or self._threads < _MANY_THREADS or pieces < 2:
            return self._way.states(embeddings, window, entity_arrays)
        edges = np.linspace(0, len(embeddings), pieces + 1).astype(int).tolist()
        others = [
            self._pool.submit(self._way.states, embeddings[first:stop], window, entity_arrays)
            for first, stop in pairwise(edges[1:])
        ]
        own = self._way.states(embeddings[: edges[1]], window, entity_arrays)
        return np.concatenate([own, *(piece.result() for piece in others)])

    def answer(
        self,
        embeddings: np.ndarray,
        columns: np.ndarray,
        spans: np.ndarray,
        owner: np.ndarray,
        *,
        entities: Sequence[tuple[tuple[Arrays, Arrays, Arrays, Arrays], Arrays]],
        targets: Sequence[Target],
    ) -> np.ndarray:
        """Terms, noise and doubt of n events: float64 [n, 5]. The window of each is a span (first, stop) of the
        embeddings [M, T, D] and of their columns int64 [M, 3]; `owner` [n] is its place among the `entities`, of which
        that is what `know` says."""
        own, absent, keys, biases, values = (
            np.stack([np.stack(part) if isinstance(part, tuple) else part for part in parts])
            for parts in zip(*((*one[0][0], *one[0][1:]) for one in entities), strict=True)
        )
        own_places = tuple(np.stack(parts) for parts in zip(*(one[1] for one in entities), strict=True))
        plain = np.array([tuple(vars(target).values()) for target in targets], np.float64).reshape(-1, _TARGET)
        out = np.empty((len(spans), 5))
        self._share(len(spans), lambda first, stop: _answer_rows(
            first, stop, embeddings, columns, spans, owner, own, absent, keys, biases, values, own_places, plain,
            self._way.event_arrays, self._way.settings, self._heads.shared, out,
        ))  # fmt: skip
        return out

    def _share(self, rows: int, work: Callable[[int, int], object]) -> None:
        """The work on rows first … stop, in pieces side by side."""
        pieces = min(self._threads * _PIECES, rows // _LEAST_EVENTS) if self._pool is not None else 1
        if pieces <= 1 or self._pool is None:
            work(0, rows)
            return
        edges = np.linspace(0, rows, pieces + 1).astype(int).tolist()
        list(self._pool.map(work, edges[:-1], edges[1:]))


@compile_pass
def _embed_rows(
    first: int,
    stop: int,
    numbers: np.ndarray,
    codes: np.ndarray,
    missing: np.ndarray,
    keep: np.ndarray,
    tokens: Arrays,
    blocks: tuple[Arrays, ...],
    heads: int,
    epsilon: float,
    out: np.ndarray,
) -> None:
    for i in range(first, stop):
        out[i] = embed_one(numbers[i], codes[i], missing[i], keep[i], tokens, blocks, heads, epsilon)


@compile_pass
def _answer_rows(
    first: int,
    stop: int,
    embeddings: np.ndarray,
    columns: np.ndarray,
    spans: np.ndarray,
    owner: np.ndarray,
    own: np.ndarray,
    absent: np.ndarray,
    keys: np.ndarray,
    biases: np.ndarray,
    values: np.ndarray,
    own_places: Arrays,
    targets: np.ndarray,
    event_arrays: tuple[Arrays, tuple[Arrays, ...], Arrays],
    settings: tuple[int, float, float],
    maps: Arrays,
    out: np.ndarray,
) -> None:
    T, D = embeddings.shape[1:]
    positions, blocks, norm = event_arrays
    heads, epsilon, norm_epsilon = settings
    pointer, pointer_bias, around, around_bias, tokens, away, own_x, own_y, starts, durations = own_places
    for i in range(first, stop):
        low, high, e = spans[i, 0], spans[i, 1], owner[i]
        length = high - low
        x, window = np.empty((T, length, D), np.float32), np.empty((3, length), np.int64)
        for k in range(length):
            for t in range(T):
                for d in range(D):
                    x[t, k, d] = embeddings[low + k, t, d]
            for c in range(3):
                window[c, k] = columns[low + k, c]
        states = states_of_last(
            x, window, (own[e], absent[e]), keys[e], biases[e], values[e], positions, blocks, heads, epsilon, norm,
            norm_epsilon,
        )  # fmt: skip
        entity_arrays = (
            pointer[e], pointer_bias[e], around[e], around_bias[e], tokens[e], away[e], own_x[e], own_y[e], starts[e],
            durations[e],
        )  # fmt: skip
        what = targets[i]
        answers = answer_one(
            states, maps, entity_arrays, int(what[0]), what[1] >= 5, (what[2], what[3], what[4] > 0), int(what[5]),
            int(what[6]), int(what[7]), what[8] > 0, what[9] > 0, (int(what[10]), int(what[11]), int(what[12])),
        )  # fmt: skip
        for k in range(5):
            out[i, k] = answers[k]
