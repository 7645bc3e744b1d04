"""The tables of docs/scaling.md say what the result files say."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_tables_of_the_page_are_those_of_the_result_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import scaling_tables

    page = scaling_tables.PAGE.read_text()
    assert scaling_tables.filled(page) == page
    for name, (_, source) in scaling_tables.BLOCKS.items():
        assert f"<!-- {name}: from benchmarks/results: {source} -->\n|" in page
        assert f"|\n<!-- end of {name} -->" in page
