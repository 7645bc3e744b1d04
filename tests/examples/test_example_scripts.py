"""The three examples run from end to end, tiny, and say the same for the same seed."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ustad.schema import EventSchema
from ustad.schema_infer import check

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("cards", "shop", "app_usage")


@pytest.fixture(autouse=True)
def _examples_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_writes_data_model_scores_figures_and_report(name, tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyod")
    monkeypatch.setattr(sys, "argv", [name, "--small", "--seeds", "1", "--out", str(tmp_path)])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "PyOD ECOD" in said
    assert "ahead of" in said
    results = json.loads((tmp_path / "figures.json").read_text())["results"]
    assert set(results) == {"ustad", "random", "visit-rate", "pyod", "pyod-ecod"}
    assert all(0 <= value <= 1 for figures in results.values() for value in figures["auroc"] + figures["ap"])
    page = (tmp_path / "report.html").read_text()
    schema = EventSchema.from_yaml(EXAMPLES / f"{name}.yaml")
    assert schema.event_word in page
    scores = pq.read_table(tmp_path / "scores" / "events.parquet")
    assert pc.sum(scores["alert"]).as_py() > 0
    reasons = scores.filter(scores["alert"])["reason"].to_pylist()
    assert all(reasons)
    assert not any("stay" in text or " km" in text for text in reasons)


@pytest.mark.parametrize("name", NAMES)
def test_an_examples_data_follow_from_its_seed_and_keep_its_schema(name):
    simulate = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="example")["simulate"]
    events, labels = simulate(3, True)
    again, _ = simulate(3, True)
    other, _ = simulate(4, True)
    assert events.equals(again)
    assert not events.equals(other)
    schema = EventSchema.from_yaml(EXAMPLES / f"{name}.yaml")
    assert check(schema, events) == []
    ends = pc.min_max(events[schema.time]).as_py()
    named = labels
    if schema.event_id is not None:
        named = events.filter(pc.is_in(events[schema.event_id], labels[schema.event_id].combine_chunks()))
    assert 0 < named.num_rows < 0.2 * events.num_rows
    assert pc.min(named[schema.time]).as_py() > ends["min"] + (ends["max"] - ends["min"]) / 2.2
