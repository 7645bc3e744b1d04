"""How long `make experiments-small` takes: the paper's seven experiments at a small size, on the cores of this machine.

python benchmarks/small_experiments.py          writes results/small_experiments.json; minutes on two cores

It asks make for the command and runs it in an empty directory. Seconds are by the clock and of all processes.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from marked_pages import met
from measured import write_result
from ustad.lab.evaluation.experiments import PAPER
from ustad.lab.evaluation.result_files import read_lines

ROOT = Path(__file__).parent.parent
OUT = Path(__file__).parent / "results" / "small_experiments.json"
#: What is asked: minutes by the clock on two cores.
MOST_MINUTES = 20.0


def command() -> list[str]:
    """The verb that make would run, without where it writes."""
    asked = subprocess.run(["make", "-n", "experiments-small"], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = asked.stdout.replace("\\\n", " ").splitlines()
    words = shlex.split(next(line for line in lines if " lab experiment " in line))
    return words[words.index("lab") : words.index("--out")]


def run_small(directory: Path) -> dict[str, float | int]:
    """Run it from nothing, and count what it wrote."""
    verb = "from ustad.cli import run_process; run_process()"
    places = ["--out", str(directory / "out"), "--work", str(directory / "work")]
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", verb, *command(), *places], check=True, env=environment)
    seconds, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    cells = sum(len(read_lines(directory / "out" / f"{name}.jsonl")) for name in PAPER)
    tables = len(list((directory / "out" / "tables").glob("*.md")))
    return {"seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "cells": cells, "tables": tables}


def say_duration() -> str:
    """A sentence for the docs."""
    told = json.loads(OUT.read_text())
    minutes, used = told["seconds"] / 60, told["cpu_seconds"] / 60
    cores, load, cells = told["hardware"]["cores"], told["load_at_start"], told["cells"]
    verdict = met(minutes, MOST_MINUTES, at_least=False)
    return (
        f"All tables come out, of two sets of 40 people for each data set: {cells} cells, {told['tables']} tables, in\n"
        f"{minutes:.1f} minutes by the clock ({used:.1f} of processor time, {cores} cores at a load of {load:g}). "
        f"At most {MOST_MINUTES:g} are asked: {verdict}."
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        write_result(OUT, {"command_of_make": " ".join(command()), **run_small(Path(place))})
    print(say_duration())
