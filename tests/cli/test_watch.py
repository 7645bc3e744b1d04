"""`ustad watch`: the next version is compared with the one in use on a week neither has seen, then taken or not."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from one_call import run

from ustad import Detector
from ustad.cli import main
from ustad.cli import watch as watch_verb
from ustad.dataset import event_days
from ustad.schema import mobility_schema
from ustad.scoring.alerts import AlertRule
from ustad.simulate import simulate_tables
from ustad.versions import ModelVersions, find_model


@dataclass(frozen=True)
class Town:
    """Files of all stays up to some week, and a directory with one version, trained on the first six weeks."""

    place: Path
    models: Path

    def file(self, weeks: int) -> Path:
        return self.place / f"{weeks}.parquet"


@pytest.fixture(scope="module")
def town(tmp_path_factory) -> Town:
    place = tmp_path_factory.mktemp("town")
    events = simulate_tables("town", agents=12, seed=5, days=63, anomalous_share=0.0).events
    days = event_days(events, mobility_schema())
    for weeks in (6, 8, 9):
        pq.write_table(events.filter(pa.array(days < days.min() + 7 * weeks)), place / f"{weeks}.parquet")
    with pytest.raises(SystemExit, match="0"):
        main(["-q", "watch", str(place / "models"), str(place / "6.parquet"), "--preset", "quick"])
    return Town(place, place / "models")


@pytest.fixture
def models(town, tmp_path) -> Path:
    return Path(shutil.copytree(town.models, tmp_path / "models", symlinks=True))


def test_the_first_version_is_trained_on_all_but_the_last_week(town):
    assert os.readlink(town.models / "current") == "1"
    facts = json.loads((town.models / "1" / "facts.json").read_text())
    days = event_days(pq.read_table(town.file(6)), mobility_schema())
    assert np.datetime64(facts["learned_until"], "D") == np.datetime64(int(days.max()), "D") - 7


def test_a_sound_version_is_taken_and_the_figures_are_those_of_its_scores(capsys, town, models):
    code, out, err = run(capsys, "watch", models, town.file(8), "--alerts-per-day", 2, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["is_swapped"], told["in_use"], told["versions"]) == (True, 2, [1, 2])
    assert all(check["passed"] for check in told["checks"])
    days = event_days(pq.read_table(town.file(8)), mobility_schema())
    first = np.datetime64(int(days.max()) - 6, "D")
    assert told["new"]["learned_until"] == str(first - 1)
    alerts = []
    for number, side in ((1, "old"), (2, "new")):
        detector = Detector.load(models / str(number)).scoring_from(str(first))
        scores = detector.score(town.file(8), rule=AlertRule("alerts_per_day", 2))
        p_values = scores.events["p_value"].to_numpy()
        assert told["events"] == len(p_values)
        assert told[side]["share_05"] == pytest.approx((p_values <= 0.05).mean())
        assert told[side]["alerts"] == scores.run["alerts"] == 14
        rows = scores.incidents.filter(scores.incidents["alert"])["stay_ids"].to_pylist()
        led = scores.events.filter(pc.and_(scores.events["alert"], pc.is_null(scores.events["incident_id"])))
        alerts.append([set(ids) for ids in rows] + [{i} for i in led["stay_id"].to_pylist()])
    shared = [[bool(one & set().union(*other)) for one in mine] for mine, other in (alerts, alerts[::-1])]
    assert (told["alerts_in_both"], told["alerts_only_old"], told["alerts_only_new"]) == (
        sum(shared[0]),
        shared[0].count(False),
        shared[1].count(False),
    )
    code, out, _ = run(capsys, "watch", models, town.file(8))
    assert code == 0
    assert "nothing newer" in " ".join(out.split())
    assert ModelVersions(models).numbers() == [1, 2]


def test_a_week_with_few_data_is_refused_and_can_be_taken_by_hand(capsys, town, models, tmp_path):
    table = pq.read_table(town.file(8))
    days = event_days(table, mobility_schema())
    pq.write_table(
        table.filter(pa.array((days < days.max() - 6) | (np.arange(len(days)) % 4 == 0))), tmp_path / "x.parquet"
    )
    code, out, err = run(capsys, "watch", models, tmp_path / "x.parquet")
    assert code == 1
    assert "NOT the last week has" in " ".join(out.split())
    assert "version 2 is refused" in " ".join(err.split())
    versions = ModelVersions(models)
    assert versions.current == 1
    assert versions.records()["2"]["state"] == "refused"
    assert run(capsys, "watch", models, "--use", 2)[0] == 0
    assert versions.current == 2


def test_a_model_of_other_habits_is_refused(capsys, town, models, tmp_path):
    """What is learnt from lies six hours earlier than life does."""
    table = pq.read_table(town.file(8))
    days = event_days(table, mobility_schema())
    late = pa.array(days >= days.max() - 6)
    for name in ("started_at", "finished_at"):
        moved = pc.subtract(table[name], pa.scalar(6 * 3_600_000_000, pa.duration("us")))
        column = pc.if_else(late, table[name], moved).cast(table[name].type)
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, tmp_path / "x.parquet")
    code, out, err = run(capsys, "watch", models, tmp_path / "x.parquet", "--json")
    assert code == 1, err
    refused = {check["name"] for check in json.loads(out)["checks"] if not check["passed"]}
    assert {"p_005", "p_001"} & refused
    assert ModelVersions(models).current == 1


def test_one_command_goes_back_past_what_was_left_or_refused(capsys, town, models):
    versions = ModelVersions(models)
    for number in (2, 3, 4):
        shutil.copytree(models / "1", models / str(number))
    versions.record(2, "refused")
    versions.use(3)
    versions.use(4)
    assert json.loads(run(capsys, "watch", models, "--back", "--json")[1]) == {"in_use": 3}
    assert run(capsys, "watch", models, "--back")[0] == 0
    assert versions.current == 1
    code, _, err = run(capsys, "watch", models, "--back")
    assert code == 1
    assert "no version before 1" in " ".join(err.split())
    rows = json.loads(run(capsys, "watch", models, "--json")[1])["versions"]
    assert [row["state"] for row in rows] == ["in use", "refused", "left", "left"]
    assert versions.prune(1) == [2, 3]
    assert versions.numbers() == [1, 4]
    assert versions.next_number() == 5


def test_whoever_opens_the_directory_during_a_swap_gets_a_whole_model(models):
    versions = ModelVersions(models)
    shutil.copytree(models / "1", models / "2")
    stop, problems = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            if find_model(models).name not in ("1", "2"):
                problems.append(find_model(models))

    reader = threading.Thread(target=look)
    reader.start()
    for i in range(200):
        versions.use(1 + i % 2)
    stop.set()
    reader.join()
    assert problems == []


def test_a_directory_of_versions_is_taken_like_a_model(capsys, town, models, tmp_path):
    from ustad.cli.serve import settings_for

    assert settings_for(models, "sqlite://").model == (models / "1").resolve()
    for name, model in (("a", models), ("b", models / "1")):
        code, _, err = run(capsys, "score", model, town.file(6), "--top", 3, "--out", tmp_path / name)
        assert code == 0, err
    assert pq.read_table(tmp_path / "a" / "events.parquet").equals(pq.read_table(tmp_path / "b" / "events.parquet"))
    code, out, _ = run(capsys, "info", models)
    assert code == 0
    assert "Trained on" in out
    shutil.copytree(models / "1", models / "2")
    agent = pq.read_table(town.file(6))["agent_id"][0].as_py()
    assert run(capsys, "forget", models, agent)[0] == 0
    assert not any(Detector.load(models / n).knows([agent]).any() for n in ("1", "2"))


def test_every_week_goes_on_after_an_error(capsys, town, models, tmp_path, monkeypatch):
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(watch_verb.time, "sleep", pause)
    code, _, err = run(capsys, "watch", models, tmp_path / "absent.parquet", "--every", "7d")
    assert (code, pauses) == (130, [7 * 86_400.0] * 2)
    assert err.count("error:") == 2
    assert run(capsys, "watch", models, town.file(8), "--every", "soon")[0] == 1


def test_what_cannot_be_is_refused_in_one_line(capsys, town, models):
    with ModelVersions(models).alone():
        code, _, err = run(capsys, "watch", models, town.file(8))
        assert (code, err.count("another `ustad watch` is at work")) == (1, 1)
    code, _, err = run(capsys, "watch", models / "1", town.file(8))
    assert code == 1
    assert "not a directory of versions" in " ".join(err.split())
    code, _, err = run(capsys, "watch", models, town.file(8), "--from", models / "1")
    assert code == 1
    assert "--from is for a new directory" in " ".join(err.split())
    assert run(capsys, "watch", models, "--use", 7)[0] == 1
