"""Settings are chosen by validation loss alone, among trials that compare."""

import json

import pytest

from ustad.cli.lab.experiment import with_chosen
from ustad.config import ConfigError
from ustad.lab.evaluation.chosen_settings import choose_settings, chosen_for, validation_loss
from ustad.lab.evaluation.experiments import BUDGETS, plan
from ustad.lab.evaluation.sources import Source


def trial(method, loss, data="town (20 agents)", **options):
    changes = {"changes": {"width": options.pop("width")}} if "width" in options else {}
    return {"method": method, "data": data, "seed": 101, "budget": changes, "training": {"best_loss": loss, **options}}


def test_the_lowest_validation_loss_wins_method_by_method():
    lines = [
        trial("ctle", 2.0), trial("ctle", 1.0, width=32), trial("ctle", 3.0, width=128),
        trial("transformer", 1.0), trial("transformer", 2.0, width=32), {**trial("visit-rate", 0.0), "training": {}},
    ]  # fmt: skip
    choices = choose_settings(lines)
    assert choices == {"ctle": (("width", 32),), "transformer": ()}
    assert chosen_for("nov-online", choices) == ()


def test_labels_and_scores_of_a_trial_decide_nothing():
    lines = [trial("ctle", 2.0), trial("ctle", 1.0, width=32)]
    for line, area in zip(lines, (1.0, 0.0), strict=True):
        line["result"] = {"events": {"auroc": area}}
    assert choose_settings(lines)["ctle"] == (("width", 32),)


def test_variants_and_methods_told_of_trips_take_the_settings_of_the_method_itself():
    choices = choose_settings([trial("ustad-plain", 1.0, width=32), trial("ctle", 1.0, width=128)])
    assert {chosen_for(m, choices) for m in ("ustad-au", "ustad-eu", "ustad-trips")} == {(("width", 32),)}
    assert chosen_for("ctle-trips", choices) == (("width", 128),)


def test_of_a_network_that_weighs_fields_the_loss_without_weights_counts():
    weighed = trial("ustad-plain", -9.0, fields={"x": 1.0, "poi": 2.0}, unweighed=0.5)
    assert validation_loss(weighed) == 0.5
    del weighed["training"]["unweighed"]
    assert validation_loss(weighed) == 3.0
    assert validation_loss(trial("ctle", 2.0)) == 2.0


def test_trials_that_do_not_compare_are_refused():
    with pytest.raises(ConfigError, match="trials are of 2 data sets"):
        choose_settings([trial("ctle", 1.0), trial("ctle", 1.0, "port (20 agents)")])
    older, newer = (trial("ustad-plain", 1.0, fields={"x": 1.0}, **own) for own in ({}, {"unweighed": 1.0}))
    with pytest.raises(ConfigError, match="do not compare; run the older ones again"):
        choose_settings([older, newer])


def test_cells_take_what_the_trials_of_a_directory_choose(tmp_path):
    cells = plan(["detection"], [Source("town", agents=20)], [1], BUDGETS["tiny"], methods=["ctle", "transformer"])
    with pytest.raises(ConfigError, match="no trial is there; make some with --try"):
        with_chosen(cells, tmp_path)
    lines = (trial("ctle", 1.0), trial("ctle", 0.5, width=32))
    (tmp_path / "detection.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    chosen = with_chosen(cells, tmp_path)
    assert {(c.method, c.budget.choices) for c in chosen} == {("ctle", (("width", 32),)), ("transformer", ())}
    assert len({c.key for c in cells} & {c.key for c in chosen if c.method == "ctle"}) == 0
    assert {c.key for c in chosen if c.method == "transformer"} <= {c.key for c in cells}
