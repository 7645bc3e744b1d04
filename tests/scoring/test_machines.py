"""A processor without vector instructions gives the same scores, kinds, alerts and sentences, live and in bulk."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).parents[2]
#: Habits are double precision: only the last bits differ, and nothing hangs on them.
HABITS = 1e-6
#: A network is single precision: its losses differ in the sixth digit (1.3e-6 of a score was measured). Where a loss
#: passes one of the calibration's, the score moves by that rank, perhaps with its kind. So few events may do that.
NETWORK, PASSED = 1e-5, 0.01


@pytest.fixture(scope="module")
def answers(town_directory, model_directory, network_directory, tmp_path_factory):
    """What this process says, and one without vector instructions."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(REPOSITORY / "benchmarks"))
        machines = importlib.import_module("machines")
    room = tmp_path_factory.mktemp("plain")
    changes = {**machines.without_vectors(), "NUMBA_CACHE_DIR": str(room), "PYTHONPATH": os.pathsep.join(sys.path)}
    models = (model_directory, network_directory)
    script, out = REPOSITORY / "benchmarks" / "machines.py", room / "answers.json"
    command = [sys.executable, str(script), "--score", *map(str, (*models, town_directory, out))]
    with subprocess.Popen(command, env={**os.environ, **changes}) as other:
        here = {k: v for model in models for k, v in machines.answer(model, town_directory).items()}
        assert other.wait() == 0
    return here, json.loads(out.read_text())


@pytest.mark.parametrize("what", ["habits", "habits, agents", "habits, live"])
def test_habits_say_the_same_on_a_processor_without_vector_instructions(answers, what):
    here, there = (dict(one[what]) for one in answers)
    np.testing.assert_allclose(there.pop("score"), here.pop("score"), rtol=0, atol=HABITS)
    assert there == here


@pytest.mark.parametrize("what", ["network", "network, live"])
def test_a_network_says_nearly_the_same_on_a_processor_without_vector_instructions(answers, what):
    here, there = (one[what] for one in answers)
    apart = np.abs(np.array(there["score"]) - np.array(here["score"]))
    assert np.mean(apart > NETWORK) <= PASSED
    for word in ("kind", "alert", "reason"):
        assert np.mean([a != b for a, b in zip(there[word], here[word], strict=True)]) <= PASSED, word
