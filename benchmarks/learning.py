"""How fast each feature is learned: validation loss by step for USTAD, its variants without uncertainty, Transformer.

    python benchmarks/learning.py                       200 agents of numosim-la, ten epochs, on the CPU

USTAD is trained with the paper's weight of categories (λ = 1) and with a larger one. Losses of kinds of place and of
weekdays are cross-entropies and can be compared between all; those of numbers only within USTAD, because it alone
has variances. Writes benchmarks/results/learning.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from ustad import progress
from ustad.baselines import make
from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.simulate import simulate_tables
from ustad.training import loop

OUT = Path(__file__).parent / "results" / "learning.json"
RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("transformer", {}),
    ("dual-tr", {}),
    ("ustad-plain", {}),
    ("ustad-plain", {"category_weight": 5.0}),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--data-seed", type=int, default=21, help="development data: no figure of a page comes from it")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def learned(name: str, changes: dict[str, Any], data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """The validation losses of every epoch of one method's training."""
    split = data.split(SplitConfig())
    train = data.between(split.train_first, split.validation_first - 1)
    validation = data.between(split.validation_first, split.test_first - 1)
    history: list[dict[str, Any]] = []
    kept = loop._Run.result

    def result(run: loop._Run) -> loop.FitResult:
        history.extend(run.progress.history)
        return kept(run)

    loop._Run.result = result  # type: ignore[method-assign]  # the history is not part of what a method keeps
    began = time.process_time()
    try:
        make(name, data.schema, 7, device=options.device, epochs=options.epochs, patience=99, **changes).fit(
            train, validation
        )
    finally:
        loop._Run.result = kept  # type: ignore[method-assign]  # as it was
    curve = [{"step": h["step"], **{k: round(v, 4) for k, v in h["validation_fields"].items()}} for h in history]
    return {"method": name, **changes, "cpu_s": round(time.process_time() - began, 1), "curve": curve}


def main() -> None:
    options = arguments()
    progress.disable()
    data = simulate_tables("numosim-la", agents=options.agents, seed=options.data_seed)
    runs = []
    for name, changes in RUNS:
        runs.append(learned(name, changes, data, options))
        last = runs[-1]["curve"][-1]
        print(f"{name:14} {changes}  after {last['step']} steps: " + ", ".join(f"{k} {v:.3f}" for k, v in last.items()))
        content = {"agents": options.agents, "data_seed": options.data_seed, "torch": torch.__version__, "runs": runs}
        OUT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
