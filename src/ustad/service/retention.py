"""Deleting what is older than a service keeps, a few agents at a time so that new events need not wait for it.

In: a store and a moment. Out: how many events ended before it and are gone, with their details, alerts and verdicts.
Totals are reduced by what went; of the days, those of deleted events are counted again from what is left of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, case, delete, func, select, update

from ustad.page import records as r
from ustad.page.case_erasure import detach_from_cases, drop_groups
from ustad.page.store import IS_SHOWN, Store, add_days, with_own_scores
from ustad.ties import highest_of

AGENTS = 100  # in one transaction
TWO_DAYS = 2 * 86_400_000_000  # further than any zone moves the end of a day
E, D, A = r.events.c, r.days.c, r.agents.c


def expire(store: Store, before: int, let_go: Callable[[list[str]], object] = lambda agents: None) -> int:
    """Delete what ended before this moment (microseconds). Agents without any event left are deleted too, and `let_go`
    is called with them, so that nothing else keeps their data."""
    old = (E.started_at < before, E.finished_at < before)  # the first has an index
    with store.reading() as connection:
        agents = list(connection.execute(select(E.agent).where(*old).distinct().order_by(E.agent)).scalars())
    count = 0
    for start in range(0, len(agents), AGENTS):
        part = agents[start : start + AGENTS]
        try:
            with store.writing() as connection:
                n_deleted, n_gone = _expire_agents(connection, part, before)
        except Exception:  # a commit that failed may be in the store all the same: it is asked again when they come
            let_go(part)
            raise
        count += n_deleted
        if n_gone:
            let_go(n_gone)
    with store.writing() as connection:
        old_rows = [delete(table).where(table.c.finished_at < before) for table in (r.trips, r.gaps, r.absences)]
        old_rows.append(delete(r.devices).where(r.devices.c.heard_at < before))
        is_dropped = drop_groups(connection, lambda group: group["finished_at"] < before)
        if sum(connection.execute(statement).rowcount for statement in old_rows) or count or is_dropped:
            store.remember(connection, "leftovers", True)
    if count:
        store.clear_log()
    store.erase_leftovers()
    return count


def _expire_agents(connection: Connection, agents: Sequence[str], before: int) -> tuple[int, list[str]]:
    """How many events went, and the agents who have none left."""
    old = (E.agent.in_(agents), E.started_at < before, E.finished_at < before)
    own_scores = with_own_scores(connection, agents)
    going = connection.execute(
        select(E.agent, func.count().label("n_events"), func.count(E.score).label("n_scored"),
               func.sum(case((IS_SHOWN & E.score.is_not(None), 1), else_=0)).label("n_alerts"),
               func.max(E.day).label("day"))
        .where(*old).group_by(E.agent)
    ).all()  # fmt: skip
    keys = select(E.key).where(*old)
    verdict_ids = select(r.verdicts.c.id).where(r.verdicts.c.key.in_(keys))
    conditions = (E.agent.in_(agents), E.marked_by.in_(verdict_ids))  # a mark refers to the verdict that set it
    connection.execute(update(r.events).where(*conditions).values(marked_by=None))
    detach_from_cases(connection, keys)
    for table in (r.details, r.alerts, r.verdicts, r.notices):
        connection.execute(delete(table).where(table.c.key.in_(keys)))
    connection.execute(delete(r.events).where(*old))
    agents_gone = [row.agent for row in going if not _reduce(connection, row, before, row.agent in own_scores)]
    return sum(int(row.n_events) for row in going), agents_gone


def _reduce(connection: Connection, agent_row: Any, before: int, own_score: bool) -> bool:
    """Take what is gone off the totals of its agent; whether anything is left of it."""
    first = connection.execute(select(func.min(E.started_at)).where(E.agent == agent_row.agent)).scalar()
    if first is None:
        for table in (r.days, r.live_states, r.watchlist, r.agents):
            connection.execute(delete(table).where(table.c.agent == agent_row.agent))
        return False
    _recount_days(connection, agent_row.agent, int(agent_row.day), before)
    days = connection.execute(
        select(E.key, E.score, E.p_value, E.reason).join(r.days, D.worst == E.key)
        .where(D.agent == agent_row.agent).order_by(D.day)
    ).all()  # fmt: skip
    highest = days[highest_of([day.score for day in days])] if days else None
    values: dict[str, Any] = {
        "first_at": first, "worst": highest.key if highest else None,
        **{name: A[name] - int(getattr(agent_row, name)) for name in ("n_events", "n_scored", "n_alerts")},
    }  # fmt: skip
    if own_score:
        values |= {name: getattr(highest, name, None) for name in ("score", "p_value", "reason")}
    connection.execute(update(r.agents).where(A.agent == agent_row.agent).values(values))
    return True


def _recount_days(connection: Connection, agent: str, last: int, before: int) -> None:
    """The days up to this one, of which events were deleted, from what is left of them."""
    connection.execute(delete(r.days).where(D.agent == agent, D.day <= last))
    left = (
        select(E.key, E.day, E.score, IS_SHOWN.label("alert"))
        .where(E.agent == agent, E.started_at < before + TWO_DAYS, E.day <= last, E.score.is_not(None))
        .order_by(E.started_at, E.key)
    )
    add_days(connection, agent, connection.execute(left))
