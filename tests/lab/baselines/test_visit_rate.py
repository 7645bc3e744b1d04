"""Visit rate against counts made by hand, and what must hold of every baseline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import sqrt

import numpy as np
import pyarrow as pa
import pytest

from ustad.config import ConfigError
from ustad.lab.baselines import REGISTRY, Abilities, DetectorProtocol, describe, find, make
from ustad.tables import TIMESTAMP, DataError

MONDAY = datetime(2024, 1, 1, tzinfo=UTC)


def stays(rows: list[tuple[str, int, int, str | None]], category: dict[str, str] | None = None) -> pa.Table:
    """Rows of (agent, day, hour, place)."""
    start = [MONDAY + timedelta(days=day, hours=hour) for _, day, hour, _ in rows]
    return pa.table(
        {
            "stay_id": np.arange(len(rows)),
            "agent_id": [row[0] for row in rows],
            "started_at": pa.array(start, TIMESTAMP),
            "finished_at": pa.array([t + timedelta(hours=1) for t in start], TIMESTAMP),
            "lat": [60.0 + (len(row[3]) if row[3] else 0) / 100 for row in rows],
            "lon": [25.0] * len(rows),
            "poi_id": pa.array([row[3] for row in rows], pa.string()),
            "poi_category": pa.array([(category or {}).get(row[3] or "", "Other") for row in rows]),
            "timezone": ["UTC"] * len(rows),
        }
    )


# Ann: home 4 and work 4 times in four days of training; home 2, work 1, a new place 3 times in four days of test.
TRAIN = stays([("ann", d, h, p) for d in range(4) for h, p in ((0, "home"), (9, "work"))] + [("bob", 0, 1, "home")])
TEST = stays(
    [
        ("ann", 4, 0, "home"),
        ("ann", 4, 9, "work"),
        ("ann", 5, 9, "new"),
        ("ann", 6, 9, "new"),
        ("ann", 7, 0, "home"),
        ("ann", 7, 9, "new"),
        ("bob", 4, 1, "home"),
    ]
)
HOME, WORK, NEW = abs(4 - 2) / sqrt(4), abs(4 - 1) / sqrt(4), abs(0.5 - 3) / sqrt(0.5)


def test_visit_rate_is_the_published_formula():
    scores = make("visit-rate", spread=False).fit(TRAIN).score(TEST)
    expected = [HOME, WORK, NEW, NEW, HOME, NEW, 0.0]
    assert scores.events["score"].to_numpy() == pytest.approx(expected)
    assert scores.agents.to_pylist() == [
        {"agent_id": "ann", "score": pytest.approx(NEW), "n_events": 6, "worst_stay_id": 2},
        {"agent_id": "bob", "score": 0.0, "n_events": 1, "worst_stay_id": 6},
    ]


def test_neighbours_take_the_maximum_and_never_another_agents():
    score = make("visit-rate").fit(TRAIN).score(TEST).events["score"].to_numpy()
    assert score == pytest.approx([WORK, NEW, NEW, NEW, NEW, NEW, 0.0])


def test_unequal_spans_are_scaled_to_the_scored_one():
    half = TEST.filter(pa.array([True] * 3 + [False] * 4))  # two of four days
    score = make("visit-rate", spread=False).fit(TRAIN).score(half).events["score"].to_numpy()
    assert score == pytest.approx([abs(2 - 1) / sqrt(2), abs(2 - 1) / sqrt(2), abs(0.5 - 1) / sqrt(0.5)])


def test_validation_counts_with_training():
    first, second = TRAIN.slice(0, 4), TRAIN.slice(4)
    apart = make("visit-rate").fit(first, second).score(TEST).events
    assert apart.equals(make("visit-rate").fit(TRAIN).score(TEST).events)


def test_the_causal_variant_counts_up_to_the_event():
    score = make("visit-rate-causal", spread=False).fit(TRAIN).score(TEST).events["score"].to_numpy()
    expected = [
        abs(1 - 1) / sqrt(1),  # home: four in four days, one day has passed
        0.0,
        abs(0.5 - 1) / sqrt(0.5),
        abs(0.5 - 2) / sqrt(0.5),
        abs(4 - 2) / sqrt(4),
        abs(0.5 - 3) / sqrt(0.5),
        abs(0.5 - 1) / sqrt(0.5),  # bob: one visit in four days expects a quarter, the floor is a half
    ]
    assert score == pytest.approx(expected)


def test_the_causal_score_of_an_event_does_not_change_with_what_comes_later():
    model = make("visit-rate-causal", span_days=4).fit(TRAIN)
    whole = model.score(TEST).events["score"].to_numpy()
    for n in range(1, 6):
        assert model.score(TEST.slice(0, n)).events["score"].to_numpy() == pytest.approx(whole[:n])


def test_categories_and_hours_of_the_week_are_counted_on_request():
    kinds = {"home": "Home", "work": "Work", "new": "Work"}
    train = stays([("ann", d, h, p) for d in range(4) for h, p in ((0, "home"), (9, "work"))], kinds)
    test = stays([("ann", 7, 9, "new"), ("ann", 8, 9, "work")], kinds)
    by_category = make("visit-rate-category", spread=False, span_days=4).fit(train).score(test)
    assert by_category.events["score"].to_numpy() == pytest.approx([1.0, 1.0])  # |4 − 2| / √4
    by_hour = make("visit-rate-category-hour", spread=False, span_days=4).fit(train).score(test)
    assert by_hour.events["score"].to_numpy() == pytest.approx([0.0, 0.0])  # Monday and Tuesday at nine: one each


def test_stays_without_a_named_place_are_counted_by_cell():
    nameless = TRAIN.set_column(TRAIN.column_names.index("poi_id"), "poi_id", pa.nulls(TRAIN.num_rows, pa.string()))
    later = TEST.set_column(TEST.column_names.index("poi_id"), "poi_id", pa.nulls(TEST.num_rows, pa.string()))
    score = make("visit-rate", spread=False).fit(nameless).score(later).events["score"].to_numpy()
    assert score[2] == pytest.approx(NEW)  # "new" lies 1 km from "home" and "work"


@pytest.mark.parametrize("name", [n for n in REGISTRY if n == "random" or n.startswith("visit-rate")])
def test_every_detector_by_counts_keeps_the_protocol_and_ignores_row_order(name):
    detector = make(name, seed=3).fit(TRAIN)
    assert isinstance(detector, DetectorProtocol)
    assert isinstance(find(name).abilities, Abilities)
    assert describe(name)["about"].endswith(".")
    order = np.random.default_rng(1).permutation(TEST.num_rows)
    straight, shuffled = detector.score(TEST), detector.score(TEST.take(pa.array(order)))
    assert straight.events.take(pa.array(order)).equals(shuffled.events)
    assert straight.agents.equals(shuffled.agents)
    assert np.isfinite(straight.events["score"].to_numpy()).all()


def test_random_scores_follow_the_seed_and_nothing_else():
    first = make("random", seed=1).score(TEST)
    assert first.events.equals(make("random", seed=1).score(TEST).events)
    assert not first.events.equals(make("random", seed=2).score(TEST).events)
    alone = make("random", seed=1).score(TEST.slice(2, 1)).events["score"]
    assert alone[0].as_py() == first.events["score"][2].as_py()


def test_random_scores_are_uniform():
    many = stays([("ann", i % 50, i // 50 % 24, "home") for i in range(1200)])
    score = make("random").score(many).events["score"].to_numpy()
    assert abs(score.mean() - 0.5) < 0.03
    assert 0 <= score.min() < 0.01 < 0.99 < score.max() < 1


def test_mistakes_are_said_in_one_line():
    with pytest.raises(ConfigError, match="did you mean 'visit-rate'"):
        make("visit-rat")
    with pytest.raises(ConfigError, match="by must be one of"):
        make("visit-rate", by="poi")
    with pytest.raises(DataError, match="fit it on training events"):
        make("visit-rate").score(TEST)
    with pytest.raises(DataError, match="missing column started_at"):
        make("visit-rate").fit(TEST.drop_columns(["started_at"]))
