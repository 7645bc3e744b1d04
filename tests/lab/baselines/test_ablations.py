"""The ablations are the detector with one or both uncertainties off."""

import numpy as np
import pytest
from example_towns import town

from ustad import artefact, model_files
from ustad.config import ConfigError
from ustad.lab.baselines import make, storage
from ustad.lab.baselines.storage import load, save
from ustad.network.inference import paper_network

TINY = {"width": 8, "heads": 2, "blocks": 1, "epochs": 2, "samples": 4, "neighbours": 5, "device": "cpu"}


@pytest.fixture(scope="module")
def scored():
    made = {}

    def get(name):
        if name not in made:
            model = make(name, **TINY).fit(town(agents=8, days=6), town(agents=8, days=2, first_day=6))
            made[name] = model, model.score(town(agents=8, days=2, first_day=8), town(agents=8, days=8))
        return made[name]

    return get


@pytest.mark.parametrize(
    ("name", "au", "eu"),
    [
        ("ustad-plain", True, True),
        ("ustad-au", True, False),
        ("ustad-eu", False, True),
        ("ustad-none", False, False),
        ("dual-tr", False, False),
    ],
)
def test_each_has_the_uncertainty_that_its_name_says(name, au, eu, scored):
    model, scores = scored(name)
    assert scores.run["method"] == name
    assert (np.nanmax(scores.details["au_duration"].to_numpy()) > 0) == au
    assert (np.nanmax(scores.details["eu_duration"].to_numpy()) > 0) == eu
    assert model.detector.config.model.trips == "none"
    assert scores.events.num_rows == 64
    assert scores.agents.num_rows == 8


def test_dual_tr_is_ustad_without_uncertainty_under_another_name(scored):
    first, second = (scored(name)[1].events["score"].to_numpy() for name in ("dual-tr", "ustad-none"))
    assert np.array_equal(first, second)


def test_rejection_withholds_the_most_uncertain_share(scored):
    model, scores = scored("ustad-plain")
    test, before = town(agents=8, days=2, first_day=8), town(agents=8, days=8)
    whole, sure = model.predict(test, before), model.predict(test, before, reject=0.25)
    assert (whole.num_rows, sure.num_rows) == (64, 48)
    columns = [c for c in scores.details.column_names if c.startswith(("au_", "eu_"))]
    unsure = np.nansum([scores.details[c].to_numpy() for c in columns], axis=0)
    kept = np.isin(scores.events["stay_id"].to_numpy(), sure["stay_id"].to_numpy())
    assert unsure[kept].max() <= unsure[~kept].min()


def test_a_model_without_uncertainty_has_nothing_to_reject_by(scored):
    model, _ = scored("ustad-none")
    with pytest.raises(ConfigError, match="no uncertainty"):
        model.predict(town(agents=8, days=1, first_day=8), reject=0.05)


def test_validation_begins_where_the_caller_says(scored):
    model, _ = scored("ustad-plain")
    assert model.detector.facts["last_day"] == "2024-01-06"


@pytest.mark.parametrize(
    "step",
    [(storage, "write_json"), (paper_network, "save_file"), (model_files, "card"), (artefact, "write_json")],
    ids=lambda step: step[1],
)
@pytest.mark.parametrize("older", ["ustad-au", "visit-rate"])
def test_saving_that_breaks_off_leaves_the_older_model_whole(older, step, scored, tmp_path, monkeypatch):
    place, events = tmp_path / "model", town(agents=8, days=2, first_day=8)
    model = make(older, device="cpu").fit(town(agents=8, days=6)) if older == "visit-rate" else scored(older)[0]
    save(model, place)
    files, wanted = artefact.check(place), model.score(events).events["score"]

    def broken(*given):
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(*step, broken)
        with pytest.raises(OSError, match="no space left"):
            save(scored("ustad-eu")[0], place)
    assert artefact.check(place) == files
    assert load(place, device="cpu").score(events).events["score"].equals(wanted)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    save(scored("ustad-eu")[0], place)
    assert load(place, device="cpu").name == "ustad-eu"
    assert "method.json" in artefact.check(place)


def test_the_loss_that_lambda_is_searched_by_does_not_grow_with_lambda():
    train, validation = town(agents=8, days=6), town(agents=8, days=2, first_day=6)
    models = [make("ustad-plain", **TINY, category_weight=w).fit(train, validation) for w in (1.0, 10.0)]
    losses = [model.validation_loss for model in models]
    assert losses[1] < losses[0] + 1.0  # ten times the categories' share would add far more
    assert models[1].training["best_loss"] > losses[1] + 5.0
