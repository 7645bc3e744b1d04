"""What the scripts that write tables into pages share: result files, Markdown tables, marks.

A block of a page stands between `<!-- NAME: from benchmarks/results/FILE.json -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"


def read(name: str) -> dict[str, Any]:
    """A result file."""
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_block(page: str, name: str, text: str) -> str:
    """The page with `text` between the marks of that name; a page without them stays as it is."""
    pattern = re.compile(f"(<!-- {re.escape(name)}: from [^>]*-->\n).*?(<!-- end of {re.escape(name)} -->)", re.DOTALL)
    return pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page)
