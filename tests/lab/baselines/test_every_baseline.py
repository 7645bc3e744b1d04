"""What holds for every method of the registry: the protocol, storing, documentation, size."""

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from example_towns import DAY, MONDAY, town

import ustad.lab.baselines
from ustad.artefact import is_baseline
from ustad.config import ConfigError
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.lab.baselines import REGISTRY, DetectorProtocol, describe, find, make
from ustad.lab.baselines.search import search
from ustad.lab.baselines.storage import load, save
from ustad.schema import EventSchema, Feature
from ustad.scores import Scores
from ustad.tables import TIMESTAMP, DataError

SHORT = {"epochs": 1, "width": 8, "blocks": 1, "heads": 2, "trials": 5, "hidden": 16, "samples": 2, "neighbours": 3}
FOLDER = Path(ustad.lab.baselines.__file__).parent
MACHINERY = ("protocol", "base", "deep", "networks", "fitting", "search", "storage", "trajectory_grid", "visit_rate")


def quick(name: str, schema: EventSchema | None = None):
    """The method with the smallest budget that its settings allow."""
    if name.startswith("pyod"):
        pytest.importorskip("pyod")
    known = {f.name for f in dataclasses.fields(find(name).settings_class)}
    return make(name, schema, device="cpu", **{k: v for k, v in SHORT.items() if k in known})


@pytest.mark.parametrize("name", REGISTRY)
def test_it_scores_what_it_says_and_the_same_after_a_round_trip_to_disk(name, tmp_path):
    test, before = town(agents=5, days=1, first_day=7), town(agents=5, days=7)
    model = quick(name).fit(town(agents=5, days=5), town(agents=5, days=2, first_day=5))
    assert isinstance(model, DetectorProtocol)
    assert model.name == name
    first = model.score(test, before)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model", device="cpu").score(test, before)
    able = model.abilities
    for table, other, can in ((first.events, again.events, able.scores_events), (first.agents, again.agents, True)):
        assert (table is not None) == can
        if table is not None:
            assert np.allclose(table["score"].to_numpy(), other["score"].to_numpy(), rtol=1e-5, atol=1e-7)
    assert first.agents.num_rows == 5
    assert hasattr(model, "predict") == able.predicts
    assert is_baseline(tmp_path / "model")


@pytest.mark.parametrize("name", REGISTRY)
def test_every_setting_is_documented_and_unknown_ones_are_refused(name):
    kind = find(name)
    assert all(f.metadata.get("about") for f in dataclasses.fields(kind.settings_class))
    assert describe(name)["about"].endswith(".")
    about = inspect.getmodule(kind).__doc__ or ""
    assert "Where we had to decide" in about or name.startswith(("random", "pyod"))
    with pytest.raises(ConfigError, match="unknown setting"):
        make(name, nonsense=1)


NEED_A_PLACE = {"visit-rate", "visit-rate-causal", "distance", "ibat", "gm-vsae", "atrom", "ctle"}


@pytest.mark.parametrize("name", REGISTRY)
def test_events_that_are_not_stays_are_scored_or_refused_for_want_of_a_place(name):
    rng, payments = np.random.default_rng(0), 120
    days = np.sort(rng.integers(0, 15 * DAY, (4, payments // 4)), axis=1).ravel()
    table = pa.table(
        {
            "card": np.repeat(["a", "b", "c", "d"], payments // 4),
            "time": pa.array(MONDAY + days, TIMESTAMP),
            "amount": rng.lognormal(3, 1, payments),
            "shop": rng.choice(["food", "fuel", "web"], payments),
        }
    )
    minute = Feature("minute", "cyclic", ("@minute_of_day",), period=1440.0)
    schema = EventSchema(
        "cards", (Feature("amount", "numeric"), Feature("shop", "categorical"), minute), entity="card", time="time",
        event_id=None,
    )  # fmt: skip
    model = quick(name, schema)
    if name in NEED_A_PLACE:
        with pytest.raises(DataError, match=f"{name}: .*(needs a place|no coordinates)"):
            model.fit(table)
        return
    scores = model.fit(table).score(table)
    assert scores.agents["card"].to_pylist() == ["a", "b", "c", "d"]
    assert scores.events.num_rows == payments


def test_a_data_set_is_divided_by_its_dates_for_fitting_and_scoring():
    data = Dataset(
        town(agents=5, days=8), meta={"split": {"validation_first": "2024-01-05", "test_first": "2024-01-07"}}
    )
    days = data.days() - data.days().min()
    parts = [data.events.filter(days_in) for days_in in (days < 4, (days >= 4) & (days < 6), days >= 6)]
    whole = quick("transformer").fit(data).score(data)
    apart = quick("transformer").fit(parts[0], parts[1]).score(parts[2], data.events.filter(days < 6))
    assert isinstance(whole, Scores)
    assert whole.events.equals(apart.events)


def test_a_table_alone_keeps_its_last_quarter_of_days_for_validation():
    alone = quick("nov-online").fit(town(agents=5, days=8))
    apart = quick("nov-online").fit(town(agents=5, days=8).filter(np.tile(np.arange(32) < 24, 5)),
                                    town(agents=5, days=8).filter(np.tile(np.arange(32) >= 24, 5)))  # fmt: skip
    test = town(agents=5, days=1, first_day=9)
    assert np.allclose(alone.score(test).events["score"].to_numpy(), apart.score(test).events["score"].to_numpy())


def test_a_deep_baseline_is_under_150_lines():
    for path in FOLDER.glob("*.py"):
        if path.stem not in MACHINERY:
            assert len(path.read_text().splitlines()) < 150, path.name


def test_a_damaged_or_foreign_directory_is_refused(tmp_path):
    save(quick("ibat").fit(town(agents=5, days=5)), tmp_path / "model")
    (tmp_path / "model" / "state.safetensors").write_bytes(b"nothing")
    with pytest.raises(DataError, match="damaged"):
        load(tmp_path / "model")
    with pytest.raises(DataError, match="not a model directory"):
        load(tmp_path)


def test_the_detector_does_not_take_another_method_for_its_own(tmp_path):
    save(quick("distance").fit(town(agents=5, days=5)), tmp_path / "model")
    with pytest.raises(DataError, match="a model of another method"):
        Detector.load(tmp_path / "model")


def test_an_unfitted_baseline_neither_scores_nor_saves(tmp_path):
    with pytest.raises(DataError, match="before scoring"):
        quick("transformer").score(town(agents=2, days=1))
    with pytest.raises(DataError, match="before saving"):
        save(quick("gm-vsae"), tmp_path / "model")


def test_the_documented_walk_through_gives_a_working_baseline(tmp_path, monkeypatch):
    """The page's own code as a module, and its one line in the registry: fitted, searched, kept and read back."""
    text = (FOLDER.parents[3] / "docs" / "baselines.md").read_text()
    block = next(b for b in text.split("```python")[1:] if "class EventGru" in b).split("```")[0]
    (tmp_path / "walked_gru.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(REGISTRY, "gru", "walked_gru:Gru")
    events = town(agents=5, days=5), town(agents=5, days=2, first_day=5), town(agents=5, days=1, first_day=7)
    few = {"epochs": 1, "width": 8, "blocks": 1}
    choice = search("gru", *events[:2], trials=2, device="cpu", **few)
    assert set(choice.settings) == {"mask_ratio"}
    model = make("gru", device="cpu", **few, **choice.settings).fit(*events[:2])
    assert model.validation_loss == choice.loss
    assert model.predict(events[2], events[1]).num_rows == 20
    save(model, tmp_path / "model")
    again = load(tmp_path / "model", device="cpu").score(events[2], events[1]).events
    assert again.equals(model.score(events[2], events[1]).events)
    assert describe("gru")["predicts"]
