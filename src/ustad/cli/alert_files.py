"""Directories of scores, and their alerts chosen anew once scores are written; the scores themselves stay."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ustad.cli.parts import WRITERS


def table_files(place: Path, name: str) -> list[Path]:
    """The files of one table of scores: one, or its parts."""
    single = place / f"{name}.parquet"
    return [single] if single.exists() else sorted((place / name).glob("*.parquet"))


def rewrite_alerts(place: Path, schema: Any, change: Callable[[int, Any], Any]) -> int:
    """Write every part of the events as `change(number, table)` makes it; how many alerts there are now.

    Incidents, agents and the lists of alerts follow: an incident is an alert where one of its events is.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from ustad.agent_order import add_alerts
    from ustad.files import read_table, set_columns, write_table
    from ustad.triage.export import write_alerts

    def write_part(number: int, file: Path) -> Any:
        table = change(number, read_table(file))
        write_table(table, file)
        return table.filter(table["alert"])

    files = table_files(place, "events")
    with ThreadPoolExecutor(WRITERS) as pool:
        alerts = pa.concat_tables(pool.map(write_part, range(len(files)), files), promote_options="permissive")
    for file in table_files(place, "incidents"):
        table = read_table(file)
        flags = pc.is_in(table["incident_id"], alerts["incident_id"].combine_chunks())
        write_table(set_columns(table, alert=flags), file)
    for file in table_files(place, "agents"):
        agents = read_table(file)
        if "n_alerts" in agents.column_names:
            write_table(add_alerts(agents, alerts[schema.entity], schema.entity), file)
    write_alerts(alerts, schema, place)
    return int(alerts.num_rows)


def add_to_run(place: Path, warnings: list[str], alerts: int | None = None, **facts: Any) -> dict[str, Any]:
    """What `run.json` says from now on: with more warnings, other facts, and so many `alerts` where they changed."""
    from ustad.files import read_json, write_json

    run = read_json(place / "run.json")
    if alerts is not None and isinstance(run.get("alerts"), int):
        run |= _count_anew(run, alerts)
    run = {**run, "warnings": [*(run.get("warnings") or []), *warnings], **facts}
    write_json(run, place / "run.json")
    return run


def _count_anew(run: dict[str, Any], alerts: int) -> dict[str, Any]:
    """What a run says of the number of its alerts: those of chance were taken off in the same share as the others."""
    from ustad.scoring.alerts import mostly_chance

    before, by_chance = run["alerts"], run.get("by_chance")
    if by_chance is None:
        return {"alerts": alerts}
    chance_now = by_chance * alerts / before if before else by_chance
    others = [text for text in run.get("warnings") or [] if text not in mostly_chance(before, by_chance)]
    return {
        "alerts": alerts, "by_chance": chance_now, "warnings": [*mostly_chance(alerts, chance_now), *others],
    }  # fmt: skip
