"""What every request passes first: limits on the body, the Host header, security headers, a log without identities.

An ASGI layer around the application. A request without a valid key is answered before its body is read. Bodies without
a stated length are counted as they come.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ustad.page.coarse import coarsen
from ustad.page.store import DISK_FULL, CommitError, is_disk_full
from ustad.service import errors
from ustad.service.errors import UnauthorizedError, response
from ustad.service.keys import COARSE, LOCAL, Caller, Keys, device_key_in, key_in
from ustad.service.login import login_page
from ustad.service.metrics import Metrics
from ustad.service.rates import Rates
from ustad.service.read_audit import ReadAudit

log = logging.getLogger("ustad.service.access")

LOCAL_NAMES = {"localhost", "127.0.0.1", "[::1]"}
#: What a proxy adds to a request that it passes on.
PROXY_HEADERS = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via")
AGENTS = "/v1/agents/"
DEVICES = "/device/"
GROUND = "/v1/ground"  # a map of the world, with nobody on it
OPEN_PATHS = {"/healthz", "/readyz", "/login"}
METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"}


def content_policy(tiles: str) -> str:
    """Nothing but the service's own files, and images of the tile server where one is given."""
    origin = "/".join(tiles.split("/")[:3]) if tiles.startswith(("http://", "https://")) else ""
    images = f"'self' data: blob: {origin}".strip()
    connect = f"'self' {origin}".strip()
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src {images}; connect-src {connect}; "
        "worker-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


class RequestChecks:
    """Wraps the application. `local_only`: no key is set, so only names of this machine are answered (a web page
    elsewhere cannot point its own name at the service)."""

    def __init__(
        self, app: ASGIApp, *, max_body: int, policy: str, metrics: Metrics, keys: Keys, rates: Rates,
        local_only: Callable[[], bool], audit: ReadAudit | None = None, coarse_metres: float = 0.0,
    ) -> None:  # fmt: skip
        self.app, self._max_body, self._metrics, self._keys, self._local_only = app, max_body, metrics, keys, local_only
        self._rates, self._audit, self._coarse_metres = rates, audit, coarse_metres
        self._reading: asyncio.Future[Any] | None = None
        self._headers = {
            "content-security-policy": policy,
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "permissions-policy": "geolocation=(), camera=(), microphone=()",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-cache" if scope["path"].startswith("/static/") else "no-store")
            await send(message)

        try:
            refusal = await self._refusal(scope)
            if refusal is not None:
                await refusal(scope, receive, answer)
            else:
                await self.app(scope, self._count_body(receive), self._coarse(scope, answer))
        except ClientDisconnect:  # before its request was whole: there is nobody to answer
            pass
        except Exception as error:  # a traceback of the server would show values; ours shows places in the code
            errors.log.error("unexpected %s at %s", type(error).__name__, errors.where(error))
            if status:
                raise ConnectionError("the answer broke off") from None
            await _answer_unexpected(error)(scope, receive, answer)
        except asyncio.CancelledError:  # the server ends, and has waited long enough
            if status:
                raise
            message = "the service is shutting down; send again, what was stored counts once"
            await response(503, message)(scope, receive, answer)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    async def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that may not go on; who asks is then in the scope."""
        headers = dict(scope["headers"])
        _keep_slashes(scope)
        if scope["path"] != "/healthz":  # the process answers, whatever the store does
            await self._read_keys()
        if self._local_only() and _host(headers) not in LOCAL_NAMES:
            return response(421, "this service answers only to names of its own machine while it has no key")
        if self._local_only() and any(name in headers for name in PROXY_HEADERS):
            return response(403, "a proxy passed this on, and the service has no key; make one with --create-key")
        if scope["path"] not in OPEN_PATHS:
            try:
                scope["ustad.caller"] = caller = self._caller(scope["path"], headers)
            except UnauthorizedError as error:
                return _answer_unauthorized(scope, error)
            seconds = self._rates.take(caller.name) if caller is not LOCAL else 0
            if seconds:
                wait = {"Retry-After": str(seconds)}
                return response(429, "this key sends too many requests a second; send again later", headers=wait)
            if self._audit is not None and not self._note_access(caller, scope):
                return response(503, "the audit cannot be written, so nothing is shown; the disk may be full")
        length = headers.get(b"content-length", b"0")
        return response(413, self._too_large) if not length.isdigit() or int(length) > self._max_body else None

    @property
    def _too_large(self) -> str:
        return f"the body is larger than {self._max_body:,} bytes; send smaller batches"

    def _count_body(self, receive: Receive) -> Receive:
        """A receive that gives no more of a body than the limit."""
        size = 0

        async def receive_part() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._max_body:
                raise HTTPException(413, self._too_large)
            return message

        return receive_part

    def _coarse(self, scope: Scope, send: Send) -> Send:
        """A send that makes answers coarse, for who may see no others."""
        is_coarse = "ustad.caller" in scope and COARSE in scope["ustad.caller"].roles
        if is_coarse and scope["path"].startswith("/v1/") and scope["path"] != GROUND:
            return send_coarse(send, self._coarse_metres)
        return send

    def _note_access(self, caller: Caller, scope: Scope) -> bool:
        """Whether the audit has this request."""
        try:
            self._audit.note(caller.name, scope["method"], scope["path"], scope["query_string"])  # type: ignore[union-attr]  # asked before
        except OSError as error:
            errors.log.error("the audit cannot be written: %s", error.strerror or error)
            return False
        return True

    async def _read_keys(self) -> None:
        """Where it is time for it, in a thread: the loop goes on, and requests of the same moment share one reading."""
        if self._keys.is_due:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.ensure_future(run_in_threadpool(self._keys.all))
            await asyncio.shield(self._reading)

    def _caller(self, path: str, headers: dict[bytes, bytes]) -> Caller:
        """Who asks. Apps that can send no header have the key of their device in the address. Other keys are not taken
        from there: what ends in the logs of a proxy can then write one agent, and no more."""
        if not path.startswith(DEVICES):
            return self._keys.caller(key_in(headers))
        key = path.removeprefix(DEVICES).partition("/")[2]
        caller = self._keys.caller(key or device_key_in(headers))
        if key and caller.agent is None and caller is not LOCAL:
            raise UnauthorizedError("only a device's key may stand in an address", WWW_Authenticate="Bearer")
        return caller

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unknown")
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        self._metrics.request(route, method, status, seconds)
        log.info("%s %s %d %.1f ms", method, route, status, 1000 * seconds)


def send_coarse(send: Send, metres: float) -> Send:
    """A send that makes every JSON answer, and every message of a stream, coarse, whichever route it is of."""
    head: Message = {}
    parts: list[bytes] = []

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            head.update(message)
            if not _is_json(head):  # the length of JSON changes: its head waits for the body
                await send(message)
        elif message["type"] != "http.response.body" or not (_is_json(head) or _is_stream(head)):
            await send(message)
        elif _is_stream(head):
            await send({**message, "body": _coarse_lines(message.get("body", b""), metres)})
        else:
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                body = json.dumps(coarsen(json.loads(b"".join(parts) or b"null"), metres), ensure_ascii=False).encode()
                headers = [(name, value) for name, value in head["headers"] if name.lower() != b"content-length"]
                await send({**head, "headers": [*headers, (b"content-length", str(len(body)).encode())]})
                await send({"type": "http.response.body", "body": body})

    return answer


def _media(head: Message) -> bytes:
    return dict(head["headers"]).get(b"content-type", b"").partition(b";")[0]


def _is_json(head: Message) -> bool:
    return _media(head) == b"application/json"


def _is_stream(head: Message) -> bool:
    return _media(head) == b"text/event-stream"


def _coarse_lines(body: bytes, metres: float) -> bytes:
    """Whole messages of a stream."""
    begin = b"data: "
    lines = [
        begin + json.dumps(coarsen(json.loads(line[len(begin) :]), metres), ensure_ascii=False).encode()
        if line.startswith(begin)
        else line
        for line in body.split(b"\n")
    ]
    return b"\n".join(lines)


def _keep_slashes(scope: Scope) -> None:
    """Leave the ids of agents as they were sent, percent-encoded: a '/' within one does not end it."""
    if scope["path"].startswith(AGENTS):
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        scope["path"] = raw.decode("ascii", "replace")


def _host(headers: dict[bytes, bytes]) -> str:
    host = headers.get(b"host", b"").decode("latin-1")
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]


def _answer_unauthorized(scope: Scope, error: UnauthorizedError) -> Response:
    """The one error shape; a browser that opens the page is asked for the key instead."""
    accepts = dict(scope["headers"]).get(b"accept", b"")
    if scope["method"] == "GET" and b"text/html" in accepts:
        address = (scope.get("raw_path") or quote(scope["path"]).encode()).decode("ascii", "replace")
        query = scope.get("query_string", b"").decode("ascii", "replace")
        page, policy = login_page(address=f"{address}?{query}" if query else address)
        return HTMLResponse(page, 401, {"Content-Security-Policy": policy})
    return response(error.status, error.message, headers={"WWW-Authenticate": error.headers["WWW_Authenticate"]})


def _answer_unexpected(error: Exception) -> Response:
    if isinstance(error, (OperationalError, CommitError, PoolTimeoutError)):
        problem = DISK_FULL if is_disk_full(error) else "the store does not answer"
        return response(503, f"{problem}; send again later", headers={"Retry-After": "5"})
    return response(500, "an unexpected error; the service's log says where")
