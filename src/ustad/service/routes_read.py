"""Reading: health, agents, events, alerts, the live stream, and what the page needs in one answer each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BeforeValidator

from ustad import __version__
from ustad.clock import EPOCH, iso_date, microseconds
from ustad.page import event_details, queries
from ustad.page.card_blocks import card_blocks
from ustad.page.facts import MOST_GROUPS, NO_FACTS, describe_rate
from ustad.page.queries import Filter
from ustad.page.store import DISK_FULL
from ustad.service import errors, examples
from ustad.service import messages_page as page
from ustad.service.errors import BusyError, InvalidError, NotFoundError, UnavailableError
from ustad.service.keys import READERS, Caller, key_in, needs
from ustad.service.live_groups import latest_groups
from ustad.service.messages import AgentAnswer, AgentPage, AlertPage, EventPage, Moment, Text
from ustad.service.openapi import ERRORS, failure, text_answer
from ustad.triage.unusual_days import describe_day


def decode_id(text: Any) -> Any:
    """An id out of an address, in which `request_checks` has left it percent-encoded."""
    return unquote(text, errors="strict") if isinstance(text, str) else text


Read = Annotated[Caller, Depends(needs("read"))]
#: Also who sees coarse positions alone: `request_checks` makes what is answered coarse.
Look = Annotated[Caller, Depends(needs(*READERS))]
Offset = Annotated[int, Query(ge=0, le=100_000_000)]
Limit = Annotated[int, Query(ge=1, le=1_000)]
Score = Annotated[float | None, Query(allow_inf_nan=False)]
AgentName = Annotated[Text, BeforeValidator(decode_id), Path(min_length=1)]
State = Literal["open", "confirmed", "expected", "wrong", "marked", "hidden"]
Since = Annotated[int, Query(ge=0, lt=2**62)]
From = Annotated[Moment | None, Query(alias="from")]
To = Annotated[Moment | None, Query(alias="to")]
STREAMS = 100
PING_S = 15.0
LOOK_S = 2.0  # how often a stream asks whether its key still holds
TOTALS_S = 1.0
COLOURS, CATEGORIES, CATEGORIES_S = 10, "categories", 60.0  # colours, where they are kept, seconds between looks


def read_routes() -> APIRouter:
    router = APIRouter()
    router.get("/healthz", response_model=page.Health, tags=["health"])(healthz)
    router.get("/readyz", response_model=page.Ready, responses=failure(503), tags=["health"])(readyz)
    text = text_answer("text/plain", examples.METRICS, "figures")
    router.get("/metrics", tags=["health"], responses=ERRORS | text, response_class=Response)(metrics)
    v1 = APIRouter(prefix="/v1", tags=["read"], responses=ERRORS)
    unknown = failure(404)
    v1.get("/about", response_model=page.About)(about)
    v1.get("/summary", response_model=page.Summary)(summary)
    v1.get("/run", response_model=page.RunFacts)(run_facts)
    v1.get("/lanes", response_model=page.Lanes)(lanes)
    v1.get("/agents", response_model=AgentPage)(agents)
    v1.get("/agents/{agent_id}", response_model=AgentAnswer, responses=unknown)(agent)
    v1.get("/agents/{agent_id}/events", response_model=EventPage, responses=unknown)(agent_events)
    v1.get("/agents/{agent_id}/places", response_model=page.Places, responses=unknown)(places)
    v1.get("/agents/{agent_id}/movements", response_model=page.Movements, responses=unknown)(movements)
    v1.get("/events/{event_id}", response_model=page.EventDetail, responses=unknown)(event)
    v1.get("/alerts", response_model=AlertPage)(alerts)
    stream = text_answer("text/event-stream", examples.STREAM, "server-sent events")
    v1.get("/alerts/stream", responses=stream, response_class=StreamingResponse)(stream_alerts)
    router.include_router(v1)
    return router


# ------------------------------------------------------------------------------------------------- health
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


def readyz(request: Request) -> Any:
    """The store answers and, where there is a model, events are taken."""
    service = request.app.state.service
    try:
        service.store.ping()
        problem = "" if service.store.has_room() else DISK_FULL
    except Exception:  # whatever is wrong with the store, the answer is: not ready
        problem = "the store does not answer"
    if problem:
        return JSONResponse(errors.content(503, problem), status_code=503)
    if service.stopping or service.usurped:
        raise UnavailableError("the service is shutting down, or another one has its store")
    return {"status": "ready", "scoring": "on" if service.intake is not None else "off"}


def metrics(request: Request, caller: Annotated[Caller, Depends(needs("metrics", "read"))]) -> Response:
    """Figures for Prometheus."""
    return Response(request.app.state.service.metrics.text(), media_type="text/plain; version=0.0.4")


# --------------------------------------------------------------------------------------------------- page
def about(request: Request, caller: Look) -> dict[str, Any]:
    """What the page has to know once: words, tiles, who asks and what they may do."""
    service = request.app.state.service
    schema, facts = service.schema, _facts(service)
    return {
        "version": __version__, "entity_word": schema.entity_word, "event_word": schema.event_word,
        "tiles": service.settings.tiles, "map": service.map_file.describe() if service.map_file else None,
        "caller": caller.name, "roles": sorted(caller.roles),
        "live": service.intake is not None, "devices": service.takes_fixes,
        "run": (service.store.about("run") or {}).get("name"),
        "has_place": any(f.kind == "place" for f in schema.features),
        "alerts_per_day": service.settings.alerts_per_day, "notes": facts["notes"], "rate": facts.get("rate"),
        "chance_share": facts.get("chance_share"), "alert_p_value": getattr(service.scorer, "p_value", None),
        "categories": facts.get("categories") or _choose_categories(service), "days": facts.get("days") or {},
    }  # fmt: skip


def _choose_categories(service: Any) -> list[str]:
    """Categories with a colour of their own where events only come live: once one has it, it keeps it."""
    categories: list[str] = service.store.about(CATEGORIES) or []
    at = getattr(service, "coloured_at", None)
    if len(categories) >= COLOURS or (at is not None and time.monotonic() - at < CATEGORIES_S):
        return categories
    with service.store.reading() as connection:
        frequent = queries.frequent_categories(connection)
    more = [name for name in frequent if name not in categories][: COLOURS - len(categories)]
    if more:
        with service.store.writing() as connection:
            service.store.remember(connection, CATEGORIES, categories + more)
    service.coloured_at = time.monotonic()
    return categories + more


def run_facts(request: Request, caller: Read) -> dict[str, Any]:
    """The finished run on show (figures, uncertainty, calibration, data quality, the model's card), and the drift alarm
    over live scores."""
    service = request.app.state.service
    facts, model = _facts(service), service.settings.model
    if service.pipeline is not None and service.pipeline.groups is not None:
        with service.store.reading() as connection:
            groups = [*facts.get("together", []), *latest_groups(connection)]
        facts = {**facts, "together": sorted(groups, key=lambda group: group["p_value"])[:MOST_GROUPS]}
    if not facts["card"] and model is not None and (model / "card.md").is_file():
        return {**facts, "card": card_blocks((model / "card.md").read_text(encoding="utf-8"))}
    return facts


def _facts(service: Any) -> dict[str, Any]:
    facts = service.store.about("facts") or NO_FACTS
    if service.pipeline is None:
        return facts
    drift = service.pipeline.drift
    is_live = drift.alarm.days > 0 or not facts.get("drift")
    days = facts.get("days") or {}
    new = [one for one in service.unusual_days if iso_date(one.day) not in days]  # a run has said its own
    words = [describe_day(one, None, service.schema.event_word) + "." for one in new]
    facts = {**facts, "days": {**days, **{iso_date(one.day): "unusual for everybody" for one in new}}}
    least = getattr(service.scorer, "least_rate", None)
    rate = facts.get("rate") if least is None else describe_rate(least)
    notes = [*facts["notes"], *getattr(service.scorer, "notes", []), *drift.notes(), *words]
    return {
        **facts,
        "notes": notes,
        "rate": rate,
        "chance_share": None,
        "drift": drift.describe() if is_live else facts["drift"],
    }


def summary(request: Request, caller: Look) -> dict[str, Any]:
    """Totals, and the score and p-value at 1 … 200 alerts a day."""
    service = request.app.state.service
    cache = getattr(service, "totals", None)
    if cache is not None and time.monotonic() - cache[0] < TOTALS_S:
        return cache[1]
    with service.store.reading() as connection:
        totals = queries.totals(connection)
    service.totals = (time.monotonic(), totals)
    return totals


def narrow(
    search: Text | None = None, kind: Text | None = None, category: Text | None = None, min_score: Score = None, *,
    state: State | None = None, raised: bool = False, watched: bool = False,
) -> Filter:  # fmt: skip
    """What lanes and alerts can both be narrowed to."""
    return Filter(
        search=search, kind=kind, category=category, min_score=min_score, state=state, raised=raised, watched=watched
    )


Narrow = Annotated[Filter, Depends(narrow)]


def lanes(
    request: Request, caller: Look, filters: Narrow, first: date | None = None, *, last: date | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50, offset: Offset = 0,
) -> dict[str, Any]:  # fmt: skip
    """Agents by days: the highest score of each day. The last four weeks where no days are given."""
    with request.app.state.service.store.reading() as connection:
        span = queries.span(connection)
        if span is None:
            return {"total": 0, "offset": offset, "first": None, "last": None, "lanes": []}
        end = _day(last) if last else span[1]
        begin = _day(first) if first else max(span[0], end - 27)
        if end - begin > 366:
            raise InvalidError("at most a year of days goes into one answer")
        total, rows = queries.lanes(connection, filters, begin, end, limit=limit, offset=offset)
    return {
        "total": total, "offset": offset, "first": iso_date(begin), "last": iso_date(end), "lanes": rows
    }  # fmt: skip


# ------------------------------------------------------------------------------------------ agents, events
def agents(
    request: Request, caller: Look, search: Text | None = None, min_score: Score = None, *, limit: Limit = 50,
    offset: Offset = 0,
) -> dict[str, Any]:  # fmt: skip
    """Agents: those with an alert first, then the most unusual."""
    with request.app.state.service.store.reading() as connection:
        total, rows = queries.agents(connection, search, min_score, limit, offset=offset)
    return {"total": total, "offset": offset, "agents": rows}


def agent(request: Request, agent_id: AgentName, caller: Look) -> dict[str, Any]:
    """One agent's totals."""
    with request.app.state.service.store.reading() as connection:
        row = queries.agent(connection, agent_id)
    if row is None:
        raise NotFoundError("there is no such agent")
    return row


def agent_events(
    request: Request, agent_id: AgentName, caller: Look, first: From = None, *, last: To = None, limit: Limit = 200,
    offset: Offset = 0,
) -> dict[str, Any]:  # fmt: skip
    """One agent's events, the latest first, scored and known."""
    agent(request, agent_id, caller)
    with request.app.state.service.store.reading() as connection:
        total, rows = queries.agent_events(connection, agent_id, _at(first), _at(last), limit=limit, offset=offset)
    return {"total": total, "offset": offset, "events": rows}


def places(request: Request, agent_id: AgentName, caller: Look) -> dict[str, Any]:
    """The agent's usual places by visits."""
    agent(request, agent_id, caller)
    with request.app.state.service.store.reading() as connection:
        return {"places": event_details.usual_places(event_details.History.of(connection, agent_id))}


def movements(
    request: Request, agent_id: AgentName, caller: Look, first: From = None, *, last: To = None, limit: Limit = 500,
) -> dict[str, Any]:  # fmt: skip
    """The agent's trips and gaps in a span, in order of time; of more than `limit` the latest."""
    agent(request, agent_id, caller)
    begin, end = _at(first), _at(last)
    with request.app.state.service.store.reading() as connection:
        return event_details.movements(
            connection, agent_id, begin if begin is not None else 0, end if end is not None else 2**62, limit=limit
        )


def event(request: Request, event_id: Annotated[str, Path(max_length=20)], caller: Look) -> dict[str, Any]:
    """One event: expected beside observed for each feature, nearest known events, what usually happens then."""
    service = request.app.state.service
    with service.store.reading() as connection:
        detail = event_details.event_detail(connection, service.schema, number_of(event_id))
    if detail is None:
        raise NotFoundError("there is no such event")
    return detail


# ------------------------------------------------------------------------------------------------- alerts
def alerts(
    request: Request, caller: Look, filters: Narrow, since: Since = 0, *, first: From = None, last: To = None,
    first_day: date | None = None, last_day: date | None = None, agent: Text | None = None,
    order: Literal["score", "time"] = "score", limit: Limit = 50, offset: Offset = 0,
) -> dict[str, Any]:  # fmt: skip
    """Alerts, the most unusual (or the latest) first. `since` takes only what came after an earlier answer.

    `from` and `to` are moments; `first_day` and `last_day` are days where the event began, as in `/v1/lanes`. With
    `min_score` every event with at least that score counts, whether or not it was an alert when it came. `raised=true`
    leaves only those that were. `watched=true` leaves only people on the watchlist.
    """
    begin, end = (_day(value) if value is not None else None for value in (first_day, last_day))
    filters = replace(filters, agent=agent, first=_at(first), last=_at(last), first_day=begin, last_day=end)
    with request.app.state.service.store.reading() as connection:
        total, following, rows = queries.alerts(connection, filters, since, order, limit=limit, offset=offset)
    return {"total": total, "offset": offset, "next_since": following, "alerts": rows}


async def stream_alerts(request: Request, caller: Look, since: Annotated[int, Query(ge=-1, lt=2**62)] = -1) -> Any:
    """New alerts as server-sent events. A client that was cut off goes on with `Last-Event-ID` (or `since`)."""
    service = request.app.state.service
    if len(service.listeners) >= STREAMS:
        raise BusyError("too many live streams are open", Retry_After="60")
    last = request.headers.get("last-event-id", "")
    start = int(last) if last.isdigit() and len(last) < 19 else since
    if start < 0:
        start = await asyncio.to_thread(_latest, service)
    return StreamingResponse(_events(request, service, start), media_type="text/event-stream")


def _latest(service: Any) -> int:
    with service.store.reading() as connection:
        return queries.latest_alert(connection)


async def _may_read(service: Any, key: str | None) -> bool:
    """Whether a key still counts; a thread looks, since the store may be slow."""
    await asyncio.to_thread(service.keys.all)
    return bool(service.keys.may(key, *READERS))


async def _events(request: Request, service: Any, since: int) -> AsyncIterator[str]:
    change = asyncio.Event()
    change.set()
    service.listeners.add(change)
    key, said_at = key_in(dict(request.scope["headers"])), time.monotonic()
    try:
        yield f"retry: 2000\nid: {since}\n\n"
        while not service.stopping and not await request.is_disconnected() and await _may_read(service, key):
            if change.is_set():
                change.clear()
                for seq, alert in await asyncio.to_thread(_after, service, since):
                    since = seq
                    yield f"id: {seq}\nevent: alert\ndata: {json.dumps(alert, ensure_ascii=False)}\n\n"
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(change.wait(), LOOK_S)
            if time.monotonic() - said_at >= PING_S:
                said_at = time.monotonic()
                change.set()  # whatever else happened: look now and then
                yield ": still here\n\n"
    finally:
        service.listeners.discard(change)


def _after(service: Any, since: int) -> list[tuple[int, dict[str, Any]]]:
    with service.store.reading() as connection:
        return queries.alerts_after(connection, since)


# ------------------------------------------------------------------------------------------------- small
def number_of(text: str, what: str = "event") -> int:
    """The number behind an id; what is no such number is not known."""
    if not (text.isascii() and text.isdigit()) or int(text) >= 2**63:
        raise NotFoundError(f"there is no such {what}")
    return int(text)


def _at(moment: Any) -> int | None:
    return microseconds(moment) if moment is not None else None


def _day(value: date) -> int:
    return (value - EPOCH).days
