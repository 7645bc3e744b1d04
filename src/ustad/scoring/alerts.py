"""Which incidents to show somebody: thresholds in the terms users ask for, and when not to trust them.

In go p-values and scores of events and their incidents; out come flags (of the events that lead their incidents), the
threshold and plain warnings. `alerts_per_day` is what somebody can look at: so many of the most unusual incidents, a
day on average. The other rules rest on p-values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ustad.config import ConfigError
from ustad.scoring.incidents import Count, incident_share
from ustad.tables import DataError
from ustad.ties import lowered, raised, tied_ranks

Rule = Literal["p_value", "alerts_per_day", "fdr", "top"]
#: Without a rule: one false alarm in a thousand normal events.
DEFAULT_P_VALUE = 0.001
#: Largest gap between the p-values' distribution and the uniform one before it is called drift.
DRIFT_LIMIT = 0.15
#: Fewer events than so many say nothing of drift.
FEW_FOR_DRIFT = 100
#: Bins of the histogram of p-values that drift is read from: it is off by at most 1 / `BINS`.
BINS = 20_000
#: From the name of a part and a row of it: the entity and time, or whatever decides between events that tie.
Rank = Callable[[str, int], Any]
#: From this share of all events on, alerts are refused; fewer events than so many say nothing of shares.
NEARLY_ALL, FEWEST_EVENTS = 0.9, 50


@dataclass(frozen=True)
class AlertRule:
    """The `alerts_per_day` most unusual incidents, a false discovery rate, the top so many, or a plain p-value."""

    kind: Rule = "p_value"
    value: float = DEFAULT_P_VALUE

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise ConfigError(f"{self.kind} must be above 0, got {self.value}")
        if self.kind in ("fdr", "p_value") and self.value >= 1:
            raise ConfigError(f"{self.kind} must be below 1, got {self.value}")

    @classmethod
    def choose(cls, alerts_per_day: float | None = None, fdr: float | None = None, top: int | None = None) -> AlertRule:
        """From command-line options, at most one of which is given."""
        options = {"alerts_per_day": alerts_per_day, "fdr": fdr, "top": top}
        choices = [(k, v) for k, v in options.items() if v is not None]
        if len(choices) > 1:
            raise ConfigError(f"choose one of --alerts-per-day, --fdr and --top, got {len(choices)}")
        return cls(choices[0][0], float(choices[0][1])) if choices else cls()  # type: ignore[arg-type]  # the keys are Rules

    def most(self, days: float) -> int | None:
        """How many alerts there may be at most over so many days; None where a p-value decides."""
        if self.kind == "alerts_per_day":
            return max(1, round(self.value * max(days, 1.0)))
        return int(self.value) if self.kind == "top" else None

    def widest(self, days: float) -> AlertRule:
        """A rule that flags, within any part, every event that this one may flag among all."""
        most = self.most(days)
        return AlertRule("top", most) if most is not None else AlertRule("p_value", self.value)


@dataclass(frozen=True)
class LeastRate:
    """The fewest alerts a day that a reference of so many normal events can tell apart: rarer ones rest on a fitted
    tail. The smallest p-value that was counted is one in as many events as there are and one more."""

    reference: int
    per_day: float

    @classmethod
    def of(cls, reference: int, events_per_day: float, counts: Sequence[Count] = ()) -> LeastRate:
        """Where so many events come a day, and unusual ones make as many incidents as in `counts`."""
        return cls(reference, incident_share(1 / (reference + 1), counts) * events_per_day)

    def allows(self, alerts_per_day: float) -> bool:
        return not self.reference or alerts_per_day >= lowered(self.per_day)

    def words(self) -> str:
        """What can be had, and how. A rate is rounded up, so that asking for it is enough."""
        often = f"one alert in {1 / self.per_day:,.0f} days" if self.per_day < 2 / 3 else f"{self.per_day:.2g} a day"
        digits = max(0, 1 - math.floor(math.log10(self.per_day)))
        enough = math.ceil(lowered(self.per_day * 10**digits)) / 10**digits
        return (
            f"about {often} can be told apart with {self.reference:,} usual events, nothing rarer: ask for "
            f"{enough:.{digits}f} alerts a day or more, or train on more people or weeks"
        )


@dataclass(frozen=True)
class Alerts:
    """Which events raise an alert, from which p-value on, and what a user should know about it."""

    rule: AlertRule
    threshold: float  # the largest p-value that is flagged
    count: int = 0
    warnings: tuple[str, ...] = ()
    by_chance: float = 0.0  # how many of the alerts normal events alone would raise
    rows: dict[str, list[int]] | None = None  # part → its rows, where so many alerts were asked for
    least: LeastRate | None = None

    def flags(self, part: str, p_values: np.ndarray, echo: np.ndarray) -> np.ndarray:
        """Of the events of one part, which have these p-values, those that raise an alert: bool [n]."""
        if self.rows is None:
            return flag(p_values, self.threshold) & ~echo
        is_alert = np.zeros(len(p_values), bool)
        is_alert[self.rows.get(part, [])] = True
        return is_alert

    def notes(self, coverage: float | None) -> dict[str, Any]:
        """What a run says of its alerts."""
        return {
            "rule": self.rule.kind,
            "value": self.rule.value,
            "threshold": self.threshold,
            "alerts": self.count,
            "by_chance": self.by_chance,
            "coverage": coverage,
            "warnings": list(self.warnings),
            **({"reference_events": self.least.reference, "least_per_day": self.least.per_day} if self.least else {}),
        }


def flag_events(
    p_values: np.ndarray,
    scores: np.ndarray,
    echo: np.ndarray,
    rule: AlertRule | None = None,
    *,
    days: float = 1.0,
    reference: int = 0,
    order: np.ndarray | None = None,
) -> tuple[np.ndarray, Alerts]:
    """Flags (bool [n]) by one rule where there is one part alone: see `report_part` and `raise_alerts`."""
    rule = rule or AlertRule()
    order = np.arange(len(scores)) if order is None else order
    alerts = raise_alerts(rule, {"": report_part(p_values, scores, echo, order, rule=rule, days=days)}, days, reference)
    return alerts.flags("", p_values, echo), alerts


def report_part(
    p_values: np.ndarray, scores: np.ndarray, echo: np.ndarray, order: np.ndarray, *, rule: AlertRule, days: float
) -> dict[str, Any]:
    """What one part has to tell so that alerts can be raised among all of them; small, and as JSON has it.

    `echo` [n] are events whose incident another one leads; `order` [n] ranks the part's rows by entity and time, which
    decides between events that tie. `days` is the span of all scored events.
    """
    counts = np.bincount(np.minimum((p_values * BINS).astype(np.int64), BINS - 1), minlength=BINS)
    report: dict[str, Any] = {"events": len(p_values), "bins": _pack(counts)}
    most, leader_p = rule.most(days), np.where(echo, 2.0, p_values)  # after all others
    limit = rule.value
    if most is None:
        report["small"] = np.sort(leader_p[flag(leader_p, limit) & ~echo]).tolist()
    else:
        rows = order_by_p(leader_p, scores, order)[: min(most, int((~echo).sum()))]
        report["top"] = [[float(p_values[r]), float(scores[r]), int(r), int(order[r])] for r in rows]
        # Beyond the last of these rows, no event of this part can be among the most unusual of all.
        limit = float(leader_p[rows[-1]]) if len(rows) == most else 1.0
    report["unusual"] = np.sort(p_values[flag(p_values, limit)]).tolist()
    return report


def raise_alerts(
    rule: AlertRule,
    reports: Mapping[str, dict[str, Any]],
    days: float,
    reference: int,
    *,
    rank: Rank | None = None,
    counts: Sequence[Count] = (),
) -> Alerts:
    """The rule applied to the events of all parts. `reference` is how many normal events the p-values rest on, `counts`
    how many incidents they make; `rank` decides between events that tie, by default the order of the parts and within
    them."""
    events = sum(report["events"] for report in reports.values())
    if not events:
        return Alerts(rule, 0.0)
    gap = drift_of_bins(sum(_unpack(report["bins"]) for report in reports.values()))
    drifting = drift_words(gap) if reference and events >= FEW_FOR_DRIFT else []
    most, least = rule.most(days), LeastRate.of(reference, events / max(days, 1.0), counts) if reference else None
    if most is not None:
        entries = _most_unusual(reports, most, rank)
        rows: dict[str, list[int]] | None = {name: [e[3] for e in entries if e[2] == name] for name in reports}
        count, threshold = len(entries), max((e[0] for e in entries), default=0.0)
        notes = [*(too_small(threshold, rule, least) if rule.kind != "top" else ()), *drifting]
    else:
        small = [report["small"] for report in reports.values()]
        threshold = _false_discoveries(small, rule.value, events) if rule.kind == "fdr" else rule.value
        count, rows = _count_up_to(small, threshold), None
        notes = [*too_small(threshold, rule, least), *drifting]
    unusual = _count_up_to([report["unusual"] for report in reports.values()], threshold)
    by_chance = expect_by_chance(unusual, count, events, threshold)
    return Alerts(rule, threshold, count, (*notes, *mostly_chance(count, by_chance)), by_chance, rows, least)


def _most_unusual(
    reports: Mapping[str, dict[str, Any]], most: int, rank: Rank | None
) -> list[tuple[float, float, str, int]]:
    """The most unusual leading events of all parts: p-value, falling score, part and row."""
    events = [(p, -score, name, row) for name, report in reports.items() for p, score, row, _ in report["top"]]
    places = [(i, order) for i, report in enumerate(reports.values()) for *_, order in report["top"]]
    p, falling = (np.array([e[i] for e in events]) for i in range(2))
    keys = list(zip(tied_ranks(p, floor=0.0), tied_ranks(falling), strict=True))
    last = [rank(name, row) for *_, name, row in events] if rank is not None else places
    order = sorted(range(len(events)), key=lambda i: (*keys[i], last[i]))
    return [events[i] for i in order[:most]]


def _count_up_to(parts: Sequence[Sequence[float]], threshold: float) -> int:
    return sum(int(flag(np.asarray(part, np.float64), threshold).sum()) for part in parts)


def _false_discoveries(small: Sequence[Sequence[float]], rate: float, events: int) -> float:
    """Benjamini and Hochberg's threshold: p-values above the rate can never pass, so only their number matters."""
    p_values = np.concatenate([np.asarray(part, np.float64) for part in small]) if small else np.zeros(0)
    return benjamini_hochberg(np.concatenate([p_values, np.ones(events - len(p_values))]), rate)


def _pack(counts: np.ndarray) -> list[list[int]]:
    bins = np.flatnonzero(counts)
    return [bins.tolist(), counts[bins].tolist()]


def _unpack(pairs: list[list[int]]) -> np.ndarray:
    counts = np.zeros(BINS, np.int64)
    counts[pairs[0]] = pairs[1]
    return counts


def expect_by_chance(events: int, alerts: int, total: int, threshold: float) -> float:
    """How many alerts normal events alone would raise: as many events as the p-value says, and of them as large a share
    leads an incident as here. `events` have a p-value up to the threshold, `alerts` of them are alerts."""
    return total * threshold * (alerts / events if events else 1.0)


def mostly_chance(alerts: int, by_chance: float) -> list[str]:
    """A warning where chance alone would raise as many alerts."""
    if not alerts or by_chance < raised(float(alerts)):
        return []
    alert_word = "alert" if alerts == 1 else "alerts"
    return [
        f"{alerts:,} {alert_word}, and normal behaviour alone would raise about {by_chance:.0f} as unusual as the last "
        "of them: begin with the first, and expect false alarms among the others"
    ]


def flag(p_values: np.ndarray, threshold: float) -> np.ndarray:
    """Which p-values are at most the threshold, whatever their last bits: bool [n]."""
    return p_values <= raised(threshold, floor=0.0)


def order_by_p(p_values: np.ndarray, scores: np.ndarray, order: np.ndarray | None = None) -> np.ndarray:
    """Rows by rising p-value, then by falling score, then as they stand or by `order`: int64 [n]."""
    last = np.arange(len(scores)) if order is None else order
    return np.lexsort((last, tied_ranks(-scores), tied_ranks(p_values, floor=0.0)))


def benjamini_hochberg(p_values: np.ndarray, rate: float) -> float:
    """The largest p-value such that the expected share of normal events among the flagged is at most `rate`."""
    ascending = np.sort(p_values)
    below = np.flatnonzero(ascending <= raised(rate * np.arange(1, len(ascending) + 1) / len(ascending), floor=0.0))
    return float(ascending[below[-1]]) if len(below) else 0.0


def refuse_everything(alerts: int, events: int, rule: AlertRule | None, days: float) -> None:
    """A DataError where nearly all events would be alerts although far fewer were asked for: the model knows nothing of
    them."""
    rule = rule or AlertRule()
    shares = {"p_value": rule.value, "fdr": 0.0, "top": 1.0, "alerts_per_day": rule.value * days / max(events, 1)}
    if events >= FEWEST_EVENTS and alerts >= NEARLY_ALL * events and shares[rule.kind] < NEARLY_ALL / 2:
        raise DataError(
            f"{alerts:,} of {events:,} events would be alerts: they are nothing like what the model learnt from; "
            "train on weeks that hold the same people (--train-until DATE), or show the highest scores with --top"
        )


def too_small(threshold: float, rule: AlertRule, least: LeastRate | None) -> list[str]:
    """A warning where a threshold is rarer than anything in the reference; a threshold of 0 flags nothing."""
    if least is None or not 0 < threshold < 1 / (least.reference + 1):
        return []
    does = "asks for" if rule.kind == "p_value" else "ends at"
    text = (
        f"{rule.kind} {rule.value:g} {does} p ≤ {threshold:.2g}, rarer than one in the {least.reference:,} reference "
        "events; the threshold rests on the fitted tail alone"
    )
    can_be_had = rule.kind == "alerts_per_day" and least.allows(rule.value)  # so many are that unusual here
    return [text if can_be_had else f"{text}; {least.words()}"]


def drift_words(gap: float) -> list[str]:
    """What to say of the largest gap between p-values and uniform ones: nothing where it is small."""
    if gap <= DRIFT_LIMIT:
        return []
    return [
        f"the scored events differ from the reference period (largest gap {gap:.2f}, limit {DRIFT_LIMIT}); "
        "p-values and alert rates are off until the model is trained or calibrated again"
    ]


def drift(p_values: np.ndarray) -> float:
    """Kolmogorov–Smirnov distance of p-values from uniform: 0 on data like the reference."""
    ascending = np.sort(p_values)
    n = len(ascending)
    return float(max(np.max(np.arange(1, n + 1) / n - ascending), np.max(ascending - np.arange(n) / n)))


def drift_of_bins(counts: Any) -> float:
    """The same from a histogram of p-values, at the edges of its bins."""
    share = np.concatenate([[0.0], np.cumsum(counts) / max(int(np.sum(counts)), 1)])
    return float(np.max(np.abs(share - np.linspace(0, 1, len(share)))))
