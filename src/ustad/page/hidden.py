"""Rules of the store that hide explained alerts: made by somebody, previewed, ended by hand or by their date.

What is hidden keeps its score and stays in the store; lists and totals leave it out and say how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from ustad.clock import iso_date
from ustad.page import records as r
from ustad.page.queries import E, V, events_by_key, iso
from ustad.page.store import Row, chunks, now, recount, with_own_scores
from ustad.triage.hiding import HidingRule

H = r.hiding_rules.c
PREVIEW_DAYS, PREVIEW_LINES = 30, 20
_COLUMNS = (E.key, E.agent, E.started_at, E.timezone, E.lat, E.lon, E.category, E.kind)


def rules_in_force(connection: Connection) -> list[tuple[int, HidingRule]]:
    """(id, rule) of those that nobody has ended; the date of each is looked at event by event."""
    rows = connection.execute(select(r.hiding_rules).where(H.ended_at.is_(None)).order_by(H.id))
    return [(row.id, _rule(row)) for row in rows]


def _rule(row: Any) -> HidingRule:
    hours = (row.from_minute, row.to_minute) if row.from_minute is not None else None
    return HidingRule(
        name=str(row.id), until=row.until, reason=row.reason, agent=row.agent, lat=row.lat, lon=row.lon,
        radius_km=row.radius_km, category=row.category, hours=hours, kind=row.kind,
    )  # fmt: skip


def hide_new(connection: Connection, rows: Iterable[Row]) -> None:
    """Set `hidden_by` of events that are about to be stored."""
    with_score = [row for row in rows if row["score"] is not None]
    rules = rules_in_force(connection) if with_score else []
    for row in with_score if rules else ():
        row["hidden_by"] = next((number for number, rule in rules if rule.covers(row)), None)


def add_rule(connection: Connection, rule: HidingRule, by: str) -> int:
    """Keep a rule and hide what it covers; returns its id."""
    begin, end = rule.hours or (None, None)
    primary_key = connection.execute(
        insert(r.hiding_rules).values(
            agent=rule.agent, lat=rule.lat, lon=rule.lon, radius_km=rule.radius_km, category=rule.category,
            from_minute=begin, to_minute=end, kind=rule.kind, until=rule.until, reason=rule.reason, made_by=by,
            made_at=now(),
        )
    ).inserted_primary_key  # fmt: skip
    assert primary_key is not None
    _hide(connection, int(primary_key[0]), rule)
    return int(primary_key[0])


def end_rule(connection: Connection, number: int, by: str) -> bool:
    """Undo a rule: what it hides is shown again, unless another rule hides it; whether there was one in force."""
    statement = update(r.hiding_rules).where(H.id == number, H.ended_at.is_(None)).values(ended_at=now(), ended_by=by)
    if not connection.execute(statement).rowcount:
        return False
    agents = list(connection.execute(select(E.agent).where(E.hidden_by == number).distinct()).scalars())
    connection.execute(update(r.events).where(E.hidden_by == number).values(hidden_by=None))
    for other, rule in rules_in_force(connection):
        _hide(connection, other, rule)
    _recount(connection, agents)
    return True


def _hide(connection: Connection, number: int, rule: HidingRule) -> None:
    rows = [row for row in _candidates(connection, rule) if rule.covers(row)]
    for part in chunks([row["key"] for row in rows]):
        connection.execute(update(r.events).where(E.key.in_(part), E.hidden_by.is_(None)).values(hidden_by=number))
    _recount(connection, sorted({row["agent"] for row in rows}))


def _recount(connection: Connection, agents: list[str]) -> None:
    """Totals and days of these agents count what is shown."""
    for part in chunks(agents):
        own_scores = with_own_scores(connection, part)
        for agent in part:
            recount(connection, agent, agent in own_scores)


def _candidates(connection: Connection, rule: HidingRule, *more: Any) -> list[Row]:
    """Scored events that the database can tell the rule may cover."""
    conditions = [E.score.is_not(None), E.started_at < rule.until, *more]
    for column, value in ((E.agent, rule.agent), (E.category, rule.category), (E.kind, rule.kind)):
        if value is not None:
            conditions.append(column == value)
    if rule.lat is not None:
        degrees = rule.radius_km / 110.0 + 1e-6
        conditions.append(E.lat.between(rule.lat - degrees, rule.lat + degrees))
    return [dict(row) for row in connection.execute(select(*_COLUMNS).where(*conditions)).mappings()]


def preview(connection: Connection, rule: HidingRule) -> dict[str, Any]:
    """What a rule would hide of the alerts of the last `PREVIEW_DAYS` days with a score, before it is made."""
    last = connection.execute(select(func.max(r.days.c.day))).scalar()
    first = (last or 0) - PREVIEW_DAYS + 1
    recent = (E.alert.is_(True), E.day >= first, E.hidden_by.is_(None))
    keys = [row["key"] for row in _candidates(connection, rule, *recent) if rule.covers(row)]
    alerts = connection.execute(select(func.count()).select_from(r.events).where(*recent)).scalar_one()
    n_confirmed = 0
    for part in chunks(keys):
        query = select(func.count()).select_from(r.events).join(r.verdicts, V.id == E.verdict)
        n_confirmed += connection.execute(query.where(E.key.in_(part), V.verdict == "confirmed")).scalar_one()
    examples = sorted(events_by_key(connection, keys[:500]), key=lambda e: (-e["score"], e["id"]))[:PREVIEW_LINES]
    return {
        "first_day": iso_date(first) if last is not None else None, "alerts": alerts, "hidden": len(keys),
        "confirmed": n_confirmed, "examples": examples,
    }  # fmt: skip


def list_rules(connection: Connection) -> list[dict[str, Any]]:
    """All rules, the latest first, with how many alerts each hides now."""
    query = select(E.hidden_by, func.count()).where(E.hidden_by.is_not(None), E.alert.is_(True)).group_by(E.hidden_by)
    hides = {row[0]: row[1] for row in connection.execute(query)}
    moment = now()
    return [
        {
            "id": str(row.id), "agent_id": row.agent, "lat": row.lat, "lon": row.lon,
            "radius_km": row.radius_km if row.lat is not None else None, "category": row.category,
            "from_minute": row.from_minute, "to_minute": row.to_minute, "kind": row.kind, "until": iso(row.until),
            "reason": row.reason, "by": row.made_by, "at": iso(row.made_at), "hides": hides.get(row.id, 0),
            "state": "ended" if row.ended_at is not None else "expired" if row.until <= moment else "in force",
        }
        for row in connection.execute(select(r.hiding_rules).order_by(H.id.desc()).limit(500))
    ]  # fmt: skip
