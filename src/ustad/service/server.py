"""The server around the application: where it listens, how long a client may take, how it starts and stops.

uvicorn does the work. This module adds what uvicorn lacks. A request's head and body have time limits, and one address
may open so many connections. A port that is taken is reported before anything is loaded. Streams end at once when the
service stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ustad.config import ConfigError
from ustad.service.settings import Settings

MOST_CONNECTIONS = 1000
SPARE_FILES = 128  # of the files that the system allows: the store, the model, what is loaded late
GRACE_S = 5
_HEAD, _BODY, _IDLE = "head", "body", "idle"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@dataclass
class Limits:
    """What connections share: their limits, how many each address has, and which of them wait for a request."""

    head_s: float
    body_s: float
    per_address: int
    proxies: frozenset[str]  # addresses of proxies: their connections are those of many clients
    most: int = MOST_CONNECTIONS
    by_address: Counter[str] = field(default_factory=Counter)
    waiting: OrderedDict[LimitedConnection, str] = field(default_factory=OrderedDict)  # the longest first

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = MOST_CONNECTIONS if files < 0 else max(16, min(MOST_CONNECTIONS, files - SPARE_FILES))
        proxies = frozenset(part.strip() for part in settings.proxy_headers.split(",") if part.strip())
        return cls(settings.head_seconds, settings.body_seconds, settings.max_connections_per_address, proxies, most)

    def admit(self, address: str) -> bool:
        """Whether one more connection may stay. Where there are too many, one without a request makes room."""
        is_limited = self.per_address and address not in self.proxies
        if is_limited and self.by_address[address] > self.per_address:
            return self._drop_one(address)
        return self.by_address.total() <= self.most or self._drop_one(None)

    def _drop_one(self, address: str | None) -> bool:
        """Close the connection (of this address) that has waited longest without a whole request."""
        oldest = next((c for c, of in self.waiting.items() if address in (None, of)), None)
        if oldest is None:
            return False
        del self.waiting[oldest]
        oldest.transport.abort()
        return True


class LimitedConnection(H11Protocol):
    """One connection. Sending a byte now and then does not move its time limits."""

    def __init__(self, *arguments: Any, limits: Limits, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._limits, self._phase = limits, ""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._limits.by_address[self._address] += 1
        if self._limits.admit(self._address):
            self._enter(_HEAD)
        else:
            transport.write(_TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter("")
        self._limits.by_address[self._address] -= 1
        if self._limits.by_address[self._address] <= 0:
            del self._limits.by_address[self._address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._enter({h11.IDLE: _HEAD, h11.SEND_BODY: _BODY}.get(self.conn.their_state, ""))

    def on_response_complete(self) -> None:
        self._enter(_IDLE)
        super().on_response_complete()

    def shutdown(self) -> None:
        """A request that has not come whole is not waited for."""
        if self._phase:
            self.transport.close()
        else:
            super().shutdown()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _enter(self, phase: str) -> None:
        """What the connection waits for: a head, a body, the next request, or nothing of its client's."""
        if phase == self._phase or (self.transport.is_closing() and phase):
            return
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._limits.waiting.pop(self, None)
        if phase:
            self._limits.waiting[self] = self._address
        seconds = {_HEAD: self._limits.head_s, _BODY: self._limits.body_s}.get(phase, 0.0)
        if seconds:
            self._timer = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
                self.transport.write(_TOO_SLOW)
            self.transport.close()


class Server(uvicorn.Server):
    """Says when it really listens, and ends what would go on for ever before it waits for the rest."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], Any], on_stop: Callable[[], Any]) -> None:
        super().__init__(config)
        self._on_start, self._on_stop = on_start, on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)


def make_server(
    app: Any, settings: Settings, on_start: Callable[[], Any] = lambda: None, on_stop: Callable[[], Any] = lambda: None
) -> Server:
    limits = Limits.of(settings)
    config = uvicorn.Config(
        app, host=settings.host, port=settings.port, log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=GRACE_S, limit_concurrency=limits.most + 1, ws="none",
        http=partial(LimitedConnection, limits=limits),  # type: ignore[arg-type]  # whatever makes a protocol
        proxy_headers=bool(limits.proxies), forwarded_allow_ips=sorted(limits.proxies) or None,
    )  # fmt: skip
    return Server(config, on_start, on_stop)


def run_server(server: Server, listener: socket.socket) -> None:
    """Serve until a signal says stop."""
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    if not server.started:
        sys.exit(3)


def bind(host: str, port: int) -> socket.socket:
    """A socket at this address, which does not listen yet; one line where the address cannot be had."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, number)
    except OSError as error:
        raise ConfigError(f"--host: '{host}' is not an address of this machine ({error.strerror})") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        problem = f"cannot listen on {host}, port {port} ({error.strerror})"
        raise ConfigError(f"{problem}; is a service running there? Choose another with --port") from error
    return listener
