"""What people decide: verdicts on alerts, and the deletion of an agent."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from sqlalchemy import Connection, insert, select, update

from ustad.clock import MICROSECONDS_PER_DAY, microseconds
from ustad.page import cases, likeness, queries
from ustad.page import records as r
from ustad.page.store import Store, now
from ustad.service.errors import InvalidError, NotFoundError
from ustad.service.keys import Caller, needs
from ustad.service.messages import Deletion, EventAnswer, Verdict
from ustad.service.openapi import ERRORS, failure
from ustad.service.routes_read import AgentName, number_of

DEFAULT_DAYS = 90


def verdict_routes() -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["verdicts"], responses=ERRORS | failure(404))
    router.put("/alerts/{alert_id}/verdict", response_model=EventAnswer)(put_verdict)
    router.delete("/agents/{agent_id}", response_model=Deletion)(delete_agent)
    return router


def put_verdict(
    request: Request,
    alert_id: Annotated[str, Path(max_length=20)],
    verdict: Verdict,
    caller: Annotated[Caller, Depends(needs("verdict"))],
) -> Any:
    """Confirmed, expected (with a reason, until a date; 90 days when none is given), wrong (the data is bad, or the
    program is mistaken) or open again.

    It is of the whole incident that the event belongs to. After `expected`, like events of the agent are marked until
    then, not hidden.
    """
    if verdict.verdict == "expected" and not verdict.reason.strip():
        raise InvalidError("the verdict 'expected' needs a reason")
    store: Store = request.app.state.service.store
    return give_verdict(store, number_of(alert_id), verdict, caller.name)


def give_verdict(store: Store, key: int, verdict: Verdict, by: str) -> dict[str, Any]:
    """Write a verdict; the earlier ones on the same event stay in the store."""
    with store.writing() as connection:
        return write_verdict(connection, key, verdict, by)


def write_verdict(connection: Connection, key: int, verdict: Verdict, by: str) -> dict[str, Any]:
    """The same within a transaction. Cases that hold the incident have it in their history."""
    until = microseconds(verdict.until) if verdict.until else now() + DEFAULT_DAYS * MICROSECONDS_PER_DAY
    columns = (r.events.c.agent, r.events.c.score, r.events.c.incident)
    event = connection.execute(select(*columns).where(r.events.c.key == key)).first()
    if event is None or event.score is None:
        raise NotFoundError("there is no such alert")
    likeness.unmark(connection, key)
    row = connection.execute(
        insert(r.verdicts).values(
            key=key, agent=event.agent, verdict=verdict.verdict, reason=verdict.reason, note=verdict.note,
            expires_at=until if verdict.verdict == "expected" else None, given_by=by, given_at=now(),
        )
    ).inserted_primary_key  # fmt: skip
    number = row[0] if row is not None else None
    current = None if verdict.verdict == "open" else number
    is_same = r.events.c.key == key
    if event.incident is not None:
        is_same |= (r.events.c.agent == event.agent) & (r.events.c.incident == event.incident)
    connection.execute(update(r.events).where(is_same).values(verdict=current))
    likeness.mark_open(connection, number)
    cases.note_verdict(connection, key, by, verdict.verdict, reason=verdict.reason)
    return queries.events_by_key(connection, [key])[0]


async def delete_agent(
    request: Request, agent_id: AgentName, caller: Annotated[Caller, Depends(needs("admin"))]
) -> Any:
    """Delete everything about an agent: events, scores, alerts, verdicts, trips, the keys of its devices, and what
    extraction remembers.

    Deleting an agent that is not known is no error: nothing of it is there afterwards."""
    service = request.app.state.service
    if service.intake is not None:
        work = service.intake.call(lambda: service.pipeline.delete_agent(agent_id, caller.name), [agent_id])
        count = await asyncio.wrap_future(work)
    else:
        count = await asyncio.to_thread(service.store.delete_agent, agent_id, caller.name)
        await asyncio.to_thread(service.store.scrub, agent_id)
    service.keys.read_again()
    service.ground.forget()
    return {"deleted_events": count}
