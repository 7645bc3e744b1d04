"""Conformal balls around expected vectors: they hold the share they state, and say where there is no vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from one_verb import run
from whole_scores import score_by_paper

from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.paper_network import PaperNetwork
from ustad.paper_fitting import calibrate
from ustad.schema import EventSchema, Feature

FIRST_DAY, DAYS, CARDS = 19723, 12, 120
#: Of two samples of some 480 payments, one to calibrate and one to judge: two standard deviations.
TOLERANCE = 0.06
SCHEMA = EventSchema(
    "cards",
    (Feature("merchant", "categorical", display="category"), Feature("basket", "vector", size=3)),
    entity="card",
    time="paid_at",
    entity_word="card",
    event_word="payment",
)


def _payments(seed: int) -> pa.Table:
    """Baskets whose size varies, far from round; one in nine is missing."""
    rng = np.random.default_rng(seed)
    n = CARDS * DAYS
    card, day = np.repeat(np.arange(CARDS), DAYS), np.tile(np.arange(DAYS), CARDS)
    seconds = (FIRST_DAY + day) * 86_400 + rng.integers(0, 86_400, n)
    baskets = rng.normal(size=(n, 3)) * [1.0, 4.0, 0.2] * rng.uniform(0.3, 2.0, (n, 1))
    return pa.table(
        {
            "card": card,
            "paid_at": pa.array(seconds * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
            "merchant": rng.choice(["baker", "grocer", "tailor"], n),
            "basket": pa.array([None if i % 9 == 0 else row.tolist() for i, row in enumerate(baskets)]),
        }
    )


@pytest.fixture(scope="module")
def halves() -> tuple[Any, pa.Table]:
    """A model calibrated on half of the cards, and the payments of the other half in the same days."""
    payments = _payments(seed=3)
    known = pa.array(payments["card"].to_numpy() % 2 == 0)
    config = Config().replace({"model.width": 16, "model.event_blocks": 1, "scoring.samples": 4,
                               "scoring.neighbours": 4, "scoring.percentiles": "calibrated"})  # fmt: skip
    encoder = Encoder.fit(payments.filter(known), SCHEMA)
    torch.manual_seed(0)
    network = DualTransformer(encoder.fields, config.model, config.window.max_events).eval()
    reference, rest = payments.filter(known), payments.filter(pc.invert(known))
    return calibrate(PaperNetwork.of_events(network, encoder, config, reference), reference, FIRST_DAY + 3), rest


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.95])
def test_balls_hold_the_share_they_state_on_new_cards(halves: tuple[Any, pa.Table], coverage: float) -> None:
    model, new = halves
    scored, _ = score_by_paper(model, new, first_day=FIRST_DAY + 3, coverage=coverage)
    inside = scored["inside_basket"]
    assert pc.mean(inside.cast(pa.float64())).as_py() == pytest.approx(coverage, abs=TOLERANCE)
    distance, radius = (scored[f"{c}_basket"].to_numpy(zero_copy_only=False) for c in ("error", "radius"))
    seen = pc.is_valid(scored["basket"]).to_numpy(zero_copy_only=False)
    np.testing.assert_array_equal(distance[seen] <= radius[seen], inside.filter(pa.array(seen)).to_numpy())


def test_an_event_without_a_vector_is_neither_inside_nor_outside(halves: tuple[Any, pa.Table]) -> None:
    model, new = halves
    scored, _ = score_by_paper(model, new, first_day=FIRST_DAY + 3, coverage=0.8)
    missing = pc.is_null(scored["basket"])
    assert pc.any(missing).as_py()
    assert pc.is_null(scored["inside_basket"]).equals(missing)
    assert pc.is_null(scored["error_basket"]).equals(missing)
    assert scored["radius_basket"].null_count == 0  # what was expected is known all the same


def test_the_distance_is_that_from_the_expected_vector_in_spreads_of_training(halves: tuple[Any, pa.Table]) -> None:
    model, new = halves
    scored, _ = score_by_paper(model, new, first_day=FIRST_DAY + 3, coverage=0.8)
    row = next(r for r in scored.to_pylist() if r["basket"] is not None)
    scale = model.source.encoder.scales["basket"]
    apart = scale.apply(np.array([row["basket"]])) - scale.apply(np.array([row["expected_basket"]]))
    assert row["error_basket"] == pytest.approx(float(np.sqrt(np.mean(apart**2))), rel=1e-3)


def test_trips_are_inputs_and_have_no_balls(town_directory: Path, tmp_path: Path) -> None:
    tiny = {"model.width": 16, "model.event_blocks": 1, "training.epochs": 1, "scoring.samples": 4,
            "scoring.neighbours": 5, "model.trips": "summary"}  # fmt: skip
    settings = [word for name, value in tiny.items() for word in ("--set", f"{name}={value}")]
    assert run("train", town_directory, "--preset", "paper", "--out", tmp_path / "model", *settings) == 0
    assert run("score", tmp_path / "model", town_directory, "--out", tmp_path / "scores", "--coverage", "0.8") == 0
    details = pq.read_table(tmp_path / "scores" / "details.parquet")
    assert {"low_duration", "high_duration"} <= set(details.column_names)
    assert not {"inside_trip_summary", "radius_trip_summary"} & set(details.column_names)
