"""When each device was last heard of, and what it has sent: written with its fixes, read by the page.

In: what a request of a device brought. Out: rows for the page, those that have been silent longest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, case, func, select, union

from ustad.page import records as r
from ustad.page.queries import iso
from ustad.page.store import Row, insert_or, now

LEFT_OUT = ("late", "dropped", "implausible")  # of an answer to fixes; what came twice is no loss
D, K = r.devices.c, r.access_keys.c


@dataclass(frozen=True)
class Sender:
    """The device behind a request: the name of its key, its app, and what was said beside its fixes."""

    agent: str
    name: str
    app: str
    battery: float | None = None
    left_out: int = 0  # fixes that did not even come to the extraction


def device_row(sender: Sender, fixes: pa.Table, outcome: dict[str, Any]) -> Row:
    """What a request adds to its device's row."""
    latest = pc.max(fixes["time"].cast(pa.int64())).as_py() if fixes.num_rows else None
    return {
        "agent": sender.agent, "name": sender.name, "app": sender.app, "heard_at": now(), "fixed_at": latest,
        "battery": sender.battery, "n_fixes": outcome["accepted"],
        "n_left_out": sender.left_out + sum(outcome[why] for why in LEFT_OUT),
    }  # fmt: skip


def note_devices(connection: Connection, rows: Sequence[Row]) -> None:
    """Add to the rows of these devices, in the transaction that stores their fixes."""
    if rows:
        connection.execute(_adding(connection.dialect.name), list(rows))


@cache
def _adding(dialect: str) -> Any:
    statement = insert_or(r.devices, dialect)
    new = statement.excluded
    later = case((D.fixed_at > new.fixed_at, D.fixed_at), else_=func.coalesce(new.fixed_at, D.fixed_at))
    values = {
        "app": new.app, "heard_at": new.heard_at, "fixed_at": later, "battery": func.coalesce(new.battery, D.battery),
        "n_fixes": D.n_fixes + new.n_fixes, "n_left_out": D.n_left_out + new.n_left_out,
    }  # fmt: skip
    return statement.on_conflict_do_update(index_elements=["agent", "name"], set_=values)


def list_devices(connection: Connection, search: str | None, limit: int, offset: int) -> tuple[int, list[Row]]:
    """How many there are, and a page of them: devices with a key, and those that a server passed on for."""
    all_devices = union(select(K.agent, K.name).where(K.agent.is_not(None)), select(D.agent, D.name)).subquery()
    query = select(all_devices)
    if search:
        query = query.where(
            all_devices.c.agent.icontains(search, autoescape=True)
            | all_devices.c.name.icontains(search, autoescape=True)
        )
    selection = query.subquery()
    total = int(connection.execute(select(func.count()).select_from(selection)).scalar_one())
    rows = connection.execute(
        select(
            selection.c.agent, selection.c.name, D.app, D.heard_at, D.fixed_at, D.battery, D.n_fixes, D.n_left_out,
            r.agents.c.n_events,
        )
        .select_from(
            selection.outerjoin(r.devices, (D.agent == selection.c.agent) & (D.name == selection.c.name))
            .outerjoin(r.agents, r.agents.c.agent == selection.c.agent)
        )
        .order_by(func.coalesce(D.heard_at, 0), selection.c.name, selection.c.agent).limit(limit).offset(offset)
    )  # fmt: skip
    return total, [_answer(row) for row in rows]


def _answer(row: Any) -> Row:
    return {
        "name": row.name, "agent_id": row.agent, "app": row.app, "battery": row.battery,
        "heard_at": iso(row.heard_at) if row.heard_at is not None else None,
        "fixed_at": iso(row.fixed_at) if row.fixed_at is not None else None,
        "n_fixes": row.n_fixes or 0, "n_left_out": row.n_left_out or 0,
        "n_events": row.n_events or 0,
    }  # fmt: skip
