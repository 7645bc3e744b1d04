"""`ustad score --weights FILE`: alerts chosen by learnt scores once scores are written; the scores themselves stay.

`learned_score` stands beside `score`, as many alerts are raised as before, and `run.json` says what was done.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ustad.cli.hide import table_files
from ustad.cli.shared import write_alerts

COLUMNS = ["incident_id", "echo", "alert", "score", "evidence", "started_at"]


def reweigh_alerts(place: Path, weights: dict[str, float], schema: Any) -> dict[str, Any]:
    """Choose the alerts of a directory of scores again; returns what `run.json` says from now on."""
    import pyarrow as pa

    from ustad.files import read_json, read_table, write_json, write_table
    from ustad.triage.verdict_weights import COLUMN, choose_alerts, learned_column

    files = table_files(place, "events")
    leaders = [lead_rows(read_table(file)) for file in files]
    scores = [learned_column(read_table(file), weights) for file in files]
    before = sum(int(table["alert"].to_numpy(zero_copy_only=False).sum()) for table in map(read_table, files))
    flags = choose_alerts(np.concatenate([own[rows] for own, rows in zip(scores, leaders, strict=True)]), before)
    parts, alerts, names, new = np.split(flags, np.cumsum([len(rows) for rows in leaders])[:-1]), [], set(), 0
    for file, rows, own, mine in zip(files, leaders, scores, parts, strict=True):
        table = read_table(file)
        flags = np.zeros(table.num_rows, bool)
        flags[rows[mine]] = True
        new += int((flags & ~table["alert"].to_numpy(zero_copy_only=False).astype(bool)).sum())
        table = _set(_set(table, "alert", pa.array(flags)), COLUMN, pa.array(own))
        write_table(table, file)
        alerts.append(table.filter(table["alert"]))
        names |= set(alerts[-1]["incident_id"].to_pylist())
    for file in table_files(place, "incidents"):
        table = read_table(file)
        write_table(_set(table, "alert", pa.array([n in names for n in table["incident_id"].to_pylist()])), file)
    write_alerts(pa.concat_tables(alerts, promote_options="permissive"), schema, place)
    run = read_json(place / "run.json")
    text = f"alerts were chosen by what verdicts taught ({COLUMN}): {new:,} of {before:,} are others than by score"
    run["learned"], run["warnings"] = {"weights": weights, "new": new}, [*(run.get("warnings") or []), text]
    write_json(run, place / "run.json")
    return dict(run)


def lead_rows(table: Any) -> np.ndarray:
    """Rows that lead an incident: the ones that can be alerts."""
    echo = table["echo"].to_numpy(zero_copy_only=False).astype(bool)
    return np.flatnonzero(table["incident_id"].is_valid().to_numpy(zero_copy_only=False) & ~echo)


def _set(table: Any, name: str, values: Any) -> Any:
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, values)
    return table.append_column(name, values)
