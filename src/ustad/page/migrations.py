"""Bringing an older store to today's tables: what `records` has and the store lacks is added.

A new store gets all tables at once. An older one gets the missing tables, columns and indexes in one transaction. A
store that is newer than this program is refused. Processes that open one store at once wait for each other, and one of
them does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table, func, insert, inspect, select, update

from ustad.page import records
from ustad.tables import DataError

#: Counts up whenever `records` changes.
NEWEST = 14
_LOCK = 0x7573746164  # what PostgreSQL calls the lock that a migration holds: any number that is always the same

version_table = Table("store_version", MetaData(), Column("version", Integer, nullable=False))


def never_use_a_number_twice(store: Operations) -> None:
    """SQLite gives the numbers of deleted alerts and verdicts to new ones unless it is told not to. A reader who has
    seen the deleted alert would then miss the new one."""
    if store.get_bind().dialect.name == "sqlite":
        for name in ("alerts", "verdicts"):
            with store.batch_alter_table(name, recreate="always", table_kwargs={"sqlite_autoincrement": True}):
                pass


#: What adding cannot do, by the version that it leads to. It runs before anything is added.
STEPS: Mapping[int, Callable[[Operations], None]] = {3: never_use_a_number_twice}


def migrate(engine: Engine, tables: MetaData = records.metadata, newest: int = NEWEST) -> int:
    """Make or bring up to date the tables; returns the version."""
    with engine.begin() as connection:
        version = _version(connection)
    if version is None or version < newest:
        with engine.execution_options(writing=True).begin() as connection:
            _wait_for_others(connection)
            version = _advance(connection, tables, newest)
    if version > newest:
        raise DataError(f"the store has version {version}, this ustad knows {newest}; update ustad")
    return version


def _wait_for_others(connection: Connection) -> None:
    """Until the end of the transaction no other process makes or changes tables. SQLite's began as a writer's."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def _advance(connection: Connection, tables: MetaData, newest: int) -> int:
    """The version is read here, while nobody else can change it: another process may have been quicker."""
    version = _version(connection)
    if version is None:
        tables.create_all(connection)
        version_table.create(connection)
        connection.execute(insert(version_table).values(version=newest))
        return newest
    if version >= newest:
        return version
    operations = Operations(MigrationContext.configure(connection))
    for leads_to, step in STEPS.items():
        if version < leads_to:
            step(operations)
    tables.create_all(connection)  # those that are not there
    for table in tables.sorted_tables:
        _complete(operations, table)
    connection.execute(update(version_table).values(version=newest))
    return newest


def _complete(operations: Operations, table: Table) -> None:
    """Add the columns that a stored table lacks; its indexes become those of today."""
    inspector = inspect(operations.get_bind())
    names = {column["name"] for column in inspector.get_columns(table.name)}
    for column in table.columns:
        if column.name not in names:
            operations.add_column(table.name, Column(column.name, column.type, nullable=column.nullable,
                                                     server_default=column.server_default))  # fmt: skip
    columns_by_index = {str(index.name): [column.name for column in index.columns] for index in table.indexes}
    indexes = {
        str(index["name"]): index["column_names"]
        for index in inspector.get_indexes(table.name)
        if not index.get("duplicates_constraint")
    }
    for name, columns in indexes.items():
        if columns_by_index.get(name) != columns:
            operations.drop_index(name, table.name)
    for index in table.indexes:
        if indexes.get(str(index.name)) != columns_by_index[str(index.name)]:
            index.create(operations.get_bind())


def _version(connection: Connection) -> int | None:
    """The store's version; none for an empty store."""
    if not inspect(connection).has_table(version_table.name):
        return None
    return int(connection.execute(select(version_table.c.version)).scalar_one())
