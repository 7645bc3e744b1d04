"""What parts say together: thresholds, warnings and ranks of all scored events from what each partition reports.

Everything is exact but two things, whose error is bounded: the drift of p-values comes from a histogram (off by at
most 1 / `BINS`), and ranks of more than `MOST_RANKED` events come from evenly spaced ones among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ustad.scoring.alerts import (
    AlertRule,
    benjamini_hochberg,
    drift_words,
    expect_by_chance,
    flag,
    mostly_chance,
    order_by_p,
    too_small,
)
from ustad.ties import tied_ranks

#: Bins of the histogram of p-values.
BINS = 20_000
#: Values of one column that are ranked exactly (float32: 400 MB); of more, every so-and-so-many-th is kept.
MOST_RANKED = 100_000_000


@dataclass(frozen=True)
class Verdict:
    """Which events are flagged: those with p ≤ threshold or, for the top n, those named."""

    rule: AlertRule
    threshold: float
    events: int
    warnings: tuple[str, ...] = ()
    by_chance: float = 0.0
    named: dict[str, list[int]] | None = None  # task → rows of its part

    def flags(self, task: str, p_values: np.ndarray, echo: np.ndarray) -> np.ndarray:
        if self.named is None:
            return flag(p_values, self.threshold) & ~echo
        is_alert = np.zeros(len(p_values), bool)
        is_alert[self.named.get(task, [])] = True
        return is_alert


# -------------------------------------------------------------------------------------------------- alerts
def survey(
    p_values: np.ndarray, scores: np.ndarray, echo: np.ndarray, order: np.ndarray, rule: AlertRule, days: float
) -> dict[str, Any]:
    """What one partition has to tell so that all of them can be judged together.

    `echo` [n] are events whose incident another one leads; `order` [n] ranks the part's rows by entity and time, which
    decides between events that tie.
    """
    counts = np.bincount(np.minimum((p_values * BINS).astype(np.int64), BINS - 1), minlength=BINS)
    report: dict[str, Any] = {"events": len(p_values), "bins": _packed(counts)}
    most, led = rule.most(days), np.where(echo, 2.0, p_values)  # after all others
    limit = rule.value
    if most is None:
        report["small"] = np.sort(led[flag(led, limit) & ~echo]).tolist()
    else:
        rows = order_by_p(led, scores, order)[: min(most, int((~echo).sum()))]
        report["top"] = [[float(p_values[r]), float(scores[r]), int(r)] for r in rows]
        limit = float(led[rows[-1]]) if len(rows) == most else 1.0  # no more of this part can be among the most unusual
    report["unusual"] = np.sort(p_values[flag(p_values, limit)]).tolist()
    return report


def verdict(
    rule: AlertRule, parts: dict[str, dict[str, Any]], days: float, reference: int, rank: Any = None
) -> Verdict:
    """The rule applied to all events. `rank` (task, row) → key of entity and time, for ties among the most unusual."""
    events = sum(part["events"] for part in parts.values())
    gap = drift_of_bins(sum(_unpacked(part["bins"]) for part in parts.values()))
    drifting = drift_words(gap) if reference and events >= 100 else []
    most = rule.most(days)
    if most is not None:
        entries = _most_unusual(parts, most, rank or _as_told)
        rows_by_task: dict[str, list[int]] | None = _by_task(entries)
        count, threshold = len(entries), max((e[0] for e in entries), default=0.0)
        notes = [*(too_small(threshold, rule, reference) if rule.kind != "top" else ()), *drifting]
    else:
        small = [part["small"] for part in parts.values()]
        threshold = _false_discoveries(small, rule.value, events) if rule.kind == "fdr" else rule.value
        count, rows_by_task = _count_up_to(small, threshold), None
        notes = [*too_small(threshold, rule, reference), *drifting]
    unusual = _count_up_to([part["unusual"] for part in parts.values()], threshold)
    by_chance = expect_by_chance(unusual, count, events, threshold)
    return Verdict(rule, threshold, events, (*notes, *mostly_chance(count, by_chance)), by_chance, rows_by_task)


def _most_unusual(parts: dict[str, dict[str, Any]], most: int, rank: Any) -> list[tuple[float, float, str, int]]:
    """The most unusual leading events of all parts: p-value, falling score, task and row."""
    events = [(p, -score, task, row) for task, part in parts.items() for p, score, row in part["top"]]
    p, falling = (np.array([e[i] for e in events]) for i in range(2))
    keys = list(zip(tied_ranks(p, floor=0.0), tied_ranks(falling), strict=True))
    order = sorted(range(len(events)), key=lambda i: (*keys[i], rank(*events[i][2:])))
    return [events[i] for i in order[:most]]


def _by_task(entries: list[tuple[float, float, str, int]]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for _, _, task, row in entries:
        rows.setdefault(task, []).append(row)
    return rows


def _count_up_to(parts: Sequence[Sequence[float]], threshold: float) -> int:
    return sum(int(flag(np.asarray(part, np.float64), threshold).sum()) for part in parts)


def _as_told(task: str, row: int) -> tuple[str, int]:
    return task, row


def _false_discoveries(small: Sequence[Sequence[float]], rate: float, events: int) -> float:
    """Benjamini and Hochberg's threshold: p-values above the rate can never pass, so only their number matters."""
    p_values = np.concatenate([np.asarray(part, np.float64) for part in small]) if small else np.zeros(0)
    return benjamini_hochberg(np.concatenate([p_values, np.ones(events - len(p_values))]), rate)


def drift_of_bins(counts: Any) -> float:
    """Kolmogorov–Smirnov distance of p-values from uniform at the edges of the bins."""
    share = np.concatenate([[0.0], np.cumsum(counts) / max(int(np.sum(counts)), 1)])
    return float(np.max(np.abs(share - np.linspace(0, 1, len(share)))))


def _packed(counts: np.ndarray) -> list[list[int]]:
    bins = np.flatnonzero(counts)
    return [bins.tolist(), counts[bins].tolist()]


def _unpacked(pairs: list[list[int]]) -> np.ndarray:
    counts = np.zeros(BINS, np.int64)
    counts[pairs[0]] = pairs[1]
    return counts


# --------------------------------------------------------------------------------------------------- ranks
@dataclass(frozen=True)
class MergedRanks:
    """Where values stand among `count` values, of which `values` (ascending) are all or every so-many-th."""

    values: np.ndarray
    count: int

    @classmethod
    def of(cls, parts: Sequence[np.ndarray], most: int = MOST_RANKED) -> MergedRanks:
        """Of the values of all parts; NaN are left out."""
        values = np.concatenate([part[np.isfinite(part)] for part in parts]) if len(parts) else np.zeros(0, np.float32)
        values.sort()
        if len(values) <= most:
            return cls(values, len(values))
        middle = ((np.arange(most) + 0.5) * len(values) / most).astype(np.int64)
        return cls(values[middle], len(values))

    def log10_tail(self, values: np.ndarray) -> np.ndarray:
        """log₁₀ of the share above, ties counted half; NaN stays NaN. As `scoring.distribution.Ranks`."""
        x = np.asarray(values, self.values.dtype)
        below = np.searchsorted(self.values, x, side="left").astype(np.float64)
        upto = np.searchsorted(self.values, x, side="right")
        stand = (below + upto) / 2 * (self.count / max(len(self.values), 1))
        share = (self.count - stand + 0.5) / (self.count + 1)
        return np.where(np.isnan(x), np.nan, np.log10(share))
