"""Keys without a service around them: where a key is looked for, whose it is, until when, and what it replaces."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert, select

from ustad.page import records as r
from ustad.page.store import Store
from ustad.service import keys as module
from ustad.service.errors import ForbiddenError, UnauthorizedError
from ustad.service.keys import COARSE, COUNTS, LOCAL, Keys, create_key, device_key_in, key_in, needs, remove_key
from ustad.tables import DataError

tokens = st.text("abcXYZ019-_", min_size=1, max_size=20)


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store("sqlite://")
    yield store
    store.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the clock by which keys are read again, of a machine that has just started; a test lets them go on."""
    seconds = [0.5]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    return seconds


def headers(**named: str) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in named.items()}


# ----------------------------------------------------------------------------------- where a key is looked for
@given(tokens, tokens)
def test_a_key_comes_with_the_header_or_else_with_the_pages_cookie(key, other):
    assert key_in(headers(authorization=f"Bearer {key}")) == key
    assert key_in(headers(authorization=f"bEARER  {key} ", cookie=f"ustad_key={other}")) == key
    assert key_in(headers(cookie=f"theme=dark; ustad_key={key}; lang=fi")) == key
    assert key_in(headers(authorization=f"Basic {key}", cookie=f"ustad_key={other}")) == other
    assert key_in(headers(authorization="Bearer  ", cookie=f"ustad_key={other}")) == other
    assert key_in(headers(cookie=f"ustad_keys={key}; other=ustad_key={key}")) is None
    assert key_in({}) is None


@given(tokens, st.text(min_size=0, max_size=5).filter(lambda name: ":" not in name))
def test_a_phones_key_is_a_token_or_the_password_of_anybody(key, name):
    password = base64.b64encode(f"{name}:{key}".encode()).decode()
    assert device_key_in(headers(authorization=f"Basic {password}")) == key
    assert device_key_in(headers(authorization=f"bAsic  {password} ")) == key
    assert device_key_in(headers(authorization=f"bEarer {key} ")) == key
    assert device_key_in(headers(authorization=f"Digest {key}")) is None


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer  ", "Basic", "Basic !!!!", "Basic bm9ib2R5", "Basic bm9ib2R5Og==", "Basic /////w==",
     "Basic bm9i b2R5OmtleQ=="],
)  # fmt: skip
def test_what_is_no_phones_key_is_none(value):
    assert device_key_in(headers(authorization=value)) is None


# ------------------------------------------------------------------------------------------------ whose it is
def test_everybody_is_local_only_while_there_is_no_key_and_the_service_is_open(store, clock):
    opened, closed = Keys(store, open_without=True), Keys(store, open_without=False)
    assert opened.caller(None) is opened.caller("anything") is LOCAL
    with pytest.raises(UnauthorizedError, match="a key is needed"):
        closed.caller(None)
    create_key(store, "k", ["read"])
    clock[0] += 2.0
    opened.all()
    for key, words in ((None, "a key is needed"), ("", "a key is needed"), ("wrong", "not known")):
        with pytest.raises(UnauthorizedError, match=words):
            opened.caller(key)


def test_a_refusal_says_how_to_send_a_key_or_that_this_one_is_invalid(store):
    create_key(store, "k", ["read"])
    with pytest.raises(UnauthorizedError) as none:
        Keys(store, open_without=False).caller(None)
    with pytest.raises(UnauthorizedError) as wrong:
        Keys(store, open_without=False).caller("wrong")
    assert none.value.headers == {"WWW_Authenticate": "Bearer"}
    assert wrong.value.headers == {"WWW_Authenticate": 'Bearer error="invalid_token"'}


def test_keys_are_read_again_after_two_seconds_or_when_told(store, clock):
    keys = Keys(store, open_without=False)
    assert keys.is_due
    first = create_key(store, "first", ["read"])
    assert keys.latest.keys() == {module.digest(first)}, "what was never read is read at once"
    assert not keys.is_due
    second = create_key(store, "second", ["read"])
    clock[0] += 1.99
    assert not keys.is_due
    assert not keys.may(second, "read")
    assert len(keys.all()) == 1
    clock[0] += 0.02
    assert keys.is_due
    assert len(keys.latest) == 1, "the latest are given without a look into the store"
    assert len(keys.all()) == 2
    assert not keys.is_due
    remove_key(store, "first")
    assert keys.may(first, "read")
    keys.read_again()
    assert keys.is_due
    keys.all()
    assert not keys.may(first, "read")


def test_a_key_is_good_until_the_moment_that_it_expires(store, monkeypatch):
    end = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    key = create_key(store, "k", ["read"], end)
    moment = round(end.timestamp() * 1e6)
    keys = Keys(store, open_without=True)
    for at, is_good in ((moment - 1, True), (moment, False), (moment + 1, False)):
        monkeypatch.setattr(module, "now", lambda at=at: at)
        assert keys.may(key, "read") == is_good
    with pytest.raises(UnauthorizedError, match="has expired") as expired:
        keys.caller(key)
    assert expired.value.headers == {"WWW_Authenticate": 'Bearer error="invalid_token"'}
    assert not keys.may(None, "read"), "an expired key does not open the service to others"


def test_a_route_asks_for_one_of_its_roles(store):
    key = create_key(store, "k", ["read", "verdict"])
    caller = Keys(store, open_without=False).caller(key)
    request: Any = SimpleNamespace(scope={"ustad.caller": caller})
    assert asyncio.run(needs("admin", "read")(request)) is caller
    with pytest.raises(ForbiddenError, match="needs the role 'metrics'"):
        asyncio.run(needs("metrics", "admin")(request))


# ------------------------------------------------------------------------------------------------ making keys
def test_a_key_is_long_unlike_any_other_and_known_by_its_hash_alone(store):
    made = [create_key(store, f"k{number}", ["read", "read", "verdict"]) for number in range(3)]
    assert len(set(made)) == 3
    assert all(key.startswith("ustad_") and len(key) == len("ustad_") + 43 for key in made)
    with store.reading() as connection:
        rows = connection.execute(select(r.access_keys).order_by(r.access_keys.c.name)).all()
    assert [(row.name, row.roles, row.expires_at, row.agent) for row in rows] == [
        (f"k{number}", "read,verdict", None, None) for number in range(3)
    ]
    assert [row.digest for row in rows] == [module.digest(key) for key in made]


def test_local_callers_have_every_role_but_those_that_see_less():
    assert {"ingest", "read", "verdict", "admin", "metrics"} == LOCAL.roles
    assert (LOCAL.expires_at, LOCAL.agent) == (None, None)


@pytest.mark.parametrize(
    ("name", "roles", "agent", "words"),
    [
        ("k", [], None, "roles are"), ("k", ["root"], None, "got 'root'"),
        ("k", ["read", "device"], None, "got 'device'"), ("", ["read"], None, "at most 128"),
        ("n" * 129, ["read"], None, "at most 128"),
        ("k", [COARSE, "read"], None, "has no other"), ("k", ["verdict", COUNTS], None, "has no other"),
        ("k", [COARSE, COUNTS], None, "has no other"), ("k", ["read"], "a", "has no roles"),
        ("k", [], "", "1 to 256"), ("k", [], "a\nb", "1 to 256"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_key_is_refused_and_leaves_the_store_as_it_was(store, name, roles, agent, words):
    with pytest.raises(DataError, match=words):
        create_key(store, name, roles, agent=agent)
    assert Keys(store, open_without=False).all() == {}


@pytest.mark.parametrize("role", [COARSE, COUNTS])
def test_a_key_that_sees_less_may_say_its_role_twice(store, role):
    assert Keys(store, open_without=False).caller(create_key(store, "k" * 128, [role, role])).roles == {role}


def test_a_phones_key_has_one_agent_and_a_new_one_for_another_agent_starts_anew(store):
    """What a phone is known to have sent goes when its name is given to another agent, and stays otherwise."""

    def add_device(name: str, agent: str) -> None:
        with store.writing() as connection:
            values = {c.name: 0 for c in r.devices.c if not c.nullable and c.server_default is None}
            connection.execute(insert(r.devices).values({**values, "name": name, "agent": agent}))

    def devices() -> list[tuple[str, str]]:
        with store.reading() as connection:
            return sorted(tuple(row) for row in connection.execute(select(r.devices.c.name, r.devices.c.agent)))

    first = create_key(store, "phone", [], agent="anna")
    create_key(store, "other", [], agent="anna")
    add_device("phone", "anna")
    add_device("other", "anna")
    caller = Keys(store, open_without=False).caller(first)
    assert (caller.name, caller.roles, caller.agent) == ("phone", {"device"}, "anna")
    again = create_key(store, "phone", [], agent="anna")
    assert devices() == [("other", "anna"), ("phone", "anna")]
    keys = Keys(store, open_without=False)
    assert (keys.may(first, "device"), keys.may(again, "device")) == (False, True)
    create_key(store, "phone", [], agent="berta")
    assert devices() == [("other", "anna")]
    remove_key(store, "other")
    assert devices() == []
    assert [caller.agent for caller in Keys(store, open_without=False).all().values()] == ["berta"]
    with pytest.raises(DataError, match="no key named 'other'"):
        remove_key(store, "other")


def test_a_date_ends_with_its_day_and_a_past_moment_is_refused(monkeypatch):
    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime(2030, 6, 15, 23, 59, 58, tzinfo=tz)

    monkeypatch.setattr(module, "datetime", Later)
    assert module.expiry_of("2030-06-15") == datetime(2030, 6, 15, 23, 59, 59, tzinfo=UTC)
    assert module.expiry_of("2d") == Later.now(UTC) + timedelta(days=2)
    for text in ("2030-06-14", "2030-06-15T23:59:58", "2030-06-16T00:59:57+01:00"):
        with pytest.raises(module.ConfigError, match="must lie ahead"):
            module.expiry_of(text)
    assert module.expiry_of("2030-06-15T23:59:59") == datetime(2030, 6, 15, 23, 59, 59, tzinfo=UTC)
