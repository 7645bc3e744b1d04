"""Taking events and fixes in. Answers come after everything is in the store.

No postponed annotations here: the body of `/v1/events` follows from the model's schema.
"""

import asyncio
import json
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from fastapi import APIRouter, Depends, Request, Response

from ustad.clock import MICROSECONDS_PER_DAY, check_zone, microseconds
from ustad.mobility.plausible import FIRST_YEAR, implausible_times
from ustad.page.store import now
from ustad.page.translate import Layout
from ustad.schema import EventSchema
from ustad.service.errors import InvalidError, TooLargeError
from ustad.service.keys import LOCAL, Caller, needs
from ustad.service.messages import Fixes, FixesAnswer, IngestAnswer, events_model
from ustad.service.openapi import ERRORS, failure
from ustad.service.pipeline import Job
from ustad.service.protocols import Position, fix_table
from ustad.tables import DataError

Ingest = Annotated[Caller, Depends(needs("ingest"))]


def ingest_routes(schema: EventSchema) -> APIRouter:
    """`POST /v1/events` and, where the events are stays, `POST /v1/fixes`."""
    router = APIRouter(prefix="/v1", tags=["ingest"], responses=ERRORS)
    body: Any = events_model(schema)
    layout = Layout.of(schema)

    @router.post("/events", response_model=IngestAnswer, responses=failure(409))
    async def post_events(request: Request, caller: Ingest, events: body) -> Any:
        """Finished events, in order of time for each agent. Sending one twice scores it once."""
        service = request.app.state.service
        if len(events.events) > service.settings.max_batch:
            raise TooLargeError(f"at most {service.settings.max_batch:,} events go into one request")
        rows = [{**_row(event.model_dump(), layout), "row": i} for i, event in enumerate(events.events)]
        _check(rows, service.settings.max_event_days)
        _check_clock([row["finished_at"] for row in rows], service.settings.ahead_days)
        rows.sort(key=lambda row: (row["agent"], row["started_at"]))
        work = service.intake.submit(Job(rows=rows), _client(request, caller))
        return _answer(await asyncio.wrap_future(work))

    if schema.name == "mobility":
        router.post("/fixes", response_model=FixesAnswer)(post_fixes)
    return router


async def post_fixes(request: Request, caller: Ingest, fixes: Fixes) -> Any:
    """Raw GPS. The answer holds the stays that these fixes finished; a stay ends when its agent has left."""
    service = request.app.state.service
    if len(fixes.fixes) > service.settings.max_fixes:
        raise TooLargeError(f"at most {service.settings.max_fixes:,} fixes go into one request")
    times = [microseconds(f.time) for f in fixes.fixes]
    _check_clock(times, service.settings.ahead_days)
    _check_years(times)
    positions = [Position(t, f.lat, f.lon, f.accuracy_m) for t, f in zip(times, fixes.fixes, strict=True)]
    table = fix_table([str(f.agent_id) for f in fixes.fixes], positions)
    work = service.intake.submit(Job(fixes=table), _client(request, caller))
    return _answer(await asyncio.wrap_future(work))


def _client(request: Request, caller: Caller) -> str:
    """Whose share of the queue this is: the key's or, without keys, the connection's."""
    return caller.name if caller is not LOCAL else str(request.client)


def _answer(outcome: dict[str, Any]) -> Response:
    """The answer as it goes out: it was made here, so it need not be checked against its own description again."""
    return Response(json.dumps(outcome, ensure_ascii=False, separators=(",", ":")), media_type="application/json")


def _row(event: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """An event of a request as a row of the store; the zone is filled in by the scorer where it is missing."""
    schema = layout.schema
    start = microseconds(event[schema.time])
    row = {
        "agent": str(event[schema.entity]), "started_at": start,
        "finished_at": microseconds(event[schema.end]) if schema.end else start,
        "timezone": event.get(schema.timezone) or None,
        "given": {name: event.get(name) for name in layout.extra_columns},
    }  # fmt: skip
    texts = ("event_id", "poi_id", "place_name", "category")
    for ours, theirs in layout.columns.items():
        value = event.get(theirs)
        row[ours] = str(value) if ours in texts and value is not None else value
    return row


@lru_cache(maxsize=1000)
def _known_zone(zone: str) -> None:
    """Refuses an unknown zone. Those that are known are remembered: looking one up takes a millisecond."""
    check_zone(zone)


def _check_clock(times: list[int], ahead_days: float) -> None:
    """Refuses what a wrong clock sent: everything that its agent sends later would count as late."""
    latest = now() + round(ahead_days * MICROSECONDS_PER_DAY)
    wrong = [i for i, moment in enumerate(times) if moment > latest] if ahead_days else []
    if wrong:
        raise InvalidError(
            f"{len(wrong)} of {len(times)} times are more than {ahead_days:g} days ahead of the service's clock; "
            "set the clock that sent them right, nothing of this request was stored",
            [{"row": i} for i in wrong[:20]],
        )


def _check_years(times: list[int]) -> None:
    """Refuses times before 1980: seconds that were taken for another unit, or a clock that was never set."""
    early = np.flatnonzero(implausible_times(pa.chunked_array([pa.array(times, pa.int64())]), np.inf)[0]).tolist()
    if early:
        raise InvalidError(
            f"{len(early)} of {len(times)} times lie before {FIRST_YEAR}; nothing of this request was stored",
            [{"row": i} for i in early[:20]],
        )


def _check(rows: list[dict[str, Any]], max_days: float) -> None:
    backwards = [i for i, row in enumerate(rows) if row["finished_at"] < row["started_at"]]
    if backwards:
        raise InvalidError(f"{len(backwards)} events end before they start", [{"row": i} for i in backwards[:20]])
    most = max_days * MICROSECONDS_PER_DAY
    long = [i for i, row in enumerate(rows) if most and row["finished_at"] - row["started_at"] > most]
    if long:
        problem = f"lasts longer than {max_days:g} days; its start or its end is wrong"
        raise InvalidError(
            f"{len(long)} of {len(rows)} events last longer than {max_days:g} days; nothing of this request was stored",
            [{"row": i, "problem": problem} for i in long[:20]],
        )
    for zone in {row["timezone"] for row in rows if row["timezone"]}:
        try:
            _known_zone(zone)
        except DataError as error:
            raise InvalidError("a time zone is not known; use an IANA name such as Europe/Helsinki") from error
