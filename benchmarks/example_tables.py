"""The table of docs/evidence/examples.md, written from the result file of benchmarks/examples.py.

python benchmarks/example_tables.py           writes it into the page, between its marks
"""

from __future__ import annotations

from typing import Any

from marked_pages import DOCS, read, table, write

PAGE = DOCS / "evidence" / "examples.md"
EXAMPLES = {"cards": "cards", "shop": "shop", "app_usage": "app usage"}
METHODS = {
    "ustad": "USTAD (`quick`: habits and own values)",
    "paper": "the paper's network (small, all features, own neighbours)",
    "random": "random",
    "visit-rate": "rate per entity (visit rate of the habitat)",
    "pyod": "PyOD IForest",
    "pyod-ecod": "PyOD ECOD",
}
FIGURES = {"auroc": "AUROC", "ap": "AP"}


def results() -> str:
    """Mean ± deviation of every method, the best mean in bold, and where USTAD's is not the best."""
    content = read("examples")
    found, machine = content["examples"], content["hardware"]
    seeds = {entry["seeds"] for methods in found.values() for entry in methods.values()}
    head = ("method", *(f"{title}: {' / '.join(FIGURES.values())}" for title in EXAMPLES.values()))
    rows = [(title, *(_cell(found[name], method) for name in EXAMPLES)) for method, title in METHODS.items()]
    said = (
        f"{' or '.join(map(str, sorted(seeds)))} seeds of data and model; {machine['cores']} cores of {machine['cpu']}."
    )
    behind = [line for name, title in EXAMPLES.items() for line in _behind(found[name], title)]
    return "\n\n".join((said, table(head, rows), "\n".join(behind) or "USTAD is ahead everywhere."))


def _cell(methods: dict[str, Any], method: str) -> str:
    return " / ".join(_figure(methods, method, figure) for figure in FIGURES)


def _figure(methods: dict[str, Any], method: str, figure: str) -> str:
    mean, deviation = methods[method][figure]
    best = mean == max(one[figure][0] for one in methods.values())
    return f"**{mean:.3f}** ± {deviation:.3f}" if best else f"{mean:.3f} ± {deviation:.3f}"


def _behind(methods: dict[str, Any], title: str) -> list[str]:
    """A line for each figure in which another method's mean is higher than USTAD's."""
    lines = []
    for figure, word in FIGURES.items():
        own = methods["ustad"][figure][0]
        ahead = sorted((one[figure][0], METHODS[m]) for m, one in methods.items() if one[figure][0] > own)
        if ahead:
            others = "; ".join(f"{name}, {mean:.3f}" for mean, name in reversed(ahead))
            lines.append(f"- **{title}, {word}**: USTAD has {own:.3f}; ahead: {others}.")
    return lines


BLOCKS = {"results": results}


if __name__ == "__main__":
    write(PAGE, BLOCKS)
