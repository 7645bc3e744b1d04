"""The tables of docs/default.md, written from the result files of default.py, pol_atl.py, habit_p_values.py,
default_speed.py and history.py.

python benchmarks/default_page.py            writes them into the page, between their marks
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from marked_pages import DOCS, RESULTS, read, table, write

PAGE = DOCS / "default.md"
GROUPS = {"all": "all", "recurring": "recurring", "one-off": "one-off"}
SPEED_TARGETS = {"bulk": "target: memory network / the paper's, {}", "live": "target: live, {:.0f} by the clock"}
VARIANTS = {
    "near-15km": "within 15 km of home",
    "near-5km": "within 5 km of home",
    "odd-hours": "own places at odd hours",
    "skipped": "skipped routines",
    "long-stays": "long stays",
}
COMPARED = ("default", "paper", "visit rate", "visit rate, causal")


def cell(runs: list[dict[str, list[float]]], group: str) -> str:
    """Event AUROC / AP and agent AUROC / AP, mean and standard deviation over the seeds."""
    values = np.array([run[group] for run in runs])
    mean, spread = values.mean(axis=0), values.std(axis=0)
    shown = [f"{m:.3f}" + (f" ± {s:.3f}" if len(values) > 1 else "") for m, s in zip(mean, spread, strict=True)]
    return f"{shown[0]} / {shown[1]} \\| {shown[2]} / {shown[3]}"


def standard(name: str) -> str:
    found = read(name)
    rows = [(method, *(cell(runs, group) for group in GROUPS)) for method, runs in found["table"]["standard"].items()]
    options = found["options"]
    seeds = ", ".join(str(seed) for seed in options["seeds"])
    said = f"{options['agents']:,} agents, seeds {seeds}; {trained(found)}."
    head = ("events \\| agents", *GROUPS.values())
    return f"{said}\n\n{table(head, rows)}\n\n{verdict(found)}"


def trained(found: dict[str, Any]) -> str:
    """How far the networks got."""
    words = []
    for network in ("memory", "paper"):
        epochs = [facts[network]["epochs"] for facts in found["networks"].values() if facts and network in facts]
        if epochs:
            words.append(f"{network} network trained for {', '.join(str(n) for n in epochs)} epochs")
    return "; ".join(words) or "without networks"


def verdict(found: dict[str, Any]) -> str:
    """The targets beside what was reached, mean over the seeds."""
    reached = np.mean([run["all"] for run in found["table"]["standard"]["default"]], axis=0)
    words = []
    for i, (what, (area, precision)) in enumerate(found["targets"].items()):
        got = reached[2 * i : 2 * i + 2]
        met = "met" if got[0] >= area and got[1] >= precision else "missed"
        words.append(f"{what} {got[0]:.3f} / {got[1]:.3f} against {area:.2f} / {precision:.2f}: {met}")
    return f"Targets: {'; '.join(words)}."


def hard(name: str) -> str:
    found = read(name)["table"]
    rows = [
        (method, *(cell(found[variant][method], "all") for variant in VARIANTS))
        for method in COMPARED
        if method in found["near-5km"]
    ]
    rows.append(("ahead of the others by more than the spread", *(ahead(found[variant]) for variant in VARIANTS)))
    return table(("events \\| agents", *VARIANTS.values()), rows)


def ahead(methods: dict[str, list[dict[str, list[float]]]]) -> str:
    """Which of the four measures of the default lie above every other method's by more than both deviations."""
    values = {m: np.array([run["all"] for run in methods[m]]) for m in COMPARED if m in methods}
    ours = values.pop("default")
    behind = []
    for i, measure in enumerate(("event AUROC", "event AP", "agent AUROC", "agent AP")):
        for method, other in values.items():
            spread = max(ours[:, i].std(), other[:, i].std())
            if ours[:, i].mean() - other[:, i].mean() <= spread:
                behind.append(f"{measure} ({method})")
    return "in all four" if not behind else f"not in {', '.join(behind)}"


def atlanta(name: str) -> str:
    found = read(name)
    rows = [
        (f"{way}: {method}" if method != "visit rate" else way, f"{area:.3f} / {precision:.3f}")
        for way, methods in found["table"].items()
        for method, (area, precision) in methods.items()
        if not method.startswith("top")
    ]
    area, precision = found["target"]
    rows.append(("target", f"{area:.2f} / {precision:.2f}"))
    return table(("places, and what is asked", "agents, AUROC / AP"), rows)


def p_values(name: str) -> str:
    """How often people who did not calibrate have small p-values, beside a reference that judges itself."""
    found = read(name)
    rows = []
    for people, held in found["people"].items():
        for what in held["runs"]["groups"][0]:
            for way, said in (("groups", "by the other groups"), ("itself", "by itself")):
                values = np.array([run[what] for run in held["runs"][way]])
                pairs = zip(values.mean(axis=0), values.std(axis=0), strict=True)
                rows.append((f"{people} ({len(values)})", what, said, *(f"{m:.4f} ± {s:.4f}" for m, s in pairs)))
    return table(("people (towns)", "of", "reference judged", *(f"p ≤ {p}" for p in found["levels"])), rows)


def speed(name: str) -> str:
    """By device, where it was measured: rates, and the memory network's in bulk as a share of the paper's."""
    kept = [f"{name}-{device}" for device in ("cpu", "cuda") if (RESULTS / f"{name}-{device}.json").exists()]
    runs = [read(file) for file in kept]
    rows: list[tuple[str, ...]] = []
    for part in ("bulk", "live"):
        for what in runs[0][part]["rates"]:
            rows.append((what, *(f"{run[part]['rates'][what]:,.0f}" if part in run else "" for run in runs)))
        target = runs[0][part]["target"]
        found = [run[part].get("share", run[part]["rates"].get(part, 0.0)) if part in run else None for run in runs]
        rows.append((SPEED_TARGETS[part].format(target), *(_against(value, target) for value in found)))
    bulk = [run["bulk"] for run in runs]
    heads = (f"{run.get('gpu', str(run['cores']) + ' cores')}, T = {run['samples']}" for run in bulk)
    return table(("scoring, events/s", *heads), rows)


def _against(value: float | None, target: float) -> str:
    return "" if value is None else f"{value:.3g}: {'met' if value >= target else 'missed'}"


def history(name: str) -> str:
    found = read(name)
    rows = [(what, f"{seconds:.1f}") for what, seconds in found["seconds"].items()]
    rows.append((f"together, {found['events']:,} stays (target {found['target_s']:.0f})", f"{found['total_s']:.1f}"))
    return table(("history", "seconds"), rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "standard": partial(standard, "default"),
    "hard cases": partial(hard, "default"),
    "atlanta": partial(atlanta, "pol_atl"),
    "p-values": partial(p_values, "habit_p_values"),
    "speed": partial(speed, "default_speed"),
    "history": partial(history, "history"),
}


if __name__ == "__main__":
    write(PAGE, BLOCKS)
