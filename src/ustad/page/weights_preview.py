"""What weights that verdicts taught would change of the alerts in the store, before they count."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, select

from ustad.clock import iso_date
from ustad.page import records as r
from ustad.page.queries import E, V
from ustad.page.store import chunks
from ustad.page.stored_evidence import unpack_evidence
from ustad.triage.verdict_weights import is_alert_by_weights

PREVIEW_DAYS = 30
#: Of the most unusual incidents so many are looked at; below them no weight makes an alert of one in practice.
MOST = 5_000


def preview_weights(connection: Connection, weights: Mapping[str, float], p_value: float) -> dict[str, Any]:
    """Of incidents of the last `PREVIEW_DAYS` days with a score: how many are alerts by score, how many of them would
    go and are confirmed, and how many others would come. Rules are left aside."""
    last = connection.execute(select(func.max(r.days.c.day))).scalar()
    first = (last or 0) - PREVIEW_DAYS + 1
    columns = (E.key, E.p_value, V.verdict)
    query = select(*columns).join_from(r.events, r.verdicts, V.id == E.verdict, isouter=True)
    leading = (E.score.is_not(None), E.echo.is_(False), E.incident.is_not(None), E.day >= first)
    rows = connection.execute(query.where(*leading).order_by(E.score.desc(), E.key).limit(MOST)).all()
    counts = {"alerts": 0, "go": 0, "confirmed": 0, "come": 0}
    evidence = _read_evidence(connection, [row.key for row in rows])
    for row in rows:
        was = row.p_value <= p_value
        is_alert = is_alert_by_weights(row.p_value, evidence.get(row.key, []), weights, p_value)
        counts["alerts"] += was
        counts["go"] += was and not is_alert
        counts["confirmed"] += was and not is_alert and row.verdict == "confirmed"
        counts["come"] += is_alert and not was
    return {"first_day": iso_date(first) if last is not None else None, **counts}


def _read_evidence(connection: Connection, keys: list[int]) -> dict[int, list[dict[str, Any]]]:
    """The evidence of events as it is kept in the store."""
    evidence = {}
    for part in chunks(keys):
        for row in connection.execute(select(r.details.c.key, r.details.c.content).where(r.details.c.key.in_(part))):
            evidence[row.key] = unpack_evidence(json.loads(row.content))
    return evidence
