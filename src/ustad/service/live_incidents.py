"""Incidents of agents as their events come: what bulk scoring finds in a whole table, one event at a time.

An incident raises one alert: that of its first event beyond the threshold. An agent's incidents are stored with its
state. So a restart changes nothing, even if retention has deleted the event that raised the alert. Without a state
they are read back from the events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ustad.scoring.incidents import REPEAT_WITHIN, Incident, IncidentLog, Membership
from ustad.tables import DataError

Row = Mapping[str, Any]
_MARK, _END = b"incidents 1 ", b"\n"


def pack_state(log: IncidentLog, start: int, state: bytes) -> bytes:
    """An agent's state with its incidents in front, those that an event after this start can still join."""
    recent = IncidentLog([one for one in log.incidents if start - one.latest <= REPEAT_WITHIN], log.last)
    return _MARK + json.dumps(recent.to_json(), separators=(",", ":")).encode() + _END + state


def unpack_state(content: bytes | None) -> tuple[IncidentLog | None, bytes | None]:
    """The incidents and the state; no incidents where an earlier version wrote the state."""
    if content is None or not content.startswith(_MARK):
        return None, content
    text, _, state = content.removeprefix(_MARK).partition(_END)
    try:
        return IncidentLog.from_json(json.loads(text)), state
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"the stored incidents of an agent cannot be read ({error})") from error


def known_incidents(rows: Iterable[Row]) -> dict[str, IncidentLog]:
    """The incidents of each agent from its events in the store (with key, incident, echo, alert and score), oldest
    first."""
    logs: dict[str, IncidentLog] = {}
    for row in rows:
        log = logs.setdefault(row["agent"], IncidentLog())
        log.last = row["incident"]
        if row["incident"] is None:
            continue
        incident = next((one for one in log.incidents if one.incident_id == row["incident"]), None)
        if incident is None:
            incident = Incident(row["incident"], row["key"], row["score"], row["started_at"])
            log.incidents.append(incident)
        if not row["echo"]:
            incident.leader, incident.score = row["key"], row["score"]
        incident.latest = row["started_at"]
        incident.is_alerted |= bool(row["alert"])
        if row["poi_id"] is not None:
            incident.visits.append((row["poi_id"], row["started_at"]))
    return logs


def join_incident(log: IncidentLog, event: Row, key: int, name: str, *, score: dict[str, Any]) -> Membership | None:
    """Put the incident of a new event into its score (`incident_id`, `echo`, `alert`)."""
    incident = log.add(key, name, event["started_at"], event.get("poi_id"), score["p_value"], score["score"])
    score["incident_id"] = incident.incident_id if incident is not None else None
    score["echo"] = incident is not None and not incident.leads
    if incident is not None and score["alert"]:
        score["alert"] = log.raise_alert(incident.incident_id)
    return incident
