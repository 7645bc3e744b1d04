"""What becomes of cases when a person is forgotten or old events are deleted.

A case that has no incident left goes with its whole history. In a case of several people, notes and title may speak of
the person who is forgotten. Nobody can tell which do, so all are blanked. Saved views that name the person go too, and
groups of people that they were part of.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

from sqlalchemy import Connection, delete, or_, select, update

from ustad.page import records as r

ERASURE_NOTE = "(erased: somebody of this case was forgotten)"
FREE_TEXT = ("opened", "titled", "note", "verdict")  # acts whose text somebody wrote
N, H = r.case_incidents.c, r.case_history.c


def forget_in_cases(connection: Connection, agent: str) -> None:
    """Take a person out of all cases; called before their rows of `records.OF_AGENTS` are deleted."""
    mentions = select(N.case_id).where(N.agent == agent).union(select(H.case_id).where(H.agent == agent))
    case_ids = list(connection.execute(mentions).scalars())
    connection.execute(delete(r.case_incidents).where(N.agent == agent))
    connection.execute(delete(r.case_history).where(H.agent == agent))
    texts = (H.case_id.in_(case_ids), H.act.in_(FREE_TEXT), H.content != "")
    connection.execute(update(r.case_history).where(*texts).values(content=ERASURE_NOTE))
    connection.execute(update(r.cases).where(r.cases.c.id.in_(case_ids)).values(title=""))
    _delete_empty(connection, case_ids)
    address = r.saved_views.c.address
    spellings = {agent, quote(agent, safe=""), quote(agent, safe="!'()*~"), quote_plus(agent)}
    connection.execute(
        delete(r.saved_views).where(or_(*(address.contains(text, autoescape=True) for text in spellings)))
    )


def drop_groups(connection: Connection, goes: Callable[[dict[str, Any]], bool]) -> bool:
    """Take groups of people away, where they go: those of the run on show and those of live scores. Whether any did."""
    rows = connection.execute(select(r.groups.c.id, r.groups.c.content)).all()
    numbers = [row.id for row in rows if goes(json.loads(row.content))]
    for number in numbers:
        connection.execute(delete(r.groups).where(r.groups.c.id == number))
    text = connection.execute(select(r.about.c.content).where(r.about.c.name == "facts")).scalar()
    facts = json.loads(text) if text is not None else {}
    groups = facts.get("together", [])
    left = [group for group in groups if not goes(group)]
    if len(left) < len(groups):
        content = json.dumps({**facts, "together": left})
        connection.execute(update(r.about).where(r.about.c.name == "facts").values(content=content))
    return bool(numbers) or len(left) < len(groups)


def detach_from_cases(connection: Connection, keys: Any) -> None:
    """Take events that are about to be deleted out of cases; `keys` is a query of their keys."""
    case_ids = list(connection.execute(select(N.case_id).where(N.key.in_(keys)).distinct()).scalars())
    connection.execute(delete(r.case_incidents).where(N.key.in_(keys)))
    connection.execute(delete(r.case_history).where(H.key.in_(keys)))
    _delete_empty(connection, case_ids)


def _delete_empty(connection: Connection, cases: list[int]) -> None:
    """Of these cases those without an incident, with their history."""
    left = set(connection.execute(select(N.case_id).where(N.case_id.in_(cases))).scalars())
    empty_cases = [case for case in cases if case not in left]
    connection.execute(delete(r.case_history).where(H.case_id.in_(empty_cases)))
    connection.execute(delete(r.cases).where(r.cases.c.id.in_(empty_cases)))
