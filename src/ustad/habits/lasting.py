"""Lasting changes: does an entity's life go on differently since some day? A test over its days that holds at any time.

In go an entity's history and the visits after it; out comes, by entity, the evidence that its days are no longer like
those before, and since when. Each new day is ranked among all days known of its kind (weekday or weekend): by how
unlike the others each part of it is, half hour by half hour, by its number of visits, by how far it led. While days are
exchangeable such a rank is uniform and says nothing of the next one, so whoever bets on small ranks wins nothing on
average: the chance that the capital ever reaches 1 / p is at most p, looked at daily and for ever. What was won is
kept: a change that has become usual has the p-value that it had when it was new.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from ustad.events.visits import Visits
from ustad.habits.history import Habits
from ustad.habits.kernels import SLOTS, day_kind, slots_of

#: A change is told once the chance of so much evidence without one is at most this.
LEVEL = 0.05
#: Days are ranked by how unlike others each part is, and the whole, then by two numbers, from above and from below.
#: Of each the share of the capital that is bet on it.
SHARES = {
    "night": 1.0, "morning": 1.0, "afternoon": 1.0, "evening": 2.0, "day": 4.0,
    "more visits": 0.5, "fewer visits": 0.5, "farther": 0.5, "nearer": 0.5,
}  # fmt: skip
_SHARES = np.array(list(SHARES.values())) / sum(SHARES.values())
PARTS = 4
PART_SLOTS = SLOTS // PARTS
#: The share that is bet on weekdays; the rest on weekends.
ON_WEEKDAYS = 0.85
#: Each new day begins bets with a part of the capital; after so many days half of it is spent.
HALF_SPENT = 5.0
#: Bets that every day since some day is among the most unlike, with room for so many of the days before that were as
#: unlike (a share), and what they keep back for a day that is not.
ROOM = np.array([0.0, 0.15])
SLACK = 0.1
#: Days of one kind that must be known before another is ranked, and how many days are remembered and bet on at most.
LEAST_DAYS, MOST_DAYS, MOST_STARTS = 5, 400, 64
#: Half hours of a day that must be known before its visits are counted.
WHOLE_SLOTS = 36
EQUAL = 1e-9


@dataclass(frozen=True)
class Changes:
    """Of E entities: what their days say."""

    evidence: np.ndarray  # float64 [E] -log10 of a p-value that holds at any time
    told_day: np.ndarray  # int64 [E] local day on which the change is told, 0 without one
    since: np.ndarray  # int64 [E] local day that it began on, 0 without one
    ranks: np.ndarray  # int64 [E] the ranks that say most, by their place in SHARES; -1 without any
    weekend: np.ndarray  # bool [E] whether those are ranks of weekend days


@dataclass(frozen=True)
class LifeDays:
    """N visits of E entities in the history and after it, by entity and time."""

    offsets: np.ndarray  # int64 [E + 1]
    first: np.ndarray  # int64 [E] local day from which on every visit is kept
    place: np.ndarray  # uint64 [N] key of the place
    category: np.ndarray  # int64 [N]
    day: np.ndarray  # int64 [N]
    minute: np.ndarray  # float64 [N]
    duration: np.ndarray  # float64 [N]
    x: np.ndarray  # float64 [N]
    y: np.ndarray  # float64 [N]


def collect_days(habits: Habits, visits: Visits) -> LifeDays:
    """The history of the visits' entities and the visits themselves in one list."""
    E, P = len(visits.entity_ids), len(habits.entity_key)
    at = np.minimum(np.searchsorted(habits.entity_key, visits.entity_key), max(P - 1, 0))
    is_known = habits.entity_key[at] == visits.entity_key if P else np.zeros(E, bool)
    code = np.full(P, -1)
    code[at[is_known]] = np.flatnonzero(is_known)
    first = np.full(E, habits.first_day)
    first[is_known] = _kept_since(habits)[at[is_known]]
    place = np.repeat(np.arange(len(habits.place_key)), np.diff(habits.visit_offsets))
    owner = code[habits.place_owner][place]
    rows = np.flatnonzero(owner >= 0)
    place = place[rows]
    own_place, key = habits.locate(visits)
    is_own = own_place >= 0
    pairs = {
        "place": (habits.place_key[place], key),
        "category": (habits.place_category[place], visits.category),
        "day": (habits.visit_day[rows], visits.day),
        "minute": (habits.visit_minute[rows], visits.minute),
        "duration": (habits.visit_duration[rows], visits.duration),
        # An own place lies where the history has it: positions that scatter around it would make every new day larger.
        "x": (habits.place_x[place], np.where(is_own, np.append(habits.place_x, np.nan)[own_place], visits.x)),
        "y": (habits.place_y[place], np.where(is_own, np.append(habits.place_y, np.nan)[own_place], visits.y)),
    }
    entity = np.concatenate([owner[rows], visits.entity])
    order = np.lexsort((np.concatenate([habits.visit_time[rows], visits.time]), entity))
    offsets = np.searchsorted(entity[order], np.arange(E + 1))
    return LifeDays(offsets, first, **{name: np.concatenate(pair)[order] for name, pair in pairs.items()})


def _kept_since(habits: Habits) -> np.ndarray:
    """The local day from which on every visit of an entity is kept; older ones to some places were let go. [E]."""
    since = np.full(len(habits.entity_key), habits.first_day)
    short = np.flatnonzero(habits.place_count > np.diff(habits.visit_offsets))
    np.maximum.at(since, habits.place_owner[short], habits.visit_day[habits.visit_offsets[:-1][short]])
    return since


def find_changes(habits: Habits, visits: Visits, last_day: int | None = None) -> Changes:
    """Whether the days after `last_day` (the end of the history, by default) differ, by entity of the visits."""
    life = collect_days(habits, visits)
    last = habits.last_day if last_day is None else last_day
    E = len(visits.entity_ids)
    facts = np.zeros((E, 4), np.int64)
    evidence = np.zeros(E)
    follow_all(
        life.offsets, life.first, life.place, life.day, life.minute, life.duration, life.x, life.y,
        last, visits.entity_key, habits.sorted_days_off, evidence, facts,
    )  # fmt: skip
    return Changes(evidence, facts[:, 0], facts[:, 1], facts[:, 2], facts[:, 3] > 0)


# ----------------------------------------------------------------------------------------------- compiled
@njit(nogil=True, cache=True)
def follow_all(
    offsets: np.ndarray,
    first: np.ndarray,
    place: np.ndarray,
    day: np.ndarray,
    minute: np.ndarray,
    duration: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    last: int,
    key: np.ndarray,
    days_off: np.ndarray,
    evidence: np.ndarray,
    facts: np.ndarray,
) -> None:  # pragma: no cover - compiled
    """Fill in evidence [E] and facts [E, 4]: told_day, since, ranks, weekend."""
    for e in range(len(first)):
        rows = slice(offsets[e], offsets[e + 1])
        facts[e, 2] = -1
        if offsets[e + 1] == offsets[e] or day[rows].max() <= last:
            continue
        end = day[rows].max()
        begin = max(first[e], end - MOST_DAYS + 1, day[rows].min())
        where, numbers = lay_out(place[rows], day[rows], minute[rows], duration[rows], x[rows], y[rows], begin, end)
        ranks = rank_days(where, numbers, begin, last, key[e], days_off)
        evidence[e] = bet_on(ranks, begin, days_off, facts[e])


@njit(nogil=True, cache=True)
def lay_out(
    place: np.ndarray,
    day: np.ndarray,
    minute: np.ndarray,
    duration: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    begin: int,
    end: int,
) -> tuple[np.ndarray, np.ndarray]:  # pragma: no cover - compiled
    """Of one entity by day: the place at each half hour (0: none known), uint64 [n, SLOTS], and its visits and how far
    apart they lie in km, float64 [2, n], NaN for a day that was not observed as a whole."""
    n = end - begin + 1
    where, numbers = np.zeros((n, SLOTS), np.uint64), np.zeros((2, n))
    box, is_whole = np.full((4, n), np.nan), np.zeros(n, np.bool_)
    for i in range(len(day)):
        d = day[i] - begin
        low, high = slots_of(minute[i], 0.0 if np.isnan(duration[i]) else duration[i])
        for slot in range(low, high):
            if 0 <= d + slot // SLOTS < n:
                where[d + slot // SLOTS, slot % SLOTS] = place[i]
        if d < 0:
            continue
        numbers[0, d] += 1
        is_whole[d] |= np.isnan(duration[i])  # events without a length: nobody knows what there was between them
        if not np.isnan(x[i]):
            box[0, d], box[1, d] = np.fmin(box[0, d], x[i]), np.fmax(box[1, d], x[i])
            box[2, d], box[3, d] = np.fmin(box[2, d], y[i]), np.fmax(box[3, d], y[i])
    for d in range(n):
        if not np.isnan(box[0, d]):
            numbers[1, d] = np.hypot(box[1, d] - box[0, d], box[3, d] - box[2, d])
        if not is_whole[d] and (where[d] != 0).sum() < WHOLE_SLOTS:
            numbers[:, d] = np.nan
    return where, numbers


@njit(nogil=True, cache=True)
def rank_days(
    where: np.ndarray, numbers: np.ndarray, begin: int, last: int, key: int, days_off: np.ndarray
) -> np.ndarray:  # pragma: no cover - compiled
    """The share of days of its kind so far, itself included, that are further out than each day: float64 [n, K].

    K as in SHARES. Equal days come in an order by a hash. All NaN for days of which nothing is known, inf for those
    that are known and not ranked: in the history, or too few before them. NaN too where the day has no answer.
    """
    n = len(where)
    ranks = np.full((n, PARTS + 5), np.nan)
    total, pairs, values = np.zeros((PARTS + 1, n)), np.zeros((PARTS + 1, n)), np.full((PARTS + 3, n), np.nan)
    values[PARTS + 1 :] = numbers
    earlier_days, count = np.zeros((2, n), np.int64), np.zeros(2, np.int64)
    for t in range(n):
        if not where[t].any():
            continue
        weekend = 1 if day_kind(begin + t, days_off) >= 5 else 0
        for k in range(count[weekend]):
            other = earlier_days[weekend, k]
            for part in range(PARTS):
                differ, both = 0, 0
                for slot in range(part * PART_SLOTS, (part + 1) * PART_SLOTS):
                    if where[t, slot] != 0 and where[other, slot] != 0:
                        both += 1
                        differ += where[t, slot] != where[other, slot]
                if both:
                    for at in (part, PARTS):
                        for d in (t, other):
                            total[at, d] += differ / both
                            pairs[at, d] += 1
        earlier_days[weekend, count[weekend]] = t
        count[weekend] += 1
        ranks[t] = np.inf
        if begin + t <= last or count[weekend] <= LEAST_DAYS:
            continue
        for k in range(count[weekend]):
            d = earlier_days[weekend, k]
            for part in range(PARTS + 1):
                values[part, d] = total[part, d] / pairs[part, d] if pairs[part, d] else np.nan
        for kind in range(PARTS + 3):
            higher, equal, number = 0, 0, 0
            for k in range(count[weekend]):
                above = values[kind, earlier_days[weekend, k]] - values[kind, t]
                higher += above > EQUAL
                equal += abs(above) <= EQUAL
                number += not np.isnan(above)
            share = (higher + chance(key, begin + t, kind) * equal) / number if number > LEAST_DAYS else np.nan
            at = kind + max(0, kind - PARTS - 1)
            ranks[t, at] = share
            if kind > PARTS:
                ranks[t, at + 1] = 1.0 - share
    return ranks


@njit(nogil=True, cache=True)
def chance(key: int, day: int, kind: int) -> float:  # pragma: no cover - compiled
    """A number between 0 and 1 by a hash (splitmix64), the same on every machine."""
    z = np.uint64(key) + np.uint64(day * 16 + kind + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) + 0.5) / 9007199254740992.0


@njit(nogil=True, cache=True)
def bet_on(
    ranks: np.ndarray, begin: int, days_off: np.ndarray, facts: np.ndarray
) -> float:  # pragma: no cover - compiled
    """log10 of the highest capital, at least 0; `facts` [4] become told_day, since, ranks, weekend.

    With every day, bets begin that all days of its kind from there on are among the most unlike; they share the highest
    ranks with one another, so the k-th of n days bets on the highest k of n.
    """
    n, kinds = ranks.shape
    total, best = np.zeros(n), np.zeros(n)
    best_since, best_ranks = np.zeros(n, np.int64), np.full(n, -1)
    for weekend in range(2):
        days, m, before = np.zeros(n, np.int64), 0, 0
        for t in range(n):
            if (day_kind(begin + t, days_off) >= 5) == (weekend == 1) and not np.isnan(ranks[t]).all():
                days[m] = t
                before += np.isinf(ranks[t, 0])
                m += not np.isinf(ranks[t, 0])
        for kind in range(kinds):
            weight = (1 - ON_WEEKDAYS if weekend else ON_WEEKDAYS) * _SHARES[kind]
            capital, shares, unspent, now, j = np.zeros((m, len(ROOM))), np.ones(m), 1.0, weight, 0
            for t in range(n):
                if j < m and days[j] == t:
                    shares[j] = unspent / (j + 1 + HALF_SPENT)
                    unspent -= shares[j]
                    capital[j] = shares[j] / len(ROOM)
                    now, most, start = unspent, -1.0, 0
                    for s in range(max(0, j - MOST_STARTS), j + 1):
                        own = 0.0
                        for b in range(len(ROOM)):
                            top = min(0.6, (j - s + 1 + ROOM[b] * before) / (before + j + 1))
                            if ranks[t, kind] <= top:
                                capital[s, b] *= (1 - SLACK) / top
                            elif ranks[t, kind] > top:  # neither where there is no answer
                                capital[s, b] *= SLACK / (1 - top)
                            own += min(capital[s, b], 1e200)
                        now += own
                        if own / shares[s] > most:
                            most, start = own / shares[s], s
                    now *= weight
                    j += 1
                    if now > best[t]:
                        best[t], best_since[t], best_ranks[t] = now, begin + days[start], 2 * kind + weekend
                total[t] += now
    evidence, strongest = 0.0, 0.0
    for t in range(n):
        if facts[0] == 0 and best[t] > strongest:
            strongest, facts[1], facts[2], facts[3] = best[t], best_since[t], best_ranks[t] // 2, best_ranks[t] % 2
        evidence = max(evidence, np.log10(total[t]))
        if facts[0] == 0 and evidence >= -np.log10(LEVEL):
            facts[0] = begin + t
    if facts[0] == 0:
        facts[1] = 0
    return evidence
