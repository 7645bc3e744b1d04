"""Telling others of alerts: an outbox in the store, so that a notice survives a restart and is sent once it can be.

Each new alert becomes one notice for each channel, and so does each new group of people; a channel with a digest gets
one a day. What fails is tried again,
later each time, and after `MOST_TRIES` it is kept as dead until somebody asks for it again. What was sent is deleted.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from ustad.page import queries
from ustad.page import records as r
from ustad.page.store import Store, now
from ustad.service.channels import Channel, Notice, Outlets

log = logging.getLogger("ustad.service")
SECOND, MINUTE, DAY = 1_000_000, 60_000_000, 86_400_000_000
FIRST_WAIT, LONGEST_WAIT, MOST_TRIES = 5 * SECOND, 3_600 * SECOND, 10
AT_ONCE, DIGEST_LINES = 50, 10
NOTICED_UP_TO = "notified"  # what the store remembers: the latest alert and group that became notices
N, G = r.notices.c, r.groups.c


class Notifier:
    """`step` is called every few seconds from one thread."""

    def __init__(self, store: Store, outlets: Outlets) -> None:
        self.store, self.outlets = store, outlets
        self.channels: dict[str, Channel] = {channel.name: channel for channel in outlets.channels}
        last_look = store.about(NOTICED_UP_TO) or {}
        if "group" not in last_look:  # what was there before is not news
            with store.writing() as connection:
                latest = {"alert": queries.latest_alert(connection), "group": _latest_group(connection), "at": now()}
                store.remember(connection, NOTICED_UP_TO, {**latest, **last_look})

    def step(self, moment: int | None = None) -> int:
        """Put new alerts and digests into the outbox and send what is due; returns how many were sent."""
        moment = now() if moment is None else moment
        self._collect(moment)
        with self.store.reading() as connection:
            due = connection.execute(
                select(r.notices).where(N.state == "waiting", N.due_at <= moment).order_by(N.id).limit(AT_ONCE)
            ).all()
        return sum(self._deliver(row, moment) for row in due)

    def _collect(self, moment: int) -> None:
        """New alerts and groups for channels that want each, and the digests that have become due."""
        last_look = self.store.about(NOTICED_UP_TO)
        with self.store.reading() as connection:
            fresh = queries.alerts_after(connection, last_look["alert"])
            query = select(G.id).where(G.id > last_look["group"]).order_by(G.id)
            groups = list(connection.execute(query).scalars())
        about: list[dict[str, Any]] = [{"key": int(alert["id"]), "agent": alert["agent_id"]} for _, alert in fresh]
        about += [{"group_id": number} for number in groups]
        nothing = {"key": None, "agent": None, "group_id": None}
        rows = [
            {**nothing, "channel": channel.name, **one}
            for one in about for channel in self.outlets.channels if channel.digest is None
        ]  # fmt: skip
        rows += [
            {**nothing, "channel": channel.name}
            for channel in self.outlets.channels
            if channel.digest is not None and _is_due(channel.digest, last_look["at"], moment)
        ]
        if rows or about or moment - last_look["at"] > MINUTE:
            more = {"made_at": moment, "due_at": moment, "tries": 0, "state": "waiting", "problem": ""}
            with self.store.writing() as connection:
                if rows:
                    connection.execute(insert(r.notices), [{**row, **more} for row in rows])
                latest = {
                    "alert": fresh[-1][0] if fresh else last_look["alert"],
                    "group": groups[-1] if groups else last_look["group"],
                }
                self.store.remember(connection, NOTICED_UP_TO, {**latest, "at": moment})

    def _deliver(self, row: Any, moment: int) -> bool:
        channel = self.channels.get(row.channel)
        with self.store.reading() as connection:
            notice = self._notice(connection, row)
        if channel is None or notice is None:  # the channel is no longer set up, or the event is gone
            self._delete(row.id)
            return False
        try:
            channel.send(notice, moment // SECOND)
        except Exception as error:  # whatever the other side does, it is tried again
            self._fail(row, moment, type(error).__name__)
            return False
        self._delete(row.id)
        return True

    def _notice(self, connection: Connection, row: Any) -> Notice | None:
        """What is told: ids and a link, as they are now."""
        if row.group_id is not None:
            return self._group(connection, row)
        if row.key is None:
            return self._digest(connection, row)
        events = queries.events_by_key(connection, [row.key])
        if not events:
            return None
        event = events[0]
        url = self.outlets.page(event["agent_id"], event["id"])
        ids = {"event_id": event["id"], "agent_id": event["agent_id"], "incident_id": event["incident_id"]}
        lines = (f"A new alert of {event['agent_id']}.", url)
        return Notice(f"{row.channel}-{row.id}", "ustad: a new alert", lines, {"type": "alert", **ids, "url": url})

    def _group(self, connection: Connection, row: Any) -> Notice | None:
        """A group of people, as long as it is one; who joins it later is not told."""
        text = connection.execute(select(G.content).where(G.id == row.group_id)).scalar()
        if text is None:
            return None
        people, url = json.loads(text)["agent_ids"], f"{self.outlets.link}/run"
        lines = (f"A new group of people: {', '.join(people)}.", url)
        content = {"type": "group", "group_id": str(row.group_id), "agent_ids": people, "url": url}
        return Notice(f"{row.channel}-{row.id}", "ustad: a new group of people", lines, content)

    def _digest(self, connection: Connection, row: Any) -> Notice:
        """The alerts of the day before: how many, how many are open, and links to the first."""
        day = (r.alerts.c.created_at >= row.made_at - DAY, r.alerts.c.created_at < row.made_at)
        conditions = (r.events.c.hidden_by.is_(None), *day)
        keys = select(r.events.c.key).join(r.alerts, r.alerts.c.key == r.events.c.key).where(*conditions)
        new = connection.execute(select(func.count()).select_from(keys.subquery())).scalar_one()
        top = connection.execute(keys.order_by(r.events.c.score.desc(), r.events.c.key).limit(DIGEST_LINES)).scalars()
        events = sorted(queries.events_by_key(connection, list(top)), key=lambda e: (-e["score"], e["id"]))
        open_, _, _ = queries.alerts(connection, queries.Filter(state="open"), 0, "score", limit=1, offset=0)
        url = f"{self.outlets.link}/?state=open"
        head = f"{new:,} new alert{'' if new == 1 else 's'} in the last day, {open_:,} open in all."
        during = (G.found_at >= row.made_at - DAY, G.found_at < row.made_at)
        groups = connection.execute(select(func.count()).select_from(r.groups).where(*during)).scalar_one()
        if groups:
            head += f" {groups:,} new group{'' if groups == 1 else 's'} of people: {self.outlets.link}/run"
        links = [f"{e['agent_id']}: {self.outlets.page(e['agent_id'], e['id'])}" for e in events]
        content = {"type": "digest", "new": new, "open": open_, "groups": groups, "url": url}
        return Notice(f"{row.channel}-{row.id}", f"ustad: {new:,} new, {open_:,} open", (head, url, *links), content)

    def _fail(self, row: Any, moment: int, problem: str) -> None:
        tries = row.tries + 1
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1))
        state = "dead" if tries >= MOST_TRIES else "waiting"
        if state == "dead":
            log.error("a notice could not be sent by '%s' after %d tries: %s", row.channel, tries, problem)
        with self.store.writing() as connection:
            connection.execute(
                update(r.notices).where(N.id == row.id)
                .values(tries=tries, due_at=moment + wait, state=state, problem=problem)
            )  # fmt: skip

    def _delete(self, number: int) -> None:
        with self.store.writing() as connection:
            connection.execute(delete(r.notices).where(N.id == number))


def _latest_group(connection: Connection) -> int:
    return int(connection.execute(select(func.max(G.id))).scalar() or 0)


def _is_due(minute: int, before: int, moment: int) -> bool:
    """Whether this minute of a day in UTC lies in (before, moment]."""
    latest = (moment - minute * MINUTE) // DAY * DAY + minute * MINUTE
    return before < latest <= moment


def retry_dead(connection: Connection) -> int:
    """Try dead notices again from the beginning; how many there are."""
    again = update(r.notices).where(N.state == "dead").values(state="waiting", tries=0, due_at=now())
    return int(connection.execute(again).rowcount)


def list_notices(connection: Connection, limit: int) -> dict[str, Any]:
    """What waits and what is dead: how many, and the oldest of them without what they are about."""
    counts = {row[0]: row[1] for row in connection.execute(select(N.state, func.count()).group_by(N.state))}
    rows = connection.execute(select(r.notices).order_by(N.id).limit(limit))
    return {
        "waiting": counts.get("waiting", 0), "dead": counts.get("dead", 0),
        "notices": [
            {"id": f"{n.channel}-{n.id}", "channel": n.channel, "state": n.state, "tries": n.tries,
             "made_at": queries.iso(n.made_at), "due_at": queries.iso(n.due_at), "problem": n.problem}
            for n in rows
        ],
    }  # fmt: skip
