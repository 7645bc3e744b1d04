"""What goes over the wire: the bodies of requests and answers, with examples for the OpenAPI description."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    TypeAdapter,
    ValidationError,
    create_model,
)

from ustad.clock import is_zone
from ustad.page.runs import NO_ADDRESS
from ustad.schema import EventSchema

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_NUMBER_LIMIT = 2**63


def _plausible(moment: datetime) -> datetime:
    if not EARLIEST <= moment < LATEST:
        raise ValueError("a time between 1970 and 2200 is needed")
    return moment


def _printable(text: str) -> str:
    if any(ord(c) < 32 or 0xD800 <= ord(c) < 0xE000 for c in text):
        raise ValueError("control characters are not allowed")
    return text


def _text(value: str) -> str:
    _printable(value.replace("\n", " ").replace("\r", " ").replace("\t", " "))
    return value


def _addressable(name: str) -> str:
    if name in NO_ADDRESS:
        raise ValueError("'.' and '..' cannot be part of an address: choose another id")
    return name


Moment = Annotated[AwareDatetime, AfterValidator(_plausible)]
Text = Annotated[str, Field(max_length=256), AfterValidator(_printable)]
Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_printable)]
Number = Annotated[StrictInt, Field(ge=-_NUMBER_LIMIT, lt=_NUMBER_LIMIT)]
Id = Name | Number
AgentId = Annotated[Name, AfterValidator(_addressable)] | Number
_AGENT_ID: TypeAdapter[str | int] = TypeAdapter(AgentId)
Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]
Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


def is_agent_id(text: str) -> bool:
    """Whether an agent can be called so."""
    try:
        _AGENT_ID.validate_python(text)
    except ValidationError:
        return False
    return True


class Strict(BaseModel, extra="forbid"):
    """What a client sends: a field that is not known is refused."""


class Fix(Strict):
    """One GPS fix."""

    agent_id: AgentId
    time: Moment
    lat: Latitude
    lon: Longitude
    accuracy_m: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


FIXES_EXAMPLE = {"fixes": [
    {"agent_id": "a-17", "time": "2024-02-05T08:00:00Z", "lat": 60.17, "lon": 24.94},
    {"agent_id": "a-17", "time": "2024-02-05T08:06:00Z", "lat": 60.17, "lon": 24.94},
]}  # fmt: skip


class Fixes(Strict, json_schema_extra={"examples": [FIXES_EXAMPLE]}):
    """Raw GPS of any agents. Fixes of one agent come in order of time, also over requests."""

    fixes: Annotated[list[Fix], Field(min_length=1)]


class Stay(Strict):
    """One finished stay."""

    agent_id: AgentId
    started_at: Moment
    finished_at: Moment
    lat: Latitude
    lon: Longitude
    poi_id: Id | None = None
    poi_category: Text | None = None
    poi_name: Text | None = None
    timezone: Text | None = None
    stay_id: Id | None = None
    n_fixes: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    start_gap_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    end_gap_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    observed_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


STAY_EXAMPLE = {"events": [{
    "agent_id": "a-17", "started_at": "2024-02-05T08:12:00Z", "finished_at": "2024-02-05T16:40:00Z",
    "lat": 60.1699, "lon": 24.9384, "poi_category": "work", "timezone": "Europe/Helsinki",
}]}  # fmt: skip


def events_model(schema: EventSchema | None) -> type[BaseModel]:
    """The body of `POST /v1/events`: stays, or events of the schema that the model was trained on."""
    one: Any = Stay
    example: dict[str, Any] = STAY_EXAMPLE
    if schema is not None and schema.name != "mobility":
        one = _event_of(schema)
        example = {"events": [_example_of(schema)]}
    config = ConfigDict(extra="forbid", json_schema_extra={"examples": [example]})
    return create_model("Events", __config__=config, events=(Annotated[list[one], Field(min_length=1)], ...))


def _event_of(schema: EventSchema) -> type[BaseModel]:
    fields: dict[str, Any] = {schema.entity: (AgentId, ...), schema.time: (Moment, ...)}
    if schema.end:
        fields[schema.end] = (Moment, ...)
    if schema.event_id:
        fields[schema.event_id] = (Id | None, None)
    if not is_zone(schema.timezone):
        fields[schema.timezone] = (Text | None, None)
    kinds = {"categorical": Text | None, "vector": Annotated[list[Finite], Field(max_length=1024)] | None}
    for feature in schema.features:
        for column in feature.columns:
            place = dict(zip(feature.source, (Latitude | None, Longitude | None), strict=False))
            kind = place[column] if feature.kind == "place" else kinds.get(feature.kind, Finite | None)
            fields.setdefault(column, (kind, None))
    if schema.habitat:
        fields.setdefault(schema.habitat, (Id | None, None))
    return create_model("Event", __config__=ConfigDict(extra="forbid"), **fields)


def _example_of(schema: EventSchema) -> dict[str, Any]:
    """An event of the schema, with a value of the right kind for each of its features."""
    values: dict[str, Any] = {"categorical": "a word", "vector": [0.5, 0.25]}
    example: dict[str, Any] = {schema.entity: "a-17", schema.time: "2024-02-05T08:12:00Z"}
    if schema.end:
        example[schema.end] = "2024-02-05T08:40:00Z"
    if schema.event_id:
        example[schema.event_id] = "e-20481"
    for feature in schema.features:
        for number, column in enumerate(feature.columns):
            place = (60.1699, 24.9384)[min(number, 1)]
            example.setdefault(column, place if feature.kind == "place" else values.get(feature.kind, 12.5))
    return example


VERDICT_EXAMPLES = [
    {"verdict": "confirmed", "note": "called, will follow up"},
    {"verdict": "expected", "reason": "new place of work", "until": "2024-06-30T00:00:00Z"},
]


class Verdict(Strict, json_schema_extra={"examples": VERDICT_EXAMPLES}):
    """What a person decided about an alert. `expected` needs a reason, and says until when it holds; `wrong` means that
    the data is bad or the program mistaken."""

    verdict: Literal["confirmed", "expected", "wrong", "open"]
    reason: Annotated[str, Field(max_length=500), AfterValidator(_printable)] = ""
    note: Annotated[str, Field(max_length=4000), AfterValidator(_text)] = ""
    until: Moment | None = None


# ------------------------------------------------------------------------------------------------ answers
class Problem(BaseModel):
    code: str
    message: str
    details: list[dict[str, Any]]


class ErrorAnswer(BaseModel):
    """Every error has this shape."""

    error: Problem


class GivenVerdict(BaseModel):
    verdict: str
    reason: str
    note: str
    until: str | None
    by: str
    at: str


class OtherEvent(BaseModel):
    """When and where another event was."""

    id: str
    started_at: str
    finished_at: str
    timezone: str
    category: str | None
    place_name: str | None


class ExplainingEvent(OtherEvent):
    """The event that an incident is about, where another of its events is more unusual."""

    kind: str | None
    term: str | None
    reason: str | None


class EventAnswer(BaseModel):
    """An event as lists show it. `score` is null for events that are known but not scored. With `final` false the score
    is provisional: the agent's next event may raise it and make the event an alert. Events of one `incident_id` belong
    together. One leads, the others are its `echo`. Where the lead is at one of the agent's own places, `with_it` names
    the most unusual of the others. Where the lead is only the way back, `led_by` is the event right before it, which
    explains the incident; the score stays that of the most unusual one. `hidden_by` is the rule that keeps it out of
    lists."""

    id: str
    event_id: str | None
    agent_id: str
    started_at: str
    finished_at: str
    day: str
    timezone: str
    lat: float | None
    lon: float | None
    category: str | None
    place_name: str | None
    score: float | None
    p_value: float | None
    alert: bool
    final: bool
    incident_id: str | None
    echo: bool
    with_it: str | None
    led_by: ExplainingEvent | None
    kind: str | None
    term: str | None
    reason: str | None
    verdict: GivenVerdict | None
    marked_by: str | None
    hidden_by: str | None


class KeptEvent(BaseModel):
    """A row that came again with another end: what was stored first stays, with this end."""

    row: int | None
    id: str
    finished_at: str


class IngestAnswer(BaseModel):
    """`accepted` events were stored and scored now; `duplicates` were there before and are answered as stored. Those of
    them whose end is not the stored one are named in `kept`."""

    accepted: int
    duplicates: int
    kept: list[KeptEvent]
    events: list[EventAnswer]


class FixesAnswer(BaseModel):
    """`events` are the stays that these fixes finished. Late and repeated fixes, and those at (0, 0), are counted, not
    stored."""

    accepted: int
    late: int
    duplicates: int
    dropped: int
    implausible: int
    events: list[EventAnswer]


class AgentAnswer(BaseModel):
    agent_id: str
    timezone: str
    first_at: str
    last_at: str
    n_events: int
    n_scored: int
    n_alerts: int
    score: float | None
    p_value: float | None
    worst: str | None
    reason: str | None
    change: str | None
    order_note: str | None


class AgentPage(BaseModel):
    total: int
    offset: int
    agents: list[AgentAnswer]


class EventPage(BaseModel):
    total: int
    offset: int
    events: list[EventAnswer]


class AlertPage(BaseModel):
    """`next_since` is what to ask for with `since` to get only what came after this answer."""

    total: int
    offset: int
    next_since: int
    alerts: list[EventAnswer]


class DeviceAnswer(BaseModel):
    """A device by the name of its key. `heard_at` is when the last request came, `fixed_at` the time of the latest fix.
    `n_left_out` counts fixes that came late, were imprecise, or had a wrong clock or no position. `n_events` counts the
    agent's events."""

    name: str
    agent_id: str
    app: str | None
    heard_at: str | None
    fixed_at: str | None
    battery: float | None
    n_fixes: int
    n_left_out: int
    n_events: int


class DevicePage(BaseModel):
    total: int
    offset: int
    devices: list[DeviceAnswer]


class Deletion(BaseModel):
    deleted_events: int
