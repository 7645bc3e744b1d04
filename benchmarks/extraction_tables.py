"""Tables of docs/evidence/extraction.md from the result files of benchmarks/extraction.py and takeout.py, and the
cells of `ustad lab experiment gps`.

python benchmarks/extraction_tables.py        writes it into the page, between its marks
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from marked_pages import DOCS, read, table, write
from ustad.lab.evaluation.experiments import read_results
from ustad.lab.evaluation.gps_tables import QUALITY, QUALITY_NOTE, gps_tables, quality_row
from ustad.lab.evaluation.recordings import PLAIN, TRUE_STAYS
from ustad.lab.evaluation.result_tables import NAMES

PAGE = DOCS / "evidence" / "extraction.md"
CELLS = DOCS.parent / "results" / "gps"


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


def profiles() -> str:
    """How right the stays of each phone are."""
    found = read("extraction").get("profiles")
    if not found:
        return "Not measured yet: `python benchmarks/extraction.py --profiles`."
    rows = [(phone, *quality_row(towns)) for phone, towns in found["towns"].items()]
    towns = next(iter(found["towns"].values()))
    said = f"{len(towns)} towns of {found['agents']} people; ± is over towns. {QUALITY_NOTE}"
    return f"{table(('phone', *(head for head, *_ in QUALITY)), rows)}\n\n{said}"


def atlanta() -> str:
    """What settings of extraction cost and gain in a simulated city without errors."""
    found = read("atlanta_stays")
    rows = [
        (row["settings"] if row["settings"] != "automatic" else f"automatic ({row['distance_m']:g} m)",
         {"venues": "venues", "own": "their own"}[row["places"]], f"{row['stays']:,}", f"{row['checkins']:.1%}",
         f"{row['auroc']:.3f} / {row['aupr']:.3f}")
        for row in found["rows"]
    ]  # fmt: skip
    return table(("settings", "places", "stays", "check-ins found", "agents AUROC / AUPR"), rows)


def gps() -> str:
    """Detection from each recording beside the true stays."""
    lines = read_cells()
    if not lines:
        return "Not measured yet: `ustad lab experiment gps`."
    parts = []
    for data in dict.fromkeys(line["data"] for line in lines):
        of_data = [line for line in lines if line["data"] == data]
        tables = [t for t in gps_tables(of_data) if not t.name.startswith("gps-stays")]
        parts += [f"{t.title}:\n\n{table(t.heads, list(t.rows))}\n\n{t.note}" for t in tables]
        parts.append(f"Made by {describe_versions(of_data)}.")
    return "\n\n".join(parts)


def read_cells() -> list[dict[str, Any]]:
    """Cells of the experiment, in the order of its plan."""
    return read_results(CELLS)["gps"]


def demo() -> str:
    """True ones among the 14 most unusual, as the demo records its town and as its people lived, town by town."""
    groups: dict[tuple[str, str], dict[int, int]] = {}
    for line in read_cells():
        if line["data"].startswith("town") and line["phone"] in (PLAIN, TRUE_STAYS):
            counts = groups.setdefault((NAMES.get(line["method"], line["method"]), line["phone"]), {})
            counts[line["seed"]] = line["result"]["true_of_most_unusual"]
    rows = []
    for group, counts in groups.items():
        by_seed = ", ".join(f"{seed}: {counts[seed]}" for seed in sorted(counts))
        rows.append((*group, by_seed, f"{sum(counts.values()) / len(counts):.1f}", str(min(counts.values()))))
    if not rows:
        return "Not measured yet: `ustad lab experiment gps`."
    return table(("method", "from", "true of the 14 most unusual, seed by seed", "mean", "least"), rows)


def describe_versions(lines: list[dict[str, Any]]) -> str:
    """Which versions made these lines."""
    counts = Counter(line["versions"]["ustad"] for line in lines)
    several = len(counts) > 1
    return ", ".join(f"ustad {name} ({n} lines)" if several else f"ustad {name}" for name, n in sorted(counts.items()))


def takeout() -> str:
    """Seconds of each verb from a person's Takeout to a report."""
    found = read("takeout")
    verbs = {**found["verbs"], "together": found["total"]}
    rows = [(name, f"{verb['wall']:.1f} s", f"{verb['processor']:.1f} s") for name, verb in verbs.items()]
    load = f"{found['load_before']:.1f} to {found['load_after']:.1f}"
    said = (
        f"{found['fixes'] / 1e6:g} M fixes of {found['years']:g} years in {found['megabytes'] / 1000:.1f} GB, preset "
        f"`quick`, {found['cores']} cores with a load average of {load} (wall time waits for the other work on "
        f"the machine, processor time does not); at most {found['peak_gb']:.1f} GB of memory."
    )
    return f"{table(('verb', 'wall', 'processor'), rows)}\n\n{said}"


BLOCKS = {"atlanta": atlanta, "profiles": profiles, "gps": gps, "demo": demo, "speed": speed, "takeout": takeout}


if __name__ == "__main__":
    write(PAGE, BLOCKS)
