"""The drift alarm: a test martingale over p-values, which grows once small ones come more often than they should.

In go p-values by local day; out comes the evidence that life is no longer as it was when the model was calibrated. The
evidence begins at 1. While p-values are what they say, the chance that it ever reaches 1 / `LEVEL` is at most `LEVEL`,
however long it is watched: it is the capital of somebody who bets fairly against the calibration.

Each day begins a new bet with a part of the capital, so that a change after a quiet year is noticed nearly as soon as
one after a week. What a day can win is limited, which keeps the bet fair and one unusual day of everybody from
ringing. P-values are counted in bins: parts of the data can be added up, and what is kept is a few numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ustad.progress import warn
from ustad.ties import raised

#: The chance that the alarm is ever raised although nothing has changed.
LEVEL = 0.01
#: Small p-values may be so many times as frequent as they should be: calibrated on few people, they are never exact.
TOLERANCE = 1.5
#: Upper ends of the bins of p-values. No event counts for more than one with p = 0.01: one anomaly is no drift.
EDGES = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0])
#: A bet of exponent ε pays ε q^(ε − 1) on a p-value of q: the lower, the more it hopes for small ones.
EXPONENTS = np.array([0.25, 0.5, 0.75])
#: Logarithms beyond this are cut off: more evidence says nothing more.
MOST = 250.0
#: One day multiplies the evidence by ten at most, log10: a holiday or a strike is over the day after, and no drift.
MOST_A_DAY = 1.0
#: Local day (since 1970-01-01) → number of p-values in each bin.
DayCounts = dict[int, list[int]]


def _log_payoffs() -> np.ndarray:
    """log10 of what each bet pays on a p-value of each bin: [exponents, bins].

    Payoffs fall with the p-value and have mean 1 where p-values are uniform but `TOLERANCE` times too small. Where they
    are larger than that, or come in steps, the mean is at most 1.
    """
    ends = np.minimum(1.0, TOLERANCE * EDGES)
    shares = np.diff(ends, prepend=0.0)
    payoffs = EXPONENTS[:, None] * ends ** (EXPONENTS[:, None] - 1)
    return np.log10(payoffs / (payoffs @ shares)[:, None])


LOG_PAYOFFS = _log_payoffs()


def count_p_values(days: np.ndarray, p_values: np.ndarray) -> DayCounts:
    """How many p-values of each local day lie in each bin."""
    bins = np.searchsorted(raised(EDGES[:-1], floor=0.0), p_values)
    present, place = np.unique(days, return_inverse=True)
    counts = np.bincount(place * len(EDGES) + bins, minlength=len(present) * len(EDGES)).reshape(-1, len(EDGES))
    return dict(zip(present.tolist(), counts.tolist(), strict=True))


def join_counts(parts: Iterable[Mapping[Any, list[int]]]) -> DayCounts:
    """The counts of all parts of the data; days may be text, as they are after JSON."""
    totals: DayCounts = {}
    for part in parts:
        for day, counts in part.items():
            totals[int(day)] = list(_sum(totals.get(int(day), [0] * len(EDGES)), counts))
    return totals


@dataclass(frozen=True)
class DriftAlarm:
    """What is known so far. `add` gives the next one; all of it is JSON (`to_json`, `from_json`)."""

    day: int = -(2**31)  # the latest day, since 1970-01-01
    days: int = 0  # how many there were
    counts: tuple[int, ...] = (0,) * len(EDGES)  # p-values of the latest day
    before: tuple[int, ...] = (0,) * len(EDGES)  # and of all days before it
    log_capital: tuple[float, ...] = (-MOST,) * len(EXPONENTS)  # log10 of each bet when the latest day began
    log_peak: float = 0.0  # log10 of the most evidence there ever was
    raised_on: int | None = None  # the day on which the alarm was raised

    def add(self, counts_by_day: DayCounts) -> DriftAlarm:
        """With more p-values, in the order of their days. What comes late counts to the latest day."""
        alarm = self
        for day in sorted(counts_by_day):
            alarm = alarm._add_day(max(day, alarm.day), np.asarray(counts_by_day[day]))
        return alarm

    def _add_day(self, day: int, counts: np.ndarray) -> DriftAlarm:
        alarm = self if day == self.day else self._begin(day)
        alarm = replace(alarm, counts=_sum(alarm.counts, counts))
        peak = max(alarm.log_peak, alarm.log_evidence)
        first = day if alarm.raised_on is None and peak >= -np.log10(LEVEL) else alarm.raised_on
        return replace(alarm, log_peak=peak, raised_on=first)

    def _begin(self, day: int) -> DriftAlarm:
        """The next day, the d-th: bets go on, and each gets 1 / (d (d + 1)) of the first capital in addition."""
        days = self.days + 1
        capital = np.power(10.0, self._log_bets()) + 1 / (days * (days + 1))
        return replace(
            self, day=day, days=days, counts=(0,) * len(EDGES), before=_sum(self.before, self.counts),
            log_capital=tuple(np.log10(capital).tolist()),
        )  # fmt: skip

    def _log_bets(self) -> np.ndarray:
        """log10 of each bet after what has come of the latest day: [exponents]."""
        log_gains = np.minimum(LOG_PAYOFFS @ np.asarray(self.counts), MOST_A_DAY)
        return np.clip(np.asarray(self.log_capital) + log_gains, -MOST, MOST)

    @property
    def log_evidence(self) -> float:
        """log10 of the evidence: the mean of the bets, and what has not been put into one yet, 1 / (d + 1)."""
        return float(np.log10(np.power(10.0, self._log_bets()).mean() + 1 / (self.days + 1)))

    def describe(self) -> dict[str, Any]:
        """What a run, the page and figures say of it: evidence as log10, shares of p-values up to 0.05 and 0.01."""
        totals = np.add(self.before, self.counts)
        shares = np.cumsum(totals) / max(int(totals.sum()), 1)
        return {
            "log_evidence": round(self.log_evidence, 3),
            "log_peak": round(self.log_peak, 3),
            "log_limit": -float(np.log10(LEVEL)),
            "raised_on": None if self.raised_on is None else str(np.datetime64(self.raised_on, "D")),
            "days": self.days,
            "events": int(totals.sum()),
            "share_05": float(shares[np.searchsorted(EDGES, 0.05)]),
            "share_01": float(shares[np.searchsorted(EDGES, 0.01)]),
        }

    # ---------------------------------------------------------------------------------------- storing
    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> DriftAlarm:
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in content.items()}
        return cls(**values)


def alarm_words(raised_on: str | None) -> list[str]:
    """What to say where the alarm was raised: nothing where it was not."""
    if raised_on is None:
        return []
    return [
        f"drift alarm since {raised_on}: small p-values come more often than chance allows (once in "
        f"{round(1 / LEVEL)} models if nothing had changed); life differs from the weeks of calibration, train again"
    ]


def note_drift(run: dict[str, Any], counts_by_day: DayCounts) -> dict[str, Any]:
    """What is said of a run, with the alarm over its p-values; a warning where it was raised."""
    alarm = DriftAlarm().add(counts_by_day).describe()
    words = alarm_words(alarm["raised_on"])
    for text in words:
        warn(text)
    return {**run, "drift": alarm, "warnings": [*run["warnings"], *words]}


def _sum(one: Sequence[int], other: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in np.add(one, other))
