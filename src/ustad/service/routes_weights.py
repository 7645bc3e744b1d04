"""Weights that verdicts taught: what they are, what they change, and the switch, which needs the role `verdict`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel

from ustad.page.weights_preview import preview_weights
from ustad.service.errors import NotFoundError
from ustad.service.live_weights import LiveWeights
from ustad.service.messages import Strict
from ustad.service.openapi import ERRORS, failure
from ustad.service.routes_cases import Decide
from ustad.service.routes_read import Read


class Change(BaseModel):
    """Of incidents from `first_day` on: `alerts` by score alone, how many of these would `go` (and how many of those
    are `confirmed`), and how many others would `come`."""

    first_day: str | None
    alerts: int
    go: int
    confirmed: int
    come: int


class Weights(BaseModel):
    """`weights` is empty where the service was given none; `by` and `at` say who turned the switch last."""

    weights: dict[str, float]
    on: bool
    by: str
    at: str
    change: Change | None


class Switch(Strict, json_schema_extra={"examples": [{"on": True}]}):
    """Whether alerts are raised by what verdicts taught, from now on."""

    on: bool


def weight_routes() -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["rules"], responses=ERRORS)
    router.get("/weights", response_model=Weights)(get_weights)
    router.put("/weights", response_model=Weights, responses=failure(404))(put_weights)
    return router


def get_weights(request: Request, caller: Read) -> Any:
    """What verdicts taught, whether it counts, and what it changes of the last 30 days."""
    return _describe(request.app.state.service)


def put_weights(request: Request, switch: Switch, caller: Decide) -> Any:
    """Turn the switch: alerts of events that come from now on. What is stored stays as it is."""
    service = request.app.state.service
    if service.weights is None:
        raise NotFoundError("the service has no weights; start it with --weights FILE, which `ustad learn` writes")
    service.weights.turn(service.store, switch.on, caller.name)
    return _describe(service)


def _describe(service: Any) -> dict[str, Any]:
    live: LiveWeights | None = service.weights
    if live is None:
        return {"weights": {}, "on": False, "by": "", "at": "", "change": None}
    with service.store.reading() as connection:
        change = preview_weights(connection, live.weights, live.p_value)
    return {"weights": live.weights, "on": live.is_on, "by": live.by, "at": live.at, "change": change}
