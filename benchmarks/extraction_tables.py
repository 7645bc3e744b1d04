"""The table of docs/extraction.md, written from the result file of benchmarks/extraction.py.

python benchmarks/extraction_tables.py        writes it into the page, between its marks
"""

from __future__ import annotations

from marked_pages import DOCS, read, table, write

PAGE = DOCS / "extraction.md"


def speed() -> str:
    """Seconds and memory by number of fixes, and trackintel on the same fixes."""
    found = read("extraction")
    runs = {**found["sizes"]}
    if "pol_atl" in found:
        runs[f"Atlanta simulation, {found['pol_atl']['fixes'] / 1e6:.1f} M"] = found["pol_atl"]
    rows = [
        (
            name,
            f"{run['seconds']:.1f} s",
            f"{run['cpu_seconds']:.1f} s",
            f"{run['cpu_seconds'] / run['fixes'] * 1e6:.2f} µs",
            f"{run['peak_gb']:.1f} GB",
        )
        for name, run in runs.items()
    ]
    beside, machine = found["beside_trackintel"], found["hardware"]
    said = (
        f"{machine['cores']} cores of {machine['cpu']}. Beside trackintel on the same "
        f"{beside['trackintel']['fixes'] / 1e6:.0f} M fixes in the same run: {beside['ratio']:.0f} times as fast as "
        f"its `generate_staypoints` alone ({beside['ratio_cpu']:.0f} times by CPU time)."
    )
    return f"{table(('fixes', 'wall', 'CPU', 'CPU per fix', 'peak memory'), rows)}\n\n{said}"


BLOCKS = {"speed": speed}


if __name__ == "__main__":
    write(PAGE, BLOCKS)
