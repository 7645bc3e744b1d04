"""The second pass over measured partitions: ranks within all scored events, alerts, reasons, agents.

In: what a partition measured, and what all partitions say together. Out: its final part of the score tables. What was
measured is all that a judge needs, so the network is not asked again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ustad.detector import Detector
from ustad.distribution import Ranks
from ustad.engine.cluster import import_ray
from ustad.engine.folder import Place
from ustad.engine.jobs import Job, Task
from ustad.files import floats
from ustad.scores import TABLES
from ustad.scoring.alerts import AlertRule, Alerts
from ustad.scoring.score_table import MEASURED_COLUMN, read_measurements
from ustad.scoring.scored_parts import report_scores, tell_part

if TYPE_CHECKING:
    from ustad.engine.score_job import Plan


@dataclass(frozen=True)
class Judging:
    """How all partitions are judged."""

    plan: Plan
    out: Place
    standing: Any = None  # see `Judge.stand`
    alerts: Alerts = Alerts(AlertRule(), 0.0)

    def settle(self, detector: Detector, name: str) -> pa.Table:
        """One partition with its scores."""
        table = self.plan.measurements.read_table(f"events/{name}.parquet")
        return detector.require_judge().settle(table, self.standing)


def survey(name: str, judging: Judging) -> dict[str, Any]:
    """What a partition has to say once its ranks are known."""
    plan = judging.plan
    detector = plan.model.load(plan.device)
    return report_scores(judging.settle(detector, name), detector.schema, plan.request.rule, plan.span.days)


def tell(name: str, judging: Judging) -> dict[str, Any]:
    """Write the final part of the tables."""
    plan = judging.plan
    detector = plan.model.load(plan.device)
    file = f"agents/{name}.parquet"
    agents = plan.measurements.read_table(file) if plan.measurements.exists(file) else None
    events = judging.settle(detector, name)
    part = tell_part(
        detector.require_judge(), name, events, agents, alerts=judging.alerts, standing=judging.standing, run=plan
    )
    counts = {}
    for what in TABLES:
        table = getattr(part, what)
        if table is not None:
            judging.out.write_table(table.replace_schema_metadata(None), f"{what}/{name}.parquet")
            counts[what] = table.num_rows
    return counts


# ---------------------------------------------------------------------------------------------------- ranks
@dataclass(frozen=True)
class SharedRanks:
    """Ranks of one column in shared memory, brought in while they are asked."""

    reference: Any

    def log10_tail(self, values: np.ndarray) -> np.ndarray:
        return import_ray().get(self.reference).log10_tail(values)


def merge_ranks(job: Job, judging: Judging, names: list[str], detector: Detector) -> Judging:
    """Ranks of each column among all scored events: one task per column, which holds that column alone."""
    judge, place = detector.require_judge(), job.place / "ranks"
    tasks = [Task(f"{i:03d}-{name}", (name, names)) for i, name in enumerate(judge.ranked_columns)]
    job.run("ranks", tasks, _merge_column, (judging.plan.measurements, place), label="ranking, columns")
    ray = import_ray()
    ranks = [SharedRanks(ray.put(_read_ranks(place, name))) for name in judge.ranked_columns]
    return replace(judging, standing=judge.stand(ranks))


def _merge_column(payload: tuple[str, list[str]], context: tuple[Place, Place]) -> dict[str, Any]:
    (column, names), (measurements, place) = payload, context
    field = f"{MEASURED_COLUMN}.{column}"
    parts = [read_measurements(measurements.read_table(f"events/{name}.parquet", [field]))[column] for name in names]
    ranks = Ranks.of(np.concatenate([floats(part) for part in parts]), np.float32)
    table = pa.table({"value": ranks.values}).replace_schema_metadata({"count": str(ranks.count)})
    place.write_table(table, f"{column}.parquet")
    return {"count": ranks.count}


def _read_ranks(place: Place, column: str) -> Ranks:
    table = place.read_table(f"{column}.parquet")
    return Ranks(table["value"].to_numpy(), int(table.schema.metadata[b"count"]))
