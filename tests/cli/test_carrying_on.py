"""`ustad train --from` goes on with a model's own settings and weights; `ustad tune` reads any schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from one_call import run
from safetensors.torch import load_file

from ustad.cli import main
from ustad.config import Config
from ustad.network.inference.memory_model import BY_KIND
from ustad.simulate import simulate_tables

SETTINGS = {
    "model.width": 16,
    "model.event_blocks": 1,
    "model.network": "memory",
    "training.epochs": 6,
    "training.batch_size": 64,
    "scoring.samples": 2,
    "split.train_weeks": 8,  # two weeks are divided in these proportions: half of them are learnt from
    "split.validation_weeks": 4,
}
SET = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]


@dataclass(frozen=True)
class Weeks:
    base: Path
    older: Path
    newer: Path


@pytest.fixture(scope="module")
def weeks(tmp_path_factory) -> Weeks:
    """Two weeks of a town, the next two weeks, and a model of the first."""
    place = tmp_path_factory.mktemp("weeks")
    events = simulate_tables("town", agents=12, seed=5, days=28, anomalous_share=0.0).events
    start = pc.min(events["started_at"]).cast(pa.int64()).as_py()
    days = (events["started_at"].cast(pa.int64()).to_numpy() - start) // 86_400_000_000
    found = Weeks(place / "model", place / "older.parquet", place / "newer.parquet")
    pq.write_table(events.filter(pa.array(days < 14)), found.older)
    pq.write_table(events.filter(pa.array(days >= 14)), found.newer)
    with pytest.raises(SystemExit, match="0"):
        main(["train", str(found.older), "--out", str(found.base), *SET])
    return found


def test_the_settings_of_the_model_need_not_be_repeated(capsys, weeks, tmp_path):
    once = ["--set", "training.epochs=1", "--json"]
    code, out, err = run(capsys, "train", weeks.newer, "--from", weeks.base, "--out", tmp_path / "next", *once)
    assert code == 0, err
    config = Config.from_yaml(tmp_path / "next" / "config.yaml")
    assert config == Config.from_yaml(weeks.base / "config.yaml").replace({"training.epochs": 1})
    later = json.loads(out)
    _, out, _ = run(capsys, "train", weeks.newer, "--out", tmp_path / "fresh", *SET, *once)
    assert later["validation_loss"] < json.loads(out)["validation_loss"]
    assert later["first_day"] > json.loads((weeks.base / "facts.json").read_text())["last_day"]


def test_the_network_begins_at_the_weights_of_the_model(capsys, weeks, tmp_path):
    """With steps too small to matter it ends there too."""
    still = ["--set", "training.epochs=1", "--set", "training.learning_rate=1e-9"]
    code, _, err = run(capsys, "train", weeks.newer, "--from", weeks.base, "--out", tmp_path / "next", *still)
    assert code == 0, err
    before, after = (load_file(model / "memory.safetensors") for model in (weeks.base, tmp_path / "next"))
    assert set(before) == set(after)
    same = {k for k in before if before[k].shape == after[k].shape}
    assert all(torch.allclose(before[k], after[k], atol=1e-6) for k in same)
    assert set(before) - same <= set(BY_KIND)
    kinds = [
        json.loads((m / "habits.json").read_text())["frame"]["categories"] for m in (weeks.base, tmp_path / "next")
    ]
    rows = [load_file(m / "memory.safetensors")["memory.category.weight"] for m in (weeks.base, tmp_path / "next")]
    shared = [(kinds[0].index(k) + 1, kinds[1].index(k) + 1) for k in kinds[1] if k in kinds[0]]
    assert len(shared) > 5
    assert all(torch.allclose(rows[0][old], rows[1][new], atol=1e-6) for old, new in shared)


def test_a_new_kind_of_place_is_said(capsys, weeks, tmp_path):
    table = pq.read_table(weeks.newer)
    kind = "poi_category" if "poi_category" in table.column_names else "poi"
    named = pc.if_else(pc.equal(table[kind], table[kind][0]), "observatory", table[kind])
    pq.write_table(table.set_column(table.column_names.index(kind), kind, named), tmp_path / "named.parquet")
    once = ["--set", "training.epochs=1", "--out", tmp_path / "next"]
    code, _, err = run(capsys, "train", tmp_path / "named.parquet", "--from", weeks.base, *once)
    assert code == 0, err
    assert " ".join(err.split()).count("1 kind(s) of places are new to the memory network") == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--set", "model.width=32"], "model.width is 16 in the model"),
        (["--set", "window.max_events=20"], "window.max_events is 48"),
        (["--set", "model.trips=embedding"], "model.trips is none"),
        (["--preset", "best"], "model.width is 16"),
    ],
)
def test_a_change_of_the_networks_shape_is_refused_in_one_line(capsys, weeks, tmp_path, change, words):
    code, _, err = run(capsys, "train", weeks.newer, "--from", weeks.base, "--out", tmp_path / "next", *change)
    assert code == 1
    assert words in " ".join(err.split())
    assert err.count("error:") == 1
    assert "state_dict" not in err
    assert not (tmp_path / "next").exists()


def test_a_file_of_settings_is_laid_over_those_of_the_model(capsys, weeks, tmp_path):
    (tmp_path / "more.yaml").write_text("training: {epochs: 1}\nscoring: {samples: 3}\n")
    asked = ["--config", tmp_path / "more.yaml", "--out", tmp_path / "next"]
    assert run(capsys, "train", weeks.newer, "--from", weeks.base, *asked)[0] == 0
    changed = {"training.epochs": 1, "scoring.samples": 3}
    expected = Config.from_yaml(weeks.base / "config.yaml").replace(changed)
    assert Config.from_yaml(tmp_path / "next" / "config.yaml") == expected


def test_a_model_of_another_method_is_not_carried_on(capsys, weeks, tmp_path):
    other = tmp_path / "other"
    assert run(capsys, "lab", "train", weeks.older, "--method", "random", "--out", other)[0] == 0
    code, _, err = run(capsys, "train", weeks.newer, "--from", other, "--out", tmp_path / "next")
    assert code == 1
    assert "models of the method ustad" in " ".join(err.split())


# ------------------------------------------------------------------------------------------ other schemas
@pytest.fixture
def payments(tmp_path) -> tuple[Path, Path]:
    """Payments of ten cards with naive times, one of them broken, and their schema."""
    rng = np.random.default_rng(1)
    start = np.datetime64("2026-03-02T08:00:00", "us")
    minutes = np.sort(rng.integers(0, 14 * 1440, 400)).astype("timedelta64[m]")
    table = pa.table(
        {
            "card": [f"c{i % 10}" for i in range(400)],
            "paid": pa.array(start + minutes, pa.timestamp("us")),
            "amount": rng.lognormal(2, 1, 400),
        }
    )
    pq.write_table(table, tmp_path / "payments.parquet")
    schema = {
        "entity": "card",
        "time": "paid",
        "features": [
            {"name": "hour", "kind": "cyclic", "source": ["@minute_of_day"], "period": 1440},
            {"name": "amount", "kind": "numeric", "transform": "log"},
        ],
    }
    (tmp_path / "cards.yaml").write_text(yaml.safe_dump(schema))
    return tmp_path / "payments.parquet", tmp_path / "cards.yaml"


SHORT = ["--preset", "quick", "--set", "model.network=dual", "--set", "training.epochs=1"]
SHORT += ["--set", "split.train_weeks=8", "--set", "split.validation_weeks=4"]


def test_tune_reads_events_of_another_schema_in_their_zone(capsys, payments, tmp_path):
    pytest.importorskip("optuna")
    data, schema = payments
    asked = ["--schema", schema, "--trials", 1, "--out", tmp_path / "t", "--json", *SHORT]
    code, out, err = run(capsys, "lab", "tune", data, *asked, "--timezone", "Europe/Paris")
    assert code == 0, err
    assert np.isfinite(json.loads(out)["loss"])
    assert (tmp_path / "t" / "best.yaml").exists()


def test_tune_stops_at_bad_rows_unless_it_may_skip_them(capsys, payments, tmp_path):
    pytest.importorskip("optuna")
    data, schema = payments
    table = pq.read_table(data)
    entity = pa.array([None, *table["card"].to_pylist()[1:]])
    pq.write_table(table.set_column(0, "card", entity), data)
    asked = ["--schema", schema, "--timezone", "UTC", "--trials", 1, "--out", tmp_path / "t", *SHORT]
    code, _, err = run(capsys, "lab", "tune", data, *asked)
    assert code == 1
    assert "card" in err
    code, out, err = run(capsys, "lab", "tune", data, *asked, "--on-error", "skip")
    assert code == 0, err
    assert f"--schema {schema}" in " ".join(out.split())


def test_another_schema_than_the_models_is_refused(capsys, weeks, payments, tmp_path):
    data, schema = payments
    asked = ["--schema", schema, "--timezone", "UTC", "--from", weeks.base, "--out", tmp_path / "next"]
    code, _, err = run(capsys, "train", data, *asked)
    assert code == 1
    assert "another schema" in " ".join(err.split())
