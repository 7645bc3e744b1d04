"""Experiments whose deep methods choose their settings on validation: the same trials for each, one choice for all."""

from dataclasses import replace
from pathlib import Path

import pytest

from ustad.cli.lab.experiment import read_changes, refuse_reported
from ustad.config import ConfigError
from ustad.files import read_json
from ustad.lab.evaluation.budgets import Budget
from ustad.lab.evaluation.experiments import BUDGETS, EXPERIMENTS, Cell, plan, read_results
from ustad.lab.evaluation.fitted_models import PEOPLE_TO_SEARCH
from ustad.lab.evaluation.result_files import read_lines
from ustad.lab.evaluation.runner import Ran, run
from ustad.lab.evaluation.sources import Source

TOWN = Source("town", agents=20, days=16, anomalous_share=0.2)
SEARCHED = replace(BUDGETS["tiny"], search=2)
RESULTS = Path(__file__).parents[3] / "results" / "paper"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two seeds with other people of a method that is searched and of one that has nothing to search by: (lines, work
    directory)."""
    place = tmp_path_factory.mktemp("searched")
    cells = plan(["detection"], [TOWN], (1, 2), SEARCHED, methods=["nov-online", "visit-rate"], past=False)
    assert run(cells, place / "results", place / "work", "cpu") == Ran(4, 0)
    return read_lines(place / "results" / "detection.jsonl"), place / "work"


def test_one_choice_on_people_of_its_own_is_every_seeds_and_stands_in_the_line(finished):
    lines, work = finished
    (place,) = work.glob("searches/**/search.json")
    study = read_json(place)
    assert place.parent.parent.name == TOWN.with_people(PEOPLE_TO_SEARCH).key
    assert {line["source"]["seed"] for line in lines} == {1, 2}
    best = min(study["trials"], key=lambda trial: trial["loss"])
    assert (study["about"]["method"], study["about"]["seed"], len(study["trials"])) == ("nov-online", 7, 2)
    chosen = [line["settings"] for line in lines if line["method"] == "nov-online"]
    assert chosen == [{"epochs": 1, "width": 16, **best["settings"]}] * 2
    assert [read_json(p)["settings"]["hidden"] for p in work.glob("models/**/method.json") if "nov" in str(p)] == [
        best["settings"]["hidden"]
    ] * 2
    assert all(line["budget"]["search"] == 2 for line in lines)
    assert [line["settings"] for line in lines if line["method"] == "visit-rate"] == [{"spread": False}] * 2


def test_searching_is_counted_with_fitting_and_never_twice(finished):
    for line in finished[0]:
        assert 0 <= line["fit_seconds"] <= line["seconds"] + 0.05  # each rounded for itself


def test_a_search_makes_other_cells_and_other_models():
    with_search, without = (Cell("scores", TOWN, 7, budget) for budget in (SEARCHED, BUDGETS["tiny"]))
    assert with_search.key != without.key
    assert SEARCHED.key != BUDGETS["tiny"].key
    assert "search" not in BUDGETS["tiny"].to_dict()


def test_what_is_tried_are_cells_and_models_of_their_own_and_stands_apart(tmp_path):
    tiny = BUDGETS["tiny"]
    budgets = [tiny.with_changes(read_changes(text)) for text in ("as-is", "hidden=8")]
    assert budgets[0] == tiny
    people = replace(TOWN, seed=101)
    cells = [c for b in budgets for c in plan(["detection"], [people], [101], b, methods=["nov-online"], past=False)]
    assert run(cells, tmp_path / "results", tmp_path / "work", "cpu") == Ran(2, 0)
    files = [read_json(path)["settings"] for path in (tmp_path / "work").glob("models/**/method.json")]
    assert sorted(settings["hidden"] for settings in files) == [8, 128]
    results = read_results(tmp_path / "results")
    assert not results["detection"]  # people of a development seed are in no table of results
    assert [line["budget"].get("changes") for line in results["tried"]] == [None, {"hidden": 8}]
    assert [line["budget"]["name"] for line in results["tried"]] == ["tiny", "tiny-hidden=8"]


def test_changes_are_read_by_name_and_refused_where_a_method_has_no_such_setting():
    assert read_changes("width=128,mask_ratio=0.3,name=word") == (
        ("mask_ratio", 0.3), ("name", "word"), ("width", 128),
    )  # fmt: skip
    for text in ("", "width", "width=", "=3", "width=1,width=2"):
        with pytest.raises(ConfigError, match="NAME=VALUE"):
            read_changes(text)
    with pytest.raises(ConfigError, match="nov-online has no setting 'blocks'"):
        Budget().with_changes((("blocks", 5),)).settings("nov-online")


def test_nothing_is_tried_on_people_that_figures_are_reported_of():
    changed = BUDGETS["tiny"].with_changes((("hidden", 8),))
    refuse_reported(plan(["detection"], [TOWN], [100, 101], changed))
    refuse_reported(plan(["detection"], [TOWN], [1], BUDGETS["tiny"]))
    refuse_reported(plan(["detection"], [replace(TOWN, path="somewhere")], [1], changed))
    with pytest.raises(ConfigError, match="people of seed 99 are reported of"):
        refuse_reported(plan(["detection"], [TOWN], [101, 99], changed))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_results_without_a_search_keep_their_keys(name):
    options = {key for each in EXPERIMENTS[name].options for key in each}
    place = RESULTS.parent / "gps" if name == "gps" else RESULTS
    lines = [line for line in read_lines(place / f"{name}.jsonl") if not line["budget"].get("search")]
    assert lines
    for line in lines:
        source = Source(**{k: v for k, v in line["source"].items() if k not in ("events", "people")})
        asked = {key: line[key] for key in options if key in line}
        assert Cell(name, source, line["seed"], Budget(**line["budget"]), asked).key == line["key"]
