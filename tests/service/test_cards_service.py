"""The service with another schema: card payments are taken, scored, listed and shown on a page without a map."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from page_visit import Visit
from service_example import PATIENCE, TINY, Server, client_of
from whole_scores import score_by_habits, score_by_paper

from ustad.config import Config
from ustad.dataset import Dataset, event_days
from ustad.detector import Detector
from ustad.files import write_table
from ustad.paper_fitting import make_causal
from ustad.schema import EventSchema
from ustad.service.app import create_app
from ustad.service.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def payments() -> tuple[EventSchema, pa.Table, pa.Table]:
    """The schema of the example, its payments of the first weeks, and those of a few cards after that."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from cards import simulate
    finally:
        sys.path.remove(str(EXAMPLES))
    schema = EventSchema.from_yaml(EXAMPLES / "cards.yaml")
    events, _ = simulate(3, small=True)
    days = event_days(events, schema)
    late = events.filter(pa.array(days > days.max() - 4))
    few = late.filter(pa.compute.is_in(late["card_id"], pa.array(["card 1", "card 2", "card 3"])))
    return schema, events.filter(pa.array(days <= days.max() - 4)), few


@pytest.fixture(scope="module")
def models(payments: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of habits and own values, and of the paper's network."""
    schema, early, _ = payments
    places = {}
    for network in ("none", "dual"):
        places[network] = tmp_path_factory.mktemp("cards") / network
        changes = {**TINY, "model.network": network, "window.unit": "events", "window.length": 8}
        detector = Detector(Config.preset("quick").replace(changes), device="cpu")
        detector.fit(Dataset(early, schema=schema, meta={"training": True})).save(places[network])
    return places


@pytest.fixture(scope="module")
def model(models: dict[str, Path]) -> Path:
    return models["none"]


def bodies(table: pa.Table) -> list[dict[str, Any]]:
    rows = table.select(["payment_id", "card_id", "paid_at", "amount", "category", "merchant", "channel"])
    ordered = rows.sort_by([("paid_at", "ascending")]).to_pylist()
    return [{**row, "paid_at": row["paid_at"].isoformat()} for row in ordered]


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("network", ["none", "dual"])
def test_payments_get_the_scores_of_a_batch(
    models: dict[str, Path], payments: Any, tmp_path: Path, network: str, size: int
) -> None:
    late, model = payments[2], models[network]
    settings = Settings(model=model, store=f"sqlite:///{tmp_path / 'x.db'}", device="cpu")
    events, live = bodies(late), {}
    assert len(events) > 8
    with client_of(create_app(settings)) as client:
        for start in range(0, len(events), size):
            answer = client.post("/v1/events", json={"events": events[start : start + size]})
            assert answer.status_code == 200, answer.text
            live |= {e["event_id"]: e for e in answer.json()["events"]}
        assert client.post("/v1/fixes", json={"fixes": []}).status_code in (404, 405)
        assert client.get("/v1/about").json()["has_place"] is False
        top = max(live.values(), key=lambda e: e["score"])
        case = client.get(f"/v1/events/{top['id']}").json()
    detector = Detector.load(model, device="cpu")
    if network == "dual":
        batch, _ = score_by_paper(make_causal(detector.judge), late)
    else:
        first = detector.judge.known_until + 1
        batch, _ = score_by_habits(detector.judge, late, period=(first, first + 30))
    for row in batch.to_pylist():
        assert live[str(row["payment_id"])]["score"] == pytest.approx(row["score"], abs=1e-4, rel=1e-4)
    amount = next(f for f in case["features"] if f["name"] == "amount")
    sent = {str(e["payment_id"]): e for e in events}
    assert amount["unit"] == "EUR"
    assert amount["observed"] == pytest.approx(sent[top["event_id"]]["amount"], rel=1e-3)
    assert {f["label"] for f in case["features"]} >= {"time of day", "kind of shop", "way of paying"}


def test_payments_of_one_card_at_one_moment_are_told_apart_by_their_ids(
    model: Path, payments: Any, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'x.db'}"
    first, second, third = bodies(payments[2])[:3]
    same = [{**e, "card_id": "card 1", "paid_at": first["paid_at"], "payment_id": f"p{i}"}
            for i, e in enumerate((first, second, third))]  # fmt: skip
    with client_of(create_app(Settings(model=model, store=store, device="cpu"))) as client:
        together = client.post("/v1/events", json={"events": same[:2]}).json()
        assert (together["accepted"], together["duplicates"]) == (2, 0)
        assert client.post("/v1/events", json={"events": same[:2]}).json()["duplicates"] == 2
        assert client.post("/v1/events", json={"events": same[2:]}).json()["accepted"] == 1
    with client_of(create_app(Settings(model=model, store=store, device="cpu"))) as client:
        again = client.post("/v1/events", json={"events": same}).json()
        assert (again["accepted"], again["duplicates"]) == (0, 3)
        later = {**first, "card_id": "card 1", "payment_id": "p9", "paid_at": "2026-01-01T00:00:00Z"}
        assert client.post("/v1/events", json={"events": [later]}).json()["accepted"] == 1
        listed = client.get("/v1/agents/card 1/events").json()["events"]
    assert sorted(e["event_id"] for e in listed) == ["p0", "p1", "p2", "p9"]
    finals = [e["final"] for e in sorted(listed, key=lambda e: e["event_id"])]
    assert finals[:3] == [True, True, True], "the final score of each reaches the event that it belongs to"


def test_a_finished_run_of_payments_shows_the_weeks_before_too(model: Path, payments: Any, tmp_path: Path) -> None:
    _, early, late = payments
    data = tmp_path / "payments.parquet"
    cards = early.filter(pa.compute.is_in(early["card_id"], pa.array(["card 1", "card 2", "card 3"])))
    write_table(pa.concat_tables([cards, late]), data)
    scores = Detector.load(model, device="cpu").score(late)
    assert scores.events is not None
    scores.run["data"] = str(data)
    scores.save(tmp_path / "run" / "scores")
    with client_of(create_app(Settings(run=tmp_path / "run", store="sqlite://"))) as client:
        agents = client.get("/v1/agents").json()["agents"]
    assert sum(a["n_scored"] for a in agents) == scores.events.num_rows
    assert sum(a["n_events"] for a in agents) == cards.num_rows + late.num_rows


def test_what_is_not_in_the_schema_is_refused(model: Path) -> None:
    with client_of(create_app(Settings(model=model, store="sqlite://", device="cpu"))) as client:
        payment = {"card_id": "c", "paid_at": "2024-05-01T10:00:00Z", "amount": 12.0, "category": "bakery"}
        assert client.post("/v1/events", json={"events": [payment]}).status_code == 200
        for change in ({"amount": "much"}, {"lat": 60.0}, {"paid_at": "yesterday"}):
            assert client.post("/v1/events", json={"events": [{**payment, **change}]}).status_code == 422


@pytest.fixture(scope="module")
def server(model: Path, payments: Any) -> Iterator[Server]:
    store = f"sqlite:///{model.parent / 'cards.db'}"
    server = Server(str(model), "--store", store, "--alerts-per-day", "100000")
    answer = httpx.post(server.url + "/v1/events", json={"events": bodies(payments[2])}, timeout=PATIENCE)
    assert answer.status_code == 200
    assert any(e["alert"] for e in answer.json()["events"])
    yield server
    server.stop()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_shows_payments_without_a_map(browser: Any, server: Server, width: int) -> None:
    visit = Visit(browser, server.url, viewport={"width": width, "height": 800})
    page = visit.go()
    assert "payments scored" in page.inner_text(".tiles")
    page.click(".alerts li a")
    page.wait_for_selector(".drawer .features")
    assert not page.locator(".map").is_visible()
    assert page.locator(".timeline .stay").count() > 0
    text = page.inner_text(".drawer")
    assert "EUR" in text
    assert "unknown place" not in text
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    visit.close()
