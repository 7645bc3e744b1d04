"""`ustad score --rules FILE`: alerts that rules explain are taken off the list once scores are written.

Scores, p-values and reasons stay. `hidden_by` of the score table names the rule, and `run.json` says how many there
are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ustad.cli.alert_files import add_to_run, rewrite_alerts


def hide_explained(place: Path, rules: list[Any], schema: Any) -> dict[str, Any]:
    """Apply rules to a directory of scores, part by part; returns what `run.json` says from now on."""
    from ustad.triage.hiding import COLUMN, hide_alerts

    names: list[str] = []

    def hide(_: int, table: Any) -> Any:
        table = hide_alerts(table, rules, schema)
        names.extend(table[COLUMN].drop_null().to_pylist())
        return table

    alerts = rewrite_alerts(place, schema, hide)
    warnings = []
    if names:
        one = f"{len(names):,} alert{'s are' if len(names) > 1 else ' is'} hidden by rules"
        warnings = [f"{one}; the column {COLUMN} of the score table names them"]
    hidden = {rule.name: names.count(rule.name) for rule in rules}
    return add_to_run(place, warnings, alerts, hidden=hidden)
