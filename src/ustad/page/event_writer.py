"""Writing scored events: the event, its detail, its alert, and the totals of its agent and day, in one transaction.

In: rows for `records.events` with their details as JSON text. What is already there must have been left out before.
A score that was provisional is made final here, when the event after it has come; totals follow.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table, and_, bindparam, case, func, insert, or_, select, update

from ustad import ties
from ustad.page import likeness
from ustad.page import records as r
from ustad.page.hidden import hide_new
from ustad.page.store import Row, chunks, insert_or, now, recount, with_own_scores

_NEW_EVENT, _NEW_DETAIL, _NEW_ALERT = insert(r.events), insert(r.details), insert(r.alerts)
_EVENTS_OF_KEYS = select(r.events).where(r.events.c.key.in_(bindparam("keys", expanding=True)))
_FINAL = ("score", "p_value", "alert", "echo", "reason", "term", "marked_by")
_SETTLE = update(r.events).where(r.events.c.key == bindparam("at")).values(final=True)
_RAISE = _SETTLE.values({name: bindparam(name) for name in _FINAL})


def add_events(connection: Connection, rows: list[Row], details: dict[int, str]) -> None:
    """Insert events and keep totals. Rows without a score are known, not judged."""
    if not rows:
        return
    hide_new(connection, rows)
    first = _arrivals(len(rows))
    connection.execute(_NEW_EVENT, [{**row, "arrived_at": first + i} for i, row in enumerate(rows)])
    if details:
        connection.execute(_NEW_DETAIL, [{"key": k, "content": text} for k, text in details.items()])
    _add_alerts(connection, [row["key"] for row in rows if row["alert"]])
    _add(connection, r.agents, _sum(rows, _of_agent, lambda row: row["agent"]))
    rows_with_score = [row for row in rows if row["score"] is not None]
    _add(connection, r.days, _sum(rows_with_score, _of_day, lambda row: (row["agent"], row["day"])))


_latest, _counting = [0], threading.Lock()


def _arrivals(count: int) -> int:
    """The first of so many numbers that count up with every event: microseconds, or the next where two would meet."""
    with _counting:
        first = max(now(), _latest[0] + 1)
        _latest[0] = first + count - 1
    return first


def finalise(connection: Connection, finals: Mapping[int, Mapping[str, Any]]) -> list[int]:
    """Set the final score, p-value, alert and reason of stored events, by key; returns those that became alerts."""
    if not finals:
        return []
    rows_before = [
        dict(row)
        for part in chunks(list(finals))
        for row in connection.execute(_EVENTS_OF_KEYS, {"keys": part}).mappings()
    ]
    if not rows_before:  # retention has deleted them since
        return []
    connection.execute(_SETTLE, [{"at": row["key"]} for row in rows_before])
    changes = [_apply_final(row, finals[row["key"]]) for row in rows_before if _differs(row, finals[row["key"]])]
    if not changes:
        return []
    fell = sorted({row["agent"] for row in changes if row["score"] < row["was"]["score"]})
    own_scores = with_own_scores(connection, fell) if fell else set()
    became = [row for row in changes if row["alert"] and not row["was"]["alert"]]
    likeness.mark(connection, became)
    connection.execute(_RAISE, [{"at": row["key"], **{name: row[name] for name in _FINAL}} for row in changes])
    _add_alerts(connection, [row["key"] for row in became])
    _add(connection, r.agents, _sum(changes, _of_agent, lambda row: row["agent"]))
    _add(connection, r.days, _sum(changes, _of_day, lambda row: (row["agent"], row["day"])))
    for agent in fell:
        recount(connection, agent, agent in own_scores)
    return [row["key"] for row in became]


def keep_changes(connection: Connection, changes: Mapping[str, str]) -> None:
    """What has changed for good in the lives of agents, in words; it stays until there is something newer."""
    if changes:
        change = update(r.agents).where(r.agents.c.agent == bindparam("at")).values(change=bindparam("words"))
        connection.execute(change, [{"at": agent, "words": words} for agent, words in changes.items()])


def keep_states(connection: Connection, states: Mapping[str, bytes], model: str) -> None:
    """What live scores hold of each agent, in the transaction of the events it comes from."""
    if states:
        rows = [{"agent": agent, "model": model, "content": content} for agent, content in states.items()]
        connection.execute(_replacing(connection.dialect.name), rows)


@cache
def _replacing(dialect: str) -> Any:
    statement = insert_or(r.live_states, dialect)
    new = {name: statement.excluded[name] for name in ("model", "content")}
    return statement.on_conflict_do_update(index_elements=["agent"], set_=new)


def _differs(row: Row, final: Mapping[str, Any]) -> bool:
    if row["score"] is None:
        return False
    return any(final.get(name, row[name]) != row[name] for name in ("score", "alert", "echo"))


def _apply_final(row: Row, final: Mapping[str, Any]) -> Row:
    """The stored row with its final score; `was` is what it was."""
    words = {name: final[name] for name in ("reason", "term") if final.get(name) is not None}
    scores = {name: final.get(name, row[name]) for name in ("score", "p_value")}
    flags = {"alert": bool(final.get("alert")) or bool(row["alert"]), "echo": bool(final.get("echo", row["echo"]))}
    return {**row, **scores, **words, **flags, "was": row}


def _add_alerts(connection: Connection, keys: list[int]) -> None:
    if keys:
        connection.execute(_NEW_ALERT, [{"key": key, "created_at": now()} for key in keys])


# ------------------------------------------------------------------------------------------------- totals
def _sum(rows: Iterable[Row], one: Any, identity: Any) -> list[Row]:
    """What rows add to the totals of their agents or days: one row each, numbers summed, the highest score kept."""
    totals: dict[Any, Row] = {}
    for row in rows:
        new, old = one(row), totals.get(identity(row))
        if old is None:
            totals[identity(row)] = new
            continue
        best = new if _is_higher(new["score"], old["score"]) else old
        sums: Row = {name: old[name] + new[name] for name in ("n_events", "n_scored", "n_alerts") if name in old}
        totals[identity(row)] = {**best, **sums, **_span(old, new)}
    return list(totals.values())


def _is_higher(new: float | None, old: float | None) -> bool:
    return old is None or (new is not None and new > ties.raised(old))


def _span(old: Row, new: Row) -> Row:
    if "last_at" not in old:
        return {}
    latest = new if new["last_at"] >= old["last_at"] else old
    return {
        "first_at": min(old["first_at"], new["first_at"]), "last_at": latest["last_at"], "timezone": latest["timezone"]
    }  # fmt: skip


def _of_agent(row: Row) -> Row:
    has_score = row["score"] is not None
    return {
        "agent": row["agent"], "timezone": row["timezone"], "first_at": row["started_at"],
        "last_at": row["finished_at"], **_counts(row), "n_scored": int(has_score and "was" not in row),
        "score": row["score"], "p_value": row["p_value"], "worst": row["key"] if has_score else None,
        "reason": row["reason"],
    }  # fmt: skip


def _of_day(row: Row) -> Row:
    return {"agent": row["agent"], "day": row["day"], "score": row["score"], **_counts(row), "worst": row["key"]}


def _counts(row: Row) -> Row:
    """An event counts once: what was there before (`was`) adds only the alert that it became."""
    was = row.get("was")
    is_new_alert = bool(row["alert"]) and row.get("hidden_by") is None and not (was and was["alert"])
    return {"n_events": int(was is None), "n_alerts": int(is_new_alert)}


def _add(connection: Connection, table: Table, rows: list[Row]) -> None:
    if rows:
        connection.execute(_adding(table, connection.dialect.name), rows)


@cache
def _adding(table: Table, dialect: str) -> Any:
    """Insert a total, or add to the one that is there: one statement, no reading first."""
    statement = insert_or(table, dialect)
    old, new = table.c, statement.excluded
    beyond_ties = old.score + ties.RELATIVE * func.abs(old.score) + ties.ABSOLUTE  # as `ties.raised`
    same_event = and_(new.worst == old.worst, new.score > old.score)
    higher = or_(old.score.is_(None), new.score > beyond_ties, same_event)
    values = {n: case((higher, new[n]), else_=old[n]) for n in ("score", "p_value", "worst", "reason") if n in old}
    values |= {n: old[n] + new[n] for n in ("n_events", "n_scored", "n_alerts") if n in old}
    if "last_at" in old:
        values["first_at"] = case((new.first_at < old.first_at, new.first_at), else_=old.first_at)
        values |= {n: case((new.last_at >= old.last_at, new[n]), else_=old[n]) for n in ("last_at", "timezone")}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=values)
