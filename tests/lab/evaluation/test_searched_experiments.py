"""Experiments whose deep methods choose their settings on validation: the same trials for each, one choice for all."""

from dataclasses import replace
from pathlib import Path

import pytest

from ustad.files import read_json
from ustad.lab.evaluation.experiments import BUDGETS, EXPERIMENTS, Cell, plan
from ustad.lab.evaluation.fitted_models import Budget
from ustad.lab.evaluation.result_files import read_lines
from ustad.lab.evaluation.runner import Ran, run
from ustad.lab.evaluation.sources import Source

TOWN = Source("town", agents=20, days=16, anomalous_share=0.2)
SEARCHED = replace(BUDGETS["tiny"], search=2)
RESULTS = Path(__file__).parents[3] / "results" / "paper"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two seeds of a method that is searched and of one that has nothing to search by: (lines, work directory)."""
    place = tmp_path_factory.mktemp("searched")
    cells = plan(["detection"], [TOWN], 2, SEARCHED, methods=["nov-online", "visit-rate"], past=False)
    assert run(cells, place / "results", place / "work", "cpu") == Ran(4, 0)
    return read_lines(place / "results" / "detection.jsonl"), place / "work"


def test_the_choice_of_the_first_seed_is_every_seeds_and_stands_in_the_line(finished):
    lines, work = finished
    (study,) = (read_json(path) for path in work.glob("searches/**/search.json"))
    best = min(study["trials"], key=lambda trial: trial["loss"])
    assert (study["about"]["method"], study["about"]["seed"], len(study["trials"])) == ("nov-online", 7, 2)
    chosen = [line["settings"] for line in lines if line["method"] == "nov-online"]
    assert chosen == [{"epochs": 1, "width": 16, **best["settings"]}] * 2
    assert [read_json(p)["settings"]["hidden"] for p in work.glob("models/**/method.json") if "nov" in str(p)] == [
        best["settings"]["hidden"]
    ] * 2
    assert all(line["budget"]["search"] == 2 for line in lines)
    assert [line["settings"] for line in lines if line["method"] == "visit-rate"] == [{}, {}]


def test_searching_is_counted_with_fitting_and_never_twice(finished):
    for line in finished[0]:
        assert 0 <= line["fit_seconds"] <= line["seconds"] + 0.05  # each rounded for itself


def test_a_search_makes_other_cells_and_other_models():
    with_search, without = (Cell("scores", TOWN, 7, budget) for budget in (SEARCHED, BUDGETS["tiny"]))
    assert with_search.key != without.key
    assert SEARCHED.key != BUDGETS["tiny"].key
    assert "search" not in BUDGETS["tiny"].to_dict()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_results_without_a_search_keep_their_keys(name):
    options = {key for each in EXPERIMENTS[name].options for key in each}
    place = RESULTS.parent / "gps" if name == "gps" else RESULTS
    lines = [line for line in read_lines(place / f"{name}.jsonl") if not line["budget"].get("search")]
    assert lines
    for line in lines:
        source = Source(**{k: v for k, v in line["source"].items() if k != "events"})
        asked = {key: line[key] for key in options if key in line}
        assert Cell(name, source, line["seed"], Budget(**line["budget"]), asked).key == line["key"]
