"""The network's part of one live event: embed it, look at it in its window T times, reduce every term.

In go the event's fields and the embeddings of the events before it; out come its own embeddings and, in one
transfer, everything the score needs. On a GPU the few hundred small kernels of a step are captured once per window
length as a CUDA graph and replayed, because launching them one by one costs more than running them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ustad.events.windows import Features
from ustad.model.network import DualTransformer
from ustad.scoring.counter import keep_masks
from ustad.scoring.passes import Passes
from ustad.scoring.sampling import SCALARS, Precision, Samples, TermSamples, inference, passes_for
from ustad.scoring.terms import Layout, reduce_term


@dataclass(frozen=True)
class Result:
    """One event: its samples, its hidden state without dropout [1, D], its embeddings [T + 1, D]."""

    samples: Samples
    hidden: np.ndarray
    embedding: Tensor


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, Tensor]
    passes: Passes  # holds the buffers that the graph writes to


class LiveStep:
    """`masked` of the T + 1 passes hide the event; the last is without dropout, for the neighbours."""

    def __init__(
        self, network: DualTransformer, layout: Layout, samples: int, masked: int, seed: int, device: torch.device
    ) -> None:
        self.network, self.layout, self.device = network, layout, device
        self.samples, self.masked, self.seed = samples, masked, seed
        self._precision: Precision = "auto"
        self._passes = passes_for(network, device)
        self._graphs: dict[int, _Captured] = {}

    def __call__(self, features: Features, key: Tensor, old: Tensor, day_position: Tensor) -> Result:
        """features and key of one event [1, …], old [T + 1, L − 1, D], day_position [1, L]."""
        given = (features.numbers, features.categories, features.vectors, features.missing, key, old, day_position)
        with inference(self.network):
            embedding, flat = self._replay(given) if self.device.type == "cuda" else self._compute(self._passes, *given)
            result = self._result(embedding, flat.cpu().numpy())
            if self._precision == "auto" and not all(np.isfinite(t.eu).all() for t in result.samples.terms.values()):
                self._precision, self._graphs = "fp32", {}  # half precision overflowed: full from now on
                self._passes = passes_for(self.network, self.device, "fp32")
                return self(features, key, old, day_position)
        return result

    def embed(self, features: Features, key: Tensor, passes: Passes | None = None) -> Tensor:
        """n events under every sample and, last, without dropout, in one pass: [T + 1, n, D]."""
        config = self.network.config
        passes = passes or self._passes
        f = features
        apart = Features(f.numbers[:, None], f.categories[:, None], f.vectors[:, None], f.missing[:, None])
        if not config.epistemic:
            return passes.embed(apart, None).transpose(0, 1).repeat(2, 1, 1)
        keep = keep_masks(key, self.seed, self.samples, len(self.network.fields), config.width, config.dropout)
        keep = torch.cat([keep, torch.ones_like(keep[:, :1])], dim=1).to(self.network.masked_token.dtype)
        return passes.embed(apart, keep).transpose(0, 1)

    def _compute(
        self,
        passes: Passes,
        numbers: Tensor,
        categories: Tensor,
        vectors: Tensor,
        missing: Tensor,
        key: Tensor,
        old: Tensor,
        day_position: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Embeddings [T + 1, D] and, flat, the scalars of all terms, the plain hidden state, mean vectors."""
        features = Features(numbers, categories, vectors, missing)
        new = self.embed(features, key, passes)
        shared = torch.cat([old, new], dim=1)
        row = torch.arange(shared.shape[1], device=self.device)[None]
        hidden = passes.at(shared, row, self.masked, day_position, row[:, -1])  # [T + 1, 1, D]
        predictions = self.network.decode(hidden[: self.samples])
        reduced = [reduce_term(t, self.layout, predictions, features, key, self.seed) for t in self.layout.terms]
        parts = [getattr(r, name) for r in reduced for name in SCALARS]
        parts += [hidden[self.samples].flatten(), *(r.vector.flatten() for r in reduced if r.vector is not None)]
        return new[:, 0], torch.cat([p.float() for p in parts])

    def _result(self, embedding: Tensor, flat: np.ndarray) -> Result:
        samples, at = Samples(), len(SCALARS) * len(self.layout.terms)
        for i, term in enumerate(self.layout.terms):
            lines = flat[i * len(SCALARS) : (i + 1) * len(SCALARS), None]
            samples.terms[term.name] = TermSamples(*lines)
        width = self.network.config.width
        hidden, at = flat[None, at : at + width], at + width
        sizes = {f.name: f.size for f in self.network.fields}
        for term in self.layout.terms:
            if term.kind == "vector":
                size = sizes[term.fields[0]]
                samples.terms[term.name].vector = flat[None, at : at + size]
                at += size
        return Result(samples, hidden, embedding)

    # ---------------------------------------------------------------------------------------- on a GPU
    def _replay(self, given: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        length = given[-1].shape[1]
        if length not in self._graphs:
            self._graphs[length] = self._capture(given)
        captured = self._graphs[length]
        for static, fresh in zip(captured.inputs, given, strict=True):
            static.copy_(fresh, non_blocking=True)
        captured.graph.replay()
        embedding, flat = captured.outputs
        return embedding.clone(), flat

    def _capture(self, given: tuple[Tensor, ...]) -> _Captured:
        """Record one step for windows of this length; buffers of its own, so that nothing moves under it."""
        passes = passes_for(self.network, self.device, self._precision)
        inputs = tuple(g.clone() for g in given)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._compute(passes, *inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = self._compute(passes, *inputs)
        return _Captured(graph, inputs, outputs, passes)
