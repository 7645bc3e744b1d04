"""The default's agent scores on Urban Patterns of Life, Atlanta: a public simulation with changed habits.

    python benchmarks/pol_atl.py --data DIRECTORY [--memory --device cuda]

DIRECTORY holds pol_atl_gps_train.parquet, pol_atl_gps_test.parquet and pol_atl_labels.csv. Stays are extracted from
the raw fixes; the rule is the preset's, nothing is chosen here; agents of the type Interest, which leaves no trace
in the fixes, are left out. Prints AUROC / AP of agents and writes benchmarks/results/pol_atl.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

import ustad
from ustad import progress
from ustad.baselines import make
from ustad.config import Config
from ustad.dataset import event_days
from ustad.detector import choose_device
from ustad.evaluation.metrics import auroc, average_precision
from ustad.events.encoder import Encoder
from ustad.mobility.extraction import extract_tables
from ustad.schema import mobility_schema
from ustad.scoring.default_score import fit_default

RESULTS = Path(__file__).parent / "results"
TARGET = (0.86, 0.55)
VALIDATION_DAYS = 7


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--minutes", type=float, default=1.5, help="at most this long for the network's training")
    return parser.parse_args()


def stays(path: Path) -> pa.Table:
    return extract_tables(pq.read_table(path), timezone="UTC").events


def main() -> None:
    options = arguments()
    progress.disable()
    began = time.monotonic()
    early, test = (stays(options.data / f"pol_atl_gps_{part}.parquet") for part in ("train", "test"))
    days = event_days(early, mobility_schema())
    boundary = int(days.max()) + 1 - VALIDATION_DAYS
    train, validation = (early.filter(pa.array(part)) for part in (days < boundary, days >= boundary))
    network = "memory" if options.memory else "dual"
    config = Config.preset("default", **{"model.network": network, "training.max_minutes": options.minutes})
    encoder = Encoder.fit(train, mobility_schema("none", config.model.trip_size, config.model.log_duration))
    model = fit_default(train, validation, encoder, config, choose_device(options.device))
    judged = model.habits.judge(test, context=early)
    kinds = _labels(options.data / "pol_atl_labels.csv")
    rate = make("visit-rate").fit(train, validation).score(test).agents
    scores = {"default": judged.agent_score, **{f"test {k}": v for k, v in judged.agents.items()}}
    table = {name: measured(judged.entity_ids, value, kinds) for name, value in scores.items()}
    table["visit rate"] = measured(rate["agent_id"].to_numpy(), rate["score"].to_numpy(), kinds)
    for name, (area, precision) in table.items():
        print(f"{name:16s} {area:.3f} / {precision:.3f}")
    print(
        f"target           {TARGET[0]:.3f} / {TARGET[1]:.3f}   ({time.monotonic() - began:.0f} s, network: {network})"
    )
    content = {
        "table": table,
        "target": TARGET,
        "network": network,
        "version": ustad.__version__,
        "cores": os.cpu_count(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "pol_atl.json").write_text(json.dumps(content, indent=1) + "\n")


def _labels(path: Path) -> dict[int, str]:
    table = pa_csv.read_csv(path)
    return dict(zip(table["agent_id"].to_pylist(), table["outlier_type"].to_pylist(), strict=True))


def measured(ids: np.ndarray, score: np.ndarray, kinds: dict[int, str]) -> list[float]:
    """AUROC and AP of agents; those of the type Interest are neither positive nor negative."""
    kind = [kinds.get(int(i)) for i in ids]
    kept = np.array([k != "Interest" for k in kind])
    truth = np.array([k is not None for k in kind])[kept]
    return [auroc(truth, score[kept]), average_precision(truth, score[kept])]


if __name__ == "__main__":
    main()
