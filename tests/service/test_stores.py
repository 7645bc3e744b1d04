"""The store on SQLite and on a real PostgreSQL server: the same behaviour, migrations, retention, deletion."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from service_example import PlainScorer
from sqlalchemy import func, select

from ustad.page import migrations, queries
from ustad.page import records as r
from ustad.page.event_writer import add_events, finalise
from ustad.page.migrations import NEWEST, STEPS, migrate
from ustad.page.store import Store, _engine, recount, with_own_scores
from ustad.service.keys import create_key
from ustad.service.retention import expire
from ustad.tables import DataError

Stay = Callable[..., dict[str, Any]]
DAY = 86_400_000_000


def test_the_whole_way_works_on_every_database(open_client: Any, any_store_url: str, stay: Stay) -> None:
    client = open_client(PlainScorer(), store=any_store_url)
    sent = {"events": [stay("é 1", 0, 4), stay("é 1", 5), stay("b", 0, 7), stay("b", 8, 2, poi_category=None)]}
    assert client.post("/v1/events", json=sent).json()["accepted"] == 4
    assert client.post("/v1/events", json=sent).json()["duplicates"] == 4
    assert [a["agent_id"] for a in client.get("/v1/agents").json()["agents"]] == ["b", "é 1"]
    alerts = client.get("/v1/alerts").json()
    assert [a["score"] for a in alerts["alerts"]] == [7.0, 4.0]
    assert client.get("/v1/alerts", params={"since": alerts["next_since"]}).json()["total"] == 0
    assert client.get("/v1/alerts", params={"category": "work", "kind": "novel"}).json()["total"] == 1
    lanes = client.get("/v1/lanes").json()["lanes"]
    assert [lane["agent_id"] for lane in lanes] == ["b", "é 1"]
    assert lanes[0]["cells"][0]["events"] == 2
    assert [lane["agent_id"] for lane in client.get("/v1/lanes", params={"kind": "novel"}).json()["lanes"]] == ["b"]
    assert client.get("/v1/lanes", params={"min_score": 3.5, "category": "work"}).json()["total"] == 2
    fixes = [{"agent_id": "c", "time": f"2024-03-01T0{i // 60}:{i % 60:02d}:00Z", "lat": 60 + i // 60 * 0.1, "lon": 25}
             for i in range(0, 120, 5)]  # fmt: skip
    assert len(client.post("/v1/fixes", json={"fixes": fixes}).json()["events"]) == 1
    again = client.post("/v1/fixes", json={"fixes": fixes}).json()
    assert again["accepted"] == 0
    assert again["late"] + again["duplicates"] == len(fixes)
    case = client.get(f"/v1/events/{alerts['alerts'][0]['id']}").json()
    assert [f["name"] for f in case["features"]] == ["start", "duration"]
    assert client.get("/v1/summary").json()["curve"][0]["score"] == 7.0


def test_a_lasting_change_stays_with_its_agent_on_every_database(
    open_client: Any, any_store_url: str, stay: Stay
) -> None:
    class Changing(PlainScorer):
        def score(self, rows: Any) -> Any:
            changes = (
                {"b": "Since 3 May …"} if rows[0]["finished_at"] - rows[0]["started_at"] > 2 * 3_600_000_000 else {}
            )
            return dataclasses.replace(super().score(rows), changes=changes)

    client = open_client(Changing(), store=any_store_url)
    for begin, hours in ((0, 1), (5, 3), (30, 1)):  # told with the second event, and still there after the third
        client.post("/v1/events", json={"events": [stay("b", begin, hours)]})
    client.post("/v1/events", json={"events": [stay("a", 0)]})
    told = {a["agent_id"]: a["change"] for a in client.get("/v1/agents").json()["agents"]}
    assert told == {"a": None, "b": "Since 3 May …"}
    assert client.get("/v1/agents/b").json()["change"] == "Since 3 May …"


def test_events_scores_and_windows_survive_a_restart(open_client: Any, any_store_url: str, stay: Stay) -> None:
    first = open_client(PlainScorer(), store=any_store_url)
    before = first.post("/v1/events", json={"events": [stay(hour=i * 2) for i in range(5)]}).json()["events"]
    scorer = PlainScorer()
    second = open_client(scorer, store=any_store_url)
    assert second.get("/v1/agents/a/events").json()["events"][::-1] == before
    second.post("/v1/events", json={"events": [stay(hour=20)]})
    assert scorer.held["a"] == 6, "the window is read back from the store before the first new event"


def test_events_of_one_moment_come_back_in_the_order_they_came(
    open_client: Any, any_store_url: str, stay: Stay
) -> None:
    class Reading(PlainScorer):
        def remember(self, agents: Any, context: Any, states: Any, incidents: Any = None) -> None:
            super().remember(agents, context, states)
            self.read = context["poi_category"].to_pylist()

    store = Store(any_store_url)
    rows = [{"agent": "a", "event_id": name, "started_at": 7, "finished_at": 7, "timezone": "UTC", "day": 0,
             "alert": False, "score": 1.0, "p_value": 0.1, "final": True, "category": name, "key": key, "reason": None}
            for name, key in (("b", 3), ("c", 1), ("a", 2))]  # fmt: skip
    for part in (rows[:2], rows[2:]):
        with store.writing() as connection:
            add_events(connection, part, {})
    store.close()
    scorer = Reading()
    client = open_client(scorer, store=any_store_url)
    assert [e["category"] for e in client.get("/v1/agents/a/events").json()["events"]] == ["a", "c", "b"]
    assert client.post("/v1/events", json={"events": [stay("a")]}).status_code == 200
    assert scorer.read == ["b", "c", "a"]


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "two"])
@pytest.mark.parametrize("score", [math.nextafter(5.0, 9.0), math.nextafter(5.0, 0.0)])
def test_scores_that_differ_in_the_last_bit_alone_decide_nothing(
    any_store_url: str, at_once: bool, score: float
) -> None:
    store = Store(any_store_url)
    rows = [{"agent": "a", "event_id": None, "started_at": key, "finished_at": key, "timezone": "UTC", "day": 0,
             "alert": True, "score": value, "p_value": 0.1, "final": True, "category": None, "key": key, "kind": None,
             "reason": f"reason {key}"} for key, value in ((1, 5.0), (2, score))]  # fmt: skip
    for part in [rows] if at_once else [rows[:1], rows[1:]]:
        with store.writing() as connection:
            add_events(connection, part, {})
    with store.reading() as connection:
        listed = queries.Filter(min_score=5.0)
        assert queries.alerts(connection, listed, 0, "score", limit=9, offset=0)[0] == 2
        assert (
            queries.lanes(connection, listed, 0, 9, limit=9, offset=0)[0]
            == queries.agents(connection, None, 5.0, 9, offset=0)[0]
            == 1
        )
    for again in (lambda connection: None, lambda connection: recount(connection, "a", own_score=True)):
        with store.writing() as connection:
            again(connection)
            assert connection.execute(select(r.agents.c.worst, r.agents.c.reason)).one() == (1, "reason 1")
            assert connection.execute(select(r.days.c.worst)).scalar_one() == 1
    with store.writing() as connection:
        finalise(connection, {1: {"score": math.nextafter(5.0, 9.0), "p_value": 0.1, "alert": True}})
        assert with_own_scores(connection, ["a"]) == {"a"}, "the total follows its event to the last bit"
    store.close()


def test_half_a_stay_survives_a_restart(open_client: Any, any_store_url: str) -> None:
    def fixes(minutes: range, lat: float) -> dict[str, Any]:
        return {"fixes": [{"agent_id": "g", "time": f"2024-03-01T08:{m:02d}:00Z", "lat": lat, "lon": 25.0}
                          for m in minutes]}  # fmt: skip

    first = open_client(PlainScorer(), store=any_store_url)
    assert first.post("/v1/fixes", json=fixes(range(10), 60.0)).json()["events"] == []
    second = open_client(PlainScorer(), store=any_store_url)
    found = second.post(
        "/v1/fixes", json={"fixes": fixes(range(10, 20), 60.0)["fixes"] + fixes(range(20, 30), 60.5)["fixes"]}
    )
    stays = found.json()["events"]
    assert [(s["started_at"], s["finished_at"]) for s in stays] == [("2024-03-01T08:00:00Z", "2024-03-01T08:20:00Z")]


def test_deletion_leaves_nothing_of_an_agent_anywhere(open_client: Any, any_store_url: str, stay: Stay) -> None:
    client = open_client(PlainScorer(), store=any_store_url)
    client.post("/v1/events", json={"events": [stay("gone", 0, 5), stay("stays", 0, 5)]})
    fix = {"agent_id": "gone", "time": "2024-03-02T08:00:00Z", "lat": 60.0, "lon": 25.0}
    client.post("/v1/fixes", json={"fixes": [fix]})
    key = client.get("/v1/alerts", params={"agent": "gone"}).json()["alerts"][0]["id"]
    client.put(f"/v1/alerts/{key}/verdict", json={"verdict": "confirmed"})
    assert client.delete("/v1/agents/gone").json() == {"deleted_events": 1}
    assert client.get("/v1/agents/gone").status_code == 404
    assert client.get("/v1/alerts").json()["total"] == 1
    store = Store(any_store_url)
    with store.reading() as connection:
        for table in r.OF_AGENTS:
            assert "gone" not in connection.execute(select(table.c.agent)).scalars().all(), table.name
        for table in (r.details, r.alerts):
            assert int(key) not in connection.execute(select(table.c.key)).scalars().all()
        assert connection.execute(select(func.count()).select_from(r.journal)).scalar() == 0
        assert b"gone" not in (connection.execute(select(r.snapshots.c.content)).scalar() or b"")
        assert connection.execute(select(r.deletions.c.n_events)).scalars().all() == [1]
    store.close()
    again = client.post("/v1/events", json={"events": [stay("gone", 0, 5)]}).json()
    assert again["accepted"] == 1, "a deleted agent that comes again begins anew"


def test_retention_deletes_what_is_old_and_recounts_the_rest(open_client: Any, any_store_url: str, stay: Stay) -> None:
    client = open_client(PlainScorer(), store=any_store_url)
    events = [stay("both", 0, 6), stay("both", 100, 4), stay("old", 0, 5), stay("new", 100, 5)]
    client.post("/v1/events", json={"events": events})
    store = Store(any_store_url)
    limit = client.get("/v1/agents/new").json()["first_at"]
    import datetime

    at = datetime.datetime.fromisoformat(limit.replace("Z", "+00:00"))
    assert expire(store, int(at.timestamp() * 1e6)) == 2
    store.close()
    both = client.get("/v1/agents/both").json()
    assert (both["n_events"], both["n_alerts"], both["score"]) == (1, 1, 4.0)
    assert client.get("/v1/agents/old").status_code == 404
    assert [len(lane["cells"]) for lane in client.get("/v1/lanes").json()["lanes"]] == [1, 1]
    assert client.get("/v1/alerts").json()["total"] == 2


def with_colour() -> sa.MetaData:
    """Tables of a later version: verdicts have a colour."""
    tables = sa.MetaData()
    for table in r.metadata.sorted_tables:
        table.to_metadata(tables)
    tables.tables["verdicts"].append_column(sa.Column("colour", sa.String(10)))
    return tables


def test_an_older_store_is_brought_up_to_date_and_a_newer_one_refused(any_store_url: str) -> None:
    store = Store(any_store_url)
    assert migrate(store.engine, with_colour(), NEWEST + 1) == NEWEST + 1
    assert migrate(store.engine, with_colour(), NEWEST + 1) == NEWEST + 1, "a column is added once"
    names = [c["name"] for c in sa.inspect(store.engine).get_columns("verdicts")]
    assert "colour" in names
    with pytest.raises(DataError, match="update ustad"):
        migrate(store.engine)
    store.close()


@pytest.mark.parametrize("empty", [True, False], ids=["empty", "older"])
def test_a_process_that_was_quicker_has_done_what_need_not_be_done_again(
    any_store_url: str, empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, newest = (r.metadata, NEWEST) if empty else (with_colour(), NEWEST + 1)
    if not empty:
        Store(any_store_url).close()
    read, other = migrations._version, _engine(any_store_url)

    def overtaken(connection: sa.Connection) -> int | None:
        """The version, as read just before another process brings the store up to date."""
        monkeypatch.setattr(migrations, "_version", read)
        found = read(connection)
        assert migrate(other, tables, newest) == newest
        return found

    monkeypatch.setattr(migrations, "_version", overtaken)
    engine = _engine(any_store_url)
    assert migrate(engine, tables, newest) == newest
    with engine.connect() as connection:
        assert connection.execute(select(migrations.version_table)).all() == [(newest,)]
    engine.dispose()
    other.dispose()


def test_stores_opened_at_once_run_each_step_once(any_store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(any_store_url).close()
    ran: list[str] = []
    monkeypatch.setattr(migrations, "STEPS", {**STEPS, NEWEST + 1: lambda operations: ran.append("step")})
    tables = with_colour()
    start = threading.Barrier(4)

    def opening() -> int:
        engine = _engine(any_store_url)
        start.wait()
        try:
            return migrate(engine, tables, NEWEST + 1)
        finally:
            engine.dispose()

    with ThreadPoolExecutor(4) as pool:
        assert [f.result() for f in [pool.submit(opening) for _ in range(4)]] == [NEWEST + 1] * 4
    assert ran == ["step"]


def test_a_store_of_the_first_version_gets_what_it_lacks_and_keeps_its_events(
    open_client: Any, any_store_url: str, stay: Stay
) -> None:
    open_client(PlainScorer(), store=any_store_url).post("/v1/events", json={"events": [stay("a", 0, 4)]})
    store = Store(any_store_url)
    with store.engine.begin() as connection:
        for name in ("days_by_agent", "alerts_by_score", "days_in_order"):
            connection.execute(sa.text(f"DROP INDEX {name}"))
        for name in ("final", "place_name", "arrived_at", "observed_s"):
            connection.execute(sa.text(f"ALTER TABLE events DROP COLUMN {name}"))
        connection.execute(sa.text("ALTER TABLE access_keys DROP COLUMN expires_at"))
        _drop_devices(connection)
        _drop_incidents(connection)
        connection.execute(sa.text("DROP TABLE live_states"))
        connection.execute(sa.text("CREATE INDEX days_by_day ON days (day)"))
        connection.execute(sa.text("UPDATE store_version SET version = 1"))
    store.close()
    client = open_client(PlainScorer(), store=any_store_url)
    event = client.get("/v1/alerts").json()["alerts"][0]
    assert event["final"] is True
    assert event["place_name"] is None


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_writers_and_readers_at_once_lose_nothing_and_see_whole_transactions(kind: str, tmp_path: Path) -> None:
    store = Store("sqlite://" if kind == "memory" else f"sqlite:///{tmp_path / 'busy.db'}")
    wrong: list[str] = []

    def write(number: int) -> None:
        for i in range(60):
            key = 1000 * number + i
            with suppress(InterruptedError), store.writing() as connection:
                connection.execute(sa.insert(r.alerts).values(key=key, created_at=0))
                connection.execute(sa.insert(r.details).values(key=key, content=""))
                if i % 3 == 2:
                    raise InterruptedError("this transaction is taken back")

    def read(number: int) -> None:
        for _ in range(80):
            with store.reading() as connection:
                counts = [connection.execute(select(func.count()).select_from(t)).scalar_one()
                          for t in (r.alerts, r.details)]  # fmt: skip
            if counts[0] != counts[1]:
                wrong.append(f"half a transaction is seen: {counts}")

    def noting(work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except Exception as error:
            wrong.append(type(error).__name__)

    threads = [threading.Thread(target=noting, args=(work, n)) for n in range(2) for work in (write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    expected = {1000 * n + i for n in range(2) for i in range(60) if i % 3 != 2}
    with store.reading() as connection:
        for table in (r.alerts, r.details):
            assert set(connection.execute(select(table.c.key)).scalars()) == expected
    store.close()


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "sqlite:////no/such/place/x.db"])
def test_a_store_that_cannot_be_opened_is_one_clear_line(url: str) -> None:
    with pytest.raises(DataError) as error:
        Store(url)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["no database", "no version"])
def test_a_store_that_is_none_is_one_clear_line(content: str, tmp_path: Path) -> None:
    place = tmp_path / "wrong.db"
    if content == "no database":
        place.write_text("something else\n" * 100)
    else:
        with sqlite3.connect(place) as connection:
            connection.execute("CREATE TABLE store_version (number INTEGER)")
        connection.close()
    with pytest.raises(DataError, match="cannot be opened") as error:
        Store(f"sqlite:///{place}")
    assert "\n" not in str(error.value)


def test_a_password_in_the_url_is_not_shown() -> None:
    with pytest.raises(DataError) as error:
        Store("postgresql://me:secret-word@127.0.0.1:1/none")
    assert "secret-word" not in str(error.value)


def test_a_store_of_the_second_version_never_gives_the_number_of_an_alert_twice(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'second.db'}"
    store = Store(url)
    with store.engine.begin() as connection:
        connection.execute(sa.text("DROP INDEX days_in_order"))
        for name in ("arrived_at", "observed_s"):
            connection.execute(sa.text(f"ALTER TABLE events DROP COLUMN {name}"))
        connection.execute(sa.text("ALTER TABLE access_keys DROP COLUMN expires_at"))
        _drop_devices(connection)
        _drop_incidents(connection)
        connection.execute(sa.text("DROP TABLE alerts"))
        connection.execute(sa.text("CREATE TABLE alerts (seq INTEGER NOT NULL PRIMARY KEY, key BIGINT NOT NULL UNIQUE, "
                                   "created_at BIGINT NOT NULL)"))  # fmt: skip
        connection.execute(sa.text("INSERT INTO alerts VALUES (3, 30, 0), (7, 70, 0)"))
        connection.execute(sa.text("UPDATE store_version SET version = 2"))
    store.close()
    store = Store(url)
    with store.writing() as connection:
        connection.execute(sa.delete(r.alerts).where(r.alerts.c.seq == 7))
        connection.execute(sa.insert(r.alerts).values(key=80, created_at=0))
        assert connection.execute(select(r.alerts.c.seq, r.alerts.c.key)).all() == [(3, 30), (8, 80)]
    store.close()


def test_devices_add_up_on_every_database(open_client: Any, any_store_url: str) -> None:
    store = Store(any_store_url)
    phone = {"Authorization": f"Bearer {create_key(store, 'phone', [], agent='anna')}"}
    reader = create_key(store, "analyst", ["read"])
    create_key(store, "silent", [], agent="bob")
    store.close()
    client = open_client(PlainScorer(), key=reader, store=any_store_url)
    for seconds, more in ((1_709_536_500, {"batt": 50}), (1_709_536_560, {}), (1_709_536_530, {})):
        fix = {"_type": "location", "tst": seconds, "lat": 60.0, "lon": 25.0, **more}
        assert client.post("/device/owntracks", headers=phone, json=fix).status_code == 200
    listed = client.get("/v1/devices").json()
    assert [(d["name"], d["n_fixes"], d["n_left_out"], d["battery"], d["fixed_at"]) for d in listed["devices"]] == [
        ("silent", 0, 0, None, None), ("phone", 2, 1, 50.0, "2024-03-04T07:16:00Z")
    ]  # fmt: skip


def test_a_store_of_the_fifth_version_gets_the_columns_of_a_new_one(any_store_url: str) -> None:
    store = Store(any_store_url)
    new = _columns(store)
    with store.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE events DROP COLUMN observed_s"))
        _drop_devices(connection)
        _drop_incidents(connection)
        connection.execute(sa.text("UPDATE store_version SET version = 5"))
    store.close()
    store = Store(any_store_url)
    assert _columns(store) == new
    assert {("events", "observed_s"), ("events", "echo"), ("access_keys", "agent"), ("devices", "heard_at")} <= set(new)
    store.close()


def _drop_cases(connection: sa.Connection) -> None:
    """As before version 9: without cases, rules, notices, lasting changes and absences."""
    connection.execute(sa.text("ALTER TABLE agents DROP COLUMN change"))
    later = (
        "cases",
        "case_incidents",
        "case_history",
        "watchlist",
        "saved_views",
        "hiding_rules",
        "notices",
        "absences",
    )
    for name in later:
        connection.execute(sa.text(f"DROP TABLE {name}"))
    had_index = "alerts_by_score" in {i["name"] for i in sa.inspect(connection).get_indexes("events")}
    connection.execute(sa.text("DROP INDEX IF EXISTS alerts_by_score"))
    connection.execute(sa.text("DROP INDEX hidden_events"))
    connection.execute(sa.text("ALTER TABLE events DROP COLUMN hidden_by"))
    if had_index:
        connection.execute(sa.text("CREATE INDEX alerts_by_score ON events (score) WHERE alert"))


def _drop_incidents(connection: sa.Connection) -> None:
    """As before version 8."""
    _drop_cases(connection)
    for name in ("events_by_score", "events_by_incident"):
        connection.execute(sa.text(f"DROP INDEX {name}"))
    for name in ("incident", "echo"):
        connection.execute(sa.text(f"ALTER TABLE events DROP COLUMN {name}"))
    connection.execute(sa.text("CREATE INDEX events_by_score ON events (score, p_value)"))


def _drop_devices(connection: sa.Connection) -> None:
    """What the seventh version of the store brought."""
    connection.execute(sa.text("DROP TABLE devices"))
    connection.execute(sa.text("ALTER TABLE access_keys DROP COLUMN agent"))


def _columns(store: Store) -> dict[tuple[str, str], tuple[str, bool]]:
    """Kind of every column of every table, and whether it may be null."""
    seen = sa.inspect(store.engine)
    tables = seen.get_table_names()
    return {(t, c["name"]): (str(c["type"]), c["nullable"]) for t in tables for c in seen.get_columns(t)}
