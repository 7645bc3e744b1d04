"""`ustad forget`: nothing of a forgotten agent is left in a model directory, and the others score as before."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import between, make_routine

from ustad import Detector
from ustad.cli import main
from ustad.config import Config
from ustad.scoring.adding_judge import AddingJudge
from ustad.tables import identity_hash

SMALL = {
    "model.width": 8, "model.heads": 2, "model.event_blocks": 1, "training.epochs": 1,
    "scoring.samples": 2, "scoring.neighbours": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def life():
    table = make_routine(seed=1, agents=6, days=35)
    return table.filter(pc.greater_equal(table["finished_at"], table["started_at"]))


@pytest.fixture(scope="module", params=["quick", "paper"])
def trained(request, life, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param) / "model"
    config = Config.preset(request.param).replace({**SMALL, "scoring.percentiles": "calibrated"})
    Detector(config, device="cpu").fit(between(life, 0, 28)).save(directory)
    return directory


@pytest.fixture
def place(trained, tmp_path):
    """A copy of the model for each test: what is forgotten in one is there in the next."""
    return shutil.copytree(trained, tmp_path / "model")


def call(*arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return stop.value.code


def test_whoever_is_not_in_the_model_is_refused_and_nothing_changes(place, capsys):
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    assert call("forget", place, "2", "nobody") == 1
    assert "1 of 2 agents are not in this model; nothing was forgotten" in " ".join(capsys.readouterr().err.split())
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_a_forgotten_agent_is_in_no_file_of_the_model(place, life):
    week = between(life, 28, 35)
    before = Detector.load(place, device="cpu").score(week).agents
    assert call("forget", place, "2") == 0
    detector = Detector.load(place, device="cpu")
    gone = identity_hash([2])[0]
    if isinstance(detector.judge, AddingJudge):
        assert 2 not in pq.read_table(place / "habits.parquet")["agent_id"].to_pylist()
        assert gone not in detector.judge.agents.entity_key
    else:
        assert "2" not in pq.read_table(place / "history.parquet")["entity"].to_pylist()
        assert gone.view(np.int64) not in detector.judge.source.neighbours.owner
        assert len(set(detector.judge.source.neighbours.owner.tolist())) == 5
    after = detector.score(week).agents
    others = before["agent_id"].to_numpy() != 2
    np.testing.assert_allclose(after["score"].to_numpy()[others], before["score"].to_numpy()[others], rtol=1e-9)
    assert call("forget", place, "2") == 1
