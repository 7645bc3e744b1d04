"""Cells are shared out as jobs of one model each, stop when time is up and go on later with the same results."""

from types import SimpleNamespace

import pytest
import torch

from ustad.lab.evaluation import runner
from ustad.lab.evaluation.experiments import BUDGETS, PAPER, Cell, plan, read_results
from ustad.lab.evaluation.result_files import read_lines
from ustad.lab.evaluation.runner import Ran, run
from ustad.lab.evaluation.sources import Source
from ustad.tables import DataError

TOWN = Source("town", agents=20, days=14, anomalous_share=0.2)
TINY = BUDGETS["tiny"]
LIGHT = ["random", "visit-rate", "distance"]


def figures(place):
    return {line["method"]: line["result"] for line in read_lines(place / "detection.jsonl")}


def test_two_processes_find_what_one_finds(tmp_path):
    cells = plan(["detection"], [TOWN], 1, TINY, methods=LIGHT)
    for workers in (1, 2):
        assert run(cells, tmp_path / str(workers), tmp_path / "work", "cpu", workers=workers) == Ran(3, 0)
    assert figures(tmp_path / "1") == figures(tmp_path / "2")
    assert set(figures(tmp_path / "1")) == set(LIGHT)


def test_no_cell_is_begun_after_the_time_and_another_run_goes_on(tmp_path, monkeypatch):
    cells = plan(["detection"], [TOWN], 1, TINY, methods=LIGHT)
    clock = iter([0.0, 1.0, 61.0, 61.0, 61.0])
    monkeypatch.setattr(runner, "time", SimpleNamespace(time=lambda: next(clock)))  # nobody else's clock
    assert run(cells, tmp_path / "results", tmp_path / "work", "cpu", minutes=1) == Ran(1, 2)
    monkeypatch.undo()
    assert run(cells, tmp_path / "results", tmp_path / "work", "cpu", minutes=1000) == Ran(2, 0)


def test_no_model_is_begun_after_its_time_and_those_begun_end(tmp_path, monkeypatch):
    cells = plan(["detection"], [TOWN], 1, TINY, methods=LIGHT)
    clock = iter([0.0, 1.0, 61.0, 61.0])
    monkeypatch.setattr(runner, "time", SimpleNamespace(time=lambda: next(clock, 61.0)))
    monkeypatch.setattr(runner.Place, "minutes_to_train", lambda place: 0.0)
    assert runner.Place(tmp_path, "cpu").may_begin()
    assert run(cells, tmp_path / "results", tmp_path / "work", "cpu", begin_minutes=1) == Ran(1, 2)


def test_a_cell_that_was_cut_is_run_again_when_asked_and_the_later_line_counts(tmp_path, monkeypatch):
    def note(stopped):
        def line(cell, models):
            return {
                "key": cell.key,
                "experiment": cell.experiment,
                "data": "",
                "method": cell.method,
                "seed": cell.seed,
                "source": {"name": "town"},
                "budget": {},
                "training": {"stopped": stopped[cell.method]},
            }

        return line

    cells = plan(["detection"], [TOWN], 1, TINY, methods=LIGHT)
    stopped = {"random": "patience", "visit-rate": "time", "distance": "epochs"}
    monkeypatch.setattr(runner, "run_cell", note(stopped))
    assert run(cells, tmp_path, tmp_path / "work", "cpu").n_done == 3
    monkeypatch.setattr(runner, "run_cell", note(dict.fromkeys(stopped, "patience")))
    assert run(cells, tmp_path, tmp_path / "work", "cpu").n_done == 0
    assert run(cells, tmp_path, tmp_path / "work", "cpu", cut_again=True).n_done == 1
    assert run(cells, tmp_path, tmp_path / "work", "cpu", cut_again=True).n_done == 0
    told = {line["method"]: line["training"]["stopped"] for line in read_results(tmp_path)["detection"]}
    assert told == {"random": "patience", "visit-rate": "patience", "distance": "epochs"}


@pytest.mark.parametrize("method", ["nov-online", "ustad-default"])
def test_a_network_that_was_cut_is_trained_anew_when_asked_with_the_same_work(tmp_path, method):
    cells = plan(["detection"], [TOWN], 1, TINY, methods=[method], past=False)
    places = tmp_path / "results", tmp_path / "work", "cpu"
    run(cells, *places, fit_minutes=1e-5)
    run(cells, *places, cut_again=True)
    stopped = [line["training"]["stopped"] for line in read_lines(tmp_path / "results" / "detection.jsonl")]
    assert stopped == ["time", "epochs"]
    assert run(cells, *places, cut_again=True).n_done == 0


def test_weeks_that_claims_compare_can_be_asked_for_without_those_between():
    def weeks(*methods):
        return {
            (c.options["weeks"], c.options.get("steps"))
            for c in plan(["uncertainty"], [TOWN], 1, TINY, methods=methods)
        }

    assert weeks("ustad-weeks") == {(1, None), (3, None), (1, "equal")}
    assert weeks("ustad-weeks-between") == {(2, None), (2, "equal")}


def test_cells_of_one_model_are_one_job():
    models = {}
    for cell in plan(PAPER, [TOWN], 1, TINY):
        models.setdefault(cell.model, set()).add(cell.experiment)
    assert models["ustad-plain"] == set(PAPER)
    assert models["transformer"] == {"prediction", "detection"}
    assert models["dual-tr"] == {"prediction", "detection", "uncertainty"}  # also under the name of USTAD-none
    assert models["ustad-plain-1w"] == {"uncertainty"}


def test_methods_are_run_in_the_order_they_are_asked_for(tmp_path, monkeypatch):
    asked = ["visit-rate", "random", "distance"]
    ran = []

    def note(cell, models):
        ran.append((cell.method, cell.seed))
        return {"key": cell.key, "experiment": cell.experiment, "data": ""}

    monkeypatch.setattr(runner, "run_cell", note)
    run(plan(["detection"], [TOWN], [1, 2], TINY, methods=asked), tmp_path, tmp_path / "work", "cpu")
    assert ran == [(method, seed) for method in asked for seed in (1, 2)]


def test_a_network_is_trained_no_longer_than_the_run_has_left(monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "time", SimpleNamespace(time=lambda: 100.0))
    assert runner.Place(tmp_path, "cpu").minutes_to_train() == 0  # until it stops by itself
    assert runner.Place(tmp_path, "cpu", until=220.0).minutes_to_train() == 2
    assert runner.Place(tmp_path, "cpu", until=220.0, fit_minutes=1.0).minutes_to_train() == 1
    assert 0 < runner.Place(tmp_path, "cpu", until=90.0).minutes_to_train() < 0.1  # cut, not endless


def test_an_error_of_any_kind_costs_its_own_cell_only(tmp_path, monkeypatch):
    def broken(cell, models):
        if cell.method == "visit-rate":
            raise RuntimeError("CUDA error: unspecified")
        return {"key": cell.key, "experiment": cell.experiment, "data": "", "method": cell.method}

    monkeypatch.setattr(runner, "run_cell", broken)
    with pytest.raises(DataError, match=r"1 of 3 cells failed.*RuntimeError: CUDA error"):
        run(plan(["detection"], [TOWN], 1, TINY, methods=LIGHT), tmp_path, tmp_path / "work", "cpu")
    assert len(read_lines(tmp_path / "detection.jsonl")) == 2


def test_a_full_gpu_is_asked_again(monkeypatch):
    asked = []

    def full(cell, models):
        asked.append(cell)
        if len(asked) < 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return {"key": cell.key}

    monkeypatch.setattr(runner, "run_cell", full)
    monkeypatch.setattr(runner, "PAUSES", (0.0, 0.0))
    cell = Cell("scores", TOWN, 7, TINY)
    assert runner.attempt(cell, None) == {"key": cell.key}
    asked.clear()
    monkeypatch.setattr(runner, "PAUSES", (0.0,))
    assert "out of memory" in runner.attempt(cell, None)["failed"]
