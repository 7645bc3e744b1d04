"""Calibrated percentiles against the paper's ranks within the batch, on simulated numosim-la with its labels.

    python benchmarks/calibrated.py --agents 200
    python benchmarks/calibrated.py --device cuda --agents 2000

For each seed a city is simulated, the paper's network trained for a stated time, and the test weeks are scored once.
The same losses and distances are then turned into scores both ways. Prints AUROC and AP of events and agents, and
writes JSON: `calibrated - batch` says which is better; differences below 0.02 AUROC or a third of an AP are noise.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from ustad.config import Config
from ustad.dataset import load_directory
from ustad.detector import Detector
from ustad.evaluation.metrics import auroc, average_precision
from ustad.scoring.alerts import drift
from ustad.scoring.calibration import combine
from ustad.scoring.rejection import parts_of_table
from ustad.simulate import simulate

WAYS = ("batch", "calibrated")


def measure(seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """AUROC and AP of both ways, at both levels, for one city and one network."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        simulate("numosim-la", given.agents, seed, Path(place), days=given.days, anomalous_share=given.share)
        data = load_directory(Path(place))
    detector = Detector(_config(seed, given), given.device).fit(data)
    events = detector.score(data).events
    assert events is not None
    scores = {"batch": combine(parts_of_table(events)), "calibrated": events["score"].to_numpy()}
    agent = pc.dictionary_encode(events["agent_id"]).combine_chunks()
    codes = agent.indices.to_numpy(zero_copy_only=False)
    truth = _truth(events, data.labels)
    result: dict[str, Any] = {"seed": seed, "events": len(truth), "anomalous_events": int(truth.sum())}
    bad = _highest(truth.astype(float), codes) > 0
    result |= {"agents": len(bad), "anomalous_agents": int(bad.sum())}
    for way in WAYS:
        highest = _highest(scores[way], codes)
        result[way] = {
            "event_auroc": auroc(truth, scores[way]),
            "event_ap": average_precision(truth, scores[way]),
            "agent_auroc": auroc(bad, highest),
            "agent_ap": average_precision(bad, highest),
        }
    result["drift"] = drift(events["p_value"].to_numpy()[~truth])
    result["seconds"] = round(time.perf_counter() - began, 1)
    return result


def _config(seed: int, given: argparse.Namespace) -> Config:
    gpu = given.device == "cuda"
    return Config.preset(
        "paper",
        **{
            "seed": seed,
            "model.trips": "none",
            "scoring.percentiles": "calibrated",
            "training.batch_size": 1024 if gpu else 128,
            "training.learning_rate": 2e-3 if gpu else 1e-3,
            "training.noise_samples": 10,
            "training.max_minutes": given.minutes,
            "scoring.samples": given.samples,
            "training.compile": "off",
        },
    )


def _truth(events: pa.Table, labels: pa.Table | None) -> np.ndarray:
    assert labels is not None
    flagged = labels.filter(labels["anomaly"]) if "anomaly" in labels.column_names else labels
    return pc.is_in(events["stay_id"], flagged["stay_id"].combine_chunks()).to_numpy(zero_copy_only=False)


def _highest(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    result = np.full(int(codes.max()) + 1, -np.inf)
    np.maximum.at(result, codes, values)
    return result


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds and their differences."""
    names = list(runs[0]["batch"])
    means = {way: {n: float(np.mean([r[way][n] for r in runs])) for n in names} for way in WAYS}
    means["calibrated - batch"] = {n: means["calibrated"][n] - means["batch"][n] for n in names}
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--days", type=int, default=56)
    parser.add_argument("--share", type=float, default=0.05, help="anomalous agents among all")
    parser.add_argument("--minutes", type=float, default=0.3, help="time to train each network")
    parser.add_argument("--samples", type=int, default=50, help="T, Monte-Carlo samples of an event")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    runs = []
    for seed in given.seeds:
        runs.append(measure(seed, given))
        print(json.dumps(runs[-1]), flush=True)
    results = {
        "setting": {k: v for k, v in vars(given).items() if k != "out"} | {"load": os.getloadavg()[0]},
        "device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu",
        "means": summary(runs),
        "runs": runs,
    }
    for way, values in results["means"].items():
        print(f"{way:20s} " + "  ".join(f"{n} {v:.3f}" for n, v in values.items()))
    name = "calibrated-cuda.json" if given.device == "cuda" else "calibrated.json"
    out = given.out or Path(__file__).parent / "results" / name
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {out.name}")


if __name__ == "__main__":
    main()
