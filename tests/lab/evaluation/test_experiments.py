"""The seven experiments on a tiny town: every cell, its files, tables, figures and page."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.stats import spearmanr

from ustad.cli.lab.experiment import read_seeds
from ustad.config import Config, ConfigError
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.lab.baselines.protocol import agents_by_worst, event_table
from ustad.lab.evaluation import experiments, fitted_models, runner
from ustad.lab.evaluation import page as page_module
from ustad.lab.evaluation.ablated_scores import combine
from ustad.lab.evaluation.budgets import Budget
from ustad.lab.evaluation.cells import _wide, figures
from ustad.lab.evaluation.experiments import BUDGETS, DETECTORS, EXPERIMENTS, PAPER, Cell, plan, read_results
from ustad.lab.evaluation.fairness_tables import WITH_NETWORKS
from ustad.lab.evaluation.figures import plan_figures
from ustad.lab.evaluation.fitted_models import USTAD, FittedModels, detector_of
from ustad.lab.evaluation.page import generated_from, page_text, publish
from ustad.lab.evaluation.page_words import QUESTIONS
from ustad.lab.evaluation.result_files import command, plain_json, read_lines
from ustad.lab.evaluation.result_tables import format_mean
from ustad.lab.evaluation.runner import Ran, run
from ustad.lab.evaluation.sources import Source, parse_source
from ustad.scores import Scores
from ustad.tables import DataError

REPOSITORY = Path(__file__).parents[3]
TOWN = Source("town", agents=30, days=21, anomalous_share=0.2)
TINY = BUDGETS["tiny"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """All seven experiments on a tiny town: (result directory, work directory)."""
    place = tmp_path_factory.mktemp("experiments")
    cells = plan(PAPER, [TOWN], 1, TINY)
    assert run(cells, place / "results", place / "work", "cpu") == Ran(len(cells), 0)
    return place / "results", place / "work"


@pytest.fixture(scope="module")
def models(finished):
    return FittedModels(TOWN, experiments.FIRST_SEED, TINY, finished[1], device="cpu")


def test_every_cell_of_every_experiment_has_one_line_that_says_how_it_was_made(finished):
    results = read_results(finished[0])
    for name in PAPER:
        lines = [line for part in (name, f"{name} of best", f"{name} with trips") for line in results.get(part, [])]
        assert len(lines) == len(EXPERIMENTS[name].options)
        for line in lines:
            assert line["source"]["name"] == "town"
            assert line["source"]["events"] > 1000
            assert line["seed"] == experiments.FIRST_SEED
            assert line["budget"]["name"] == "tiny"
            assert line["versions"]["torch"]
            assert len(line["versions"]["code"]) == 8
            assert line["hardware"]["cores"] >= 1
            assert line["seconds"] >= 0
            assert line["date"] >= "2026-01-01"
            assert line["load"] >= 0


def test_every_learned_method_says_how_long_it_was_trained_and_why_it_stopped(finished):
    """One epoch is allowed, so none of them stopped by itself."""
    results = read_results(finished[0])
    untrained = {"random", "distance", "ibat", "ustad-quick", *(n for n in DETECTORS if n.startswith("visit-rate"))}
    for line in (line for part in WITH_NETWORKS for line in results[part]):
        assert ("training" in line) == (line["method"] not in untrained), line["method"]
        if "training" in line:
            told = line["training"]
            assert (told["epochs"], len(told["curve"]), told["converged"]) == (1, 1, False)
            assert told["stopped"] == "epochs"
            assert told["best_loss"] == pytest.approx(told["curve"][0], abs=1e-4)
            assert told["steps"] >= 1
            # Of `best` some windows are cut and some spans masked at random: it does not count its questions.
            assert ("targets" in told) == (line["method"] != "ustad-default"), line["method"]


def test_events_count_three_ways(models):
    """Scores that know what was inserted or changed: perfect where it was meant, blind to what stands beside it."""
    labels, test = models.data.labels, models.test
    meant = labels.filter(pc.not_equal(labels["role"], "neighbour"))["stay_id"]
    beside = set(labels["stay_id"].to_pylist()) - set(meant.to_pylist())
    score = pc.is_in(test["stay_id"], meant.combine_chunks()).to_numpy().astype(float)
    schema = models.data.schema
    told = figures(models, Scores(event_table(test, schema, score), agents_by_worst(test, schema, score)))
    assert told["meant"]["auroc"] == told["meant"]["ap"] == 1
    assert told["events"]["positives"] - told["meant"]["positives"] == len(beside) > 0
    assert told["events"]["n"] - told["meant"]["n"] == len(beside)
    assert told["events"]["auroc"] < told["incidents"]["auroc"]


def test_a_finished_cell_is_not_run_again(finished, monkeypatch):
    before = (finished[0] / "scores.jsonl").read_bytes()
    monkeypatch.setattr(runner, "run_cell", lambda *_: pytest.fail("a finished cell was run again"))
    assert run(plan(PAPER, [TOWN], 1, TINY), *finished, "cpu").n_done == 0
    assert (finished[0] / "scores.jsonl").read_bytes() == before


def test_a_run_killed_in_the_middle_of_a_line_goes_on_and_gives_the_same_result(finished, tmp_path):
    whole = (finished[0] / "detection.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "detection.jsonl").write_text("".join(whole[:-1]) + whole[-1][: len(whole[-1]) // 2])
    assert run(plan(["detection"], [TOWN], 1, TINY), tmp_path, finished[1], "cpu").n_done == 1
    again = read_lines(tmp_path / "detection.jsonl")
    assert [x["key"] for x in again] == [json.loads(x)["key"] for x in whole]
    assert again[-1]["result"] == json.loads(whole[-1])["result"]


def test_a_cell_that_fails_is_named_and_the_others_are_kept(finished, tmp_path, monkeypatch):
    def failing(models, kind, **_):
        if kind == "swap":
            raise DataError("no room")
        return {"kind": kind}

    injections = EXPERIMENTS["injections"]
    monkeypatch.setitem(EXPERIMENTS, "injections", experiments.Experiment("", failing, injections.options))
    with pytest.raises(DataError, match=r"1 of 7 cells failed.*no room"):
        run(plan(["injections"], [TOWN], 1, TINY, methods=["ustad-plain"]), tmp_path, finished[1], "cpu")
    assert len(read_lines(tmp_path / "injections.jsonl")) == 6


def test_a_different_budget_seed_or_source_is_a_different_cell():
    cells = [
        Cell("scores", source, seed, budget)
        for source in (TOWN, Source("town", agents=31))
        for seed in (7, 8)
        for budget in (TINY, BUDGETS["small"])
    ]
    assert len({cell.key for cell in cells}) == 8
    assert cells[0].key == Cell("scores", TOWN, 7, TINY).key


@pytest.mark.parametrize(("preset", "batch"), [("paper", 512), ("best", Config.preset("best").training.batch_size)])
def test_a_budget_sets_the_batches_of_the_paper_alone(preset, batch, monkeypatch, tmp_path):
    configs = []

    class Fitted(Detector):
        def fit(self, data):
            configs.append(self.config)
            return self

        def save(self, place):
            """Nothing was learned."""

    monkeypatch.setattr(fitted_models, "Detector", Fitted)
    monkeypatch.setattr(FittedModels, "data", None)
    FittedModels(TOWN, 3, BUDGETS["large"], tmp_path, device="cpu").preset_detector(preset)
    assert [c.training.batch_size for c in configs] == [batch]


def test_measuring_gives_the_scores_of_the_detector_itself(models):
    found = models.measure(USTAD)
    run = detector_of(models.fit_model(USTAD)).score(models.test, models.before, details=True)
    scores, details = run.events, run.details
    assert scores["stay_id"].to_pylist() == found.events["stay_id"].to_pylist()
    np.testing.assert_allclose(combine(found.parts), scores["score"].to_numpy(), rtol=1e-5)
    assert details["stay_id"].to_pylist() == found.events["stay_id"].to_pylist()
    np.testing.assert_allclose(found.columns["error_duration"], details["error_duration"].to_numpy(), rtol=1e-4)


def test_a_window_of_the_past_changes_what_is_measured(models):
    day, past = models.measure(USTAD).parts.loss, models.measure(USTAD, "past").parts.loss
    assert day.shape == past.shape
    assert not np.allclose(day, past, equal_nan=True)


def test_fewer_weeks_with_equal_steps_are_gone_through_more_often(tmp_path, monkeypatch):
    """Epochs times days of training stay the same, and so does how long is waited for a better epoch."""
    asked = []

    class Fitted:
        training = ()

        def fit(self, train, validation):
            asked[-1]["days"] = len(np.unique(Dataset(train).days()))

    def make(method, schema, seed, device, **settings):
        asked.append(settings)
        return Fitted()

    monkeypatch.setattr(fitted_models, "make", make)
    monkeypatch.setattr(fitted_models, "save", lambda *_: None)
    town = FittedModels(Source("town", agents=10, days=56), 7, Budget(epochs=12, patience=4), tmp_path, device="cpu")
    for weeks, equal in ((3, True), (1, True), (2, True), (1, False)):
        town.fit_model(USTAD, weeks, equal)
    assert [(found["epochs"], found["patience"], found["days"]) for found in asked] == [
        (12, 4, 21), (36, 12, 7), (18, 6, 14), (12, 4, 7),
    ]  # fmt: skip


def test_detection_lines_agree_with_the_scores_of_the_same_model(finished):
    results = read_results(finished[0])
    ours = next(x for x in results["detection"] if x["method"] == USTAD and x["window"] == "day")
    for level in ("events", "agents"):
        assert ours["result"][level] == results["scores"][0]["result"]["loss_knn"][level]


def test_unchanged_agents_count_as_ordinary_among_injections(finished):
    for line in read_results(finished[0])["injections"]:
        told = line["result"]
        labelled = sum(box["n"] for name, box in told["boxes"].items() if name != "normal")
        assert 0 < labelled == told["changed"]["positives"] <= told["positives"] < told["n"]
        assert told["boxes"]["normal"]["n"] == told["n"] - told["positives"]


def test_injected_events_take_the_highest_score_of_those_beside_them(finished):
    days = np.array(["2024-01-03", "2024-01-01", "2024-01-02"], "datetime64[us]")
    untouched = pa.table({"agent_id": ["a", "a", "a"], "started_at": days})
    altered = pa.table({"agent_id": ["b", "b"], "started_at": days[:2]})
    wide = _wide(untouched, altered, np.array([5.0, 1.0, 2.0, 9.0, 0.5]))
    assert wide.tolist() == [5.0, 2.0, 5.0, 9.0, 9.0]
    for name in ("injections", "injections of best"):
        for line in read_results(finished[0])[name]:
            result = line["result"]
            assert set(result["incidents"]["scores"]) == set(result["changed"]["scores"]) == set(result["scores"])


def test_our_preset_is_asked_about_the_same_injected_events(finished):
    results = read_results(finished[0])
    counts = [
        {line["kind"]: (line["result"]["n"], line["result"]["positives"]) for line in results[name]}
        for name in ("injections", "injections of best")
    ]
    assert counts[0] == counts[1]


def test_calibrated_scores_order_normal_events_as_ranks_do_and_tell_far_ones_apart(models):
    fitted = models.fit_model("transformer")
    ranked = fitted.score(models.test, models.before).events["score"].to_numpy()
    calibrated = fitted.rate_calibrated(models.test, models.before, models.validation, models.train)
    assert spearmanr(ranked, calibrated)[0] > 0.8
    assert len(np.unique(calibrated)) >= len(np.unique(ranked))


def test_hexagons_hold_every_event_once(finished, models):
    told = read_results(finished[0])["epistemic"][0]["result"]
    assert sum(told["hexagons"]["count"]) + told["hexagons"]["left_out"] == models.test.num_rows
    for bins in told["terms"].values():
        assert sum(bins["count"]) + bins["left_out"] == models.test.num_rows


def test_cases_are_chosen_by_rule_and_hold_no_coordinates_or_identifiers(finished, models):
    result = read_results(finished[0])["cases"][0]["result"]
    cases = result["cases"]
    assert [c["kind"] for c in cases] == 2 * ["predictable", "predictable", "novel", "novel"]
    assert {(c["among"], c["labelled"]) for c in cases[4:]} == {("labelled events", "event")}
    assert all(0 <= share["false"] <= share["shown"] for share in result["shares"].values())
    (ours,) = read_results(finished[0])["cases of best"]
    cases = [*cases, *ours["result"]["cases"]]
    assert cases[2]["knn_percentile"] == 1.0
    assert all(c["eu_percentile"] <= 0.5 for c in cases[:2])
    text = json.dumps(cases)
    assert "lat" not in text.replace("labelled", "")
    assert str(models.test["stay_id"][0]) not in text
    for case in cases:
        day, low, high, word = case["event"][0]
        assert [day, low, high, word] in case["test"]


def test_the_page_is_made_from_the_result_files_alone(finished, tmp_path):
    pytest.importorskip("matplotlib")
    page = publish([finished[0]], tmp_path / "results.md", tmp_path / "figures")
    text = page.read_text()
    assert text == page_text(read_results(finished[0]), finished[0].as_posix(), "figures")
    assert generated_from(text) == [finished[0].as_posix()]
    assert "small run" in text
    assert "other data than the paper's" in text
    for name in PAPER:
        assert (f"## {QUESTIONS[name]}" if name in QUESTIONS else f"### Experiment `{name}`:") in text
    shown_files = {part.split(")")[0] for part in text.split("](figures/")[1:]}
    assert shown_files == {p.name for p in (tmp_path / "figures").iterdir()}
    assert all((tmp_path / "figures" / name).stat().st_size > 1000 for name in shown_files)
    assert {p.suffix for p in (finished[0] / "tables").iterdir()} == {".md", ".csv"}


def test_an_unknown_experiment_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="detection"):
        plan(["detections"], [TOWN], 1, TINY)


def test_cells_can_be_chosen_by_method():
    cells = plan(["detection"], [TOWN], 2, TINY, methods=["visit-rate", "transformer"])
    assert [(c.options["method"], c.options["window"]) for c in cells[:3]] == [
        ("visit-rate", "day"),
        ("transformer", "day"),
        ("transformer", "past"),
    ]
    assert len(cells) == 6
    with pytest.raises(ConfigError, match="no experiment has the method 'ustad'"):
        plan(["detection"], [TOWN], 1, TINY, methods=["ustad"])


def test_sources_are_presets_with_sizes_or_paths(tmp_path):
    assert parse_source("numosim-la:2000", None, 11, None, share=None).agents == 2000
    assert parse_source("simla", 50, 11, None, share=0.1) == Source("simla", None, 50, 11, None, 0.1)
    assert parse_source(f"pol_atl={tmp_path}", None, 11, None, share=None) is None
    assert parse_source(str(tmp_path), None, 11, None, share=None).path == str(tmp_path)
    with pytest.raises(DataError, match="neither a preset"):
        parse_source("numosim", None, 11, None, share=None)


def test_results_never_say_where_on_a_machine_the_data_was(tmp_path):
    assert str(tmp_path) not in json.dumps(Source("mine", str(tmp_path)).to_dict())


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "–"),
        ([0.5], "0.500"),
        ([0.5, 0.7], "0.600 (n = 2)"),
        ([0.5, 0.7, None, 0.5, 0.7], "0.600 (n = 4)"),
        ([0.4, 0.5, 0.6, 0.7, 0.8], "0.600 ± 0.158"),
        ([None, 0.5], "0.500"),
    ],
)
def test_figures_over_data_sets_are_a_mean_and_from_five_on_a_sample_deviation(values, text):
    assert format_mean(values) == text


def test_what_is_not_a_number_is_null_in_a_result_file():
    assert plain_json({"a": math.nan, "b": [np.float32(1.23456789)]}) == {"a": None, "b": [1.23457]}


@pytest.fixture(scope="module")
def stored():
    """The page in the repository, the result directories it names, and what they hold."""
    page = REPOSITORY / "docs" / "evidence" / "results.md"
    if not page.exists():
        pytest.skip("no results page in this checkout")
    places = generated_from(page.read_text())
    return page, places, read_results(*(REPOSITORY / place for place in places))


def test_the_page_in_the_repository_agrees_with_its_result_files(stored):
    page, places, results = stored
    assert page.read_text() == page_text(results, ", ".join(places), "../figures/results")


def test_the_figures_in_the_repository_are_those_of_the_page_and_no_others(stored):
    page, _, results = stored
    names = [name for figures in plan_figures(results).values() for name, _ in figures]
    files = {path.name for path in (page.parents[1] / "figures" / "results").iterdir()}
    assert files == {f"{name}.png" for name in names}


def test_the_tables_in_the_repository_are_those_of_the_result_files_and_no_others(stored, tmp_path, monkeypatch):
    _, places, results = stored
    monkeypatch.setattr(page_module, "read_results", lambda *_: results)
    monkeypatch.setattr(page_module, "draw_all", lambda *_: None)
    publish([tmp_path], tmp_path / "results.md", tmp_path / "figures")
    written, kept = (
        {path.name: path.read_text() for path in (place / "tables").iterdir()}
        for place in (tmp_path, REPOSITORY / places[0])
    )
    assert set(kept) == set(written)
    assert [name for name in written if kept[name] != written[name]] == []


def test_seeds_by_name_are_of_the_people_too():
    cells = plan(["scores"], [TOWN], [3, 5], TINY)
    assert [(cell.seed, cell.source.seed) for cell in cells] == [(3, 3), (5, 5)]
    assert len({cell.key for cell in cells}) == 2
    cells = plan(["scores"], [TOWN], 2, TINY)
    assert {cell.source.seed for cell in cells} == {TOWN.seed}
    files = Source("pol_atl", path="somewhere")
    assert plan(["scores"], [files], [3], TINY)[0].source == files


@pytest.mark.parametrize(("text", "seeds"), [("3", 3), ("1-3", [1, 2, 3]), ("2,7-8", [2, 7, 8]), ("3-3,2-3", [3, 2])])
def test_seeds_are_a_number_or_named(text, seeds):
    assert read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "5-1", "1-"])
def test_seeds_that_say_nothing_are_refused(text):
    with pytest.raises(ConfigError, match="--seeds"):
        read_seeds(text)


def test_a_result_names_its_command_without_directories():
    words = [
        "lab",
        "experiment",
        "all",
        "--data",
        "pol_atl=/a/b",
        "--out",
        "/c/d",
        "--seeds",
        "1-5",
        "--work=/e",
        "-o",
        "x",
    ]
    assert command(words) == "ustad lab experiment all --data pol_atl=DIRECTORY --seeds 1-5"
    assert command(["score", "model"]) == ""
    words = ["lab", "benchmark", "urban-anomalies", "--data", "here", "--out", "there", "--seeds", "3"]
    assert command(words) == "ustad lab benchmark urban-anomalies --data DIRECTORY --seeds 3"
