"""Training on a cluster: one worker gives the local model, several give one that is as good, of any events."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from same_tables import assert_same

from ustad.cli import main
from ustad.config import ConfigError
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.engine.train_job import train
from ustad.network.training.process_group import ProcessGroup
from ustad.schema import EventSchema, Feature
from ustad.scores import Scores
from ustad.scoring.alerts import AlertRule

SCHEMA = EventSchema(
    "cards",
    (
        Feature("amount", "numeric", transform="log", unit="€"),
        Feature("merchant", "categorical", display="category"),
        Feature("hour", "cyclic", ("@minute_of_day",), period=1440.0, display="clock"),
    ),
    entity="card", time="paid_at", habitat="merchant", entity_word="card", event_word="payment",
)  # fmt: skip
CARDS = {
    "model.width": 16, "model.event_blocks": 1, "training.epochs": 2, "training.batch_size": 64,
    "scoring.samples": 4, "scoring.neighbours": 10, "window.unit": "events", "window.length": 6, "seed": 3,
    "model.network": "dual",
}  # fmt: skip


@pytest.fixture(scope="module")
def cards() -> pa.Table:
    """Fifteen cards over three weeks."""
    rng = np.random.default_rng(4)
    cards, each = 15, 60
    times = np.sort(rng.integers(0, 21 * 86_400, (cards, each)), axis=1).ravel() + 19_723 * 86_400
    return pa.table(
        {
            "card": [f"card {i}" for i in np.repeat(np.arange(cards), each)],
            "paid_at": pa.array(times * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
            "amount": np.exp(rng.normal(3, 1, cards * each)),
            "merchant": rng.choice(["baker", "grocer", "tailor"], cards * each),
        }
    ).sort_by([("card", "ascending"), ("paid_at", "ascending")])


def run(*arguments: object) -> None:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    assert stop.value.code == 0


@pytest.fixture(scope="module")
def config(tiny_config):
    return tiny_config.replace({"training.epochs": 2, "model.network": "dual"})


@pytest.fixture(scope="module")
def local(town, config):
    return Detector(config, device="cpu").fit(town)


def test_one_worker_gives_the_weights_reference_and_calibration_of_a_local_run(
    cluster, town, town_directory, config, local, tmp_path
):
    made = train(town_directory, tmp_path / "model", config, workers=1)
    for name, value in local.judge.source.network.state_dict().items():
        assert torch.allclose(made.judge.source.network.state_dict()[name], value, atol=1e-6), name
    mine, theirs = local.judge.calibration, made.judge.calibration
    assert np.array_equal(mine.entity, theirs.entity)
    for name in ("error", "loss", "au", "eu", "knn"):
        a, b = getattr(mine.parts, name), getattr(theirs.parts, name)
        assert np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True), name
    a, b = local.judge.source.neighbours, made.judge.source.neighbours
    assert np.allclose(np.sort(a.embeddings, axis=0), np.sort(b.embeddings, axis=0), atol=1e-5)
    stored = Detector.load(tmp_path / "model", "cpu").score(town)
    assert_same(local.score(town).events, stored.events, ["stay_id"], tolerance=1e-3)
    assert not (tmp_path / "model" / ".train-job").exists()


def test_two_workers_share_every_batch_of_any_events_and_learn_as_well(cluster, cards, tmp_path):
    """By the command line, on payments in two parts, and scored there too."""
    schema, data, model, scores = tmp_path / "cards.yaml", tmp_path / "cards", tmp_path / "model", tmp_path / "scores"
    schema.write_text(yaml.safe_dump(SCHEMA.to_dict()))
    data.mkdir()
    for i, part in enumerate((cards.slice(0, 500), cards.slice(500))):
        pq.write_table(part, data / f"part-{i}.parquet")
    settings = [f"--set={name}={value}" for name, value in CARDS.items()]
    run("train", data, "--schema", schema, "--engine=ray", "--workers=2", "--out", model, *settings)
    made = Detector.load(model, "cpu")
    alone = Detector(made.config, "cpu").fit(Dataset(cards, SCHEMA))
    assert made.facts["epochs"] == alone.facts["epochs"]
    assert made.facts["validation_loss"] == pytest.approx(alone.facts["validation_loss"], rel=0.1)
    run("score", model, data, "--engine=ray", "--workers=2", "--top=10", "--out", scores)
    expected, found = made.score(data, rule=AlertRule("top", 10)), Scores.load(scores)
    assert_same(expected.events, found.events, ["card", "paid_at"])
    assert_same(expected.agents, found.agents, ["card"])


def test_own_values_are_learnt_and_compared_on_a_cluster_as_in_one_process(cluster, cards, tmp_path):
    data, model, scores = tmp_path / "cards.parquet", tmp_path / "model", tmp_path / "scores"
    pq.write_table(cards, data)
    (tmp_path / "cards.yaml").write_text(yaml.safe_dump(SCHEMA.to_dict()))
    schema = ("--schema", tmp_path / "cards.yaml")
    run("train", data, *schema, "--preset=quick", "--engine=ray", "--workers=1", "--out", model)
    alone, stored = Detector("quick", "cpu").fit(Dataset(cards, SCHEMA)), Detector.load(model, "cpu")
    assert [source.name for source in stored.judge.sources] == ["habits", "values"]
    expected = alone.score(data, rule=AlertRule("top", 10))
    assert_same(expected.events, stored.score(data, rule=AlertRule("top", 10)).events, ["card", "paid_at"])
    run("score", model, data, "--engine=ray", "--workers=2", "--top=10", "--out", scores)
    found = Scores.load(scores)
    assert_same(expected.events, found.events, ["card", "paid_at"])
    assert_same(expected.agents, found.agents, ["card"])


def test_a_share_of_a_batch_is_nobody_elses_and_a_small_batch_is_everybodys():
    batch = torch.arange(11)
    shares = [ProcessGroup(rank, 3).share(batch) for rank in range(3)]
    assert sorted(torch.cat(shares).tolist()) == batch.tolist()
    assert max(map(len, shares)) == ProcessGroup(0, 3).largest_share(11)
    assert ProcessGroup(2, 3).share(batch[:2]).tolist() == [0, 1]
    assert len({ProcessGroup(rank, 3).seed(7) for rank in range(3)}) == 3
    assert ProcessGroup().seed(7) == 7


def test_more_workers_than_there_are_cores_are_refused_in_seconds(cluster, town_directory, config, tmp_path):
    with pytest.raises(ConfigError, match="8 workers need 8 CPU, the cluster has 3"):
        train(town_directory, tmp_path / "model", config, workers=8)
