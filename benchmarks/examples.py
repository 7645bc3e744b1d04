"""USTAD beside simpler methods on the three examples: runs them, prints a table, writes results/examples.json.

`python benchmarks/examples.py [--from DIR]`: with `--from`, runs that were made before are read instead; DIR holds a
directory for every example (`cards`) or, where seeds ran side by side, for each of its seeds (`cards-1`, `cards-2`),
and one for the paper's network (`cards-paper`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ustad
from measured import write_result

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "examples.json"
NAMES = ("cards", "shop", "app_usage")


def cpu() -> str:
    """The processor's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def figures(name: str, runs: Path, fresh: bool) -> dict[str, Any]:
    """What one example found: the mean and deviation of AUROC and AP by method."""
    if fresh:
        script = HERE.parent / "examples" / f"{name}.py"
        subprocess.run([sys.executable, str(script), "--out", str(runs / name)], check=True)
        subprocess.run([sys.executable, str(script), "--paper", "--out", str(runs / f"{name}-paper")], check=True)
    found = [json.loads(path.read_text())["results"] for path in sorted(runs.glob(f"{name}*/figures.json"))]
    methods = dict.fromkeys(method for one in found for method in one)
    return {method: summary([one[method] for one in found if method in one]) for method in methods}


def summary(runs: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Mean and deviation of AUROC and AP over the seeds of all runs of a method, and how many seeds these are."""
    values = {figure: np.concatenate([run[figure] for run in runs]) for figure in ("auroc", "ap")}
    figures = {name: [round(float(of.mean()), 3), round(float(of.std(ddof=1)), 3)] for name, of in values.items()}
    return {**figures, "seeds": len(values["auroc"])}


def main() -> None:
    """Run or read, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="runs", type=Path, help="where the examples' runs are")
    options = parser.parse_args()
    found = {n: figures(n, options.runs or Path("runs/examples"), options.runs is None) for n in NAMES}
    before = json.loads(RESULTS.read_text())["examples"]  # a method that was not run again keeps its figures
    found = {name: {**before[name], **methods} for name, methods in found.items()}
    for name, methods in found.items():
        for method, both in methods.items():
            print(f"{name:10} {method:12} AUROC {both['auroc'][0]:.3f} ± {both['auroc'][1]:.3f}", end="  ")
            print(f"AP {both['ap'][0]:.3f} ± {both['ap'][1]:.3f}")
    hardware = {"cpu": cpu(), "cores": os.cpu_count()}
    versions = {"ustad": ustad.__version__, "torch": torch.__version__, "python": platform.python_version()}
    content = {"examples": found, "hardware": hardware, "versions": versions}
    write_result(RESULTS, content)


if __name__ == "__main__":
    main()
