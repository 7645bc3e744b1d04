"""Examples of answers for the OpenAPI description, made from the models: one small town, one unusual evening.

In: the form of an answer as OpenAPI describes it. Out: an answer of that form, with a value for each field by its name.
"""

from __future__ import annotations

from typing import Any

_EVENING, _MORNING, _DAY = "2024-02-05T20:10:00Z", "2024-02-06T07:30:00Z", "2024-02-05"
#: What a field says, by its name; by its model and its name where models mean different things by one name.
VALUES: dict[str, Any] = {
    # who, when and where
    "id": "4611686018427387905", "worst": "4611686018427387905", "instead": "4611686018427387905", "agent_id": "a-17",
    "incident_id": "a-17@1707183600000000", "started_at": _EVENING, "finished_at": "2024-02-06T01:40:00Z", "day": _DAY,
    "first_at": "2024-01-01T05:00:00Z", "last_at": "2024-02-06T01:40:00Z", "timezone": "Europe/Helsinki",
    "lat": 60.1699, "lon": 24.9384, "category": "restaurant", "categories": ["restaurant", "work"],
    "place_name": "Café Aino", "Place.name": "Café Aino", "PlaceName.name": "Helsinki", "where": "home",
    "path": [[24.8301, 60.1841], [24.9384, 60.1699]], "box": [24.9, 60.1, 25.0, 60.2],
    "land": [[[24.9, 60.1], [24.9, 60.2], [25.0, 60.2], [24.9, 60.1]]], "lakes": [], "borders": [],
    "rivers": [[[24.97, 60.2], [24.98, 60.22]]], "streets_from": "trips", "layers": ["roads"],
    "MapFacts.note": "© OpenStreetMap contributors", "Ground.note": "Natural Earth (public domain)",
    # how unusual, and why
    "score": 4.2, "p_value": 0.000063, "alert": True, "final": True, "kind": "novel", "kinds": ["predictable", "novel"],
    "term": "distance", "led_by": None,
    "reason": "Not one of its own places: 4.1 km from the nearest; stayed 5 h 30 min",
    "AgentAnswer.change": "Since 29 January weekday evenings at a gym instead of at home: 5 of 6, before 0 of 20.",
    "Absence.reason": "Not at work on Tuesday; there at about 13:00 on 19 of 20 weekdays.", "Absence.category": "work",
    "alert_score": 3.1, "alert_p_value": 0.0008, "first_day": "2024-01-29", "last_day": "2024-02-11",
    "first": "2024-01-29", "last": "2024-02-11", "today": _DAY, "learnt_until": "2024-01-31", "here": True,
    "OddDay.day": "1970-01-01", "OddDay.events": 1, "Cell.events": 5, "events": 14_351, "agents": 120,
    "n_events": 148, "n_scored": 36, "total": 120,
    "offset": 0, "next_since": 12, "hidden": 0, "history_days": 35.0, "weekday": "Monday", "minute": 1330.0,
    "DayHere.at": "restaurant", "km": 4.1, "hours": 4.1, "of": 10, "MissedVisit.days": 8, "people": 340, "hour": 8,
    # one feature, one question
    "FeatureAnswer.name": "duration", "FeatureAnswer.label": "duration", "display": "duration", "unit": "min",
    "FeatureAnswer.kind": "numeric", "scored": True, "pct": 0.998, "surprise": 2.7, "loss": 3.1, "au": 0.21, "eu": 0.02,
    "expected": 75.0, "error": 255.0, "spread": 30.0, "observed": 330.0, "distance": 0.84,
    "Question.name": "distance", "Question.label": "how far from its own places",
    # a run and the service
    "version": "1.0.0", "entity_word": "agent", "event_word": "stay", "tiles": "", "caller": "morning shift",
    "roles": ["read", "verdict"], "live": True, "devices": True, "has_place": True, "alerts_per_day": 20.0,
    "notes": [], "days": {"2024-05-20": "Whit Monday"}, "rule": "the 5 most unusual a day, p ≤ 0.0025",
    "calibration": {"at": [0.01, 1.0], "share": [0.012, 1.0], "bins": [1.0], "n": 14_351}, "figures": [], "groups": [],
    "agent_ids": ["a-17", "b-3"],
    "quality": [{"what": "stays without a known category", "typical": "31 of 14,351", "range": "0.2%"}],
    "card": [{"kind": "p", "parts": [["text", "Trained on "], ["strong", "120"], ["text", " agents."]]}],
    "facts": [["method", "ustad"]], "log_evidence": -0.9, "log_peak": 0.0, "log_limit": 2.0, "share_05": 0.047,
    "share_01": 0.011, "weights": {"distance": 1.3, "start": 0.6}, "on": True, "metres": 1000.0, "least": 10,
    # what people and devices do
    "verdict": "expected", "GivenVerdict.reason": "travel", "note": "", "until": "2024-06-30T21:00:00Z", "at": _MORNING,
    "by": "morning shift", "title": "Night visits", "CaseLine.id": "12", "CaseLine.agents": ["a-17"],
    "CaseLine.state": "watching", "assignee": "morning shift", "opened_by": "morning shift", "opened_at": _MORNING,
    "changed_at": _MORNING, "act": "note", "text": "asked the family", "SavedViewAnswer.name": "new places",
    "address": "/?kind=novel&state=open", "RuleAnswer.id": "3", "RuleAnswer.reason": "night shift",
    "RuleAnswer.state": "in force", "from_minute": 1320, "to_minute": 360, "DeviceAnswer.name": "Aino's phone",
    "app": "owntracks", "heard_at": "2024-02-06T07:31:04Z", "fixed_at": "2024-02-06T07:30:58Z", "battery": 64.0,
    "n_fixes": 2_841, "NoticeLine.id": "webhook-12", "channel": "webhook", "NoticeLine.state": "dead", "tries": 10,
    "made_at": "2024-02-06T02:10:00Z", "due_at": "2024-02-06T03:40:00Z", "problem": "URLError", "deleted_events": 148,
}  # fmt: skip
#: The same for names that are not among them.
OF_TYPE: dict[str, Any] = {"string": "a word", "integer": 1, "number": 0.5, "boolean": False, "object": {}}
_KINDS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}

METRICS = 'ustad_requests_total{method="POST",route="/v1/events",status="200"} 148.0\n'
STREAM = 'id: 12\nevent: alert\ndata: {"id": "4611686018427387905", "agent_id": "a-17", "score": 4.2}\n\n'


def example_of(schema: dict[str, Any], models: dict[str, Any], model: str = "", name: str = "") -> Any:
    """A value of this form; `name` is the field of the `model` that it is for."""
    choices = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    for key in (f"{model}.{name}", name):
        if key in VALUES and (VALUES[key] is None or any(_fits(VALUES[key], one) for one in choices)):
            return VALUES[key]
    form = choices[0]
    if "$ref" in form:
        model = form["$ref"].rsplit("/", 1)[-1]
        fields = models[model].get("properties", {})
        return {field: example_of(part, models, model, field) for field, part in fields.items()}
    if "items" in form:
        return [example_of(form["items"], models, model, name)]
    if "const" in form or "enum" in form:
        return form.get("const", form.get("enum", [None])[0])
    return None if len(choices) < len(schema.get("anyOf", ())) else OF_TYPE[form["type"]]


def _fits(value: Any, form: dict[str, Any]) -> bool:
    """Whether a value is of a form; one that names no type takes all. True and False are no numbers."""
    kind = form.get("type")
    if "$ref" in form or (isinstance(value, bool) and kind in ("integer", "number")):
        return False
    return kind is None or (isinstance(value, _KINDS[kind]) and value in form.get("enum", [value]))


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
