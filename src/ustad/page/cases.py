"""Cases: incidents of one or several people that somebody follows, with a history that is only ever added to.

In: an open connection, who acts, and what they do. Out: plain dictionaries as `messages_cases` describes them. What a
case knows of its incidents is read from the events, so that a case and a list never disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from ustad.page import records as r
from ustad.page.queries import E, events_by_key, iso
from ustad.page.store import chunks, insert_new, now

LOOK_AGAIN = 3_600_000_000  # microseconds until the same person's look at a case is written down again
C, N, H = r.cases.c, r.case_incidents.c, r.case_history.c


# -------------------------------------------------------------------------------------------------- acts
def open_case(connection: Connection, by: str, keys: Sequence[int], *, title: str, assignee: str) -> int:
    """A new case of these incidents, given by any of their events that was scored."""
    moment = now()
    new_key = connection.execute(
        insert(r.cases).values(
            title=title, state="open", assignee=assignee, opened_at=moment, opened_by=by, changed_at=moment
        )
    ).inserted_primary_key
    assert new_key is not None
    case = int(new_key[0])
    write_history(connection, case, by, "opened", content=title)
    if assignee:
        write_history(connection, case, by, "assigned", content=assignee)
    attach(connection, case, by, keys)
    return case


def attach(connection: Connection, case: int, by: str, keys: Sequence[int]) -> None:
    """Add incidents; those that are there already are left as they are."""
    attached_keys = set(connection.execute(select(N.key).where(N.case_id == case)).scalars())
    for key, agent in leading_events(connection, keys):
        if key not in attached_keys:
            attached_keys.add(key)
            row = {"case_id": case, "key": key, "agent": agent, "attached_at": now()}
            insert_new(connection, r.case_incidents, [row])
            write_history(connection, case, by, "attached", content="", agent=agent, key=key)


def detach(connection: Connection, case: int, by: str, keys: Sequence[int]) -> None:
    """Take incidents out; the history keeps that they were there."""
    for key, agent in leading_events(connection, keys):
        if connection.execute(delete(r.case_incidents).where(N.case_id == case, N.key == key)).rowcount:
            write_history(connection, case, by, "detached", content="", agent=agent, key=key)


def set_fields(connection: Connection, case: int, by: str, **fields: str) -> None:
    """State, assignee or title; what does not change leaves no trace."""
    row = connection.execute(select(r.cases).where(C.id == case)).mappings().one()
    acts = {"state": "state", "assignee": "assigned", "title": "titled"}
    for name, value in fields.items():
        if value != row[name]:
            connection.execute(update(r.cases).where(C.id == case).values({name: value}))
            write_history(connection, case, by, acts[name], content=value)


def note_verdict(connection: Connection, key: int, by: str, verdict: str, *, reason: str) -> None:
    """Every case that holds the incident has in its history what was said of it."""
    leader = next(iter(leading_events(connection, [key])), None)
    if leader is not None:
        for case in connection.execute(select(N.case_id).where(N.key == leader[0])).scalars().all():
            text = f"{verdict}: {reason}" if reason else verdict
            write_history(connection, case, by, "verdict", content=text, agent=leader[1], key=leader[0])


def note_look(connection: Connection, case: int, by: str) -> None:
    """Who looked, once an hour."""
    last = select(func.max(H.at)).where(H.case_id == case, H.by == by)
    if (connection.execute(last).scalar() or 0) < now() - LOOK_AGAIN:
        write_history(connection, case, by, "looked", content="")


def write_history(
    connection: Connection, case: int, by: str, act: str, *, content: str, agent: str | None = None,
    key: int | None = None,
) -> None:  # fmt: skip
    moment = now()
    connection.execute(
        insert(r.case_history).values(case_id=case, at=moment, by=by, act=act, content=content, agent=agent, key=key)
    )
    if act != "looked":
        connection.execute(update(r.cases).where(C.id == case).values(changed_at=moment))


def leading_events(connection: Connection, keys: Sequence[int]) -> list[tuple[int, str]]:
    """(key, agent) of the event that leads each event's incident; unknown and unscored events are left out."""
    leaders: list[tuple[int, str]] = []
    for part in chunks(list(keys)):
        rows = connection.execute(
            select(E.key, E.agent, E.incident, E.echo).where(E.key.in_(part), E.score.is_not(None))
        )
        for row in rows.all():
            leader = row.key
            if row.incident is not None and row.echo:
                same = (E.agent == row.agent, E.incident == row.incident, E.echo.is_(False))
                leader = connection.execute(select(E.key).where(*same)).scalars().first() or row.key
            leaders.append((leader, row.agent))
    return leaders


# ------------------------------------------------------------------------------------------------ answers
def case_exists(connection: Connection, case: int) -> bool:
    return connection.execute(select(C.id).where(C.id == case)).first() is not None


def list_cases(
    connection: Connection, *, state: str | None, assignee: str | None, agent: str | None, limit: int, offset: int
) -> tuple[int, list[dict[str, Any]]]:
    """How many there are, and a page of them, the latest changed first."""
    conditions = [C.state == state] if state else []
    conditions += [C.assignee == assignee] if assignee else []
    conditions += [C.id.in_(select(N.case_id).where(N.agent == agent))] if agent else []
    total = connection.execute(select(func.count()).select_from(r.cases).where(*conditions)).scalar_one()
    query = select(r.cases).where(*conditions).order_by(C.changed_at.desc(), C.id.desc()).limit(limit).offset(offset)
    return total, _lines(connection, connection.execute(query).mappings().all())


def case_detail(connection: Connection, case: int) -> dict[str, Any] | None:
    """A case with its incidents by time and its whole history, oldest first; none where it is unknown."""
    row = connection.execute(select(r.cases).where(C.id == case)).mappings().first()
    if row is None:
        return None
    keys = list(connection.execute(select(N.key).where(N.case_id == case)).scalars())
    incidents = sorted(events_by_key(connection, keys), key=lambda e: (e["started_at"], e["id"]))
    history = connection.execute(select(r.case_history).where(H.case_id == case).order_by(H.id))
    return {
        "case": _lines(connection, [row])[0], "incidents": incidents, "history": [_entry(h) for h in history]
    }  # fmt: skip


def cases_of(connection: Connection, key: int) -> list[dict[str, Any]]:
    """The cases that hold the incident of an event."""
    leader = next(iter(leading_events(connection, [key])), None)
    if leader is None:
        return []
    query = select(r.cases).where(C.id.in_(select(N.case_id).where(N.key == leader[0]))).order_by(C.id)
    return _lines(connection, connection.execute(query).mappings().all())


def _lines(connection: Connection, rows: Sequence[Any]) -> list[dict[str, Any]]:
    agents: dict[int, list[str]] = {row["id"]: [] for row in rows}
    for part in chunks(list(agents)):
        query = select(N.case_id, N.agent).where(N.case_id.in_(part)).order_by(N.attached_at, N.key)
        for case, agent in connection.execute(query):
            agents[case].append(agent)
    return [
        {
            "id": str(row["id"]), "title": row["title"], "state": row["state"], "assignee": row["assignee"],
            "opened_at": iso(row["opened_at"]), "opened_by": row["opened_by"], "changed_at": iso(row["changed_at"]),
            "agents": list(dict.fromkeys(agents[row["id"]])), "n_incidents": len(agents[row["id"]]),
        }
        for row in rows
    ]  # fmt: skip


def _entry(row: Any) -> dict[str, Any]:
    return {
        "at": iso(row.at), "by": row.by, "act": row.act, "text": row.content, "agent_id": row.agent,
        "event_id": str(row.key) if row.key is not None else None,
    }  # fmt: skip
