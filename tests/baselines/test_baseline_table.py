"""The table of seconds on the page of baselines comes from stored results."""

import importlib.util
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_the_table_of_seconds_agrees_with_the_stored_results():
    file = REPOSITORY / "benchmarks" / "baselines.py"
    described = importlib.util.spec_from_file_location("baselines_benchmark", file)
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    page = (REPOSITORY / "docs" / "baselines.md").read_text()
    assert page == module.written(page)
