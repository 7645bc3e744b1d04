"""`ustad score --explain N`: what the N highest scores are made of, printed and as explained.csv.

A score is an event's own, and so are the shares of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ustad.cli.shared import out

#: Terms with a smaller share of the score are not printed; the file has them all.
LEAST_SHARE = 0.05


def explain(place: Path, schema: Any, top: int, quiet: bool = False) -> list[dict[str, Any]]:
    """Read the scores in `place`, write explained.csv there and print a table."""
    from ustad.scores import Scores
    from ustad.scoring.evidence import most_unusual

    events = Scores.load(place).events
    rows = most_unusual(events, schema, top) if events is not None else []
    _write(rows, place / "explained.csv")
    if not quiet:
        _print(rows, schema)
    return rows


def _write(rows: list[dict[str, Any]], path: Path) -> None:
    import pyarrow as pa

    from ustad.triage.export import write_csv

    lines = [
        {**{k: v for k, v in row.items() if k != "terms"}, "term": term, **values}
        for row in rows
        for term, values in row["terms"].items()
    ]
    write_csv(pa.Table.from_pylist(lines), path)


def _print(rows: list[dict[str, Any]], schema: Any) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in (schema.entity_word, schema.event_word, "score", "made of"):
        table.add_column(name, overflow="fold")
    for row in rows:
        label = row.get(schema.event_id, row[schema.time]) if schema.event_id else row[schema.time]
        table.add_row(str(row[schema.entity]), str(label), f"{row['score']:.2f}", _made_of(row))
    out.print(table, soft_wrap=False)


def _made_of(row: dict[str, Any]) -> str:
    """Shares of the terms."""
    return ", ".join(
        f"{term} {100 * v['share']:.0f} %" for term, v in row["terms"].items() if v["share"] >= LEAST_SHARE
    )
