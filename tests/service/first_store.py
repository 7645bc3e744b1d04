"""The tables of the store as its first version had them. Nothing here is ever changed: migrations begin from it."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData()
#: A number that counts up: SQLite does so only for its own INTEGER.
Counter = BigInteger().with_variant(Integer, "sqlite")

agents = Table(
    "agents", metadata,
    Column("agent", String(256), primary_key=True),
    Column("timezone", String(64), nullable=False),
    Column("first_at", BigInteger, nullable=False),
    Column("last_at", BigInteger, nullable=False),
    Column("n_events", Integer, nullable=False),
    Column("n_scored", Integer, nullable=False),
    Column("n_alerts", Integer, nullable=False),
    Column("score", Float),
    Column("p_value", Float),
    Column("worst", BigInteger),
    Column("reason", Text),
    Index("agents_by_score", "score"),
)  # fmt: skip
events = Table(
    "events", metadata,
    Column("key", BigInteger, primary_key=True, autoincrement=False),
    Column("agent", String(256), nullable=False),
    Column("event_id", String(256)),
    Column("started_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger, nullable=False),
    Column("day", Integer, nullable=False),
    Column("timezone", String(64), nullable=False),
    Column("lat", Float),
    Column("lon", Float),
    Column("poi_id", String(256)),
    Column("category", String(256)),
    Column("n_fixes", Integer),
    Column("start_gap_s", Float),
    Column("end_gap_s", Float),
    Column("score", Float),  # null: known (training weeks, context), not scored
    Column("p_value", Float),
    Column("alert", Boolean, nullable=False),
    Column("kind", String(32)),
    Column("term", String(64)),  # the term that drives the score
    Column("reason", Text),
    Column("verdict", BigInteger),  # the latest verdict on this event
    Column("marked_by", BigInteger),  # the verdict on a like event that calls this one expected
    Index("events_by_agent", "agent", "started_at"),
    Index("events_by_score", "score"),
    Index("events_by_time", "started_at"),
)  # fmt: skip
details = Table(
    "details", metadata,
    Column("key", BigInteger, primary_key=True, autoincrement=False),
    Column("content", Text, nullable=False),
)  # fmt: skip
days = Table(
    "days", metadata,
    Column("agent", String(256), primary_key=True),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("score", Float, nullable=False),
    Column("n_events", Integer, nullable=False),
    Column("n_alerts", Integer, nullable=False),
    Column("worst", BigInteger, nullable=False),
    Index("days_by_day", "day"),
)  # fmt: skip
alerts = Table(
    "alerts", metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("key", BigInteger, nullable=False, unique=True),
    Column("created_at", BigInteger, nullable=False),
)  # fmt: skip
verdicts = Table(
    "verdicts", metadata,
    Column("id", Counter, primary_key=True, autoincrement=True),
    Column("key", BigInteger, nullable=False, index=True),
    Column("agent", String(256), nullable=False, index=True),
    Column("verdict", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("expires_at", BigInteger),
    Column("given_by", String(128), nullable=False),
    Column("given_at", BigInteger, nullable=False),
)  # fmt: skip
trips = Table(
    "trips", metadata,
    Column("agent", String(256), primary_key=True),
    Column("started_at", BigInteger, primary_key=True, autoincrement=False),
    Column("finished_at", BigInteger, nullable=False),
    Column("path", Text, nullable=False),  # JSON: [[lon, lat], …]
)  # fmt: skip
gaps = Table(
    "gaps", metadata,
    Column("agent", String(256), primary_key=True),
    Column("started_at", BigInteger, primary_key=True, autoincrement=False),
    Column("finished_at", BigInteger, nullable=False),
)  # fmt: skip
journal = Table(
    "journal", metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("content", LargeBinary, nullable=False),  # the fixes of one micro-batch, Arrow IPC
)  # fmt: skip
snapshots = Table(
    "snapshots", metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),  # journal entries up to here are inside
    Column("content", LargeBinary, nullable=False),
)  # fmt: skip
access_keys = Table(
    "access_keys", metadata,
    Column("name", String(128), primary_key=True),
    Column("roles", String(128), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
)  # fmt: skip
about = Table(
    "about", metadata,
    Column("name", String(64), primary_key=True),
    Column("content", Text, nullable=False),
)  # fmt: skip
deletions = Table(
    "deletions", metadata,
    Column("id", Counter, primary_key=True, autoincrement=True),
    Column("deleted_at", BigInteger, nullable=False),
    Column("deleted_by", String(128), nullable=False),
    Column("n_events", Integer, nullable=False),
)  # fmt: skip
