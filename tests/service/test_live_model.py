"""The service with a real model: live scores equal batch scores, fixes equal extraction, finished runs are shown."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from service_example import as_events, client_of, tiny_stays
from sqlalchemy import select, update
from whole_scores import score_by_habits, score_by_paper

from ustad.cli.serve import settings_for
from ustad.config import Config, ExtractionConfig
from ustad.dataset import event_days
from ustad.detector import Detector
from ustad.files import write_table
from ustad.habits.habit_source import HabitSource
from ustad.live import habit_live
from ustad.mobility.tracker import StayTracker
from ustad.page import records as r
from ustad.page.runs import fingerprint
from ustad.page.store import Store
from ustad.paper_fitting import make_causal
from ustad.schema import mobility_schema
from ustad.scores import Scores
from ustad.scoring.adding_judge import AddingJudge
from ustad.scoring.alerts import AlertRule, LeastRate
from ustad.scoring.judge import Request, Span
from ustad.scoring.scored_parts import score_whole
from ustad.service.app import create_app
from ustad.service.live import ModelScorer, alert_share, events_per_day, rate_words
from ustad.service.settings import Settings
from ustad.tables import DataError


@pytest.fixture
def served(tiny_run: Path, tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(model=tiny_run / "model", store=f"sqlite:///{tmp_path / 'x.db'}", device="cpu")
    with client_of(create_app(settings)) as client:
        yield client


def strange_week() -> pa.Table:
    """Six days after the training weeks of two agents, with two stays moved far away."""
    table = tiny_stays(agents=2, days=6, seed=9, after=30)
    lat = table["lat"].to_numpy().copy()
    lat[[9, 30]] += 0.4
    poi = [f"far {i}" if i in (9, 30) else p for i, p in enumerate(table["poi_id"].to_pylist())]
    table = table.set_column(table.column_names.index("lat"), "lat", pa.array(lat))
    return table.set_column(table.column_names.index("poi_id"), "poi_id", pa.array(poi))


def halves(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The first three days, and the rest."""
    days = event_days(table, mobility_schema())
    early = days < days.min() + 3
    return table.filter(pa.array(early)), table.filter(pa.array(~early))


def sent(client: TestClient, table: pa.Table, sizes: list[int]) -> dict[tuple[str, str], dict[str, Any]]:
    """What the service has of these agents at the end, after requests of these sizes."""
    events, position, turn = as_events(table), 0, 0
    while position < len(events):
        size = sizes[turn % len(sizes)]
        assert client.post("/v1/events", json={"events": events[position : position + size]}).status_code == 200
        position, turn = position + size, turn + 1
    names = sorted({e["agent_id"] for e in events})
    listed = [e for name in names for e in client.get(f"/v1/agents/{name}/events").json()["events"]]
    return {(e["agent_id"], e["started_at"]): e for e in listed}


def check_same(live: dict[tuple[str, str], dict[str, Any]], batch: pa.Table) -> None:
    for row in batch.to_pylist():
        found = live[(row["agent_id"], row["started_at"].isoformat().replace("+00:00", "Z"))]
        assert found["score"] == pytest.approx(row["score"], abs=1e-4, rel=1e-4)
        assert found["p_value"] == pytest.approx(row["p_value"], abs=1e-4, rel=1e-3)
        assert found["kind"] == row["kind"]
        assert found["alert"] == (row["p_value"] <= 0.001)


def check_same_absences(client: TestClient, batch: pa.Table) -> None:
    """The page has those that are rare or of an incident."""
    wanted = [row for row in batch.to_pylist() if row["p_value"] <= 0.01 or row["incident_id"] is not None]
    shown = [
        one for name in sorted({row["agent_id"] for row in batch.to_pylist()})
        for one in client.get(f"/v1/agents/{name}/movements").json()["absences"]
    ]  # fmt: skip
    assert len(wanted) > 0
    assert [one["reason"] for one in shown] == [row["reason"] for row in wanted]
    assert [one["p_value"] for one in shown] == pytest.approx([row["p_value"] for row in wanted])
    assert [one["incident_id"] is None for one in shown] == [row["incident_id"] is None for row in wanted]


@pytest.mark.parametrize("sizes", [[1], [1, 2, 7, 1, 30, 3]])
def test_scores_by_habits_equal_batch_scores_however_requests_are_cut(
    served: TestClient, tiny_run: Path, sizes: list[int]
) -> None:
    table = strange_week()
    live = sent(served, table, sizes)
    detector = Detector.load(tiny_run / "model", device="cpu")
    assert detector.judge is not None
    period = (detector.judge.known_until + 1, int(event_days(table, detector.schema).max()))
    rule = AlertRule("p_value", 0.001)
    batch = score_whole(detector.judge, table, None, Request(rule), span=Span(*period, period))
    check_same(live, batch.events)
    check_same_absences(served, batch.absences)
    first, second = sorted(live.values(), key=lambda e: -e["score"])[:2]
    assert [e["kind"] for e in (first, second)] == ["novel", "novel"], "the two far stays stand out"
    assert re.search("First time here: never in the 14 days (before|until 14 March)", first["reason"])
    assert all(e["final"] for e in live.values())
    highest = first
    case = served.get(f"/v1/events/{highest['id']}").json()
    assert case["questions"]["new_place"] is True
    assert case["questions"]["terms"][0]["surprise"] > 1


def test_the_first_event_waits_for_nothing_that_loads_late(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {(habit_live, "judge_alone"), (habit_live, "judge_together"), (habit_live, "absorb"),
             (HabitSource, "describe_change")}  # fmt: skip
    seen = set()

    def note(owner: Any, name: str) -> None:
        step = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args: (seen.add((owner, name)), step(*args))[1])

    for owner, name in steps:
        note(owner, name)
    scorer = ModelScorer.load(Settings(model=tiny_run / "model", device="cpu"))
    assert seen == steps
    assert scorer.agents_held == 0


def test_two_processes_score_as_one_does(tiny_run: Path, tmp_path: Path) -> None:
    table, listed = strange_week(), []
    for workers in (1, 2):
        store = f"sqlite:///{tmp_path / f'{workers}.db'}"
        settings = Settings(model=tiny_run / "model", store=store, device="cpu", workers=workers)
        with client_of(create_app(settings)) as client:
            listed.append(sent(client, table, [1, 7, 30]))
    one, two = listed
    assert list(one) == list(two)
    for name, event in one.items():
        assert two[name]["score"] == pytest.approx(event["score"], abs=1e-6)
        assert [two[name][what] for what in ("kind", "reason", "alert")] == [
            event[what] for what in ("kind", "reason", "alert")
        ]


def test_stays_with_silence_inside_score_live_as_in_bulk(served: TestClient, tiny_run: Path) -> None:
    table = tiny_stays(agents=2, days=6, seed=9, after=24)
    kept = np.flatnonzero(np.arange(len(table)) % 5 != 3)  # the stay before a missing one lasts until it ended
    until = table["finished_at"].take(pa.array(np.append(kept[1:], len(table)) - 1))
    table = table.take(pa.array(kept)).set_column(table.column_names.index("finished_at"), "finished_at", until)
    lasted = pc.subtract(table["finished_at"], table["started_at"]).cast(pa.int64()).to_numpy() / 1e6
    silent = table.append_column("observed_s", pa.array(np.where(lasted > 4 * 3600, 0.1, 1.0) * lasted))
    habits = Detector.load(tiny_run / "model", device="cpu").judge
    assert habits is not None
    period = (habits.known_until + 1, int(event_days(table, mobility_schema()).max()))
    rule = AlertRule("p_value", 0.001)
    batch, whole = (score_by_habits(habits, t, None, rule, period=period)[0] for t in (silent, table))
    assert (np.abs(batch["score"].to_numpy() - whole["score"].to_numpy()) > 0.05).any(), "silence says something"
    check_same(sent(served, silent, [3]), batch)


@pytest.fixture(scope="module")
def tiny_network(tiny_run: Path) -> Detector:
    """The paper's network, trained on the data of the run."""
    settings = {"model.width": 16, "model.event_blocks": 1, "training.epochs": 1, "scoring.samples": 4}
    config = Config.preset("quick", **settings, **{"model.network": "dual", "scoring.neighbours": 10})
    return Detector(config, device="cpu").fit(tiny_run / "data")


@pytest.mark.parametrize("sizes", [[1], [1, 2, 7, 1, 30, 3]])
def test_scores_by_the_network_equal_batch_scores_however_requests_are_cut(
    tiny_network: Detector, tmp_path: Path, sizes: list[int]
) -> None:
    detector = tiny_network
    settings = Settings(store=f"sqlite:///{tmp_path / 'x.db'}", device="cpu")
    table = strange_week()
    with client_of(create_app(settings, ModelScorer(detector, settings))) as client:
        live = sent(client, table, sizes)
    batch, _ = score_by_paper(make_causal(detector.judge), table)
    check_same(live, batch)
    assert all(e["final"] for e in live.values())


def test_a_restart_changes_no_score_by_habits(tiny_run: Path, tmp_path: Path) -> None:
    settings = Settings(model=tiny_run / "model", store=f"sqlite:///{tmp_path / 'x.db'}", device="cpu")
    table = strange_week()
    for part in halves(table):
        with client_of(create_app(settings)) as client:
            live = sent(client, part, [3])
    unbroken = unbroken_scores(tiny_run, tmp_path, table)
    assert live.keys() == unbroken.keys()
    for event, row in unbroken.items():
        assert live[event]["score"] == pytest.approx(row["score"], abs=1e-6)
    with Store(settings.store).reading() as connection:
        sizes = [len(c) for c in connection.execute(select(r.live_states.c.content)).scalars()]
    assert len(sizes) == 2
    assert max(sizes) < 20_000, "what is kept of an agent is small"


def test_a_store_without_states_of_this_model_is_looked_through_again(tiny_run: Path, tmp_path: Path) -> None:
    settings = Settings(model=tiny_run / "model", store=f"sqlite:///{tmp_path / 'x.db'}", device="cpu")
    table = strange_week()
    first, last = halves(table)
    with client_of(create_app(settings)) as client:
        sent(client, first, [3])
    store = Store(settings.store)
    with store.writing() as connection:
        connection.execute(update(r.live_states).values(model="another", content=b"of no use"))
    store.close()
    with client_of(create_app(settings)) as client:
        live = sent(client, last, [3])
    for event, row in unbroken_scores(tiny_run, tmp_path, table).items():
        assert live[event]["score"] == pytest.approx(row["score"], abs=1e-4)


def unbroken_scores(tiny_run: Path, tmp_path: Path, table: pa.Table) -> dict[tuple[str, str], dict[str, Any]]:
    settings = Settings(model=tiny_run / "model", store=f"sqlite:///{tmp_path / 'whole.db'}", device="cpu")
    with client_of(create_app(settings)) as client:
        return sent(client, table, [50])


def test_deleting_an_agent_leaves_nothing_of_its_habits(served: TestClient) -> None:
    table = strange_week()
    before = sent(served, table, [50])
    assert served.delete("/v1/agents/agent 0").status_code == 200
    service: Any = served.app.state.service  # type: ignore[attr-defined]  # a FastAPI application
    with service.store.reading() as connection:
        left = list(connection.execute(select(r.live_states.c.agent)).scalars())
    assert left == ["agent 1"]
    again = sent(served, table.filter(pc.equal(table["agent_id"], "agent 0")), [1])
    first = min(again)
    assert again[first]["score"] != before[first]["score"], "nothing is known of it any more"


def test_fixes_become_the_stays_that_extraction_finds_and_are_scored(served: TestClient) -> None:
    g = np.random.default_rng(2)
    minutes = np.arange(0, 600, 3)
    place = np.minimum(minutes // 120, 4)
    fixes = [
        {"agent_id": "gps", "time": f"2024-03-20T{6 + m // 60:02d}:{m % 60:02d}:00+00:00",
         "lat": 60.17 + 0.02 * int(p) + 1e-5 * g.random(), "lon": 24.94}
        for m, p in zip(minutes, place, strict=True)
    ]  # fmt: skip
    events = []
    for start in range(0, len(fixes), 17):
        answer = served.post("/v1/fixes", json={"fixes": fixes[start : start + 17]}).json()
        assert answer["late"] == answer["duplicates"] == 0
        events += answer["events"]
    table = pa.Table.from_pylist(fixes)
    expected = StayTracker(ExtractionConfig()).update(table).stays.to_pylist()
    assert [e["started_at"] for e in events] == [s["started_at"].isoformat().replace("+00:00", "Z") for s in expected]
    assert len(events) >= 3
    assert all(e["score"] is not None and e["timezone"] == "Europe/Helsinki" for e in events)
    moved = served.get("/v1/agents/gps/movements").json()
    assert len(moved["trips"]) >= 2
    assert all(len(t["path"]) >= 2 for t in moved["trips"])


def stays_of(client: TestClient, agent: str, lat: float, lon: float, day: int) -> list[dict[str, Any]]:
    """What the service finds in two hours of fixes at a point, after the agent has gone 5 km further."""
    moments = [(m, lat) for m in range(0, 121, 5)] + [(m, lat + 0.045) for m in range(140, 200, 5)]
    fixes = [
        {"agent_id": agent, "time": f"2024-04-{day:02d}T{6 + m // 60:02d}:{m % 60:02d}:00Z", "lat": at, "lon": lon}
        for m, at in moments
    ]  # fmt: skip
    events: list[dict[str, Any]] = client.post("/v1/fixes", json={"fixes": fixes}).json()["events"]
    return [e for e in events if e["started_at"].startswith(f"2024-04-{day:02d}")]


def test_live_stays_at_own_places_and_at_pois_are_called_what_they_are(tiny_run: Path, tmp_path: Path) -> None:
    settings = Settings(model=tiny_run / "model", store=f"sqlite:///{tmp_path / 'x.db'}", device="cpu")
    with client_of(create_app(settings)) as client:
        own = stays_of(client, "agent 1", 60.17 + 0.01 + 0.004, 24.94 + 0.006, 10)[0]
        assert own["category"] == "work", "where this agent works, as training saw it"
        assert stays_of(client, "stranger", 60.17 + 0.01 + 0.004, 24.94 + 0.006, 10)[0]["category"] == "unknown"
    pois = pa.table({"poi_id": ["p"], "lat": [60.3], "lon": [24.9], "category": ["library"], "name": ["Tikkurila"]})
    write_table(pois, tmp_path / "pois.parquet")
    named = Settings(model=tiny_run / "model", store="sqlite://", device="cpu", pois=tmp_path / "pois.parquet")
    with client_of(create_app(named)) as client:
        found = stays_of(client, "agent 1", 60.3, 24.9, 10)[0]
        assert (found["category"], found["place_name"]) == ("library", "Tikkurila")
        assert stays_of(client, "agent 1", 60.184, 24.946, 12)[0]["category"] == "work"


def test_a_finished_run_is_shown_as_it_was_scored(tiny_run: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    shutil.copytree(tiny_run, place)
    scores = Scores.load(place / "scores")
    assert scores.events is not None
    assert scores.agents is not None
    settings = settings_for(place, None, device="cpu")
    with client_of(create_app(settings)) as client:
        totals = client.get("/v1/summary").json()
        assert totals["events"] == scores.events.num_rows
        assert totals["alerts"] == sum(scores.events["alert"].to_pylist())
        agents = {a["agent_id"]: a for a in client.get("/v1/agents").json()["agents"]}
        for row in scores.agents.to_pylist():
            assert agents[str(row["agent_id"])]["score"] == pytest.approx(row["score"])
        known = client.get("/v1/agents/agent 0").json()
        assert known["n_events"] > known["n_scored"] > 0, "the weeks before are known too"
        shown = client.get("/v1/agents/agent 0/events?limit=500").json()["events"]
        assert all(event["final"] for event in shown)
        top = client.get("/v1/alerts").json()["alerts"][0]
        assert top["score"] == pytest.approx(max(scores.events["score"].to_pylist()))
        case = client.get(f"/v1/events/{top['id']}").json()
        assert {"start", "stay", "place", "kind of place"} <= {f["label"] for f in case["features"]}
        client.put(f"/v1/alerts/{top['id']}/verdict", json={"verdict": "confirmed"})
    with client_of(create_app(settings)) as client:
        assert client.get("/v1/summary").json()["events"] == totals["events"], "a second start imports nothing again"
        assert client.get("/v1/alerts").json()["alerts"][0]["verdict"]["verdict"] == "confirmed"


@pytest.mark.parametrize(("table", "name"), [("scores/events.parquet", ".."), ("data/stays.parquet", ".")])
def test_a_run_with_an_agent_that_could_not_be_read_or_erased_is_refused(
    tiny_run: Path, tmp_path: Path, table: str, name: str
) -> None:
    place = tmp_path / "run"
    shutil.copytree(tiny_run, place, ignore=shutil.ignore_patterns("model"))
    events = pq.read_table(place / table)
    names = pa.array([name, *events["agent_id"].to_pylist()[1:]])
    pq.write_table(events.set_column(events.column_names.index("agent_id"), "agent_id", names), place / table)
    with pytest.raises(DataError, match="cannot be part of an address") as error:
        create_app(Settings(run=place, store=(url := f"sqlite:///{tmp_path / 'refused.db'}")))
    assert f"'{name}'" in str(error.value)
    assert "\n" not in str(error.value)
    assert Store(url).find_known([], ["agent 0"]) == (set(), {}), "nothing of it is stored"


def test_a_run_from_before_scores_said_whether_they_are_final_is_shown_too(tiny_run: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    shutil.copytree(tiny_run, place)
    events = pq.read_table(place / "scores" / "events.parquet").drop_columns(["final"])
    pq.write_table(events, place / "scores" / "events.parquet")
    with client_of(create_app(settings_for(place, None, device="cpu"))) as client:
        shown = client.get("/v1/agents/agent 0/events?limit=500").json()["events"]
    assert shown
    assert all(event["final"] for event in shown)


def test_an_import_that_was_cut_off_goes_on(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ustad.page.runs as runs

    settings = Settings(run=tiny_run, store=f"sqlite:///{tmp_path / 'cut.db'}")
    with monkeypatch.context() as patched:
        patched.setattr(runs, "CHUNK", 50)
        patched.setattr(runs, "without_scored", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            create_app(settings)
    with client_of(create_app(settings)) as client:
        scores = Scores.load(tiny_run / "scores")
        assert scores.events is not None
        assert client.get("/v1/summary").json()["events"] == scores.events.num_rows


def test_a_store_shows_one_run_and_refuses_another(tiny_run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_run, other)
    (other / "scores" / "run.json").write_text((other / "scores" / "run.json").read_text() + " ")
    assert fingerprint(other) != fingerprint(tiny_run)
    store = f"sqlite:///{tmp_path / 'one.db'}"
    with client_of(create_app(Settings(run=tiny_run, store=store))):
        pass  # stopped again: one service at a time has a store
    with pytest.raises(DataError, match="another run"):
        create_app(Settings(run=other, store=store))


def test_what_is_neither_model_nor_run_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a model directory nor a finished run"):
        settings_for(tmp_path, None)


def test_alerts_a_day_become_a_share_of_the_training_rate() -> None:
    facts = {"first_day": "2024-03-01", "last_day": "2024-03-10", "events": 1000}
    assert alert_share(facts, 5) == pytest.approx(0.05)
    assert alert_share(facts, 0) == pytest.approx(0.001)
    assert alert_share({}, 5) == pytest.approx(0.001)
    assert alert_share(facts, 2, [(0.05, 1000, 500)]) == pytest.approx(0.04)  # every second one leads an incident


def test_a_rate_that_cannot_be_had_is_said_in_one_line_with_what_can_be(tiny_run: Path) -> None:
    detector = Detector.load(tiny_run / "model", device="cpu")
    assert isinstance(detector.judge, AddingJudge)
    counts = detector.judge.counts
    assert len(counts) == 6  # stored with the model
    events, reference = events_per_day(detector.facts), detector.judge.reference
    assert rate_words(detector, 0, counts) == []
    assert rate_words(detector, 0.02 * events, counts) == []
    (many,) = rate_words(detector, events, counts)
    most = float(many.split("about ")[1].split()[0])
    assert rate_words(detector, 0.9 * most, counts) == []
    (few,) = rate_words(detector, 0.01 * events / reference, counts)
    least = LeastRate.of(reference, events, counts)
    assert few == f"{0.01 * events / reference:g} alerts a day were asked for; {least.words()}"
    assert rate_words(detector, float(few.split("ask for ")[1].split()[0]), counts) == []
    assert rate_words(detector, 0.99 * least.per_day, counts) != []


def test_usual_weeks_are_shown_beside_live_events_and_a_restart_brings_nobody_back(
    tiny_run: Path, tmp_path: Path
) -> None:
    chosen = {"model": tiny_run / "model", "store": f"sqlite:///{tmp_path / 'x.db'}", "device": "cpu"}
    events = [e for e in as_events(strange_week()) if e["agent_id"] == "agent 0"][:2]
    with client_of(create_app(Settings(**chosen, history=tiny_run / "data"))) as client:
        known = client.get("/v1/agents/agent%200/events?limit=1000").json()["events"]
        last_day = Detector.load(tiny_run / "model", device="cpu").facts["last_day"]
        assert known
        assert {event["score"] for event in known} == {None}
        assert max(event["finished_at"][:10] for event in known) <= last_day, "weeks that were not learned from"
        answer = client.post("/v1/events", json={"events": events}).json()["events"]
        scores = [event["score"] for event in answer]
        assert client.get(f"/v1/events/{answer[0]['id']}").json()["usually"]["days"] > 0
        assert client.delete("/v1/agents/agent%201").status_code == 200
    with client_of(create_app(Settings(**chosen, history=tiny_run / "data"))) as client:
        assert client.get("/v1/agents/agent%201").status_code == 404
        assert client.get("/v1/agents/agent%200").json()["n_events"] == len(known) + len(events)
    with client_of(create_app(Settings(**{**chosen, "store": "sqlite://"}))) as client:
        bare = [event["score"] for event in client.post("/v1/events", json={"events": events}).json()["events"]]
    assert scores == pytest.approx(bare, abs=1e-6), "what is shown beside an event has changed its score"


def test_the_service_lists_agents_as_the_table_orders_them_and_says_why(tiny_run: Path, tmp_path: Path) -> None:
    scores = Scores.load(tiny_run / "scores")
    assert scores.agents is not None
    order = scores.top_agents(scores.agents.num_rows)
    with client_of(create_app(Settings(run=tiny_run, store=f"sqlite:///{tmp_path / 'x.db'}"))) as client:
        listed = client.get("/v1/agents?limit=1000").json()["agents"]
        one = client.get(f"/v1/agents/{listed[0]['agent_id']}").json()
    assert [a["n_alerts"] > 0 for a in listed] == sorted([a["n_alerts"] > 0 for a in listed], reverse=True)
    assert [a["agent_id"] for a in listed] == [str(name) for name in order["agent_id"].to_pylist()]
    assert [a["order_note"] for a in listed] == order["order_note"].to_pylist()
    assert any(a["order_note"] for a in listed)
    assert one["order_note"] == listed[0]["order_note"]


def test_the_page_of_a_live_service_knows_its_threshold_and_what_can_be_had(served: TestClient, tiny_run: Path) -> None:
    detector, about = Detector.load(tiny_run / "model", device="cpu"), served.get("/v1/about").json()
    assert detector.judge is not None
    least = LeastRate.of(detector.judge.reference, events_per_day(detector.facts), detector.judge.counts)
    assert about["rate"]["least_per_day"] == pytest.approx(least.per_day)
    assert about["rate"]["words"].lower() == f"{least.words().lower()}."
    assert (about["alert_p_value"], about["chance_share"]) == (0.001, None)


def test_the_page_of_a_run_says_as_much_of_chance_as_scoring_did(tiny_run: Path, tmp_path: Path) -> None:
    run = Scores.load(tiny_run / "scores").run
    with client_of(create_app(Settings(run=tiny_run, store=f"sqlite:///{tmp_path / 'x.db'}"))) as client:
        about, totals = client.get("/v1/about").json(), client.get("/v1/summary").json()
    assert about["chance_share"] * totals["alerts"] == pytest.approx(run["by_chance"])
    assert about["rate"]["least_per_day"] == pytest.approx(run["least_per_day"])
    assert about["alert_p_value"] is None


def test_a_day_says_whether_its_most_unusual_event_leads_an_incident(tiny_run: Path, tmp_path: Path) -> None:
    with client_of(create_app(Settings(run=tiny_run, store=f"sqlite:///{tmp_path / 'x.db'}"))) as client:
        lanes = client.get("/v1/lanes?limit=200").json()["lanes"]
        events = {e["id"]: e for lane in lanes for e in _events_of(client, lane["agent_id"])}
    cells = [cell for lane in lanes for cell in lane["cells"]]
    assert [cell["echo"] for cell in cells] == [events[cell["worst"]]["echo"] for cell in cells]
    assert {cell["echo"] for cell in cells} == {False, True}


def _events_of(client: TestClient, agent: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = client.get(f"/v1/agents/{agent}/events?limit=1000").json()["events"]
    return listed


def test_where_not_all_weeks_before_fit_those_with_alerts_have_theirs(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = Scores.load(tiny_run / "scores")
    assert scores.agents is not None
    names = scores.agents["agent_id"].to_pylist()
    agents = scores.agents.set_column(
        scores.agents.column_names.index("n_alerts"), "n_alerts", pa.array([int(name == names[0]) for name in names])
    )
    agents = agents.set_column(
        agents.column_names.index("score"), "score", pa.array(np.arange(len(names), dtype=float))
    )
    place = tmp_path / "run"
    shutil.copytree(tiny_run, place)
    write_table(agents, place / "scores" / "agents.parquet")
    stays = pq.read_table(place / "data" / "stays.parquet")
    own = pc.sum(pc.equal(stays["agent_id"], names[0])).as_py()
    monkeypatch.setattr("ustad.page.runs.MOST_CONTEXT", own)
    with client_of(create_app(Settings(run=place, store=f"sqlite:///{tmp_path / 'x.db'}"))) as client:
        with_weeks = [n for n in names if any(e["score"] is None for e in _events_of(client, n))]
    assert with_weeks == names[:1]


def test_who_only_came_live_has_no_word_about_a_whole_period(served: TestClient) -> None:
    sent(served, strange_week(), [1_000])
    listed = served.get("/v1/agents?limit=1000").json()["agents"]
    assert listed
    assert all(a["order_note"] is None for a in listed)
