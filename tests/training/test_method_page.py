"""The tables of docs/method.md say what the result files say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import method_tables

    yield method_tables
    sys.modules.pop("method_tables", None)


def test_the_tables_of_the_page_are_those_of_the_result_files(tables) -> None:
    page = tables.PAGE.read_text()
    assert tables.filled(page) == page
    for name, (_, source) in tables.BLOCKS.items():
        assert f"<!-- {name}: from benchmarks/results/{source}.json -->" in page
        assert f"<!-- end of {name} -->" in page
