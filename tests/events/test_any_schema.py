"""Odd schemas and odd data: wide, narrow, ten thousand words, one event each, one entity for all of them."""

from __future__ import annotations

import json
import resource
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from ustad.cli import main
from ustad.config import Config
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.network import losses
from ustad.network.inference import sampling
from ustad.network.losses import categorical_nll
from ustad.own_values.value_features import beyond_habits
from ustad.schema import EventSchema, Feature, mobility_schema
from ustad.tables import TIMESTAMP

TINY: dict[str, Any] = {
    "model.width": 8,
    "model.event_blocks": 1,
    "model.heads": 2,
    "training.epochs": 1,
    "scoring.samples": 2,
    "scoring.neighbours": 5,
    "window.unit": "events",
    "window.length": 4,
    "window.max_events": 8,
}
DAY = 86_400_000_000


def events(n: int, entities: int, days: int = 24, **columns: Any) -> pa.Table:
    """n events of some entities, evenly over the days."""
    moment = np.linspace(0, days * DAY - 1, n).astype(np.int64)
    table = {"who": pa.array(np.arange(n) % entities), "at": pa.array(moment).cast(TIMESTAMP)}
    return pa.table({**table, **columns})


def scored(table: pa.Table, features: tuple[Feature, ...], network: str = "dual", **changes: Any) -> pa.Table:
    """The scores of the test part after a tiny training."""
    data = Dataset(table, EventSchema("odd", features, entity="who", time="at"))
    config = Config.preset("quick").replace({**TINY, "model.network": network, **changes})
    detector = Detector(config, device="cpu").fit(data)
    assert detector.config.model.network == network
    found = detector.score(data, details=True).with_details()
    assert np.isfinite(found["score"].to_numpy()).all()
    assert found.num_rows == data.between(data.split(detector.config.split).test_first, 10**6).num_rows
    return found


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("network", ["none", "memory", "dual"])
def test_sixty_features_are_scored_and_explained(network):
    rng = np.random.default_rng(0)
    columns = {f"f{i}": rng.normal(size=160) for i in range(40)}
    columns |= {f"f{i}": rng.choice(["a", "b", "c"], 160) for i in range(40, 60)}
    features = tuple(Feature(name, "numeric" if i < 40 else "categorical") for i, name in enumerate(columns))
    found = scored(events(160, 4, **columns), features, network)
    assert {"expected_f0", "observed_f59"} <= set(found.column_names)
    assert {"f0", "f59"} <= {one["name"] for one in found["evidence"][0].as_py()}
    assert found["reason"].null_count < found.num_rows


@pytest.mark.parametrize("network", ["none", "memory", "dual"])
@pytest.mark.parametrize(
    "feature",
    [
        Feature("amount", "numeric"),
        Feature("word", "categorical"),
        Feature("hour", "cyclic", ("@minute_of_day",), period=1440.0),
        Feature("taste", "vector", size=2),
        Feature("place", "place", ("lat", "lon")),
    ],
    ids=lambda f: f.kind,
)
def test_one_feature_of_any_kind_is_enough(feature, network):
    rng = np.random.default_rng(1)
    columns = {
        "amount": rng.normal(size=200),
        "word": rng.choice(["a", "b"], 200),
        "taste": pa.array(rng.normal(size=(200, 2)).tolist()),
        "lat": rng.normal(48, 0.1, 200),
        "lon": rng.normal(2, 0.1, 200),
    }
    assert scored(events(200, 4, **columns), (feature,), network).num_rows > 50


def test_ten_thousand_words_stay_within_bounded_memory():
    moment = np.arange(12_000) * (DAY // 500)  # 24 days
    words = np.char.add("word ", (np.arange(12_000) % 10_900).astype(str))
    who = np.random.default_rng(2).integers(0, 200, 12_000)
    table = pa.table({"who": who, "at": pa.array(moment).cast(TIMESTAMP), "word": words})
    split = {"validation_first": "1970-01-23", "test_first": "1970-01-24"}
    schema = EventSchema("odd", (Feature("word", "categorical"),), entity="who", time="at")
    data = Dataset(table, schema, meta={"split": split})
    before = peak_mb()
    config = Config.preset("quick", **TINY, **{"model.network": "dual"})
    detector = Detector(config, device="cpu").fit(data)
    assert detector.encoder.fields[0].size == 10_001
    assert np.isfinite(detector.score(data).events["score"].to_numpy()).all()
    assert peak_mb() - before < 1500


def test_many_classes_give_the_same_likelihood_in_parts(monkeypatch):
    torch.manual_seed(0)
    logits, log_sigma = torch.randn(40, 30), torch.full((40, 30), -1.0)
    target = torch.randint(0, 30, (40,))
    whole = categorical_nll(logits, log_sigma, target, (4000, None))
    monkeypatch.setattr(losses, "DRAWS", 4000 * 30 * 7)
    leaf = logits.clone().requires_grad_()
    parts = categorical_nll(leaf, log_sigma, target, (4000, None))
    parts.sum().backward()
    assert torch.allclose(whole, parts, atol=0.05)
    assert torch.isfinite(leaf.grad).all()
    assert (leaf.grad.abs().sum(dim=1) > 0).all()


def test_scores_do_not_depend_on_how_many_events_are_decoded_at_once(monkeypatch):
    words = np.random.default_rng(7).choice(["a", "b", "c"], 300)
    table, features = events(300, 6, word=words), (Feature("word", "categorical"),)
    whole = scored(table, features)
    monkeypatch.setattr(sampling, "DECODE_AT_ONCE", 2 * 4 * 3)
    assert np.allclose(whole["score"].to_numpy(), scored(table, features)["score"].to_numpy(), atol=1e-6)


@pytest.mark.parametrize("scope", ["all", "own"])
def test_one_event_for_every_entity_is_scored(scope):
    rng = np.random.default_rng(3)
    table, features = events(300, 300, amount=rng.normal(size=300)), (Feature("amount", "numeric"),)
    found = scored(table, features, **{"scoring.knn_scope": scope})
    assert found["knn"].null_count == (len(found) if scope == "own" else 0)  # nobody has an event of its own before
    assert set(found["history_days"].to_pylist()) == {0}


@pytest.mark.parametrize("network", ["none", "dual"])
def test_all_events_of_one_entity_are_scored_in_bounded_memory(network):
    rng = np.random.default_rng(4)
    before = peak_mb()
    table = events(100_000, 1, days=8, amount=rng.normal(size=100_000))
    changes = {"training.batch_size": 2048, "scoring.neighbours": 0}
    found = scored(table, (Feature("amount", "numeric"),), network, **changes)
    assert found.num_rows == 50_000
    assert peak_mb() - before < 1500


@pytest.mark.parametrize("network", ["none", "dual"])
def test_missing_values_are_neither_targets_nor_part_of_the_score(network):
    rng = np.random.default_rng(5)
    some = pa.array([None if i % 3 == 0 else float(v) for i, v in enumerate(rng.normal(size=300))])
    features = (Feature("amount", "numeric"), Feature("word", "categorical"))
    found = scored(events(300, 6, amount=some, word=rng.choice(["a", "b"], 300)), features, network)
    missing = found["amount"].is_null().to_numpy(zero_copy_only=False)
    assert missing.any()
    answers = [{one["name"]: one["surprise"] for one in row} for row in found["evidence"].to_pylist()]
    surprise = np.array([answer.get("amount", 0.0) for answer in answers])
    assert not surprise[missing].any()
    assert surprise[~missing].any()
    if network == "dual":
        assert (found["pct_amount"].is_null().to_numpy(zero_copy_only=False) == missing).all()


def test_the_verbs_take_events_without_identifiers_and_labels_by_entity_and_time(tmp_path, capsys):
    rng = np.random.default_rng(6)
    table = events(400, 8, amount=rng.normal(size=400), word=rng.choice(["a", "b"], 400))
    pq.write_table(table, tmp_path / "events.parquet")
    last = table.slice(380).select(["who", "at"])
    pq.write_table(last.append_column("anomaly", pa.array([True] * 20)), tmp_path / "labels.parquet")
    schema = EventSchema(
        "odd", (Feature("amount", "numeric"), Feature("word", "categorical")), entity="who", time="at", habitat="word"
    )
    schema.to_yaml(tmp_path / "odd.yaml")
    settings = {**TINY, "model.network": "dual"}
    changes = [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]
    steps = [
        [
            "train",
            tmp_path / "events.parquet",
            "--schema",
            tmp_path / "odd.yaml",
            "--out",
            tmp_path / "model",
            *changes,
        ],
        ["score", tmp_path / "model", tmp_path / "events.parquet", "--top", 5, "--out", tmp_path / "scores"],
        ["report", tmp_path / "scores", "--out", tmp_path / "report.html"],
        ["lab", "evaluate", tmp_path / "scores", "--labels", tmp_path / "labels.parquet", "--json"],
    ]
    for step in steps:
        capsys.readouterr()
        run(step)
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) == {"ustad", "random", "visit-rate"}
    assert figures["ustad"]["events"]["positives"] == 20
    assert (tmp_path / "report.html").stat().st_size > 10_000


def run(arguments: list[Any]) -> None:
    """One verb, which must succeed."""
    code: Any = 0
    try:
        main([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code
    assert not code, arguments


@pytest.mark.parametrize("network", ["none", "memory", "dual"])
def test_a_feature_that_habits_do_not_look_at_is_scored_by_every_judge(network):
    rng = np.random.default_rng(8)
    amount = rng.normal(size=600)
    amount[570] = 60.0
    features = (Feature("amount", "numeric"),)
    found = scored(events(600, 6, amount=amount), features, network, **{"training.epochs": 5})
    assert found["amount"].to_numpy()[found["score"].to_numpy().argmax()] == 60.0


@pytest.mark.parametrize(("least", "said"), [(200, True), (1, False)])
def test_too_few_steps_of_training_are_said(recwarn, monkeypatch, least, said):
    monkeypatch.setattr("ustad.network.training.dual_training.FEW_STEPS", least)
    scored(events(120, 4, amount=np.arange(120) % 7 + 0.5), (Feature("amount", "numeric"),))
    warnings = [str(w.message) for w in recwarn.list]
    assert any("lower training.batch_size (128) or raise training.epochs (1)" in w for w in warnings) == said


def test_habits_judge_where_they_see_every_scored_feature():
    assert beyond_habits(mobility_schema("embedding")) == []
    hour = Feature("hour", "cyclic", ("@minute_of_day",), period=1440.0)
    assert beyond_habits(EventSchema("odd", (hour, Feature("word", "categorical")), habitat="word")) == []
    assert beyond_habits(EventSchema("odd", (hour, Feature("amount", "numeric")))) == ["amount"]
