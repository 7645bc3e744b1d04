"""The tables of docs/evidence/habits.md, written from the result files of default.py, pol_atl.py, habit_p_values.py,
moving_history.py, default_speed.py and history.py.

python benchmarks/habit_tables.py            writes them into the page, between their marks
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from marked_pages import DOCS, RESULTS, read, table, write
from measured import say_made

PAGE = DOCS / "evidence" / "habits.md"
GROUPS = {"all": "all", "recurring": "recurring", "one-off": "one-off"}
SPEED_TARGETS = {"bulk": "target: memory network / the paper's, {}", "live": "target: live, {:.0f} by the clock"}
#: What the result file calls the whole rule, and a row that says the same as it since a score is the event's own.
WHOLE, SAME = "default", "spread none"
HEAD = "events \\| agents"


def cell(runs: list[dict[str, list[float]]], group: str) -> str:
    """Event AUROC / AP and agent AUROC / AP, mean and standard deviation over the seeds."""
    values = np.array([run[group] for run in runs])
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    shown = [f"{m:.3f}" + (f" ± {s:.3f}" if len(values) > 1 else "") for m, s in zip(mean, spread, strict=True)]
    return f"{shown[0]} / {shown[1]} \\| {shown[2]} / {shown[3]}"


def parts(name: str) -> str:
    """Habits with every part left out in turn, beside visit rate."""
    found = read(name)
    methods = {method: runs for method, runs in found["table"]["standard"].items() if method != SAME}
    rows = [("all" if m == WHOLE else m, *(cell(runs, group) for group in GROUPS)) for m, runs in methods.items()]
    return f"{_people_of(found)}\n\n{table((HEAD, *GROUPS.values()), rows)}"


def harder_parts(name: str) -> str:
    """The same on every harder red team: all anomalies together."""
    found = read(name)
    teams = {team: methods for team, methods in found["table"].items() if team != "standard"}
    methods = [method for method in found["table"]["standard"] if method != SAME]
    rows = [("all" if m == WHOLE else m, *(cell(of_team[m], "all") for of_team in teams.values())) for m in methods]
    return f"{_people_of(found)}\n\n{table((HEAD, *teams), rows)}"


def _people_of(found: dict[str, Any]) -> str:
    """How many people, of which seeds, and by which version and when they were scored."""
    seeds = ", ".join(str(seed) for seed in found["options"]["seeds"])
    return f"{found['options']['agents']:,} agents, seeds {seeds}; {say_made(found)}."


def atlanta(name: str) -> str:
    found = read(name)
    rows = [
        (f"{way}: {method}" if method != "visit rate" else way, _measured(runs))
        for way, methods in found["table"].items()
        for method, runs in methods.items()
        if not method.startswith("top")
    ]
    area, precision = found["target"]
    rows.append(("target", f"{area:.2f} / {precision:.2f}"))
    return table(("places, and what is asked", "agents, AUROC / AP"), rows)


def _measured(runs: list[list[float]]) -> str:
    """AUROC / AP, mean and standard deviation over the networks that were trained."""
    pairs = zip(np.mean(runs, axis=0), np.std(runs, axis=0, ddof=int(len(runs) > 1)), strict=True)
    return " / ".join(f"{mean:.3f}" + (f" ± {spread:.3f}" if len(runs) > 1 else "") for mean, spread in pairs)


def p_values(name: str) -> str:
    """How often held-back normal people have small p-values, and what five a day come to."""
    rows = []
    for kind in read(name)["kinds"]:
        weeks = "" if kind["days"] is None else f", {kind['days'] // 7} weeks"
        phone = "" if kind["phone"] == "true stays" else f", from a {kind['phone']}"
        multiples = (" / ".join(f"{x:.2f}" for x in kind["multiples"][what]) for what in CALIBRATED)
        more = f"{weeks}{phone}{', holidays told' if kind['told'] else ''}"
        more += f", `{kind['by']}`" if kind["by"] != "quick" else ""
        five = (_five(kind["five"][what]) for what in FIVE)
        rows.append((f"{kind['towns']} × {kind['preset']}, {kind['people']} people{more}", *multiples, *five))
    return table(("towns", *CALIBRATED, *(f"five {what}" for what in FIVE)), rows)


def _five(figures: list[float]) -> str:
    mean, least, most, within, perfect, error = figures
    return f"{mean:.1f} ± {error:.1f} ({least:.1f} … {most:.1f}); {within:.0%} of {perfect:.0%}"


def goals(*names: str) -> str:
    """The goals of each city at its preset's share of anomalous people, and with one in ten: precision and kinds."""
    cells: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for content in map(read, names):
        for key, figures in content["cells"].items():
            city, _, share, phone = key.split("|")
            place = city if phone == "true stays" else f"{city}, {phone}"
            cells.setdefault((f"`{content.get('preset', 'quick')}`", place, share), []).append(figures)
    rows, by_kind = [], []
    for (preset, city, share), runs in sorted(cells.items(), key=lambda cell: (cell[0][1], cell[0][2] != "preset")):
        levels = (_spread_of([run[level] for run in runs]) for level in ("events", "incidents", "agents"))
        precision, most = (float(np.mean([run[what] for run in runs])) for what in ("precision", "most"))
        people = "one in ten" if share != "preset" else "as the preset"
        rows.append((city, people, preset, str(len(runs)), *levels, f"{precision:.2f} of {most:.2f}"))
        if share != "preset":
            kinds = {kind: [run for run in runs if kind in run["kinds"]] for kind in KINDS}
            by_kind.append((city, preset, *(_kind_cell(kind, some) for kind, some in kinds.items())))
    first = table(("city", "anomalous", "by", "seeds", "events", "incidents", "agents", "precision"), rows)
    made = "; ".join(f"`{content.get('preset', 'quick')}` by {say_made(content)}" for content in map(read, names))
    return f"{first}\n\n{table(('agents of a kind', 'by', *KINDS), by_kind)}\n\nMeasured: {made}."


def earlier(name: str) -> str:
    """An earlier version beside this one on the same people."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for cell, versions in read(name)["cells"].items():
        city, people, _, phone = cell.split("|")
        for version, figures in versions.items():
            groups.setdefault((f"{city}, {int(people):,} people", phone, version), []).append(figures)
    rows = [
        (*what, str(len(runs)), *(_level_cell(runs, level) for level in LEVELS), _true_cell(runs))
        for what, runs in sorted(groups.items())
    ]
    return table(("city", "from", "version", "seeds", *LEVELS, "true of 14"), rows)


def _level_cell(runs: list[dict[str, Any]], level: str) -> str:
    pairs = [[run[level]["auroc"], run[level]["ap"]] for run in runs if level in run]
    return _spread_of(pairs) if pairs else ""


def _true_cell(runs: list[dict[str, Any]]) -> str:
    """How many of the 14 most unusual are labelled; empty where people alone are labelled."""
    counts = [run["true_of_most_unusual"] for run in runs if "true_of_most_unusual" in run]
    return f"{np.mean(counts):.1f} ± {np.std(counts, ddof=1):.1f}" if len(counts) > 1 else ""


def _kind_cell(kind: str, runs: list[dict[str, Any]]) -> str:
    if not runs:
        return ""
    return "{:.2f} / {:.2f}".format(*(np.mean([run[what][kind] for run in runs]) for what in ("kinds", "kinds_ap")))


def _spread_of(pairs: list[list[float]]) -> str:
    """AUROC / AP, mean and standard deviation."""
    mean, spread = np.mean(pairs, axis=0), np.std(pairs, axis=0, ddof=1)
    return " / ".join(f"{m:.3f} ± {d:.3f}" for m, d in zip(mean, spread, strict=True))


def moving(name: str) -> str:
    """Over months, by block of weeks, with histories that move on sooner, later or never; and what it costs live."""
    found = read(name)
    runs, size = found["runs"], found["block_weeks"]
    blocks = len(next(iter(runs.values()))[0])
    rows = []
    for what, measure in MOVING.items():
        for choice, towns in runs.items():
            cells = (_moving_cell([measure(town[block]) for town in towns]) for block in range(blocks))
            rows.append((what, choice if choice != "0" else "0 (as trained)", *cells))
    heads = (f"weeks {size * block + 1} to {size * (block + 1)}" for block in range(blocks))
    return f"{table(('', 'absorb_after', *heads), rows)}\n\n{_live_words(found['live'])}"


MOVING: dict[str, Callable[[dict[str, Any]], list[float] | None]] = {
    "normal events with p ≤ 0.01": lambda block: [block["normal_small"]],
    "stays at a new workplace with p ≤ 0.01": lambda block: [block["new_work_small"]],
    "all anomalies": lambda block: _four(block["all"]),
    "anomalies begun in the last 4 weeks": lambda block: _four(block["new"]),
    "anomalies that began before": lambda block: _four(block["lasting"]),
}


def _four(part: dict[str, Any]) -> list[float] | None:
    return [*part["events"], *part["agents"]] if part["events"] else None


def _moving_cell(values: list[list[float] | None]) -> str:
    """A share, or event AUROC / AP and agent AUROC / AP: mean and standard deviation over the towns that have any."""
    known = np.array([value for value in values if value is not None])
    if not len(known):
        return ""
    shown = [f"{m:.3f} ± {s:.3f}" for m, s in zip(known.mean(axis=0), known.std(axis=0, ddof=1), strict=True)]
    return shown[0] if len(shown) == 1 else f"{shown[0]} / {shown[1]} \\| {shown[2]} / {shown[3]}"


def _live_words(alive: dict[str, Any]) -> str:
    moved, still = alive["28"], alive["0"]
    size = ", ".join(
        f"{moved['bytes'][weeks][0] / 1000:.1f} kB after {weeks} weeks ({still['bytes'][weeks][0] / 1000:.1f} kB)"
        for weeks in moved["bytes"]
    )
    return (
        f"Live, {moved['agents']} agents with {moved['events']:,} stays (in brackets with `absorb_after: 0`): "
        f"{moved['events_per_cpu_s']:.0f} stays a second of processor time ({still['events_per_cpu_s']:.0f}); "
        f"`to_bytes` {moved['write_ms']:.2f} ms ({still['write_ms']:.2f} ms); the median agent's bytes {size}."
    )


def speed(name: str) -> str:
    """By device, where it was measured: rates, and the memory network's in bulk as a share of the paper's."""
    kept = [f"{name}-{device}" for device in ("cpu", "cuda") if (RESULTS / f"{name}-{device}.json").exists()]
    runs = [read(file) for file in kept]
    rows: list[tuple[str, ...]] = []
    for part in ("bulk", "live"):
        rows.append((f"{part}: samples T", *(str(run[part]["samples"]) if part in run else "" for run in runs)))
        for what in runs[0][part]["rates"]:
            rows.append((what, *(f"{run[part]['rates'][what]:,.0f}" if part in run else "" for run in runs)))
        target = runs[0][part]["target"]
        found = [run[part].get("share", run[part]["rates"].get(part, 0.0)) if part in run else None for run in runs]
        rows.append((SPEED_TARGETS[part].format(target), *(_against(value, target) for value in found)))
    bulk = [run["bulk"] for run in runs]
    heads = (str(run.get("gpu", f"{run['cores']} cores")) for run in bulk)
    return table(("scoring, events/s", *heads), rows)


def _against(value: float | None, target: float) -> str:
    return "" if value is None else f"{value:.3g}: {'met' if value >= target else 'missed'}"


def history(name: str) -> str:
    found = read(name)
    rows = [(what, f"{seconds:.1f}") for what, seconds in found["seconds"].items()]
    rows.append((f"together, {found['events']:,} stays (target {found['target_s']:.0f})", f"{found['total_s']:.1f}"))
    return table(("history", "seconds"), rows)


#: What has p-values.
CALIBRATED = ("events", "incidents", "absences", "agents")
LEVELS = ("events", "incidents", "agents")
KINDS = ("new place", "odd hour", "frequency", "left late", "left early", "swapped order", "skipped")
FIVE = LEVELS
BLOCKS: dict[str, Callable[[], str]] = {
    "parts": partial(parts, "development"),
    "harder parts": partial(harder_parts, "development"),
    "atlanta": partial(atlanta, "pol_atl"),
    "goals": partial(goals, "goals", "goals_best"),
    "earlier": partial(earlier, "earlier_version"),
    "p-values": partial(p_values, "habit_p_values"),
    "moving history": partial(moving, "moving_history"),
    "speed": partial(speed, "default_speed"),
    "history": partial(history, "history"),
}


if __name__ == "__main__":
    write(PAGE, BLOCKS)
