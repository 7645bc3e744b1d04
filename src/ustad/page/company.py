"""Who else: whether other people do this at this hour, who was there who is usually not, and who is usually there and
was missed.

In: an open connection and a stored event. Out: a small dictionary for the page. Only a few hours are searched, by the
index of time, and at most `MOST` events in them. Of the people who were there the first `MOST_NAMES` are looked up.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, and_, case, func, or_, select

from ustad.clock import MICROSECONDS_PER_DAY, local_time
from ustad.page.queries import E
from ustad.tables import TIMESTAMP

HOUR = 3_600_000_000
#: How far apart two people are still at one place, in degrees of latitude: about 150 m.
NEAR = 0.00135
#: Days that others are compared over, hours that a stay may have begun before, events looked at, people named.
DAYS, LONG, MOST, MOST_NAMES = 7, 12, 20_000, 10
#: Who was there at most so often before is usually not there.
SELDOM = 1
#: A person is usually there who was there at this hour on at least half of the same kind of days (weekdays, weekend
#: days) in WEEKS weeks, and on at least OFTEN days.
WEEKS, OFTEN = 2, 3


def company(connection: Connection, event: Any) -> dict[str, Any]:
    """What others did. Of those who began something at this hour on the days before: how many at such a place. Of those
    who were there at the same time: who is usually elsewhere. And who is usually there, but was not."""
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
    is_alike = case((rows.c.category == event["category"], rows.c.agent))
    query = select(func.count(func.distinct(rows.c.agent)), func.count(func.distinct(is_alike)))
    total, alike = connection.execute(query).one()
    return {"people": int(total), "alike": int(alike), "days": DAYS, "category": event["category"]}


def _others(connection: Connection, event: Any) -> dict[str, Any] | None:
    """People who were at this place while the event lasted, and those of them who hardly ever were before."""
    if event["lat"] is None or event["lon"] is None:
        return None
    span = (E.started_at >= event["started_at"] - LONG * HOUR, E.started_at < event["finished_at"])
    then = (*span, E.finished_at > event["started_at"], E.agent != event["agent"], *_near(event))
    names = connection.execute(select(E.agent).where(*then).distinct().order_by(E.agent).limit(MOST)).scalars().all()
    new = [(name, visits) for name in names[:MOST_NAMES] if (visits := _visits(connection, event, name)) <= SELDOM]
    absentees = _find_missed(connection, event, set(names))
    return {
        "people": len(names),
        "new": [{"agent_id": name, "visits": visits} for name, visits in new],
        "missed": absentees,
    }


def _find_missed(connection: Connection, event: Any, present: set[str]) -> list[dict[str, Any]]:
    """People who are usually here at this hour and were not. `days` counts the days of the two weeks before on which
    they were here. `where` is the kind of place where they were instead, null where nobody knows. They are looked for
    among those who were here on the latest such day and a week before."""
    middle = (event["started_at"] + event["finished_at"]) // 2
    alike = _alike_days(middle, event["timezone"])
    moments = [middle - day * MICROSECONDS_PER_DAY for day in alike]
    candidates: set[str] = set()
    for moment in (moments[0], moments[alike.index(7)]):
        query = select(E.agent).where(*_covers(moment), *_near(event)).distinct()
        candidates |= set(connection.execute(query.order_by(E.agent).limit(MOST_NAMES * 5)).scalars())
    absentees: list[dict[str, Any]] = []
    for name in sorted(candidates - present - {event["agent"]}):
        since = (E.agent == name, E.started_at > moments[-1] - LONG * HOUR, E.started_at <= middle)
        rows = connection.execute(
            select(E.started_at, E.finished_at, E.category, and_(*_near(event)).label("near")).where(*since)
        ).all()
        days = sum(any(r.started_at <= m < r.finished_at and r.near for r in rows) for m in moments)
        if days >= max(OFTEN, len(moments) / 2):
            where = next((r.category or "unknown" for r in rows if r.started_at <= middle < r.finished_at), None)
            absentees.append({"agent_id": name, "days": days, "of": len(moments), "where": where})
    return sorted(absentees, key=lambda person: -person["days"])[:MOST_NAMES]


def _alike_days(moment: int, zone: str) -> list[int]:
    """How many days before a moment those of the same kind are: weekdays before a weekday, within two weeks."""
    weekday = int(local_time(pa.array([moment], pa.int64()).cast(TIMESTAMP), zone).weekday[0])
    return [day for day in range(1, 7 * WEEKS + 1) if ((weekday - day) % 7 >= 5) == (weekday >= 5)]


def _covers(moment: int) -> tuple[Any, ...]:
    """Conditions on events that last at a moment and began at most `LONG` hours before."""
    return (E.started_at > moment - LONG * HOUR, E.started_at <= moment, E.finished_at > moment)


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
