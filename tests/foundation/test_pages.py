"""Every table of the docs that is written from result files says what they say; no figure of theirs is typed."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from ustad.habits.questions import TERMS
from ustad.scoring.entity_tests import TESTS

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = [
    *("baselines", "city_tables", "example_tables", "extraction_tables"),
    *("habit_tables", "hiding_tables"),
    *("method_tables", "research_tables", "scaling_tables", "scoring_tables", "service_tables", "simulation_tables"),
]
MARK = re.compile(r"<!-- ([^:>]+): from ([^>]*) -->")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    """A script of benchmarks/, by name."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return importlib.import_module(request.param)


@pytest.fixture
def marked_pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return importlib.import_module("marked_pages")


@pytest.mark.parametrize("script", SCRIPTS, indirect=True)
def test_the_tables_of_a_page_are_those_of_the_result_files(script: ModuleType, marked_pages: ModuleType) -> None:
    page = script.PAGE.read_text()
    assert marked_pages.filled(page, script.BLOCKS) == page
    assert [name for name, _ in MARK.findall(page)] == list(script.BLOCKS)
    assert re.findall(r"<!-- end of (.*) -->", page) == list(script.BLOCKS)


def test_every_page_with_marks_is_written_by_a_script_and_its_files_are_there(marked_pages: ModuleType) -> None:
    pages = {str(path): MARK.findall(path.read_text()) for path in marked_pages.DOCS.rglob("*.md")}
    assert tuple(SCRIPTS) == marked_pages.SCRIPTS
    assert sum(bool(marks) for marks in pages.values()) == len(SCRIPTS)
    for name, marks in pages.items():
        for _, sources in marks:
            files = re.findall(r"[\w/-]+\.jsonl?", sources)
            folders = (marked_pages.RESULTS, marked_pages.DOCS.parent)
            assert files
            assert all(any((folder / file).exists() for folder in folders) for file in files), name


def test_a_page_without_the_marks_is_refused(marked_pages: ModuleType) -> None:
    page = "<!-- speed: from benchmarks/results/a.json -->\nold\n<!-- end of speed -->\n"
    assert marked_pages.with_block(page, "speed", "new") == page.replace("old", "new")
    with pytest.raises(ValueError, match="no marks of the block 'memory'"):
        marked_pages.with_block(page, "memory", "new")


def test_a_file_without_version_or_date_is_named_under_its_block(
    marked_pages: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(marked_pages, "RESULTS", tmp_path)
    facts: dict[str, dict[str, object]] = {
        "whole": {"versions": {"ustad": "0.3.0", "code": "0123abcd"}, "date": "2026-11-18 22:45 UTC"},
        "version": {"machine": {"ustad": "0.2.0"}},
        "nothing": {},
        "other": {"versions": {"torch": "2"}},
    }
    for name, content in facts.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    sources = "benchmarks/results/whole.json, version.json, nothing.json, other.json and results/paper/cells.jsonl"
    page = f"<!-- speed: from {sources} -->\nold\n<!-- end of speed -->\n"
    note = "`version.json`: ustad 0.2.0, date not noted; `nothing.json`, `other.json`: version and date not noted."
    assert marked_pages.filled(page, {"speed": lambda: "new"}) == page.replace("old", f"new\n\n{note}")
    assert marked_pages.say_made(facts["whole"]) == "ustad 0.3.0 (code 0123abcd), 2026-11-18 22:45 UTC"
    said = "`version.json`, `nothing.json` and `other.json` are old"
    assert marked_pages.filled(page, {"speed": lambda: said}) == page.replace("old", said)


@pytest.mark.parametrize("script", ["scoring_tables"], indirect=True)
def test_a_goal_of_scoring_that_is_missed_is_said_to_be(script: ModuleType, marked_pages: ModuleType) -> None:
    gpu, cpu = marked_pages.read("scoring-cuda"), marked_pages.read("scoring")
    cpu["bulk"] |= {"events_per_s": 249.0, "cpu_ms_per_event": 10.0}
    cpu["hardware"]["threads"] = 2
    cpu["live"]["events_per_s"] = 80.0
    gpu["live"]["ms"] = 3.0
    said = script.goals(gpu, cpu).splitlines()
    assert "| 2 CPU cores | in bulk ≥ 250 events/s | 249 events/s; by its processor time 200 | missed |" in said
    assert "| 2 CPU cores | live ≥ 80 events/s | 80 events/s | met |" in said
    assert any(line.endswith("| live < 3 ms | 3.0 ms | missed |") for line in said)
    gpu["neighbours"]["queries"] = 1_000
    assert "not measured" in script.goals(gpu, cpu)


@pytest.mark.parametrize("script", ["service_tables"], indirect=True)
def test_a_goal_of_the_service_is_met_at_its_limit_and_memory_is_not_judged_too_soon(script: ModuleType) -> None:
    assert [script.judged(x, (50, True)) for x in (49.9, 50)] == ["missed", "met"]
    assert [script.judged(x, (10, False)) for x in (10, 10.1)] == ["met", "missed"]
    memory = {"minutes": 10.0, "growth_mb_per_10_min": 141.0}
    assert script._cell({"memory": memory}, "memory", "growth_mb_per_10_min") == "141.0 (missed)"
    memory["minutes"] = 1.0
    assert "not judged: 1 min" in script._cell({"memory": memory}, "memory", "growth_mb_per_10_min")


@pytest.mark.parametrize("script", ["baselines"], indirect=True)
@pytest.mark.parametrize(("threads", "head"), [(1, "1 CPU thread,"), (2, "2 CPU threads,")])
def test_seconds_of_baselines_say_on_how_many_threads(
    script: ModuleType, threads: int, head: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = {"threads": threads, "methods": {"random": {"cpu_s": 1.0}}}
    (tmp_path / script.TOWN).write_text(json.dumps(found))
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    said = script.seconds_by_method()
    assert head in said.splitlines()[0]
    assert "`ustad-none` shares the fit of `dual-tr`" in said


@pytest.mark.parametrize("script", ["baselines"], indirect=True)
def test_a_baseline_that_takes_too_long_is_named_and_a_town_half_measured_is_not_judged(script: ModuleType) -> None:
    slow = script._told_gpu({"mlp": [(120.0, 1.0), (20.0, 1.0)], "lstm": [(1.0, 1.0)], "pyod": []})
    assert "all but `mlp`" in slow
    assert "(missed)" in slow
    assert "`mlp` with 121.0 s" in slow
    assert "`pyod`" in slow.split("Not measured there:")[1]
    assert "not known" in script._told_town({"methods": {"random": {"fit_s": 1.0, "score_s": 1.0}}})


@pytest.mark.parametrize("script", ["habit_tables"], indirect=True)
def test_the_parts_of_habits_are_those_of_the_rule_and_none_stands_twice(script: ModuleType) -> None:
    rows = [line.split(" | ")[0].strip("| ") for line in script.parts("development").splitlines()[4:]]
    assert rows[0] == "all"
    assert script.SAME not in rows
    assert {f"without {question}" for question in TERMS} < set(rows)
    assert {f"without the test {test}" for test in TESTS} < set(rows)


@pytest.mark.parametrize("script", ["example_tables"], indirect=True)
def test_no_measured_figure_of_the_examples_stands_outside_the_marks(script: ModuleType) -> None:
    around = re.sub(r"<!-- results: from .*?<!-- end of results -->", "", script.PAGE.read_text(), flags=re.DOTALL)
    assert re.findall(r"\b0\.\d{3}\b", around) == []
    assert "AUROC" not in around


@pytest.mark.parametrize("script", ["example_tables"], indirect=True)
def test_a_method_ahead_of_ustad_is_named_and_the_best_is_bold(script: ModuleType) -> None:
    methods = {name: {"auroc": [0.5, 0.1], "ap": [0.1, 0.0]} for name in script.METHODS}
    methods["pyod"] = {"auroc": [0.75, 0.1], "ap": [0.05, 0.0]}
    assert script._behind(methods, "cards") == ["- **cards, AUROC**: USTAD has 0.500; ahead: PyOD IForest, 0.750."]
    assert script._cell(methods, "pyod") == "**0.750** ± 0.100 / 0.050 ± 0.000"


@pytest.mark.parametrize("script", ["extraction_tables"], indirect=True)
def test_the_demos_rows_count_true_incidents_town_by_town(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def line(seed: int, count: int, method: str, phone: str = "fix a minute") -> dict[str, object]:
        figures = {"true_of_most_unusual": count, "recording": {}}
        return {"data": "town (300 agents)", "phone": phone, "seed": seed, "method": method, "result": figures}

    lines = [line(2, 6, "ustad-quick"), line(1, 0, "visit-rate"), line(1, 9, "ustad-quick", "phone")]
    lines.append(line(1, 10, "ustad-quick"))
    monkeypatch.setattr(script, "read_cells", lambda: lines)
    said = script.demo().splitlines()
    assert "| preset `quick` (ours) | fix a minute | 1: 10, 2: 6 | 8.0 | 6 |" in said
    assert "| visit rate | fix a minute | 1: 0 | 0.0 | 0 |" in said
    assert len(said) == 4  # what a phone records is no demo
    monkeypatch.setattr(script, "read_cells", list)
    assert "Not measured" in script.demo()
    assert "Not measured" in script.gps()
