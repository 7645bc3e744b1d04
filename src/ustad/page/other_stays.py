"""What else an incident holds: of an alert at an own place, the most unusual stay of the same incident elsewhere.

In: an open connection and events as lists show them. Out: the same with `led_by`, the stay that explains the alert, or
`with_it`, a short sentence, or neither. The most unusual stay of an incident can be its dull end, such as coming home
late. Then the stay right before it is what the incident is about, as in `scoring/incidents.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlalchemy import Connection, select

from ustad.events.templates import place_words, say
from ustad.events.words import clock_words, distance_words
from ustad.geo import haversine_km
from ustad.page import records as r
from ustad.page.store import chunks
from ustad.page.stored_evidence import unpack_facts

#: As near as this is the same own place, km, as in an agent's history.
SAME_PLACE_KM = 0.15
#: Reasons of a stay at home: it was there, it was left at an odd hour, or where they came from was.
_AT_HOME = re.compile(
    r"At home |Left home at \S+, there since |Left home at \S+ and was back |Left [^.]+ and was at home "
)


def add_other_stays(connection: Connection, answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same events; those that lead an incident from an own place say what else it holds."""
    leads = {int(a["id"]): a for a in answers if a["incident_id"] and not a["echo"]}
    at_own = [key for key, is_new in _are_new(connection, list(leads)).items() if is_new is False]
    others = _others(connection, [leads[key] for key in at_own])
    is_new = _are_new(connection, [e.key for events in others.values() for e in events])
    for key in at_own:
        lead = leads[key]
        stays = [e for e in others.get((lead["agent_id"], lead["incident_id"]), []) if _apart(lead, e) > SAME_PLACE_KM]
        before = _right_before(connection, lead, stays)
        if before is not None and (_is_at_home(lead["reason"]) or is_new.get(before.key)):
            lead["led_by"] = _summary(before)
        elif stays:
            lead["with_it"] = _words(lead, max(stays, key=lambda e: (e.score, e.started_at)))
    return list(answers)


def _are_new(connection: Connection, keys: Sequence[int]) -> dict[int, bool | None]:
    """Of each event whether it is at a place that its agent's history does not know; None where nobody says so."""
    query = select(r.details.c.key, r.details.c.content)
    rows = [row for part in chunks(keys) for row in connection.execute(query.where(r.details.c.key.in_(part)))]
    return {row.key: unpack_facts(json.loads(row.content))["new_place"] for row in rows}


def _right_before(connection: Connection, lead: dict[str, Any], stays: Sequence[Any]) -> Any:
    """The stay that the person came from, where it is one of these; none where something else came between."""
    e = r.events.c
    moment = round(datetime.fromisoformat(lead["started_at"]).timestamp() * 1e6)
    query = select(e.key).where(e.agent == lead["agent_id"], e.started_at < moment)
    key = connection.execute(query.order_by(e.started_at.desc(), e.key.desc()).limit(1)).scalar() if stays else None
    return next((stay for stay in stays if stay.key == key), None)


def _summary(event: Any) -> dict[str, Any]:
    first, last = (datetime.fromtimestamp(m / 1e6, UTC).isoformat() for m in (event.started_at, event.finished_at))
    return {
        "id": str(event.key), "started_at": first.replace("+00:00", "Z"), "finished_at": last.replace("+00:00", "Z"),
        "timezone": event.timezone, "category": event.category, "place_name": event.place_name, "kind": event.kind,
        "term": event.term, "reason": event.reason,
    }  # fmt: skip


def _others(connection: Connection, leads: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[Any]]:
    """Scored events with a place and a kind of place that echo these, by agent and incident."""
    e = r.events.c
    by_incident: dict[tuple[str, str], list[Any]] = {}
    is_told = (e.echo.is_(True), e.score.is_not(None), e.lat.is_not(None), e.category.is_not(None))
    for part in chunks(leads):
        agents, incidents = ({lead[name] for lead in part} for name in ("agent_id", "incident_id"))
        query = select(r.events).where(e.agent.in_(agents), e.incident.in_(incidents), *is_told)
        for row in connection.execute(query):
            by_incident.setdefault((row.agent, row.incident), []).append(row)
    return by_incident


def _apart(lead: dict[str, Any], event: Any) -> float:
    """Kilometres; nothing where the lead has no place."""
    if lead["lat"] is None or event.lon is None:
        return 0.0
    return float(haversine_km(lead["lat"], lead["lon"], event.lat, event.lon))


def _words(lead: dict[str, Any], event: Any) -> str:
    first, last = (_local(moment, event.timezone) for moment in (event.started_at, event.finished_at))
    clocks = [clock_words(t.hour * 60 + t.minute + t.second / 60) for t in (first, last)]
    is_same_day = lead["day"] == first.date().isoformat()
    return say(
        "with_it",
        place=place_words(event.category),
        times=("" if is_same_day else f"on {first.day} {first:%B} ") + "–".join(clocks),
        away=distance_words(_apart(lead, event)),
        whence="from home" if _is_at_home(lead["reason"]) else "away",
    )


def _is_at_home(reason: str | None) -> bool:
    return _AT_HOME.match(reason or "") is not None


def _local(microseconds: int, zone: str) -> datetime:
    moment = datetime.fromtimestamp(microseconds / 1e6, UTC)
    try:
        return moment.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError):  # an unknown name reads as UTC, as on the page
        return moment
