"""Rules that hide explained alerts: preview, make, list, undo. Reading needs the role `read`, the rest `verdict`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import AfterValidator, BaseModel, Field

from ustad.clock import microseconds
from ustad.page import hidden
from ustad.service.errors import NotFoundError
from ustad.service.messages import AgentId, EventAnswer, Latitude, Longitude, Moment, Strict, Text, _printable
from ustad.service.openapi import ERRORS, failure
from ustad.service.routes_cases import Decide
from ustad.service.routes_read import Read, number_of
from ustad.triage.hiding import NEAR_KM, HidingRule

Minute = Annotated[int, Field(ge=0, le=1440)]


NEW_RULE = {
    "agent_id": "a-17", "from_minute": 1320, "to_minute": 360, "until": "2024-06-30T21:00:00Z", "reason": "night shift"
}  # fmt: skip


class NewRule(Strict, json_schema_extra={"examples": [NEW_RULE]}):
    """Which alerts to hide: those of a person, near a place, or both. They can be narrowed by category, kind and hours.
    Hours are the local minutes in which an event begins; they pass midnight where the first is the larger. A rule has a
    reason and holds until a moment."""

    agent_id: AgentId | None = None
    lat: Latitude | None = None
    lon: Longitude | None = None
    radius_km: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = NEAR_KM
    category: Text | None = None
    from_minute: Minute | None = None
    to_minute: Minute | None = None
    kind: Text | None = None
    until: Moment
    reason: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_printable)]

    def rule(self) -> HidingRule:
        hours = (self.from_minute, self.to_minute)
        return HidingRule(
            name="new", until=microseconds(self.until), reason=self.reason,
            agent=str(self.agent_id) if self.agent_id is not None else None, lat=self.lat, lon=self.lon,
            radius_km=self.radius_km, category=self.category, kind=self.kind,
            hours=(hours[0], hours[1]) if hours[0] is not None and hours[1] is not None else None,
        )  # fmt: skip


class Preview(BaseModel):
    """Of the `alerts` from `first_day` on so many would be `hidden`, and so many of those are `confirmed`."""

    first_day: str | None
    alerts: int
    hidden: int
    confirmed: int
    examples: list[EventAnswer]


class RuleAnswer(BaseModel):
    """`hides` counts alerts; `state` is in force, expired or ended."""

    id: str
    agent_id: str | None
    lat: float | None
    lon: float | None
    radius_km: float | None
    category: str | None
    from_minute: int | None
    to_minute: int | None
    kind: str | None
    until: str
    reason: str
    by: str
    at: str
    hides: int
    state: str


class Rules(BaseModel):
    rules: list[RuleAnswer]


def rule_routes() -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["rules"], responses=ERRORS)
    router.get("/rules", response_model=Rules)(get_rules)
    router.post("/rules", response_model=Rules)(post_rule)
    router.post("/rules/preview", response_model=Preview)(post_preview)
    router.delete("/rules/{rule_id}", response_model=Rules, responses=failure(404))(delete_rule)
    return router


def get_rules(request: Request, caller: Read) -> Any:
    """All rules, the latest first, with how many alerts each hides."""
    with request.app.state.service.store.reading() as connection:
        return {"rules": hidden.list_rules(connection)}


def post_preview(request: Request, new: NewRule, caller: Read) -> Any:
    """What a rule would hide of the alerts of the last 30 days. Nothing is changed."""
    with request.app.state.service.store.reading() as connection:
        return hidden.preview(connection, new.rule())


def post_rule(request: Request, new: NewRule, caller: Decide) -> Any:
    """Hide what a rule covers, now and as events come, until its date; answers all rules. Scores stay as they are."""
    with request.app.state.service.store.writing() as connection:
        hidden.add_rule(connection, new.rule(), caller.name)
        return {"rules": hidden.list_rules(connection)}


def delete_rule(request: Request, rule_id: Annotated[str, Path(max_length=20)], caller: Decide) -> Any:
    """Undo a rule: what it hides is shown again; answers all rules."""
    with request.app.state.service.store.writing() as connection:
        if not hidden.end_rule(connection, number_of(rule_id, "rule"), caller.name):
            raise NotFoundError("there is no such rule in force")
        return {"rules": hidden.list_rules(connection)}
