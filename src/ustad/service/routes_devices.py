"""Phones and other trackers send here, each app in its own protocol; `/v1/devices` says when each was last heard of.

An app deletes what it has sent once it is told that it arrived, so it is told after everything is in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response

from ustad.clock import MICROSECONDS_PER_DAY, microseconds
from ustad.mobility.plausible import FIRST_YEAR
from ustad.page.store import now
from ustad.service.devices import Sender, list_devices
from ustad.service.errors import ForbiddenError, InvalidError, TooLargeError
from ustad.service.keys import LOCAL, Caller
from ustad.service.messages import DevicePage, Text, is_agent_id
from ustad.service.openapi import ERRORS
from ustad.service.pipeline import Job
from ustad.service.protocols import PROTOCOLS, Protocol, Report, fix_table
from ustad.service.request_checks import DEVICES
from ustad.service.routes_read import Limit, Offset, Read

FIRST = microseconds(datetime(FIRST_YEAR, 1, 1, tzinfo=UTC))
LATEST = microseconds(datetime(2200, 1, 1, tzinfo=UTC))  # as for events


def device_routes() -> APIRouter:
    """`/device/APP`, with the key in a header, and `/device/APP/KEY` for apps that can send no header."""
    router = APIRouter(include_in_schema=False)
    for app, protocol in PROTOCOLS.items():
        take = _taker(app, protocol)
        for path in (DEVICES + app, f"{DEVICES}{app}/{{key}}"):
            router.add_api_route(path, take, methods=list(protocol.methods))
    return router


def device_list_routes() -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["read"], responses=ERRORS)
    router.get("/devices", response_model=DevicePage)(devices)
    return router


def _taker(app: str, protocol: Protocol) -> Callable[[Request], Awaitable[Response]]:
    async def take(request: Request) -> Response:
        service, caller = request.app.state.service, request.scope["ustad.caller"]
        _check_sender(caller, app)
        parameters = dict(parse_qsl(request.scope["query_string"].decode("latin-1")))
        report = protocol.read(await request.body(), parameters)
        if len(report.positions) > service.settings.max_fixes:
            raise TooLargeError(f"at most {service.settings.max_fixes:,} fixes go into one request")
        job = make_job(report, caller, app, service.settings.ahead_days)
        await asyncio.wrap_future(service.intake.submit(job, caller.name))
        return Response(protocol.answer, media_type=protocol.media)

    return take


def _check_sender(caller: Caller, app: str) -> None:
    """A device's key, or for a Traccar server, which passes on for many devices, a key with the role ingest."""
    if caller is LOCAL:  # any page in a browser of this machine can make such a request
        raise ForbiddenError("a device needs a key of its own; make one with --create-key NAME --agent AGENT")
    if caller.agent is None and not (app == "traccar" and "ingest" in caller.roles):
        raise ForbiddenError("this key is not a device's; make one with --create-key NAME --agent AGENT")


def make_job(report: Report, caller: Caller, app: str, ahead_days: float) -> Job:
    """The fixes of a report, for the agent that the key may write. Times of a wrong clock are left out, not refused:
    an app would send them again for ever, and nothing that comes after them."""
    agent = caller.agent if caller.agent is not None else str(report.device)
    if not is_agent_id(agent):
        raise InvalidError("the device's identifier is no id that an agent can have")
    if report.device is not None and report.device != agent:
        raise ForbiddenError("this key is that of another device; its agent must be the device's identifier in Traccar")
    latest = now() + ahead_days * MICROSECONDS_PER_DAY if ahead_days else LATEST
    positions = [p for p in report.positions if FIRST <= p.time <= latest]
    left_out = report.left_out + len(report.positions) - len(positions)
    return Job(
        fixes=fix_table([agent] * len(positions), positions),
        sender=Sender(agent, caller.name, app, report.battery, left_out),
    )


def devices(
    request: Request, caller: Read, search: Text | None = None, limit: Limit = 50,
    *, offset: Offset = 0,
) -> dict[str, Any]:  # fmt: skip
    """When each device was last heard of, the longest silent first; never, where its key was not used yet."""
    with request.app.state.service.store.reading() as connection:
        total, rows = list_devices(connection, search, limit, offset)
    return {"total": total, "offset": offset, "devices": rows}
