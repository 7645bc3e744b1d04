"""Keeping a model in step: train the next version from the one in use, compare both, and swap only if checks pass.

In: a directory of versions and data whose last week neither model has learnt from. Out: a `Renewal` with what both say
of that week, and the checks. The last week is scored by both with the weeks before as context.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad import progress
from ustad.clock import day_number, iso_date
from ustad.config import Config
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.periods import as_data
from ustad.scoring.alerts import DRIFT_LIMIT, AlertRule, drift, flag
from ustad.tables import DataError
from ustad.versions import ModelVersions

WEEK = 7
#: Days that stop training and calibrate, before the last week: a quarter of all, and at most four weeks.
MOST_VALIDATION = 28
#: Small p-values may be so many times as frequent as they should be, or as frequent as by the model in use.
TWICE = 2.0
#: The share of a usual week's events, of the entities known to the model in use, and of its alerts that must be there.
LEAST_EVENTS, LEAST_KNOWN, LEAST_ALERTS = 0.5, 0.9, 0.2
#: With fewer alerts than this, how many stay is left to chance.
FEWEST_ALERTS = 10


@dataclass(frozen=True)
class Figures:
    """What one model says of the last week."""

    version: int
    learned_until: str
    n_known: int  # of the week's entities, those that it has learnt from
    share_05: float  # of the week's events with p ≤ 0.05, about that in a usual week
    share_01: float
    gap: float  # between p-values and uniform ones
    alerts: int


@dataclass(frozen=True)
class Check:
    """One condition of the swap, in words."""

    name: str
    passed: bool
    words: str


@dataclass(frozen=True)
class Renewal:
    """What a cycle did. Without `new` there was nothing newer to learn from."""

    first_day: str = ""
    last_day: str = ""
    events: int = 0
    entities: int = 0
    old: Figures | None = None
    new: Figures | None = None
    alerts_in_both: int = 0  # alerts of both models
    alerts_only_new: int = 0
    alerts_only_old: int = 0
    checks: list[Check] = field(default_factory=list)
    is_swapped: bool = False
    words: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


# --------------------------------------------------------------------------------------------------- the cycle
def renew(
    versions: ModelVersions,
    data: Any,
    *,
    first: Path | None = None,
    preset: str = "best",
    rule: AlertRule | None = None,
    device: str = "auto",
) -> Renewal:
    """One cycle. Where no version is in use yet, `first` (a model directory) becomes the first, else one is trained."""
    rule = rule or AlertRule("alerts_per_day", 5.0)
    with versions.alone():
        if versions.current is None and first is not None:
            _adopt(versions, first)
        elif first is not None:
            raise DataError(f"{versions.path}: version {versions.current} is in use; --from is for a new directory")
        number = versions.current
        old = Detector.load(versions[number], device) if number is not None else None
        data = as_data(data, old.schema if old is not None else None)
        week = _last_week(data)
        if number is not None and old is not None:
            until = day_number(str(old.facts.get("learned_until") or old.facts["last_day"]))
            if until >= week - 1:
                words = f"nothing newer: version {number} learnt until {iso_date(until)} and the data end on"
                return Renewal(words=f"{words} {iso_date(week + WEEK - 1)}: no new day is left before their last week")
        new_number = versions.next_number()
        config = old.config if old is not None else Config.preset(preset)
        _train(config, data, week, old, place=versions[new_number], device=device)
        if number is None or old is None:
            versions.use(new_number)
            return Renewal(is_swapped=True, words=f"version {new_number} is the first, and in use now")
        new = Detector.load(versions[new_number], device)
        result = compare((number, old), (new_number, new), data, rule)
        if result.is_swapped:
            versions.use(new_number)
        else:
            versions.record(new_number, "refused", why=[c.words for c in result.checks if not c.passed])
        return result


def _adopt(versions: ModelVersions, model: Path) -> None:
    """A copy of a model that was trained elsewhere, as the first version."""
    Detector.load(model, "cpu")  # refused here rather than later
    number = versions.next_number()
    shutil.copytree(model, versions[number])
    versions.use(number)


def _train(config: Config, data: Dataset, week: int, old: Detector | None, *, place: Path, device: str) -> None:
    """A model of everything before the last week."""
    before = week - int(data.days().min())
    if before < 2 * WEEK:
        raise DataError(f"{data.name}: {before} days before the last week; at least two weeks to learn from are needed")
    validation = max(min(MOST_VALIDATION, before // 4), min(round(WEEK * config.split.validation_weeks), before // 2))
    split = {"test_first": iso_date(week), "validation_first": iso_date(week - validation)}
    config = config.replace({"split.train_until": "", "split.test_from": ""})
    detector = Detector(config, device)
    detector.fit(replace(data, meta={**data.meta, "split": split}), start=old)
    detector.save(place)


# ---------------------------------------------------------------------------------------------------- comparing
@dataclass(frozen=True)
class _Judgement:
    """What a model says of the week's events, in one order: p-values [n]; the incidents that are alerts, each with
    numbers of its events."""

    p_values: np.ndarray
    incidents: list[frozenset[int]]


def compare(old: tuple[int, Detector], new: tuple[int, Detector], data: Dataset, rule: AlertRule) -> Renewal:
    """Both models, each with its number, on the last week; `is_swapped` says whether all checks passed."""
    week = _last_week(data)
    events = data.between(week, week + WEEK - 1)
    judgements = [_judge(detector, data, week, rule) for _, detector in (old, new)]
    before, after = (
        _figures(number, detector, events, one) for (number, detector), one in zip((old, new), judgements, strict=True)
    )
    alerts_in_both = _count_shared(judgements[0].incidents, judgements[1].incidents)
    alerts_only_new = after.alerts - _count_shared(judgements[1].incidents, judgements[0].incidents)
    checks = _checks(before, after, alerts_in_both, events.num_rows, usual=_usual_events(data, week))
    why_not = "; ".join(check.words for check in checks if not check.passed)
    words = f"version {new[0]} is in use now" if not why_not else f"version {new[0]} is refused: {why_not}"
    return Renewal(
        iso_date(week), iso_date(week + WEEK - 1), events.num_rows, len(pc.unique(events[data.schema.entity])), before,
        after, alerts_in_both, alerts_only_new, before.alerts - alerts_in_both, checks, not why_not, words,
    )  # fmt: skip


def _judge(detector: Detector, data: Dataset, week: int, rule: AlertRule) -> _Judgement:
    parts = detector.scoring_from(iso_date(week)).score_parts(data, rule=rule, reasons="none")
    schema = detector.schema
    columns = [schema.entity, schema.time, "p_value", "alert", "incident_id"]
    with progress.silence():
        table = pa.concat_tables([part.events.select(columns) for part in parts if part.events is not None])
    table = table.take(pc.sort_indices(table, [(schema.entity, "ascending"), (schema.time, "ascending")]))
    members: dict[str | int, list[int]] = {}
    for row, name in enumerate(table["incident_id"].to_pylist()):
        members.setdefault(row if name is None else name, []).append(row)  # a usual event may be an alert too
    alerts = set(np.flatnonzero(table["alert"].to_numpy()).tolist())
    incidents = [frozenset(rows) for rows in members.values() if not alerts.isdisjoint(rows)]
    return _Judgement(table["p_value"].to_numpy(), incidents)


def _count_shared(one: Sequence[frozenset[int]], other: Sequence[frozenset[int]]) -> int:
    """Incidents of which an event is in one of the other incidents too."""
    everything = frozenset().union(*other)
    return sum(not incident.isdisjoint(everything) for incident in one)


def _figures(number: int, detector: Detector, events: pa.Table, judgement: _Judgement) -> Figures:
    p_values = judgement.p_values
    return Figures(
        version=number,
        learned_until=str(detector.facts.get("learned_until") or detector.facts["last_day"]),
        n_known=int(detector.knows(pc.unique(events[detector.schema.entity]).to_pylist()).sum()),
        share_05=float(flag(p_values, 0.05).mean()),
        share_01=float(flag(p_values, 0.01).mean()),
        gap=drift(p_values),
        alerts=len(judgement.incidents),
    )


def _checks(old: Figures, new: Figures, alerts_in_both: int, events: int, *, usual: float) -> list[Check]:
    """All conditions of the swap."""
    checks = [
        Check(
            "events", events >= LEAST_EVENTS * usual,
            f"the last week has {events:,} events, of about {usual:,.0f} in the weeks before",
        ),
        Check(
            "known", new.n_known >= LEAST_KNOWN * old.n_known,
            f"the new model knows {new.n_known:,} of that week's entities, the old one {old.n_known:,}",
        ),
    ]  # fmt: skip
    for level, share, before in ((0.05, new.share_05, old.share_05), (0.01, new.share_01, old.share_01)):
        most = TWICE * level + 3 * np.sqrt(level * (1 - level) / max(events, 1))
        words = f"p ≤ {level:g} for {share:.1%} of the events, at most {max(most, before):.1%} wanted"
        checks.append(Check(f"p_{level:g}".replace(".", ""), bool(share <= max(most, before)), words))
    limit = max(DRIFT_LIMIT, old.gap)
    gap_words = f"the largest gap between p-values and uniform ones is {new.gap:.2f}, at most {limit:.2f} wanted"
    checks.append(Check("gap", bool(new.gap <= limit), gap_words))
    enough = old.alerts < FEWEST_ALERTS or alerts_in_both >= LEAST_ALERTS * old.alerts
    checks.append(Check("alerts", enough, f"{alerts_in_both} of the old model's {old.alerts} alerts stay"))
    return checks


# ----------------------------------------------------------------------------------------------------- dates
def _last_week(data: Dataset) -> int:
    """The first day of the last seven, since 1970-01-01."""
    return int(data.days().max()) - WEEK + 1


def _usual_events(data: Dataset, week: int) -> float:
    """Events a week, of the four weeks before, or as many as there are."""
    days = data.days()
    weeks = min(4.0, max(1.0, (week - int(days.min())) / WEEK))
    return float(((days < week) & (days >= week - WEEK * weeks)).sum() / weeks)
