"""Figures of our presets by two states of the code are never side by side without saying it."""

import shutil
from pathlib import Path

import pytest

import ustad
from ustad.lab.evaluation import result_files
from ustad.lab.evaluation.code_states import say_older_code

METRICS = "lab/evaluation/detection_metrics.py"
NAMES = {"ustad-default": "best", "ustad-quick": "quick", "transformer": "Transformer"}


def line(method, date, code=None):
    return {"method": method, "date": date, "versions": {"ustad": "1", **({"code": code} if code else {})}}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ""),
        ([line("ustad-quick", "2026-01-01")], ""),  # nobody says of which code it is
        ([line("ustad-quick", "2026-01-02", "b"), line("ustad-default", "2026-01-02", "b")], ""),
        ([line("ustad-quick", "2026-01-02", "b"), line("transformer", "2026-01-01")], ""),
        (
            [line("ustad-quick", "2026-01-03", "b"), line("ustad-default", "2026-01-01", "a")],
            "Of our presets, made by earlier code than the others: best (2026-01-01).",
        ),
        (
            [
                line("ustad-quick", "2026-01-03", "b"),
                line("ustad-quick", "2026-01-02"),
                line("ustad-quick", "2026-01-01", "a"),
            ],
            "Of our presets, made by earlier code than the others: quick (2026-01-01 to 2026-01-02).",
        ),
        (  # of one day: nobody knows which was first
            [line("ustad-quick", "2026-01-03", "b"), line("ustad-default", "2026-01-03", "a")],
            "Our presets were made by several states of the code: quick (2026-01-03), best (2026-01-03).",
        ),
    ],
)
def test_presets_of_earlier_code_are_named_with_their_dates(lines, words):
    assert say_older_code(lines, NAMES) == words


def test_the_code_has_another_name_once_a_file_that_makes_scores_is_another(tmp_path, monkeypatch):
    place = tmp_path / "ustad"
    shutil.copytree(Path(ustad.__file__).parent, place, ignore=shutil.ignore_patterns("__pycache__", "*.nb?"))
    monkeypatch.setattr(ustad, "__file__", str(place / "__init__.py"))
    name_of = result_files.code.__wrapped__  # each time from the files
    names = [name_of()]
    for file in ("page/__init__.py", "habits/questions.py", "detector.py", "config/sections.py", "ties.py", METRICS):
        with (place / file).open("a") as source:
            source.write("# another line\\n")
        names.append(name_of())
    assert names[0] == names[1]
    assert len(set(names[1:])) == 6
