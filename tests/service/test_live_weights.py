"""What verdicts taught, live: alerts by it, scores as they were, its preview and switch; unusual days of everybody."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_example import PlainScorer, a_stay, as_events, client_of, tiny_stays

from ustad.clock import iso_date
from ustad.config import ConfigError
from ustad.service.app import create_app
from ustad.service.settings import Settings

WEIGHTS = {"start": 0.2, "left_before": 0.2, "duration": 0.4, "recurrence": 3.0, "distance": 1.6, "elsewhere": 0.02}
#: One usual event in fifty is up to the threshold, so that weights have something to change.
PER_DAY = 0.3


@pytest.fixture(scope="module")
def weights_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "weights.json"
    path.write_text(json.dumps({"verdicts": 50, "weights": WEIGHTS}))
    return path


@pytest.fixture
def settings(tiny_run: Path, tmp_path: Path) -> Callable[..., Settings]:
    store = f"sqlite:///{tmp_path / 'x.db'}"
    return lambda **more: Settings(
        model=tiny_run / "model", store=store, device="cpu", alerts_per_day=PER_DAY, **more
    )  # fmt: skip


def send(client: Any, days: int = 4, after: int = 24) -> list[dict[str, Any]]:
    """Scored events of some days after the training weeks, of people who are a day off their habits."""
    events = as_events(tiny_stays(agents=6, days=days, seed=9, after=after))
    for number, event in enumerate(events):
        if number % 19 == 5:
            event["lat"] += 0.4
            event["poi_id"] = f"new {number}"
    assert client.post("/v1/events", json={"events": events}).status_code == 200
    names = sorted({e["agent_id"] for e in events})
    return [e for name in names for e in client.get(f"/v1/agents/{name}/events").json()["events"]]


def alert_of(event: dict[str, Any], detail: dict[str, Any], limit: float) -> bool:
    """The slow way: the score times the mean weight of its questions, by their shares."""
    terms = detail["questions"]["terms"]
    factor = sum(t["share"] * WEIGHTS.get(t["name"], 1.0) for t in terms) if sum(t["share"] for t in terms) else 1.0
    assert event["score"] == pytest.approx(-np.log10(event["p_value"]), abs=1e-6)
    return event["score"] * factor >= -np.log10(limit)


def test_weights_choose_alerts_scores_stay_and_the_switch_is_remembered(
    settings: Callable[..., Settings], weights_file: Path
) -> None:
    with client_of(create_app(settings())) as client:
        assert client.get("/v1/weights").json()["change"] is None
        assert client.put("/v1/weights", json={"on": True}).status_code == 404
    with client_of(create_app(settings(weights=weights_file))) as client:
        limit = client.app.state.service.weights.p_value
        events = send(client)
        details = {e["id"]: client.get(f"/v1/events/{e['id']}").json() for e in events}
        leaders = [e for e in events if e["incident_id"] and not e["echo"]]
        wanted = {e["id"]: alert_of(e, details[e["id"]], limit) for e in leaders}
        by_score = {e["id"]: e["p_value"] <= limit for e in leaders}
        assert 0 < sum(wanted.values()) < sum(by_score.values())
        raised = {e["incident_id"] for e in events if e["alert"]}
        assert {e["incident_id"] for e in leaders if wanted[e["id"]]} <= raised
        for event in events:
            if event["alert"]:
                assert alert_of(event, details[event["id"]], limit)
            shown = details[event["id"]]["learned_score"]
            assert shown is not None
            assert (shown >= -np.log10(limit)) == alert_of(event, details[event["id"]], limit)
        change = client.get("/v1/weights").json()["change"]
        pairs = [(by_score[key], wanted[key]) for key in wanted]
        assert (change["alerts"], change["go"], change["come"]) == (
            sum(by_score.values()), sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
        )  # fmt: skip
        told = client.put("/v1/weights", json={"on": False}).json()
        assert (told["on"], told["change"]) == (False, change), "what is stored stays as it is"
    with client_of(create_app(settings(weights=weights_file))) as client:
        assert client.get("/v1/weights").json()["on"] is False
        known = {e["id"] for e in events}
        later = [e for e in send(client, days=3, after=28) if e["id"] not in known]
        assert all(client.get(f"/v1/events/{e['id']}").json()["learned_score"] is None for e in later)
        assert all(e["p_value"] <= limit for e in later if e["alert"])
        assert any(e["alert"] for e in later)


def test_weights_without_a_model_are_refused_in_one_line(tiny_run: Path, weights_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--weights needs a model"):
        create_app(Settings(run=tiny_run, weights=weights_file, store=f"sqlite:///{tmp_path / 'z.db'}"))


def test_a_day_that_is_unusual_for_everybody_is_noted_live_as_in_bulk(open_client: Any) -> None:
    """Stays of four hours and more are unusual to this scorer; on one day most people make one."""
    chance, stays, snow = np.random.default_rng(3), [], 7
    for person in range(60):
        for day in range(10):
            is_long = chance.random() < (0.7 if day == snow else 0.05)
            stays.append(a_stay(f"p{person}", 24 * day + 8, 5 if is_long else 1))
    client = open_client(PlainScorer())
    for at in range(0, len(stays), 100):
        assert client.post("/v1/events", json={"events": stays[at : at + 100]}).status_code == 200
    client.app.state.service.note_days()
    about = client.get("/v1/about").json()
    day = iso_date(19783 + snow)  # 2024-03-01
    assert about["days"] == {day: "unusual for everybody"}
    assert any(note.startswith(f"{day} was unusual for everybody: ") for note in about["notes"])
