"""What the settings of extraction cost and gain in a Patterns-of-Life city: check-ins found, and detection by `quick`.

    python benchmarks/atlanta_stays.py --data FOLDER

FOLDER holds pol_atl_gps_*.parquet, pol_atl_checkins_*.parquet and pol_atl_labels.csv: a fix every five minutes without
error, buildings 50 m apart. Settings are the plain rule (100 m, 5 min), two fixes within 10 m, and what extraction
chooses by itself; places are named by the venues of the training check-ins, or are the agents' own. A check-in that is
followed by another ten minutes later or more is found if a stay lies within 50 m of it. Agents of the type Interest,
which leaves no trace in the fixes, are left out. Writes benchmarks/results/atlanta_stays.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from sklearn.metrics import average_precision_score, roc_auc_score

import ustad
from measured import write_result
from ustad import Detector, progress
from ustad.clock import localise
from ustad.config import Config, ExtractionConfig
from ustad.dataset import Dataset
from ustad.geo import haversine_km
from ustad.mobility.extraction import extract_tables
from ustad.mobility.parameters import Wish

ZONE = "America/New_York"
RESULTS = Path(__file__).parent / "results" / "atlanta_stays.json"
SETTINGS: dict[str, ExtractionConfig | Wish] = {
    "100 m, 5 min": ExtractionConfig(),
    "10 m, 5 min": ExtractionConfig(distance_m=10.0, poi_radius_m=50.0, end_rule="last-inside"),
    "automatic": Wish(),
}
SITE_M, SOON_US, LEAST_US = 50.0, 300_000_000, 600_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data
    progress.disable()
    fixes = pa.concat_tables([pq.read_table(folder / f"pol_atl_gps_{part}.parquet") for part in ("train", "test")])
    checkins = pq.read_table(folder / "pol_atl_checkins_train.parquet")
    test_first = str(pq.read_table(folder / "pol_atl_gps_test.parquet")["t"].to_numpy().min().astype("datetime64[s]"))
    labels = pa_csv.read_csv(folder / "pol_atl_labels.csv")
    kinds = dict(zip(labels["agent_id"].to_pylist(), labels["outlier_type"].to_pylist(), strict=True))
    rows: list[dict[str, object]] = []
    for places, pois in (("venues", venues(checkins)), ("own", None)):
        for name, wanted in SETTINGS.items():
            data = extract_tables(fixes, wanted, pois, timezone=ZONE, times="local")
            data = Dataset(data.events, pois=data.pois, meta={**data.meta, "split": {"test_first": test_first}})
            config = data.meta["extraction"]
            area, precision = detection(data, kinds)
            row = {"places": places, "settings": name, "distance_m": config["distance_m"],
                   "stays": data.events.num_rows, "checkins": share_found(data.events, checkins),
                   "auroc": area, "aupr": precision}  # fmt: skip
            rows.append(row)
            print("  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{v}" for k, v in row.items()), flush=True)
    content = {"rows": rows, "agents": len(pc.unique(fixes["agent"])), "version": ustad.__version__}
    write_result(RESULTS, content)


def venues(checkins: pa.Table) -> pa.Table:
    """Each venue of the check-ins once, as POIs."""
    means = [("lat", "mean"), ("lon", "mean"), ("venue_type", "min")]
    rows = checkins.group_by("venue_id").aggregate(means).sort_by("venue_id")
    columns = {"poi_id": "venue_id", "lat": "lat_mean", "lon": "lon_mean", "category": "venue_type_min"}
    return pa.table({ours: rows[theirs] for ours, theirs in columns.items()})


def detection(data: Dataset, kinds: dict[int, str]) -> tuple[float, float]:
    """AUROC and AP of agents by the preset `quick`."""
    agents = Detector(Config.preset("quick"), device="cpu").fit(data).score(data).agents
    kind = [kinds.get(int(agent)) for agent in agents["agent_id"].to_pylist()]
    kept = np.array([k != "Interest" for k in kind])
    truth, score = np.array([k is not None for k in kind])[kept], agents["score"].to_numpy()[kept]
    return float(roc_auc_score(truth, score)), float(average_precision_score(truth, score))


def share_found(stays: pa.Table, checkins: pa.Table) -> float:
    """Share of the check-ins with a stay at their site, of those long enough to have one."""
    found = total = 0
    stays = stays.sort_by("agent_id")
    for agent in pc.unique(checkins["agent"]).to_pylist():
        own = checkins.filter(pc.equal(checkins["agent"], agent)).sort_by("t")
        arrived = localise(own["t"].cast(pa.timestamp("s")), ZONE).cast(pa.int64()).to_numpy()
        mine = stays.filter(pc.equal(stays["agent_id"], agent))
        start, end = (mine[c].cast(pa.int64()).to_numpy() for c in ("started_at", "finished_at"))
        near = 1000 * haversine_km(
            own["lat"].to_numpy()[:, None], own["lon"].to_numpy()[:, None], mine["lat"].to_numpy(),
            mine["lon"].to_numpy(),
        ) <= SITE_M  # fmt: skip
        during = (end >= arrived[:, None]) & (start <= arrived[:, None] + SOON_US)
        long_enough = np.r_[np.diff(arrived) >= LEAST_US, False]
        found += int((near & during).any(axis=1)[long_enough].sum())
        total += int(long_enough.sum())
    return found / total


if __name__ == "__main__":
    main()
