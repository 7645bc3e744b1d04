"""What the scripts that write tables into pages share: result files, Markdown tables, marks.

A block of a page stands between `<!-- NAME: from benchmarks/results/FILE.json -->` and `<!-- end of NAME -->`; where it
is made from several files, `FILE.json and FILE.json` are named. Such a script has a PAGE and its BLOCKS. A file that
does not say by which version or when it was made is named under its block.

python benchmarks/marked_pages.py             writes all pages anew, after whatever was measured
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from measured import say_made

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"
#: The scripts, by name.
SCRIPTS = (
    "baselines",
    "city_tables",
    "example_tables",
    "extraction_tables",
    "habit_tables",
    "hiding_tables",
    "method_tables",
    "research_tables",
    "scaling_tables",
    "scoring_tables",
    "service_tables",
    "simulation_tables",
)


def read(name: str) -> dict[str, Any]:
    """A result file."""
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def met(measured: float, goal: float, at_least: bool = True) -> str:
    """Whether a figure is at least, or else below, what is asked of it."""
    return "met" if (measured >= goal if at_least else measured < goal) else "missed"


def with_block(page: str, name: str, text: str) -> str:
    """The page with `text` between the marks of that name."""
    pattern = re.compile(f"(<!-- {re.escape(name)}: from [^>]*-->\n).*?(<!-- end of {re.escape(name)} -->)", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"the page has no marks of the block {name!r}, or has them twice")
    return pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page)


def filled(page: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """The page with every block as the result files have it."""
    for name, make in blocks.items():
        text = make()
        note = name_undated(page, name, text)
        page = with_block(page, name, f"{text}\n\n{note}." if note else text)
    return page


def name_undated(page: str, block: str, text: str) -> str:
    """The files of a block that lack their version or date; empty where none does or `text` names them itself."""
    mark = re.search(f"<!-- {re.escape(block)}: from ([^>]*)-->", page)
    names = [f"{name}.json" for name in re.findall(r"([\w-]+)\.json\b", mark[1] if mark else "")]
    without: dict[str, list[str]] = {}
    for name in names:
        made = say_made(json.loads((RESULTS / name).read_text())) if (RESULTS / name).exists() else ""
        if "not noted" in made and f"`{name}`" not in text:
            without.setdefault(made, []).append(f"`{name}`")
    return "; ".join(f"{', '.join(files)}: {made}" for made, files in without.items())


def write(page: Path, blocks: Mapping[str, Callable[[], str]]) -> None:
    """Write every block into the page."""
    page.write_text(filled(page.read_text(), blocks))
    print(f"written to {page.name}")


if __name__ == "__main__":
    for name in SCRIPTS:
        script = importlib.import_module(name)
        write(script.PAGE, script.BLOCKS)
