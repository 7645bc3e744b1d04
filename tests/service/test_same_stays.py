"""The same fixes give the same stays in bulk and live, by the settings that the model's data were extracted with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from service_example import PlainScorer, a_stay, client_of

from ustad.cli import main
from ustad.config import ExtractionConfig
from ustad.dataset import load_directory
from ustad.mobility.extraction import extract_tables
from ustad.service.app import create_app
from ustad.service.settings import Settings
from ustad.tables import TIMESTAMP

SETTINGS = ("--distance", "400", "--minutes", "40", "--gap", "45", "--max-speed", "150")
SITES = 0.02 * np.array([[0.0, 0.0], [1.0, 0.4], [0.1, 0.15], [0.5, -0.7]])  # the third is 1.7 km from the first


def make_fixes(first: str, days: int, seed: int) -> pa.Table:
    """Two agents who spend 35 to 300 minutes at one of four sites after another, a fix about every ten minutes."""
    rng, rows = np.random.default_rng(seed), []
    for agent in ("anna", "bob"):
        minute, site = 0.0, 0
        while minute < days * 1440:
            for _ in range(rng.integers(3, 30)):
                rows.append((agent, minute, *(SITES[site] + rng.normal(0, 1e-4, 2))))
                minute += rng.choice([10.0, 10.0, 10.0, 50.0], p=[0.4, 0.3, 0.25, 0.05])
            site = (site + rng.integers(1, 4)) % 4
    agents, minutes, lat, lon = zip(*rows, strict=True)
    times = np.datetime64(first, "us").astype(np.int64) + np.round(np.array(minutes) * 60e6).astype(np.int64)
    return pa.table(
        {
            "agent_id": agents,
            "time": pa.array(times, TIMESTAMP),
            "lat": 60.2 + np.array(lat),
            "lon": 24.9 + np.array(lon),
        }
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a model of stays that were extracted by other settings than usual."""
    place = tmp_path_factory.mktemp("trained")
    pq.write_table(make_fixes("2024-03-01T00:00", 14, seed=1), place / "fixes.parquet")
    call("extract", place / "fixes.parquet", "--out", place / "data", *SETTINGS)

    call("train", place / "data", "--preset", "quick", "--out", place / "model", "--train-until", "2024-03-09")
    return place


def exit_code(*arguments: Any) -> int:
    try:
        main([str(a) for a in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def call(*arguments: Any) -> None:
    assert exit_code(*arguments) == 0, arguments


def refused(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """What a call says that is refused."""
    assert exit_code(*arguments) == 1
    return " ".join(capsys.readouterr().err.split())


def shapes(stays: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    names = ("agent_id", "started_at", "finished_at", "lat", "lon")
    return {tuple(round(s[n], 6) if isinstance(s[n], float) else s[n] for n in names) for s in stays}


def as_text(stays: pa.Table) -> list[dict[str, Any]]:
    rows = stays.to_pylist()
    return [
        {**r, **{n: re.sub(r"\+00:00$", "Z", r[n].isoformat()) for n in ("started_at", "finished_at")}} for r in rows
    ]


def test_live_stays_are_those_of_bulk_by_the_settings_of_the_models_data(trained: Path, tmp_path: Path) -> None:
    fixes = make_fixes("2024-03-20T00:00", 4, seed=2)
    pq.write_table(fixes, tmp_path / "fixes.parquet")
    call("extract", tmp_path / "fixes.parquet", "--out", tmp_path / "data", *SETTINGS)
    bulk = shapes(as_text(load_directory(tmp_path / "data").events))
    settings = Settings(model=trained / "model", store=f"sqlite:///{tmp_path / 'x.db'}", device="cpu")
    live: list[dict[str, Any]] = []
    rows = [{**r, "time": r["time"].isoformat()} for r in fixes.sort_by("time").to_pylist()]
    with client_of(create_app(settings)) as client:
        for first in range(0, len(rows), 97):
            answer = client.post("/v1/fixes", json={"fixes": rows[first : first + 97]})
            assert answer.status_code == 200
        for agent in ("anna", "bob"):
            live += client.get(f"/v1/agents/{agent}/events?limit=1000").json()["events"]
    assert shapes(live) <= bulk
    assert len(bulk) - len(live) <= 4, "the last stays of two agents are not final"
    assert len(live) > 20
    usual = shapes(as_text(extract_tables(fixes, ExtractionConfig()).events))
    assert len(usual ^ bulk) > 10, "these settings matter"


def test_what_was_extracted_otherwise_is_refused_by_score_and_serve(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call("extract", trained / "fixes.parquet", "--out", tmp_path / "other", "--distance", "100", "--minutes", "5")
    said = refused(capsys, "score", trained / "model", tmp_path / "other", "--out", tmp_path / "scores")
    assert "extracted otherwise than those the model learnt from" in said
    assert "minutes 5.0, the model's 40.0" in said
    store = f"sqlite:///{tmp_path / 'x.db'}"
    fix = {"agent_id": "anna", "time": a_stay()["started_at"], "lat": 60.2, "lon": 24.9}
    with client_of(create_app(Settings(store=store), PlainScorer())) as client:
        assert client.post("/v1/fixes", json={"fixes": [fix]}).status_code == 200
    monkeypatch.setattr("ustad.service.server.run_server", lambda *given: pytest.fail("it serves"))
    said = refused(capsys, "serve", trained / "model", "--store", store, "--port", "0")
    assert "unfinished stays of other extraction settings" in said
