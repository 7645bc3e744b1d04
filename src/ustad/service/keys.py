"""Bearer keys with roles. A key is shown once when it is made; the store holds only its SHA-256.

A key is 256 random bits, so a plain hash cannot be guessed back. A device's key has one agent, and may write that one.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from fastapi import Request
from sqlalchemy import delete, insert, select

from ustad.config import ConfigError
from ustad.page import records as r
from ustad.page.store import Store, now
from ustad.service.errors import ForbiddenError, UnauthorizedError
from ustad.service.messages import is_agent_id
from ustad.service.settings import days_of
from ustad.tables import DataError

ROLES = ("ingest", "read", "verdict", "admin", "metrics")
#: Roles that see less than `read`. A key has one of them and nothing else: what another role answers would say more.
COARSE, COUNTS = "read-coarse", "read-counts"
READERS = ("read", COARSE)
DEVICE = "device"  # the one role of a device's key, which may write one agent
COOKIE = "ustad_key"
PREFIX = "ustad_"
REFRESH_S = 2.0
_INVALID = 'Bearer error="invalid_token"'


@dataclass(frozen=True)
class Caller:
    """Who asks, and what they may do."""

    name: str
    roles: frozenset[str]
    expires_at: int | None = None  # microseconds since 1970, as in the store
    agent: str | None = None  # of a device's key: the only agent it may write


#: Whoever can reach a service without keys: it listens on loopback only.
LOCAL = Caller("local", frozenset(ROLES))


class Keys:
    """The keys of a store, read again every few seconds so that a new or removed one counts soon."""

    def __init__(self, store: Store, open_without: bool) -> None:
        """`open_without`: whether everybody may do everything while there is no key; on loopback only."""
        self._store, self._open, self._lock = store, open_without, threading.Lock()
        self._read_at = -REFRESH_S
        self._keys: dict[str, Caller] | None = None

    @property
    def is_due(self) -> bool:
        """Whether `all` would read the store."""
        return self._keys is None or time.monotonic() - self._read_at >= REFRESH_S

    @property
    def latest(self) -> dict[str, Caller]:
        """As they were read last: the server's loop must not wait for a store."""
        return self.all() if self._keys is None else self._keys

    def all(self) -> dict[str, Caller]:
        """Caller of every key by its digest, also of those that have expired: they do not open a service to
        everybody."""
        with self._lock:
            if self._keys is None or self.is_due:
                with self._store.reading() as connection:
                    rows = connection.execute(select(r.access_keys)).all()
                self._keys = {
                    k.digest: Caller(k.name, frozenset(k.roles.split(",")), k.expires_at, k.agent) for k in rows
                }
                self._read_at = time.monotonic()
            return self._keys

    def caller(self, key: str | None) -> Caller:
        """Whose key this is; on loopback, without any key in the store, everybody is `local`."""
        keys = self.latest
        if not keys and self._open:
            return LOCAL
        if not key:
            raise UnauthorizedError("a key is needed: send 'Authorization: Bearer KEY'", WWW_Authenticate="Bearer")
        caller = keys.get(digest(key))  # what its time could tell is of the digest, from which no key follows
        if caller is None:
            raise UnauthorizedError("the key is not known", WWW_Authenticate=_INVALID)
        if caller.expires_at is not None and now() >= caller.expires_at:
            raise UnauthorizedError("the key has expired", WWW_Authenticate=_INVALID)
        return caller

    def read_again(self) -> None:
        """Before the next request: a key was removed."""
        with self._lock:
            self._read_at = -REFRESH_S

    def may(self, key: str | None, *roles: str) -> bool:
        """Whether who has this key has one of the roles, now: it may have been removed or have expired since."""
        try:
            return not self.caller(key).roles.isdisjoint(roles)
        except UnauthorizedError:
            return False


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def key_in(headers: Mapping[bytes, bytes]) -> str | None:
    """The key of the Authorization header, or of the page's cookie."""
    scheme, _, value = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, content = part.strip().partition("=")
        if name == COOKIE:
            return content
    return None


def device_key_in(headers: Mapping[bytes, bytes]) -> str | None:
    """The key of the Authorization header, as a token or as the password of anybody: what apps can send."""
    scheme, _, value = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2] or None
        except ValueError:
            return None
    return value.strip() or None if scheme.lower() == "bearer" else None


def needs(*roles: str) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency of FastAPI: the caller, whom `request_checks` has found, and who must have one of these roles."""

    async def check(request: Request) -> Caller:  # async: a plain function would wait for a thread of the pool
        caller: Caller = request.scope["ustad.caller"]
        if not caller.roles.intersection(roles):
            raise ForbiddenError(f"this key may not do that; it needs the role '{roles[0]}'")
        return caller

    return check


def expiry_of(text: str) -> datetime:
    """`30d` from now, the end of a day in UTC (`2027-01-31`), or a moment (`2027-01-31T18:00+02:00`)."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        moment = _moment(text)
    else:
        moment = datetime(day.year, day.month, day.day, 23, 59, 59, tzinfo=UTC)
    if moment <= datetime.now(UTC):
        raise ConfigError(f"--expires must lie ahead, got '{text}'")
    return moment


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.now(UTC) + timedelta(days=days_of(text, "--expires"))
        except (ConfigError, OverflowError) as error:
            raise ConfigError(f"--expires takes 30d, 12w, 36h or a date such as 2027-01-31, got '{text}'") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def create_key(
    store: Store, name: str, roles: list[str], expires: datetime | None = None, *, agent: str | None = None
) -> str:
    """A new key, to be shown once, good until it `expires`. An existing name gets a new key; the old one is void.

    With an `agent` it is a device's key: it has no other role, and may write this agent alone.
    """
    if agent is not None:
        if roles:
            raise DataError("a device's key has no roles: it may write its agent and nothing else")
        if not is_agent_id(agent):
            raise DataError("--agent takes an id of 1 to 256 characters, none of them a control character")
        roles = [DEVICE]
    unknown = [role for role in roles if role not in (*ROLES, COARSE, COUNTS) and agent is None]
    if unknown or not roles:
        raise DataError(f"roles are {', '.join((*ROLES, COARSE, COUNTS))}, got '{', '.join(unknown)}'")
    if len(set(roles)) > 1 and not {COARSE, COUNTS}.isdisjoint(roles):
        raise DataError(f"a key with the role {COARSE} or {COUNTS} has no other: make a second key")
    if not name or len(name) > 128:
        raise DataError("a key needs a name of at most 128 characters")
    key = PREFIX + secrets.token_urlsafe(32)
    with store.writing() as connection:
        connection.execute(delete(r.access_keys).where(r.access_keys.c.name == name))
        if agent is not None:
            connection.execute(delete(r.devices).where(r.devices.c.name == name, r.devices.c.agent != agent))
        connection.execute(
            insert(r.access_keys).values(
                name=name,
                roles=",".join(dict.fromkeys(roles)),
                digest=digest(key),
                created_at=now(),
                expires_at=round(expires.timestamp() * 1e6) if expires is not None else None,
                agent=agent,
            )
        )
    return key


def remove_key(store: Store, name: str) -> None:
    with store.writing() as connection:
        connection.execute(delete(r.devices).where(r.devices.c.name == name))
        count = connection.execute(delete(r.access_keys).where(r.access_keys.c.name == name)).rowcount
    if not count:
        raise DataError(f"there is no key named '{name}'")
