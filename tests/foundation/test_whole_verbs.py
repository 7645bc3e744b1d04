"""What the benchmark of whole verbs reads from their output, and what its page makes of it."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from ustad.progress import roughly

PRINTED = [
    (3.0, "training on 93,047 windows: about 2 minutes, less if it stops early"),
    (14.5, "training the memory network: 1,000 of 7,280 after 10 s epoch 3, loss 4.9, 46,244 windows/s"),
    (45.2, "training the memory network: 3,640 of 7,280 after 40 s epoch 10, loss 4.4"),
    (49.9, "asking the memory network: 429,861 of 429,861 after 4 s"),
]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module(request.param)


@pytest.mark.parametrize("benchmark", ["whole_verbs"], indirect=True)
def test_a_stage_is_told_by_its_last_line(benchmark: ModuleType) -> None:
    assert benchmark.read_stages(PRINTED) == [
        {"stage": "training the memory network", "seconds": 40, "ended_at_s": 45.2},
        {"stage": "asking the memory network", "seconds": 4, "ended_at_s": 49.9},
    ]


@pytest.mark.parametrize("benchmark", ["whole_verbs"], indirect=True)
@pytest.mark.parametrize("seconds", [5, 30, 80, 120, 600, 7200])
def test_an_estimate_is_compared_with_all_steps_though_training_stopped_early(
    benchmark: ModuleType, seconds: int
) -> None:
    lines = [f"training on 93,047 windows: {roughly(seconds)}, less if it stops early", *(x for _, x in PRINTED[1:])]
    assert benchmark.read_estimate(lines) == {"estimate": {"said_s": seconds, "took_s": 40, "all_steps_s": 80}}
    assert benchmark.read_estimate(lines[:1]) == benchmark.read_estimate(lines[1:]) == {}


@pytest.mark.parametrize("benchmark", ["scaling_tables"], indirect=True)
def test_a_goal_of_a_whole_verb_is_met_at_its_limit_and_missed_beyond(benchmark: ModuleType) -> None:
    def judge(device: str, train: float, score: float) -> str:
        run = {"preset": "best", "agents": 5_000, "train": {"seconds": train}, "score": {"seconds": score}}
        return str(benchmark._judge_run(device, run))

    assert judge("cuda", 40.0, 20.1) == "train ≤ 40 s: met, score ≤ 20 s: missed"
    assert judge("cpu", 1.0, 1.0) == ""
