"""Examples of answers for the OpenAPI description: one small town, one unusual evening."""

from __future__ import annotations

from typing import Any

Example = dict[str, Any]

_ALERT: Example = {
    "id": "4611686018427387905", "event_id": None, "agent_id": "a-17", "started_at": "2024-02-05T20:10:00Z",
    "finished_at": "2024-02-06T01:40:00Z", "day": "2024-02-05", "timezone": "Europe/Helsinki", "lat": 60.1699,
    "lon": 24.9384, "category": "restaurant", "place_name": "Café Aino", "score": 4.2, "p_value": 0.000063,
    "alert": True, "final": True, "incident_id": "a-17@1707183600000000", "echo": False, "with_it": None,
    "led_by": None, "kind": "novel", "term": "distance",
    "reason": "Not one of its own places: 4.1 km from the nearest; stayed 5 h 30 min", "verdict": None,
    "marked_by": None, "hidden_by": None,
}  # fmt: skip
_VERDICT: Example = {
    "verdict": "expected", "reason": "travel", "note": "", "until": "2024-06-30T21:00:00Z", "by": "morning shift",
    "at": "2024-02-06T07:30:00Z",
}  # fmt: skip
_AGENT: Example = {
    "agent_id": "a-17", "timezone": "Europe/Helsinki", "first_at": "2024-01-01T05:00:00Z",
    "last_at": "2024-02-06T01:40:00Z", "n_events": 148, "n_scored": 36, "n_alerts": 1, "score": 4.2,
    "p_value": 0.000063, "worst": _ALERT["id"], "reason": _ALERT["reason"],
    "change": "Since 29 January weekday evenings at a gym instead of at home: 5 of 6, before 0 of 20.",
}  # fmt: skip
_FEATURE: Example = {
    "name": "duration", "label": "duration", "display": "duration", "unit": "min", "kind": "numeric", "scored": True,
    "pct": 0.998, "surprise": 2.7, "period": None, "loss": 3.1, "au": 0.21, "eu": 0.02, "expected": 75.0,
    "error": 255.0, "spread": 30.0, "observed": 330.0, "share": 0.38,
}  # fmt: skip

HEALTH: Example = {"status": "ok"}
READY: Example = {"status": "ready", "scoring": "on"}
ABOUT: Example = {
    "version": "1.0.0", "entity_word": "agent", "event_word": "stay", "tiles": "", "map": None,
    "caller": "morning shift", "roles": ["read", "verdict"], "live": True, "devices": True, "run": None,
    "has_place": True, "alerts_per_day": 20.0, "notes": [], "categories": ["home", "work"],
    "days": {"2024-05-20": "Whit Monday"},
}  # fmt: skip
RUN: Example = {
    "rule": "the 5 most unusual a day, p ≤ 0.0025", "notes": [], "figures": [], "groups": [], "scatter": None,
    "calibration": {"at": [0.01, 1.0], "share": [0.012, 1.0], "bins": [1.0], "n": 14_351},
    "categories": ["home", "work"], "days": {"2024-05-20": "Whit Monday"},
    "drift": {"log_evidence": -0.9, "log_peak": 0.0, "log_limit": 2.0, "raised_on": None, "days": 14, "events": 14_351,
              "share_05": 0.047, "share_01": 0.011},
    "quality": [{"what": "stays without a known category", "typical": "31 of 14,351", "range": "0.2%"}],
    "card": [{"kind": "p", "parts": [["text", "Trained on "], ["strong", "120"], ["text", " agents."]]}],
    "facts": [["method", "ustad"]],
}  # fmt: skip
SUMMARY: Example = {
    "events": 14_351, "agents": 120, "alerts": 12, "hidden": 0, "days": 14,
    "first_day": "2024-01-29", "last_day": "2024-02-11",
    "alert_score": 3.1, "alert_p_value": 0.0008, "unusual": 31,
    "curve": [{"per_day": 1, "score": 3.9, "p_value": 0.00013}, {"per_day": 2, "score": 3.4, "p_value": 0.0004}],
    "odd_days": [{"day": "1970-01-01", "events": 1}],
    "kinds": ["predictable", "novel"], "categories": ["restaurant", "work"],
}  # fmt: skip
LANES: Example = {
    "total": 120, "offset": 0, "first": "2024-01-29", "last": "2024-02-11",
    "lanes": [{"agent_id": "a-17", "cells": [
        {"day": "2024-02-05", "score": 4.2, "events": 5, "alerts": 1, "worst": _ALERT["id"],
         "reason": _ALERT["reason"], "kind": "novel"},
    ]}],
}  # fmt: skip
AGENT = _AGENT
AGENTS: Example = {"total": 120, "offset": 0, "agents": [_AGENT]}
EVENTS: Example = {"total": 148, "offset": 0, "events": [_ALERT]}
ALERTS: Example = {"total": 12, "offset": 0, "next_since": 12, "alerts": [_ALERT]}
_PLACE: Example = {
    "lat": 60.1841, "lon": 24.8301, "visits": 61, "category": "home", "name": None, "hours": 702.5
}  # fmt: skip
PLACES: Example = {"places": [_PLACE]}
MOVEMENTS: Example = {
    "trips": [{"started_at": "2024-02-05T19:48:00Z", "finished_at": "2024-02-05T20:10:00Z",
               "path": [[24.8301, 60.1841], [24.9384, 60.1699]]}],
    "gaps": [{"started_at": "2024-02-03T10:00:00Z", "finished_at": "2024-02-03T12:30:00Z"}],
    "absences": [{
        "started_at": "2024-02-06T07:00:00Z", "finished_at": "2024-02-06T15:30:00Z", "category": "work",
        "p_value": 0.004, "reason": "Not at work on Tuesday; there at about 13:00 on 19 of 20 weekdays.",
        "instead": _ALERT["id"], "incident_id": None,
    }],
}  # fmt: skip
EVENT: Example = {
    "event": _ALERT, "features": [_FEATURE], "knn": {"distance": 0.84, "pct": 0.993, "share": 0.3},
    "history_days": 35.0, "learned_score": None,
    "habits": {
        "terms": [
            {"name": "distance", "label": "how far from its own places", "surprise": 3.2, "share": 0.62},
            {"name": "duration", "label": "how long it stayed", "surprise": 2.0, "share": 0.38},
        ],
        "new_place": True, "visits_now": 1, "km_from_own_places": 4.1,
    },
    "nearest": [{
        "id": "4611686018427381112", "started_at": "2024-01-19T16:05:00Z", "finished_at": "2024-01-19T17:20:00Z",
        "timezone": "Europe/Helsinki", "category": "restaurant", "place_name": None, "km": 4.1, "hours": 4.1,
    }],
    "company": {"peers": {"people": 340, "alike": 12, "days": 7, "category": "restaurant"},
                "others": {"people": 2, "new": [{"agent_id": "b", "visits": 0}],
                           "missed": [{"agent_id": "c", "days": 8, "of": 10, "where": "home"}]}},
    "usually": {"weekday": "Monday", "minute": 1330.0, "days": 5,
                "what": [{"category": "home", "days": 5, "share": 1.0}]},
    "days": {"minute": 1384.0, "today": "2024-02-05", "learnt_until": "2024-01-31",
             "days": [{"day": "2024-02-04", "at": "home", "here": False, "visits": 0, "incident": False},
                      {"day": "2024-02-05", "at": "restaurant", "here": True, "visits": 1, "incident": True}]},
    "verdicts": [_VERDICT], "cases": [],
}  # fmt: skip
INGEST: Example = {
    "accepted": 0, "duplicates": 1,
    "kept": [{"row": 0, "id": _ALERT["id"], "finished_at": _ALERT["finished_at"]}], "events": [_ALERT],
}  # fmt: skip
FIXES: Example = {"accepted": 2, "late": 0, "duplicates": 0, "dropped": 0, "implausible": 0, "events": []}
DEVICES: Example = {"total": 1, "offset": 0, "devices": [
    {"name": "Aino's phone", "agent_id": "a-17", "app": "owntracks", "heard_at": "2024-02-06T07:31:04Z",
     "fixed_at": "2024-02-06T07:30:58Z", "battery": 64.0, "n_fixes": 2_841, "n_left_out": 3,
     "n_events": 148},
]}  # fmt: skip
JUDGED: Example = {**_ALERT, "final": True, "verdict": _VERDICT}
DELETED: Example = {"deleted_events": 148}
METRICS = 'ustad_requests_total{method="POST",route="/v1/events",status="200"} 148.0\n'
STREAM = 'id: 12\nevent: alert\ndata: {"id": "4611686018427387905", "agent_id": "a-17", "score": 4.2}\n\n'

#: What an error says, by status: the message and its details.
ERRORS: dict[int, tuple[str, list[dict[str, Any]]]] = {
    400: ("There was an error parsing the body", []),
    401: ("a key is needed: send 'Authorization: Bearer KEY'", []),
    403: ("this key may not do that; it needs the role 'verdict'", []),
    404: ("there is no such agent", []),
    409: (
        "1 of 2 new events begin before the agent's latest known event has ended; events come in order of time, "
        "nothing of this request was stored",
        [{"row": 1, "problem": "begins before the event before it, of the same agent, has ended"}],
    ),
    413: ("at most 2,000 events go into one request", []),
    421: ("this service answers only to names of its own machine while it has no key", []),
    422: (
        "the request does not have the documented form",
        [{"where": ["body", "events", "0", "lat"], "problem": "Input should be less than or equal to 90"}],
    ),
    429: ("2000 events wait to be scored; send again later", []),
    503: ("the store does not answer; send again later", []),
}
