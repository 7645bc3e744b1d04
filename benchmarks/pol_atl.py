"""The default's agent scores on Urban Patterns of Life, Atlanta: a public simulation with changed habits.

    python benchmarks/pol_atl.py --data DIRECTORY [--networks DIRECTORY]

DIRECTORY holds pol_atl_gps_train.parquet, pol_atl_gps_test.parquet, pol_atl_checkins_train.parquet and
pol_atl_labels.csv; `--networks` is where `benchmarks/networks.py atlanta` wrote what the memory network says, once for
each seed it was trained with. The rule is the preset's. Stays are extracted as these fixes ask for: they have no noise
(nearly all repeat the one before exactly) and come every 5 minutes in a town whose buildings stand 50 m apart, so a
stay is two fixes within 10 m; and, without the network, as for phones. Places are named by the venues of the training
check-ins, or not at all (without the network). Agents of the type Interest, which leaves no trace in the fixes, are
left out. Prints AUROC / AP of agents, writes benchmarks/results/pol_atl.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

import ustad
from default_data import StoredTerms, fingerprint
from measured import write_result
from ustad import progress
from ustad.config import ExtractionConfig
from ustad.dataset import event_days
from ustad.habits.history import Habits
from ustad.judges import learn_from
from ustad.lab.baselines import make
from ustad.lab.evaluation.detection_metrics import auroc, average_precision
from ustad.lab.evaluation.sources import POL_ATL_ZONE
from ustad.lessons import calibrating
from ustad.mobility.extraction import extract_tables
from ustad.network.inference.memory_terms import RAW
from ustad.schema import mobility_schema
from ustad.scoring.entity_tests import top_mean

RESULTS = Path(__file__).parent / "results"
TARGET = (0.86, 0.55)
VALIDATION_DAYS = 7
#: How places are known: by the names of the venues that people check in at, or by where the fixes are alone.
WAYS = ("venues", "fixes")
EXTRACTION = ExtractionConfig(distance_m=10.0, end_rule="last-inside", poi_radius_m=50.0)

Terms = Callable[[Habits, pa.Table, pa.Table | None], Mapping[str, np.ndarray]]
Runs = dict[str, list[list[float]]]  # method → AUROC and AP of each run


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--networks", type=Path, help="where benchmarks/networks.py wrote; without: habits alone")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    progress.disable()
    began = time.monotonic()
    kinds = _labels(options.data / "pol_atl_labels.csv")
    table: dict[str, Runs] = {}
    facts = []
    for way in WAYS:
        parts = periods(options.data, way)
        table[f"{way}, without the memory network"] = judged(parts, None, kinds)
        for path in sorted(options.networks.glob("atlanta-*.npz")) if options.networks and way == "venues" else ():
            stored = np.load(path)
            facts.append(json.loads(str(stored["facts"])))
            found = judged(parts, stored_terms(stored, way, *parts[1:]), kinds)
            table[way] = {name: [*table.get(way, {}).get(name, []), *runs] for name, runs in found.items()}
        table[f"{way}, visit rate"] = {"visit rate": [visit_rate(parts, kinds)]}
        phones = judged(periods(options.data, way, ExtractionConfig()), None, kinds)
        table[f"{way}, extracted as for phones, without the memory network"] = {"default": phones["default"]}
    for name, rows in table.items():
        for method, runs in rows.items():
            area, precision = np.mean(runs, axis=0)
            print(f"{name:62s} {method:12s} {area:.3f} / {precision:.3f}")
    print(f"target {TARGET[0]:.2f} / {TARGET[1]:.2f}   ({time.monotonic() - began:.0f} s)")
    content = {"table": table, "target": TARGET, "networks": facts, "version": ustad.__version__}
    RESULTS.mkdir(exist_ok=True)
    write_result(RESULTS / "pol_atl.json", {**content, "cores": os.cpu_count()})


# ---------------------------------------------------------------------------------------------------- data
def periods(data: Path, way: str, extraction: ExtractionConfig = EXTRACTION) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Stays of three weeks to learn from, one to calibrate on, and two to score."""
    pois = venues(data / "pol_atl_checkins_train.parquet") if way == "venues" else None
    early, test = (stays(data / f"pol_atl_gps_{part}.parquet", pois, extraction) for part in ("train", "test"))
    days = event_days(early, mobility_schema())
    boundary = int(days.max()) + 1 - VALIDATION_DAYS
    train, validation = (early.filter(pa.array(part)) for part in (days < boundary, days >= boundary))
    return train, validation, test


def stays(path: Path, pois: pa.Table | None, extraction: ExtractionConfig) -> pa.Table:
    """The stays of one file. Own places that extraction names by itself are numbered anew in each file: dropped."""
    found = extract_tables(pq.read_table(path), extraction, pois, timezone=POL_ATL_ZONE, times="local").events
    return found if pois is not None else found.drop_columns(["poi_id", "poi_category"])


def venues(path: Path) -> pa.Table:
    """Each venue of the check-ins once: what a list of the town's POIs would hold."""
    found = (
        pq.read_table(path).group_by("venue_id").aggregate([("lat", "mean"), ("lon", "mean"), ("venue_type", "min")])
    )
    found = found.sort_by("venue_id")
    names = ("venue_id", "lat_mean", "lon_mean", "venue_type_min")
    return pa.table(dict(zip(("poi_id", "lat", "lon", "category"), (found[n] for n in names), strict=True)))


def stored_terms(stored: Any, way: str, validation: pa.Table, test: pa.Table) -> Terms:
    """The network's terms as they were written, for the two tables they were written for."""
    held = {}
    for part, table in (("validation", validation), ("test", test)):
        if str(stored[f"{way}.{part}.fingerprint"]) != fingerprint(table):
            raise SystemExit(f"atlanta: its {part} stays are not these; run benchmarks/networks.py atlanta again")
        held[table.num_rows] = {name: stored[f"{way}.{part}.{name}"] for name in RAW}
    return lambda habits, events, before: held[events.num_rows]


def _labels(path: Path) -> dict[int, str]:
    table = pa_csv.read_csv(path)
    return dict(zip(table["agent_id"].to_pylist(), table["outlier_type"].to_pylist(), strict=True))


# ------------------------------------------------------------------------------------------------- methods
def judged(parts: tuple[pa.Table, pa.Table, pa.Table], extra: Terms | None, kinds: dict[int, str]) -> Runs:
    """AUROC and AP of the default, of each of its tests alone, and of other numbers of top events."""
    train, validation, test = parts
    half = calibrating(validation, "agent_id")
    others = (StoredTerms(extra),) if extra is not None else ()
    model = learn_from(train, validation, mobility_schema(), half, others=others)
    found = model.judge(test, context=pa.concat_tables([train, validation]))
    scores = {"default": found.agent_score, **{f"test {name}": values for name, values in found.agents.items()}}
    for most in (1, 5, 10):
        scores[f"top {most}"] = top_mean(found.score, found.entity, len(found.entity_ids), most * (1.0,))
    return {name: [measured(found.entity_ids, values, kinds)] for name, values in scores.items()}


def visit_rate(parts: tuple[pa.Table, pa.Table, pa.Table], kinds: dict[int, str]) -> list[float]:
    rate = make("visit-rate").fit(*parts[:2]).score(parts[2]).agents
    return measured(rate["agent_id"].to_numpy(), rate["score"].to_numpy(), kinds)


def measured(ids: np.ndarray, score: np.ndarray, kinds: dict[int, str]) -> list[float]:
    """AUROC and AP of agents; those of the type Interest are neither positive nor negative."""
    kind = [kinds.get(int(i)) for i in ids]
    kept = np.array([k != "Interest" for k in kind])
    truth = np.array([k is not None for k in kind])[kept]
    return [auroc(truth, score[kept]), average_precision(truth, score[kept])]


if __name__ == "__main__":
    main()
