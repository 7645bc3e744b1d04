"""Random numbers by counter: every draw follows from a seed, a stream and a counter alone.

Two forms of the same idea: `uniforms` for whole arrays in numpy, and a one-element state that compiled kernels
advance. Neither depends on what was drawn for anybody else, so partitions and workers cannot change a result.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ustad.tables import mix

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SCALE = 1.0 / (1 << 53)


def keys(seed: int, stream: int, index: np.ndarray) -> np.ndarray:
    """One 64-bit key per index: uint64 [n]."""
    with np.errstate(over="ignore"):
        root = mix(np.array([seed & 0xFFFFFFFFFFFFFFFF], np.uint64) + np.uint64(stream + 1) * GOLDEN)
        return mix(root + np.asarray(index).astype(np.uint64) * GOLDEN)


def uniforms(seed: int, stream: int, index: np.ndarray) -> np.ndarray:
    """One number in [0, 1) per index: float64 [n]."""
    return (keys(seed, stream, index) >> np.uint64(11)).astype(np.float64) * _SCALE


def generator(seed: int, stream: int, index: int = 0) -> np.random.Generator:
    """A numpy generator of its own for one thing (a city, one agent's red team)."""
    return np.random.Generator(np.random.Philox(key=int(keys(seed, stream, np.array([index]))[0])))


@njit(nogil=True, cache=True)
def uniform(state: np.ndarray) -> float:
    """The next number in [0, 1) of a state (uint64 [1])."""
    state[0] += GOLDEN
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * _SCALE


@njit(nogil=True, cache=True)
def normal(state: np.ndarray) -> float:
    """A standard normal number (Box and Muller)."""
    radius = np.sqrt(-2.0 * np.log(1.0 - uniform(state)))
    return radius * np.cos(2.0 * np.pi * uniform(state))


@njit(nogil=True, cache=True)
def below(state: np.ndarray, n: int) -> int:
    """A whole number in [0, n)."""
    return min(n - 1, int(uniform(state) * n))


@njit(nogil=True, cache=True)
def poisson(state: np.ndarray, rate: float) -> int:
    """A Poisson number by multiplication; meant for rates below ten."""
    limit, product, count = np.exp(-rate), uniform(state), 0
    while product > limit:
        product *= uniform(state)
        count += 1
    return count
