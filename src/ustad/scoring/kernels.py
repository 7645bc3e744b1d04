"""Small loops that torch does slowly on a CPU: normalising short rows, and drawing from the counter.

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

# A division that may raise is no vector: the numpy error model.
_compiled = numba.njit(fastmath=True, cache=True, nogil=True, error_model="numpy")


@_compiled
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


@_compiled
def _mix(value: np.uint64) -> np.uint64:
    """The splitmix64 finaliser."""
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


@_compiled
def draw_masks(start: np.ndarray, kept: float, threshold: int, out: np.ndarray) -> None:
    """Dropout masks out [n, T, F, D]: 0 or `kept`, from each event's start of the counter, uint64 [n]."""
    count, samples, fields, width = out.shape
    keep = np.float32(kept)
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


@_compiled
def draw_normals(start: np.ndarray, field: int, out: np.ndarray) -> None:
    """Standard normals out [T, n, C] by Box and Muller, from each event's start of the counter, uint64 [n]."""
    samples, count, classes = out.shape
    for n in range(count):
        for t in range(samples):
            base = (np.uint64(t) << np.uint64(40)) + (np.uint64(field) << np.uint64(20))
            for c in range(classes):
                draw = _mix(start[n] + (base + np.uint64(c + 1)) * _GOLDEN)
                radius = (np.float32(draw >> np.uint64(40)) + np.float32(0.5)) * np.float32(2.0**-24)
                angle = np.float32(draw & np.uint64(0xFFFFFF)) * _TURN
                out[t, n, c] = np.sqrt(np.float32(-2.0) * np.log(radius)) * np.cos(angle)
