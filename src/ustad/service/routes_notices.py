"""Notices to others: what waits, what could not be sent, and trying it again. For the role `admin`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel

from ustad.service.keys import Caller, needs
from ustad.service.notices import list_notices, retry_dead
from ustad.service.openapi import ERRORS

Admin = Annotated[Caller, Depends(needs("admin"))]
LINES = 100


class NoticeLine(BaseModel):
    id: str
    channel: str
    state: str
    tries: int
    made_at: str
    due_at: str
    problem: str


class Notices(BaseModel):
    """`waiting` and `dead` count all of them; `notices` are the oldest."""

    waiting: int
    dead: int
    notices: list[NoticeLine]


def notice_routes() -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["notices"], responses=ERRORS)
    router.get("/notices", response_model=Notices)(get_notices)
    router.post("/notices/retry", response_model=Notices)(retry_notices)
    return router


def get_notices(request: Request, caller: Admin) -> Any:
    """Notices of alerts that wait to be sent, or that could not be."""
    with request.app.state.service.store.reading() as connection:
        return list_notices(connection, LINES)


def retry_notices(request: Request, caller: Admin) -> Any:
    """Try again what could not be sent."""
    with request.app.state.service.store.writing() as connection:
        retry_dead(connection)
        return list_notices(connection, LINES)
