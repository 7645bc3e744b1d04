"""How answers and errors are described in OpenAPI: by status, with a model and an example each."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from ustad.service import errors, examples
from ustad.service.keys import COOKIE
from ustad.service.messages import ErrorAnswer

Answers = dict[int | str, dict[str, Any]]

_MEANINGS = {
    400: "not a valid HTTP request", 401: "no key, or one that is not known",
    403: "the key lacks the role, or a proxy passed the request on while the service has no key",
    404: "not known", 409: "events that begin before the agent's latest known event has ended",
    413: "the body or the batch is too large", 421: "a foreign host name while the service has no key",
    422: "not in the documented form",
    429: "too much waits, or the key sends too often: send again after Retry-After seconds",
    503: "scoring failed or the service is shutting down: send again after Retry-After seconds",
}  # fmt: skip


def text_answer(media: str, example: str, meaning: str) -> Answers:
    """A success that is no JSON."""
    return {200: {"content": {media: {"schema": {"type": "string"}, "example": example}}, "description": meaning}}


def failure(*statuses: int) -> Answers:
    """Errors in their one shape."""
    answers: Answers = {}
    for status in statuses:
        content = {"application/json": {"example": errors.content(status, *examples.ERRORS[status])}}
        answers[status] = {"model": ErrorAnswer, "description": _MEANINGS[status], "content": content}
    return answers


#: What every route of the interface can answer.
ERRORS = failure(400, 401, 403, 413, 421, 422, 429, 503)


#: How a key is sent: programs in a header, the page in a cookie.
SCHEMES = {
    "key": {"type": "http", "scheme": "bearer", "description": "A key made with `ustad serve … --create-key NAME`."},
    "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "The same key, set by the login page."},
}


def _describe_keys(document: dict[str, Any]) -> None:
    """Every route but those of health asks for a key, while the service has one."""
    document["components"]["securitySchemes"] = SCHEMES
    document["security"] = [{name: []} for name in SCHEMES]
    for path in ("/healthz", "/readyz"):
        for route in document["paths"][path].values():
            route["security"] = []


def complete(app: FastAPI) -> None:
    """Add to the description how keys are sent, and an example of every answer that has none."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = make()
            _describe_keys(document)
            models = document["components"]["schemas"]
            routes = [route for methods in document["paths"].values() for route in methods.values()]
            for answer in (answer for route in routes for answer in route["responses"].values()):
                for content in answer.get("content", {}).values():
                    content.setdefault("example", examples.example_of(content["schema"], models))
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]  # the documented way to change the description
