"""Draws from a counter against a plain-Python version of the same arithmetic."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ustad.network.inference.counter import keep_masks, mix, normal_noise

WORD = (1 << 64) - 1
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def plain_mix(value: int) -> int:
    value &= WORD
    value = (value ^ (value >> 30)) * FIRST & WORD
    value = (value ^ (value >> 27)) * SECOND & WORD
    return value ^ (value >> 31)


def plain_draw(key: int, seed: int, stream: int, t: int, field: int, cell: int) -> int:
    base = plain_mix(key + seed * GOLDEN + stream * SECOND)
    return plain_mix(base + ((t << 40) + (field << 20) + cell + 1) * GOLDEN)


def plain_keep(key: int, seed: int, t: int, field: int, channel: int, rate: float) -> float:
    draw = plain_draw(key, seed, 0x5D0F, t, field, channel // 4)
    lane = (draw >> (16 * (channel % 4))) & 0xFFFF
    signed = lane - 65536 if lane >= 32768 else lane
    return 1 / (1 - rate) if signed >= round(rate * 65536) - 32768 else 0.0


def plain_normal(key: int, seed: int, t: int, field: int, which: int) -> float:
    draw = plain_draw(key, seed, 0x9A55, t, field, which)
    radius = ((draw >> 40) + 0.5) / 2**24
    return math.sqrt(-2 * math.log(radius)) * math.cos(2 * math.pi * (draw & 0xFFFFFF) / 2**24)


@given(st.integers(-(2**63), 2**63 - 1))
def test_mix_is_splitmix64(value: int) -> None:
    found = int(mix(torch.tensor([value]))[0]) & WORD
    assert found == plain_mix(value)


@settings(max_examples=25, deadline=None)
@given(key=st.integers(0, 2**63 - 1), seed=st.integers(0, 2**31), t=st.integers(0, 4), field=st.integers(0, 2))
def test_masks_and_noise_are_the_plain_hash(key: int, seed: int, t: int, field: int) -> None:
    keys = torch.tensor([key])
    masks = keep_masks(keys, seed, 5, 3, width=10, rate=0.2)
    assert masks.shape == (1, 5, 3, 10)
    for channel in range(10):
        assert math.isclose(masks[0, t, field, channel], plain_keep(key, seed, t, field, channel, 0.2), rel_tol=1e-6)
    noise = normal_noise(keys, seed, 5, field, classes=7)
    for which in range(7):
        assert math.isclose(noise[t, 0, which], plain_normal(key, seed, t, field, which), rel_tol=1e-3, abs_tol=1e-4)


def test_a_draw_belongs_to_its_event_whatever_stands_beside_it() -> None:
    keys = torch.arange(50) * 7919
    whole = keep_masks(keys, 3, 4, 3, width=16, rate=0.05)
    order = torch.randperm(50)
    assert torch.equal(keep_masks(keys[order], 3, 4, 3, width=16, rate=0.05), whole[order])
    assert torch.equal(keep_masks(keys[:1], 3, 2, 3, width=16, rate=0.05), whole[:1, :2])
    assert torch.equal(normal_noise(keys[order], 3, 4, 1, classes=5), normal_noise(keys, 3, 4, 1, classes=5)[:, order])


def test_masks_have_the_rate_and_the_mean_of_dropout() -> None:
    masks = keep_masks(torch.arange(400), 11, 20, 4, width=16, rate=0.05).numpy()
    assert abs((masks == 0).mean() - 0.05) < 0.002
    assert abs(masks.mean() - 1) < 0.002
    dropped = (masks == 0).reshape(400 * 20, -1).astype(float)
    correlation = np.corrcoef(dropped.T) - np.eye(64)
    assert np.abs(correlation).max() < 0.08  # channels of one draw are independent


def test_noise_is_standard_normal_and_independent_of_the_masks() -> None:
    noise = normal_noise(torch.arange(300), 5, 20, 2, classes=4).numpy()
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
    assert not np.array_equal(noise, normal_noise(torch.arange(300), 6, 20, 2, classes=4).numpy())
    assert not np.array_equal(noise, normal_noise(torch.arange(300), 5, 20, 3, classes=4).numpy())
