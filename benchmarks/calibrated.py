"""Calibrated percentiles against the paper's ranks within the batch, on simulated numosim-la with its labels.

    python benchmarks/calibrated.py
    python benchmarks/calibrated.py --device cuda --agents 2000 --share 0.025 --width 64 --epochs 20 --samples 50

For each seed a city is simulated, the paper's network trained for some epochs, and the test weeks are scored once. The
same losses and distances are then turned into scores both ways, and the two ways that lie between them: ranks against
the reference period without a fitted tail, and a fitted tail of the scored events themselves. Agents are scored by
their highest event and by that corrected for how many they have. Prints AUROC and AP of events and agents, and writes
JSON: `calibrated - batch` says which is better, `spread` how far that difference moves when other agents are drawn.
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

from measured import write_result
from ustad.config import Config
from ustad.dataset import load_directory
from ustad.detector import Detector
from ustad.distribution import Distribution, Ranks, log10_any
from ustad.lab.evaluation.ablated_scores import combine
from ustad.lab.evaluation.detection_metrics import auroc, average_precision
from ustad.scoring.alerts import drift
from ustad.scoring.calibration import Parts, apply_tails, entity_maxima, highest
from ustad.scoring.rejection import parts_of_table
from ustad.simulate import simulate

WAYS = ("batch", "batch, tail fitted", "reference, ranks only", "calibrated")
DRAWS = 200  # of agents, for the spread


def measure(seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """AUROC and AP of all ways, at both levels, for one city and one network."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        simulate("numosim-la", given.agents, seed, Path(place), days=given.days, anomalous_share=given.share)
        data = load_directory(Path(place))
    detector = Detector(_config(seed, given), given.device).fit(data)
    events, judge = detector.score(data, details=True).with_details(), detector.paper()
    parts, truth = parts_of_table(events), _truth(events, data.labels)
    agent = pc.dictionary_encode(events["agent_id"]).combine_chunks()
    codes = agent.indices.to_numpy(zero_copy_only=False)
    bad, counts = entity_maxima(truth.astype(float), codes)
    result: dict[str, Any] = {"seed": seed, "events": len(truth), "anomalous_events": int(truth.sum())}
    result |= {"agents": len(bad), "anomalous_agents": int(bad.sum())}
    result |= {
        "reference_agents": len(np.unique(judge.calibration.entity)),
        "reference_events": len(judge.calibration.parts),
    }
    scores = ways(parts, judge.calibration.parts)
    result |= {way: figures(truth, scores[way], codes) for way in WAYS}
    log10_p = {"batch": judge.stand([Ranks.of(c) for c in parts.columns.T]).tail.log10_tail(scores["batch"])}
    log10_p["calibrated"] = judge.calibration.log10_p(scores["calibrated"])
    for way, values in log10_p.items():
        own = -log10_any(-entity_maxima(-values, codes)[0], counts)
        result[f"{way}, corrected"] = {"agent_auroc": auroc(bad > 0, own), "agent_ap": average_precision(bad > 0, own)}
    result["spread"] = spread(truth, scores, codes)
    result["drift"] = drift(events["p_value"].to_numpy()[~truth])
    result["seconds"] = round(time.perf_counter() - began, 1)
    return result


def ways(parts: Parts, reference: Parts) -> dict[str, np.ndarray]:
    """Event scores by what they are compared with (the batch, the reference) and how (ranks, a fitted tail)."""
    columns, normal = parts.columns, reference.columns
    return {
        "batch": combine(parts),
        "batch, tail fitted": highest(apply_tails([Distribution.fit(c) for c in columns.T], columns)),
        "reference, ranks only": highest(apply_tails([Ranks.of(c) for c in normal.T], columns)),
        "calibrated": combine(parts, reference=reference),
    }


def figures(truth: np.ndarray, score: np.ndarray, codes: np.ndarray) -> dict[str, float]:
    """AUROC and AP of events, and of agents by their highest event."""
    bad, own = entity_maxima(truth.astype(float), codes)[0] > 0, entity_maxima(score, codes)[0]
    return {
        "event_auroc": auroc(truth, score),
        "event_ap": average_precision(truth, score),
        "agent_auroc": auroc(bad, own),
        "agent_ap": average_precision(bad, own),
    }


def spread(truth: np.ndarray, scores: dict[str, np.ndarray], codes: np.ndarray) -> dict[str, float]:
    """Standard deviation of `calibrated - batch` over draws of as many agents with replacement."""
    rng, rows = np.random.default_rng(0), np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    differences: list[dict[str, float]] = []
    for _ in range(DRAWS):
        drawn = rng.integers(len(rows), size=len(rows))
        chosen = np.concatenate([rows[i] for i in drawn])
        again = np.repeat(np.arange(len(drawn)), [len(rows[i]) for i in drawn])
        new, old = (figures(truth[chosen], scores[way][chosen], again) for way in ("calibrated", "batch"))
        differences.append({name: new[name] - old[name] for name in new})
    return {name: float(np.std([d[name] for d in differences])) for name in differences[0]}


def _config(seed: int, given: argparse.Namespace) -> Config:
    gpu = given.device == "cuda"
    return Config.preset(
        "paper",
        **{
            "seed": seed,
            "model.trips": "none",
            "scoring.percentiles": "calibrated",
            "model.width": given.width,
            "training.batch_size": 1024 if gpu else 128,
            "training.learning_rate": 2e-3,
            "training.epochs": given.epochs,
            "scoring.samples": given.samples,
            "training.acceleration": "off",
        },
    )


def _truth(events: pa.Table, labels: pa.Table | None) -> np.ndarray:
    assert labels is not None
    flagged = labels.filter(labels["anomaly"]) if "anomaly" in labels.column_names else labels
    return pc.is_in(events["stay_id"], flagged["stay_id"].combine_chunks()).to_numpy(zero_copy_only=False)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds, the difference of the two ways, and the standard deviation of that."""
    names = list(runs[0]["batch"])
    shown = [*WAYS, *(f"{way}, corrected" for way in ("batch", "calibrated"))]
    means = {way: {n: float(np.mean([r[way][n] for r in runs])) for n in runs[0][way]} for way in shown}
    means["calibrated - batch"] = {n: means["calibrated"][n] - means["batch"][n] for n in names}
    means["spread"] = {n: float(np.sqrt(np.sum([r["spread"][n] ** 2 for r in runs]))) / len(runs) for n in names}
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--days", type=int, default=56)
    parser.add_argument("--share", type=float, default=0.1, help="anomalous agents among all")
    parser.add_argument("--width", type=int, default=32, help="D, the width of the network")
    parser.add_argument("--epochs", type=int, default=4, help="of training")
    parser.add_argument("--samples", type=int, default=10, help="T, Monte-Carlo samples of an event")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8, 9])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    runs = []
    for seed in given.seeds:
        runs.append(measure(seed, given))
        print(json.dumps(runs[-1]), flush=True)
    means = summary(runs)
    results = {
        "setting": {k: v for k, v in vars(given).items() if k != "out"} | {"load": os.getloadavg()[0]},
        "device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu",
        "means": means,
        "runs": runs,
    }
    for way, values in means.items():
        print(f"{way:24s} " + "  ".join(f"{n} {v:.3f}" for n, v in values.items()))
    name = "calibrated-cuda.json" if given.device == "cuda" else "calibrated.json"
    out = given.out or Path(__file__).parent / "results" / name
    out.parent.mkdir(parents=True, exist_ok=True)
    write_result(out, results)
    print(f"written to {out.name}")


if __name__ == "__main__":
    main()
