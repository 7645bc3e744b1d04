"""The preset quick where torch is not installed: the same scores, the verbs, live; one clear line for all else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ustad.dataset import save_directory
from ustad.detector import Detector
from ustad.simulate import simulate_tables

#: A machine on which nobody installed torch.
WITHOUT_TORCH = """
import datetime as dt, json, sys
from pathlib import Path

wanted = []

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            wanted.append(name)
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Refuse())
from ustad.cli import main
from ustad.detector import Detector
from ustad.live.habit_live import HabitLive
from ustad.tables import DataError

place, said = Path(sys.argv[1]), {}

def run(*arguments):
    try:
        main(["-q", *map(str, arguments)])
    except SystemExit as stop:
        return stop.code

data = place / "data"
said["train"] = run("train", data, "--preset", "quick", "--out", place / "model")
said["score"] = run("score", place / "model", data, "--out", place / "scores")
said["report"] = run("report", place / "scores", "--out", place / "report.html")
import ustad.engine.extract_job, ustad.engine.score_job  # what workers of a cluster import
said["wanted"] = list(wanted)
said["best"] = run("train", data, "--preset", "best", "--out", place / "best")
detector = Detector.load(place / "model")
start, day = dt.datetime(2031, 1, 1, tzinfo=dt.UTC), 22_280
event = dict(agent_id="new", lat=60.0, lon=25.0, timezone="UTC", poi_category="house", started_at=start)
update = HabitLive(detector.judge, since=day).update({**event, "finished_at": start + dt.timedelta(hours=1)})
said["live"] = update["score"]
for device in ("auto", "cuda"):
    try:
        said[device] = str(Detector("quick", device=device).device)
    except DataError as error:
        said[device] = str(error)
said["torch"] = "torch" in sys.modules
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def town(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("without-torch")
    save_directory(simulate_tables("town", agents=12, seed=3, days=12), place / "data")
    return place


@pytest.fixture(scope="module")
def done(town) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(town)], capture_output=True, text=True, timeout=300, check=False
    )


def test_quick_trains_scores_and_follows_live_without_torch(done, town):
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert not said["torch"]
    assert not said["train"]
    assert not said["score"]
    assert not said["report"] or "ustad[service]" in done.stderr
    assert np.isfinite(said["live"])
    assert said["auto"] == "cpu"


@pytest.mark.filterwarnings("ignore::ustad.progress.UstadWarning")
def test_scores_without_torch_are_those_with_it(done, town):
    with_torch = Detector("quick").fit(town / "data").score(town / "data").events
    without = pq.read_table(town / "scores" / "events.parquet")
    assert without["stay_id"].equals(with_torch["stay_id"])
    np.testing.assert_allclose(without["score"].to_numpy(), with_torch["score"].to_numpy(), atol=1e-6, rtol=0)


def test_quick_does_not_even_look_for_torch_whose_import_takes_seconds(done):
    assert json.loads(done.stdout.splitlines()[-1])["wanted"] == []


def test_what_needs_a_network_says_so_in_one_line(done):
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["best"] == 1
    (line,) = [x for x in done.stderr.splitlines() if x.startswith("error:")]
    assert "pip install torch" in line
    assert "preset quick" in line
    assert "pip install torch" in said["cuda"]
