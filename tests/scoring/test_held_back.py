"""What a trained model promises on data it has not seen: p-values, intervals and sets, on new normal people."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ustad.config import Config
from ustad.detector import Detector
from ustad.scores import Scores
from ustad.scoring.alerts import drift
from ustad.simulate import simulate_tables

AGENTS, COVERAGE = 120, 0.8
#: Events of one person are alike: the share that is covered varies by about this much between groups of people.
TOLERANCE = 0.06


@pytest.fixture(scope="module")
def promised() -> Scores:
    """Trained and calibrated on half of a town without anomalies; the other half, unknown to it, is scored."""
    town = simulate_tables("town", agents=AGENTS, seed=11, days=21, anomalous_share=0.0)
    town = dataclasses.replace(town, meta={k: v for k, v in town.meta.items() if k != "split"})
    names = pc.unique(town.events["agent_id"]).to_pylist()
    known, new = (town.only(names[i::2]) for i in (0, 1))
    changes = {
        "model.width": 16,
        "model.event_blocks": 1,
        "training.epochs": 6,
        "scoring.samples": 8,
        "scoring.neighbours": 20,
        "model.network": "dual",
        "model.trips": "none",
        "split.train_weeks": 4,  # three weeks are divided in these proportions
        "split.validation_weeks": 4,  # as long as what is scored: a weekend in each
    }
    detector = Detector(Config.preset("quick", **changes), device="cpu").fit(known)
    return detector.score(new, coverage=COVERAGE)


def _column(scores: Scores, name: str) -> np.ndarray:
    return scores.with_details()[name].cast(pa.float64()).to_numpy(zero_copy_only=False)


def test_p_values_are_uniform_on_held_back_normal_people(promised: Scores) -> None:
    p = _column(promised, "p_value")
    assert len(p) > 1000
    assert drift(p) < 0.08  # Kolmogorov and Smirnov; people of one group are alike, so not 1 / √n
    for level in (0.01, 0.05, 0.2, 0.5):
        assert (p <= level).mean() == pytest.approx(level, abs=0.02 + 0.1 * level)


@pytest.mark.parametrize("term", ["duration", "x", "y"])
def test_intervals_of_numbers_cover_the_share_they_state(promised: Scores, term: str) -> None:
    low, high, seen = (_column(promised, f"{side}_{term}") for side in ("low", "high", "observed"))
    assert ((low <= seen) & (seen <= high)).mean() == pytest.approx(COVERAGE, abs=TOLERANCE)


def test_the_interval_of_the_start_wraps_at_midnight(promised: Scores) -> None:
    low, high, seen = (_column(promised, f"{side}_start") for side in ("low", "high", "observed"))
    inside = (seen - low) % 1440 <= (high - low) % 1440
    assert inside.mean() == pytest.approx(COVERAGE, abs=TOLERANCE)


@pytest.mark.parametrize("term", ["poi", "weekday"])
def test_sets_of_categories_cover_the_share_they_state(promised: Scores, term: str) -> None:
    assert promised.details is not None
    rows = promised.details.select([f"set_{term}", f"observed_{term}"]).to_pylist()
    inside = [r[f"observed_{term}"] in r[f"set_{term}"] for r in rows if r[f"observed_{term}"] != "unknown"]
    assert np.mean(inside) == pytest.approx(COVERAGE, abs=TOLERANCE)
