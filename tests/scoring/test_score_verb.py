"""`ustad score` with everything beside the scores: reasons, intervals, rejection, curves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from one_verb import run

from ustad.scores import read_answers
from ustad.scoring.rejection import WITHHELD

TINY = {"model.width": 16, "model.event_blocks": 1, "training.epochs": 1, "scoring.samples": 4, "scoring.neighbours": 5}


@pytest.fixture(scope="module", params=["paper", "quick"])
def trained(request: pytest.FixtureRequest, town_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp(request.param) / "model"
    settings = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    settings = [*settings, "--set", "model.trips=none"] if request.param == "paper" else []
    assert run("train", town_directory, "--preset", request.param, "--out", place, *settings) == 0
    return place


def test_reasons_intervals_rejection_and_curves_by_flags(
    trained: Path, town_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "scores"
    if trained.parent.name.startswith("quick"):
        for asked in (["--coverage", "0.8"], ["--reject", "0.1"], ["--curves"]):
            assert run("score", trained, town_directory, "--out", out, *asked) == 1
            assert "preset paper" in capsys.readouterr().err
        assert not out.exists()
        return
    flags = ["--reasons", "all", "--coverage", "0.8", "--reject", "0.1", "--reject-by", "standardised", "--curves"]
    capsys.readouterr()
    assert run("score", trained, town_directory, "--out", out, *flags, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    events = pq.read_table(out / "events.parquet")
    withheld = events["withheld"].to_numpy(zero_copy_only=False)
    assert said["coverage"] == 0.8
    assert said["rejected"]["withheld"] == withheld.sum() == pytest.approx(0.1 * len(events), abs=2)
    uncertainty = events["uncertainty"].to_numpy()
    assert uncertainty[withheld].min() > uncertainty[~withheld].max()
    details = pq.read_table(out / "details.parquet")
    assert details["stay_id"].equals(events["stay_id"])
    for name in ("expected_duration", "spread_start", "low_duration", "high_x", "set_poi", "expected_lat"):
        assert np.array_equal(pc.is_null(details[name]).to_numpy(zero_copy_only=False), withheld), name
    for name in ("expected", "spread"):
        answers = read_answers(events["evidence"], "duration", name)
        assert np.array_equal(np.isnan(answers), withheld), name
    assert events["reason"].null_count == 0
    hidden, shown = (events.filter(pa.array(rows))["reason"].to_pylist() for rows in (withheld, ~withheld))
    assert not any("xpected" in text.replace(WITHHELD, "") or "away" in text for text in hidden)
    assert all(text.startswith(WITHHELD) for text in hidden)
    assert sum("Expected" in text for text in shown) > len(shown) / 2
    told = dict(zip(events["stay_id"].to_pylist(), events["reason"].to_pylist(), strict=True))
    agents = pq.read_table(out / "agents.parquet")
    assert agents["reason"].to_pylist() == [told[stay] for stay in agents["worst_stay_id"].to_pylist()]
    assert events["score"].null_count == 0  # an event without a prediction is scored all the same
    curves = pa_csv.read_csv(out / "rejection.csv")
    assert set(curves["by"].to_pylist()) == {"sum", "standardised"}
    assert {"start", "duration", "poi"} <= set(curves["term"].to_pylist())
    whole = curves.filter(pc.and_(pc.equal(curves["term"], "duration"), pc.equal(curves["kept"], 1.0)))
    first, second = whole["error"].to_pylist()
    assert first == pytest.approx(second)  # with everything kept the order does not matter


def test_without_flags_only_alerts_and_worst_events_have_a_reason(
    trained: Path, town_directory: Path, tmp_path: Path
) -> None:
    assert run("score", trained, town_directory, "--out", tmp_path / "some", "--top", 3) == 0
    assert run("score", trained, town_directory, "--out", tmp_path / "none", "--top", 3, "--reasons", "none") == 0
    some, none = (pq.read_table(tmp_path / n / "events.parquet") for n in ("some", "none"))
    told = pc.is_valid(some["reason"])
    assert pc.all(pc.or_(told, pc.invert(some["alert"]))).as_py()
    assert 3 <= pc.sum(told).as_py() < len(some)
    assert none["reason"].null_count == len(none)
    assert not {"withheld", "low_duration", "uncertainty"} & set(some.column_names)
    assert some["score"].equals(none["score"])


def test_many_people_are_scored_part_by_part_with_the_same_result(
    trained: Path, town_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ustad.scores import Scores
    from ustad.scoring import scored_parts

    assert run("score", trained, town_directory, "--out", tmp_path / "whole", "--top", 9) == 0
    assert run("score", trained, town_directory, "--out", tmp_path / "parts") == 0  # gives way to the parts
    monkeypatch.setattr(scored_parts, "ENTITIES", 7)
    assert run("score", trained, town_directory, "--out", tmp_path / "parts", "--top", 9) == 0
    assert len(list((tmp_path / "parts" / "events").glob("*.parquet"))) == 4
    whole, parts = (Scores.load(tmp_path / n) for n in ("whole", "parts"))
    for name, key in (("events", "stay_id"), ("agents", "agent_id")):
        one, other = (getattr(s, name).sort_by(key) for s in (whole, parts))
        assert set(one.column_names) == set(other.column_names)
        for column in one.column_names:
            if pa.types.is_floating(one[column].type):
                found, wanted = (t[column].to_numpy(zero_copy_only=False) for t in (other, one))
                np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5, err_msg=column)
            elif not pa.types.is_list(one[column].type):
                assert other[column].to_pylist() == one[column].to_pylist(), column
    same = ("rule", "value", "alerts", "first_day", "last_day", "warnings")
    assert {k: whole.run[k] for k in same} == {k: parts.run[k] for k in same}
    assert len(pa_csv.read_csv(tmp_path / "parts" / "alerts.csv")) == 9


def test_predictions_are_withheld_part_by_part_as_in_memory(
    trained: Path, town_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ustad.scores import Scores
    from ustad.scoring import scored_parts

    if trained.parent.name.startswith("quick"):
        pytest.skip("predictions are the network's")
    flags = ["--coverage", 0.8, "--reject", 0.1, "--curves", "--top", 40]
    assert run("score", trained, town_directory, "--out", tmp_path / "whole", *flags) == 0
    monkeypatch.setattr(scored_parts, "ENTITIES", 7)
    assert run("score", trained, town_directory, "--out", tmp_path / "parts", *flags) == 0
    assert len(list((tmp_path / "parts" / "details").glob("*.parquet"))) == 4
    whole, parts = (Scores.load(tmp_path / n) for n in ("whole", "parts"))
    for name, key in (
        ("events", "stay_id"),
        ("details", "stay_id"),
        ("agents", "agent_id"),
        ("incidents", "incident_id"),
    ):
        one, other = (getattr(s, name).sort_by(key) for s in (whole, parts))
        for column in ("withheld", "reason", "set_poi", "alert"):
            if column in one.column_names:
                assert other[column].to_pylist() == one[column].to_pylist(), (name, column)
        for column in ("uncertainty", "low_duration", "expected_start"):
            if column in one.column_names:
                found, wanted = (t[column].to_numpy(zero_copy_only=False) for t in (other, one))
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=column)
    assert parts.run["rejected"]["withheld"] == whole.run["rejected"]["withheld"] > 0
    told = whole.events.filter(whole.events["withheld"])
    hidden = set(zip(told["incident_id"].to_pylist(), told["reason"].to_pylist(), strict=True))
    reasons = whole.incidents["reason"].to_pylist()
    assert any(
        (name, text) in hidden for name, text in zip(whole.incidents["incident_id"].to_pylist(), reasons, strict=True)
    )
    gone = set(told["stay_id"].to_pylist())
    leaders = zip(whole.incidents["leading_stay_id"].to_pylist(), reasons, strict=True)
    assert not any("Expected" in (text or "") for stay, text in leaders if stay in gone)
    curves = [pa_csv.read_csv(tmp_path / name / "rejection.csv") for name in ("whole", "parts")]
    np.testing.assert_allclose(curves[0]["error"], curves[1]["error"], rtol=1e-5)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--reject", "1.5"], "between 0 and 1"),
        (["--coverage", "0"], "between 0 and 1"),
        (["--reasons", "few"], "alerts, all, none"),
        (["--reject-by", "guess"], "sum, standardised"),
    ],
)
def test_a_wrong_flag_is_refused_in_words(
    tmp_path: Path, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("score", tmp_path, tmp_path, *flags) != 0
    assert words in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_rejecting_is_refused_outside_a_share() -> None:
    from ustad.config import ConfigError
    from ustad.scoring.rejection import reject

    with pytest.raises(ConfigError, match="between 0 and 1"):
        reject(pa.table({}), 0.0)
