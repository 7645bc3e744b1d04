"""Which incidents to show somebody: thresholds in the terms users ask for, and when not to trust them.

In go p-values and scores of events and their incidents; out come flags (of the events that lead their incidents), the
threshold and plain warnings. `alerts_per_day` is what somebody can look at: so many of the most unusual incidents, a
day on average. The other rules rest on p-values.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ustad.config import ConfigError
from ustad.tables import DataError
from ustad.ties import raised, tied_ranks

Rule = Literal["p_value", "alerts_per_day", "fdr", "top"]
#: Without a rule: one false alarm in a thousand normal events.
DEFAULT_P_VALUE = 0.001
#: Largest gap between the p-values' distribution and the uniform one before it is called drift.
DRIFT_LIMIT = 0.15
#: Key of what is said about a score table (rule, threshold, warnings) in its metadata.
NOTES = b"ustad"
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
        given = {"alerts_per_day": alerts_per_day, "fdr": fdr, "top": top}
        named = [(k, v) for k, v in given.items() if v is not None]
        if len(named) > 1:
            raise ConfigError(f"choose one of --alerts-per-day, --fdr and --top, got {len(named)}")
        return cls(named[0][0], float(named[0][1])) if named else cls()  # type: ignore[arg-type]  # the keys are Rules

    def most(self, days: float) -> int | None:
        """How many alerts there may be at most over so many days; None where a p-value decides."""
        if self.kind == "alerts_per_day":
            return max(1, round(self.value * max(days, 1.0)))
        return int(self.value) if self.kind == "top" else None


@dataclass(frozen=True)
class Alerts:
    """Which events raise an alert, from which p-value on, and what a user should know about it."""

    flagged: np.ndarray  # bool [n], only of events that lead their incident
    threshold: float  # the largest p-value that is flagged
    warnings: tuple[str, ...] = ()
    by_chance: float = 0.0  # how many of the alerts normal events alone would raise


def alerts(
    p_values: np.ndarray,
    scores: np.ndarray,
    echo: np.ndarray,
    rule: AlertRule | None = None,
    days: float = 1.0,
    reference: int = 0,
    order: np.ndarray | None = None,
) -> Alerts:
    """Flags by one rule, none of them of an `echo` (bool [n], see `incidents`). `days` is the scored span; `reference`
    how many normal events the p-values rest on; `order` decides between events that tie (as they stand)."""
    rule = rule or AlertRule()
    if not len(p_values):
        return Alerts(np.zeros(0, bool), 0.0)
    most, led = rule.most(days), np.where(echo, 2.0, p_values)  # after all others
    drifting = drift_warning(p_values, reference)
    if most is not None:
        chosen = order_by_p(led, scores, order)[: min(most, int((~echo).sum()))]
        flagged = np.zeros(len(scores), bool)
        flagged[chosen] = True
        threshold = float(led[chosen].max()) if len(chosen) else 0.0
        notes = [*(too_small(threshold, rule, reference) if rule.kind != "top" else ()), *drifting]
    else:
        threshold = benjamini_hochberg(led, rule.value) if rule.kind == "fdr" else rule.value
        flagged = flag(led, threshold) & ~echo
        notes = [*too_small(threshold, rule, reference), *drifting]
    by_chance = expect_by_chance(int(flag(p_values, threshold).sum()), int(flagged.sum()), len(p_values), threshold)
    notes += mostly_chance(int(flagged.sum()), by_chance)
    return Alerts(flagged, threshold, tuple(notes), by_chance)


def expect_by_chance(events: int, flagged: int, scored: int, threshold: float) -> float:
    """How many alerts normal events alone would raise: as many events as the p-value says, and of them as large a share
    leads an incident as here. `events` have a p-value up to the threshold, `flagged` of them are alerts."""
    return scored * threshold * (flagged / events if events else 1.0)


def mostly_chance(flagged: int, by_chance: float) -> list[str]:
    """A warning where chance alone would raise as many alerts."""
    if not flagged or by_chance < raised(float(flagged)):
        return []
    return [
        f"{flagged:,} alerts, and normal behaviour alone would raise about {by_chance:.0f}: on the whole nothing here "
        "is more unusual than chance"
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
    ordered = np.sort(p_values)
    passed = np.flatnonzero(ordered <= raised(rate * np.arange(1, len(ordered) + 1) / len(ordered), floor=0.0))
    return float(ordered[passed[-1]]) if len(passed) else 0.0


def refuse_everything(flagged: int, events: int, rule: AlertRule | None, days: float) -> None:
    """A DataError where nearly all events would be alerts although far fewer were asked for: the model knows nothing of
    them."""
    rule = rule or AlertRule()
    asked = {"p_value": rule.value, "fdr": 0.0, "top": 1.0, "alerts_per_day": rule.value * days / max(events, 1)}
    if events >= FEWEST_EVENTS and flagged >= NEARLY_ALL * events and asked[rule.kind] < NEARLY_ALL / 2:
        raise DataError(
            f"{flagged:,} of {events:,} events would be alerts: they are nothing like what the model learnt from; "
            "train on weeks that hold the same people (--train-until DATE), or show the highest scores with --top"
        )


def too_small(threshold: float, rule: AlertRule, reference: int) -> list[str]:
    """A warning where a threshold is rarer than anything in the reference; a threshold of 0 flags nothing."""
    if reference and 0 < threshold < 1 / (reference + 1):
        does = "asks for" if rule.kind == "p_value" else "ends at"
        return [
            f"{rule.kind} {rule.value:g} {does} p ≤ {threshold:.2g}, rarer than one in the {reference:,} "
            "reference events; the threshold rests on the fitted tail alone"
        ]
    return []


def notes(events: pa.Table) -> dict[str, Any]:
    """What was said about a score table when it was made: rule, threshold, warnings."""
    return json.loads((events.schema.metadata or {}).get(NOTES, b"{}"))


def drift_warning(p_values: np.ndarray, reference: int) -> list[str]:
    """A warning where the bulk of the scored events is not like the reference: largest gap to uniform p-values."""
    if reference == 0 or len(p_values) < 100:
        return []
    return drift_words(drift(p_values))


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
    ordered = np.sort(p_values)
    n = len(ordered)
    return float(max(np.max(np.arange(1, n + 1) / n - ordered), np.max(ordered - np.arange(n) / n)))
