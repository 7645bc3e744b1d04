"""Which events are like one that a person called expected: they are marked, never hidden.

Like means: the same agent, the same term drives the score, the same category, and, where both have a place, at most
`NEAR_KM` apart. A verdict counts until its expiry, by the start of the event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select, update

from ustad.geo import haversine_km
from ustad.page import records as r
from ustad.page.store import Row, chunks

NEAR_KM = 0.5


def is_like(event: Any, other: Any) -> bool:
    """Whether `event` is like the event that was judged."""
    if event["agent"] != other["agent"] or event["term"] != other["term"]:
        return False
    if event["category"] != other["category"]:
        return False
    places = (event["lat"], event["lon"], other["lat"], other["lon"])
    if any(v is None for v in places):
        return True
    return bool(haversine_km(*places) <= NEAR_KM)


def mark(connection: Connection, rows: Iterable[Row]) -> None:
    """Set `marked_by` of new alerts that a verdict in force calls expected."""
    alerts = [row for row in rows if row["alert"]]
    verdicts: dict[str, list[Any]] = {}
    for part in chunks(list({row["agent"] for row in alerts})):
        for verdict in connection.execute(_in_force().where(r.verdicts.c.agent.in_(part))).mappings():
            verdicts.setdefault(verdict["agent"], []).append(verdict)
    for row in alerts:
        row["marked_by"] = next((v["id"] for v in verdicts.get(row["agent"], []) if _covers(v, row)), None)


def mark_open(connection: Connection, verdict_id: Any) -> None:
    """Mark the alerts that are still open and like the one that was just called expected."""
    verdict = connection.execute(_in_force().where(r.verdicts.c.id == verdict_id)).mappings().first()
    if verdict is None:
        return
    e = r.events.c
    open_alerts = select(e.key, e.agent, e.term, e.category, e.lat, e.lon, e.started_at).where(
        e.agent == verdict["agent"], e.alert, e.verdict.is_(None), e.key != verdict["key"]
    )
    for row in connection.execute(open_alerts).mappings().all():
        if _covers(verdict, row):
            connection.execute(update(r.events).where(e.key == row["key"]).values(marked_by=verdict_id))


def unmark(connection: Connection, key: int) -> None:
    """Take back what earlier verdicts on this event marked."""
    verdict_ids = select(r.verdicts.c.id).where(r.verdicts.c.key == key)
    connection.execute(update(r.events).where(r.events.c.marked_by.in_(verdict_ids)).values(marked_by=None))


def _covers(verdict: Any, event: Any) -> bool:
    until = verdict["expires_at"]
    return (until is None or event["started_at"] < until) and is_like(event, verdict)


def _in_force() -> Any:
    """Verdicts `expected` that are the latest on their event, with what the event was."""
    e, v = r.events.c, r.verdicts.c
    columns = (v.id, v.key, v.expires_at, e.agent, e.term, e.category, e.lat, e.lon)
    return select(*columns).join_from(r.verdicts, r.events, (e.key == v.key) & (e.verdict == v.id)).where(
        v.verdict == "expected"
    )  # fmt: skip
