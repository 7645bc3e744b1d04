"""Scores in parts of whole entities against scores of everything at once."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pyarrow as pa
import pytest

from ustad.scoring.alerts import AlertRule
from ustad.scoring.judge import Request
from ustad.scoring.paper_judge import PaperJudge
from ustad.scoring.scored_parts import ScoredParts, score_whole
from ustad.tables import DataError

DAY = 19723 + 10


def _split(stays: pa.Table) -> tuple[pa.Table, pa.Table]:
    late = stays["started_at"].cast(pa.int64()).to_numpy() >= DAY * 86_400_000_000
    return stays.filter(pa.array(~late)), stays.filter(pa.array(late))


def _assert_near(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        is_number = isinstance(value, float)
        assert found[name] == (pytest.approx(value, rel=1e-4, abs=1e-6) if is_number else value), name


def _assert_equal(found: pa.Table, wanted: pa.Table, key: str) -> None:
    assert set(found.column_names) == set(wanted.column_names)
    for one, other in zip(found.sort_by(key).to_pylist(), wanted.sort_by(key).to_pylist(), strict=True):
        for entry, wanted_entry in zip(one.pop("evidence", []), other.pop("evidence", []), strict=True):
            _assert_near(entry, wanted_entry)
        for name, value in other.items():
            if isinstance(value, float):
                assert one[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
            elif not (isinstance(value, list) and value and isinstance(value[0], float)):
                assert one[name] == value, name


@pytest.mark.parametrize("percentiles", ["batch", "calibrated"])
@pytest.mark.parametrize(
    "rule", [AlertRule(), AlertRule("top", 6), AlertRule("fdr", 0.5), AlertRule("alerts_per_day", 3)]
)
def test_parts_equal_the_whole(model: PaperJudge, stays: pa.Table, percentiles: str, rule: AlertRule) -> None:
    model = dataclasses.replace(model, by_rank=percentiles == "batch")
    context, events = _split(stays)
    asked = Request(rule, coverage=0.9, details=True)
    whole = score_whole(model, events, context, asked)
    said = whole.run
    parts = ScoredParts(model, events, context, asked, entities=3)
    made = list(parts)
    assert [len(part.agents) for part in made] == [3, 3, 2]
    for name, key in (("events", "stay_id"), ("details", "stay_id"), ("agents", "agent_id")):
        _assert_equal(pa.concat_tables([getattr(part, name) for part in made]), getattr(whole, name), key)
    assert {"low_duration", "set_poi", "loss_x"} <= set(whole.details.column_names)
    rounded = {name: pytest.approx(said[name]) for name in ("threshold", "by_chance")}
    assert parts.notes == {**said, **rounded}


def test_parts_side_by_side_are_those_one_after_the_other(model: PaperJudge, stays: pa.Table) -> None:
    context, events = _split(stays)
    turn, ways = sys.getswitchinterval(), []
    for at_once in (1, 3):
        parts = ScoredParts(model, events, context, entities=2, at_once=at_once)
        ways.append([part.events for part in parts])
    assert [len(part) for part in ways[0]] == [len(part) for part in ways[1]]
    assert len(ways[0]) == 4
    for one, other in zip(*ways, strict=True):
        assert one["score"].equals(other["score"])
    assert sys.getswitchinterval() == turn


def test_reasons_on_request_and_without_context(model: PaperJudge, stays: pa.Table) -> None:
    _, events = _split(stays)
    every = list(ScoredParts(model, events, None, Request(reasons="all"), entities=5))
    assert sum(part.events["reason"].null_count for part in every) == 0
    none = list(ScoredParts(model, events, None, Request(reasons="none"), entities=5))
    assert sum(part.events["reason"].null_count for part in none) == len(events)


def test_nothing_to_score_is_said(model: PaperJudge, stays: pa.Table) -> None:
    with pytest.raises(DataError, match="empty"):
        ScoredParts(model, stays.slice(0, 0))
    with pytest.raises(ValueError, match="at least 1"):
        ScoredParts(model, stays, entities=0)
