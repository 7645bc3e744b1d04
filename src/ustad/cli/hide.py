"""`ustad score --rules FILE`: alerts that rules explain are taken off the list once scores are written.

Scores, p-values and reasons stay. `hidden_by` of the score table names the rule, and `run.json` says how many there
are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ustad.cli.shared import write_alerts


def hide_explained(place: Path, rules: list[Any], schema: Any) -> dict[str, Any]:
    """Apply rules to a directory of scores, part by part; returns what `run.json` says from now on."""
    import pyarrow as pa

    from ustad.files import read_json, read_table, write_json, write_table
    from ustad.triage.hiding import COLUMN, hide_alerts

    alerts, names, incidents = [], [], set()
    for file in table_files(place, "events"):
        table = hide_alerts(read_table(file), rules, schema)
        write_table(table, file)
        alerts.append(table.filter(table["alert"]))
        hidden = table.filter(table[COLUMN].is_valid())
        names += hidden[COLUMN].to_pylist()
        incidents |= set(hidden["incident_id"].to_pylist()) if "incident_id" in hidden.column_names else set()
    for file in table_files(place, "incidents"):
        table = read_table(file)
        shown = [a and name not in incidents for a, name in zip(*_columns(table), strict=True)]
        write_table(table.set_column(table.column_names.index("alert"), "alert", pa.array(shown)), file)
    write_alerts(pa.concat_tables(alerts, promote_options="permissive"), schema, place)
    run = read_json(place / "run.json")
    run["alerts"] = sum(table.num_rows for table in alerts)
    run["hidden"] = {rule.name: names.count(rule.name) for rule in rules}
    if names:
        one = f"{len(names):,} alert{'s are' if len(names) > 1 else ' is'} hidden by rules"
        run["warnings"] = [*(run.get("warnings") or []), f"{one}; the column {COLUMN} of the score table names them"]
    write_json(run, place / "run.json")
    return run


def table_files(place: Path, name: str) -> list[Path]:
    single = place / f"{name}.parquet"
    return [single] if single.exists() else sorted((place / name).glob("*.parquet"))


def _columns(table: Any) -> tuple[list[bool], list[str]]:
    return table["alert"].to_pylist(), table["incident_id"].to_pylist()
