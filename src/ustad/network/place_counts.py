"""Each entity's own places as the memory network reads them: counts by block of days, so that some can be left out.

In go habits; out come arrays [E, W, K, Q]: for each of the K most visited own
places and each of W blocks of days, Q counts (visits, starts by hour for weekdays and weekends, durations). A
memory without some days is the sum over the other blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numba import njit
from torch import Tensor

from ustad.events.observed import DAY_MINUTES, UNOBSERVED_MINUTES, length_weight, start_weight
from ustad.events.visits import LONGEST, Visits
from ustad.habits.history import Habits
from ustad.torch_device import send

HOURS, DURATIONS = 24, 16  # bins of an own place's starts (for each kind of day) and durations
COUNTS = 1 + 2 * HOURS + DURATIONS
START_BINS, DURATION_BINS = 48, 32  # bins of what is predicted
DAYS_A_BLOCK = 7
LEAST_BLOCKS = 3
_BEYOND = 1 << 20  # a bin that is not counted


@dataclass(frozen=True)
class OwnPlaces:
    """K own places of E entities, most visited first; absent ones have no counts."""

    entity_key: np.ndarray  # uint64 [E] ascending
    place: np.ndarray  # int64 [E, K] index into the habits' places, -1 where absent
    counts: np.ndarray  # uint8 [E, W, K, Q] saturating at 255
    x: np.ndarray  # float32 [E, K] km
    y: np.ndarray
    category: np.ndarray  # int64 [E, K] code in the frame
    first_day: int
    block_days: int

    @classmethod
    def fit(cls, habits: Habits, most: int) -> OwnPlaces:
        """From the visits that the habits remember. Starts and durations that nobody saw are not counted."""
        unseen = habits.visit_early > UNOBSERVED_MINUTES
        block = min(DAYS_A_BLOCK, max(1, habits.days // LEAST_BLOCKS))
        place = _most_visited(habits, most)
        owner = np.repeat(np.arange(len(habits.entity_key)), np.diff(habits.place_offsets))
        where = np.repeat(np.arange(len(habits.place_key)), np.diff(habits.visit_offsets))
        counts = np.zeros((len(place), -(-habits.days // block), most, COUNTS), np.uint8)
        _fill(
            counts,
            owner[where],
            np.clip(habits.visit_day - habits.first_day, 0, habits.days - 1) // block,
            _slots(place, len(habits.place_key))[where],
            np.where(unseen, _BEYOND, hour_bins(habits.visit_minute, habits.visit_weekday)),
            np.where(
                unseen | (habits.visit_late > UNOBSERVED_MINUTES), _BEYOND, _bins(habits.visit_duration, DURATIONS)
            ),
        )
        absent, row = place < 0, np.maximum(place, 0)
        x, y, category = (np.append(v, 0)[row] for v in (habits.place_x, habits.place_y, habits.place_category))
        return cls(
            habits.entity_key,
            place,
            counts,
            np.where(absent, 0.0, np.nan_to_num(x)).astype(np.float32),
            np.where(absent, 0.0, np.nan_to_num(y)).astype(np.float32),
            np.where(absent, 0, category).astype(np.int64),
            habits.first_day,
            block,
        )

    @property
    def most(self) -> int:
        return self.place.shape[1]

    @property
    def blocks(self) -> int:
        return self.counts.shape[1]

    def block_of(self, day: np.ndarray) -> np.ndarray:
        """Block of each local day; outside the history it lies beyond either end."""
        return (day - self.first_day) // self.block_days

    def slots(self, places: int) -> np.ndarray:
        """Which of its entity's own K places each of P `places` of the habits is, K where none of them; the last is for
        a place that is not among them: int64 [P + 1]."""
        return _slots(self.place, places)


def _most_visited(habits: Habits, most: int) -> np.ndarray:
    """Places of each entity by falling count, -1 where there are fewer: int64 [E, K]."""
    owner = np.repeat(np.arange(len(habits.entity_key)), np.diff(habits.place_offsets))
    order = np.lexsort((habits.place_key, -habits.place_count, owner))
    rank = np.arange(len(order)) - habits.place_offsets[:-1][owner[order]]
    within = rank < most
    places = np.full((len(habits.entity_key), most), -1, np.int64)
    places[owner[order][within], rank[within]] = order[within]
    return places


def _slots(place: np.ndarray, places: int) -> np.ndarray:
    """The inverse: slot of each place of the habits, K where it is not among the most visited: int64 [P + 1]."""
    most = place.shape[1]
    slot = np.full(places + 1, most, np.int64)
    present = place >= 0
    slot[place[present]] = np.broadcast_to(np.arange(most), place.shape)[present]
    return slot


@njit(nogil=True, cache=True)
def _fill(
    counts: np.ndarray, owner: np.ndarray, block: np.ndarray, slot: np.ndarray, hour: np.ndarray, length: np.ndarray
) -> None:  # pragma: no cover - compiled
    for i in range(len(owner)):
        if owner[i] < 0 or slot[i] >= counts.shape[2]:
            continue
        row = counts[owner[i], block[i], slot[i]]
        for q in (0, 1 + hour[i], 1 + 2 * HOURS + length[i]):
            if q < len(row) and row[q] < 255:
                row[q] += 1


def hour_bins(minute: np.ndarray, weekday: np.ndarray) -> np.ndarray:
    """Hour of the start, weekends after weekdays: int64 [N] in 0 … 47."""
    hour = np.minimum((minute / 60).astype(np.int64), HOURS - 1)
    return hour + np.where(weekday >= 5, HOURS, 0)


def _bins(duration: np.ndarray, bins: int) -> np.ndarray:
    """Bin of each duration; unknown ones fall beyond the last."""
    share = np.log1p(np.maximum(duration, 0.0)) / LONGEST
    return np.where(np.isfinite(duration), np.minimum(np.nan_to_num(share) * bins, bins - 1), _BEYOND).astype(np.int64)


def duration_bin(duration: float) -> int:
    """The bin of what is predicted that one duration falls into, beyond the last where it is unknown."""
    if not math.isfinite(duration):
        return _BEYOND
    return int(min(math.log1p(max(duration, 0.0)) / LONGEST * DURATION_BINS, DURATION_BINS - 1))


def _own_rows(owner: np.ndarray, people: int) -> tuple[np.ndarray, np.ndarray]:
    """The entities (of so many `people`) that some visit is of, ascending, and which of them each visit is of, one more
    for strangers (`owner` -1): int64 [E], int64 [N]."""
    has_visit = np.zeros(people + 1, bool)
    has_visit[owner] = True
    has_visit[-1] = True
    return np.flatnonzero(has_visit[:-1]), (np.cumsum(has_visit) - 1)[owner]


class MemoryTensors:
    """What the memory network reads of N visits and of their entities' own places, on a device.

    Visits are in the order of the events' arrays, both sorted by entity and time.
    """

    def __init__(self, places: OwnPlaces, habits: Habits, visits: Visits, device: torch.device | str = "cpu") -> None:
        def move(values: np.ndarray, kind: torch.dtype | None = None) -> Tensor:
            return send(values, device, kind)

        self.most, self.blocks = places.most, places.blocks
        owner = habits.owners(visits)
        people, self.owner_index = _own_rows(owner, len(places.entity_key))  # the second stays on the host
        own_places = [
            np.concatenate([v[people], np.zeros((1, *v.shape[1:]), v.dtype)])  # the last row is a stranger's: empty
            for v in (places.counts, places.x, places.y, places.category)
        ]
        self.counts, self.x, self.y, self.category = (move(values) for values in own_places)
        self._slot = places.slots(len(habits.place_key))[habits.locate(visits)[0]]
        self._visits = own_places[0][..., 0].max(axis=1)  # uint8 [people and a stranger, K], 0 where absent
        self.owner, self.slot = move(self.owner_index), move(self._slot)
        self.block = move(places.block_of(visits.day))
        has_position = np.isfinite(visits.x) & np.isfinite(visits.y)
        self.is_located = move(has_position)
        self.event_x = move(np.nan_to_num(visits.x), torch.float32)
        self.event_y = move(np.nan_to_num(visits.y), torch.float32)
        self.event_category = move(visits.category)
        self.weekday = move(visits.weekday)
        self.start = move(np.minimum((visits.minute / 1440 * START_BINS).astype(np.int64), START_BINS - 1))
        length = _bins(visits.duration, DURATION_BINS)
        self.is_timed = move(length < DURATION_BINS)
        self.duration = move(np.minimum(length, DURATION_BINS - 1))
        early, late = (np.minimum(values, DAY_MINUTES) for values in (visits.early, visits.late))
        self.start_weight = move(start_weight(early), torch.float32)
        self.length_weight = move(length_weight(early, late), torch.float32)
        hidden = habits.hidden_minutes(visits, owner) > 0
        wide = (early > 0) | (late > 0) | hidden
        self.has_intervals, self.wide = bool(wide.any()), move(wide)
        bin_minutes = DAY_MINUTES / START_BINS
        earlier = np.floor(visits.minute / bin_minutes) - np.floor((visits.minute - early) / bin_minutes)
        self.earlier_bins = move(np.minimum(earlier, START_BINS - 1).astype(np.int64))
        longest = _bins(visits.duration + early + late, DURATION_BINS)
        self.shortest = move(np.where(hidden, 0, np.minimum(length, DURATION_BINS - 1)))
        self.longest = move(np.minimum(longest, DURATION_BINS - 1))

    def __len__(self) -> int:
        return len(self.owner)

    @cached_property
    def is_elsewhere(self) -> np.ndarray:
        """Which visits are at none of their entity's own places: bool [N], on the host, so that nobody has to wait for
        a GPU to say so."""
        own = np.minimum(self._slot, self.most - 1)
        return (self._slot >= self.most) | (self._visits[self.owner_index, own] == 0)

    def sum_counts(self, owner: Tensor, include: Tensor | None = None) -> Tensor:
        """Counts of the owners' places over the included blocks: owner [B], include bool [B, W] -> [B, K, Q]."""
        counts = self.counts[owner].to(torch.float32)  # [B, W, K, Q]
        if include is None:
            return counts.sum(dim=1)
        return torch.einsum("bw,bwkq->bkq", include.to(torch.float32), counts)

    def outside(self, first: Tensor, last: Tensor) -> Tensor:
        """Blocks that do not touch the blocks of the events first … last: bool [B, W]."""
        block = torch.arange(self.blocks, device=first.device)
        return (block < self.block[first][:, None]) | (block > self.block[last][:, None])
