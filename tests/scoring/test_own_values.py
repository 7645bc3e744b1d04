"""How unusual a value is for its entity: against slow and obvious versions, live, stored, forgotten, in parts."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import logistic
from whole_scores import score_by_habits

from ustad.config import Config, ConfigError
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.judges import load_judge
from ustad.live.habit_live import HabitLive
from ustad.own_values.own_events import MOST_EVENTS, OwnEvents
from ustad.own_values.value_features import value_features
from ustad.own_values.value_kernels import POPULATION, POPULATION_WIDTH
from ustad.own_values.value_models import NumberModel, OwnValues, WordModel
from ustad.own_values.value_source import ValueSource
from ustad.schema import EventSchema, Feature
from ustad.tables import TIMESTAMP, identity_hash

DAY = 86_400_000_000
FIRST = 19_723
SCHEMA = EventSchema(
    "cards",
    (
        Feature("amount", "numeric", transform="log", unit="EUR"),
        Feature("category", "categorical", display="category", label="kind of shop"),
        Feature("device", "categorical"),
        Feature("waited", "numeric", ("@elapsed",), transform="log", display="duration", label="time since the last"),
        Feature("heading", "cyclic", period=360.0),
        Feature("basket", "vector", size=2),
        Feature("hour", "cyclic", ("@minute_of_day",), period=1440.0, display="clock"),
    ),
    entity="card",
    time="paid_at",
    event_id="payment",
    habitat="merchant",
    entity_word="card",
    event_word="payment",
)
QUESTIONS = {"amount", "category", "device", "waited", "heading", "basket", "merchant"}


def make_payments(seed: int = 0, cards: int = 12, days: int = 35) -> pa.Table:
    """Three payments a day of each card at its own level; now and then something is missing."""
    rng = np.random.default_rng(seed)
    n = cards * days * 3
    card, day = np.repeat(np.arange(cards), days * 3), np.tile(np.repeat(np.arange(days), 3), cards)
    kind = rng.integers(0, 3, n)
    amount = np.exp(rng.normal(3 + kind + 0.3 * (card % 4), 0.3)).round(2)
    device = np.where(rng.random(n) < 0.9, np.array(["phone", "card"])[card % 2], "watch")
    return pa.table(
        {
            "card": [f"card {i}" for i in card],
            "paid_at": pa.array((FIRST + day) * DAY + rng.integers(0, 86_400, n) * 1_000_000).cast(TIMESTAMP),
            "payment": pa.array(np.arange(n)),
            "amount": pa.array([None if i % 17 == 0 else float(v) for i, v in enumerate(amount)]),
            "category": np.array(["baker", "grocer", "tailor"])[kind],
            "merchant": [f"shop {k} {i}" for k, i in zip(kind, rng.integers(0, 4, n), strict=True)],
            "device": pa.array([None if i % 23 == 0 else str(v) for i, v in enumerate(device)]),
            "heading": (rng.normal(350, 12, n) + 5 * card) % 360,
            "basket": pa.array([None if i % 9 == 0 else rng.normal(c, 1, 2).tolist() for i, c in enumerate(card)]),
        }
    ).sort_by([("card", "ascending"), ("paid_at", "ascending")])


def between(table: pa.Table, first: int, stop: int) -> pa.Table:
    day = table["paid_at"].cast(pa.int64()).to_numpy() // DAY - FIRST
    return table.filter(pa.array((day >= first) & (day < stop)))


def change(table: pa.Table, row: int, **values: Any) -> pa.Table:
    """The table with other values in one row."""
    for name, value in values.items():
        column = table[name].to_pylist()
        column[row] = value
        table = table.set_column(table.column_names.index(name), name, pa.array(column, table[name].type))
    return table


@pytest.fixture(scope="module")
def payments() -> pa.Table:
    return make_payments()


@pytest.fixture(scope="module")
def detector(payments: pa.Table) -> Detector:
    data = Dataset(between(payments, 0, 28), SCHEMA, meta={"training": True})
    return Detector(Config.preset("quick")).fit(data)


@pytest.fixture(scope="module")
def week(payments: pa.Table) -> pa.Table:
    late = between(payments, 28, 35)
    late = change(late, 30, amount=4_200.0)
    return change(late, 60, device="a stolen laptop")


def scores_of(judge: Any, week: pa.Table, before: pa.Table | None) -> list[dict[str, Any]]:
    days = (FIRST + 28, FIRST + 34)
    return score_by_habits(judge, week, before, period=days, reasons="all")[0].to_pylist()


# ------------------------------------------------------------------------------------------------ oracles
def density(apart: float, width: float) -> float:
    return float(logistic.pdf(apart, scale=width))


@given(
    st.lists(st.floats(-50, 50, allow_nan=False), min_size=3, max_size=40),
    st.lists(st.one_of(st.floats(-60, 60, allow_nan=False), st.just(math.nan)), min_size=1, max_size=8),
)
@settings(max_examples=60)
def test_a_number_is_as_rare_as_its_density_among_own_values_and_the_populations(own, asked):
    own_values = np.array(own)
    kind = np.zeros(len(own), np.int64)
    model = NumberModel.fit(Feature("x", "numeric"), own_values, kind, 0)
    remembered = model.remember(own_values, kind)
    events = OwnEvents.of(np.full(len(own), 7, np.uint64), {"x": remembered})
    summary = model.summarise(events, "x")
    comparison = model.compare(
        OwnValues(events.offsets, remembered, summary),
        np.zeros(len(asked), np.int64),
        np.array(asked),
        np.zeros(len(asked), np.int64),
    )
    width = float(summary[0][0])
    for value, raw in zip(model.remember(np.array(asked), np.zeros(len(asked), np.int64)), comparison.raw, strict=True):
        if math.isnan(value):
            assert math.isnan(raw)
            continue
        others = np.mean([density(value - point, POPULATION_WIDTH) for point in model.points])
        total = sum(density(value - one, width) for one in remembered) + POPULATION * others
        assert raw == pytest.approx(-math.log(total / (len(own) + POPULATION)), rel=1e-9, abs=1e-9)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1)), min_size=1, max_size=30), st.sampled_from("abcd"))
@settings(max_examples=60)
def test_a_word_is_as_rare_as_its_share_of_own_values_mixed_with_those_of_its_kind(own, asked):
    words, kinds = pa.array([word for word, _ in own]), np.array([kind for _, kind in own])
    model = WordModel.fit(Feature("x", "categorical"), words, kinds, 1)
    remembered = model.remember(words, kinds)
    events = OwnEvents.of(np.full(len(own), 7, np.uint64), {"x": remembered})
    values = OwnValues(events.offsets, remembered, model.summarise(events, "x"))
    comparison = model.compare(values, np.array([0, -1]), pa.array([asked, asked]), np.array([1, 1]))
    counts = Counter(word for word, _ in own)
    overall = (counts[asked] + 0.5) / (len(own) + 0.5 * (len(counts) + 1))
    of_kind = [word for word, kind in own if kind == 1]
    share = (of_kind.count(asked) + 5 * overall) / (len(of_kind) + 5)
    assert comparison.raw[0] == pytest.approx(-math.log((counts[asked] + POPULATION * share) / (len(own) + POPULATION)))
    assert comparison.raw[1] == pytest.approx(-math.log(share)), "nobody knows the second one"
    assert comparison.same[0] == counts[asked]


def test_on_a_circle_the_end_is_next_to_the_beginning():
    feature = Feature("heading", "cyclic", period=360.0)
    own = np.array([355.0, 358.0, 1.0, 4.0, 359.0, 2.0] * 5)
    kind = np.zeros(len(own), np.int64)
    model = NumberModel.fit(feature, own, kind, 0)
    remembered = model.remember(own, kind)
    events = OwnEvents.of(np.full(len(own), 7, np.uint64), {"x": remembered})
    values = OwnValues(events.offsets, remembered, model.summarise(events, "x"))
    asked = np.array([0.0, 360.0, 4.0, 356.0, 180.0])
    comparison = model.compare(values, np.zeros(5, np.int64), asked, np.zeros(5, np.int64))
    assert comparison.raw[0] == pytest.approx(comparison.raw[1])
    assert comparison.raw[4] > comparison.raw[:4].max() + 3
    apart = np.abs(comparison.expected - 0.0)
    assert np.minimum(apart, 360 - apart).max() < 3
    assert comparison.spread.max() < 10


def test_what_is_usual_is_told_in_the_schemas_unit_and_by_kind(detector, payments):
    source: ValueSource = detector.judge.source("values")
    train = between(payments, 0, 28)
    mine = train.filter(pa.array([c == "card 3" for c in train["card"].to_pylist()]))
    answers = source.answer_events(mine, None)
    for kind in ("baker", "grocer", "tailor"):
        rows = np.array([k == kind for k in mine["category"].to_pylist()])
        amounts = np.array([np.nan if a is None else a for a in mine["amount"].to_pylist()])[rows]
        facts = answers.facts["amount"]
        assert facts.expected[rows][0] == pytest.approx(np.nanmedian(amounts), rel=0.35)
        inside = (amounts >= facts.low[rows]) & (amounts <= facts.high[rows])
        assert 0.6 <= inside[np.isfinite(amounts)].mean() <= 0.98


def test_the_latest_events_are_remembered_and_no_more():
    n = MOST_EVENTS + 50
    table = pa.table({"card": ["a"] * n + ["b"], "paid_at": pa.array([*range(n), 5]).cast(TIMESTAMP)})
    own = OwnEvents.fit(table, SCHEMA, {"x": np.arange(n + 1.0)})
    rows = own.values["x"][own.row_owner == own.owners(identity_hash(["a"]))[0]]
    assert rows.tolist() == list(range(50, n))
    assert own.owners(identity_hash(["a", "b", "c"])).tolist().count(-1) == 1


# ------------------------------------------------------------------------------------------------- scoring
def test_every_feature_that_habits_do_not_look_at_has_a_question(detector, week, payments):
    row = scores_of(detector.judge, week, between(payments, 0, 28))[30]
    assert {one["name"] for one in row["evidence"]} >= QUESTIONS - {"basket"}
    assert {one.question for one in value_features(SCHEMA)} == QUESTIONS


def test_a_feature_called_as_a_question_of_habits_gets_another_name():
    schema = EventSchema("rides", (Feature("distance", "numeric"), Feature("fare", "numeric")))
    assert [one.question for one in value_features(schema)] == ["own_distance", "fare"]


def test_an_amount_and_a_device_that_are_new_to_the_card_lead_and_are_told(detector, week, payments):
    rows = scores_of(detector.judge, week, between(payments, 0, 28))
    amount, device = rows[30], rows[60]
    ranks = np.argsort([-row["score"] for row in rows])[:6].tolist()
    assert ranks[0] == 30
    assert 60 in ranks
    first = amount["evidence"][0]
    assert first["name"] == "amount"
    assert first["observed"] == 4200
    assert first["expected"] < 400
    assert amount["kind"] == "predictable"
    assert amount["reason"].startswith("Amount: 4,200 EUR, where ")
    assert " payments)." in amount["reason"]
    assert device["evidence"][0]["name"] == "device"
    assert device["kind"] == "novel"
    assert device["reason"].startswith("Device: a stolen laptop, never before (")


def test_a_missing_value_is_never_surprising(detector, week, payments):
    rows = scores_of(detector.judge, week, between(payments, 0, 28))
    missing = [row for row in rows if row["amount"] is None]
    assert missing
    for row in missing:
        assert {one["name"]: one["surprise"] for one in row["evidence"]}.get("amount", 0.0) == 0.0


@given(st.randoms(use_true_random=False), st.integers(1, 7))
@settings(max_examples=6, deadline=None)
def test_live_is_bulk_in_any_interleaving_and_after_bytes(detector, week, payments, random, size):
    """Cards come in any order among each other, in micro-batches, and a card's state may go through bytes."""
    before = between(payments, 0, 28)
    some = week.slice(0, 84)  # four cards
    batch = {row["payment"]: row for row in scores_of(detector.judge, some, before)}
    live = HabitLive(detector.judge, since=FIRST + 28, reasons="all")
    live.warm(before)
    queues: dict[str, list[dict[str, Any]]] = {}
    for row in some.to_pylist():
        queues.setdefault(row["card"], []).append(row)
    order = []
    while queues:
        card = random.choice(sorted(queues))
        order.append(queues[card].pop(0))
        queues = {name: rows for name, rows in queues.items() if rows}
    for start in range(0, len(order), size):
        for scores in live.update_many(order[start : start + size]):
            wanted = batch[scores["payment"]]
            assert scores["score"] == pytest.approx(wanted["score"], abs=1e-6)
            assert (scores["kind"], scores["reason"]) == (wanted["kind"], wanted["reason"])
            for name in ("expected_amount", "spread_waited", "observed_device", "expected_device"):
                assert scores[name] == pytest.approx(wanted[name]), name
            mine, theirs = ({one["name"]: one for one in row["evidence"]} for row in (scores, wanted))
            assert mine.keys() == theirs.keys()
            assert mine["heading"]["expected"] == pytest.approx(theirs["heading"]["expected"], rel=1e-5)
        if random.random() < 0.2:
            card = order[start]["card"]
            live.from_bytes(card, live.to_bytes(card))


def test_saved_and_loaded_it_scores_the_same_and_nothing_of_it_is_pickled(detector, week, tmp_path):
    place = tmp_path / "model"
    detector.save(place)
    again = Detector.load(place, device="cpu")
    one, other = detector.judge.judge(week), again.judge.judge(week)
    np.testing.assert_array_equal(one.score, other.score)
    assert one.kind.tolist() == other.kind.tolist()
    assert {p.name for p in place.iterdir()} >= {"own_values.parquet", "own_values.safetensors", "own_values.json"}
    assert json.loads((place / "own_values.json").read_text())["kinds"] == ["baker", "grocer", "tailor"]


def test_whoever_is_forgotten_is_compared_with_everybody(detector, week, tmp_path):
    left = detector.judge.forget(["card 3"])
    source = left.source("values")
    assert identity_hash(["card 3"])[0] not in source.events.entity_key
    assert len(source.events.entity_key) == 11
    one, other = detector.judge.judge(week), left.judge(week)
    mine = np.array([card == "card 3" for card in week["card"].to_pylist()])
    raw, before = (judgement.answers[1].raw["amount"] for judgement in (other, one))
    np.testing.assert_array_equal(raw[~mine], before[~mine])
    assert not np.allclose(raw[mine], before[mine], equal_nan=True)
    assert other.answers[1].facts["amount"].own_count[mine].max() == 0
    left.save(tmp_path)
    again = load_judge(tmp_path, SimpleNamespace(schema=SCHEMA), Config.preset("quick"), None, whole=True, files=())
    np.testing.assert_array_equal(again.judge(week).score, other.score)


def test_parts_give_the_scores_of_the_whole(detector, payments):
    whole = detector.score(between(payments, 28, 35), between(payments, 0, 28), reasons="all")
    parts = detector.score_parts(between(payments, 28, 35), between(payments, 0, 28), reasons="all", entities=5)
    rows = pa.concat_tables([part.events for part in parts]).sort_by("payment").to_pylist()
    for mine, wanted in zip(rows, whole.events.sort_by("payment").to_pylist(), strict=True):
        assert mine["score"] == pytest.approx(wanted["score"], abs=1e-9)
        assert mine["reason"] == wanted["reason"]


def test_the_week_that_calibrates_is_compared_with_the_weeks_before_it_alone(payments):
    """Remembered are both. Events that are compared with themselves would make all others unusual."""
    data = Dataset(between(payments, 0, 28), SCHEMA, meta={"training": True})
    judge = Detector(Config.preset("quick")).fit(data).judge
    held_back = judge.judge(between(payments, 28, 35))
    share = float((held_back.surprise["amount"] > 1).mean())
    assert share < 0.25
    assert len(judge.source("values").events.row_owner) == between(payments, 0, 28).num_rows


# ------------------------------------------------------------------------------------------------- presets
@pytest.mark.parametrize(
    ("preset", "sources"), [("quick", ["habits", "values"]), ("best", ["habits", "values", "network"])]
)
def test_a_preset_asks_the_sources_that_it_names(payments, preset, sources):
    changes = {} if preset == "quick" else {"model.width": 8, "model.heads": 2, "training.epochs": 1}
    data = Dataset(between(payments, 0, 28), SCHEMA, meta={"training": True})
    config = Config.preset(preset, **changes)
    detector = Detector(config, device="cpu").fit(data)
    assert detector.config.model.network == config.model.network
    assert [source.name for source in detector.judge.sources] == sources
    assert np.isfinite(detector.judge.judge(between(payments, 28, 30)).score).all()


def test_settings_of_a_network_are_refused_where_none_is_trained():
    with pytest.raises(ConfigError, match=r"window\.unit is not used with model\.network=none"):
        Config.preset("quick", **{"window.unit": "events"})


def test_events_with_nothing_but_a_start_are_judged_by_habits(payments):
    hour = Feature("hour", "cyclic", ("@minute_of_day",), period=1440.0)
    schema = replace(SCHEMA, features=(hour,), habitat=None)
    assert value_features(schema) == ()
    data = Dataset(payments.select(["card", "paid_at", "payment"]), schema)
    detector = Detector(Config.preset("quick")).fit(data)
    assert [source.name for source in detector.judge.sources] == ["habits"]
    assert np.isfinite(detector.score(data).events["score"].to_numpy()).all()
