"""Random draws from a counter: dropout masks and logit noise as pure functions of what they belong to.

In go a seed, the identity of an event, the sample t, a field and a channel (or class); out comes the same draw on
every machine, in every batch and in any order. It is splitmix64 in wrapping 64-bit integers, so CPU and GPU agree
to the bit on the masks, and to float rounding on the normals.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ustad.network.inference import inference_kernels as kernels

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_DROPOUT, _NOISE = 0x5D0F, 0x9A55  # the two streams never meet
_LANES = 4  # dropout decisions per 64-bit draw, 16 bits each
_LANE_RANGE = 1 << 16


def _to_signed(value: int) -> int:
    """A 64-bit pattern as the int64 that has it."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


def mix(value: Tensor) -> Tensor:
    """The splitmix64 finaliser on int64 [...], bit for bit as on unsigned integers."""
    value = (value ^ _shift(value, 30)) * _to_signed(_FIRST)
    value = (value ^ _shift(value, 27)) * _to_signed(_SECOND)
    return value ^ _shift(value, 31)


def _shift(value: Tensor, bits: int) -> Tensor:
    """Logical right shift: the arithmetic one, with the copies of the sign bit cleared."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _salt(seed: int, stream: int) -> int:
    return _to_signed(_to_signed(seed) * _GOLDEN + stream * _SECOND)


def _base(key: Tensor, seed: int, stream: int) -> Tensor:
    """One start per event and stream: int64 [N]."""
    return mix(key + _salt(seed, stream))


def _base_here(key: np.ndarray, seed: int, stream: int) -> np.ndarray:
    """The same bits on a CPU: uint64 [N] of int64 [N]."""
    salt = np.uint64(_salt(seed, stream) & ((1 << 64) - 1))
    return kernels.starts(np.ascontiguousarray(key).view(np.uint64), salt)


def noise_starts(key: np.ndarray, seed: int) -> np.ndarray:
    """Where each event's normals begin, for `kernels.normal_at`: uint64 [N] of int64 [N]."""
    return _base_here(key, seed, _NOISE)


def _draw(base: Tensor, counter: Tensor) -> Tensor:
    """int64 [N, counters]: independent 64-bit draws of each start."""
    return mix(base[:, None] + counter * _to_signed(_GOLDEN))


def _counters(samples: int, fields: Tensor, width: int) -> Tensor:
    """One number per (t, field, cell), flat: t · 2⁴⁰ + field · 2²⁰ + cell + 1."""
    device = fields.device
    t = torch.arange(samples, device=device)[:, None, None] << 40
    cell = torch.arange(1, width + 1, device=device)
    return (t + (fields[:, None] << 20) + cell).flatten()


def _threshold(rate: float) -> int:
    """Lanes, which are signed, below this are dropped."""
    return round(rate * _LANE_RANGE) - (_LANE_RANGE >> 1)


def keep_masks_here(key: np.ndarray, seed: int, samples: int, fields: int, *, width: int, rate: float) -> np.ndarray:
    """`keep_masks` on a CPU, without tensors: key int64 [N]."""
    masks = np.empty((len(key), samples, fields, width), np.float32)
    kernels.draw_masks(_base_here(key, seed, _DROPOUT), 1.0 / (1.0 - rate), _threshold(rate), masks)
    return masks


def keep_masks(key: Tensor, seed: int, samples: int, fields: int, *, width: int, rate: float) -> Tensor:
    """Multiplicative dropout masks: float32 [N, samples, fields, width].

    Each entry is 0 with probability `rate` (to 1/65536), else 1 / (1 − rate). key int64 [N].
    """
    if key.device.type == "cpu":
        return torch.from_numpy(keep_masks_here(key.numpy(), seed, samples, fields, width=width, rate=rate))
    threshold = _threshold(rate)
    cells = -(-width // _LANES)
    counters = _counters(samples, torch.arange(fields, device=key.device), cells)
    draws = _draw(_base(key, seed, _DROPOUT), counters)
    lanes = draws.contiguous().view(torch.int16).view(len(key), samples, fields, cells * _LANES)[..., :width]
    return (lanes >= threshold).to(torch.float32).mul_(1.0 / (1.0 - rate))


def normal_noise(key: Tensor, seed: int, samples: int, field: int, *, classes: int) -> Tensor:
    """Standard normals for the logits of one category field: float32 [samples, N, classes] (Box–Muller)."""
    if key.device.type == "cpu":
        noise = torch.empty(samples, len(key), classes)
        kernels.draw_normals(noise_starts(key.numpy(), seed), field, noise.numpy())
        return noise
    which = torch.arange(field, field + 1, device=key.device)
    draws = _draw(_base(key, seed, _NOISE), _counters(samples, which, classes))
    radius = ((_shift(draws, 40)).to(torch.float32) + 0.5) * 2.0**-24
    angle = ((draws & 0xFFFFFF).to(torch.float32)) * (2.0**-24 * 2.0 * math.pi)
    normal = torch.sqrt(-2.0 * torch.log(radius)) * torch.cos(angle)
    return normal.view(len(key), samples, classes).transpose(0, 1)
