"""What the memory network says about every event: surprise by part of the chain, and both uncertainties.

In go a trained memory network and events with what came before them; out come raw terms (-log of the mean
probability over T samples), aleatoric uncertainty (mean entropy), epistemic uncertainty (mutual information) and
what was expected. Dropout masks come from the counter, so nothing depends on batches, order or machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ustad.config import ModelConfig
from ustad.events.windows import Queries
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.memory_passes import EntityMaps, MemoryPasses, WindowRows
from ustad.network.inference.sampling import (
    BYTES_PER_TOKEN,
    Budget,
    Slices,
    cut_queries,
    embed_samples,
    inference,
    run_within,
)
from ustad.network.inference.worker_threads import WorkerThreads
from ustad.network.place_counts import MemoryTensors
from ustad.network.place_memory import Outlook
from ustad.network.training.memory_step import Data, targets_of
from ustad.progress import track
from ustad.torch_device import send

Precision = Literal["auto", "fp32", "bf16"]
RAW = ("memory_place", "memory_start", "memory_duration")
#: What both uncertainties are called where they lie among the answers: they are no questions.
DOUBT, NOISE = "memory_doubt", "memory_noise"


@dataclass
class MemorySamples:
    """Q questions, float32 [Q] each."""

    terms: dict[str, np.ndarray]  # raw -log p, by RAW
    aleatoric: np.ndarray
    epistemic: np.ndarray
    expected_slot: np.ndarray  # int64: the likeliest own place, K: somewhere new
    expected_start: np.ndarray  # int64: the likeliest bin
    expected_duration: np.ndarray  # int64: the median bin

    def by_row(self, row: np.ndarray, rows: int) -> MemorySamples:
        """The same in the order of a table with `rows` rows; what was not asked is NaN, or -1."""

        def to_rows(values: np.ndarray) -> np.ndarray:
            result = np.full(rows, np.nan if values.dtype.kind == "f" else -1, values.dtype)
            result[row] = values
            return result

        terms = {name: to_rows(values) for name, values in self.terms.items()}
        rest = (self.aleatoric, self.epistemic, self.expected_slot, self.expected_start, self.expected_duration)
        return MemorySamples(terms, *(to_rows(values) for values in rest))


def sample_memory(
    network: DualTransformer,
    data: Data,
    queries: Queries,
    samples: int,
    *,
    seed: int,
    precision: Precision = "auto",
    budget: Budget | None = None,
) -> MemorySamples:
    """T samples of every question; without epistemic uncertainty one pass without dropout."""
    device, config = data.events.device, network.config
    budget = budget or _budget(device, config)
    out = _empty(len(queries))
    T = samples if config.epistemic else 1

    def know(passes: MemoryPasses, people: np.ndarray) -> EntityMaps:
        return _know(passes, data.memory, people, np.ones(len(people), np.int64))

    def answer(
        passes: MemoryPasses, of_part: tuple[Tensor, Crowd | None], index: np.ndarray, slices: Slices
    ) -> tuple[np.ndarray, Tensor]:
        embeddings, crowd = of_part
        entities = _know_batch(passes, data.memory, slices.event) if crowd is None else crowd.take(slices.event)
        return index, _summarise(_ask(passes, data, embeddings, slices, entities=entities))

    def run(budget: Budget) -> None:
        threads = WorkerThreads(lambda: MemoryPasses(network, _kind(precision, device)), device)
        with inference(network), track("asking the memory network", len(queries)) as advance, threads:
            for part in cut_queries(queries, T * config.width * 4, budget.embedding_bytes):
                embeddings = embed_samples(
                    network, data.events, part.events, T, seed=seed, tokens=budget.tokens, threads=threads
                )
                batches = part.batches(budget.tokens // T, device, _room(config) // T)
                crowd, results = None, []
                if device.type == "cpu":  # a GPU has copies of the maps for every question anyway
                    people = np.unique(data.memory.owner_index[part.queries.target])
                    (maps,) = threads.each(know, ((people,),))
                    crowd = Crowd(people, maps, data.memory)
                for index, lines in threads.each(answer, (((embeddings, crowd), *batch) for batch in batches)):
                    results.append((index, lines))
                    advance(len(index))
                _store(out, *zip(*results, strict=True))

    budget = run_within(run, budget, device)
    if precision == "auto" and not np.isfinite(out.epistemic).all():
        # Half precision overflowed somewhere: the whole of it again, in full precision.
        return sample_memory(network, data, queries, samples, seed=seed, precision="fp32", budget=budget)
    return out


@dataclass(frozen=True)
class Crowd:
    """What is known of the people of many batches, once for all of them."""

    people: np.ndarray  # int64 [E] ascending, rows of the memory
    maps: EntityMaps  # of these people
    memory: MemoryTensors

    def take(self, event: np.ndarray) -> EntityMaps:
        """For questions about events [B]."""
        owner, counts, elsewhere = _whose(self.memory, event)
        which = np.searchsorted(self.people, owner)
        return replace(
            self.maps,
            owner=torch.from_numpy(np.repeat(which, counts)),
            counts=tuple(counts.tolist()),
            which=tuple(which.tolist()),
            elsewhere=torch.from_numpy(elsewhere),
        )


def _know_batch(passes: MemoryPasses, memory: MemoryTensors, event: np.ndarray) -> EntityMaps:
    """What is known of the entities of questions about events [B]."""
    entity, counts, elsewhere = _whose(memory, event)
    maps = _know(passes, memory, entity, counts, questions=len(event))
    return replace(maps, elsewhere=send(elsewhere, memory.owner.device))


def _know(
    passes: MemoryPasses, memory: MemoryTensors, people: np.ndarray, counts: np.ndarray, *, questions: int | None = None
) -> EntityMaps:
    """What is known of people (rows of the memory) of whom there are so many questions each."""
    entity, number = (send(values, memory.owner.device) for values in (people, counts))
    places = memory.sum_counts(entity), memory.x[entity], memory.y[entity], memory.category[entity]
    return passes.know(passes.network.memory.remember(*places), number, questions=questions)


def _ask(passes: MemoryPasses, data: Data, embeddings: Tensor, slices: Slices, *, entities: EntityMaps) -> Outlook:
    """The outlook of questions of one length; what is known of an entity is shared by all that ask about it."""
    memory, offset = data.memory, torch.arange(slices.length, device=embeddings.device)
    index = slices.start[:, None] + offset  # [B, L]
    window = WindowRows(
        slices.where[:, None] + offset,
        data.events.day_position[index],
        memory.weekday[index],
        memory.slot[index],
        slices.target - slices.start,
    )
    outlook = passes.outlook(embeddings, window, entities, targets_of(memory, slices.target))
    return at_most_usual(outlook, memory, slices.target)


def _whose(memory: MemoryTensors, event: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The entities that events [B] are of, as they follow each other, how many events of each, and which events are at
    none of its own places: int64 each, found on the host."""
    owner = memory.owner_index[event]
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    return owner[first], np.diff(first, append=len(owner)), np.flatnonzero(memory.is_elsewhere[event])


def _kind(precision: Precision, device: torch.device) -> torch.dtype | None:
    """What the blocks compute in: on a GPU in half precision, unless told otherwise (the rest stays fp32)."""
    if precision == "bf16":
        return torch.bfloat16
    return torch.float16 if precision == "auto" and device.type == "cuda" else None


def _budget(device: torch.device, config: ModelConfig) -> Budget:
    """As the paper's network has it, less what attending to own places takes; on a CPU an eighth of the room for
    embeddings: as much again is needed for what is known of their people."""
    budget = Budget.of(device, config.width)
    usual, attention = BYTES_PER_TOKEN * config.width, 8 * config.heads * config.places
    tokens = budget.tokens * usual // (usual + attention)
    return Budget(tokens, budget.embedding_bytes if device.type == "cuda" else budget.embedding_bytes // 8)


def _room(config: ModelConfig) -> int:
    """What is known of one entity, and its copies by question, in tokens that take as much room, about."""
    numbers = 2 * (config.event_blocks + 2) * config.heads * config.places * config.width
    return math.ceil(4 * numbers / (BYTES_PER_TOKEN * config.width))


def at_most_usual(outlook: Outlook, data: MemoryTensors, rows: Tensor) -> Outlook:
    """With starts and durations that nobody saw at the likeliest of what they may have been: outlook [T, B, …]."""
    if not data.has_intervals:
        return outlook
    wide, has_duration = data.wide[rows], data.is_timed[rows]
    bins = torch.arange(outlook.starts.shape[-1], device=rows.device)
    starts = (data.start[rows][:, None] - bins) % len(bins) <= data.earlier_bins[rows][:, None]
    lengths = torch.arange(outlook.durations.shape[-1], device=rows.device)
    durations = (lengths >= data.shortest[rows][:, None]) & (lengths <= data.longest[rows][:, None])
    return replace(
        outlook,
        start=torch.where(wide, _likeliest(outlook.starts, starts), outlook.start),
        duration=torch.where(wide & has_duration, _likeliest(outlook.durations, durations), outlook.duration),
    )


def _likeliest(values: Tensor, possible: Tensor) -> Tensor:
    """Log-chances of the bin that is likeliest over samples: values [T, B, n], possible bool [B, n] -> [T, B]."""
    best = values.float().exp().mean(dim=0).masked_fill(~possible, -1.0).argmax(dim=-1)
    return values.gather(2, best.view(1, -1, 1).expand(len(values), -1, 1))[..., 0]


def chain_terms(outlook: Outlook) -> dict[str, Tensor]:
    """-log of the mean probability over samples by part of the chain, in at least fp32: outlook [T, B, …] -> [B]."""
    T = len(outlook.place)
    parts = (outlook.place + outlook.category, outlook.start, outlook.duration)
    return {name: np.log(T) - torch.logsumexp(values.float(), dim=0) for name, values in zip(RAW, parts, strict=True)}


def _summarise(outlook: Outlook) -> Tensor:
    """Means over samples, in at least fp32: outlook [T, B, …] -> float32 [8, B], in the order of `MemorySamples`."""
    terms = chain_terms(outlook)
    aleatoric, epistemic = uncertainties([outlook.places, outlook.starts, outlook.durations])
    slot, start = (values.exp().mean(dim=0).argmax(dim=-1) for values in (outlook.places, outlook.starts))
    median = (outlook.durations.exp().mean(dim=0).cumsum(dim=-1) < 0.5).sum(dim=-1)
    results = [*terms.values(), aleatoric, epistemic, slot, start, median]
    return torch.stack([values.to(torch.float32) for values in results])


def _store(out: MemorySamples, rows: Sequence[np.ndarray], lines: Sequence[Tensor]) -> None:
    """What `_summarise` said of batches of questions, which are these rows; one transfer for all."""
    rest = (out.aleatoric, out.epistemic, out.expected_slot, out.expected_start, out.expected_duration)
    at = np.concatenate(rows)
    for column, line in zip((*out.terms.values(), *rest), torch.cat(list(lines), dim=1).cpu().numpy(), strict=True):
        column[at] = line


def uncertainties(distributions: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean entropy and mutual information of log-probabilities [T, B, n], added over the chain: 2 × [B]."""
    aleatoric = epistemic = torch.zeros((), dtype=torch.float64, device=distributions[0].device)
    for raw in distributions:
        logs = raw.double()
        chance = logs.exp()
        entropy = -(chance * logs.clamp(min=-700)).sum(dim=-1).mean(dim=0)
        mean = chance.mean(dim=0)
        total = -torch.special.xlogy(mean, mean).sum(dim=-1)
        aleatoric = aleatoric + entropy
        epistemic = epistemic + (total - entropy).clamp(min=0)
    return aleatoric, epistemic


def _empty(n: int) -> MemorySamples:
    floats = [np.zeros(n, np.float32) for _ in range(5)]
    codes = [np.zeros(n, np.int64) for _ in range(3)]
    return MemorySamples(dict(zip(RAW, floats[:3], strict=True)), *floats[3:], *codes)
