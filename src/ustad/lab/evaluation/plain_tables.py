"""A table of text that knows Markdown and CSV.

In go heads and rows of words, out come lines of text.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Table:
    """A title, column heads and rows of text; `name` is its file name."""

    name: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        columns = list(zip(*self.rows, strict=True))[1:] or [()] * (len(self.heads) - 1)
        rule = ["---", *("---:" if all(map(_figure, cells)) else "---" for cells in columns)]
        lines = [self.heads, rule, *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

    def csv(self) -> str:
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([self.heads, *self.rows])
        return file.getvalue()


def _figure(cell: str) -> bool:
    """Whether a cell holds a number (with its spread or unit), or says that there is none."""
    return cell in ("", "–") or cell.strip("*").lstrip("+-−")[:1].isdigit()


def without_empty(table: Table) -> Table:
    """The table without the columns that hold nothing in any row."""
    columns = [i for i in range(len(table.heads)) if i == 0 or any(row[i] not in ("–", "") for row in table.rows)]
    heads, *rows = (tuple(row[i] for i in columns) for row in (table.heads, *table.rows))
    return replace(table, heads=heads, rows=tuple(rows))
