"""Do machines agree? One model and one small town, scored here with and without vector instructions and on CUDA.

    python benchmarks/machines.py [--agents 60]        trains two small networks, then scores on every machine there is
    python benchmarks/machines.py --score MODEL … DATA OUT [--device cuda]      one machine's answers, as JSON

A network is trained once, because training carries the last bits on; everything after it is done on every machine:
habits are learnt and calibrated anew, events are scored in bulk and one by one, reasons are written. Printed, and
written to benchmarks/results/machines-cpu.json (or -cuda.json): the largest and the median difference of scores from
the first machine's, and how many kinds, alerts and sentences differ. docs/scoring.md says what is guaranteed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from measured import write_result
from ustad import progress
from ustad.config import Config
from ustad.dataset import Dataset, load_directory, save_directory
from ustad.detector import Detector
from ustad.judges import learn_from
from ustad.lessons import calibrating, take_whole_week
from ustad.live.habit_live import HabitLive
from ustad.live.network_live import LiveScorer
from ustad.scores import join_details
from ustad.scoring.adding_judge import AddingJudge
from ustad.scoring.judge import Request
from ustad.scoring.paper_judge import PaperJudge
from ustad.scoring.scored_parts import score_whole

RESULTS = Path(__file__).parent / "results"
#: Events that are scored one by one.
LIVE_EVENTS = 60
WORDS = ("kind", "alert", "reason")
SMALL = {"model.width": 32, "training.epochs": 4, "training.batch_size": 128, "scoring.samples": 10}

Answers = dict[str, dict[str, list[Any]]]  # what was asked → score, kind, alert, reason by event


# ------------------------------------------------------------------------------------------------ one machine
def answer(model: Path, data: Path, device: str = "cpu") -> Answers:
    """What this machine says of the test part of a data set."""
    detector, dataset = Detector.load(model, device=device), load_directory(data)
    split = detector.scored_days(dataset)
    assert split is not None
    before, events = (
        detector.trips.attach(dataset.between(first, last), dataset.trips)
        for first, last in ((split.train_first, split.test_first - 1), (split.test_first, split.test_last))
    )
    answers: Answers = {}
    if isinstance(detector.judge, PaperJudge):
        paper = score_whole(detector.judge, events, before, Request(reasons="all", details=True))
        answers["network"] = _columns(join_details(paper.events, paper.details, detector.schema))
        answers["network, live"] = _network_live(detector, before, events)
    else:
        habits = _learn_habits(detector, dataset)
        scores = score_whole(habits, events, before, Request(reasons="all", details=True))
        answers["habits"] = _columns(join_details(scores.events, scores.details, detector.schema))
        answers["habits, agents"] = _columns(scores.agents)
        answers["habits, live"] = _habits_live(habits, before, events)
    return answers


def _learn_habits(detector: Detector, data: Dataset) -> AddingJudge:
    """Habits of the training weeks, learnt and calibrated here, with the memory network that was trained."""
    assert detector.encoder is not None
    assert isinstance(detector.judge, AddingJudge)
    split = detector.scored_days(data)
    assert split is not None
    train, week = (
        detector.trips.attach(data.between(first, last), data.trips)
        for first, last in (
            (split.train_first, split.validation_first - 1),
            (split.validation_first, split.test_first - 1),
        )
    )
    schema, others = detector.schema, detector.judge.others
    half = calibrating(week, schema.entity) if others else None
    if not others:
        train, week = take_whole_week(train, week, schema)
    return learn_from(train, week, schema, half, others=others, absorb_after=detector.config.scoring.absorb_after)


def _habits_live(model: AddingJudge, before: pa.Table, events: pa.Table) -> dict[str, list[Any]]:
    live = HabitLive(model, since=(model.known_until or 0) + 1, reasons="all")
    live.warm(before)
    return _rows([live.update(row) for row in _first(events)])


def _network_live(detector: Detector, before: pa.Table, events: pa.Table) -> dict[str, list[Any]]:
    live = LiveScorer(detector.paper(), detector.device, reasons="all")
    live.warm(before)
    return _rows([live.update(row) for row in _first(events)])


def _first(events: pa.Table) -> list[dict[str, Any]]:
    """The events of the first few people, in order."""
    ordered = events.sort_by([("agent_id", "ascending"), ("started_at", "ascending")])
    return ordered.slice(0, LIVE_EVENTS).to_pylist()


def _columns(table: pa.Table) -> dict[str, list[Any]]:
    return {name: table[name].to_pylist() for name in ("score", *WORDS) if name in table.column_names}


def _rows(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row.get(name) for row in rows] for name in ("score", *WORDS)}


# --------------------------------------------------------------------------------------------------- machines
def without_vectors() -> dict[str, str]:
    """The environment of a process that leaves out what a plain 64-bit processor lacks, as far as libraries let it."""
    core = "numpy._core" if np.__version__ >= "2" else "numpy.core"
    umath = importlib.import_module(f"{core}._multiarray_umath")
    found = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name]]
    return {
        "NPY_DISABLE_CPU_FEATURES": " ".join(found),
        "ATEN_CPU_CAPABILITY": "default",
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
    }


def compare(found: Answers, right: Answers) -> dict[str, dict[str, float]]:
    """Differences of scores, and how many words differ, by what was asked."""
    result = {}
    for name, ours in right.items():
        apart = np.abs(np.array(found[name]["score"]) - np.array(ours["score"]))
        result[name] = {"events": len(apart), "largest": float(apart.max()), "median": float(np.median(apart))}
        result[name]["over 1e-6"] = int((apart > 1e-6).sum())
        for word in [word for word in WORDS if word in ours]:
            result[name][word] = sum(a != b for a, b in zip(found[name][word], ours[word], strict=True))
    return result


def _ask(model: Path, data: Path, device: str, changes: dict[str, str]) -> Answers:
    """The answers of another process."""
    with tempfile.TemporaryDirectory() as room:
        out = Path(room) / "answers.json"
        command = [sys.executable, __file__, "--score", str(model), str(data), str(out), "--device", device]
        cache = {"NUMBA_CACHE_DIR": room} if changes else {}
        subprocess.run(command, env={**os.environ, **changes, **cache}, check=True)
        return json.loads(out.read_text())


def run(agents: int) -> dict[str, Any]:
    from ustad.simulate import simulate_tables

    machines = {"cpu": ("cpu", {}), "cpu, no vector instructions": ("cpu", without_vectors())}
    if torch.cuda.is_available():
        machines["cuda"] = ("cuda", {})
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as room:
        data = Path(room) / "data"
        town = simulate_tables("town", agents=agents, seed=3, days=28)
        save_directory(town, data)
        for preset in ("best", "paper"):
            model = Path(room) / preset
            Detector(Config.preset(preset, **SMALL), device="cpu").fit(town).save(model)
            answers = {name: _ask(model, data, *how) for name, how in machines.items()}
            results[preset] = {name: compare(found, answers["cpu"]) for name, found in answers.items() if name != "cpu"}
    devices = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    facts = {"processor": _processor(), "devices": devices, "torch": torch.__version__, "numpy": np.__version__}
    return {"facts": facts, "agents": agents, "differences": results}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    named = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return named[0] if named else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--score", nargs="+", type=Path, metavar="MODEL … DATA OUT")
    given = parser.parse_args()
    progress.disable()
    if given.score:
        *models, data, out = given.score
        out.write_text(json.dumps({k: v for model in models for k, v in answer(model, data, given.device).items()}))
        return
    result = run(given.agents)
    for preset, machines in result["differences"].items():
        for machine, questions in machines.items():
            for name, figures in questions.items():
                print(f"{preset:8} {machine:28} {name:15} {figures}")
    where = "cuda" if result["facts"]["devices"] else "cpu"
    write_result(RESULTS / f"machines-{where}.json", result)


if __name__ == "__main__":
    main()
