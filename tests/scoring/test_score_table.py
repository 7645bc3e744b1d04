"""The tables of scores keep their contract, whoever scored and however it was run; measurements are in details."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from one_verb import run

from ustad.config import Config
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.live.habit_live import HabitLive
from ustad.live.network_live import LiveScorer
from ustad.mobility.readers import open_data
from ustad.schema import mobility_schema
from ustad.scores import Scores, join_details, read_answers
from ustad.scoring import scored_parts
from ustad.scoring.adding_judge import AddingJudge
from ustad.scoring.evidence import evidence_column, withhold_expected
from ustad.scoring.score_table import MEASURED_COLUMN, add_measurements, read_measurements
from ustad.tables import AGENT_SCORES, EVENT_SCORES, INCIDENT_SCORES, check_types

SMALL = {"model.width": 8, "model.heads": 2, "model.event_blocks": 1, "training.epochs": 1, "scoring.samples": 2}
PRESETS = ("best", "quick", "paper")


@pytest.fixture(scope="module", params=PRESETS)
def detector(request: pytest.FixtureRequest, town: Dataset) -> Detector:
    few = town.only(sorted(pc.unique(town.events["agent_id"]).to_pylist())[:12])
    return Detector(Config.preset(request.param).replace(SMALL | {"scoring.neighbours": 5}), device="cpu").fit(few)


@pytest.fixture(scope="module")
def few(town: Dataset) -> Dataset:
    return town.only(sorted(pc.unique(town.events["agent_id"]).to_pylist())[:12])


def check_contract(scores: Scores, given: list[str]) -> None:
    """Exactly the events' own columns and those of the contract, each of its type."""
    own, added = scores.events.column_names[: len(given)], scores.events.column_names[len(given) :]
    assert (sorted(own), added) == (sorted(given), list(EVENT_SCORES.required))
    for table, contract in (
        (scores.events, EVENT_SCORES),
        (scores.agents, AGENT_SCORES),
        (scores.incidents, INCIDENT_SCORES),
    ):
        check_types(table, contract)
    assert scores.details.column_names[:3] == ["stay_id", "agent_id", "started_at"]
    assert {"expected_start", "observed_duration"} <= set(scores.details.column_names)


# --------------------------------------------------------------------------------------------- every executor
def test_scores_in_memory_keep_the_contract(detector: Detector, few: Dataset) -> None:
    scores = detector.score(few)
    check_contract(scores, few.events.column_names)
    in_incidents = scores.events.filter(scores.events["incident_id"].is_valid())
    assert scores.details["stay_id"].equals(in_incidents["stay_id"])
    every = detector.score(few, details=True)
    check_contract(every, few.events.column_names)
    assert every.details["stay_id"].equals(scores.events["stay_id"])
    joined, all_joined = scores.with_details(), every.with_details()
    assert joined.filter(scores.events["incident_id"].is_valid()).equals(
        all_joined.filter(scores.events["incident_id"].is_valid())
    )
    assert joined.filter(scores.events["incident_id"].is_null())["expected_start"].null_count == (
        scores.events["incident_id"].null_count
    )


def test_scores_in_parts_keep_the_contract(detector: Detector, few: Dataset) -> None:
    whole = detector.score(few, details=True)
    parts = list(detector.score_parts(few, details=True, entities=5))
    assert len(parts) == 3
    for part in parts:
        check_contract(part, few.events.column_names)
    details = pa.concat_tables([part.details for part in parts]).sort_by("stay_id")
    for name in details.column_names:
        one, other = details[name], whole.details.sort_by("stay_id")[name]
        if pa.types.is_floating(one.type):
            values = [column.to_numpy(zero_copy_only=False) for column in (one, other)]
            np.testing.assert_allclose(*values, rtol=2e-4, atol=2e-3, err_msg=name)
        elif not pa.types.is_list(one.type):
            assert one.equals(other), name


def test_live_rows_have_the_columns_of_the_contract_and_of_details(detector: Detector, few: Dataset) -> None:
    """An incident is joined by the service, which knows the entity's other events."""
    events = few.between(*_test_days(detector, few))
    whole = detector.score(few, details=True)
    if isinstance(detector.judge, AddingJudge):
        live = HabitLive(detector.judge, since=detector.judge.known_until + 1)
    else:
        live = LiveScorer(detector.paper())
    event = detector.trips.attach(events, few.trips).slice(0, 1).to_pylist()[0]
    row = live.update(event)
    joined_later = {"incident_id", "echo"}
    assert set(EVENT_SCORES.required) - joined_later <= set(row)
    assert set(row) - set(EVENT_SCORES.required) - set(event) == set(whole.details.column_names) - set(event)


def _test_days(detector: Detector, data: Dataset) -> tuple[int, int]:
    split = data.split(detector.config.split)
    return split.test_first, split.test_last


def test_the_verb_writes_details_of_incidents_or_of_every_stay_in_one_file_or_in_parts(
    detector: Detector, town_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector.save(tmp_path / "model")
    for name, more, size in (("some", [], 2_000), ("all", ["--details"], 2_000), ("parts", ["--details"], 5)):
        monkeypatch.setattr(scored_parts, "ENTITIES", size)
        flags = ["--out", tmp_path / name, "--no-group-days", *more]
        assert run("score", tmp_path / "model", town_directory, *flags) == 0
        scores = Scores.load(tmp_path / name)
        check_contract(scores, open_data(town_directory).events.column_names)
        assert (scores.details.num_rows == scores.events.num_rows) == bool(more)
    assert (tmp_path / "parts" / "details").is_dir()


# ------------------------------------------------------------------------------------------------- pieces
def test_a_missing_or_wrong_column_is_a_mistake_that_is_said() -> None:
    with pytest.raises(TypeError, match="incident scores: 'incident_id' is missing, expected string"):
        check_types(pa.table({"score": [1.0]}), INCIDENT_SCORES)
    names = {name: pa.nulls(1, kind) for name, kind in AGENT_SCORES.required.items()}
    check_types(pa.table(names), AGENT_SCORES)
    with pytest.raises(TypeError, match="'score' is int64, expected double"):
        check_types(pa.table({**names, "score": [1]}), AGENT_SCORES)


def test_measurements_travel_in_one_column_and_later_ones_join() -> None:
    table = pa.table({"stay_id": [1, 2]})
    assert read_measurements(table).num_columns == 0
    table = add_measurements(table, {"km": np.array([1.0, np.nan]), "words": pa.array([["a"], []])})
    table = add_measurements(pa.concat_tables([table.slice(1), table.slice(0, 1)]), {"pct": np.array([0.1, 0.2])})
    assert table.column_names == ["stay_id", MEASURED_COLUMN]
    assert read_measurements(table).to_pydict() == {"km": [None, 1.0], "words": [[], ["a"]], "pct": [0.1, 0.2]}


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0], [1], []])
def test_details_are_joined_by_what_tells_events_apart_in_any_order(order: list[int]) -> None:
    moments = pa.array([10, 20, 30], pa.timestamp("us", tz="UTC"))
    events = pa.table({"agent_id": ["a", "a", "b"], "started_at": moments, "stay_id": [7, 8, 7], "score": [1.0, 2, 3]})
    details = events.select(["stay_id", "agent_id", "started_at"]).append_column("km", pa.array([0.0, 1, 2]))
    details = details.append_column("words", pa.array([["x"], ["y"], ["z"]])).take(pa.array(order, pa.int64()))
    joined = join_details(events, details, mobility_schema())
    assert joined["score"].equals(events["score"])
    assert joined["km"].to_pylist() == [float(i) if i in order else None for i in range(3)]
    assert joined["words"].to_pylist() == [[w] if i in order else None for i, w in enumerate("xyz")]
    assert join_details(events, None, mobility_schema()) is events  # written before there were details


def test_withholding_takes_what_was_expected_out_of_the_evidence_and_leaves_the_rest() -> None:
    surprise = {"start": np.array([1.0, 2.0, 3.0]), "far": np.array([1.0, np.nan, 1.0])}
    facts = {"start": {"expected": np.array([60.0] * 3), "spread": np.ones(3), "observed": np.array([70.0, 80, 90])}}
    column = pa.chunked_array([evidence_column(surprise, surprise, facts)])
    kept = pa.chunked_array([withhold_expected(column, np.array([True, False, True]))])
    assert kept.type == column.type
    assert read_answers(kept, "start", "expected").tolist()[::2] == [60.0, 60.0]
    for what in ("expected", "spread"):
        assert np.isnan(read_answers(kept, "start", what)).tolist() == [False, True, False]
    for what in ("surprise", "share", "observed"):
        assert read_answers(kept, "start", what).tolist() == read_answers(column, "start", what).tolist()
