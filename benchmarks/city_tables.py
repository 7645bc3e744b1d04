"""The tables of docs/city.md from what `million.py` measured, so that no figure is typed.

python benchmarks/city_tables.py     writes them between their marks in the page
"""

from __future__ import annotations

from typing import Any

from marked_pages import DOCS, read, table, write
from scaling_tables import _bytes as in_bytes
from scaling_tables import _count as in_words

PAGE = DOCS / "city.md"
STEPS = ("simulate", "extract", "train", "score")
#: The city on paper: people, days, machines with so many cores, so much memory and such a network each.
PEOPLE, DAYS, MACHINES, CORES, MEMORY_GB, GIGABITS = 10_000_000, 56, 10, 32, 128, 10
#: CPU of Ray at ten million fixes, of one process's, at most.
OVERHEAD = 2.0
FIXES_A_DAY = {"a fix every ten minutes": 144, "a fix every minute": 1440}


def runs(storage: str) -> list[dict[str, Any]]:
    """What was measured, the fewest people first."""
    measured = [run for run in read("million")["runs"].values() if run["storage"] == storage]
    return sorted(measured, key=lambda run: run["agents"])


def measured() -> str:
    """Costs of each size."""
    head = ("people", "fixes", "stays", *(f"`{step}`" for step in STEPS), "CPU per person", "disk per person",
            "a worker's memory", "CPU, Ray to one process", "largest difference")  # fmt: skip
    rows = []
    for run in runs("disk"):
        steps = run["steps"]
        cpu = sum(steps[step]["cpu_seconds"] for step in ("extract", "score"))
        disk = max(steps["extract"]["peak_disk_mb"], steps["score"]["peak_disk_mb"]) + steps["simulate"]["disk_mb"]
        same = "not compared" if "worst_difference" not in run else f"{run['worst_difference']:.1g}"
        rows.append(
            (
                f"{run['agents']:,}",
                in_words(run["fixes"]),
                f"{run['stays']:,}",
                *(f"{steps[step]['seconds']:.0f} s ({steps[step]['cpu_seconds']:.0f} s of CPU)" for step in STEPS),
                f"{1e3 * cpu / run['agents']:.1f} ms",
                f"{1e3 * disk / run['agents']:.0f} kB",
                f"{max(steps[step]['worker_mb'] for step in STEPS):.0f} MB",
                _to_one_process(run),
                same if run.get("same_alerts", True) else f"{same}, other alerts",
            )
        )
    about = read("million")["machine"]
    first = runs("disk")[0]
    said = (
        f"{about['nodes']} nodes with a core each on one machine of {about['cores']} cores ({about['cpu']}), "
        f"{first['days']} days, a fix every {first['fix_every']}; loads of "
        f"{min(r['steps']['score']['load'] for r in runs('disk')):.0f} to "
        f"{max(r['steps']['score']['load'] for r in runs('disk')):.0f} by other work:"
    )
    compared = [run for run in runs("disk") if "local_score" in run]
    more = [run["steps"]["score"]["cpu_seconds"] - run["local_score"]["cpu_seconds"] for run in compared]
    times = compared[-1]["agents"] / first["agents"]
    surplus = (
        f"Scoring over Ray takes {min(more):.0f} to {max(more):.0f} s of CPU more than one process, with {times:.0f} "
        "times the people too: it is hardly the people's, but what nodes and workers need to start. The one process "
        "had started before it was measured."
    )
    return f"{said}\n\n{table(head, rows)}\n\n{surplus} {_fresh_processes()}"


def _fresh_processes() -> str:
    """What `engine.py` measured: each verb in a process that starts, by Ray and alone."""
    verbs = read("engine")["runs"]
    extract, score = verbs["extract"], verbs["score"]
    ratios = [verb["ratio_cpu_seconds"] for verb in (extract, score)]
    goal = "met" if max(ratios) <= OVERHEAD else "missed"
    return (
        f"Where both start anew, Ray takes {ratios[0]:.2f} × the CPU of one process to extract "
        f"{in_words(extract['ray']['fixes'])} fixes. To score {in_words(score['ray']['events'])} stays it takes "
        f"{ratios[1]:.2f} × (at most {OVERHEAD:.0f} × asked: {goal})."
    )


def _to_one_process(run: dict[str, Any]) -> str:
    """Processor time of extraction by the fix and, where one process scored the same people, of scoring."""
    alone = read("engine")["runs"]["extract"]["local"]
    by_fix = [
        x["cpu_seconds"] / fixes for x, fixes in ((run["steps"]["extract"], run["fixes"]), (alone, alone["fixes"]))
    ]
    text = f"`extract` {by_fix[0] / by_fix[1]:.1f}"
    if "local_score" in run:
        text += f", `score` {run['steps']['score']['cpu_seconds'] / run['local_score']['cpu_seconds']:.1f}"
    return text


def over_network() -> str:
    """Bytes to and from an S3 server."""
    (run,) = runs("s3")
    rows = []
    for step in ("simulate", "extract", "score"):
        x = run["steps"][step]
        sent, received = (f"{1e3 * x[way] / run['agents']:.0f} kB" for way in ("up_mb", "down_mb"))
        rows.append((f"`{step}`", sent, received, f"{x['seconds']:.0f} s ({x['cpu_seconds']:.0f} s of CPU)"))
    difference = f"Scores differ from one process's by {run['worst_difference']:.1g} at most; a node was lost here too."
    head = (f"{run['agents']:,} people over S3", "sent per person", "received per person", "time")
    return f"{table(head, rows)}\n\n{difference}"


def city() -> str:
    """Ten million people on paper, by the cost of a fix and of a stay in the largest run."""
    run, s3 = runs("disk")[-1], runs("s3")[0]
    steps = run["steps"]
    by_fix, by_stay = steps["extract"]["cpu_seconds"] / run["fixes"], steps["score"]["cpu_seconds"] / run["stays"]
    fix_bytes = 1e6 * steps["simulate"]["disk_mb"] / run["fixes"]
    stays = PEOPLE * DAYS * run["stays"] / run["agents"] / run["days"]
    more_disk = steps["extract"]["peak_disk_mb"] / steps["simulate"]["disk_mb"]
    worker_gb, a_part = max(step["worker_mb"] for step in steps.values()) / 1024, run["agents"] / run["partitions"]
    columns = []
    for a_day in FIXES_A_DAY.values():
        fixes = PEOPLE * DAYS * a_day
        core_hours = {"extract": fixes * by_fix / 3600, "score": stays * by_stay / 3600}
        network = {
            step: 1e6 * sum(s3["steps"][step][way] for way in ("up_mb", "down_mb")) / s3[unit] * number
            for step, unit, number in (("extract", "fixes", fixes), ("score", "stays", stays))
        }
        by_cores = sum(core_hours.values()) / MACHINES / CORES
        by_network = sum(network.values()) * 8e-9 / GIGABITS / MACHINES / 3600
        row = {
            "fixes": in_words(fixes),
            "stays": in_words(stays),
            "fixes on disk": in_bytes(fixes * fix_bytes),
            "extraction": f"{core_hours['extract']:,.0f} core hours",
            "scoring by habits": f"{core_hours['score']:,.0f} core hours",
            f"both on {MACHINES} machines of {CORES} cores": f"{by_cores:,.1f} hours",
            "over the network for extraction": in_bytes(network["extract"]),
            "over the network for scoring": in_bytes(network["score"]),
            f"both at {GIGABITS} Gbit/s a machine": f"{by_network:,.1f} hours",
            "disk beside the fixes, at most": in_bytes(fixes * fix_bytes * more_disk),
            "score tables": in_bytes(1e6 * steps["score"]["disk_mb"] / run["stays"] * stays),
            "memory of a machine": f"{CORES * worker_gb:.0f} GB of {MEMORY_GB} (parts of {a_part:,.0f} people)",
        }
        columns.append(row)
    head = ("", *FIXES_A_DAY)
    return table(head, [(name, *(column[name] for column in columns)) for name in columns[0]])


BLOCKS = {"measured": measured, "network": over_network, "city": city}

if __name__ == "__main__":
    write(PAGE, BLOCKS)
