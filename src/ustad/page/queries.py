"""Reading the store for lists: agents, events, alerts, swim lanes, totals. Paged and aggregated by the database.

In: an open connection and filters. Out: plain dictionaries as `messages` describes them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, func, literal_column, select, text
from sqlalchemy.sql.elements import ColumnElement

from ustad.agent_order import order_note
from ustad.clock import iso_date, moment_at
from ustad.page import records as r
from ustad.page.other_stays import add_other_stays
from ustad.page.store import chunks
from ustad.ties import lowered

E, V, A, D = r.events.c, r.verdicts.c, r.agents.c, r.days.c
#: Not the bare column, whose index would lead through all events of a span to its few alerts.
MOMENT = E.started_at + literal_column("0")
#: Of one moment the one that came last.
LATEST_FIRST = (E.started_at.desc(), func.coalesce(E.arrived_at, literal_column("0")).desc(), E.event_id.desc(), E.key)
CONTEXT_EVENTS = 64  # of one agent, read back as its window
GAP_DAYS = 180  # without any score: what lies beyond is not of the same time
ODD_DAYS = 10  # that are named
#: Every day with a score, by hopping from one to the next through the index.
_DAYS = text(
    "WITH RECURSIVE each_day(day) AS (SELECT min(day) FROM days UNION ALL "
    "SELECT (SELECT min(days.day) FROM days WHERE days.day > each_day.day) FROM each_day "
    "WHERE each_day.day IS NOT NULL) "
    "SELECT day FROM each_day WHERE day IS NOT NULL"
)
HIDDEN = E.hidden_by.is_not(None) & E.alert.is_(True)  # alerts that rules hide
CURVE = 200  # alerts a day, the end of the slider


@dataclass(frozen=True)
class Filter:
    """What a list is narrowed to. Times in microseconds, days as local dates since 1970-01-01."""

    agent: str | None = None
    search: str | None = None
    first: int | None = None
    last: int | None = None
    kind: str | None = None
    category: str | None = None
    min_score: float | None = None
    state: str | None = None  # open, confirmed, expected, wrong, marked, hidden; none: all but hidden
    first_day: int | None = None
    last_day: int | None = None  # itself included
    raised: bool = False  # only what was an alert when it came, also with min_score
    watched: bool = False  # only people on the watchlist

    def conditions(self) -> list[ColumnElement[bool]]:
        """The same for the table of events."""
        conditions: list[ColumnElement[bool]] = []
        if self.agent is not None:
            conditions.append(E.agent == self.agent)
        if self.search:
            conditions.append(E.agent.contains(self.search, autoescape=True))
        if self.first is not None:
            conditions.append(self.first <= MOMENT)
        if self.last is not None:
            conditions.append(self.last > MOMENT)
        if self.first_day is not None:
            conditions.append(E.day >= self.first_day)
        if self.last_day is not None:
            conditions.append(E.day <= self.last_day)
        if self.kind is not None:
            conditions.append(E.kind == self.kind)
        if self.category is not None:
            conditions.append(E.category == self.category)
        if self.min_score is not None:
            conditions += [E.score >= lowered(self.min_score), E.echo.is_(False)]
        if self.raised:
            conditions.append(E.alert.is_(True))
        if self.watched:
            conditions.append(E.agent.in_(select(r.watchlist.c.agent)))
        return conditions + self._state()

    def _state(self) -> list[ColumnElement[bool]]:
        if self.state == "hidden":
            return [E.hidden_by.is_not(None)]
        is_shown = E.hidden_by.is_(None)
        if self.state == "open":
            return [is_shown, E.verdict.is_(None), E.marked_by.is_(None)]
        if self.state == "marked":
            return [is_shown, E.verdict.is_(None), E.marked_by.is_not(None)]
        return [V.verdict == self.state] if self.state else [is_shown]


# ------------------------------------------------------------------------------------------------- events
def _event_rows() -> Select[Any]:
    verdict_columns = (
        V.verdict.label("judgement"),
        V.reason.label("because"),
        V.note,
        V.expires_at,
        V.given_by,
        V.given_at,
    )
    return select(r.events, *verdict_columns).join_from(r.events, r.verdicts, V.id == E.verdict, isouter=True)


def event_answer(row: Any) -> dict[str, Any]:
    """One event as lists show it."""
    has_verdict = row.judgement is not None and row.judgement != "open"
    verdict = {
        "verdict": row.judgement, "reason": row.because, "note": row.note, "by": row.given_by,
        "until": iso(row.expires_at) if row.expires_at is not None else None, "at": iso(row.given_at),
    } if has_verdict else None  # fmt: skip
    return {
        "id": str(row.key), "event_id": row.event_id, "agent_id": row.agent, "started_at": iso(row.started_at),
        "finished_at": iso(row.finished_at), "day": iso_date(row.day), "timezone": row.timezone,
        "lat": row.lat, "lon": row.lon, "category": row.category, "place_name": row.place_name, "score": row.score,
        "p_value": row.p_value, "alert": bool(row.alert), "final": bool(row.final),
        "incident_id": row.incident, "echo": bool(row.echo), "with_it": None, "led_by": None,
        "kind": row.kind, "term": row.term, "reason": row.reason, "verdict": verdict,
        "marked_by": str(row.marked_by) if row.marked_by is not None else None,
        "hidden_by": str(row.hidden_by) if row.hidden_by is not None else None,
    }  # fmt: skip


def fresh_answer(row: dict[str, Any]) -> dict[str, Any]:
    """The same of a row that was just written: nobody has judged it."""
    return event_answer(SimpleNamespace(**row, judgement=None))


def events_by_key(connection: Connection, keys: Sequence[int]) -> list[dict[str, Any]]:
    """Events as answers, in no particular order; unknown keys are left out."""
    answers = []
    for part in chunks(keys):
        answers += [event_answer(row) for row in connection.execute(_event_rows().where(E.key.in_(part)))]
    return add_other_stays(connection, answers)


def recent_events(connection: Connection, agents: Sequence[str], most: int = CONTEXT_EVENTS) -> list[dict[str, Any]]:
    """The latest events of each agent, oldest first, with what the model reads beyond the store's columns."""
    latest = func.row_number().over(partition_by=E.agent, order_by=LATEST_FIRST)
    by_rank = select(r.events, latest.label("place")).where(E.agent.in_(agents)).subquery()
    query = select(by_rank, r.details.c.content).join_from(
        by_rank, r.details, r.details.c.key == by_rank.c.key, isouter=True
    )
    query = query.where(by_rank.c.place <= most).order_by(by_rank.c.agent, by_rank.c.place.desc())
    rows = [dict(row) for row in connection.execute(query).mappings()]
    for row in rows:
        row["given"] = json.loads(row["content"]).get("given") if row["content"] else None
    return rows


def live_states(connection: Connection, agents: Sequence[str], model: str) -> dict[str, bytes]:
    """What live scores of this model hold of each agent, where the store has it."""
    s = r.live_states.c
    query = select(s.agent, s.content).where(s.agent.in_(agents), s.model == model)
    return {row.agent: bytes(row.content) for row in connection.execute(query)}


def agent_events(
    connection: Connection, agent: str, first: int | None, last: int | None, *, limit: int, offset: int
) -> tuple[int, list[dict[str, Any]]]:
    """How many there are in the span, and a page of them, latest first."""
    conditions = [E.agent == agent]
    conditions += [E.started_at >= first] if first is not None else []
    conditions += [E.started_at < last] if last is not None else []
    total = connection.execute(select(func.count()).select_from(r.events).where(*conditions)).scalar_one()
    query = _event_rows().where(*conditions).order_by(*LATEST_FIRST).limit(limit).offset(offset)
    return total, add_other_stays(connection, [event_answer(row) for row in connection.execute(query)])


# ------------------------------------------------------------------------------------------------- alerts
def alerts(
    connection: Connection, filters: Filter, since: int, order: str, *, limit: int, offset: int
) -> tuple[int, int, list[dict[str, Any]]]:
    """Total, the sequence number to ask on from, and a page of alerts.

    With `min_score` in the filter every event with at least that score counts, whether or not it was an alert when it
    came. `raised` leaves only those that were.
    """
    latest = connection.execute(select(func.max(r.alerts.c.seq))).scalar() or 0
    conditions = filters.conditions()
    query = _event_rows()
    if filters.min_score is None or since:
        conditions.append(E.alert.is_(True))
    if since:
        query = query.join(r.alerts, r.alerts.c.key == E.key)
        conditions.append(r.alerts.c.seq > since)
    query = query.where(*conditions)
    total = connection.execute(select(func.count()).select_from(query.order_by(None).subquery())).scalar_one()
    by = {"score": (E.score.desc(), E.key), "time": (MOMENT.desc(), E.key)}[order]
    rows = connection.execute(query.order_by(*by).limit(limit).offset(offset))
    return total, max(latest, since), add_other_stays(connection, [event_answer(row) for row in rows])


def alerts_after(connection: Connection, since: int, limit: int = 100) -> list[tuple[int, dict[str, Any]]]:
    """New alerts in the order they came, each with its sequence number."""
    query = _event_rows().add_columns(r.alerts.c.seq).join(r.alerts, r.alerts.c.key == E.key)
    fresh = (r.alerts.c.seq > since, E.hidden_by.is_(None))
    rows = connection.execute(query.where(*fresh).order_by(r.alerts.c.seq).limit(limit))
    return [(row.seq, event_answer(row)) for row in rows]


def latest_alert(connection: Connection) -> int:
    return int(connection.execute(select(func.max(r.alerts.c.seq))).scalar() or 0)


# ------------------------------------------------------------------------------------------------- agents
def _agent_rows() -> Select[Any]:
    """Agents, with the p-value of their most unusual event: the agent's own where nobody judged a whole period."""
    return select(r.agents, E.p_value.label("worst_p_value")).join_from(
        r.agents, r.events, E.key == A.worst, isouter=True
    )


def agent_answer(row: Row[Any]) -> dict[str, Any]:
    return {
        "agent_id": row.agent, "timezone": row.timezone, "first_at": iso(row.first_at), "last_at": iso(row.last_at),
        "n_events": row.n_events, "n_scored": row.n_scored, "n_alerts": row.n_alerts, "score": row.score,
        "p_value": row.p_value, "worst": str(row.worst) if row.worst is not None else None, "reason": row.reason,
        "change": row.change,
        "order_note": None if row.p_value == row.worst_p_value else order_note(row.n_alerts, row.p_value),
    }  # fmt: skip


def agent(connection: Connection, name: str) -> dict[str, Any] | None:
    row = connection.execute(_agent_rows().where(A.agent == name)).first()
    return agent_answer(row) if row is not None else None


def agents(
    connection: Connection, search: str | None, min_score: float | None, limit: int, *, offset: int
) -> tuple[int, list[dict[str, Any]]]:
    """Agents, those with an alert first, then by score; those without a score last."""
    conditions = [A.agent.contains(search, autoescape=True)] if search else []
    if min_score is not None:
        conditions.append(A.score >= lowered(min_score))
    total = connection.execute(select(func.count()).select_from(r.agents).where(*conditions)).scalar_one()
    order = (A.score.is_(None), A.n_alerts == 0, A.score.desc(), A.agent)  # as `order_agents`
    query = _agent_rows().where(*conditions).order_by(*order)
    return total, [agent_answer(row) for row in connection.execute(query.limit(limit).offset(offset))]


# -------------------------------------------------------------------------------------------------- lanes
def lanes(
    connection: Connection, filters: Filter, first_day: int, last_day: int, *, limit: int, offset: int
) -> tuple[int, list[dict[str, Any]]]:
    """Agents by their highest score within the days, each with one cell a day: score, events, alerts, worst.

    Narrowed by kind, category or verdict, they are those whose alerts match; by score, whose events do, or with
    `raised` whose alerts do. A score alone is looked for among the days, of which there are fewer than events.
    """
    if filters.kind or filters.category or filters.state or filters.raised:
        is_scored = [E.score.is_not(None)] if filters.min_score is not None else [E.alert.is_(True)]
        name = func.coalesce(E.agent, literal_column("''")).label(
            "agent"
        )  # by the column itself SQLite walks all events
        source = select(name, func.max(E.score).label("top")).where(
            *is_scored, E.day.between(first_day, last_day), *filters.conditions()
        )
        if filters.state in ("confirmed", "expected", "wrong"):
            source = source.join_from(r.events, r.verdicts, V.id == E.verdict)
        by_score = source.group_by(name).subquery()
    else:
        conditions = [D.agent.contains(filters.search, autoescape=True)] if filters.search else []
        if filters.min_score is not None:
            conditions.append(D.score >= lowered(filters.min_score))
        if filters.watched:
            conditions.append(D.agent.in_(select(r.watchlist.c.agent)))
        inside = (D.day + literal_column("0")).between(first_day, last_day)  # through the index that has scores too
        by_score = (
            select(D.agent, func.max(D.score).label("top")).where(inside, *conditions).group_by(D.agent).subquery()
        )
    page = select(by_score.c.agent, func.count().over().label("total"))
    rows = connection.execute(page.order_by(by_score.c.top.desc(), by_score.c.agent).limit(limit).offset(offset)).all()
    names = [row.agent for row in rows]
    total = rows[0].total if rows else connection.execute(select(func.count()).select_from(by_score)).scalar_one()
    cells: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    reasons = select(r.days, E.reason, E.kind, E.echo).join_from(r.days, r.events, E.key == D.worst, isouter=True)
    for part in chunks(names):
        cell_rows = connection.execute(reasons.where(D.agent.in_(part), D.day.between(first_day, last_day)))
        for row in cell_rows:
            cells[row.agent].append({
                "day": iso_date(row.day), "score": row.score, "events": row.n_events, "alerts": row.n_alerts,
                "worst": str(row.worst), "reason": row.reason, "kind": row.kind, "echo": bool(row.echo),
            })  # fmt: skip
    return total, [{"agent_id": name, "cells": sorted(cells[name], key=lambda c: c["day"])} for name in names]


# ------------------------------------------------------------------------------------------------- totals
def span(connection: Connection) -> tuple[int, int] | None:
    """First and last day with a score; none while nothing was scored.

    The span is of the stretch of days with the most events. Days that lie half a year without any score away from it
    are left out, such as one event dated 1970.
    """
    stretches: list[list[int]] = []
    for day in connection.execute(_DAYS).scalars():
        if stretches and day - stretches[-1][1] <= GAP_DAYS:
            stretches[-1][1] = int(day)
        else:
            stretches.append([int(day), int(day)])
    if not stretches:
        return None
    if len(stretches) > 1:
        inside = select(func.sum(D.n_events)).where(D.day.between(bindparam("first"), bindparam("last")))
        stretches.sort(key=lambda s: (connection.execute(inside, {"first": s[0], "last": s[1]}).scalar_one(), s[1]))
    return stretches[-1][0], stretches[-1][1]


def odd_days(connection: Connection, both: tuple[int, int] | None) -> list[dict[str, Any]]:
    """Days far from all others with how many events were scored there: their clock was wrong."""
    if both is None:
        return []
    query = select(D.day, func.sum(D.n_events).label("events")).group_by(D.day).order_by(D.day).limit(ODD_DAYS)
    beyond = (D.day < both[0], D.day > both[1])  # each for itself: an "or" of both would read every day
    rows = [row for outside in beyond for row in connection.execute(query.where(outside))]
    return [{"day": iso_date(row.day), "events": int(row.events)} for row in rows[:ODD_DAYS]]


def totals(connection: Connection) -> dict[str, Any]:
    """Counts, the span of days, the least score of an alert, and the curve behind the slider: score and p-value at
    1 … `CURVE` alerts a day."""
    both = span(connection)
    n_scored, n_alerts, n_known = connection.execute(
        select(func.sum(A.n_scored), func.sum(A.n_alerts), func.count()).select_from(r.agents)
    ).one()
    n_days = both[1] - both[0] + 1 if both else 0
    odd = odd_days(connection, both)
    lowest, likeliest = connection.execute(
        select(func.min(E.score), func.max(E.p_value)).where(E.alert.is_(True), E.hidden_by.is_(None))
    ).one()
    return {
        "events": int(n_scored or 0), "agents": int(n_known), "alerts": int(n_alerts or 0), "days": n_days,
        "hidden": int(connection.execute(select(func.count()).select_from(r.events).where(HIDDEN)).scalar_one()),
        "first_day": iso_date(both[0]) if both else None, "last_day": iso_date(both[1]) if both else None,
        "alert_score": lowest, "alert_p_value": likeliest, "unusual": _count_unusual(connection, lowest),
        "curve": _curve(connection, n_days, both if odd else None), "odd_days": odd,
        "kinds": _choices(connection, E.kind), "categories": _choices(connection, E.category),
    }  # fmt: skip


def _count_unusual(connection: Connection, least: float | None) -> int:
    """Events as unusual as the mildest alert, those that belong to the incident of another one included."""
    if least is None:
        return 0
    return int(connection.execute(select(func.count()).select_from(r.events).where(E.score >= least)).scalar_one())


def _curve(connection: Connection, n_days: int, within: tuple[int, int] | None) -> list[dict[str, float]]:
    """`within`: only events of these days; all of them where none are odd, which an index holds."""
    if not n_days:
        return []
    query = (
        select(E.score, E.p_value)
        .where(E.score.is_not(None), E.echo.is_(False))
        .order_by(E.score.desc())
        .limit(CURVE * n_days)
    )
    if within is not None:
        query = query.where(E.day.between(*within))
    top = connection.execute(query).all()
    ranks = [per_day * n_days - 1 for per_day in range(1, CURVE + 1)]
    return [
        {"per_day": i + 1, "score": top[rank].score, "p_value": top[rank].p_value}
        for i, rank in enumerate(ranks) if rank < len(top)
    ]  # fmt: skip


def _choices(connection: Connection, column: Any) -> list[str]:
    """The values that alerts have, the most frequent first."""
    query = select(column, func.count().label("n")).where(E.alert.is_(True), column.is_not(None))
    rows = connection.execute(query.group_by(column).order_by(func.count().desc()).limit(50))
    return [row[0] for row in rows]


def frequent_categories(connection: Connection) -> list[str]:
    """The categories of all events, the most frequent first."""
    query = select(E.category).where(E.category.is_not(None)).group_by(E.category)
    return list(connection.execute(query.order_by(func.count().desc(), E.category).limit(50)).scalars())


# --------------------------------------------------------------------------------------------------- time
def iso(microseconds: int) -> str:
    """ISO 8601 in UTC."""
    return moment_at(int(microseconds)).isoformat().replace("+00:00", "Z")
