"""The drift alarm of live scores: on the page and in the figures, through restarts, anew with another model."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from service_example import PlainScorer

from ustad.scoring.drift_alarm import DriftAlarm, count_p_values

FIRST_DAY = int(np.datetime64("2024-03-01", "D").astype(int))


def stays_of(p_values: np.ndarray, stay: Any, first: int = 0) -> list[dict[str, Any]]:
    """One stay of a day's morning for each p-value (by its length), of an agent of its own: four a day."""
    lengths = -np.log10(p_values)
    return [
        stay(agent=f"a{first + i}", hour=24 * ((first + i) // 4) + 6, hours=float(hours))
        for i, hours in enumerate(lengths)
    ]


def figure(client: Any, name: str) -> float:
    return float(re.search(rf"^{name} (\S+)$", client.get("/metrics").text, re.M)[1])


def test_live_scores_say_what_bulk_says_and_a_restart_changes_nothing(open_client, stay):
    p_values = np.random.default_rng(1).random(60) * 0.9 + 0.05
    client = open_client(PlainScorer())
    assert client.get("/v1/run").json()["drift"]["events"] == 0
    for start in range(0, 60, 7):
        if start == 35:
            client = open_client(PlainScorer())
        events = stays_of(p_values[start : start + 7], stay, start)
        assert client.post("/v1/events", json={"events": events}).status_code == 200
    expected = DriftAlarm().add(count_p_values(FIRST_DAY + np.arange(60) // 4, p_values))
    answer = client.get("/v1/run").json()["drift"]
    assert answer["log_evidence"] == pytest.approx(expected.log_evidence, abs=1e-3)
    assert (answer["days"], answer["events"], answer["raised_on"]) == (15, 60, None)
    assert answer["share_05"] == pytest.approx((p_values <= 0.05).mean())
    assert figure(client, "ustad_drift_log10_evidence") == pytest.approx(expected.log_evidence, abs=1e-9)
    assert figure(client, "ustad_drift_alarm") == 0
    assert client.get("/v1/about").json()["notes"] == []


def test_an_alarm_is_told_until_another_model_is_loaded(open_client, stay):
    client = open_client(PlainScorer())
    client.post("/v1/events", json={"events": stays_of(np.full(24, 0.02), stay)})
    assert figure(client, "ustad_drift_alarm") == 1
    assert client.get("/v1/run").json()["drift"]["raised_on"] == "2024-03-03"
    assert client.get("/v1/about").json()["notes"][0].startswith("Drift alarm since 2024-03-03")
    other = PlainScorer()
    other.fingerprint = "another"
    client = open_client(other)
    assert figure(client, "ustad_drift_alarm") == 0
    assert client.get("/v1/about").json()["notes"] == []


def test_what_was_not_stored_does_not_count(open_client, stay):
    scorer = PlainScorer()
    client = open_client(scorer)
    client.post("/v1/events", json={"events": stays_of(np.full(4, 0.3), stay)})

    def refuse(events: Any) -> None:
        raise RuntimeError("a model that fails")

    scorer.fail = refuse
    assert client.post("/v1/events", json={"events": stays_of(np.full(4, 0.02), stay, 4)}).status_code == 503
    assert client.get("/v1/run").json()["drift"]["events"] == 4
    assert math.isclose(client.get("/v1/run").json()["drift"]["share_05"], 0.0)
