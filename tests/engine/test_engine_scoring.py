"""Scoring on a cluster: the scores, alerts, reasons and top 100 of a local run, also when workers die."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest
import torch
from same_tables import Deadly, assert_same

from ustad.cli import main
from ustad.config import Config
from ustad.detector import Detector
from ustad.engine.folder import Place
from ustad.engine.jobs import Job
from ustad.engine.model import ModelPlace
from ustad.engine.score_job import score
from ustad.events.together import PairTails
from ustad.files import find_table
from ustad.scores import Scores
from ustad.scoring.alerts import AlertRule
from ustad.scoring.rejection import WITHHELD


@pytest.fixture(scope="session")
def paper_model(town, tiny_config, tmp_path_factory):
    """A model of the paper's preset: percentiles are ranks within the scored events, with neighbours."""
    path = tmp_path_factory.mktemp("paper") / "model"
    settings = {"model.width": 16, "model.event_blocks": 1, "training.epochs": 1, "scoring.samples": 4}
    Detector(Config.preset("paper", **settings, **{"scoring.neighbours": 20}), device="cpu").fit(town).save(path)
    return path


def assert_same_scores(model, data, found, rule):
    expected = Detector.load(model, "cpu").score(data, rule=rule)
    assert_same(expected.events, found.events, ["agent_id", "started_at"])
    assert_same(expected.agents, found.agents, ["agent_id"])
    assert_same(expected.details, found.details, ["agent_id", "started_at"])
    assert_same(expected.incidents, found.incidents, ["incident_id"])
    if expected.absences is not None:
        assert expected.absences.num_rows > 0
        assert_same(expected.absences, found.absences, ["agent_id", "expected_from", "lat"])
    names = ("rule", "value", "alerts", "warnings", "drift", "first_day", "last_day", "schema", "trained", "method")
    for name in names:
        assert expected.run[name] == found.run[name], name
    assert found.run["threshold"] == pytest.approx(expected.run["threshold"], rel=1e-5)
    tops = [
        t.sort_by([("score", "descending"), ("stay_id", "ascending")]).slice(0, 100)
        for t in (expected.events, found.events)
    ]
    assert tops[0]["stay_id"].to_pylist() == tops[1]["stay_id"].to_pylist()


@pytest.mark.parametrize(
    ("workers", "rule"),
    [
        (1, AlertRule()),
        (2, AlertRule("fdr", 0.3)),
        (3, AlertRule("top", 400)),
    ],
)
def test_scores_by_habits_are_those_of_a_local_run(cluster, model_directory, town_directory, tmp_path, workers, rule):
    done = score(model_directory, town_directory, tmp_path / "scores", rule, workers=workers)
    found = Scores.load(tmp_path / "scores")
    assert_same_scores(model_directory, town_directory, found, rule)
    assert done.events == found.events.num_rows
    assert not (tmp_path / "scores" / ".score-job").exists()
    assert (tmp_path / "scores" / "alerts.csv").exists()


@pytest.mark.parametrize(("workers", "rule"), [(1, AlertRule("top", 25)), (2, AlertRule()), (3, AlertRule("fdr", 0.3))])
def test_ranks_within_all_scored_events_are_those_of_a_local_run(
    cluster, paper_model, town_directory, tmp_path, workers, rule
):
    assert Detector.load(paper_model).config.scoring.percentiles == "batch"
    score(paper_model, town_directory, tmp_path / "scores", rule, workers=workers)
    assert_same_scores(paper_model, town_directory, Scores.load(tmp_path / "scores"), rule)


def test_a_worker_killed_during_scoring_changes_nothing(
    cluster, model_directory, town_directory, tmp_path, monkeypatch
):
    deadly = Deadly(monkeypatch, "measure", tmp_path / "traces")
    score(model_directory, town_directory, tmp_path / "scores", workers=1, partitions=20)
    assert deadly.killed
    assert deadly.calls > 3
    assert_same_scores(model_directory, town_directory, Scores.load(tmp_path / "scores"), AlertRule())


def test_model_data_and_scores_may_lie_on_another_file_system(cluster, model_directory, town_directory, tmp_path):
    inner = pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    for source, name in ((model_directory, "model"), (town_directory, "data")):
        (tmp_path / name).mkdir()
        pa_fs.copy_files(str(source), name, pa_fs.LocalFileSystem(), inner)
    score(Place(inner, "model"), Place(inner, "data"), Place(inner, "scores"), workers=2)
    assert_same_scores(model_directory, town_directory, Scores.load(tmp_path / "scores"), AlertRule())


def test_no_copy_of_a_model_from_elsewhere_is_left_on_a_worker(network_directory, tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    inner = pa_fs.SubTreeFileSystem(str(network_directory.parent), pa_fs.LocalFileSystem())
    detector = ModelPlace.of(Place(inner, "model")).load("cpu")
    assert list((tmp_path / "temporary").iterdir()) == []
    mine, theirs = (d.judge.source.network.state_dict() for d in (Detector.load(network_directory, "cpu"), detector))
    assert all(torch.equal(theirs[name], value) for name, value in mine.items())


def test_an_interrupted_job_carries_on_where_it_was(
    cluster, model_directory, town_directory, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "scores"
    verb = ["score", model_directory, town_directory, "--out", out, "--engine", "ray", "--top", 25, "--partitions", 23]
    with monkeypatch.context() as patch:
        patch.setattr(Job, "_run", _interrupted(Job._run))
        with pytest.raises(SystemExit) as stop:
            main([*map(str, verb), "--workers", "1"])
    assert stop.value.code == 130
    assert find_table(out, "events") is None
    done = out / ".score-job" / "done" / "measure"
    finished = {p.name: p.stat().st_mtime_ns for p in done.glob("[!.]*.json")}
    summary = score(model_directory, town_directory, out, AlertRule("top", 25), partitions=23)
    assert 2 <= len(finished) <= summary.earlier_partitions < 23
    assert_same_scores(model_directory, town_directory, Scores.load(out), AlertRule("top", 25))
    assert json.loads((out / "run.json").read_text())["engine"] == "ray"


def _interrupted(run):
    """As Ctrl-C does, once two partitions are measured."""

    def until_two(self, step, tasks, work, shared):
        for count, row in enumerate(run(self, step, tasks, work, shared), 1):
            yield row
            if step == "measure" and count == 2:
                raise KeyboardInterrupt

    return until_two


def test_scored_events_hold_no_other_entity_than_local_ones(cluster, model_directory, town, tmp_path):
    few = town.only([1, 2, 3])
    score(model_directory, few, tmp_path / "scores", everything=True, partitions=5, details=True)
    expected = Detector.load(model_directory, "cpu").score(few, everything=True, details=True)
    found = Scores.load(tmp_path / "scores")
    assert_same(expected.events, found.events, ["agent_id", "started_at"])
    assert found.details.num_rows == found.events.num_rows
    assert_same(expected.details, found.details, ["agent_id", "started_at"])
    assert np.isfinite(expected.agents["score"].to_numpy()).all()


def test_weights_rules_and_days_do_on_a_cluster_what_they_do_locally(
    cluster, model_directory, town_directory, tmp_path
):
    (tmp_path / "weights.json").write_text(json.dumps({"weights": {"start": 0.3, "distance": 2.0}}))
    (tmp_path / "days.csv").write_text("date,name\n2024-05-22,fair\n")
    rules = [{"name": "by day", "agent": str(n), "hours": "06:00-20:00", "until": "2030-01-01", "reason": "known"}
             for n in range(300)]  # fmt: skip
    (tmp_path / "rules.yaml").write_text(json.dumps(rules))
    more = ["--top", "25"]
    for name, option in (("weights.json", "--weights"), ("rules.yaml", "--rules"), ("days.csv", "--calendar")):
        more += [option, str(tmp_path / name)]
    local, ray = score_both_ways(tmp_path, model_directory, town_directory, more)
    columns = ["agent_id", "started_at", "alert", "hidden_by", "learned_score", "reason"]
    assert_same(local.events.select(columns), ray.events.select(columns), ["agent_id", "started_at"])
    assert local.run["hidden"] == ray.run["hidden"]
    assert sum(local.run["hidden"].values()) > 0
    assert local.run["learned"] == ray.run["learned"]
    assert local.run["calendar"] == ray.run["calendar"]
    assert local.run["warnings"] == ray.run["warnings"]


def score_both_ways(tmp_path, model, data, flags):
    """The verb on both executors."""
    for engine in ("local", "ray"):
        verb = ["score", str(model), str(data), "--out", str(tmp_path / engine), *flags]
        with pytest.raises(SystemExit) as done:
            main([*verb, "--engine", engine, *(["--workers", "1", "--partitions", "2"] if engine == "ray" else [])])
        assert done.value.code == 0
    return tuple(Scores.load(tmp_path / engine) for engine in ("local", "ray"))


def test_intervals_rejection_and_curves_are_those_of_a_local_run(cluster, paper_model, town_directory, tmp_path):
    flags = ["--coverage", "0.8", "--reject", "0.1", "--curves", "--top", "25", "--reasons", "all"]
    local, ray = score_both_ways(tmp_path, paper_model, town_directory, flags)
    assert local.run["rejected"]["withheld"] == ray.run["rejected"]["withheld"] > 0
    assert local.run["coverage"] == ray.run["coverage"] == 0.8
    assert_same(local.events, ray.events, ["agent_id", "started_at"], 1e-6)
    assert_same(local.details, ray.details, ["agent_id", "started_at"])
    assert_same(local.agents, ray.agents, ["agent_id"], 1e-6)
    assert_same(local.incidents, ray.incidents, ["incident_id"], 1e-6)
    assert {"low_duration", "set_poi"} <= set(ray.details.column_names)
    curves = [pa_csv.read_csv(tmp_path / engine / "rejection.csv") for engine in ("local", "ray")]
    assert curves[0].drop_columns("error").equals(curves[1].drop_columns("error"))
    np.testing.assert_allclose(curves[0]["error"], curves[1]["error"], rtol=1e-6)
    assert (tmp_path / "ray" / "alerts.csv").read_text().count(WITHHELD) > 0


def test_groups_and_company_are_those_of_a_local_run(cluster, model_directory, town_directory, tmp_path):
    """As if pairs of fifty such weeks were known: by those of one small week none is rare enough for a group."""
    detector = Detector.load(model_directory, "cpu")
    tails = PairTails(detector.judge.together.p_value / 50)
    detector.judge = replace(detector.judge, together=tails)
    detector.save(tmp_path / "model")
    score_both_ways(tmp_path, tmp_path / "model", town_directory, ["--top", "25"])
    for name in ("groups", "company"):
        tables = [pq.read_table(tmp_path / engine / f"{name}.parquet") for engine in ("local", "ray")]
        assert tables[0].num_rows > 0, name
        assert tables[1].equals(tables[0]), name
