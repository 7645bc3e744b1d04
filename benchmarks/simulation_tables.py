"""The tables of docs/evidence/simulation.md, written from the result file of benchmarks/simulation.py.

python benchmarks/simulation_tables.py        writes them into the page, between their marks
"""

from __future__ import annotations

from typing import Any

from marked_pages import DOCS, read, table, write

PAGE = DOCS / "evidence" / "simulation.md"
PUBLISHED = ("*published on NUMOSIM*", "*0.906*", "*0.646*")


def difficulty() -> str:
    """What visit rate finds of each red team."""
    found = read("simulation")["difficulty"]
    rows = [
        (variant, *(f"{mean:.3f} ± {spread:.3f}" for mean, spread in (of["stay_auroc"], of["agent_auroc"])))
        for variant, of in found["visit_rate"].items()
    ]
    said = (
        f"{found['agents']:,} agents, {found['anomalous_share']:.0%} of them anomalous; mean and spread over "
        f"{found['seeds']} seeds."
    )
    return f"{said}\n\n{table(('red team', 'stays AUROC', 'agents AUROC'), [*rows, PUBLISHED])}"


def speed() -> str:
    """Seconds and memory of every run, and what was asked for."""
    found = read("simulation")
    asked, further = found["limits_s"], found["speed"]["ms_per_further_agent"]
    rows = []
    for run in found["speed"]["runs"]:
        what = f"stays of {run['agents']:,} agents"
        rows.append(_row(f"{what} ({run['stays']:,})", run, asked.get(what)))
    paths, fixes = found["paths"], found["fixes"]
    rows.append(_row(f"{paths['agents']:,} agents with routed paths", paths, asked["with paths"]))
    rows.append(_row(f"{fixes['agents']:,} agents with a fix a minute", fixes, asked["fixes of 1,000 agents"]))
    said = f"All over 56 days. A further agent costs {min(further):.2f} to {max(further):.2f} ms."
    return f"{table(('what', 'seconds', 'peak memory', 'seconds asked for'), rows)}\n\n{said}"


def _row(what: str, run: dict[str, Any], asked: float | None) -> tuple[str, ...]:
    return what, f"{run['seconds']:.0f}", f"{run['peak_gb']:.1f} GB", f"{asked:.0f}" if asked else ""


BLOCKS = {"difficulty": difficulty, "speed": speed}


if __name__ == "__main__":
    write(PAGE, BLOCKS)
