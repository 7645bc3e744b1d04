"""The tables of docs/scoring.md say what the result files say, and its flags exist."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ustad.cli import app

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import scoring_tables

    yield scoring_tables
    sys.modules.pop("scoring_tables", None)


def test_the_tables_of_the_page_are_those_of_the_result_files(tables: Any) -> None:
    page = tables.PAGE.read_text()
    assert tables.filled(page) == page
    for name in tables.BLOCKS:
        assert f"<!-- {name}: from benchmarks/results/" in page
        assert f"<!-- end of {name} -->" in page


def test_every_flag_of_the_page_is_one_of_the_verb(tables: Any) -> None:
    named = set(re.findall(r"`ustad score [^`]*`|`(--[a-z-]+)", tables.PAGE.read_text())) - {""}
    helped = CliRunner().invoke(app, ["score", "--help"], terminal_width=200, env={"COLUMNS": "200"}).output
    assert named
    assert {flag for flag in named if flag not in helped} == set()
