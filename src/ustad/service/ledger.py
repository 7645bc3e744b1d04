"""Writing scored events: the event, its detail, its alert, and the totals of its agent and day, in one transaction.

In: rows for `records.events` with their details as JSON text. What is already there must have been left out before.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table, Update, bindparam, insert, select, update

from ustad.service import records as r
from ustad.service.store import Row, chunks, now


def add_events(connection: Connection, rows: list[Row], details: dict[int, str]) -> None:
    """Insert events and keep totals. Rows without a score are known, not judged."""
    if not rows:
        return
    connection.execute(insert(r.events), rows)
    if details:
        connection.execute(insert(r.details), [{"key": k, "content": text} for k, text in details.items()])
    flagged = [{"key": row["key"], "created_at": now()} for row in rows if row["alert"]]
    if flagged:
        connection.execute(insert(r.alerts), flagged)
    _add_to_agents(connection, rows)
    _add_to_days(connection, [row for row in rows if row["score"] is not None])


def _add_to_agents(connection: Connection, rows: list[Row]) -> None:
    names = list(dict.fromkeys(row["agent"] for row in rows))
    totals = _existing(connection, r.agents, r.agents.c.agent, names, lambda row: row["agent"])
    old = set(totals)
    for row in rows:
        _count_agent(totals, row)
    _upsert(connection, r.agents, totals, old, ("agent",))


def _count_agent(totals: dict[Any, Row], row: Row) -> None:
    total = totals.setdefault(row["agent"], {
        "agent": row["agent"], "timezone": row["timezone"], "first_at": row["started_at"], "last_at": 0,
        "n_events": 0, "n_scored": 0, "n_alerts": 0, "score": None, "p_value": None, "worst": None, "reason": None,
    })  # fmt: skip
    total["first_at"] = min(total["first_at"], row["started_at"])
    if row["finished_at"] >= total["last_at"]:
        total["last_at"], total["timezone"] = row["finished_at"], row["timezone"]
    total["n_events"] += 1
    total["n_scored"] += row["score"] is not None
    total["n_alerts"] += bool(row["alert"])
    if row["score"] is not None and (total["score"] is None or row["score"] > total["score"]):
        total |= {"score": row["score"], "p_value": row["p_value"], "worst": row["key"], "reason": row["reason"]}


def _add_to_days(connection: Connection, rows: list[Row]) -> None:
    if not rows:
        return
    names = list(dict.fromkeys(row["agent"] for row in rows))
    first, last = min(row["day"] for row in rows), max(row["day"] for row in rows)
    within = r.days.c.day.between(first, last)
    totals = _existing(connection, r.days, r.days.c.agent, names, lambda row: (row["agent"], row["day"]), within)
    old = set(totals)
    for row in rows:
        total = totals.setdefault((row["agent"], row["day"]), {
            "agent": row["agent"], "day": row["day"], "score": row["score"], "n_events": 0, "n_alerts": 0,
            "worst": row["key"],
        })  # fmt: skip
        total["n_events"] += 1
        total["n_alerts"] += bool(row["alert"])
        if row["score"] > total["score"]:
            total["score"], total["worst"] = row["score"], row["key"]
    _upsert(connection, r.days, totals, old, ("agent", "day"))


def _existing(
    connection: Connection, table: Table, column: Any, names: list[str], identity: Any, *conditions: Any
) -> dict[Any, Row]:
    found: dict[Any, Row] = {}
    for part in chunks(names):
        for row in connection.execute(select(table).where(column.in_(part), *conditions)).mappings():
            found[identity(row)] = dict(row)
    return found


def _upsert(connection: Connection, table: Table, totals: dict[Any, Row], old: set[Any], keys: Iterable[str]) -> None:
    """Update the rows that were there, insert the others."""
    keys = tuple(keys)
    new = [row for name, row in totals.items() if name not in old]
    changed = [{f"at_{k}" if k in keys else k: v for k, v in row.items()} for n, row in totals.items() if n in old]
    if new:
        connection.execute(insert(table), new)
    if changed:
        connection.execute(_change(table, keys), changed)


@cache
def _change(table: Table, keys: tuple[str, ...]) -> Update:
    """Set every other column of the row with these keys."""
    values: dict[str, Any] = {c.name: bindparam(c.name) for c in table.columns if c.name not in keys}
    return update(table).where(*[table.c[k] == bindparam(f"at_{k}") for k in keys]).values(values)
