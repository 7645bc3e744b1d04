"""Methods that are told the way to each stay: what they see of it, and the tables that set it beside not seeing it."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ustad.config import ConfigError
from ustad.lab.baselines import find
from ustad.lab.evaluation.experiments import BUDGETS, DETECTORS, PREDICTORS, read_results
from ustad.lab.evaluation.fitted_models import SAME, WITH_TRIPS, FittedModels, class_name
from ustad.lab.evaluation.result_files import append_line
from ustad.lab.evaluation.sources import Source
from ustad.lab.evaluation.trip_tables import trip_tables

TOWN = Source("town", agents=14, seed=3, days=21)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return FittedModels(TOWN, 3, BUDGETS["tiny"], tmp_path_factory.mktemp("trips"), device="cpu")


def test_each_stay_has_the_vectors_of_the_trip_that_led_to_it(models):
    told = models.data_with_trips.events
    arrived = pc.is_in(told["stay_id"], models.data.trips["destination_stay_id"]).to_numpy()
    assert 0.5 < arrived.mean() < 1
    for name in ("trip_shape", "trip_speed"):
        assert not told[name].filter(pa.array(~arrived)).is_valid().to_numpy().any()
        assert set(pc.list_value_length(told[name].drop_null()).to_pylist()) == {16}
    assert models.data.events.column_names == [n for n in told.column_names if not n.startswith("trip_")]


def test_trips_of_the_test_weeks_are_not_learned_from(models, monkeypatch):
    """Other trips in the test weeks leave the vectors of the training weeks as they are."""
    test_trips = pc.is_in(models.data.trips["destination_stay_id"], models.test["stay_id"].combine_chunks())
    fewer = models.data.trips.filter(pc.invert(test_trips))
    other = FittedModels(TOWN, 3, BUDGETS["tiny"], models.work, device="cpu")
    other.__dict__["data"] = type(models.data)(**{**vars_of(models.data), "trips": fewer})
    ours, theirs = (m.period("train", "transformer-trips")["trip_shape"].to_pylist() for m in (models, other))
    assert ours == theirs
    assert other.period("test", "transformer-trips")["trip_shape"].null_count == other.test.num_rows


def vars_of(data):
    return {name: getattr(data, name) for name in data.__dataclass_fields__}


@pytest.mark.parametrize("method", sorted({*WITH_TRIPS} - {"lstm-trips", "lightpath-trips", "dual-tr-trips"}))
def test_a_method_that_is_told_of_trips_has_them_among_its_fields_and_the_plain_one_has_not(method, models):
    told, plain = models.fit_model(method), models.fit_model(class_name(method))
    assert {f.name for f in told.encoder.fields} - {f.name for f in plain.encoder.fields} == {
        "trip_shape",
        "trip_speed",
    }


def test_the_paper_with_trips_is_asked_about_as_many_events_as_without(models):
    """Four windows hold an event, and 0.15 of each is masked: 0.6 questions an event and epoch."""
    for method in ("ustad-trips", "ustad-plain"):
        models.fit_model(method)
        told = models.training[method]
        assert told["targets"] == round(0.6 * models.train.num_rows * told["epochs"]) > 0


@pytest.mark.parametrize(
    ("method", "scores_inputs"),
    [("sensitive-hue-trips", True), ("nov-online-trips", True), ("transformer-trips", False), ("ustad-trips", False)],
)
def test_the_way_to_a_stay_changes_scores(method, scores_inputs, models):
    """With another way to one stay: methods that score all inputs score that stay otherwise; to those that score what
    they predict it is an input for the stays around it."""
    test, before = (models.period(name, method) for name in ("test", "before"))
    row = int(np.flatnonzero(test["trip_shape"].is_valid().to_numpy())[5])
    rows = test["trip_shape"].to_pylist()
    rows[row] = [50.0] * 16
    odd = test.set_column(test.column_names.index("trip_shape"), "trip_shape", pa.array(rows, pa.list_(pa.float32())))
    model = models.fit_model(method)
    usual, unusual = (model.score(events, before).events["score"].to_numpy() for events in (test, odd))
    if scores_inputs:
        assert unusual[row] > usual[row]
    else:
        assert unusual[row] == pytest.approx(usual[row], abs=0.02)  # others change places, it does not
        assert np.abs(unusual - usual).max() > 0.02


def test_methods_that_are_told_of_trips_are_other_names_of_methods_that_are_there():
    for told in (m for m in (*DETECTORS, *PREDICTORS) if m.endswith("-trips")):
        assert class_name(told) != told
        assert find(class_name(told)).name in (*DETECTORS, *PREDICTORS)
        assert SAME.get(told, told) in WITH_TRIPS


def test_data_without_trips_are_refused_in_one_line(models):
    other = FittedModels(TOWN, 4, BUDGETS["tiny"], models.work, device="cpu")
    other.__dict__["data"] = type(models.data)(**{**vars_of(models.data), "trips": None})
    with pytest.raises(ConfigError, match="town \\(14 agents\\) has no trips"):
        other.fit_model("transformer-trips")


def line(method, seed, auroc, **more):
    areas = {"auroc": auroc, "ap": auroc / 10}
    return {
        "key": f"{method}{seed}", "experiment": "detection", "data": "town", "source": {"name": "town", "seed": seed},
        "method": method, "window": "day", "seed": seed, "budget": {"name": "paper"},
        "result": dict.fromkeys(("events", "incidents", "agents"), areas), **more,
    }  # fmt: skip


def test_the_table_of_trips_pairs_the_same_people_and_the_other_tables_have_none_of_it(tmp_path):
    lines = [line("transformer", 1, 0.5), line("transformer", 2, 0.9), line("transformer-trips", 1, 0.6)]
    lines += [line("ustad-none", 2, 0.7), line("ustad-none-trips", 2, 0.8), line("ustad-trips", 1, 0.8)]
    for one in lines:
        append_line(tmp_path / "detection.jsonl", one)
    results = read_results(tmp_path)
    assert [x["method"] for x in results["detection"]] == ["transformer", "transformer", "ustad-none"]
    (table,) = trip_tables(results, "detection")
    assert "CPU" not in table.note
    assert [row[:4] for row in table.rows] == [
        ("Transformer", "1", "0.500 → 0.600", "0.050 → 0.060"),
        ("USTAD-none", "1", "0.700 → 0.800", "0.070 → 0.080"),
    ]


def test_a_network_that_was_trained_on_another_machine_than_its_pair_is_named(tmp_path):
    lines = [line("transformer", 1, 0.5, device="cuda"), line("transformer-trips", 1, 0.6, device="cpu")]
    lines += [line("ctle", 1, 0.5, device="cpu"), line("ctle-trips", 1, 0.6, device="cpu")]
    for one in lines:
        append_line(tmp_path / "detection.jsonl", one)
    (table,) = trip_tables(read_results(tmp_path), "detection")
    assert table.note.endswith("On a CPU in fp32, and without trips on a GPU in bf16: Transformer with trips.")
