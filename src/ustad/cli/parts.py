"""`ustad score` of many entities: scores are written part by part, so memory is bounded by the part.

In: a detector and data. Out: a folder of Parquet parts for each table of scores (`events/` …) beside `run.json`, which
`Scores.load` reads as it reads single files, and the alerts.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ustad.cli.across_agents import AcrossAgents

#: Parts that are written at the same time.
WRITERS = max(2, min(4, (os.cpu_count() or 1) // 2))


def are_many(data: Any) -> bool:
    """Whether there are more entities than one part holds."""
    import pyarrow.compute as pc

    from ustad.scoring.scored_parts import ENTITIES

    return len(pc.unique(data.events[data.schema.entity])) > ENTITIES


def write_in_parts(
    detector: Any, data: Any, place: Path, facts: dict[str, Any], *, across: AcrossAgents | None = None, **options: Any
) -> dict[str, Any]:
    """Score and write; returns what `run.json` says, with the numbers of events and agents.

    `across` sees every part, and alerts of unusual days that it finds are taken off the list.
    """
    import pyarrow as pa

    from ustad.files import write_json, write_table
    from ustad.scores import TABLES
    from ustad.triage.export import write_alerts

    parts = detector.score_parts(data, **options)
    if across is not None:
        parts.look = across.look
        across.prepare(parts.events)
    counts, alerts = dict.fromkeys(TABLES, 0), []
    with ThreadPoolExecutor(WRITERS) as pool:
        writing: deque[Future[None]] = deque()
        for i, scores in enumerate(parts):
            if across is not None and not i:
                across.finish()
            part = across.take_off(i, scores) if across is not None else scores
            for name in TABLES:
                table = getattr(part, name)
                if table is None:
                    continue
                file = place / f".{name}" / f"part-{i:05d}.parquet"
                writing.append(pool.submit(write_table, table.replace_schema_metadata(None), file))
                counts[name] += table.num_rows
            alerts.append(part.events.filter(part.events["alert"]))
            while len(writing) > 2 * WRITERS:
                writing.popleft().result()
        for one in writing:
            one.result()
    _put_in_place(place)
    alert_rows = pa.concat_tables(alerts, promote_options="permissive")
    write_alerts(alert_rows, detector.schema, place)
    run = {**parts.notes, **detector.run_facts(parts.span.first, parts.span.last), **facts}
    write_json(run, place / "run.json")
    return {**run, **counts}


def _put_in_place(place: Path) -> None:
    """New parts instead of whatever scores were there; `run.json` comes back last."""
    from ustad.scores import TABLES

    (place / "run.json").unlink(missing_ok=True)
    for name in TABLES:
        (place / f"{name}.parquet").unlink(missing_ok=True)
        shutil.rmtree(place / name, ignore_errors=True)
        if (place / f".{name}").exists():
            (place / f".{name}").rename(place / name)
