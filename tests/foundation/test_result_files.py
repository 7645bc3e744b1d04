"""Result files say by which version, when, under what load and by which command they were made."""

import json
import re
import sys
from pathlib import Path

import pytest

import ustad

REPOSITORY = Path(__file__).parents[2]
MEASURED = sorted((REPOSITORY / "benchmarks" / "results").glob("*.json"))
CELLS = sorted((REPOSITORY / "results").glob("*/*.jsonl"))
FACTS = ("versions", "date", "load_at_start", "command")
#: Measured before every script wrote these facts. A file that is measured again leaves the list; none joins it.
OLDER = {
    "baselines-town-100-cpu", "baselines-town-500-cpu", "calibrated", "complexity",
    "devices",
    "extraction", "fuzz", "history", "kills", "lasting", "learning-simla", "learning",
    "machines-cuda", "moving_history", "report", "robust", "scoring-cuda",
    "scoring", "service", "service_quick", "service_scorer_cuda",
    "simulation", "single_runs_cuda", "takeout", "training", "training_cuda", "verdicts",
}  # fmt: skip


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("path", CELLS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_cell_of_an_experiment_is_of_this_version_and_says_how_it_was_made(path):
    lines = read_lines(path)
    assert lines
    assert {line["versions"]["ustad"] for line in lines} == {ustad.__version__}
    assert [line["key"] for line in lines if not (line["date"] and line["command"] and line["load"] >= 0)] == []
    assert len({line["key"] for line in lines}) == len(lines)


def test_every_measured_file_says_how_it_was_made_but_those_of_a_list_that_can_only_shrink():
    without = {path.stem for path in MEASURED if not all(name in json.loads(path.read_text()) for name in FACTS)}
    assert without == OLDER


@pytest.mark.parametrize("path", [*CELLS, *MEASURED], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_result_file_names_no_directory_of_a_machine(path):
    assert re.findall(r"(?<![\w.:/<>-])/[\w.-]+/[\w./-]*", path.read_text()) == []


def test_a_result_file_is_written_with_the_facts_of_its_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    from measured import write_result

    monkeypatch.setattr(sys, "argv", ["/somewhere/benchmarks/speed.py", "--out", "/somewhere/else", "--agents", "5"])
    before = {"rows": [1], "date": "2020-01-01", "versions": {"ray": "2"}, "hardware": {"threads": 2}}
    write_result(tmp_path / "new" / "speed.json", before)
    content = json.loads((tmp_path / "new" / "speed.json").read_text())
    assert content["rows"] == [1]
    assert content["date"] > "2026"
    assert content["versions"]["ustad"] == ustad.__version__
    assert content["versions"]["ray"] == "2"
    assert content["hardware"] == {"threads": 2}
    assert content["command"] == "python benchmarks/speed.py --out else --agents 5"
    assert content["load_at_start"] >= 0
