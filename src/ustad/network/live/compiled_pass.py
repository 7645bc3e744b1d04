"""The memory network's way to the hidden states of one event on a CPU, compiled: two steps instead of hundreds.

In go the fields of one event, or the embeddings of its window and what is known of its entity; out come the event's
embeddings, or its hidden states, under T samples: the numbers of `MemoryPasses.embed` and `states_of_newest` to float
rounding (a test compares them). On states this small, calling torch takes five times as long as the arithmetic.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor

from ustad.network.inference.inference_kernels import gelu, normalise, softmax
from ustad.network.inference.memory_passes import EntityMaps, MemoryPasses
from ustad.network.inference.passes import FastBlock

compile_pass = numba.njit(fastmath=True, cache=True, nogil=True, error_model="numpy")
Arrays = tuple[np.ndarray, ...]


class CompiledPass:
    """Feature-level and event-level passes of one network in float32, with its weights as they are now."""

    def __init__(self, passes: MemoryPasses) -> None:
        network, tokenizer = passes.network, passes.network.tokenizer
        self.has_vectors = bool(tokenizer.vector_sizes)
        self.offsets = tokenizer.offsets.numpy()
        tokens = tuple(
            weight_array(values) for values in (tokenizer.weight, tokenizer.bias, tokenizer.table, tokenizer.missing)
        )
        feature_blocks = tuple(_weights(block) for block in passes.feature_blocks)
        event_blocks = tuple(_weights(block) for block in passes.event_blocks)
        heads, epsilon = passes.event_blocks[0].heads, passes.event_blocks[0].epsilon
        tables = (network.position, network.day_position, network.memory.weekday)
        positions = (weight_array(network.masked_token), *(weight_array(table.weight) for table in tables))
        norm = (weight_array(network.norm.weight), weight_array(network.norm.bias))
        self.feature_arrays = (tokens, feature_blocks, heads, epsilon)
        self.event_arrays = (positions, event_blocks, norm)
        self.settings = (heads, epsilon, network.norm.eps)

    def embed(self, numbers: np.ndarray, codes: np.ndarray, missing: np.ndarray, keep: np.ndarray) -> np.ndarray:
        """One event: fields [n], masks of dropout keep [T, F, D] -> [T, D]. Not for networks with vectors."""
        return embed_one(numbers, codes + self.offsets, missing, keep, *self.feature_arrays)

    def know(self, entities: EntityMaps) -> tuple[Arrays, Arrays, Arrays, Arrays]:
        """What is needed of the only entity; of its own places those that are there, as the others have no weight."""
        heads, absent = self.settings[0], entities.memory.absent[0]
        rows = torch.arange(len(absent))[~absent] if not absent.all() else torch.arange(len(absent))
        columns = (torch.arange(heads)[:, None] * len(absent) + rows).flatten()
        maps = entities.place_maps
        keys = tuple(weight_array(one.keys[0][:, columns]) for one in maps)
        biases = tuple(weight_array(one.bias[0][:, columns]) for one in maps)
        values = tuple(weight_array(one.values[0][columns]) for one in maps)
        return (weight_array(entities.own[0]), weight_array(absent)), keys, biases, values

    def states(
        self, embeddings: np.ndarray, window: np.ndarray, entity_arrays: tuple[Arrays, Arrays, Arrays, Arrays]
    ) -> np.ndarray:
        """Of the last event: embeddings [T, L, D], which are overwritten; order within the day, weekdays and slots of
        the window, int64 [3, L] -> [T, D]."""
        (positions, blocks, norm), (heads, epsilon, norm_epsilon) = self.event_arrays, self.settings
        return states_of_last(embeddings, window, *entity_arrays, positions, blocks, heads, epsilon, norm, norm_epsilon)


def weight_array(values: Tensor) -> np.ndarray:
    """A tensor of the CPU as a compiled function reads it."""
    return values.detach().contiguous().numpy()


def _weights(block: FastBlock) -> Arrays:
    maps = (block.qkv, block.out, block.up, block.down, block.query, block.key_value)
    return tuple(weight_array(values) for one in maps for values in (one.weight, one.bias))


@compile_pass
def embed_one(
    numbers: np.ndarray,
    codes: np.ndarray,
    missing: np.ndarray,
    keep: np.ndarray,
    tokens: Arrays,
    blocks: tuple[Arrays, ...],
    heads: int,
    epsilon: float,
) -> np.ndarray:
    T, F, D = keep.shape
    weight, bias, table, missing_tokens = tokens
    fields = np.empty((F, D), np.float32)
    for f in range(F):
        for d in range(D):
            if missing[f]:
                fields[f, d] = missing_tokens[f, d]
            elif f < len(numbers):
                fields[f, d] = numbers[f] * weight[f, d] + bias[f, d]
            else:
                fields[f, d] = table[codes[f - len(numbers)], d]
    x = np.empty((T * F, D), np.float32)
    for t in range(T):
        for f in range(F):
            for d in range(D):
                x[t * F + f, d] = fields[f, d] * keep[t, f, d]
    for b in range(len(blocks) - 1):
        _attend(x, F, blocks[b], heads, epsilon)
        _feed_forward(x, blocks[b], epsilon)
    last = blocks[len(blocks) - 1]
    _attend(x, F, last, heads, epsilon)
    wide = _hidden(x, last, epsilon)
    result, total = np.zeros((T, D), np.float32), np.zeros((T, wide.shape[1]), np.float32)
    for t in range(T):
        for f in range(F):
            for d in range(D):
                result[t, d] += x[t * F + f, d]
            for d in range(wide.shape[1]):
                total[t, d] += wide[t * F + f, d]
    _add_map(total, last[6], last[7] * np.float32(F), result)
    return result


@compile_pass
def states_of_last(
    embeddings: np.ndarray,
    window: np.ndarray,
    places: Arrays,
    keys: Arrays,
    biases: Arrays,
    values: Arrays,
    positions: Arrays,
    blocks: tuple[Arrays, ...],
    heads: int,
    epsilon: float,
    norm: Arrays,
    norm_epsilon: float,
) -> np.ndarray:
    T, L, D = embeddings.shape
    _enter(embeddings, window, places, positions)
    x = embeddings.reshape(T * L, D)
    for b in range(len(blocks)):
        _attend_to_places(x, keys[b], biases[b], values[b], heads, epsilon)
        if b < len(blocks) - 1:
            _attend(x, L, blocks[b], heads, epsilon)
            _feed_forward(x, blocks[b], epsilon)
    tokens = _attend_last(x, L, blocks[len(blocks) - 1], heads, epsilon)
    _feed_forward(tokens, blocks[len(blocks) - 1], epsilon)
    states = np.empty_like(tokens)
    normalise(tokens, norm_epsilon, states)
    for t in range(T):
        for d in range(D):
            states[t, d] = states[t, d] * norm[0][d] + norm[1][d]
    return states


@compile_pass
def _enter(embeddings: np.ndarray, window: np.ndarray, places: Arrays, positions: Arrays) -> None:
    """Masks, own places, positions and days, as `MemoryPasses.states_of_newest` has them."""
    T, L, D = embeddings.shape
    masked, position, day_position, weekday = positions
    own, absent = places
    limit, K = len(position) - 1, len(absent)
    for i in range(L):
        is_masked, slot = i >= L - 2, window[2, i]
        if slot >= K or absent[min(slot, K - 1)]:
            slot = K
        for d in range(D):
            addition = position[min(i, limit), d] if is_masked else own[slot, d] + position[min(i, limit), d]
            addition += day_position[min(window[0, i], limit), d] + weekday[window[1, i], d]
            for t in range(T):
                embeddings[t, i, d] = (masked[d] if is_masked else embeddings[t, i, d]) + addition


@compile_pass
def _add_map(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, out: np.ndarray) -> None:
    """out [M, n] += x [M, m] · weight [m, n] + bias [n]."""
    for i in range(len(out)):
        for j in range(out.shape[1]):
            out[i, j] += bias[j]
    add_product(x, weight, out)


@compile_pass
def add_product(x: np.ndarray, weight: np.ndarray, out: np.ndarray) -> None:
    """out [M, n] += x [M, m] · weight [m, n]; four rows and four weights at a time stay in registers."""
    (M, n), m = out.shape, x.shape[1]
    whole, fours = M // 4 * 4, m // 4 * 4
    for i in range(0, whole, 4):
        for k in range(0, fours, 4):
            a0, b0, c0, d0 = x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3]
            a1, b1, c1, d1 = x[i + 1, k], x[i + 1, k + 1], x[i + 1, k + 2], x[i + 1, k + 3]
            a2, b2, c2, d2 = x[i + 2, k], x[i + 2, k + 1], x[i + 2, k + 2], x[i + 2, k + 3]
            a3, b3, c3, d3 = x[i + 3, k], x[i + 3, k + 1], x[i + 3, k + 2], x[i + 3, k + 3]
            for j in range(n):
                p, q, r, s = weight[k, j], weight[k + 1, j], weight[k + 2, j], weight[k + 3, j]
                out[i, j] += a0 * p + b0 * q + c0 * r + d0 * s
                out[i + 1, j] += a1 * p + b1 * q + c1 * r + d1 * s
                out[i + 2, j] += a2 * p + b2 * q + c2 * r + d2 * s
                out[i + 3, j] += a3 * p + b3 * q + c3 * r + d3 * s
    for i in range(whole, M):
        for k in range(0, fours, 4):
            a, b, c, d = x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3]
            for j in range(n):
                out[i, j] += a * weight[k, j] + b * weight[k + 1, j] + c * weight[k + 2, j] + d * weight[k + 3, j]
    for i in range(M):
        for k in range(fours, m):
            a = x[i, k]
            for j in range(n):
                out[i, j] += a * weight[k, j]


@compile_pass
def map_rows(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """x [M, m] · weight [m, n] + bias [n]."""
    out = np.zeros((len(x), weight.shape[1]), np.float32)
    _add_map(x, weight, bias, out)
    return out


@compile_pass
def _attend(x: np.ndarray, length: int, weights: Arrays, heads: int, epsilon: float) -> None:
    """x [N·L, D] plus what its tokens see of each other."""
    normal = np.empty_like(x)
    normalise(x, epsilon, normal)
    qkv = map_rows(normal, weights[0], weights[1])
    _add_map(_mix(qkv, length, qkv, x.shape[1], length, heads, x.shape[1]), weights[2], weights[3], x)


@compile_pass
def _mix(query: np.ndarray, each: int, rows: np.ndarray, keys_at: int, length: int, heads: int, D: int) -> np.ndarray:
    """What queries see of their own sequence, [Q, D]: `each` queries [Q, ≥ D] of every sequence of L rows [N·L, …],
    which have keys from the column `keys_at` on and values after them.

    Heads stand side by side, each in columns of its own with zeros elsewhere: two long products for each sequence cost
    less than many short ones.
    """
    L, width, spare = length, D // heads, np.empty(each * heads * length, np.float32)
    keys, values = np.zeros((D, heads * L), np.float32), np.zeros((heads * L, D), np.float32)
    shares, mixture = np.zeros((len(query), heads * L), np.float32), np.zeros((len(query), D), np.float32)
    for n in range(len(query) // each):
        for h in range(heads):
            for j in range(L):
                for d in range(h * width, (h + 1) * width):
                    keys[d, h * L + j] = rows[n * L + j, keys_at + d]
                    values[h * L + j, d] = rows[n * L + j, keys_at + D + d]
        own = slice(n * each, (n + 1) * each)
        add_product(query[own, :D], keys, shares[own])
        softmax(shares[own].reshape(each * heads, L), spare)
        add_product(shares[own], values, mixture[own])
    return mixture


@compile_pass
def _attend_last(x: np.ndarray, length: int, weights: Arrays, heads: int, epsilon: float) -> np.ndarray:
    """The last token of each sequence plus what it sees of the others: [N·L, D] -> [N, D]."""
    M, D = x.shape
    L, N = length, M // length
    normal = np.empty_like(x)
    normalise(x, epsilon, normal)
    pair = map_rows(normal, weights[10], weights[11])
    tokens, last = np.empty((N, D), np.float32), np.empty((N, D), np.float32)
    for n in range(N):
        for d in range(D):
            tokens[n, d], last[n, d] = x[n * L + L - 1, d], normal[n * L + L - 1, d]
    query = map_rows(last, weights[8], weights[9])
    _add_map(_mix(query, 1, pair, 0, L, heads, D), weights[2], weights[3], tokens)
    return tokens


@compile_pass
def _attend_to_places(
    x: np.ndarray, keys: np.ndarray, bias: np.ndarray, values: np.ndarray, heads: int, epsilon: float
) -> None:
    """x [M, D] plus what its tokens see of the own places."""
    normal = np.empty_like(x)
    normalise(x, epsilon, normal)
    logits = map_rows(normal, keys, bias[0])
    softmax(logits.reshape(len(x) * heads, logits.shape[1] // heads), np.empty(logits.size, np.float32))
    _add_map(logits, values, np.zeros(x.shape[1], np.float32), x)


@compile_pass
def _hidden(x: np.ndarray, weights: Arrays, epsilon: float) -> np.ndarray:
    normal = np.empty_like(x)
    normalise(x, epsilon, normal)
    wide = map_rows(normal, weights[4], weights[5])
    gelu(wide.reshape(-1))
    return wide


@compile_pass
def _feed_forward(x: np.ndarray, weights: Arrays, epsilon: float) -> None:
    _add_map(_hidden(x, weights, epsilon), weights[6], weights[7], x)
