"""How fast each feature is learned: errors of prediction by step for Transformer, Dual-Tr and USTAD.

    python benchmarks/learning.py                       200 agents of numosim-la, twelve epochs of small steps, CPU
    python benchmarks/learning.py --agents 2000 --batch 256 --device cuda

Every method takes the same steps on the same windows and answers the same questions about the validation week: mean
absolute errors in minutes and kilometres, the share of kinds of place and of weekdays that are right. USTAD is trained
as in the paper, with log-variances that learn more slowly, and with a larger weight λ of categories. No label is looked
at. Writes benchmarks/results/learning.json.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from measured import write_result
from ustad import progress
from ustad.config import Config, SplitConfig
from ustad.dataset import Dataset
from ustad.events.encoder import Encoder
from ustad.events.windows import EventTensors, Queries
from ustad.lab.baselines import make
from ustad.lab.baselines.base import without
from ustad.lab.baselines.deep import masked_predictions
from ustad.lab.prediction import prediction_metrics
from ustad.network.training import loop
from ustad.network.training.task import Validation
from ustad.simulate import simulate_tables

OUT = Path(__file__).parent / "results" / "learning.json"
RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("transformer", {}),
    ("dual-tr", {}),
    ("ustad-plain", {}),
    ("ustad-plain", {"category_weight": 5.0}),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="numosim-la", choices=("numosim-la", "simla", "simjordan"))
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--data-seed", type=int, default=21, help="development data: no figure of a page comes from it")
    parser.add_argument("--seed", type=int, default=101, help="of the first weights and of every step")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


def errors(network: Any, encoder: Encoder, tensors: EventTensors, queries: Queries) -> dict[str, float]:
    """Per term the mean absolute error in its own unit, or per cent right, of every question."""
    was_training = network.training
    told = [(p.mean, [u.argmax(-1) for u in p.logits], f) for p, f, _ in masked_predictions(network, tensors, queries)]
    network.train(was_training)
    expected: dict[str, np.ndarray] = {}
    observed: dict[str, np.ndarray] = {}
    numbers = [f.name for f in encoder.fields if f.kind == "number"]
    categories = [f.name for f in encoder.fields if f.kind == "category"]
    for values, found in (
        (expected, [(mean, torch.stack(codes, -1)) for mean, codes, _ in told]),
        (observed, [(truth.numbers, truth.categories) for _, _, truth in told]),
    ):
        plain, words = (torch.cat(part).cpu().numpy() for part in zip(*found, strict=True))
        of_field = dict(zip(numbers, plain.T, strict=True))
        for term in encoder.terms:
            if term.kind == "category":
                values[term.name] = words[:, categories.index(term.fields[0])]
            elif term.kind == "angle":
                values[term.name] = encoder.decode_angle(term.feature, *(of_field[name] for name in term.fields))
            else:
                values[term.name] = encoder.decode_number(term.fields[0], of_field[term.fields[0]])
    rows = prediction_metrics(encoder, expected, observed).to_pylist()
    return {row["term"]: round(row["mae"] if row["accuracy"] is None else row["accuracy"], 3) for row in rows}


def learned(
    name: str,
    changes: dict[str, Any],
    train: pa.Table,
    validation: pa.Table,
    data: Dataset,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """The errors after every epoch of one method's training."""
    encoder = Encoder.fit(train, without(data.schema, "vector"))
    curve: list[dict[str, float]] = []
    kept = loop.validate

    def judged(network: Any, tensors: EventTensors, queries: Queries, config: Config) -> Validation:
        curve.append(errors(network, encoder, tensors, queries))
        return kept(network, tensors, queries, config)

    loop.validate = judged  # every epoch's questions, and all of them once at the end
    budget = {"epochs": options.epochs, "patience": 99, "batch_size": options.batch, "learning_rate": options.rate}
    began = time.process_time()
    try:
        method = make(name, data.schema, options.seed, device=options.device, width=options.width, **budget, **changes)
        method.fit(train, validation)
    finally:
        loop.validate = kept
    return {"method": name, **changes, "cpu_s": round(time.process_time() - began, 1), "curve": curve[:-1]}


def main() -> None:
    options = arguments()
    progress.disable()
    data = simulate_tables(options.data, agents=options.agents, seed=options.data_seed)
    split = data.split(SplitConfig())
    train = data.between(split.train_first, split.validation_first - 1)
    validation = data.between(split.validation_first, split.test_first - 1)
    settings = {k: v for k, v in vars(options).items() if k != "out"}
    runs = []
    for name, changes in RUNS:
        runs.append(learned(name, changes, train, validation, data, options))
        last = runs[-1]["curve"][-1]
        print(f"{name:14} {changes} " + ", ".join(f"{k} {v:.2f}" for k, v in last.items()), flush=True)
        write_result(options.out, {**settings, "torch": torch.__version__, "runs": runs})


if __name__ == "__main__":
    main()
