"""The tables of docs/evidence/hiding.md, written from result files.

python benchmarks/hiding_tables.py            writes them into the page, between their marks

`questions.json` is of benchmarks/questions.py, `cost_to_hide.json` of benchmarks/cost_to_hide.py, `lasting.json` of
benchmarks/lasting.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from marked_pages import DOCS, read, table, write

PAGE = DOCS / "evidence" / "hiding.md"


def kinds() -> str:
    """Agents' AUROC by kind: the first red team's in the sets above, the second one's at its standard sizes."""
    content = read("questions")
    first: dict[str, list[float]] = {}
    for line in (line for line in content["lines"] if line["without"] == "none"):
        for kind, value in line["kinds"].items():
            first.setdefault(kind, []).append(value)
    old = sorted(((kind, float(np.mean(values))) for kind, values in first.items()), key=lambda pair: -pair[1])
    curves = read("cost_to_hide")["kinds"]
    new = sorted(
        ((kind, _standard(curve)) for kind, curve in curves.items()), key=lambda pair: -pair[1]["agents_auroc"]
    )
    rows: list[tuple[str, ...]] = []
    for n in range(max(len(old), len(new))):
        left = (old[n][0], f"{old[n][1]:.3f}") if n < len(old) else ("", "")
        right = ("", "", "")
        if n < len(new):
            right = (new[n][0], f"{new[n][1]['agents_auroc']:.3f}", f"{100 * new[n][1]['agents_caught']:.0f} %")
        rows.append((*left, *right))
    return table(("first red team", "agents AUROC", "second red team", "agents AUROC", "caught"), rows)


def _standard(curve: dict[str, Any]) -> dict[str, Any]:
    """The row of a kind's standard size."""
    return dict(min(curve["rows"], key=lambda row: abs(row["factor"] - 1.0)))


def cost() -> str:
    """The size of each kind at which half are missed, and the share caught at some sizes."""
    content = read("cost_to_hide")
    rows: list[tuple[str, ...]] = []
    for kind, curve in content["kinds"].items():
        measured = [row for row in curve["rows"] if row["agents_caught"] is not None]  # others had room for nobody
        hidden, smallest, largest = curve["half_hidden"], measured[0]["size"], measured[-1]["size"]
        half = (
            f"more than {_plain(largest)}"
            if hidden is None
            else f"{_plain(hidden)}"
            if hidden
            else f"below {_plain(smallest)}"
        )
        caught = ", ".join(f"{_plain(row['size'])}: {100 * row['agents_caught']:.0f} %" for row in measured)
        rows.append((kind, f"{half} {curve['unit']}", caught))
    settings = content["settings"]
    said = (
        f"Preset `{settings['scorer']}`, {len(settings['seeds'])} simulated {settings['preset']}s of "
        f"{settings['agents']:,} people (seeds {', '.join(map(str, settings['seeds']))}), {settings['share']:.0%} of "
        f"them anomalous, {settings['alerts_a_day_per_1000']} alerts a day per 1,000 people."
    )
    return f"{said}\n\n{table(('kind', 'half are missed at', 'caught, by size'), rows)}"


def _plain(size: float) -> str:
    return f"{size:,.0f}" if size >= 100 else f"{size:.3g}"


def lasting() -> str:
    """Lasting changes by kind, and false ones."""
    content = read("lasting")
    rows: list[tuple[str, ...]] = [
        (
            kind,
            str(figures["people"]),
            f"{100 * figures['found']:.0f} %",
            "" if figures["days"] is None else f"{figures['days']:.0f}",
            "" if figures["off"] is None else f"{figures['off']:.0f}",
        )
        for kind, figures in content["kinds"].items()
    ]
    rows.append(("all", str(content["people"]), f"{100 * content['found']:.0f} %", "", ""))
    false = ", ".join(f"{100 * share:.2f} %" for share in content["false"])
    said = (
        f"Of {content['normal']:,} people who go on as before, {false} ever have p ≤ 0.05, 0.01 and 0.001 in two to "
        f"four weeks. A change is told at p ≤ {content['level']:g}."
    )
    return f"{table(('change', 'people', 'found within 14 days', 'days until told', 'days off'), rows)}\n\n{said}"


BLOCKS = {"kinds": kinds, "cost to hide": cost, "lasting changes": lasting}

if __name__ == "__main__":
    write(PAGE, BLOCKS)
