"""Monte-Carlo samples of the network for every question, and embeddings for the neighbours.

In go a trained network, events on a device and queries (one event each, and the slice it is seen in); out come
numpy arrays in the order of the queries. An event's feature-level embedding under sample t is a pure function of
the event (its dropout mask comes from a counter), so it is computed once and shared by every window that shows
it; at the event level only the masked position is computed in the last block. Work is cut into partitions whose
embeddings fit a stated budget, so memory does not grow with the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ustad.events.encoder import Encoder
from ustad.events.windows import EventTensors, Features, Queries
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.counter import keep_masks
from ustad.network.inference.neighbours import shared_room
from ustad.network.inference.passes import Passes
from ustad.network.inference.sampled_terms import Layout, TermResult, reduce_term
from ustad.network.inference.worker_threads import WorkerThreads
from ustad.network.out_of_memory import free_memory, is_out_of_memory
from ustad.progress import say, track
from ustad.torch_device import send

Precision = Literal["auto", "fp32", "half"]
#: Numbers of one field that are decoded at once (samples × events × classes).
DECODE_AT_ONCE = 1 << 25
#: What a token of width 1 takes on its way through a block, about.
BYTES_PER_TOKEN = 60
LEAST_TOKENS = 256  # of a budget: less does not hold a few windows
SCALARS = ("expected", "error", "loss", "au", "eu")


@dataclass(frozen=True)
class Budget:
    """How much is in flight at once: tokens per pass of a Transformer, bytes of shared embeddings."""

    tokens: int
    embedding_bytes: int

    @classmethod
    def of(cls, device: torch.device, width: int = 64) -> Budget:
        """Sizes that keep a CPU inside its cache, and a GPU busy without taking what others on it need."""
        if device.type != "cuda":
            return cls(5_000, 256 << 20)
        room = shared_room(device, 8 << 30)
        return cls(min(2_000_000, room // (BYTES_PER_TOKEN * width)), room // 2)


@dataclass
class TermSamples:
    """One term of Q events, float32 [Q] in network units; NaN where the truth is missing.

    `expected` is a number, an angle in radians or a category code (NaN for a vector, see `vector`).
    """

    expected: np.ndarray
    error: np.ndarray
    loss: np.ndarray
    au: np.ndarray
    eu: np.ndarray
    probabilities: np.ndarray | None = None  # [Q, C] where asked for
    vector: np.ndarray | None = None  # [Q, size]


@dataclass
class Samples:
    """What T samples say about Q events, by term."""

    terms: dict[str, TermSamples] = field(default_factory=dict)

    def matrix(self, what: str, names: tuple[str, ...] | None = None) -> np.ndarray:
        """One column per term: float32 [Q, terms]."""
        return np.stack([getattr(self.terms[n], what) for n in names or tuple(self.terms)], axis=1)


def sample(
    network: DualTransformer,
    tensors: EventTensors,
    queries: Queries,
    encoder: Encoder,
    *,
    samples: int,
    seed: int,
    precision: Precision = "auto",
    budget: Budget | None = None,
    keep_probabilities: bool = False,
) -> Samples:
    """T samples of every query. The network and the tensors live on the same device.

    Without epistemic uncertainty there is one pass, without dropout; noise on logits is drawn T times all the same.
    """
    budget = budget or Budget.of(tensors.device, network.config.width)
    T = samples if network.config.epistemic else 1
    layout = Layout.of(network.fields, encoder.terms, network.config.aleatoric, samples)
    out = empty_samples(layout, len(queries), network, keep_probabilities)

    def answer(passes: Passes, embeddings: Tensor, index: np.ndarray, slices: Slices) -> int:
        hidden = hidden_at(tensors, embeddings, slices, T, passes=passes)  # [T, B, D]
        store(out, index, layout, network, tensors=tensors, hidden=hidden, target=slices.target, seed=seed)
        return len(index)

    def run(budget: Budget) -> None:
        threads = WorkerThreads(lambda: passes_for(network, tensors.device, precision), tensors.device)
        with inference(network), track("sampling", len(queries)) as advance, threads:
            for part in cut_queries(queries, T * network.config.width * 4, budget.embedding_bytes):
                embeddings = embed_samples(
                    network, tensors, part.events, T, seed=seed, tokens=budget.tokens, threads=threads
                )
                batches = part.batches(budget.tokens // T, tensors.device)
                for count in threads.each(answer, ((embeddings, *batch) for batch in batches)):
                    advance(count)

    budget = run_within(run, budget, tensors.device)
    if precision == "auto" and not all(np.isfinite(t.eu).all() for t in out.terms.values()):
        # Half precision overflowed somewhere (EU is never missing): the whole of it again, in full precision.
        return sample(
            network,
            tensors,
            queries,
            encoder,
            samples=samples,
            seed=seed,
            precision="fp32",
            budget=budget,
            keep_probabilities=keep_probabilities,
        )
    return out


def embed_events(
    network: DualTransformer,
    tensors: EventTensors,
    queries: Queries,
    visible: bool = True,
    *,
    budget: Budget | None = None,
) -> np.ndarray:
    """The event-level hidden state of every query's event, for the neighbours: float32 [Q, D].

    Departure from the paper: one pass without dropout, so that distances carry no sampling noise. With the
    target visible, events that share a slice share the pass.
    """
    budget = budget or Budget.of(tensors.device, network.config.width)
    out = np.zeros((len(queries), network.config.width), np.float32)

    def answer(passes: Passes, embeddings: Tensor, together: bool, batch: tuple[np.ndarray, Slices]) -> int:
        index, slices = batch
        if together:
            hidden = _hidden_shared(network, tensors, embeddings, slices)
        else:
            hidden = hidden_at(tensors, embeddings, slices, int(not visible), passes=passes)
        out[index] = hidden[0].float().cpu().numpy()
        return len(index)

    def run(budget: Budget) -> None:
        threads = WorkerThreads(lambda: passes_for(network, tensors.device, "fp32"), tensors.device)
        with inference(network), track("embedding", len(queries)) as advance, threads:
            for part in cut_queries(queries, network.config.width * 4, budget.embedding_bytes):
                embeddings = embed_samples(
                    network, tensors, part.events, 0, seed=0, tokens=budget.tokens, threads=threads
                )
                together = visible and part.shares_slices
                batches = part.batches(budget.tokens, tensors.device)
                for count in threads.each(answer, ((embeddings, together, batch) for batch in batches)):
                    advance(count)

    run_within(run, budget, tensors.device)
    return out


def run_within(work: Callable[[Budget], None], budget: Budget, device: torch.device) -> Budget:
    """Do work that gives the same whatever its budget; where memory is full, again with half of it. Returns the budget
    that was enough."""
    while True:
        try:
            work(budget)
            return budget
        except Exception as error:
            if not is_out_of_memory(error) or budget.tokens <= LEAST_TOKENS:
                raise
        budget = Budget(budget.tokens // 2, budget.embedding_bytes // 2)
        free_memory(device)
        say("scoring: memory is full; once more with half as many events at a time")


# ------------------------------------------------------------------------------------------ two levels
@dataclass(frozen=True)
class Slices:
    """B slices of one length on the device: events `start` … of the tensors, `where` … of the shared ones."""

    where: Tensor
    start: Tensor
    target: Tensor
    length: int
    event: np.ndarray  # the targets, on the host


def embed_samples(
    network: DualTransformer,
    tensors: EventTensors,
    events: np.ndarray,
    samples: int,
    *,
    seed: int,
    tokens: int,
    threads: WorkerThreads,
) -> Tensor:
    """Feature level: embeddings [T, n, D] of some events; samples 0 means one pass without dropout."""
    config, F = network.config, len(network.fields)
    has_dropout = samples > 0 and config.epistemic
    T = max(1, samples)
    size = max(1, tokens // (T * F))
    embeddings = network.masked_token.new_empty(T, len(events), config.width)

    def embed(passes: Passes, begin: int) -> None:
        index = send(events[begin : begin + size], tensors.device)
        keep = None
        if has_dropout:
            keep = keep_masks(tensors.key[index], seed, T, F, width=config.width, rate=config.dropout)
            keep = keep.to(network.masked_token.dtype)
        vectors = passes.embed(tensors.features[index[:, None]], keep)
        embeddings[:, begin : begin + size] = vectors.transpose(0, 1)  # [T, n, D]

    for _ in threads.each(embed, ((begin,) for begin in range(0, len(events), size))):
        pass
    return embeddings


def hidden_at(tensors: EventTensors, embeddings: Tensor, slices: Slices, masked: int, *, passes: Passes) -> Tensor:
    """Event level: hidden states [T, B, D] of the targets, each in its slice.

    In the first `masked` samples the target is hidden behind the learned token, in the others it is seen.
    """
    offset = torch.arange(slices.length, device=embeddings.device)
    row = slices.where[:, None] + offset  # [B, L]
    day_position = tensors.day_position[slices.start[:, None] + offset]
    return passes.at(embeddings, row, masked, day_position, slices.target - slices.start)


def _hidden_shared(network: DualTransformer, tensors: EventTensors, embeddings: Tensor, slices: Slices) -> Tensor:
    """The same with nothing masked, one pass per distinct slice: [1, B, D] for embeddings [1, n, D]."""
    pairs, owner = torch.unique(torch.stack([slices.where, slices.start], 1), dim=0, return_inverse=True)
    where, start = pairs.unbind(1)
    S, L, D = len(pairs), slices.length, embeddings.shape[-1]
    offset = torch.arange(L, device=embeddings.device)
    nothing = torch.zeros(S, L, dtype=torch.bool, device=embeddings.device)
    hidden = network.contextualise(
        embeddings[0, (where[:, None] + offset).flatten()].view(S, L, D),
        nothing,
        nothing,
        offset.expand(S, L),
        day_position=tensors.day_position[start[:, None] + offset],
    )
    return hidden[owner, slices.target - slices.start][None]


@contextmanager
def inference(network: DualTransformer) -> Iterator[None]:
    """Evaluation mode and no gradients."""
    if network.training:
        network.eval()
    with torch.inference_mode():
        yield


def passes_for(network: DualTransformer, device: torch.device, precision: Precision = "auto") -> Passes:
    """The way through the network: blocks in half precision on a GPU unless told otherwise (heads stay fp32)."""
    half = precision == "half" or (precision == "auto" and device.type == "cuda")
    return Passes(network, torch.float16 if half else None)


# ------------------------------------------------------------------------------------------- partitions
@dataclass(frozen=True)
class _Partition:
    """Some queries and the events they show; `where` is where each slice begins among those events."""

    index: np.ndarray  # index into all queries
    queries: Queries
    events: np.ndarray
    where: np.ndarray

    @property
    def shares_slices(self) -> bool:
        """Whether slices are shared by enough events for one pass per slice to pay."""
        pairs = np.stack([self.queries.start, self.queries.stop], 1)
        return len(np.unique(pairs, axis=0)) < 0.8 * len(pairs)

    def batches(self, tokens: int, device: torch.device, beside: int = 0) -> Iterator[tuple[np.ndarray, Slices]]:
        """Queries of one length at a time, at most `tokens` events together: no padding, no waste.

        A query's own room counts as `beside` events.
        """
        length = self.queries.length
        order = np.argsort(length, kind="stable")
        cuts = np.flatnonzero(np.diff(length[order])) + 1
        for group in np.split(order, cuts):
            size = max(1, tokens // (int(length[group[0]]) + beside))
            for begin in range(0, len(group), size):
                pick = group[begin : begin + size]
                q = self.queries.take(pick)
                where, start, target = send(np.stack([self.where[pick], q.start, q.target]), device).unbind()
                yield self.index[pick], Slices(where, start, target, int(q.length[0]), q.target)


def cut_queries(queries: Queries, bytes_per_event: int, budget: int) -> Iterator[_Partition]:
    """Cut the queries, in the order of their slices, so that the events of each part fit the budget."""
    if not len(queries):
        return
    limit = max(1, budget // bytes_per_event)
    order = np.argsort(queries.start, kind="stable")
    visible, compact = _shown_events(queries)
    begin_at = compact[queries.start[order]]
    reach = np.maximum.accumulate(begin_at + queries.length[order])
    first = 0
    while first < len(order):
        last = max(first + 1, int(np.searchsorted(reach, begin_at[first] + limit, side="right")))
        index = order[first:last]
        low, high = begin_at[first], reach[last - 1]
        yield _Partition(index, queries.take(index), visible[low:high], begin_at[first:last] - low)
        first = last


def _shown_events(queries: Queries) -> tuple[np.ndarray, np.ndarray]:
    """The events that some slice shows, and the place of each event among them."""
    size = int(queries.stop.max()) + 1
    change = np.bincount(queries.start, minlength=size) - np.bincount(queries.stop, minlength=size)
    is_shown = np.cumsum(change) > 0
    return np.flatnonzero(is_shown), np.cumsum(is_shown) - is_shown


# -------------------------------------------------------------------------------------------- gathering
def empty_samples(layout: Layout, count: int, network: DualTransformer, keep_probabilities: bool) -> Samples:
    sizes = {f.name: f.size for f in network.fields}
    result = Samples()
    for term in layout.terms:
        columns = [np.full(count, np.nan, np.float32) for _ in range(5)]
        samples = TermSamples(*columns)
        if term.kind == "category" and keep_probabilities:
            samples.probabilities = np.zeros((count, sizes[term.fields[0]]), np.float32)
        if term.kind == "vector":
            samples.vector = np.zeros((count, sizes[term.fields[0]]), np.float32)
        result.terms[term.name] = samples
    return result


def store(
    out: Samples,
    index: np.ndarray,
    layout: Layout,
    network: DualTransformer,
    *,
    tensors: EventTensors,
    hidden: Tensor,
    target: Tensor,
    seed: int,
) -> None:
    """Decode hidden [T, B, D], reduce every term and put the results where their queries stand.

    Many classes are decoded for a few events at a time, so that memory does not grow with them.
    """
    step = max(1, DECODE_AT_ONCE // (len(hidden) * max(f.size for f in network.fields)))
    for first in range(0, len(index), step):
        part = slice(first, first + step)
        predictions, events = network.decode(hidden[:, part]), target[part]
        truth: Features = tensors.features[events]
        results = [reduce_term(t, layout, predictions, truth, key=tensors.key[events], seed=seed) for t in layout.terms]
        _put(out, index[part], layout, results)


def _put(out: Samples, index: np.ndarray, layout: Layout, results: list[TermResult]) -> None:
    """Each term's results into the rows of their queries."""
    scalars = torch.stack([getattr(r, name) for r in results for name in SCALARS])  # one transfer for all
    lines = iter(scalars.float().cpu().numpy())
    for term, term_result in zip(layout.terms, results, strict=True):
        samples = out.terms[term.name]
        for name in SCALARS:
            getattr(samples, name)[index] = next(lines)
        if samples.probabilities is not None and term_result.probabilities is not None:
            samples.probabilities[index] = term_result.probabilities.float().cpu().numpy()
        if samples.vector is not None and term_result.vector is not None:
            samples.vector[index] = term_result.vector.float().cpu().numpy()
