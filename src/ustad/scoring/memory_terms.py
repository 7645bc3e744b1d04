"""What the memory network says about every event: surprise by part of the chain, and both uncertainties.

In go a trained memory network and events with what came before them; out come raw terms (-log of the mean
probability over T samples), aleatoric uncertainty (mean entropy), epistemic uncertainty (mutual information) and
what was expected. Dropout masks come from the counter, so nothing depends on batches, order or machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ustad.events.windows import Queries
from ustad.model.memory import MemoryTransformer, Outlook
from ustad.progress import track
from ustad.scoring.counter import keep_masks
from ustad.training.memory import Data, ask

#: Values of embeddings in flight at once, by device: what keeps memory bounded.
BUDGET = {"cpu": 4_000_000, "cuda": 50_000_000}
RAW = ("memory_place", "memory_start", "memory_duration")


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

        def placed(values: np.ndarray) -> np.ndarray:
            result = np.full(rows, np.nan if values.dtype.kind == "f" else -1, values.dtype)
            result[row] = values
            return result

        terms = {name: placed(values) for name, values in self.terms.items()}
        rest = (self.aleatoric, self.epistemic, self.expected_slot, self.expected_start, self.expected_duration)
        return MemorySamples(terms, *(placed(values) for values in rest))


@torch.inference_mode()
def sample_memory(
    network: MemoryTransformer,
    data: Data,
    queries: Queries,
    samples: int,
    seed: int,
    precision: Literal["auto", "fp32", "bf16"] = "auto",
) -> MemorySamples:
    """T samples of every question; without epistemic uncertainty one pass without dropout."""
    network.eval()
    out = _empty(len(queries))
    T = samples if network.config.epistemic else 1
    half = precision == "bf16" or (precision == "auto" and data.events.device.type == "cuda")
    with track("asking the memory network", len(queries)) as advance:
        for chosen in _parts(queries, T * network.config.width, BUDGET[data.events.device.type]):
            part = queries.take(chosen)
            _store(out, chosen, _ask(network, data, part, T, seed, half))
            advance(len(chosen))
    return out


def _ask(network: MemoryTransformer, data: Data, part: Queries, samples: int, seed: int, half: bool) -> Outlook:
    """The outlook of questions of similar length; an event's embeddings are shared by all that see it."""
    device = data.events.device
    length = int(part.length.max())
    start, stop, target = (torch.from_numpy(v).to(device) for v in (part.start, part.stop, part.target))
    index = data.events.batch(start, stop, length).index
    seen, row = torch.unique(index, return_inverse=True)
    with torch.autocast(device.type, torch.bfloat16, enabled=half):
        events = _embedded(network, data, seen, samples, seed)
        return ask(network, data, events, start, stop, target, row)


def _embedded(network: MemoryTransformer, data: Data, seen: Tensor, samples: int, seed: int) -> Tensor:
    """Embeddings of some events under every sample: [T, n, D]."""
    features = data.events.features[seen]
    if not network.config.epistemic:
        return network.embed(features)[None]
    key, width = data.events.key[seen], network.config.width
    keep = keep_masks(key, seed, samples, len(network.fields), width, network.config.dropout)
    return network.embed(features, keep.transpose(0, 1))  # keep [T, n, F, D]


def _parts(queries: Queries, cost: int, budget: int) -> Iterator[np.ndarray]:
    """Questions of similar length, neighbours in time together, as many as the budget holds."""
    order = np.argsort(-(-queries.length // 4), kind="stable")
    first = 0
    while first < len(order):
        length = int(queries.length[order[first]])
        size = max(1, budget // (cost * (length + 4)))
        part = order[first : first + size]
        part = part[queries.length[part] <= -(-length // 4) * 4]  # sorted, so this cuts the end off
        yield part
        first += len(part)


def chain_terms(outlook: Outlook) -> dict[str, Tensor]:
    """-log of the mean probability over samples by part of the chain, in at least fp32: outlook [T, B, …] -> [B]."""
    T = len(outlook.place)
    parts = (outlook.place + outlook.category, outlook.start, outlook.duration)
    return {name: np.log(T) - torch.logsumexp(values.float(), dim=0) for name, values in zip(RAW, parts, strict=True)}


def _store(out: MemorySamples, rows: np.ndarray, outlook: Outlook) -> None:
    """Means over samples, in at least fp32: outlook [T, B, …]."""
    for name, values in chain_terms(outlook).items():
        out.terms[name][rows] = values.cpu().numpy()
    aleatoric, epistemic = uncertainties([outlook.places, outlook.starts, outlook.durations])
    out.aleatoric[rows], out.epistemic[rows] = aleatoric.cpu().numpy(), epistemic.cpu().numpy()
    out.expected_slot[rows] = outlook.places.exp().mean(dim=0).argmax(dim=-1).cpu().numpy()
    out.expected_start[rows] = outlook.starts.exp().mean(dim=0).argmax(dim=-1).cpu().numpy()
    half = outlook.durations.exp().mean(dim=0).cumsum(dim=-1) < 0.5
    out.expected_duration[rows] = half.sum(dim=-1).cpu().numpy()


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
