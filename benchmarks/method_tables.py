"""The tables of docs/evidence/training.md, from the results of benchmarks/training.py, robust.py and learning.py.

python benchmarks/method_tables.py            writes them into the page, between their marks
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from marked_pages import DOCS, read, table, write

PAGE = DOCS / "evidence" / "training.md"
LEARNED = {
    "start": "start, min", "duration": "duration, min", "x": "x, km", "y": "y, km", "poi": "kind of place, % right",
}  # fmt: skip
WAYS = {"eager": "fit", "graphs": "fit, recorded", "compiled": "fit, recorded, compiled blocks"}


def speed(name: str) -> str:
    """Windows per second beside the plain loop of the same run; on a CPU also by processor time."""
    found = read(name)
    plain, cuda = found["plain"], name.endswith("cuda")
    rows = [("plain loop", "128", f"{plain['windows_per_s']:,.0f}", "1", "1", "")]
    for part, way in WAYS.items():
        for entry in found.get(part, []):
            ratios = [entry[k] / plain[k] for k in ("windows_per_s", "windows_per_cpu_s")]
            rows.append(
                (
                    "fit, not recorded" if cuda and part == "eager" else way,
                    f"{entry['batch_size']:,}",
                    f"{entry['windows_per_s']:,.0f}",
                    f"{ratios[0]:.1f}",
                    f"{ratios[1]:.1f}",
                    f"{entry['padding']:.1%}" if entry["padding"] is not None else "–",
                )
            )
    hardware = found["hardware"]
    said = (
        f"{hardware['device']}, {hardware['threads']} threads, torch {hardware['torch']}, {found['windows']:,} windows."
    )
    head = ("way", "batch", "windows/s", "× by the clock", "× by processor time", "padding")
    return f"{said}\n\n{table(head, rows)}"


def race(name: str) -> str:
    """Seconds to the plain loop's best validation loss."""
    found = read(name)["race"]
    rows = [("plain loop", "128", "0.001", "constant", f"{found['plain_seconds']:.1f}", "1")]
    for entry in found["ours"]:
        there = entry["seconds_to_target"]
        reached = f"{there:.1f}" if there else f"not reached ({entry['best_loss']:.2f})"
        rows.append(
            (
                "fit" + (", fp32" if entry["precision"] == "fp32" else ""),
                f"{entry['batch_size']:,}",
                f"{entry['learning_rate']:g}",
                entry["schedule"] + (f", {entry['epochs']} epochs" if entry["schedule"] == "cosine" else ""),
                reached,
                f"{found['plain_seconds'] / there:.1f}" if there else "–",
            )
        )
    said = f"{found['windows']:,} windows; the plain loop's best validation loss was {found['target']:.3f}."
    return f"{said}\n\n{table(('way', 'batch', 'rate', 'schedule', 'seconds', 'times sooner'), rows)}"


def robust(name: str) -> str:
    found = read(name)
    rows = [
        (
            f"{row['dirty']:.0%}",
            f"{row['robust']:g}",
            f"{row['auroc']:.3f}",
            f"{row['ap']:.3f}",
            f"{row['loss']:.2f}",
        )
        for row in found["summary"]
    ]
    seeds = found["summary"][0]["seeds"]
    said = f"{found['agents']} agents of {found['preset']}, {found['epochs']} epochs, means of {seeds} seeds."
    head = ("people with anomalies in training", "share left out", "event AUROC", "AP", "loss of ordinary events")
    return f"{said}\n\n{table(head, rows)}"


def learning(*names: str) -> str:
    """What each network predicts of a validation week after the same steps, by feature."""
    parts = []
    for name in names:
        found = read(name)
        rows = []
        for run in found["runs"]:
            last = run["curve"][-1]
            changes = "".join(f", `{key}: {run[key]:g}`" for key in ("category_weight",) if key in run)
            rows.append((f"{run['method']}{changes}", *(f"{last[term]:.3g}" for term in LEARNED)))
        size = f"{found['agents']:,} agents of {found['data']}"
        said = f"{size}, {found['epochs']} epochs, batch {found['batch']}, one seed."
        parts.append(f"{said}\n\n{table(('network', *LEARNED.values()), rows)}")
    return "\n\n".join(parts)


BLOCKS: dict[str, Callable[[], str]] = {
    "learning": partial(learning, "learning", "learning-simla"),
    "speed on a CPU": partial(speed, "training"),
    "speed on a GPU": partial(speed, "training_cuda"),
    "race on a GPU": partial(race, "training_cuda"),
    "robust": partial(robust, "robust"),
}


if __name__ == "__main__":
    write(PAGE, BLOCKS)
