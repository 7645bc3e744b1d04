"""`ustad score --weights FILE`: alerts chosen by learnt scores once scores are written; the scores themselves stay.

`learned_score` stands beside `score`, as many alerts are raised as before, and `run.json` says what was done.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ustad.cli.alert_files import add_to_run, rewrite_alerts, table_files

COLUMNS = ["incident_id", "echo", "alert", "score", "evidence", "started_at"]


def reweigh_alerts(place: Path, weights: dict[str, float], schema: Any) -> dict[str, Any]:
    """Choose the alerts of a directory of scores again; returns what `run.json` says from now on."""
    import pyarrow as pa

    from ustad.files import read_table, set_columns
    from ustad.triage.verdict_weights import COLUMN, choose_alerts, learned_column

    before, leaders, scores = [], [], []
    for file in table_files(place, "events"):
        table = read_table(file)
        before.append(table["alert"].to_numpy(zero_copy_only=False).astype(bool))
        leaders.append(lead_rows(table))
        scores.append(learned_column(table, weights))
    count = sum(int(flags.sum()) for flags in before)
    is_alert = choose_alerts(np.concatenate([own[rows] for own, rows in zip(scores, leaders, strict=True)]), count)
    parts = np.split(is_alert, np.cumsum([len(rows) for rows in leaders])[:-1])
    after = [np.zeros(len(flags), bool) for flags in before]
    for flags, rows, part in zip(after, leaders, parts, strict=True):
        flags[rows[part]] = True

    def choose(number: int, table: Any) -> Any:
        return set_columns(table, alert=pa.array(after[number]), **{COLUMN: pa.array(scores[number])})

    rewrite_alerts(place, schema, choose)
    new = sum(int((now & ~then).sum()) for now, then in zip(after, before, strict=True))
    text = f"alerts were chosen by what verdicts taught ({COLUMN}): {new:,} of {count:,} are others than by score"
    return add_to_run(place, [text], learned={"weights": weights, "new": new})


def lead_rows(table: Any) -> np.ndarray:
    """Rows that lead an incident: the ones that can be alerts."""
    echo = table["echo"].to_numpy(zero_copy_only=False).astype(bool)
    return np.flatnonzero(table["incident_id"].is_valid().to_numpy(zero_copy_only=False) & ~echo)
