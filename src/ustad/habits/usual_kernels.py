"""The loops behind what is usual for an entity, compiled: where it is at an hour, and when and how long at a place.

Plain arrays in, plain arrays out, laid out as in `events.habit_kernels`: places of entity e are `place_offsets[e] …
place_offsets[e + 1]`, visits to place p are `visit_offsets[p] … visit_offsets[p + 1]`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ustad.habits.kernels import DAY_MINUTES, DURATION_WIDTH, OTHER_DAY, START_WIDTH, apart, bell, day_kind
from ustad.ties import RELATIVE

#: The share of earlier values that lies within one ± of what is expected, as in a bell curve.
WITHIN = 0.6827
#: Visits that begin within this many minutes of a start belong to it; a start that fewer than RARE of the densest one's
#: visits are near to is not one of its own.
AROUND, RARE = 180.0, 0.2
#: How much a visit at quite another hour counts for how long visits last.
ANY_HOUR = 0.05


@njit(nogil=True, cache=True)
def whereabouts(
    owner: np.ndarray,
    moment: np.ndarray,
    weekend: np.ndarray,
    place_offsets: np.ndarray,
    place_x: np.ndarray,
    place_y: np.ndarray,
    visit_offsets: np.ndarray,
    visit_day: np.ndarray,
    visit_minute: np.ndarray,
    visit_duration: np.ndarray,
    days: np.ndarray,
    days_off: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # pragma: no cover - compiled
    """Where an entity usually is at a minute of the day (`moment` [N], `weekend` [N] of its day).

    Out come its place there and then on most days of the kind (int64 [N], -1 without one), the share of those days
    (float64 [N]) and how far apart in x and y its other whereabouts at that time lie (km, float64 [N, 2]: the root
    mean square over days). `days` [P, 2] are the weekdays and weekend days that each place's visits are remembered of;
    `days_off` count as weekend days.
    """
    place, share = np.full(len(owner), -1, np.int64), np.zeros(len(owner))
    spread = np.full((len(owner), 2), np.nan)
    for i in range(len(owner)):
        if owner[i] < 0:
            continue
        first, last = place_offsets[owner[i]], place_offsets[owner[i] + 1]
        shares = np.zeros(last - first)
        kind = 1 if weekend[i] else 0
        for p in range(first, last):
            for v in range(visit_offsets[p], visit_offsets[p + 1]):
                if np.isnan(visit_duration[v]):
                    continue
                begin = visit_day[v] * DAY_MINUTES + visit_minute[v]
                day = int(np.ceil((begin - moment[i]) / DAY_MINUTES))  # the first on which the moment comes after it
                while day * DAY_MINUTES + moment[i] < begin + visit_duration[v]:
                    if (day_kind(day, days_off) >= 5) == weekend[i]:
                        shares[p - first] += 1.0
                    day += 1
            shares[p - first] = min(shares[p - first] / days[p, kind], 1.0) if days[p, kind] > 0 else 0.0
        best = int(np.argmax(shares))
        if shares[best] <= 0.0:
            continue
        place[i], share[i] = first + best, shares[best]
        total, wide_x, wide_y = 0.0, 0.0, 0.0
        for p in range(first, last):
            if not np.isnan(place_x[p]):
                total += shares[p - first]
                wide_x += shares[p - first] * (place_x[p] - place_x[first + best]) ** 2
                wide_y += shares[p - first] * (place_y[p] - place_y[first + best]) ** 2
        if total > 0.0:
            spread[i, 0], spread[i, 1] = np.sqrt(wide_x / total), np.sqrt(wide_y / total)
    return place, share, spread


@njit(nogil=True, cache=True)
def weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:  # pragma: no cover - compiled
    """The smallest value that has `share` of the weight at or below it."""
    order = np.argsort(values)
    least, weight_sum = share * weights.sum(), 0.0
    for k in order:
        weight_sum += weights[k]
        if weight_sum >= least - 1e-12:
            return values[k]
    return values[order[-1]]


@njit(nogil=True, cache=True)
def visits_near(starts: np.ndarray, kind: np.ndarray) -> np.ndarray:  # pragma: no cover - compiled
    """How many visits begin about when each of them does, weighted by `kind`: float64 [V]."""
    near = np.zeros(len(starts))
    for k in range(len(starts)):
        for j in range(len(starts)):
            near[k] += kind[j] * bell(apart(starts[j], starts[k]), START_WIDTH)
    return near


@njit(nogil=True, cache=True)
def usual_start(starts: np.ndarray, near: np.ndarray, minute: float) -> float:  # pragma: no cover - compiled
    """The start that visits gather around: of several the one nearest to `minute`, the densest where that is NaN.

    `near` [V] is what `visits_near` says of the starts.
    """
    best = 0
    for k in range(1, len(near)):
        if near[k] > near[best] * (1 + RELATIVE):
            best = k
    if np.isnan(minute):
        return starts[best]
    choice = best
    for k in range(len(starts)):
        if near[k] * (1 + RELATIVE) < RARE * near[best] or apart(starts[k], minute) >= apart(starts[choice], minute):
            continue
        peak = True
        for j in range(len(starts)):
            if near[j] > near[k] * (1 + RELATIVE) and apart(starts[j], starts[k]) < AROUND:
                peak = False
        if peak:
            choice = k
    return starts[choice]


@njit(nogil=True, cache=True)
def usual_times(
    place: np.ndarray,
    minute: np.ndarray,
    weekend: np.ndarray,
    visit_offsets: np.ndarray,
    visit_minute: np.ndarray,
    visit_duration: np.ndarray,
    visit_weekend: np.ndarray,
    start_weight: np.ndarray,
    length_weight: np.ndarray,
) -> np.ndarray:  # pragma: no cover - compiled
    """Start and duration of visits to an own place, each with its ±, in minutes: float64 [N, 4], NaN without visits.

    The start is the one of `usual_start`, the duration the median of visits that begin around it; visits on the other
    kind of day count OTHER_DAY, and those whose times were not observed count less. Two thirds of those visits lie
    within ±, which is no less than the width of the terms' kernels over the root of their number: few visits say little
    of how they vary. Rows of one place and one kind of day share most of the work where they stand together.
    """
    result = np.full((len(place), 4), np.nan)
    latest = -1
    day, near = np.zeros(0), np.zeros(0)
    for i in range(len(place)):
        if place[i] < 0:
            continue
        low, high = visit_offsets[place[i]], visit_offsets[place[i] + 1]
        if high == low:
            continue
        starts, lengths = visit_minute[low:high], visit_duration[low:high]
        if latest < 0 or place[latest] != place[i] or weekend[latest] != weekend[i]:
            day = np.where(visit_weekend[low:high] == weekend[i], 1.0, OTHER_DAY)
            near = visits_near(starts, day * start_weight[low:high])
            latest = i
        kind = day * start_weight[low:high]
        begin = usual_start(starts, near, minute[i])
        away, weight = np.empty(len(starts)), np.empty(len(starts))
        for k in range(len(starts)):
            away[k] = apart(starts[k], begin)
            weight[k] = day[k] * length_weight[low + k] * (ANY_HOUR + bell(away[k], START_WIDTH))
        mine = away <= AROUND
        least = START_WIDTH / np.sqrt(kind[mine].sum())
        result[i, 0], result[i, 1] = begin, max(weighted_quantile(away[mine], kind[mine], WITHIN), least)
        has_length = ~np.isnan(lengths)
        if has_length.any():
            middle = weighted_quantile(lengths[has_length], weight[has_length], 0.5)
            off = np.abs(lengths[has_length] - middle)
            least = DURATION_WIDTH * middle / np.sqrt(weight[has_length].sum())
            result[i, 2], result[i, 3] = middle, max(weighted_quantile(off, weight[has_length], WITHIN), least)
    return result


@njit(nogil=True, cache=True)
def times_by_other_days(
    rows: np.ndarray,
    place: np.ndarray,
    visit_day: np.ndarray,
    visit_offsets: np.ndarray,
    visit_minute: np.ndarray,
    visit_duration: np.ndarray,
    visit_weekend: np.ndarray,
    start_weight: np.ndarray,
    length_weight: np.ndarray,
) -> np.ndarray:  # pragma: no cover - compiled
    """What `usual_times` says of visits of a history (`rows` [N], at `place` [N]) by visits of other days alone, and
    how many those are, in all and on its weekday: float64 [N, 6]."""
    result = np.full((len(rows), 6), np.nan)
    for i in range(len(rows)):
        row, low, high = rows[i], visit_offsets[place[i]], visit_offsets[place[i] + 1]
        days_away = visit_day[low:high] - visit_day[row]
        other = days_away != 0
        result[i, 4], result[i, 5] = other.sum(), (other & (days_away % 7 == 0)).sum()
        if result[i, 4] > 0:
            times = usual_times(
                np.zeros(1, np.int64), visit_minute[row : row + 1], visit_weekend[row : row + 1],
                np.array([0, other.sum()]), visit_minute[low:high][other], visit_duration[low:high][other],
                visit_weekend[low:high][other], start_weight[low:high][other], length_weight[low:high][other],
            )  # fmt: skip
            result[i, :4] = times[0]
    return result
