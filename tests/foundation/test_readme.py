"""The README tells the truth: its links lead somewhere, its verbs exist, its quick start runs."""

import os
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest
import typer

from ustad.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = ("test", "setup-tests")
CODE = ("src", "tests", "benchmarks", "examples")
#: The file that a reader of the page about baselines writes.
EXAMPLES = {"baselines/gru.py"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not link.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_verbs_that_are_named_exist(page):
    verbs = {c.name or c.callback.__name__ for c in app.registered_commands}
    verbs |= {g.name or g.typer_instance.info.name for g in app.registered_groups}
    named = set(re.findall(r"(?:^|`)ustad ([a-z]+)", page.read_text(), re.M))
    assert named <= verbs, named - verbs


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_options_of_a_command_that_is_shown_exist(page):
    """`ustad VERB … --option`, on a line of an example or in running text; a line that ends with \\ goes on."""
    text = page.read_text().replace("\\\n", " ")
    for line in re.findall(r"(?:^|`)ustad ([a-z][^\n`#]*)", text, re.M):
        command = typer.main.get_command(app)
        for word in line.split():
            if word in getattr(command, "commands", {}):
                command = command.commands[word]
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert set(re.findall(r"(?<!\S)--[a-z][a-z-]*", line)) <= known | {"--help", "--version"}, line


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_of_code_that_are_named_exist(page):
    """`habits/questions.py` may stand for the file in src/ustad, whose folder a page about the package leaves out."""
    code = {str(path.relative_to(ROOT)) for folder in CODE for path in (ROOT / folder).rglob("*.py")}
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)\b", re.sub(r"```.*?```", "", page.read_text(), flags=re.S)))
    assert [
        name for name in sorted(named - EXAMPLES) if not any(f"/{path}".endswith(f"/{name}") for path in code)
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_names_of_the_package_that_are_named_exist(page):
    """In running text (`ustad.schema.mobility_schema`) and in what examples import."""
    text = page.read_text()
    named = set(re.findall(r"`(ustad(?:\.[a-z_]+)+)[`(]", text))
    for module, names in re.findall(r"^from (ustad[\w.]*) import ([\w, ]+)", text, re.M):
        named |= {f"{module}.{name.strip()}" for name in names.split(",")}
    for name in named:
        pkgutil.resolve_name(name)


def test_make_targets_that_are_named_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(), re.M)) <= targets


def test_make_test_installs_no_system_packages():
    """`make -n` prints what would be run; packages of the system are for `make setup-tests` alone."""
    would_run = {t: subprocess.run(["make", "-n", t], cwd=ROOT, capture_output=True, text=True).stdout for t in TARGETS}
    assert "requirements.sh" not in would_run["test"]
    assert "apt-get" not in would_run["test"]
    assert "requirements.sh" in would_run["setup-tests"]
    called = [line for line in (ROOT / ".ci/run").read_text().splitlines() if "make " in line]
    assert "make setup-tests" in called[0]
    assert called[-1] == "make test"


def test_the_quick_start_runs(tmp_path, monkeypatch, capsys):
    code = re.search(r"## Quick start\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(code.group(1), "README.md", "exec"), {})
    reason = capsys.readouterr().out.strip()
    assert reason.endswith(".")
    assert reason.startswith(("At ", "Left "))
    assert "sure: " in reason.lower()
    assert os.path.exists("runs/model/habits.parquet")
