"""Cases, the watchlist and saved views. Reading needs the role `read`, everything else `verdict`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from sqlalchemy import Connection, delete, insert, select

from ustad.page import cases
from ustad.page import records as r
from ustad.page.queries import iso
from ustad.page.store import now
from ustad.service import messages_cases as m
from ustad.service.errors import InvalidError, NotFoundError
from ustad.service.keys import Caller, needs
from ustad.service.messages import Text, Verdict
from ustad.service.openapi import ERRORS, failure
from ustad.service.routes_read import AgentName, Limit, Offset, Read, number_of
from ustad.service.routes_verdict import write_verdict

Decide = Annotated[Caller, Depends(needs("verdict"))]
CaseId = Annotated[str, Path(max_length=20)]
#: What a case's state says of its incidents.
VERDICTS = {"explained": "expected", "confirmed": "confirmed", "wrong": "wrong", "open": "open"}
MOST_WATCHED = 1_000
MOST_VIEWS = 100


def case_routes() -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["cases"], responses=ERRORS)
    unknown = failure(404)
    router.get("/cases", response_model=m.CasePage)(get_cases)
    router.post("/cases", response_model=m.CaseAnswer, responses=unknown)(post_case)
    router.get("/cases/{case_id}", response_model=m.CaseAnswer, responses=unknown)(get_case)
    router.patch("/cases/{case_id}", response_model=m.CaseAnswer, responses=unknown)(patch_case)
    router.get("/watchlist", response_model=m.Watchlist)(get_watchlist)
    path = "/agents/{agent_id}/watch"
    router.put(path, response_model=m.Watchlist, responses=unknown)(put_watch)
    router.get("/views", response_model=m.SavedViews)(get_views)
    router.put("/views", response_model=m.SavedViews)(put_view)
    router.delete("/views", response_model=m.SavedViews)(delete_view)
    return router


# -------------------------------------------------------------------------------------------------- cases
def get_cases(
    request: Request, caller: Read, state: m.State | None = None, assignee: m.Person | None = None,
    *, agent: Text | None = None, limit: Limit = 50, offset: Offset = 0,
) -> dict[str, Any]:  # fmt: skip
    """Cases, the latest changed first."""
    with request.app.state.service.store.reading() as connection:
        total, rows = cases.list_cases(
            connection, state=state, assignee=assignee, agent=agent, limit=limit, offset=offset
        )
    return {"total": total, "offset": offset, "cases": rows}


def post_case(request: Request, new: m.NewCase, caller: Decide) -> Any:
    """Open a case of one or several incidents, of one or several people."""
    keys = [number_of(text) for text in new.incidents]
    with request.app.state.service.store.writing() as connection:
        _check_events(connection, keys)
        case = cases.open_case(connection, caller.name, keys, title=new.title.strip(), assignee=new.assignee.strip())
        if new.note.strip():
            cases.write_history(connection, case, caller.name, "note", content=new.note.strip())
        return cases.case_detail(connection, case)


def get_case(request: Request, case_id: CaseId, caller: Read) -> Any:
    """One case with its incidents and history. That somebody looked is written into the history, once an hour."""
    case = number_of(case_id, "case")
    with request.app.state.service.store.writing() as connection:
        if not cases.case_exists(connection, case):
            raise NotFoundError("there is no such case")
        cases.note_look(connection, case, caller.name)
        return cases.case_detail(connection, case)


def patch_case(request: Request, case_id: CaseId, change: m.CaseChange, caller: Decide) -> Any:
    """Change state, assignee or title, add a note, attach or detach incidents: all of it or nothing.

    The states `explained`, `confirmed` and `wrong` are also verdicts on every incident of the case, and `open` takes
    them back; `watching` leaves them as they are.
    """
    case, by = number_of(case_id, "case"), caller.name
    if change.state == "explained" and not change.reason.strip():
        raise InvalidError("the state 'explained' needs a reason")
    new_keys, old_keys = ([number_of(text) for text in ids] for ids in (change.attach, change.detach))
    with request.app.state.service.store.writing() as connection:
        if not cases.case_exists(connection, case):
            raise NotFoundError("there is no such case")
        _check_events(connection, [*new_keys, *old_keys])
        cases.attach(connection, case, by, new_keys)
        cases.detach(connection, case, by, old_keys)
        fields = {name: getattr(change, name) for name in ("title", "assignee", "state")}
        cases.set_fields(connection, case, by, **{n: v.strip() for n, v in fields.items() if v is not None})
        if change.note is not None and change.note.strip():
            cases.write_history(connection, case, by, "note", content=change.note.strip())
        if change.state in VERDICTS:
            _judge(connection, case, change, by)
        return cases.case_detail(connection, case)


def _judge(connection: Connection, case: int, change: m.CaseChange, by: str) -> None:
    """The verdict of a case's state on each of its incidents."""
    verdict = Verdict.model_validate(
        {"verdict": VERDICTS[change.state or "open"], "reason": change.reason, "until": change.until}
    )
    current = cases.case_detail(connection, case) or {"incidents": []}
    for incident in current["incidents"]:
        current_verdict = incident["verdict"]["verdict"] if incident["verdict"] else "open"
        if current_verdict != verdict.verdict:
            write_verdict(connection, int(incident["id"]), verdict, by)


def _check_events(connection: Connection, keys: list[int]) -> None:
    leading = {key for key, _ in cases.leading_events(connection, keys)}
    if keys and not leading:
        raise NotFoundError("there is no such scored event")


# ---------------------------------------------------------------------------------------------- watchlist
def get_watchlist(request: Request, caller: Read) -> Any:
    """People who are watched, the latest first."""
    with request.app.state.service.store.reading() as connection:
        return _watchlist(connection)


def put_watch(request: Request, agent_id: AgentName, watch: m.Watch, caller: Decide) -> Any:
    """Watch a person, or no longer; answers the whole watchlist."""
    w = r.watchlist.c
    with request.app.state.service.store.writing() as connection:
        if connection.execute(select(r.agents.c.agent).where(r.agents.c.agent == agent_id)).first() is None:
            raise NotFoundError("there is no such agent")
        connection.execute(delete(r.watchlist).where(w.agent == agent_id))
        if watch.watched:
            row = {"agent": agent_id, "note": watch.note, "added_by": caller.name, "added_at": now()}
            connection.execute(insert(r.watchlist).values(row))
        return _watchlist(connection)


def _watchlist(connection: Connection) -> dict[str, Any]:
    rows = connection.execute(select(r.watchlist).order_by(r.watchlist.c.added_at.desc()).limit(MOST_WATCHED))
    return {
        "watched": [
            {"agent_id": row.agent, "note": row.note, "by": row.added_by, "at": iso(row.added_at)} for row in rows
        ]
    }


# -------------------------------------------------------------------------------------------------- views
def get_views(request: Request, caller: Read) -> Any:
    """Saved views, by name."""
    with request.app.state.service.store.reading() as connection:
        return _views(connection)


def put_view(request: Request, view: m.SavedView, caller: Decide) -> Any:
    """Save a view under a name; answers all of them."""
    v = r.saved_views.c
    with request.app.state.service.store.writing() as connection:
        connection.execute(delete(r.saved_views).where(v.name == view.name))
        row = {"name": view.name, "address": view.address, "saved_by": caller.name, "saved_at": now()}
        connection.execute(insert(r.saved_views).values(row))
        return _views(connection)


def delete_view(request: Request, caller: Decide, name: m.Person) -> Any:
    """Delete a saved view; answers those that are left."""
    with request.app.state.service.store.writing() as connection:
        connection.execute(delete(r.saved_views).where(r.saved_views.c.name == name))
        return _views(connection)


def _views(connection: Connection) -> dict[str, Any]:
    rows = connection.execute(select(r.saved_views).order_by(r.saved_views.c.name).limit(MOST_VIEWS))
    return {
        "views": [
            {"name": row.name, "address": row.address, "by": row.saved_by, "at": iso(row.saved_at)} for row in rows
        ]
    }
