"""What leaving out the worst-fitting windows does where the training weeks hold anomalies, the simulator's dirty share.

    python benchmarks/robust.py                   two CPU cores, about five minutes

The same town for every seed, with anomalies in the training weeks of none, a tenth or three tenths of the people;
the anomalies of the test weeks are the same. A small network learns with 0, 5 and 15 % of the worst-fitting windows
left out of each step. Reported: AUROC and average precision of test events under the paper's score, and the mean
loss of ordinary test events. Labels are read only here. Writes benchmarks/results/robust.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measured import write_result
from ustad.config import Config, TrainingConfig
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.lab.evaluation.detection_metrics import auroc, average_precision
from ustad.simulate.simulation import simulate_tables

DIRTY, ROBUST = (0.0, 0.1, 0.3), (0.0, 0.05, 0.15)
SETTINGS: dict[str, Any] = {
    "model.trips": "none",
    "model.network": "dual",
    "scoring.samples": 8,
    "scoring.neighbours": 20,
}


def measured(data: Dataset, config: Config) -> dict[str, float]:
    """Detection in the test weeks, and how well ordinary events there are foreseen."""
    began = time.perf_counter()
    scored = Detector(config, "cpu").fit(data).score(data).events
    assert scored is not None
    assert data.labels is not None
    truth = np.isin(scored["stay_id"].to_numpy(), data.labels["stay_id"].to_numpy())
    losses = sum(scored[name].to_numpy() for name in scored.column_names if name.startswith("loss_"))
    score = scored["score"].to_numpy()
    return {
        "auroc": auroc(truth, score),
        "ap": average_precision(truth, score),
        "loss": float(np.nanmean(np.asarray(losses)[~truth])),
        "anomalous": int(truth.sum()),
        "events": len(truth),
        "seconds": round(time.perf_counter() - began, 1),
    }


def summary(rows: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Means over seeds for every dirty share and every share left out."""
    table = []
    for dirty in DIRTY:
        for robust in ROBUST:
            chosen = [r for r in rows if (r["dirty"], r["robust"]) == (dirty, robust)]
            if chosen:
                means = {k: float(np.mean([r[k] for r in chosen])) for k in ("auroc", "ap", "loss")}
                table.append({"dirty": dirty, "robust": robust, "seeds": len(chosen), **means})
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "robust.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(101, 101 + options.seeds):
        for dirty in DIRTY:
            data = simulate_tables("numosim-la", options.agents, seed, dirty=dirty, anomalous_share=0.2)
            for robust in ROBUST:
                TrainingConfig.robust = robust
                changes = {**SETTINGS, "training.epochs": options.epochs, "seed": seed}
                row = measured(data, Config.preset("quick", **changes))
                rows.append({"seed": seed, "dirty": dirty, "robust": robust, **row})
                print(json.dumps(rows[-1]), flush=True)
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__}
        sizes = {"agents": options.agents, "epochs": options.epochs, "preset": "numosim-la"}
        write_result(options.out, {"machine": machine, **sizes, "summary": summary(rows), "rows": rows})


if __name__ == "__main__":
    main()
