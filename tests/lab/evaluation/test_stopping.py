"""What ended a training, and that figures of two rules of stopping are never mixed without saying it."""

import pytest

from ustad.config import Config
from ustad.lab.baselines import find
from ustad.lab.evaluation.experiments import DETECTORS, PREDICTORS
from ustad.lab.evaluation.fairness_tables import find_unfinished, say_older_rule, training_tables
from ustad.lab.evaluation.fitted_models import WHOLE_PRESETS, class_name
from ustad.lab.evaluation.result_tables import FEWER_SEEDS, best_deep, detection_tables, prediction_tables
from ustad.lab.evaluation.runner import is_cut
from ustad.lab.evaluation.standing import lead
from ustad.lab.evaluation.stopping import OLDER_RULE, WITH_VARIANCES, count_ended, is_of_older_rule, say_stopped

TOWN = "town (9 agents)"


def trained(method, seed=1, converged=True, **facts):
    training = {
        "epochs": 9, "steps": 90, "best_loss": 1.0, "seconds": 3.0, "stopped": "patience" if converged else "time",
        "converged": converged, **facts,
    }  # fmt: skip
    areas = {"auroc": 0.8, "ap": 0.1}
    return {
        "experiment": "detection", "data": TOWN, "source": {"name": "town"}, "method": method, "window": "day",
        "seed": seed, "result": {"events": areas, "agents": areas}, "training": training,
    }  # fmt: skip


def test_the_methods_that_predict_variances_are_those_whose_network_does():
    presets = {name: Config.preset(preset).model for name, preset in WHOLE_PRESETS.items()}
    own = {m for m, model in presets.items() if model.network == "dual" and model.uncertainty in ("both", "aleatoric")}
    classes = {m: find(class_name(m)) for m in {*DETECTORS, *PREDICTORS} - set(WHOLE_PRESETS)}
    own |= {m for m, kind in classes.items() if getattr(kind, "uncertainty", "none") in ("both", "aleatoric")}
    assert own == set(WITH_VARIANCES)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "–"),
        ([trained("transformer"), trained("transformer", 2, converged=False)], "1 of 2"),
        ([trained("ustad-plain"), trained("ustad-plain", 2)], "2 of 2 †"),
        ([trained("ustad-plain"), trained("ustad-plain", 2, left_out=0.01)], "2 of 2 (1 †)"),
        ([trained("ustad-plain", left_out=0.01)], "1 of 1"),
    ],
)
def test_trainings_of_the_older_rule_are_marked_and_counted_where_they_are_mixed(lines, words):
    assert count_ended(lines) == words


def test_of_two_trainings_both_must_have_ended_and_both_are_added_up():
    first = trained("ctle", converged=False, epochs=4, steps=40, seconds=2.0, targets=400)["training"]
    whole = trained("ctle", targets=900)
    cut = trained("ctle", targets=900, locations=first)
    assert (count_ended([whole]), count_ended([cut])) == ("1 of 1", "0 of 1")
    assert [is_cut(line) for line in (whole, cut, {})] == [False, True, False]
    assert [say_stopped(line["training"]) for line in (whole, cut)] == ["patience", "time, patience"]
    results = {"detection": [cut]}
    assert find_unfinished(results) == [f"CTLE on {TOWN} (1 of 1)"]
    (table,) = training_tables(results)
    row = dict(zip(table.heads, table.rows[0], strict=True))
    names = ("epochs", "steps", "targets", "seconds", "stopped by itself")
    assert [row[name] for name in names] == ["13", "130", "1,300", "5", "0 of 1"]
    assert "Of CTLE two trainings" in table.note
    first["converged"] = True
    assert find_unfinished(results) == []


def test_a_cell_without_a_method_is_of_ustad_and_one_without_training_of_no_rule():
    line = trained("ustad-plain")
    del line["method"]
    assert is_of_older_rule(line)
    assert not is_of_older_rule({**line, "training": {}})


def test_networks_of_the_older_rule_are_named_by_data_set_with_their_seeds_where_mixed():
    lines = [trained("ustad-plain", 1), trained("ustad-plain", 2, left_out=0.01), trained("ustad-au", 1)]
    lines += [trained("ctle", 1), {**trained("ustad-plain", 1), "data": "other"}]
    assert say_older_rule(lines) == (
        f"Stopped by the older rule (†): on {TOWN} USTAD (seeds 1) · USTAD-AU; on other USTAD."
    )
    assert say_older_rule([trained("ustad-plain", left_out=0.01), trained("ctle")]) == ""


def test_tables_with_the_mark_say_what_it_means_and_others_do_not():
    for lines, is_marked in (([trained("ustad-au")], True), ([trained("ustad-au", left_out=0.01)], False)):
        rows = [{"term": "x", "rejected": 0.0, "mae": 1.0, "mape": 2.0}]
        predicted = [{**line, "result": {"rows": rows}} for line in lines]
        tables = [detection_tables(lines)[0], *prediction_tables(predicted)]
        tables += training_tables({"detection": lines, "prediction": []})
        assert len(tables) == 3
        assert {OLDER_RULE in table.note for table in tables} == {is_marked}
        assert {"†" in table.markdown() for table in tables} == {is_marked}


def test_networks_that_were_trained_without_a_gpu_are_named_where_others_had_one():
    with_gpu, without = {**trained("transformer"), "device": "cuda"}, {**trained("atrom"), "device": "cpu"}
    (table,) = training_tables({"detection": [with_gpu, without]})
    assert f"in fp32 where a GPU has bf16: on {TOWN} ATROM." in table.note
    for lines in ([with_gpu], [without]):
        (table,) = training_tables({"detection": lines})
        assert "fp32" not in table.note


def test_an_improvement_is_over_the_same_people_and_rows_of_fewer_seeds_are_pointed_at():
    ours, other = trained("ustad-plain"), trained("transformer")
    others_people = trained("transformer", seed=2)
    others_people["result"] = {"events": {"auroc": 0.1, "ap": 0.1}, "agents": {"auroc": 0.1, "ap": 0.1}}
    (few,) = detection_tables([ours, other, others_people])
    assert "+0.0 % (Transformer)" in few.rows[-1]
    assert FEWER_SEEDS in few.note
    (same,) = detection_tables([ours, other])
    assert same.rows[-1] == few.rows[-1]
    assert FEWER_SEEDS not in same.note


def test_baselines_that_stopped_by_training_events_too_are_marked_until_they_are_run_anew():
    older, newer = ({**trained("sensitive-hue"), "versions": v} for v in ({"ustad": "0.3.0"}, {"code": "abc"}))
    assert [count_ended([line]) for line in (older, newer)] == ["1 of 1 †", "1 of 1"]
    assert count_ended([{**trained("transformer"), "versions": {}}]) == "1 of 1"
    untrained = {key: value for key, value in older.items() if key != "training"}
    assert not is_of_older_rule(untrained)


def test_the_best_baseline_is_the_best_on_the_people_that_ustad_was_run_on():
    ours = [trained("ustad-plain", seed) for seed in (1, 2)]
    others = [trained("transformer", seed) for seed in (1, 2)]
    elsewhere = [trained("ctle", 1), trained("ctle", 9)]
    elsewhere[0]["result"] = {level: {"auroc": 0.5, "ap": 0.1} for level in ("events", "agents")}
    elsewhere[1]["result"] = {level: {"auroc": 0.999, "ap": 0.9} for level in ("events", "agents")}
    lines = [*ours, *others, *elsewhere]
    assert best_deep(lines, TOWN, "events", "auroc") == ("transformer", pytest.approx(0.8), 0.0)
    fewer = [trained("ctle", 2)]  # the harder of two data sets was not asked of it
    fewer[0]["result"] = {level: {"auroc": 0.85, "ap": 0.1} for level in ("events", "agents")}
    ours[1]["result"] = {level: {"auroc": 0.9, "ap": 0.1} for level in ("events", "agents")}
    margin, _ = lead([*ours, *others, *fewer], TOWN, "events")
    assert margin == pytest.approx(0.9 - 0.85)
