"""Who else: whether other people do this at this hour, and who was there at the same time who is usually not.

In: an open connection and a stored event. Out: a small dictionary for the page. Only a few hours are looked through, by
the index of time, and at most `MOST` events of them; of those who were there the first `SHOWN` are looked up.
"""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import Connection, and_, func, or_, select

from ustad.clock import MICROSECONDS_PER_DAY
from ustad.page.queries import E

HOUR = 3_600_000_000
#: How far apart two people are still at one place, in degrees of latitude: about 150 m.
NEAR = 0.00135
#: Days that others are compared over, hours that a stay may have begun before, events looked at, people named.
DAYS, LONG, MOST, SHOWN = 7, 12, 20_000, 10
#: Who was there at most so often before is usually not there.
SELDOM = 1


def company(connection: Connection, event: Any) -> dict[str, Any]:
    """What others did: of those who began something at this hour on the days before, how many at such a place; and of
    those who were there at the same time, who is usually not."""
    return {"peers": _peers(connection, event), "others": _others(connection, event)}


def _peers(connection: Connection, event: Any) -> dict[str, Any] | None:
    """People whose event began within an hour of this time of day on the seven days before."""
    if event["category"] is None:
        return None
    hours = []
    for day in range(1, DAYS + 1):
        moment = event["started_at"] - day * MICROSECONDS_PER_DAY
        hours.append(and_(E.started_at >= moment - HOUR, E.started_at <= moment + HOUR))
    rows = select(E.agent, E.category).where(or_(*hours), E.agent != event["agent"]).limit(MOST).subquery()
    people = func.count(func.distinct(rows.c.agent))
    total = connection.execute(select(people)).scalar_one()
    alike = connection.execute(select(people).where(rows.c.category == event["category"])).scalar_one()
    return {"people": int(total), "alike": int(alike), "days": DAYS, "category": event["category"]}


def _others(connection: Connection, event: Any) -> dict[str, Any] | None:
    """People who were at this place while the event lasted, and those of them who hardly ever were before."""
    if event["lat"] is None or event["lon"] is None:
        return None
    span = (E.started_at >= event["started_at"] - LONG * HOUR, E.started_at < event["finished_at"])
    then = (*span, E.finished_at > event["started_at"], E.agent != event["agent"], *_near(event))
    names = connection.execute(select(E.agent).where(*then).distinct().order_by(E.agent).limit(MOST)).scalars().all()
    new = [(name, visits) for name in names[:SHOWN] if (visits := _visits(connection, event, name)) <= SELDOM]
    return {"people": len(names), "new": [{"agent_id": name, "visits": visits} for name, visits in new]}


def _visits(connection: Connection, event: Any, agent: str) -> int:
    """How often somebody was there before, by the index of people."""
    before = (E.agent == agent, E.started_at < event["started_at"] - LONG * HOUR, *_near(event))
    return int(connection.execute(select(func.count()).where(*before)).scalar_one())


def _near(event: Any) -> tuple[Any, ...]:
    """Conditions on a place: within about 150 m in both directions."""
    wide = NEAR / max(math.cos(math.radians(event["lat"])), 0.01)
    return (
        E.lat >= event["lat"] - NEAR, E.lat <= event["lat"] + NEAR, E.lon >= event["lon"] - wide,
        E.lon <= event["lon"] + wide,
    )  # fmt: skip
