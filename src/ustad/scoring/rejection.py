"""Prediction with rejection: withhold what the model is least sure of, and see what that buys.

In go the uncertainties of events, out come one number per event, the events that are kept, and curves of error
against the share kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.config import ConfigError
from ustad.scoring.calibration import Parts
from ustad.scoring.evidence import withhold_expected
from ustad.ties import raised, tied_ranks

Measure = Literal["sum", "standardised"]
MEASURES: tuple[Measure, ...] = ("sum", "standardised")
#: What is said of an event whose prediction is withheld.
WITHHELD = "What was expected is withheld as too uncertain"


def uncertainty(parts: Parts, how: Measure = "sum", reference: Parts | None = None) -> np.ndarray:
    """Total uncertainty of each event: float64 [n].

    `sum` is the paper's, AU + EU over the terms. `standardised` takes each term's log(AU + EU) in standard
    deviations of the reference first, since the entropy of a category swamps the rest.
    """
    total = (parts.au + parts.eu).astype(np.float64)
    if how == "standardised":
        normal = parts if reference is None else reference
        logs = np.log(np.maximum(normal.au + normal.eu, 1e-12).astype(np.float64))
        deviation = np.nanstd(logs, axis=0)
        total = (np.log(np.maximum(total, 1e-12)) - np.nanmean(logs, axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return np.nansum(total, axis=1)


def parts_of_table(events: pa.Table) -> Parts:
    """The parts of event scores with their details (`Scores.with_details`): rejection works on what was saved."""
    names = tuple(c[len("pct_") :] for c in events.column_names if c.startswith("pct_") and c != "pct_knn")

    def matrix(what: str) -> np.ndarray:
        columns = [pc.fill_null(events[f"{what}_{n}"].cast(pa.float64()), np.nan).to_numpy() for n in names]
        return np.stack(columns, axis=1)

    knn = pc.fill_null(events["knn"].cast(pa.float64()), np.nan).to_numpy()
    return Parts(names, matrix("error"), matrix("loss"), matrix("au"), matrix("eu"), knn)


def keep_surest(total: np.ndarray, share: float, threshold: float | None = None) -> np.ndarray:
    """Events to keep: the surest `share` of them, or those up to a threshold fixed beforehand. bool [n]."""
    if threshold is None:
        if not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {share}")
        threshold = float(np.quantile(total, share))
    return total <= raised(threshold)


def rejection_curve(errors: np.ndarray, total: np.ndarray, shares: np.ndarray | None = None) -> pa.Table:
    """Mean error of the surest events against the share kept: columns `kept`, `error`, `n`."""
    shares = np.linspace(0.05, 1.0, 20) if shares is None else np.asarray(shares)
    present = np.isfinite(errors)
    ranks = tied_ranks(total[present])  # equally certain events have their mean error, so their order is nothing
    sizes = np.bincount(ranks)
    by_certainty = np.repeat(np.bincount(ranks, errors[present]) / sizes, sizes)
    counts = np.maximum(1, np.round(shares * len(by_certainty)).astype(int))
    running = np.cumsum(by_certainty) / np.arange(1, len(by_certainty) + 1)
    means = running[counts - 1] if len(by_certainty) else np.full(len(shares), np.nan)
    return pa.table({"kept": shares, "error": means, "n": counts})


def rejection_curves(events: pa.Table, reference: Parts | None = None) -> pa.Table:
    """Error against the share kept, of every term of a score table and by both sums.

    Columns `by` (sum or standardised), `term`, `kept`, `error` (in the feature's own unit; for a category 1 − p of
    what was observed), `n`. `reference` are the calibration's parts; without them the events themselves.
    """
    parts = parts_of_table(events)
    curves = []
    for how in MEASURES:
        total = uncertainty(parts, how, reference)
        for i, name in enumerate(parts.names):
            curve = rejection_curve(parts.error[:, i], total)
            labels = {"by": [how] * len(curve), "term": [name] * len(curve)}
            curves.append(pa.table({**labels, **{c: curve[c] for c in curve.column_names}}))
    return pa.concat_tables(curves)


def reject(
    events: pa.Table,
    share: float,
    how: Measure = "sum",
    reference: Parts | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    threshold: float | None = None,
) -> tuple[pa.Table, float]:
    """Withhold the predictions of the least certain `share` of the events; returns the uncertainty that divides.

    Adds `uncertainty` and `withheld`. `labels` are words for terms, as in `withhold`. Of a part of the events, the
    `threshold` of all is given.
    """
    if not 0 < share < 1:
        raise ConfigError(f"the share to reject must lie between 0 and 1, got {share:g}")
    if how not in MEASURES:
        raise ConfigError(f"uncertainty '{how}' is not one of {', '.join(MEASURES)}")
    total = uncertainty(parts_of_table(events), how, reference)
    if threshold is None:
        threshold = float(np.quantile(total, 1 - share)) if len(total) else 0.0
    result = withhold(
        events.append_column("uncertainty", pa.array(total)), keep_surest(total, 1 - share, threshold), labels
    )
    return result, threshold


def withhold(events: pa.Table, keep: np.ndarray, labels: Mapping[str, str] | None = None) -> pa.Table:
    """The score table with predictions (`expected_*`, `spread_*`, intervals, sets, balls; what the evidence expected)
    empty where not kept.

    A reason that says what was expected gives way to one that names the most unusual term, in the words of `labels`
    (by default the term's name).
    """
    for name in _predictions(events.column_names):
        values = pc.if_else(pa.array(keep), events[name], pa.scalar(None, events[name].type))
        events = events.set_column(events.column_names.index(name), name, values)
    if "reason" in events.column_names:
        place = events.column_names.index("reason")
        events = events.set_column(place, "reason", pa.array(_guard_reasons(events, keep, labels or {}), pa.string()))
    if "evidence" in events.column_names:
        place = events.column_names.index("evidence")
        events = events.set_column(place, "evidence", withhold_expected(events["evidence"], keep))
    return events.append_column("withheld", pa.array(~keep))


def _predictions(names: list[str]) -> list[str]:
    """Columns that tell what was expected; a column of the user's own that begins alike (`set_id`) is none of them."""
    terms = {name.removeprefix(word) for word in ("expected_", "error_") for name in names if name.startswith(word)}
    about = ("spread_", "low_", "high_", "set_", "radius_", "inside_")
    return [n for n in names if n.startswith("expected_") or (n.startswith(about) and n.partition("_")[2] in terms)]


def _guard_reasons(events: pa.Table, keep: np.ndarray, labels: Mapping[str, str]) -> list[str | None]:
    """Reasons, those of events that are not kept without what was expected."""
    reasons: list[str | None] = events["reason"].to_pylist()
    percentiles = [c for c in events.column_names if c.startswith("pct_")]
    for row in np.flatnonzero(~keep):
        if reasons[row] is None:
            continue
        percentile = {c.removeprefix("pct_"): events[c][row].as_py() for c in percentiles}
        answers = {name: value for name, value in percentile.items() if value is not None and value == value}
        most = max(answers, key=lambda name: answers[name], default=None)
        reasons[row] = WITHHELD + (f"; most unusual: {labels.get(most, most)}." if most is not None else ".")
    return reasons


def agents_after(agents: pa.Table, events: pa.Table, entity: str) -> pa.Table:
    """The agent table after `reject`: an agent whose most unusual event is withheld has that event's new reason."""
    label = next((c for c in agents.column_names if c.startswith("worst_") and c != "worst_incident_id"), None)
    if label is None or "reason" not in agents.column_names:
        return agents
    withheld_events = events.filter(events["withheld"])
    names = (withheld_events[c].to_pylist() for c in (entity, label.removeprefix("worst_"), "reason"))
    new = {(who, what): reason for who, what, reason in zip(*names, strict=True)}
    rows = zip(*(agents[c].to_pylist() for c in (entity, label, "reason")), strict=True)
    reasons = pa.array([new.get((who, what), reason) for who, what, reason in rows], pa.string())
    return agents.set_column(agents.column_names.index("reason"), "reason", reasons)


def incidents_after(incidents: pa.Table, before: pa.Table, after: pa.Table) -> pa.Table:
    """The incident table after `reject`: a reason that came from a withheld event is that event's new one."""
    unusual = before["incident_id"].is_valid()
    columns = (
        table[name].filter(unusual) for table, name in ((before, "incident_id"), (before, "reason"), (after, "reason"))
    )
    new = {(name, old): text for name, old, text in zip(*(c.to_pylist() for c in columns), strict=True)}
    rows = zip(incidents["incident_id"].to_pylist(), incidents["reason"].to_pylist(), strict=True)
    reasons = pa.array([new.get((name, text), text) for name, text in rows], pa.string())
    return incidents.set_column(incidents.column_names.index("reason"), "reason", reasons)
