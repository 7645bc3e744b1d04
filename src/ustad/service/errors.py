"""One JSON shape for every error: `{"error": {"code", "message", "details"}}`.

Exceptions carry their HTTP status. What a client sent is never repeated in an answer or a log.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ustad.page.store import CommitError
from ustad.tables import DataError

log = logging.getLogger("ustad.service")

CODES = {
    400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    409: "conflict", 413: "too_large", 415: "unsupported_media_type", 421: "wrong_host", 422: "invalid",
    429: "busy", 500: "internal", 503: "unavailable",
}  # fmt: skip


class ServiceError(Exception):
    """An answer that is not a success. `details` are rows or fields, never values."""

    status = 400

    def __init__(self, message: str, details: list[dict[str, Any]] | None = None, **headers: str) -> None:
        super().__init__(message)
        self.message, self.details, self.headers = message, details or [], headers


class UnauthorizedError(ServiceError):
    status = 401


class ForbiddenError(ServiceError):
    status = 403


class NotFoundError(ServiceError):
    status = 404


class OutOfOrderError(ServiceError):
    status = 409


class TooLargeError(ServiceError):
    status = 413


class InvalidError(ServiceError):
    status = 422


class BusyError(ServiceError):
    status = 429


class UnavailableError(ServiceError):
    status = 503


def refuse_unknown(error: Exception) -> UnavailableError | None:
    """What a client is told of a transaction whose last step failed; None of other errors: nothing was stored."""
    if not isinstance(error, CommitError):
        return None
    message = "the store failed in its last step; this may be stored all the same, and sending it again is safe"
    return UnavailableError(message, Retry_After="5")


def content(status: int, message: str, details: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The one shape."""
    return {"error": {"code": CODES.get(status, "error"), "message": message, "details": details or []}}


def response(status: int, message: str, details: Any = None, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(content(status, message, details), status_code=status, headers=headers)


def install(app: FastAPI) -> None:
    """Answer every exception in the one shape."""

    @app.exception_handler(ServiceError)
    async def of_service(request: Request, error: ServiceError) -> JSONResponse:
        headers = {name.replace("_", "-"): value for name, value in error.headers.items()}
        return response(error.status, error.message, error.details, headers)

    @app.exception_handler(DataError)
    async def of_data(request: Request, error: DataError) -> JSONResponse:
        return response(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def of_validation(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = [{"where": [str(part) for part in e["loc"]], "problem": e["msg"]} for e in error.errors()[:20]]
        return response(422, "the request does not have the documented form", problems)

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        return response(error.status_code, str(error.detail), None, dict(error.headers or {}))


def where(error: BaseException) -> str:
    """File and line of an error, without its message: messages can hold what a client sent."""
    frames = traceback.extract_tb(error.__traceback__)
    return " < ".join(f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}" for f in reversed(frames[-6:]))
