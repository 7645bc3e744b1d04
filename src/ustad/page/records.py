"""The tables of the store. Times are microseconds since 1970 in UTC, days are local dates since 1970-01-01.

`events` holds what every list needs, `details` what one open event needs. `days` is what the swim lanes show. It is
updated with every event, so that no answer has to aggregate the whole store.
"""

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
    false,
    true,
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
    Column("change", Text),  # a lasting change in words
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
    Column("place_name", String(256)),  # what the place is called, where somebody said so
    Column("category", String(256)),
    Column("n_fixes", Integer),
    Column("start_gap_s", Float),
    Column("end_gap_s", Float),
    Column("observed_s", Float),
    Column("score", Float),  # null: known (training weeks, context), not scored
    Column("p_value", Float),
    Column("alert", Boolean, nullable=False),
    Column("final", Boolean, nullable=False, server_default=true()),  # false: the next event may still raise it
    Column("incident", String(320)),  # the incident it belongs to, null where it is usual
    Column("echo", Boolean, nullable=False, server_default=false()),  # another event leads that incident
    Column("kind", String(32)),
    Column("term", String(64)),  # the term that drives the score
    Column("reason", Text),
    Column("verdict", BigInteger),  # the latest verdict on this event
    Column("marked_by", BigInteger),  # the verdict on a like event that calls this one expected
    Column("hidden_by", BigInteger),  # the rule that hides it
    Column("arrived_at", BigInteger),  # counts up by the order of arrival; null in stores older than this column
    Column("place_key", BigInteger),  # a hash of what it is called, where live scores are compared by it
    Column("new_place", Boolean),  # whether its agent was never there before
    Index("events_by_agent", "agent", "started_at"),
    Index("events_by_score", "score", "p_value", "echo"),  # everything that the slider reads
    Index("events_by_incident", "agent", "incident"),
    Index("events_by_time", "started_at"),
)  # fmt: skip
#: What alerts are narrowed by.
ALERTS_BY = ("score", "agent", "day", "started_at", "kind", "category", "verdict", "marked_by", "alert", "hidden_by")
#: The alerts among the events: one in hundreds, so lists of alerts never look through the others.
alerts_by_score = Index(
    "alerts_by_score", *(events.c[name] for name in ALERTS_BY),
    sqlite_where=events.c.alert.is_(True), postgresql_where=events.c.alert.is_(True),
)  # fmt: skip
#: What rules hide: few of all events.
hidden_events = Index(
    "hidden_events", events.c.hidden_by,
    sqlite_where=events.c.hidden_by.is_not(None), postgresql_where=events.c.hidden_by.is_not(None),
)  # fmt: skip
#: Who else was there: events at a known place.
events_by_place = Index(
    "events_by_place", events.c.place_key, events.c.started_at,
    sqlite_where=events.c.place_key.is_not(None), postgresql_where=events.c.place_key.is_not(None),
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
    Index("days_by_agent", "agent", "day", "score"),  # everything that ranking lanes reads
    Index("days_in_order", "day"),
)  # fmt: skip
alerts = Table(
    "alerts", metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("key", BigInteger, nullable=False, unique=True),
    Column("created_at", BigInteger, nullable=False),
    sqlite_autoincrement=True,  # a number is never used twice, also after a deletion
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
    sqlite_autoincrement=True,
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
absences = Table(
    "absences", metadata,  # nearly certain visits that did not come
    Column("agent", String(256), primary_key=True),
    Column("started_at", BigInteger, primary_key=True, autoincrement=False),  # from when it was expected, until when
    Column("finished_at", BigInteger, nullable=False),
    Column("instead", BigInteger, nullable=False),  # the start of the event that took its place
    Column("category", String(256)),
    Column("p_value", Float, nullable=False),
    Column("reason", Text, nullable=False),
)  # fmt: skip
groups = Table(
    "groups", metadata,  # several people at one time at a place that is new to them, found as events come
    Column("id", Counter, primary_key=True, autoincrement=True),
    Column("place", BigInteger, nullable=False, index=True),
    Column("began_at", BigInteger, nullable=False),  # the start of its first event
    Column("finished_at", BigInteger, nullable=False),
    Column("p_value", Float, nullable=False),
    Column("found_at", BigInteger, nullable=False),
    Column("content", Text, nullable=False),  # JSON: a row as in `groups.parquet`, times in microseconds
    sqlite_autoincrement=True,  # a number is never used twice, also after a deletion
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
live_states = Table(
    "live_states", metadata,
    Column("agent", String(256), primary_key=True),
    Column("model", String(64), nullable=False),  # what it belongs to; another model begins anew from the events
    Column("content", LargeBinary, nullable=False),
)  # fmt: skip
access_keys = Table(
    "access_keys", metadata,
    Column("name", String(128), primary_key=True),
    Column("roles", String(128), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),  # null: never
    Column("agent", String(256)),  # of a device's key: whom it may write; null: not a device's
)  # fmt: skip
devices = Table(
    "devices", metadata,
    Column("agent", String(256), primary_key=True),
    Column("name", String(128), primary_key=True),  # of the key it sends with
    Column("app", String(32), nullable=False),
    Column("heard_at", BigInteger, nullable=False),
    Column("fixed_at", BigInteger),  # the time of its latest fix
    Column("battery", Float),  # percent
    Column("n_fixes", BigInteger, nullable=False),
    Column("n_left_out", BigInteger, nullable=False),  # late, imprecise, of a wrong clock or without a position
)  # fmt: skip
cases = Table(
    "cases", metadata,
    Column("id", Counter, primary_key=True, autoincrement=True),
    Column("title", String(256), nullable=False),
    Column("state", String(16), nullable=False),
    Column("assignee", String(128), nullable=False),
    Column("opened_at", BigInteger, nullable=False),
    Column("opened_by", String(128), nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)  # fmt: skip
case_incidents = Table(
    "case_incidents", metadata,
    Column("case_id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", BigInteger, primary_key=True, autoincrement=False),  # the event that leads the incident
    Column("agent", String(256), nullable=False, index=True),
    Column("attached_at", BigInteger, nullable=False),
)  # fmt: skip
case_history = Table(
    "case_history", metadata,
    Column("id", Counter, primary_key=True, autoincrement=True),
    Column("case_id", BigInteger, nullable=False, index=True),
    Column("at", BigInteger, nullable=False),
    Column("by", String(128), nullable=False),
    Column("act", String(16), nullable=False),  # opened, state, assigned, titled, note, attached, detached, …
    Column("content", Text, nullable=False),
    Column("agent", String(256), index=True),  # whom it is about, where it is about one
    Column("key", BigInteger),
    sqlite_autoincrement=True,
)  # fmt: skip
hiding_rules = Table(
    "hiding_rules", metadata,
    Column("id", Counter, primary_key=True, autoincrement=True),
    Column("agent", String(256), index=True),  # null: everybody
    Column("lat", Float),
    Column("lon", Float),
    Column("radius_km", Float, nullable=False),
    Column("category", String(256)),
    Column("from_minute", Integer),  # local, of the start
    Column("to_minute", Integer),
    Column("kind", String(32)),
    Column("until", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("made_by", String(128), nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("ended_by", String(128)),
    sqlite_autoincrement=True,
)  # fmt: skip
watchlist = Table(
    "watchlist", metadata,
    Column("agent", String(256), primary_key=True),
    Column("note", Text, nullable=False),
    Column("added_by", String(128), nullable=False),
    Column("added_at", BigInteger, nullable=False),
)  # fmt: skip
notices = Table(
    "notices", metadata,
    Column("id", Counter, primary_key=True, autoincrement=True),
    Column("channel", String(128), nullable=False),
    Column("key", BigInteger, index=True),  # the alert; null: the digest of a day, or a group
    Column("agent", String(256), index=True),
    Column("group_id", BigInteger),  # the group of people; null: an alert or a digest
    Column("made_at", BigInteger, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("state", String(16), nullable=False),  # waiting, dead; what was sent is deleted
    Column("problem", String(128), nullable=False),
    sqlite_autoincrement=True,
)  # fmt: skip
saved_views = Table(
    "saved_views", metadata,
    Column("name", String(128), primary_key=True),
    Column("address", Text, nullable=False),
    Column("saved_by", String(128), nullable=False),
    Column("saved_at", BigInteger, nullable=False),
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

#: Tables with rows of agents, for deletion and retention.
OF_AGENTS = (
    events, days, verdicts, trips, gaps, absences, live_states, devices, case_incidents, case_history, watchlist,
    hiding_rules, notices, agents
)  # fmt: skip
