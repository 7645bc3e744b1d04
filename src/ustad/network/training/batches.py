"""The order of an epoch: which windows go into which batch, padded to which length.

In go the training windows and a seed; out comes a plan that depends on seed and epoch only. Lengths come from a
fixed set, chosen once, so that a compiled network meets few shapes and little padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ustad.events.windows import Windows


@dataclass(frozen=True)
class EpochPlan:
    """S batches: batch i holds windows first[i] … last[i] of `start` and `stop`, padded to length[i]."""

    start: np.ndarray  # int64 [W] in the order of the epoch
    stop: np.ndarray  # int64 [W]
    first: np.ndarray  # int64 [S]
    last: np.ndarray  # int64 [S]
    length: np.ndarray  # int64 [S]

    def __len__(self) -> int:
        return len(self.first)

    @property
    def padding(self) -> float:
        """Share of the places in all batches that hold no event."""
        places = int(((self.last - self.first) * self.length).sum())
        return 1.0 - float((self.stop - self.start).sum()) / max(places, 1)


def bucket_lengths(lengths: np.ndarray, most: int = 6, waste: float = 0.05) -> tuple[int, ...]:
    """The fewest lengths (at most `most`) to which windows can be padded with less than `waste` padding.

    Exact, by dynamic programming over the distinct lengths; where `most` are not enough, the best `most`.
    """
    values, counts = np.unique(lengths, return_counts=True)
    events = np.concatenate([[0], np.cumsum(values * counts)])
    windows = np.concatenate([[0], np.cumsum(counts)])
    # cost[i, j]: places wasted when the lengths i … j-1 are padded to the length j-1
    cost = values[None, :] * (windows[None, 1:] - windows[:-1, None]) - (events[None, 1:] - events[:-1, None])
    cost = np.where(np.arange(len(values))[:, None] <= np.arange(len(values))[None, :], cost, np.inf)
    best, cuts = cost[0], [np.zeros(len(values), int)]
    while len(cuts) < min(most, len(values)) and best[-1] > waste * (events[-1] + best[-1]):
        through = best[:-1, None] + cost[1:, :]  # the last bucket begins after length i
        cuts.append(np.argmin(through, axis=0) + 1)
        best = np.minimum(through.min(axis=0), best)
    return _trace(values, cuts)


def _trace(values: np.ndarray, cuts: list[np.ndarray]) -> tuple[int, ...]:
    """The bucket ends that lead to the best cost, read backwards from the longest."""
    ends, j = [], len(values) - 1
    for begin in reversed(cuts):
        ends.append(int(values[j]))
        j = int(begin[j]) - 1
        if j < 0:
            break
    return tuple(sorted(set(ends)))


def cut_windows(windows: Windows, share: float, seed: int, epoch: int) -> np.ndarray:
    """New ends, int64 [W]: a share of the windows ends at a random event of its own day, as if it were the last.

    Departure from the paper (and not in its preset): what is scored live has nothing later in its window.
    """
    random = np.random.default_rng([seed, epoch, 1])
    is_cut = random.random(len(windows)) < share
    ends = random.integers(windows.target + 1, np.maximum(windows.stop, windows.target + 1) + 1)
    return np.where(is_cut, np.minimum(ends, windows.stop), windows.stop)


def plan_epoch(
    windows: Windows, lengths: tuple[int, ...], batch_size: int, past_share: float, *, seed: int, epoch: int
) -> EpochPlan:
    """Shuffle, sort into buckets, divide into batches, shuffle the batches.

    All batches but one are full: what is left over of a bucket goes with the next longer one.
    """
    random = np.random.default_rng([seed, epoch, 0])
    stop = cut_windows(windows, past_share, seed, epoch)
    order = random.permutation(len(windows))
    bucket = np.searchsorted(lengths, (stop - windows.start)[order])
    by_bucket = np.argsort(bucket, kind="stable")
    order, bucket = order[by_bucket], bucket[by_bucket]
    first = np.arange(0, len(windows), batch_size)
    last = np.minimum(first + batch_size, len(windows))
    batch_order = random.permutation(len(first))
    return EpochPlan(
        start=windows.start[order],
        stop=stop[order],
        first=first[batch_order],
        last=last[batch_order],
        length=np.asarray(lengths)[bucket[last - 1]][batch_order],
    )
