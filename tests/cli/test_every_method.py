"""Every method of the registry from the command line: trained, scored, evaluated, searched, and the same in Python."""

import dataclasses
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from one_call import run

from ustad import progress
from ustad.dataset import load_directory, save_directory
from ustad.lab.baselines import REGISTRY, find, make
from ustad.lab.baselines import search as searching
from ustad.lab.baselines.search import has_loss, space
from ustad.simulate import simulate_tables

SHORT = {
    "epochs": 1, "width": 8, "blocks": 1, "context_blocks": 1, "heads": 2, "trials": 5, "hidden": 16, "latent": 2,
    "samples": 2, "neighbours": 3, "sample": 200,
}  # fmt: skip


@pytest.fixture(scope="module")
def small_town(tmp_path_factory):
    """The directory of a town of 10 people over 12 days; three of them do unusual things in the last."""
    path = tmp_path_factory.mktemp("small") / "town"
    save_directory(simulate_tables("town", agents=10, days=12, seed=5, anomalous_share=0.3), path)
    return path


def short(name: str) -> dict[str, int]:
    """The smallest budget that a method's settings allow."""
    if name.startswith("pyod"):
        pytest.importorskip("pyod")
    known = {f.name for f in dataclasses.fields(find(name).settings_class)}
    return {key: value for key, value in SHORT.items() if key in known}


def options(settings: dict[str, int]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@pytest.mark.parametrize("name", REGISTRY)
def test_it_is_trained_scored_and_evaluated_by_verbs_as_in_python(capsys, small_town, tmp_path, name):
    settings, able = short(name), find(name).abilities
    asked = ("--method", name, "--seed", "9", "--device", "cpu", *options(settings))
    code, out, err = run(capsys, "lab", "train", small_town, *asked, "--json", "--out", tmp_path / "model")
    assert code == 0, err
    told = json.loads(out)
    assert (told["method"], told["seed"]) == (name, 9)
    assert told["settings"].items() >= settings.items()
    assert (told["validation_loss"] is not None) == has_loss(name)

    flagged = ("--top", "3") if able.scores_events else ()
    code, _, err = run(capsys, "score", tmp_path / "model", small_town, *flagged, "--out", tmp_path / "scores")
    assert code == 0, err
    data = load_directory(small_town)
    again = make(name, data.schema, 9, device="cpu", **settings).fit(data).score(data)
    for level, expected in (("events", again.events), ("agents", again.agents)):
        path = tmp_path / "scores" / f"{level}.parquet"
        assert path.exists() == (expected is not None) == getattr(able, f"scores_{level}")
        if expected is not None:
            assert np.allclose(pq.read_table(path)["score"], expected["score"], rtol=1e-5, atol=1e-7, equal_nan=True)
    if able.scores_events:
        assert sum(pq.read_table(tmp_path / "scores" / "events.parquet")["alert"].to_pylist()) == 3
        assert len((tmp_path / "scores" / "alerts.csv").read_text().splitlines()) == 4

    code, out, err = run(capsys, "lab", "evaluate", tmp_path / "scores", "--no-baselines", "--json")
    assert code == 0, err
    figures = json.loads(out)[name]
    assert set(figures) == ({"events", "incidents", "agents"} if able.scores_events else {"agents"})
    assert all(0 <= level["auroc"] <= 1 and level["positives"] > 0 for level in figures.values())


@pytest.mark.parametrize("name", [name for name in REGISTRY if not find(name).abilities.scores_events])
def test_a_method_that_scores_agents_only_flags_no_events(capsys, small_town, tmp_path, name):
    asked = ("--method", name, *options(short(name)), "--out", tmp_path / "model")
    assert run(capsys, "lab", "train", small_town, *asked)[0] == 0
    code, _, err = run(capsys, "score", tmp_path / "model", small_town, "--top", "3", "--out", tmp_path / "scores")
    assert code == 1
    assert f"{name} scores agents only" in " ".join(err.split())
    assert not (tmp_path / "scores" / "run.json").exists()


def test_scores_of_agents_leave_nothing_of_events_that_were_scored_there_before(capsys, small_town, tmp_path):
    for name in ("distance", "ibat"):
        assert run(capsys, "lab", "train", small_town, "--method", name, "--out", tmp_path / name)[0] == 0
    assert run(capsys, "score", tmp_path / "distance", small_town, "--top", "3", "--out", tmp_path / "scores")[0] == 0
    assert run(capsys, "score", tmp_path / "ibat", small_town, "--out", tmp_path / "scores")[0] == 0
    assert {p.name for p in (tmp_path / "scores").iterdir()} == {"agents.parquet", "run.json"}
    figures = json.loads(run(capsys, "lab", "evaluate", tmp_path / "scores", "--json")[1])
    assert set(figures["ibat"]) == {"agents"}


USTAD = ("--preset", "quick")


@pytest.mark.parametrize(
    "methods", [("distance", "ustad"), ("ustad-none", "ustad"), ("ustad", "ibat"), ("ibat", "ustad-none")]
)
def test_a_model_written_over_one_of_another_method_is_the_new_one(capsys, small_town, tmp_path, methods):
    for name in methods:
        asked = ("train", *USTAD) if name == "ustad" else ("lab", "train", "--method", name, *options(short(name)))
        code, _, err = run(capsys, *asked, small_town, "--out", tmp_path / "model")
        assert code == 0, err
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())["files"]
    assert set(manifest) <= {p.name for p in (tmp_path / "model").iterdir()}
    assert ("method.json" in manifest) == (tmp_path / "model" / "method.json").exists() == (methods[1] != "ustad")
    assert run(capsys, "score", tmp_path / "model", small_town, "--out", tmp_path / "scores")[0] == 0
    assert json.loads((tmp_path / "scores" / "run.json").read_text()).get("method", "ustad") == methods[1]


@pytest.mark.parametrize(
    ("verb", "word"),
    [
        (("score", "MODEL", "DATA", "--explain", "3"), "--explain needs scores made of terms"),
        (("score", "MODEL", "DATA", "--coverage", "0.9"), "need a model of the method ustad"),
        (("forget", "MODEL", "1"), "cannot forget"),
        (("train", "DATA", "--from", "MODEL"), "--from carries on models of the method ustad"),
    ],
)
def test_what_only_ustad_can_do_is_refused_in_words(capsys, small_town, tmp_path, verb, word):
    model = tmp_path / "model"
    assert run(capsys, "lab", "train", small_town, "--method", "distance", "--out", model)[0] == 0
    named = {"MODEL": model, "DATA": small_town}
    out = () if verb[0] == "forget" else ("--out", tmp_path / "out")
    code, _, err = run(capsys, *(named.get(part, part) for part in verb), *out)
    assert code in (1, 2)
    assert word in " ".join(err.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["gm-vsae", "transformer", "lightpath", "nov-online", "ustad-none"])
def test_learning_shows_its_progress_unless_it_is_to_be_quiet(capsys, small_town, tmp_path, monkeypatch, name):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1.0)
    asked = ("--method", name, *options(short(name)))
    assert "1 of 1 after" in run(capsys, "lab", "train", small_town, *asked, "--out", tmp_path / "m")[2]
    said = run(capsys, "--quiet", "lab", "train", small_town, *asked, "--out", tmp_path / "n")[2].splitlines()
    assert all(line.startswith("warning: ") for line in said), "warnings are shown whatever --quiet says"


# ------------------------------------------------------------------------------------------- what there is
def test_methods_tells_what_each_can_do_and_names_ustad_itself(capsys):
    rows = {row["name"]: row for row in json.loads(run(capsys, "lab", "methods", "--json")[1])}
    assert list(rows) == ["ustad", *REGISTRY]
    for name in REGISTRY:
        able = dataclasses.asdict(find(name).abilities)
        assert {key: rows[name][key] for key in able} == able
    table = run(capsys, "lab", "methods")[1]
    assert all(name in table for name in ("ustad-plain", "lightpath", "predicts"))


@pytest.mark.parametrize("name", ["ustad", *REGISTRY])
def test_one_method_tells_its_settings_and_what_a_search_tries(capsys, name):
    told = json.loads(run(capsys, "lab", "methods", name, "--json")[1])
    tried = {row["name"]: tuple(row["search"]) for row in told["settings"] if row["search"]}
    if name == "ustad":
        assert set(tried) == {"training.mask_ratio", "model.width", "model.event_blocks"}
    else:
        assert tried == space(name)
    code, table, _ = run(capsys, "lab", "methods", name)
    assert code == 0
    assert all(row["name"] in table for row in told["settings"])


def test_an_unknown_method_is_refused_with_a_suggestion(capsys):
    code, _, err = run(capsys, "lab", "methods", "transfomer")
    assert code == 1
    assert "did you mean 'transformer'" in " ".join(err.split())


# -------------------------------------------------------------------------------------------------- search
FIXED = {"epochs": 1, "latent": 2, "width": 8}


def test_a_search_leaves_settings_that_train_takes_and_goes_on_where_it_was(capsys, small_town, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(searching, "make", lambda *a, **k: (made.append(k), make(*a, **k))[1])
    asked = ("lab", "tune", small_town, "--method", "gm-vsae", *options(FIXED), "--json", "--out", tmp_path / "search")
    assert run(capsys, *asked, "--trials", 1)[0] == 0
    code, out, err = run(capsys, *asked, "--trials", 2)
    assert code == 0, err
    assert [k["clusters"] for k in made] == [5, 10]  # the default first, and none of them twice
    best, trials = json.loads(out), json.loads((tmp_path / "search" / "trials.json").read_text())
    assert best["loss"] == trials[0]["loss"] == min(t["loss"] for t in trials)
    file = tmp_path / "search" / "best.yaml"
    assert yaml.safe_load(file.read_text()) == {**FIXED, **best["settings"]}
    trained = run(
        capsys, "lab", "train", small_town, "--method", "gm-vsae", "--config", file, "--json", "--out", tmp_path / "m"
    )
    assert json.loads(trained[1])["validation_loss"] == best["loss"]


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        (("--method", "ibat", "--set", "trials=7"), "ibat has no validation loss"),
        (("--method", "visit-rate"), "visit-rate has no validation loss"),
        (("--method", "ctle", "--preset", "quick"), "--preset is for the method ustad"),
        (("--method", "ctle", "--set", "widht=8"), "did you mean 'width'"),
    ],
)
def test_a_search_refuses_what_it_cannot_do(capsys, small_town, tmp_path, asked, word):
    code, _, err = run(capsys, "lab", "tune", small_town, *asked, "--out", tmp_path / "search")
    assert code == 1
    assert word in " ".join(err.split())
    assert not (tmp_path / "search").exists()


def test_a_search_does_not_go_on_with_another_ones_trials(capsys, small_town, tmp_path):
    asked = (
        "lab",
        "tune",
        small_town,
        "--trials",
        1,
        "--out",
        tmp_path / "search",
        *options({"epochs": 1, "width": 8}),
    )
    assert run(capsys, *asked, "--method", "atrom")[0] == 0
    code, _, err = run(capsys, *asked, "--method", "nov-online")
    assert code == 1
    assert "a search of another method" in " ".join(err.split())


def test_searches_of_ustad_and_of_a_method_do_not_write_over_each_other(capsys, small_town, tmp_path):
    pytest.importorskip("optuna")
    asked = ("lab", "tune", small_town, "--trials", 1)
    ours = (*asked, *options({"training.epochs": 1, "model.trips": "none"}))
    theirs = (*asked, "--method", "atrom", *options({"epochs": 1, "width": 8}))
    for first, second in ((ours, theirs), (theirs, ours)):
        place = tmp_path / ("ours" if first == ours else "theirs")
        code, _, err = run(capsys, *first, "--out", place)
        assert code == 0, err
        best, trials = (place / "best.yaml").read_bytes(), (place / "trials.json").read_bytes()
        code, _, err = run(capsys, *second, "--out", place)
        assert code == 1
        assert "holds a search of another method" in " ".join(err.split())
        assert (place / "best.yaml").read_bytes() == best
        assert (place / "trials.json").read_bytes() == trials
