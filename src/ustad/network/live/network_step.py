"""The network's part of one live event: embed it, look at it in its window T times, reduce every term.

In go the event's fields and the embeddings of the events before it; out come its own embeddings and, in one
transfer, everything the score needs. On a GPU the few hundred small kernels of a step are captured once per window
length as a CUDA graph and replayed, because launching them one by one costs more than running them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ustad.events.windows import Features
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.counter import keep_masks
from ustad.network.inference.passes import Passes
from ustad.network.inference.sampled_terms import Layout, reduce_term
from ustad.network.inference.sampling import SCALARS, Precision, inference, passes_for
from ustad.network.live.compiled_terms import CompiledTerms
from ustad.progress import say


@dataclass(frozen=True)
class Result:
    """One event. `values` has expected, error, loss, AU and EU of each term; `vectors` the mean predictions."""

    values: list[list[float]]  # [terms][5]
    vectors: dict[str, np.ndarray]
    hidden: np.ndarray  # without dropout, float32 [1, D]
    embedding: Tensor  # [T + 1, D]


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    host: Tensor  # bytes of the fields, keys and positions, in memory that a GPU reads directly
    device_bytes: Tensor  # the same on the GPU
    old: Tensor  # [T + 1, L − 1, D]
    outputs: tuple[Tensor, Tensor]
    passes: Passes  # holds the buffers that the graph writes to


class LiveStep:
    """`masked` of the T + 1 passes hide the event; the last is without dropout, for the neighbours."""

    def __init__(
        self, network: DualTransformer, layout: Layout, samples: int, masked: int, *, seed: int, device: torch.device
    ) -> None:
        self.network, self.layout, self.device = network, layout, device
        self.samples, self.masked, self.seed = samples, masked, seed
        self._precision: Precision = "auto"
        self._sizes = {f.name: f.size for f in network.fields}
        self._passes = passes_for(network, device)
        here = device.type == "cpu" and network.masked_token.dtype == torch.float32
        self._terms = CompiledTerms(network, layout, seed) if here else None
        self._graphs: dict[int, _Recording] = {}
        self._capturing = device.type == "cuda"

    def __call__(self, fields: Sequence[np.ndarray], old: Sequence[Tensor], day_position: np.ndarray) -> Result:
        """numbers, categories (int64), vectors, missing, key of one event [1, …]; embeddings of those before it,
        L − 1 of [T + 1, D]; day_position int64 [L]."""
        inputs = [*fields, day_position]
        with inference(self.network):
            if self._terms is not None:
                there = [torch.from_numpy(g) for g in inputs]
                embedding, hidden = self._hidden(self._passes, self._stack(old), *there)
                return self._read_terms(self._terms, embedding[:, 0], hidden[:, 0], fields)
            embedding, flat = self._replay(inputs, old) if self._capturing else self._eager(inputs, old)
            result = self._result(embedding, flat.cpu().numpy())
            if self._precision == "auto" and not all(math.isfinite(v[-1]) for v in result.values):
                self._precision, self._graphs = "fp32", {}  # half precision overflowed: full from now on
                self._passes = passes_for(self.network, self.device, "fp32")
                return self(fields, old, day_position)
        return result

    def _eager(self, inputs: Sequence[np.ndarray], old: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        there = (torch.from_numpy(g).to(self.device) for g in inputs)
        return self._compute(self._passes, self._stack(old), *there)

    def _stack(self, old: Sequence[Tensor]) -> Tensor:
        if old:
            return torch.stack(list(old), dim=1)
        return self.network.masked_token.new_empty(self.samples + 1, 0, self.network.config.width)

    def embed(self, features: Features, key: Tensor, passes: Passes | None = None) -> Tensor:
        """n events under every sample and, last, without dropout, in one pass: [T + 1, n, D]."""
        config = self.network.config
        passes = passes or self._passes
        f = features
        apart = Features(f.numbers[:, None], f.categories[:, None], f.vectors[:, None], f.missing[:, None])
        if not config.epistemic:
            return passes.embed(apart, None).transpose(0, 1).repeat(2, 1, 1)
        keep = keep_masks(
            key, self.seed, self.samples, len(self.network.fields), width=config.width, rate=config.dropout
        )
        keep = torch.cat([keep, torch.ones_like(keep[:, :1])], dim=1).to(self.network.masked_token.dtype)
        return passes.embed(apart, keep).transpose(0, 1)

    def _hidden(self, passes: Passes, old: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings and hidden states of the event, [T + 1, 1, D] both; given as in `__call__`."""
        numbers, categories, vectors, missing, key, day_position = inputs
        new = self.embed(Features(numbers, categories, vectors, missing), key, passes)
        embeddings = torch.cat([old, new], dim=1)
        row = torch.arange(embeddings.shape[1], device=self.device)[None]
        return new, passes.at(embeddings, row, self.masked, day_position[None], row[:, -1])

    def _compute(self, passes: Passes, old: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings [T + 1, D] and, flat, the scalars of all terms, the plain hidden state, mean vectors."""
        new, hidden = self._hidden(passes, old, *inputs)
        return new[:, 0], self._reduce(hidden, Features(*inputs[:4]), inputs[4])[0]

    def _read_terms(
        self, terms: CompiledTerms, embedding: Tensor, hidden: Tensor, fields: Sequence[np.ndarray]
    ) -> Result:
        """What the samples say about one event: embedding and hidden [T + 1, D]."""
        lines, vectors = terms(hidden[: self.samples], fields)
        return Result(lines.tolist(), vectors, hidden[self.samples :].numpy(), embedding)

    def many(
        self, fields: Sequence[np.ndarray], embeddings: Sequence[Tensor], day_position: np.ndarray
    ) -> list[Result]:
        """The same for B events with windows of one length L: fields [B, …], embeddings of all events of all windows
        one after the other, B · L of [T + 1, D], the newest of each window last; day_position [B, L]."""
        with inference(self.network):
            *features, key = (torch.from_numpy(f).to(self.device) for f in fields)
            where = torch.from_numpy(day_position).to(self.device)
            row = torch.arange(len(embeddings), device=self.device).view(where.shape)
            stack = self._stack(embeddings)
            at = torch.full((len(row),), row.shape[1] - 1, device=self.device)
            hidden = self._passes.at(stack, row, self.masked, where, at)  # [T + 1, B, D]
            newest = embeddings[row.shape[1] - 1 :: row.shape[1]]
            if self._terms is not None:
                one = [[f[i : i + 1] for f in fields] for i in range(len(newest))]
                events = zip(newest, hidden.unbind(1), one, strict=True)
                return [self._read_terms(self._terms, *event) for event in events]
            flat = self._reduce(hidden, Features(*features), key).cpu().numpy()
        results = [self._result(e, line) for e, line in zip(newest, flat, strict=True)]
        if self._precision == "auto" and not all(math.isfinite(v[-1]) for r in results for v in r.values):
            self._precision, self._graphs = "fp32", {}
            self._passes = passes_for(self.network, self.device, "fp32")
            return self.many(fields, embeddings, day_position)
        return results

    def _reduce(self, hidden: Tensor, features: Features, key: Tensor) -> Tensor:
        """hidden [T + 1, B, D] -> by event the scalars of all terms, the plain hidden state, mean vectors: [B, …]."""
        predictions = self.network.decode(hidden[: self.samples])
        results = [
            reduce_term(t, self.layout, predictions, features, key=key, seed=self.seed) for t in self.layout.terms
        ]
        scalars = torch.stack([getattr(r, name).float() for r in results for name in SCALARS], dim=1)
        vectors = [r.vector.float() for r in results if r.vector is not None]
        return torch.cat([scalars, hidden[self.samples].float(), *vectors], dim=1)

    def _result(self, embedding: Tensor, flat: np.ndarray) -> Result:
        size, terms = len(SCALARS), self.layout.terms
        plain = flat[: size * len(terms)].tolist()
        values = [plain[i : i + size] for i in range(0, len(plain), size)]
        at, width = len(plain), self.network.config.width
        hidden, at = flat[None, at : at + width], at + width
        vectors = {}
        for term in terms:
            if term.kind == "vector":
                length = self._sizes[term.fields[0]]
                vectors[term.name], at = flat[at : at + length], at + length
        return Result(values, vectors, hidden, embedding)

    # ---------------------------------------------------------------------------------------- on a GPU
    def _replay(self, inputs: Sequence[np.ndarray], old: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """One transfer of everything that is new, one launch."""
        length = len(old) + 1
        if length not in self._graphs:
            try:
                self._graphs[length] = self._capture(inputs, old)
            except RuntimeError as error:  # a driver that cannot record: slower, but the same numbers
                say(f"live scoring without CUDA graphs: {str(error).splitlines()[0]}")
                self._capturing = False
                return self._eager(inputs, old)
        recording = self._graphs[length]
        for view, fresh in zip(_views(recording.host, inputs), inputs, strict=True):
            view.copy_(torch.from_numpy(fresh))
        recording.device_bytes.copy_(recording.host, non_blocking=True)
        if old:
            torch.stack(list(old), dim=1, out=recording.old)
        recording.graph.replay()
        embedding, flat = recording.outputs
        return embedding.clone(), flat

    def _capture(self, inputs: Sequence[np.ndarray], old: Sequence[Tensor]) -> _Recording:
        """Record one step for windows of this length; buffers of its own, so that nothing moves under it."""
        passes = passes_for(self.network, self.device, self._precision)
        size = sum(_padded_size(g) for g in inputs)
        host = torch.zeros(size, dtype=torch.uint8).pin_memory()
        for view, fresh in zip(_views(host, inputs), inputs, strict=True):
            view.copy_(torch.from_numpy(fresh))
        device_bytes, before = host.to(self.device), self._stack(old).clone()
        device_inputs = _views(device_bytes, inputs)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._compute(passes, before, *device_inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = self._compute(passes, before, *device_inputs)
        return _Recording(graph, host, device_bytes, before, outputs, passes)


def _padded_size(array: np.ndarray) -> int:
    """Bytes of an array, up to where the next may begin."""
    return -(-array.nbytes // 16) * 16


def _views(content: Tensor, like: Sequence[np.ndarray]) -> list[Tensor]:
    """The arrays that lie one behind the other in a tensor of bytes."""
    views, at = [], 0
    for array in like:
        part = content[at : at + array.nbytes].view(torch.from_numpy(array).dtype)
        views.append(part.view(array.shape))
        at += _padded_size(array)
    return views
