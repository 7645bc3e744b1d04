"""What else an incident holds: of an alert at an own place, the most unusual stay of the same incident elsewhere.

In: an open connection and events as lists show them. Out: the same with `led_by`, the stay that explains the alert, or
`with_it`, a short sentence, or neither. The most unusual stay of an incident can be its dull end, such as coming home
late. Then the stay right before it is what the incident is about; `scoring/incidents.py` has the one rule for that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
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
from ustad.scoring.incidents import SAME_PLACE_KM, is_way_back

#: Reasons of a stay at home: it was there, it was left at an odd hour, or where they came from was.
_AT_HOME = re.compile(
    r"At home |Left home at \S+, there since |Left home at \S+ and was back |Left [^.]+ and was at home "
)


def add_other_stays(connection: Connection, answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same events; those that lead an incident from an own place say what else it holds."""
    leads = {int(a["id"]): a for a in answers if a["incident_id"] and not a["echo"]}
    facts = _read_facts(connection, list(leads))
    at_own = [key for key in leads if facts.get(key, {}).get("new_place") is False]
    members = _read_members(connection, [leads[key] for key in at_own])
    facts |= _read_facts(connection, [e.key for events in members.values() for e in events if e.echo])
    for key in at_own:
        lead = leads[key]
        others = {e.key: e for e in members[lead["agent_id"], lead["incident_id"]]}
        own = others.pop(key)
        before = others.get(_key_before(connection, own)) if others else None
        if before is not None and is_way_back(_describe(own, facts), _describe(before, facts)):
            lead["led_by"] = _summary(before)
            continue
        places = [e for e in others.values() if e.category is not None and _apart(lead, e) > SAME_PLACE_KM]
        if places:
            lead["with_it"] = _words(lead, max(places, key=lambda e: (e.score, e.started_at)))
    return list(answers)


def _read_facts(connection: Connection, keys: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The plain facts of each event whose detail is kept."""
    query = select(r.details.c.key, r.details.c.content)
    rows = [row for part in chunks(keys) for row in connection.execute(query.where(r.details.c.key.in_(part)))]
    return {row.key: unpack_facts(json.loads(row.content)) for row in rows}


def _describe(event: Any, facts: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """What says whether it is a way back. Stores of before keep no `at_home`; sentences tell it."""
    own = facts.get(event.key, {"new_place": None})
    is_home = own["at_home"] if own.get("at_home") is not None else _is_at_home(event.reason)
    return {**own, "at_home": is_home, "place": event.poi_id, "lat": event.lat, "lon": event.lon}


def _key_before(connection: Connection, lead: Any) -> int | None:
    """The event right before it of the same agent."""
    e = r.events.c
    query = select(e.key).where(e.agent == lead.agent, e.started_at < lead.started_at)
    return connection.execute(query.order_by(e.started_at.desc(), e.key.desc()).limit(1)).scalar()


def _summary(event: Any) -> dict[str, Any]:
    first, last = (datetime.fromtimestamp(m / 1e6, UTC).isoformat() for m in (event.started_at, event.finished_at))
    return {
        "id": str(event.key), "started_at": first.replace("+00:00", "Z"), "finished_at": last.replace("+00:00", "Z"),
        "timezone": event.timezone, "category": event.category, "place_name": event.place_name, "kind": event.kind,
        "term": event.term, "reason": event.reason,
    }  # fmt: skip


def _read_members(connection: Connection, leads: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[Any]]:
    """Scored events of the incidents that these lead, by agent and incident."""
    e = r.events.c
    by_incident: dict[tuple[str, str], list[Any]] = {}
    for part in chunks(leads):
        agents, incidents = ({lead[name] for lead in part} for name in ("agent_id", "incident_id"))
        query = select(r.events).where(e.agent.in_(agents), e.incident.in_(incidents), e.score.is_not(None))
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
