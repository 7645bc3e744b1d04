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
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from measured import write_result
from ustad.config import Config
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.events.windows import Batch
from ustad.lab.evaluation.detection_metrics import auroc, average_precision
from ustad.network.losses import Loss, field_losses, field_means, masked_mean, weigh
from ustad.network.training import masked_step, masked_task
from ustad.network.training.masked_step import Stepper
from ustad.simulate.simulation import simulate_tables

DIRTY, ROBUST = (0.0, 0.1, 0.3), (0.0, 0.05, 0.15)
SETTINGS: dict[str, Any] = {
    "model.trips": "none",
    "model.network": "dual",
    "scoring.samples": 8,
    "scoring.neighbours": 20,
}


class LeavingOut(Stepper):
    """A step that leaves out this share of its windows, those whose masked events fit worst."""

    share: ClassVar[float] = 0.0

    def _finish(self, batch: Batch, masked: Tensor, events: Tensor, flat: Tensor, *, real: Tensor) -> Loss:
        network = self.network
        hidden = network.contextualise_where(
            events, masked, batch.padding, batch.position, day_position=batch.day_position, flat=flat
        )
        targets = masked_step._flatten(batch.features)[flat]
        losses = field_losses(network.decode(hidden), targets, network.fields, self.config)
        weighed_losses = losses if batch.weight is None else losses * batch.weight.flatten(0, 1)[flat]
        values = weigh(weighed_losses, network.fields, self.config)
        window = torch.div(flat, masked.shape[1], rounding_mode="floor")
        mask = real & best_fitting(values.detach(), real, window, len(masked), share=self.share)[window]
        return Loss(masked_mean(values, mask), field_means(losses, targets.missing, real))


def best_fitting(values: Tensor, real: Tensor, window: Tensor, n_windows: int, *, share: float) -> Tensor:
    """Windows to learn from: all but the given share whose masked events fit worst on average. bool [B]."""
    counts = torch.zeros(n_windows, device=values.device).index_add(0, window, real.to(torch.float32))
    sums = torch.zeros(n_windows, device=values.device).index_add(0, window, values.masked_fill(~real, 0.0))
    means = torch.where(counts > 0, sums / counts.clamp(min=1), -torch.inf)
    worst_first = means.argsort(descending=True, stable=True)
    rank = torch.empty_like(worst_first).scatter(0, worst_first, torch.arange(n_windows, device=values.device))
    return rank >= torch.floor(share * (counts > 0).sum())


def measured(data: Dataset, config: Config) -> dict[str, float]:
    """Detection in the test weeks, and how well ordinary events there are foreseen."""
    began = time.perf_counter()
    scored = Detector(config, "cpu").fit(data).score(data, details=True).with_details()
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
    masked_task.Stepper = LeavingOut  # type: ignore[misc]  # what training takes its steps with
    rows: list[dict[str, Any]] = []
    for seed in range(101, 101 + options.seeds):
        for dirty in DIRTY:
            data = simulate_tables("numosim-la", options.agents, seed, dirty=dirty, anomalous_share=0.2)
            for robust in ROBUST:
                LeavingOut.share = robust
                changes = {**SETTINGS, "training.epochs": options.epochs, "seed": seed}
                row = measured(data, Config.preset("quick", **changes))
                rows.append({"seed": seed, "dirty": dirty, "robust": robust, **row})
                print(json.dumps(rows[-1]), flush=True)
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__}
        sizes = {"agents": options.agents, "epochs": options.epochs, "preset": "numosim-la"}
        write_result(options.out, {"machine": machine, **sizes, "summary": summary(rows), "rows": rows})


if __name__ == "__main__":
    main()
