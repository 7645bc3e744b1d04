"""The service with a real model: live scores equal batch scores, fixes equal extraction, finished runs are shown."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from service_example import as_events, client_of, tiny_stays

from ustad.cli.serve import settings_for
from ustad.config import ExtractionConfig
from ustad.detector import Detector
from ustad.mobility.tracker import StayTracker
from ustad.scores import Scores
from ustad.scoring.score import score_events
from ustad.service.app import create_app
from ustad.service.live import alert_share
from ustad.service.runs import fingerprint
from ustad.service.settings import Settings
from ustad.tables import DataError


@pytest.fixture
def served(tiny_run: Path, tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(model=tiny_run / "model", store=f"sqlite:///{tmp_path / 'x.db'}", device="cpu")
    with client_of(create_app(settings)) as client:
        yield client


@pytest.mark.parametrize("sizes", [[1], [1, 2, 7, 1, 30, 3]])
def test_live_scores_equal_batch_scores_however_requests_are_cut(
    served: TestClient, tiny_run: Path, sizes: list[int]
) -> None:
    events = as_events(tiny_stays(agents=2, days=6, seed=9))
    live, position, turn = {}, 0, 0
    while position < len(events):
        size = sizes[turn % len(sizes)]
        answer = served.post("/v1/events", json={"events": events[position : position + size]})
        live |= {(e["agent_id"], e["started_at"]): e for e in answer.json()["events"]}
        position, turn = position + size, turn + 1
    table = tiny_stays(agents=2, days=6, seed=9)
    model = Detector.load(tiny_run / "model", device="cpu").model
    assert model is not None
    batch, _ = score_events(model.causal(), table)
    for row in batch.to_pylist():
        found = live[(row["agent_id"], row["started_at"].isoformat().replace("+00:00", "Z"))]
        assert found["score"] == pytest.approx(row["score"], abs=1e-4)
        assert found["p_value"] == pytest.approx(row["p_value"], abs=1e-4)
        assert found["kind"] == row["kind"]


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
        top = client.get("/v1/alerts").json()["alerts"][0]
        assert top["score"] == pytest.approx(max(scores.events["score"].to_pylist()))
        case = client.get(f"/v1/events/{top['id']}").json()
        assert {"start", "stay", "place", "kind of place"} <= {f["label"] for f in case["features"]}
        client.put(f"/v1/alerts/{top['id']}/verdict", json={"verdict": "confirmed"})
    with client_of(create_app(settings)) as client:
        assert client.get("/v1/summary").json()["events"] == totals["events"], "a second start imports nothing again"
        assert client.get("/v1/alerts").json()["alerts"][0]["verdict"]["verdict"] == "confirmed"


def test_an_import_that_was_cut_off_goes_on(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ustad.service.runs as runs

    settings = Settings(run=tiny_run, store=f"sqlite:///{tmp_path / 'cut.db'}")
    with monkeypatch.context() as patched:
        patched.setattr(runs, "CHUNK", 50)
        patched.setattr(runs, "_add_context", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt()))
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
    create_app(Settings(run=tiny_run, store=store))
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
