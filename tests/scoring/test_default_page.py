"""The tables of docs/default.md say what the result files say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import default_page

    yield default_page
    sys.modules.pop("default_page", None)


def test_the_tables_of_the_page_are_those_of_the_result_files(tables) -> None:
    page = tables.PAGE.read_text()
    assert tables.filled(page) == page
    for name, (_, source) in tables.BLOCKS.items():
        assert f"<!-- {name}: from benchmarks/results/{source}.json -->" in page
        assert f"<!-- end of {name} -->" in page


def test_who_is_not_ahead_by_more_than_the_spread_is_named(tables) -> None:
    def runs(*areas: float) -> list[dict[str, list[float]]]:
        return [{"all": [area, 0.5, 0.9, 0.5]} for area in areas]

    said = tables.ahead({"default": runs(0.90, 0.94), "paper": runs(0.89, 0.93), "visit rate": runs(0.5, 0.5)})
    assert "event AUROC (paper)" in said
    assert "event AUROC (visit rate)" not in said
