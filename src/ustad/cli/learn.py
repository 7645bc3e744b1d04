"""`ustad learn VERDICTS SCORES`: what verdicts say of the questions, what would change, weights for `ustad score`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from ustad.cli.shared import JsonOption, out, print_json


def learn(
    verdicts: Annotated[Path, typer.Argument(help="A list with verdicts that the page saved as CSV.")],
    scores: Annotated[Path, typer.Argument(help="The directory of scores that the verdicts are about.")],
    out_: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the weights here; nothing uses them by itself.")
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only say what would change.")] = False,
    *,
    json: JsonOption = False,
) -> None:
    """Learn from verdicts how much each question counts in the order of alerts, and say what would change.

    Examples:

    - `ustad learn verdicts.csv runs/scores --preview`
    - `ustad learn verdicts.csv runs/scores --out weights.json`, then `ustad score model data --weights weights.json`
    """
    from ustad.triage.verdict_weights import learn_weights, read_verdicts, save_weights

    words = read_verdicts(verdicts)
    table = _leaders(scores)
    incidents = [str(name) for name in table["incident_id"].to_pylist()]
    rows = [i for i, name in enumerate(incidents) if name in words]
    if not rows:
        raise typer.BadParameter(f"no incident of {scores} has a verdict there", param_hint="VERDICTS")
    evidence = table["evidence"].take(rows).to_pylist()
    weights = learn_weights(evidence, [words[incidents[i]] for i in rows])
    facts = {"verdicts": len(rows), "weights": weights, **_preview(table, words, weights)}
    if out_ is not None and not preview:
        save_weights(weights, len(rows), out_)
        facts["out"] = str(out_)
    if json:
        print_json(facts)
        return
    _print(facts)


def _leaders(scores: Path) -> Any:
    """The leading events of all incidents of a directory of scores."""
    import pyarrow as pa

    from ustad.cli.alert_files import table_files
    from ustad.cli.reweigh import COLUMNS, lead_rows
    from ustad.files import read_table
    from ustad.tables import DataError

    tables = [read_table(file) for file in table_files(scores, "events")]
    if not tables or any(not set(COLUMNS) - {"started_at"} <= set(table.column_names) for table in tables):
        raise DataError(f"{scores}: not a directory of scores with incidents and evidence; make one with `ustad score`")
    own = [name for name in COLUMNS if name in tables[0].column_names]
    return pa.concat_tables([table.select(own).take(lead_rows(table)) for table in tables])


def _preview(table: Any, words: dict[str, bool], weights: dict[str, float]) -> dict[str, Any]:
    """Of the last 30 days: how many alerts would go, and how many of those are confirmed, and how many would come."""
    import numpy as np

    from ustad.triage.verdict_weights import choose_alerts, learned_column

    alert = table["alert"].to_numpy(zero_copy_only=False).astype(bool)
    after = choose_alerts(learned_column(table, weights), int(alert.sum()))
    recent = np.ones(len(alert), bool)
    if "started_at" in table.column_names:
        times = table["started_at"].to_pylist()
        recent = np.array([time >= max(times) - timedelta(days=30) for time in times])
    is_confirmed = np.array([words.get(str(name)) is True for name in table["incident_id"].to_pylist()])
    leaves = recent & alert & ~after
    counts = {"alerts": recent & alert, "go": leaves, "confirmed": leaves & is_confirmed}
    counts["come"] = recent & after & ~alert
    return {name: int(rows.sum()) for name, rows in counts.items()}


def _print(facts: dict[str, Any]) -> None:
    out.print(f"{facts['verdicts']:,} verdicts; how much each question counts from now on (1: as before):")
    for name, weight in sorted(facts["weights"].items(), key=lambda one: -one[1]):
        out.print(f"  {name:<18}{weight:.2f}")
    if not facts["weights"]:
        out.print("  nothing was learnt: all verdicts say the same")
    price = f"of the confirmed {facts['confirmed']:,}" if facts["confirmed"] else "of the confirmed none"
    out.print(
        f"of the {facts['alerts']:,} alerts of the last 30 days {facts['go']:,} would go, {price}; "
        f"{facts['come']:,} others would come",
    )
    if "out" in facts:
        out.print(f"next:  ustad score MODEL DATA --weights {facts['out']} --out SCORES")
