"""Unusual days of everybody among the scores of a store: one note each, for those who look at live alerts.

In: an open connection. Out: the days that `triage.unusual_days` finds. What is unusual counts to the day of its
middle, as in bulk; people count to the days on which their events begin.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, func, select

from ustad.clock import local_time
from ustad.page.queries import D, E
from ustad.tables import TIMESTAMP
from ustad.triage.unusual_days import LEVEL, UnusualDay, judge_days

#: Days that are compared, up to the latest.
SPAN = 60


def unusual_days_in_store(connection: Connection) -> list[UnusualDay]:
    """Of the latest two months; the latest day itself may not be over and is left out."""
    last = connection.execute(select(func.max(D.day))).scalar()
    if last is None:
        return []
    inside = (D.day >= last - SPAN, D.day < last)
    counts = connection.execute(select(D.day, func.count()).where(*inside).group_by(D.day).order_by(D.day)).all()
    days = np.array([row[0] for row in counts], np.int64)
    people = np.array([row[1] for row in counts], np.int64)
    columns = (E.agent, E.started_at, E.finished_at, E.timezone, E.p_value, E.term)
    rows = connection.execute(select(*columns).where(E.p_value <= LEVEL, E.day >= last - SPAN - 1, E.day < last)).all()
    worst = _worst_by_day(rows)
    terms = sorted({term for _, term in worst.values()})
    leads = {term: np.zeros(len(days), np.int64) for term in terms}
    unusual = np.zeros(len(days), np.int64)
    for (day, _), (_, term) in worst.items():
        at = int(np.searchsorted(days, day))
        if at < len(days) and days[at] == day:
            unusual[at] += 1
            leads[term][at] += 1
    return judge_days(days, people, np.minimum(unusual, people), leads)


def _worst_by_day(rows: Iterable[Any]) -> dict[tuple[int, str], tuple[float, str]]:
    """By local day of the middle and agent: the smallest p-value, and the question that led there."""
    rows = list(rows)
    if not rows:
        return {}
    middle = pa.array([(row.started_at + row.finished_at) // 2 for row in rows], pa.int64()).cast(TIMESTAMP)
    day = local_time(middle, pa.array([row.timezone for row in rows], pa.string())).day.tolist()
    worst: dict[tuple[int, str], tuple[float, str]] = {}
    for row, when in zip(rows, day, strict=True):
        one = (row.p_value, row.term or "")
        if (when, row.agent) not in worst or one[0] < worst[when, row.agent][0]:
            worst[when, row.agent] = one
    return worst
