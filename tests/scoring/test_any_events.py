"""Scoring events that are not stays: cards, windows counted in events, time since the last one, a vector."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
import torch
from whole_scores import score_by_paper

from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.live.network_live import LiveScorer
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.paper_network import PaperNetwork
from ustad.paper_fitting import calibrate
from ustad.schema import EventSchema, Feature
from ustad.scoring.paper_judge import PaperJudge

FIRST_DAY = 19723
SCHEMA = EventSchema(
    "cards",
    (
        Feature("amount", "numeric", transform="log", unit="€"),
        Feature("waited", "numeric", ("@elapsed",), transform="log", unit="min", display="duration"),
        Feature("merchant", "categorical", display="category"),
        Feature("hour", "cyclic", ("@minute_of_day",), period=1440.0, display="clock"),
        Feature("basket", "vector", size=3),
    ),
    entity="card",
    time="paid_at",
    habitat="merchant",
    entity_word="card",
    event_word="payment",
)


def _payments() -> pa.Table:
    rng = np.random.default_rng(4)
    n, cards = 160, 5
    times = np.sort(rng.integers(0, 12 * 86_400, (cards, n // cards)), axis=1).ravel() + FIRST_DAY * 86_400
    return pa.table(
        {
            "card": [f"card {i}" for i in np.repeat(np.arange(cards), n // cards)],
            "paid_at": pa.array(times * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
            "amount": np.exp(rng.normal(3, 1, n)),
            "merchant": rng.choice(["baker", "grocer", "tailor"], n),
            "basket": pa.array([None if i % 9 == 0 else rng.normal(size=3).tolist() for i in range(n)]),
        }
    )


@pytest.fixture(scope="module", params=["events", "sessions"])
def cards(request: pytest.FixtureRequest) -> tuple[PaperJudge, pa.Table, pa.Table]:
    payments = _payments()
    changes = {"model.width": 16, "model.event_blocks": 2, "scoring.samples": 4, "scoring.neighbours": 4}
    window = {"window.unit": request.param, "window.length": 5, "window.session_minutes": 600.0, "window.mode": "past"}
    config = Config().replace(changes | window | {"scoring.percentiles": "calibrated"})
    day = payments["paid_at"].cast(pa.int64()).to_numpy() // 86_400_000_000 - FIRST_DAY
    early, late = payments.filter(pa.array(day < 8)), payments.filter(pa.array(day >= 8))
    encoder = Encoder.fit(early, SCHEMA)
    torch.manual_seed(0)
    network = DualTransformer(encoder.fields, config.model, config.window.max_events).eval()
    return (
        calibrate(PaperNetwork.of_events(network, encoder, config, early), early, FIRST_DAY + 5),
        early,
        late,
    )


def test_any_events_are_scored_with_reasons_in_their_own_words(
    cards: tuple[PaperJudge, pa.Table, pa.Table],
) -> None:
    model, early, late = cards
    events, agents = score_by_paper(model, late, early, reasons="all", coverage=0.9)
    assert events.num_rows == late.num_rows
    assert np.isfinite(events["score"].to_numpy()).all()
    assert {"expected_merchant", "spread_amount", "expected_basket", "set_merchant"} <= set(events.column_names)
    assert "expected_lat" not in events.column_names
    assert agents.column_names[:1] == ["card"]
    assert "worst_paid_at" in agents.column_names
    text = " ".join(events["reason"].to_pylist())
    assert "stay" not in text
    assert re.search(r"Here (once|twice|\d+ times) in \d+ days", text)
    assert events["loss_basket"].null_count == late["basket"].null_count


def test_live_agrees_with_batch_where_events_look_back(
    cards: tuple[PaperJudge, pa.Table, pa.Table],
) -> None:
    model, early, late = cards
    wanted, _ = score_by_paper(model, late, early)
    scorer = LiveScorer(model, neighbours="exact")
    scorer.warm(early)
    rows = wanted.sort_by("paid_at").to_pylist()
    for row in rows:
        live = scorer.update({name: row[name] for name in late.column_names})
        for name in ("loss_waited", "loss_amount", "eu_hour", "knn", "observed_waited"):
            assert live[name] == pytest.approx(row[name], rel=1e-3, abs=1e-4), name
        assert live["history_days"] == row["history_days"] <= 5
