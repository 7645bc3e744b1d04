"""Small loops that torch does slowly on a CPU: short rows normalised and exponentiated, draws from the counter.

In go arrays, out come the numbers that torch gives: bit for bit for the dropout masks, to float rounding for the rest
(tests compare them). None of them holds Python's lock, so several batches can run at the same time.
"""

from __future__ import annotations

import math

import numba
import numpy as np

_LANES = 4  # dropout decisions per 64-bit draw, as in `counter`
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_TURN = np.float32(2.0**-24 * 2.0 * math.pi)
#: Where an exponential begins to be 0 exactly. A little above, it and its products are numbers without a leading bit,
#: on which some processors take a hundred times as long.
_NOTHING = np.float32(-88.0)

# A division that may raise is no vector: the numpy error model.
_compile = numba.njit(fastmath=True, cache=True, nogil=True, error_model="numpy")
# The same for loops over elements: the last few, which fill no vector, are to come out as they would elsewhere.
_elementwise = numba.njit(fastmath={"nnan", "ninf", "nsz", "contract"}, cache=True, nogil=True, error_model="numpy")


@_compile
def normalise(x: np.ndarray, epsilon: float, out: np.ndarray) -> None:
    """out = (x − mean) / √(variance + ε) by row of x, float32 [n, D]."""
    width = x.shape[1]
    share, small = np.float32(1.0 / width), np.float32(epsilon)
    for r in range(x.shape[0]):
        total = np.float32(0)
        for d in range(width):
            total += x[r, d]
        mean = total * share
        square = np.float32(0)
        for d in range(width):
            apart = x[r, d] - mean
            square += apart * apart
        scale = np.float32(1.0) / np.sqrt(square * share + small)
        for d in range(width):
            out[r, d] = (x[r, d] - mean) * scale


@_elementwise
def _exponential(value: np.float32) -> tuple[np.float32, np.int32]:
    """eˣ of −88 ≤ x ≤ 87 as a factor in [0.7, 1.5] and the bits of a power of two: to 2 units in the last place, from
    −87.7 downwards 0."""
    power = np.floor(value * np.float32(1.44269504) + np.float32(0.5))
    rest = value - power * np.float32(0.693359375) + power * np.float32(2.12194440e-4)
    series = np.float32(1.9875691500e-4)
    series = series * rest + np.float32(1.3981999507e-3)
    series = series * rest + np.float32(8.3334519073e-3)
    series = series * rest + np.float32(4.1665795894e-2)
    series = series * rest + np.float32(1.6666665459e-1)
    series = series * rest + np.float32(5.0000001201e-1)
    return series * rest * rest + rest + np.float32(1), (np.int32(power) + np.int32(127)) << np.int32(23)


@_elementwise
def softmax(x: np.ndarray, spare: np.ndarray) -> None:
    """Rows of x, float32 [n, L], to their softmax in place; `spare` is a float32 buffer of as many elements."""
    count, length = x.shape
    for r in range(count):
        top = x[r, 0]
        for c in range(1, length):
            top = max(top, x[r, c])
        for c in range(length):
            x[r, c] = max(x[r, c] - top, _NOTHING)
    flat, bits = x.reshape(-1), spare.view(np.int32)
    for i in range(flat.shape[0]):  # one long loop, not many of twelve: whole vectors
        flat[i], bits[i] = _exponential(flat[i])
    for i in range(flat.shape[0]):
        flat[i] *= spare[i]
    for r in range(count):
        total = np.float32(0)
        for c in range(length):
            total += x[r, c]
        share = np.float32(1.0) / total
        for c in range(length):
            x[r, c] *= share


@_elementwise
def gelu(x: np.ndarray) -> None:
    """x Φ(x) in place, float32 [n]; the error function as a ratio of polynomials, to 3 · 10⁻⁷."""
    for i in range(x.shape[0]):
        z = min(max(x[i] * np.float32(0.70710678), np.float32(-3.8325069)), np.float32(3.8325069))
        s = z * z
        above = np.float32(0.00022905066)
        above = above * s + np.float32(0.0034082910)
        above = above * s + np.float32(0.050955695)
        above = above * s + np.float32(0.18520832)
        above = above * s + np.float32(1.1283791)
        below = np.float32(-1.1791603e-7)
        below = below * s + np.float32(2.3547966e-5)
        below = below * s + np.float32(0.0010179625)
        below = below * s + np.float32(0.014070470)
        below = below * s + np.float32(0.11098505)
        below = below * s + np.float32(0.49746925)
        below = below * s + np.float32(1.0)
        x[i] = np.float32(0.5) * x[i] * (np.float32(1.0) + z * above / below)


@_compile
def _mix(value: np.uint64) -> np.uint64:
    """The splitmix64 finaliser."""
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


@_compile
def starts(key: np.ndarray, salt: np.uint64) -> np.ndarray:
    """Where the counter of each event begins, uint64 [n] of uint64 [n]."""
    out = np.empty_like(key)
    for n in range(len(key)):
        out[n] = _mix(key[n] + salt)
    return out


@_compile
def normal_at(start: np.uint64, t: int, field: int, cell: int) -> np.float32:
    """The standard normal of one sample, field and class, by Box and Muller."""
    place = (np.uint64(t) << np.uint64(40)) + (np.uint64(field) << np.uint64(20)) + np.uint64(cell + 1)
    draw = _mix(start + place * _GOLDEN)
    radius = (np.float32(draw >> np.uint64(40)) + np.float32(0.5)) * np.float32(2.0**-24)
    angle = np.float32(draw & np.uint64(0xFFFFFF)) * _TURN
    return np.sqrt(np.float32(-2.0) * np.log(radius)) * np.cos(angle)


@_compile
def draw_masks(start: np.ndarray, kept_value: float, threshold: int, out: np.ndarray) -> None:
    """Dropout masks out [n, T, F, D]: 0 or `kept_value`, from each event's start of the counter, uint64 [n]."""
    count, samples, fields, width = out.shape
    keep = np.float32(kept_value)
    for n in range(count):
        for t in range(samples):
            for f in range(fields):
                row = out[n, t, f]
                base = (np.uint64(t) << np.uint64(40)) + (np.uint64(f) << np.uint64(20))
                for cell in range((width + _LANES - 1) // _LANES):
                    draw = _mix(start[n] + (base + np.uint64(cell + 1)) * _GOLDEN)
                    for lane in range(min(_LANES, width - cell * _LANES)):
                        bits = np.int16((draw >> np.uint64(16 * lane)) & np.uint64(0xFFFF))
                        row[cell * _LANES + lane] = keep if bits >= threshold else np.float32(0)


@_compile
def draw_normals(start: np.ndarray, field: int, out: np.ndarray) -> None:
    """Standard normals out [T, n, C] from each event's start of the counter, uint64 [n]."""
    samples, count, classes = out.shape
    for n in range(count):
        for t in range(samples):
            for c in range(classes):
                out[t, n, c] = normal_at(start[n], t, field, c)
