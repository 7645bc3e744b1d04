"""The plan of an epoch: every window once, little padding, the same for the same seed."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.events.windows import Windows
from ustad.network.training.batches import bucket_lengths, cut_windows, plan_epoch
from ustad.network.training.masked_step import capacity, draw_masks, places


def make_windows_of(lengths: np.ndarray) -> Windows:
    """Windows of these lengths, one after the other, the last three events of each its own day's."""
    stop = np.cumsum(lengths)
    start = stop - lengths
    return Windows(start, np.maximum(start, stop - 3), stop)


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=200), st.integers(1, 64), st.integers(0, 5))
def test_every_window_comes_once_in_every_epoch(lengths: list[int], batch_size: int, epoch: int) -> None:
    windows = make_windows_of(np.array(lengths))
    plan = plan_epoch(windows, bucket_lengths(windows.length), batch_size, 0.0, seed=7, epoch=epoch)
    seen = np.concatenate([plan.start[a:b] for a, b in zip(plan.first, plan.last, strict=True)])
    assert sorted(seen) == sorted(windows.start)
    for a, b, length in zip(plan.first, plan.last, plan.length, strict=True):
        assert (plan.stop[a:b] - plan.start[a:b]).max() <= length
        assert b - a == batch_size or b == len(windows)


def test_the_plan_follows_from_seed_and_epoch() -> None:
    windows = make_windows_of(np.random.default_rng(0).poisson(12, 500) + 1)
    plans = [plan_epoch(windows, (30,), 32, 0.5, seed=s, epoch=e) for s, e in [(7, 0), (7, 0), (7, 1), (8, 0)]]
    assert np.array_equal(plans[0].start, plans[1].start)
    assert np.array_equal(plans[0].stop, plans[1].stop)
    assert not np.array_equal(plans[0].start, plans[2].start)
    assert not np.array_equal(plans[0].start, plans[3].start)


@pytest.mark.parametrize(("most", "waste"), [(8, 0.05), (16, 0.02)])
@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize(("count", "bound"), [(640, 0.35), (3_840, 0.15), (20_000, 0.15)])
def test_padding_stays_under_fifteen_percent_but_where_an_epoch_has_few_batches(
    most: int, waste: float, share: float, count: int, bound: float
) -> None:
    lengths = np.random.default_rng(1).negative_binomial(8, 0.4, count) + 1
    windows = make_windows_of(np.minimum(lengths, 48))
    cut = cut_windows(windows, share, 7, 0) - windows.start
    buckets = tuple(sorted({*bucket_lengths(cut, most, waste), int(windows.length.max())}))
    assert plan_epoch(windows, buckets, 128, share, seed=7, epoch=0).padding < bound


def test_buckets_are_the_best_of_all_choices() -> None:
    lengths = np.array([1] * 5 + [2] * 9 + [4] * 3 + [5] * 8 + [9] * 2 + [10])
    found = bucket_lengths(lengths, most=3, waste=0.0)
    options = [(*c, 10) for c in combinations([1, 2, 4, 5, 9], 2)]
    cost = [int(np.array(o)[np.searchsorted(o, lengths)].sum()) for o in options]
    assert len(found) == 3
    assert int(np.array(found)[np.searchsorted(found, lengths)].sum()) == min(cost)


@given(st.integers(0, 1_000))
def test_a_cut_window_ends_on_its_own_day(seed: int) -> None:
    windows = make_windows_of(np.array([1, 2, 5, 9, 4]))
    stop = cut_windows(windows, 0.5, seed, 0)
    assert (stop > windows.target).all()
    assert (stop <= windows.stop).all()
    assert np.array_equal(cut_windows(windows, 0.0, seed, 0), windows.stop)


def test_every_window_with_events_has_a_masked_one_and_padding_never_is() -> None:
    torch.manual_seed(0)
    padding = torch.arange(12)[None] >= torch.randint(0, 13, (4_000, 1))
    masked = draw_masks(padding, 0.15)
    assert not (masked & padding).any()
    assert torch.equal(masked.any(dim=1), ~padding.all(dim=1))
    full = draw_masks(torch.zeros(4_000, 12, dtype=torch.bool), 0.15)
    assert full.float().mean().item() == pytest.approx((12 * 0.15 + 0.85**12) / 12, abs=0.005)
    assert int(full.sum()) < capacity(4_000, 12, 0.15)


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=6), st.integers(0, 20))
def test_places_are_where_the_mask_is(rows: list[list[bool]], spare: int) -> None:
    masked = torch.tensor(rows)
    index, real = places(masked, int(masked.sum()) + spare)
    assert torch.equal(index[real], masked.flatten().nonzero()[:, 0])
    assert int(real.sum()) == int(masked.sum())
