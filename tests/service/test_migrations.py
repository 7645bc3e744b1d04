"""Migrations end where a new store begins."""

from __future__ import annotations

import hashlib
from typing import Any

import first_store
import sqlalchemy as sa

from ustad.page import migrations
from ustad.page import records as r
from ustad.page.migrations import NEWEST, migrate
from ustad.page.store import _engine


def test_a_migrated_store_has_the_tables_and_indexes_of_a_new_one(any_store_url: str) -> None:
    """From the first version on: columns, keys, indexes with what they cover and leave out, numbers used once."""
    engine = _engine(any_store_url)
    with engine.begin() as connection:
        first_store.metadata.create_all(connection)
        migrations.version_table.create(connection)
        connection.execute(sa.insert(migrations.version_table).values(version=1))
    assert migrate(engine) == NEWEST
    migrated = _schema(engine)
    with engine.begin() as connection:
        for table in (*r.metadata.sorted_tables, migrations.version_table):
            table.drop(connection)
    migrate(engine)
    assert migrated == _schema(engine)
    engine.dispose()


def test_tables_that_changed_have_a_new_version() -> None:
    """Without one, a store that is there already would not get what was added."""
    tables = [
        (
            table.name,
            [(c.name, str(c.type), c.nullable) for c in table.columns],
            sorted((str(i.name), [c.name for c in i.columns]) for i in table.indexes),
        )
        for table in r.metadata.sorted_tables
    ]
    digest = hashlib.sha256(repr(sorted(tables)).encode()).hexdigest()[:12]
    assert (NEWEST, digest) == (14, "d802d6dddb77"), "raise NEWEST in page/migrations.py, then write both here"


def _schema(engine: sa.Engine) -> dict[str, Any]:
    seen = sa.inspect(engine)
    found: dict[str, Any] = {}
    for table in seen.get_table_names():
        columns = {c["name"]: (str(c["type"]), c["nullable"]) for c in seen.get_columns(table)}
        indexes = {i["name"]: (i["column_names"], i["unique"], _condition(i)) for i in seen.get_indexes(table)}
        unique = sorted(tuple(c["column_names"]) for c in seen.get_unique_constraints(table))
        found[table] = columns, seen.get_pk_constraint(table)["constrained_columns"], indexes, unique
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            made = connection.execute(sa.text("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'"))
            found["numbers never used twice"] = sorted(made.scalars())
    return found


def _condition(index: Any) -> list[str]:
    """What rows an index is limited to, in words that do not hang on spaces."""
    return [" ".join(str(value).split()) for name, value in index.get("dialect_options", {}).items() if "where" in name]
