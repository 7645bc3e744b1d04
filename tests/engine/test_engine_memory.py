"""The memory network of the preset `best`, as workers train and ask it: in one process, and on a cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from ustad.calendar_days import Calendar, CalendarEvent
from ustad.config import Config
from ustad.dataset import event_days
from ustad.detector import Detector
from ustad.engine import train_job
from ustad.engine.cluster import Cluster
from ustad.engine.distributed_terms import DistributedTerms
from ustad.engine.folder import Place
from ustad.engine.train_job import RayDetector
from ustad.mobility.readers import open_data
from ustad.network.training.memory_task import MemoryTask

SETTINGS = {
    "model.width": 16, "model.event_blocks": 1, "training.epochs": 1, "training.batch_size": 64,
    "scoring.samples": 3, "scoring.neighbours": 10,
}  # fmt: skip


@dataclass
class Here:
    """A job whose tasks run one after the other in this process."""

    place: Place
    cluster: Cluster

    def run(self, step, tasks, work, shared=None, label=None):
        return [json.loads(json.dumps(work(task.payload, shared))) for task in tasks]


@pytest.fixture(scope="module")
def made(town_directory, tmp_path_factory):
    """A local detector with a memory network, and one that was made as the workers do it."""
    config, town = Config.preset("best").replace(SETTINGS), open_data(town_directory)  # as workers open it
    local = Detector(config, "cpu").fit(town, calendar=calendar_of(town))
    return local, as_workers_do(config, town, tmp_path_factory.mktemp("model"))


def as_workers_do(config, town, folder, start=None, resume=False):
    """A detector that was fitted as the workers do it, in this process."""
    place = Place.of(folder)
    detector = RayDetector(config, Cluster(), place, resume=resume, partitions=5)
    detector.job = Here(place / "job", Cluster())

    def on_workers(job, plan):
        train_job._loop({"plan": plan})
        return train_job.unpack_weights(plan.place.read_bytes("last.safetensors")), plan.place.read_json("result.json")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_job, "_on_workers", on_workers)
        patch.setattr("ustad.engine.calibrate_job.share_out", lambda e, o: _reference(e, o))
        return detector.fit(town, directory=place.path, resume=resume, start=start, calendar=calendar_of(town))


def calendar_of(town):
    """The first day of the town is a day off, and so is its last."""
    days = event_days(town.events, town.schema)
    return Calendar(events=tuple(CalendarEvent(int(day), int(day), "off") for day in (days.min(), days.max())))


def _reference(embeddings, owner):
    from ustad.network.inference.neighbours import Reference

    return Reference(embeddings, owner)


def test_the_network_is_that_of_a_local_run(made):
    mine, theirs = (detector.judge.source("network").network.state_dict() for detector in made)
    for name, value in mine.items():
        assert torch.allclose(theirs[name], value, atol=1e-6), name


def assert_same_facts(theirs, mine):
    """What is said of the training, but how long it took."""
    assert [theirs[name] for name in ("epochs", "steps", "stopped")] == [1, mine["steps"], mine["stopped"]]
    for name in ("validation_loss", "validation_fields", "losses"):
        assert theirs[name] == pytest.approx(mine[name], abs=1e-6), name


def test_what_is_said_of_the_training_is_that_of_a_local_run(made):
    mine, theirs = (detector.facts for detector in made)
    assert_same_facts(theirs, mine)


def test_a_run_that_died_goes_on_from_its_last_step_to_the_same_weights(made, town_directory, tmp_path, monkeypatch):
    """A checkpoint after every step; without `resume` nothing of it is used."""
    local, _ = made
    town, steps, calls, loss = open_data(town_directory), local.facts["steps"], [], MemoryTask.loss
    dies_after = steps // 2

    def counted(task, *batch):
        if len(calls) == dies_after:
            raise RuntimeError("the worker died")
        calls.append(batch)
        return loss(task, *batch)

    monkeypatch.setattr("ustad.config.sections.TrainingConfig.checkpoint_minutes", 0.0)
    monkeypatch.setattr(MemoryTask, "loss", counted)
    with pytest.raises(RuntimeError, match="the worker died"):
        as_workers_do(local.config, town, tmp_path)
    half, dies_after = dies_after, None
    assert 0 < half < steps
    for resume, expected in ((True, steps - half), (False, steps)):
        calls.clear()
        later = as_workers_do(local.config, town, tmp_path, resume=resume)
        assert len(calls) == expected
        assert_same_facts(later.facts, local.facts)
        new, old = (detector.judge.source("network").network.state_dict() for detector in (later, local))
        assert all(torch.allclose(value, old[name], atol=1e-6) for name, value in new.items())


def test_two_workers_of_a_cluster_train_the_network_and_their_scores_are_those_of_one_process(
    cluster, made, town, town_directory, tmp_path
):
    """Nearly: each half of a batch has masks and noise of its own."""
    local, _ = made
    train_job.train(town_directory, tmp_path / "model", local.config, workers=2, calendar=calendar_of(town))
    both = Detector.load(tmp_path / "model", "cpu")
    assert both.facts["epochs"] == local.facts["epochs"]
    assert both.facts["validation_loss"] == pytest.approx(local.facts["validation_loss"], rel=0.1)
    days = {(one.judge.history.frame.days_off, one.judge.history.habits.days_off) for one in (local, both)}
    assert len(days) == 1
    assert len(days.pop()[1]) == 2, "days off are learnt on a cluster as here"
    mine, theirs = (detector.judge.source("network").network.state_dict() for detector in (local, both))
    assert max(float((value - mine[name]).abs().max()) for name, value in theirs.items()) < 0.01
    scores = [d.score(town).events.sort_by("stay_id")["score"].to_numpy() for d in (local, both)]
    assert np.corrcoef(*scores)[0, 1] > 0.99
    assert not (tmp_path / "model" / ".train-job").exists()


def test_workers_carry_on_from_the_network(made, town, tmp_path):
    """With steps too small to matter the weights stay where they began."""
    local, _ = made
    later = as_workers_do(local.config.replace({"training.learning_rate": 1e-9}), town, tmp_path, local)
    new, old = (detector.judge.source("network").network.state_dict() for detector in (later, local))
    assert all(torch.allclose(value, old[name], atol=1e-6) for name, value in new.items())


def test_habits_calibrated_in_buckets_give_the_scores_of_a_local_run(made, town):
    mine, theirs = (d.score(town).events.sort_by("stay_id") for d in made)
    assert np.allclose(mine["score"].to_numpy(), theirs["score"].to_numpy(), atol=1e-4)
    assert mine["reason"].to_pylist() == theirs["reason"].to_pylist()


def test_terms_of_entities_without_history_are_there_too(made, town, tmp_path):
    local, _ = made
    memory, habits = local.judge.source("network"), local.judge.history.habits.only([1, 2])
    terms = DistributedTerms(Here(Place.of(tmp_path), Cluster()), memory, 4)
    few = town.only(list(range(6))).events
    for events in (few, few.slice(0, few.num_rows // 2)):  # a second question is not given the first one's answer
        expected, found = memory.terms(habits, events, None), terms.terms(habits, events, None)
        assert set(found) == set(expected)
        for name, values in expected.items():
            assert np.allclose(found[name], values, atol=1e-5, equal_nan=True), name
