"""The version of the store's tables, and the way from each version to the next through alembic's operations.

A new store gets today's tables at once; an older one runs the steps it lacks, in one transaction each; a store that
is newer than this program is refused. Processes that open one store at once wait for each other, and each step runs
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    column,
    false,
    func,
    insert,
    inspect,
    select,
    true,
    update,
)

from ustad.page import records
from ustad.tables import DataError

FIRST = 1
_LOCK = 0x7573746164  # what PostgreSQL calls the lock that a migration holds: any number that is always the same
Step = Callable[[Operations], None]


def tell_final_from_provisional(store: Operations) -> None:
    """Version 2: whether a score is final, what a place is called, the state of live scores of each agent, and
    indexes for lists of alerts and for lanes."""
    store.add_column("events", Column("final", Boolean, nullable=False, server_default=true()))
    store.add_column("events", Column("place_name", String(256)))
    store.create_table(
        "live_states",
        Column("agent", String(256), primary_key=True),
        Column("model", String(64), nullable=False),
        Column("content", LargeBinary, nullable=False),
    )
    store.drop_index("days_by_day", "days")
    store.create_index("days_by_agent", "days", ["agent", "day", "score"])
    is_alert = column("alert", Boolean).is_(True)
    store.create_index("alerts_by_score", "events", ["score"], sqlite_where=is_alert, postgresql_where=is_alert)


def never_use_a_number_twice(store: Operations) -> None:
    """Version 3: SQLite gives numbers of deleted alerts and verdicts to new ones unless it is told not to, and who
    has seen the deleted alert would not see the new one."""
    if store.get_bind().dialect.name == "sqlite":
        for name in ("alerts", "verdicts"):
            with store.batch_alter_table(name, recreate="always", table_kwargs={"sqlite_autoincrement": True}):
                pass


def keep_the_order_of_arrival(store: Operations) -> None:
    """Version 4: in which order events of one moment came; indexes that hold all that lists of alerts, the slider and
    the span of days ask for."""
    store.add_column("events", Column("arrived_at", BigInteger))
    store.drop_index("events_by_score", "events")
    store.create_index("events_by_score", "events", ["score", "p_value"])
    store.drop_index("alerts_by_score", "events")
    is_alert = column("alert", Boolean).is_(True)
    index_columns = ["score", "agent", "day", "started_at", "kind", "category", "verdict", "marked_by", "alert"]
    store.create_index("alerts_by_score", "events", index_columns, sqlite_where=is_alert, postgresql_where=is_alert)
    store.create_index("days_in_order", "days", ["day"])


def let_keys_expire(store: Operations) -> None:
    """Version 5: until when a key is good."""
    store.add_column("access_keys", Column("expires_at", BigInteger))


def keep_what_was_observed(store: Operations) -> None:
    """Version 6: for how many seconds of a stay there were data."""
    store.add_column("events", Column("observed_s", Float))


def let_devices_send(store: Operations) -> None:
    """Version 7: whom a device's key may write, and when each device was last heard of."""
    store.add_column("access_keys", Column("agent", String(256)))
    store.create_table(
        "devices",
        Column("agent", String(256), primary_key=True),
        Column("name", String(128), primary_key=True),
        Column("app", String(32), nullable=False),
        Column("heard_at", BigInteger, nullable=False),
        Column("fixed_at", BigInteger),
        Column("battery", Float),
        Column("n_fixes", BigInteger, nullable=False),
        Column("n_left_out", BigInteger, nullable=False),
    )


def tell_incidents(store: Operations) -> None:
    """Version 8: which incident an event belongs to, and whether another event leads it."""
    store.add_column("events", Column("incident", String(320)))
    store.add_column("events", Column("echo", Boolean, nullable=False, server_default=false()))
    store.drop_index("events_by_score", "events")
    store.create_index("events_by_score", "events", ["score", "p_value", "echo"])
    store.create_index("events_by_incident", "events", ["agent", "incident"])


def keep_cases(store: Operations) -> None:
    """Version 9: cases with their incidents and history, people who are watched, and views that were saved."""
    counter = BigInteger().with_variant(Integer, "sqlite")
    store.create_table(
        "cases",
        Column("id", counter, primary_key=True, autoincrement=True),
        Column("title", String(256), nullable=False),
        Column("state", String(16), nullable=False),
        Column("assignee", String(128), nullable=False),
        Column("opened_at", BigInteger, nullable=False),
        Column("opened_by", String(128), nullable=False),
        Column("changed_at", BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    store.create_table(
        "case_incidents",
        Column("case_id", BigInteger, primary_key=True, autoincrement=False),
        Column("key", BigInteger, primary_key=True, autoincrement=False),
        Column("agent", String(256), nullable=False, index=True),
        Column("attached_at", BigInteger, nullable=False),
    )
    store.create_table(
        "case_history",
        Column("id", counter, primary_key=True, autoincrement=True),
        Column("case_id", BigInteger, nullable=False, index=True),
        Column("at", BigInteger, nullable=False),
        Column("by", String(128), nullable=False),
        Column("act", String(16), nullable=False),
        Column("content", Text, nullable=False),
        Column("agent", String(256), index=True),
        Column("key", BigInteger),
        sqlite_autoincrement=True,
    )
    store.create_table(
        "watchlist",
        Column("agent", String(256), primary_key=True),
        Column("note", Text, nullable=False),
        Column("added_by", String(128), nullable=False),
        Column("added_at", BigInteger, nullable=False),
    )
    store.create_table(
        "saved_views",
        Column("name", String(128), primary_key=True),
        Column("address", Text, nullable=False),
        Column("saved_by", String(128), nullable=False),
        Column("saved_at", BigInteger, nullable=False),
    )


def let_rules_hide(store: Operations) -> None:
    """Version 10: rules that hide explained alerts, and which rule hides an event."""
    store.create_table(
        "hiding_rules",
        Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        Column("agent", String(256), index=True),
        Column("lat", Float),
        Column("lon", Float),
        Column("radius_km", Float, nullable=False),
        Column("category", String(256)),
        Column("from_minute", Integer),
        Column("to_minute", Integer),
        Column("kind", String(32)),
        Column("until", BigInteger, nullable=False),
        Column("reason", Text, nullable=False),
        Column("made_by", String(128), nullable=False),
        Column("made_at", BigInteger, nullable=False),
        Column("ended_at", BigInteger),
        Column("ended_by", String(128)),
        sqlite_autoincrement=True,
    )
    store.add_column("events", Column("hidden_by", BigInteger))
    store.drop_index("alerts_by_score", "events")
    is_alert, hidden = column("alert", Boolean).is_(True), column("hidden_by", BigInteger).is_not(None)
    index_columns = [
        "score",
        "agent",
        "day",
        "started_at",
        "kind",
        "category",
        "verdict",
        "marked_by",
        "alert",
        "hidden_by",
    ]
    store.create_index("alerts_by_score", "events", index_columns, sqlite_where=is_alert, postgresql_where=is_alert)
    store.create_index("hidden_events", "events", ["hidden_by"], sqlite_where=hidden, postgresql_where=hidden)


def keep_an_outbox(store: Operations) -> None:
    """Version 11: notices of alerts that wait to be sent, or that could not be."""
    store.create_table(
        "notices",
        Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        Column("channel", String(128), nullable=False),
        Column("key", BigInteger, index=True),
        Column("agent", String(256), index=True),
        Column("made_at", BigInteger, nullable=False),
        Column("due_at", BigInteger, nullable=False),
        Column("tries", Integer, nullable=False),
        Column("state", String(16), nullable=False),
        Column("problem", String(128), nullable=False),
        sqlite_autoincrement=True,
    )


def keep_changes(store: Operations) -> None:
    """Version 12: what has changed for good in an agent's life."""
    store.add_column("agents", Column("change", Text))


def keep_absences(store: Operations) -> None:
    """Version 13: nearly certain visits that did not come."""
    store.create_table(
        "absences",
        Column("agent", String(256), primary_key=True),
        Column("started_at", BigInteger, primary_key=True, autoincrement=False),
        Column("finished_at", BigInteger, nullable=False),
        Column("instead", BigInteger, nullable=False),
        Column("category", String(256)),
        Column("p_value", Float, nullable=False),
        Column("reason", Text, nullable=False),
    )


#: Step i leads from version i + 1 to i + 2. A step that was released is never changed: add another, and change
#: `records` to what the tables are after it.
STEPS: tuple[Step, ...] = (
    tell_final_from_provisional, never_use_a_number_twice, keep_the_order_of_arrival, let_keys_expire,
    keep_what_was_observed, let_devices_send, tell_incidents, keep_cases, let_rules_hide, keep_an_outbox,
    keep_changes, keep_absences,
)  # fmt: skip

version_table = Table("store_version", MetaData(), Column("version", Integer, nullable=False))


def migrate(engine: Engine, steps: Sequence[Step] = STEPS) -> int:
    """Make or bring up to date the tables; returns the version."""
    newest = FIRST + len(steps)
    with engine.begin() as connection:
        version = _version(connection)
    alone = engine.execution_options(writing=True)
    while version is None or version < newest:
        with alone.begin() as connection:
            _wait_for_others(connection)
            version = _advance(connection, steps, newest)
    if version > newest:
        raise DataError(f"the store has version {version}, this ustad knows {newest}; update ustad")
    return version


def _wait_for_others(connection: Connection) -> None:
    """Until the end of the transaction no other process makes or changes tables. SQLite's began as a writer's."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def _advance(connection: Connection, steps: Sequence[Step], newest: int) -> int:
    """All tables of an empty store, or one step of an older one. The version is read here, while nobody else can
    change it: another process may have been quicker."""
    version = _version(connection)
    if version is None:
        records.metadata.create_all(connection)
        version_table.create(connection)
        connection.execute(insert(version_table).values(version=newest))
        return newest
    if version >= newest:
        return version
    steps[version - FIRST](Operations(MigrationContext.configure(connection)))
    connection.execute(update(version_table).values(version=version + 1))
    return version + 1


def _version(connection: Connection) -> int | None:
    """The store's version; none for an empty store."""
    if not inspect(connection).has_table(version_table.name):
        return None
    return int(connection.execute(select(version_table.c.version)).scalar_one())
