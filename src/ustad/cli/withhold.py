"""`ustad score --reject --curves`: predictions are withheld, and curves of error written, once scores are written.

Works on a directory of scores, part by part, whoever wrote it. In memory at one time are the uncertainties and errors
of all events, and one part.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ustad.cli.alert_files import add_to_run, rewrite_alerts, table_files


@dataclass(frozen=True)
class Rejection:
    """What is asked for, and the judge whose calibration events say what is certain."""

    judge: Any
    share: float | None = None  # of the predictions, to withhold
    by: str = "sum"
    curves: bool = False


def reject_unsure(place: Path, wish: Rejection, schema: Any, run: dict[str, Any]) -> dict[str, Any]:
    """Write `rejection.csv` and withhold predictions, as far as asked for; returns what `run.json` says from now on.

    The details in `place` are those of every event.
    """
    from ustad.scoring.rejection import rejection_curves
    from ustad.triage.export import write_csv

    parts = [_read_measured(file) for file in table_files(place, "details")]
    if wish.curves:
        import pyarrow as pa

        write_csv(rejection_curves(pa.concat_tables(parts), wish.judge.calibration.parts), place / "rejection.csv")
    return run if wish.share is None else _withhold_all(place, wish, schema, parts)


def _read_measured(file: Path) -> Any:
    """The columns of a part that uncertainties and errors are told by."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as part:
        names = part.schema_arrow.names
        return part.read([n for n in names if n == "knn" or n.startswith(("pct_", "error_", "loss_", "au_", "eu_"))])


def _withhold_all(place: Path, wish: Rejection, schema: Any, parts: list[Any]) -> dict[str, Any]:
    """Events, details, incidents and agents without predictions of the least certain share, part by part."""
    from ustad.files import read_table, write_table
    from ustad.network.network_words import term_labels
    from ustad.scores import join_details
    from ustad.scoring.rejection import agents_after, incidents_after, parts_of_table, reject, uncertainty

    reference, labels = wish.judge.calibration.parts, term_labels(wish.judge.source.encoder)
    totals = [uncertainty(parts_of_table(part), wish.by, reference) for part in parts]  # type: ignore[arg-type]  # checked by the verb
    threshold = float(np.quantile(np.concatenate(totals), 1 - (wish.share or 0.0)))
    files = {name: table_files(place, name) for name in ("details", "agents", "incidents")}
    counts: list[int] = []

    def withhold_part(number: int, events: Any) -> Any:
        details, agents, incidents = (read_table(own[number]) for own in files.values())
        table, _ = reject(
            join_details(events, details, schema), wish.share or 0.0, wish.by, reference,  # type: ignore[arg-type]  # as above
            labels=labels, threshold=threshold,
        )  # fmt: skip
        write_table(table.select(details.column_names), files["details"][number])
        write_table(agents_after(agents, table, schema.entity), files["agents"][number])
        write_table(incidents_after(incidents, events, table), files["incidents"][number])
        counts.append(int(sum(table["withheld"].to_pylist())))
        return table.select([*events.column_names, "uncertainty", "withheld"])

    rewrite_alerts(place, schema, withhold_part)
    note = {"share": wish.share, "by": wish.by, "threshold": threshold, "withheld": sum(counts)}
    return add_to_run(place, [], rejected=note)
