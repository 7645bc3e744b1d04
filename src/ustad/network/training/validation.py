"""Masked validation loss: every event asked for once, alone, in its own window, without dropout.

In go a network, events on the device and the questions; out comes the mean loss and its parts. Without dropout an
event's feature-level vector is the same in every window, so it is computed once.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ustad.config import Config
from ustad.events.windows import EventTensors, Queries
from ustad.network.dual_transformer import DualTransformer
from ustad.network.losses import field_losses, weigh
from ustad.network.training.task import Validation

#: A tenth of a small data set says too little: at least this many questions are asked where there are so many.
FEWEST_QUERIES = 2_000
#: Share of the questions, those with the largest losses, that the mean leaves out where variances are predicted. An
#: error of a few units at a σ of a hundredth weighs 10⁵: one such event decides the mean of ten thousand, and the more
#: so the better the others are known. Training does not follow it either, since gradients are clipped. Departure from
#: the paper, which does not say how it stops.
LEFT_OUT = 0.01
#: Numbers of noise on the logits of one field that are drawn at once (samples × questions × classes).
DRAWS = 1 << 25


def choose_queries(queries: Queries, entity: np.ndarray, share: float, seed: int) -> Queries:
    """The questions about a fixed share of the entities (entity [N] of each event), the same for the same seed.

    Departure from the paper, which asks about all of them after every epoch.
    """
    owner = entity[queries.target]
    entities, counts = np.unique(owner, return_counts=True)
    order = np.random.default_rng([seed, 2]).permutation(len(entities))
    enough = np.searchsorted(np.cumsum(counts[order]), min(FEWEST_QUERIES, len(queries))) + 1
    asked_entities = entities[order[: max(enough, round(share * len(entities)))]]
    return queries.take(np.flatnonzero(np.isin(owner, asked_entities)))


@torch.no_grad()
def validate(network: DualTransformer, tensors: EventTensors, queries: Queries, config: Config) -> Validation:
    """The loss of every question in evaluation mode and fp32; the noise on the logits follows from the seed."""
    was_training = network.training
    network.eval()
    embeddings, row = _embed_events(network, tensors, queries)
    names = [f.name for f in network.fields]
    totals, without_weights = [], []
    sums = torch.zeros(len(names), dtype=torch.float64, device=tensors.device)
    counts = torch.zeros(len(names), dtype=torch.float64, device=tensors.device)
    order = np.argsort(queries.length, kind="stable")
    size = 8192 if tensors.device.type == "cuda" else 1024
    size = min(size, max(1, DRAWS // (config.training.noise_samples * max(f.size for f in network.fields))))
    for i, first in enumerate(range(0, len(order), size)):
        part = queries.take(order[first : first + size])
        losses, missing = _losses(network, tensors, part, embeddings, row=row, config=config, chunk=i)
        weighed_losses = (
            losses
            if tensors.weight is None
            else losses * tensors.weight[torch.from_numpy(part.target).to(tensors.device)]
        )
        totals.append(weigh(weighed_losses, network.fields, config.training))
        without_weights.append(weighed_losses.sum(dim=-1))
        sums += losses.sum(dim=0, dtype=torch.float64)
        counts += (~missing).sum(dim=0)
    network.train(was_training)
    means = (sums / counts.clamp(min=1)).tolist()
    left_out = LEFT_OUT if network.config.aleatoric else 0.0
    return Validation(
        total=mean_without_largest(torch.cat(totals), left_out) if totals else 0.0,
        fields=dict(zip(names, means, strict=True)),
        queries=len(queries),
        left_out=left_out,
        without_weights=mean_without_largest(torch.cat(without_weights), left_out) if without_weights else 0.0,
    )


def mean_without_largest(losses: Tensor, share: float) -> float:
    """The mean of [Q] without so large a share of them, the largest (rounded down: of few none is left out)."""
    if not bool(torch.isfinite(losses).all()):
        return float("nan")  # whatever would be left out, training has diverged
    ascending = losses.to(torch.float64).sort().values
    return float(ascending[: len(ascending) - int(share * len(ascending))].mean())


def _embed_events(network: DualTransformer, tensors: EventTensors, queries: Queries) -> tuple[Tensor, Tensor]:
    """Feature-level vectors of the events that any question shows [n, D], and each event's row there [N]."""
    edges = np.zeros(len(tensors) + 1, np.int64)
    np.add.at(edges, queries.start, 1)
    np.add.at(edges, queries.stop, -1)
    visible = torch.from_numpy(np.flatnonzero(np.cumsum(edges)[:-1] > 0)).to(tensors.device)
    row = torch.zeros(len(tensors), dtype=torch.int64, device=tensors.device)
    row[visible] = torch.arange(len(visible), device=tensors.device)
    size = 65_536 if tensors.device.type == "cuda" else 4_096
    parts = [network.embed(tensors.features[chunk]) for chunk in visible.split(size)]
    return torch.cat(parts) if parts else torch.zeros(0, network.config.width, device=tensors.device), row


def _losses(
    network: DualTransformer,
    tensors: EventTensors,
    queries: Queries,
    embeddings: Tensor,
    *,
    row: Tensor,
    config: Config,
    chunk: int,
) -> tuple[Tensor, Tensor]:
    """Losses and missing targets of some questions: [Q, F] each."""
    start, stop, target = (
        torch.from_numpy(a).to(tensors.device) for a in (queries.start, queries.stop, queries.target)
    )
    batch = tensors.batch(start, stop, int(queries.length.max()))
    at = target - start
    masked = batch.position == at[:, None]
    hidden = network.contextualise_at(
        embeddings[row[batch.index]], masked, batch.padding, batch.position, day_position=batch.day_position, at=at
    )
    generator = torch.Generator(tensors.device).manual_seed(config.seed * 1_000_003 + chunk)
    features = tensors.features[target]
    return field_losses(
        network.decode(hidden), features, network.fields, config.training, generator=generator
    ), features.missing
