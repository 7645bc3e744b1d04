"""How answers and errors are described in OpenAPI: by status, with a model and an example each."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from ustad.service import errors, examples
from ustad.service.keys import COOKIE
from ustad.service.messages import ErrorAnswer

Described = dict[int | str, dict[str, Any]]

_MEANINGS = {
    400: "not a valid HTTP request", 401: "no key, or one that is not known",
    403: "the key lacks the role, or a proxy passed the request on while the service has no key",
    404: "not known", 409: "events that begin before the agent's latest known event has ended",
    413: "the body or the batch is too large", 421: "a foreign host name while the service has no key",
    422: "not in the documented form",
    429: "too much waits, or the key sends too often: send again after Retry-After seconds",
    503: "scoring failed or the service is shutting down: send again after Retry-After seconds",
}  # fmt: skip


def answer(example: examples.Example, model: type[BaseModel] | None = None) -> Described:
    """A success with an example. `model` describes what the route itself has no model for."""
    return {200: _content("application/json", example) | ({"model": model} if model is not None else {})}


def text_answer(media: str, example: str, meaning: str) -> Described:
    """A success that is no JSON."""
    return {200: {"content": {media: {"schema": {"type": "string"}, "example": example}}, "description": meaning}}


def failure(*statuses: int) -> Described:
    """Errors in their one shape."""
    answers: Described = {}
    for status in statuses:
        example = errors.content(status, *examples.ERRORS[status])
        content = _content("application/json", example)
        answers[status] = {"model": ErrorAnswer, "description": _MEANINGS[status], **content}
    return answers


def _content(media: str, example: Any) -> dict[str, Any]:
    return {"content": {media: {"example": example}}}


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
    """Add to the description how keys are sent and, in examples, what is null: it is made without any null."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = make()
            _describe_keys(document)
            for answer_of in (answer for methods in document["paths"].values() for route in methods.values()
                         for answer in route["responses"].values()):  # fmt: skip
                for content in answer_of.get("content", {}).values():
                    content["example"] = _with_nulls(content["example"], content["schema"], document["components"])
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]  # the documented way to change the description


def _with_nulls(value: Any, schema: dict[str, Any], parts: dict[str, Any]) -> Any:
    """The value with null for every field that its schema asks for and that it lacks."""
    if "$ref" in schema:
        schema = parts["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    for choice in schema.get("anyOf", ()):
        if choice.get("type") != "null":
            value = _with_nulls(value, choice, parts)
    if isinstance(value, list) and "items" in schema:
        return [_with_nulls(one, schema["items"], parts) for one in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    fields = {name: _with_nulls(value.get(name), part, parts) for name, part in schema["properties"].items()}
    return {**fields, **{name: one for name, one in value.items() if name not in fields}}
