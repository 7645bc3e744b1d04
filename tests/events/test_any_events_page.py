"""The table of docs/any-events.md says what the result file says, and the page has no figure from elsewhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import example_tables

    yield example_tables
    for name in ("example_tables", "marked_pages"):
        sys.modules.pop(name, None)


def test_the_results_of_the_page_are_those_of_the_result_file(tables: Any) -> None:
    page = tables.PAGE.read_text()
    assert "<!-- results: from benchmarks/results/examples.json -->" in page
    assert tables.filled(page) == page
    assert tables.filled(page.replace("| random |", "| chance |")) == page


def test_no_measured_figure_stands_outside_the_marks(tables: Any) -> None:
    around = re.sub(r"<!-- results: from .*?<!-- end of results -->", "", tables.PAGE.read_text(), flags=re.DOTALL)
    assert re.findall(r"\b0\.\d{3}\b", around) == []
    assert "AUROC" not in around


def test_a_method_ahead_of_ustad_is_named_and_the_best_is_bold(tables: Any) -> None:
    methods = {name: {"auroc": [0.5, 0.1], "ap": [0.1, 0.0]} for name in tables.METHODS}
    methods["pyod"] = {"auroc": [0.75, 0.1], "ap": [0.05, 0.0]}
    assert tables._behind(methods, "cards") == ["- **cards, AUROC**: USTAD has 0.500; ahead: PyOD IForest, 0.750."]
    assert tables._cell(methods, "pyod") == "**0.750** ± 0.100 / 0.050 ± 0.000"
