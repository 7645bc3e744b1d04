"""The memory network's heads for one event on a CPU, compiled: from its hidden states to its terms and uncertainties.

In go the hidden states of one event under T samples, what is known of its entity and what the event was; out come the
numbers that `FastHeads`, `at_most_usual`, `chain_terms` and `uncertainties` give (a test compares them). A dozen small
tensors cost more than their arithmetic.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from torch import nn

from ustad.events.observed import DAY_MINUTES
from ustad.network.inference.inference_kernels import gelu
from ustad.network.inference.memory_passes import EntityMaps, MemoryPasses
from ustad.network.inference.memory_terms import DOUBT, NOISE, RAW
from ustad.network.live.compiled_pass import add_product, map_rows, weight_array
from ustad.network.place_counts import DURATION_BINS, START_BINS, duration_bin
from ustad.network.place_memory import AREA_KM, FLOOR

_compile = numba.njit(cache=True, nogil=True, error_model="numpy")
_ANYWHERE = FLOOR / (2 * AREA_KM) ** 2


class Target(NamedTuple):
    """What one event was, as `MemoryTensors` has it of many."""

    slot: int
    weekday: int
    x: float
    y: float
    is_located: bool
    category: int
    start: int
    duration: int
    is_timed: bool
    is_wide: bool
    earlier_bins: int
    shortest: int
    longest: int

    @classmethod
    def of(
        cls, slot: int, day: tuple[int, float], duration: float, position: tuple[float, float, int],
        *, unseen: tuple[float, float, bool],
    ) -> Target:  # fmt: skip
        """`day`: weekday and minute of the start; `position`: x, y and kind of place; `unseen`: minutes that it may
        have begun earlier and ended later, and whether some of it was hidden."""
        (weekday, minute), (x, y, category) = day, position
        early, late = (min(minutes, DAY_MINUTES) for minutes in unseen[:2])
        length, longest = duration_bin(duration), duration_bin(duration + early + late)
        width = DAY_MINUTES / START_BINS
        earlier = math.floor(minute / width) - math.floor((minute - early) / width)
        return cls(
            slot,
            weekday,
            x if x == x else 0.0,
            y if y == y else 0.0,
            math.isfinite(x) and math.isfinite(y),
            category,
            min(int(minute / 1440 * START_BINS), START_BINS - 1),
            min(length, DURATION_BINS - 1),
            length < DURATION_BINS,
            early > 0 or late > 0 or unseen[2],
            min(earlier, START_BINS - 1),
            0 if unseen[2] else min(length, DURATION_BINS - 1),
            min(longest, DURATION_BINS - 1),
        )


class CompiledHeads:
    """Heads of one network in float32, with its weights as they are now."""

    def __init__(self, passes: MemoryPasses) -> None:
        memory, own, heads = passes.network.memory, passes.network.memory.heads, passes.heads
        start, duration = own.start[2], own.duration[2]
        assert isinstance(start, nn.Linear)
        assert isinstance(duration, nn.Linear)
        self.shared = tuple(weight_array(weights) for weights in (
            heads.hidden, heads.where, heads.bias, heads.when, start.weight.t(), start.bias, duration.weight.t(),
            duration.bias, own.start_bin.weight, own.trust, memory.new_token, memory.category.weight,
            own.kind.weight.t(), own.kind.bias, own.reach.weight.t(), own.reach.bias, heads.spread,
        ))  # fmt: skip

    def know(self, entities: EntityMaps) -> tuple[np.ndarray, ...]:
        """What is needed of the only entity, as arrays that share its memory."""
        memory, pointers = entities.memory, entities.pointers
        return tuple(weight_array(values[0]) for values in (
            pointers.places, pointers.places_bias[:, 0], pointers.around, pointers.around_bias[:, 0], memory.tokens,
            memory.absent, memory.x, memory.y, memory.starts, memory.durations,
        ))  # fmt: skip

    def __call__(self, hidden: np.ndarray, entity_arrays: tuple[np.ndarray, ...], target: Target) -> dict[str, float]:
        """Terms, noise and doubt; hidden [T, D]."""
        t = target
        answers = answer_one(
            hidden, self.shared, entity_arrays, t.slot, t.weekday >= 5, (t.x, t.y, t.is_located), t.category, t.start,
            t.duration, t.is_timed, t.is_wide, (t.earlier_bins, t.shortest, t.longest),
        )  # fmt: skip
        return dict(zip((*RAW, NOISE, DOUBT), answers, strict=True))


@_compile
def answer_one(
    hidden: np.ndarray,
    shared_arrays: tuple[np.ndarray, ...],
    entity_arrays: tuple[np.ndarray, ...],
    slot: int,
    is_weekend: bool,
    where: tuple[float, float, bool],
    category: int,
    start: int,
    duration: int,
    is_timed: bool,
    is_wide: bool,
    possible: tuple[int, int, int],
) -> tuple[float, float, float, float, float]:
    """See `CompiledHeads`."""
    (
        to_inner, from_place, inner_bias, from_start, start_weight, start_bias, duration_weight, duration_bias,
        start_bin, trust, new_token, kinds, kind_weight, kind_bias, reach_weight, reach_bias, spread,
    ) = shared_arrays  # fmt: skip
    pointer, pointer_bias, around, around_bias, tokens, absent, own_x, own_y, log_starts, log_durations = entity_arrays
    D, K = hidden.shape[1], len(absent)
    own = min(slot, K - 1)
    is_new = slot >= K or absent[own]
    places = _log_softmax(map_rows(hidden, pointer, pointer_bias))
    place = places[:, K if is_new else own].astype(np.float64)
    if is_new:
        if where[2]:
            weight = np.exp(_log_softmax(map_rows(hidden, around, around_bias)))
            reach = np.exp(_log_softmax(map_rows(hidden, reach_weight, reach_bias)))
            place += _density(weight, reach, own_x, own_y, absent, where[0], where[1], spread)
        if category > 0:
            place += _log_softmax(map_rows(hidden, kind_weight, kind_bias))[:, category]
    condition = inner_bias.copy()
    token = new_token + kinds[category] if is_new else tokens[own]
    add_product(token.reshape(1, -1), from_place, condition.reshape(1, -1))
    add_product(start_bin[start : start + 1], from_start, condition[2 * D :].reshape(1, -1))
    inner = map_rows(hidden, to_inner, condition)
    gelu(inner.reshape(-1))
    day = 1 if is_weekend else 0
    own_start = start_bias if is_new else start_bias + trust[1] * log_starts[own, day]
    own_duration = duration_bias if is_new else duration_bias + trust[2] * log_durations[own]
    starts = _log_softmax(map_rows(inner[:, : 2 * D], start_weight, own_start))
    durations = _log_softmax(map_rows(inner[:, 2 * D :], duration_weight, own_duration))
    start_at, duration_at = start, duration
    if is_wide:
        start_at = _likeliest_start(starts, start, possible[0])
        duration_at = _likeliest(durations, possible[1], possible[2]) if is_timed else duration
    length = _minus_log_mean(durations[:, duration_at].astype(np.float64)) if is_timed else 0.0
    noise = doubt = 0.0
    for logs in (places, starts, durations):
        own_noise, own_doubt = _uncertainties(logs)
        noise, doubt = noise + own_noise, doubt + own_doubt
    return _minus_log_mean(place), _minus_log_mean(starts[:, start_at].astype(np.float64)), length, noise, doubt


@_compile
def _log_softmax(logits: np.ndarray) -> np.ndarray:
    """By row, in place."""
    for t in range(len(logits)):
        top = logits[t].max()
        total = 0.0
        for value in logits[t]:
            total += math.exp(value - top)
        logits[t] -= np.float32(top + math.log(total))
    return logits


@_compile
def _density(
    weight: np.ndarray,
    reach: np.ndarray,
    own_x: np.ndarray,
    own_y: np.ndarray,
    absent: np.ndarray,
    x: float,
    y: float,
    spread: np.ndarray,
) -> np.ndarray:
    """Log-density of a new place per km², see `FastHeads._density`: float64 [T]."""
    density = np.full(len(weight), _ANYWHERE)
    for k in range(len(absent)):
        if absent[k]:
            continue
        square = (own_x[k] - x) ** 2 + (own_y[k] - y) ** 2
        for s in range(len(spread)):
            kernel = (1 + square / spread[s]) ** -1.5 / (2 * math.pi * spread[s])
            for t in range(len(weight)):
                density[t] += (1 - FLOOR) * weight[t, k] * reach[t, s] * kernel
    return np.log(density)


@_compile
def _likeliest_start(starts: np.ndarray, start: int, earlier: int) -> int:
    """The bin of those from `earlier` before the start on that is likeliest over samples."""
    best, most = start, -1.0
    for j in range(starts.shape[1]):
        if (start - j) % starts.shape[1] <= earlier:
            chance = np.exp(starts[:, j]).sum()
            if chance > most:
                best, most = j, chance
    return best


@_compile
def _likeliest(chances: np.ndarray, first: int, last: int) -> int:
    """The bin from first to last that is likeliest over samples."""
    best, most = first, -1.0
    for j in range(first, last + 1):
        chance = np.exp(chances[:, j]).sum()
        if chance > most:
            best, most = j, chance
    return best


@_compile
def _minus_log_mean(logs: np.ndarray) -> float:
    top = logs.max()
    return math.log(len(logs)) - top - math.log(np.exp(logs - top).sum())


@_compile
def _uncertainties(logs: np.ndarray) -> tuple[float, float]:
    """Mean entropy of T distributions [T, n], and how much the entropy of their mean is above it."""
    total = noise = 0.0
    for j in range(logs.shape[1]):
        mean = entropy = 0.0
        for t in range(len(logs)):
            value = float(logs[t, j])
            chance = math.exp(value)
            mean += chance
            entropy -= chance * max(value, -700.0)
        mean /= len(logs)
        total -= mean * math.log(mean) if mean > 0 else 0.0
        noise += entropy / len(logs)
    return noise, max(total - noise, 0.0)
