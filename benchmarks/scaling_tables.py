"""The tables of docs/evidence/scaling.md from the result files, so that no figure is typed.

python benchmarks/scaling_tables.py     writes them between their marks in the page
"""

from __future__ import annotations

from typing import Any

from marked_pages import DOCS, read, table, write

PAGE = DOCS / "evidence" / "scaling.md"
#: What a data set is taken to be: NUMOSIM's weeks and stays, a fix a minute, 64 numbers per reference event.
DAYS, STAYS_A_DAY, FIXES_A_DAY, WIDTH, EPOCHS = 56, 3.05, 1440, 64, 20
TRAIN_DAYS, TEST_DAYS = 21, 28


def overhead() -> str:
    """Ray beside local runs on this machine."""
    head = ("verb", "how much", "local", "on Ray", "CPU time, Ray to local", "a worker's memory", "load")
    rows = []
    for verb in ("simulate", "extract", "score"):
        pair = read("engine")["runs"][verb]
        local, ray = pair["local"], pair["ray"]
        what = f"{ray['fixes'] / 1e6:.0f} M fixes" if "fixes" in ray else f"{ray['events']:,} stays"
        rows.append(
            (
                f"`{verb}`",
                what,
                f"{local['seconds']:.0f} s, {local['cpu_seconds']:.0f} s of CPU",
                f"{ray['seconds']:.0f} s, {ray['cpu_seconds']:.0f} s of CPU, and {ray['start_seconds']:.0f} s to start",
                f"{ray['cpu_seconds'] / local['cpu_seconds']:.1f}",
                f"{ray['worker_mb']:.0f} MB (local {local['peak_mb']:.0f})",
                f"{local['load']:.0f}, {ray['load']:.0f}",
            )
        )
    return table(head, rows)


def sizes() -> str:
    """What 200,000 agents and 500 such regions take."""
    scoring, engine = read("scoring-cuda"), read("engine")["runs"]
    training = max(_rates(read("training_cuda")))
    rows = [_row(200_000, 1, scoring, engine, training), _row(200_000, 500, scoring, engine, training)]
    head = ("", "200,000 agents", "100 M agents: 500 regions of 200,000")
    return table(head, [(name, rows[0][name], rows[1][name]) for name in rows[0]])


def _rates(content: Any) -> list[float]:
    """Every `windows_per_s` in a result file."""
    if isinstance(content, list):
        return [rate for one in content for rate in _rates(one)]
    if not isinstance(content, dict):
        return []
    own = [content["windows_per_s"]] if isinstance(content.get("windows_per_s"), (int, float)) else []
    return own + [rate for one in content.values() for rate in _rates(one)]


def _row(agents: int, regions: int, scoring: Any, engine: Any, windows_per_s: float) -> dict[str, str]:
    events = agents * DAYS * STAYS_A_DAY
    fixes = agents * DAYS * FIXES_A_DAY
    scored, reference = events * TEST_DAYS / DAYS, events * TRAIN_DAYS / DAYS
    extract, score = engine["extract"]["ray"], engine["score"]
    knn = scoring["neighbours"]
    queries_per_s = knn["queries_per_s"] * knn["references"] / reference
    event_bytes = score["local"]["out_mb"] * 1e6 / score["local"]["events"]
    hours = {
        "training": agents * TRAIN_DAYS * EPOCHS / windows_per_s / 3600,
        "network": scored / scoring["bulk"]["events_per_s"] / 3600,
        "neighbours": scored / queries_per_s / 3600,
    }
    return {
        "stays in eight weeks": _count(events * regions),
        "fixes, one a minute": _count(fixes * regions),
        "extraction": f"{extract['cpu_seconds'] / extract['fixes'] * fixes * regions / 3600:,.0f} core hours",
        "shuffle of the extraction, written once and read once": _bytes(12 * fixes * regions),
        f"training, {EPOCHS} epochs": f"{hours['training'] * regions:,.1f} GPU hours",
        "scoring four weeks, T = 50": f"{hours['network'] * regions:,.1f} GPU hours",
        "exact kNN of these against three weeks": f"{hours['neighbours'] * regions:,.1f} GPU hours",
        "kNN reference": _bytes(reference * WIDTH * 4) + (" in each region" if regions > 1 else ""),
        "score tables": _bytes(event_bytes * scored * regions),
    }


def _count(number: float) -> str:
    for unit, size in (("thousand million", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:,.0f} {unit}"
    return f"{number:,.0f}"


def _bytes(number: float) -> str:
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number / 1e6:,.0f} MB"


def verbs() -> str:
    """Whole verbs on one GPU, before and after, beside the paper's figures."""
    found = read("whole_verbs_cuda")
    rows = [
        (
            name,
            f"{v['before_s']:.0f} s",
            f"{v['seconds']:.0f} s (first use {v['first_use_s']:.0f} s)",
            f"{v['goal_s']} s",
        )
        for name, v in found["verbs"].items()
    ]
    near = found["neighbours"]
    for name in ("clustered", "normal"):
        label = f"exact neighbours, {near['queries']:,} × {near['references']:,}, k = {near['k']}, {name} points"
        rows.append((label, f"{near[name]['before_extrapolated']:.0f} s", f"{near[name]['seconds']:.1f} s", "5 s"))
    for name, run in found["loop"].items():
        rate = f"{run['windows_per_s']:,} windows/s ({run['seconds']} s in all)"
        rows.append(
            (f"training steps alone, {name}", f"the paper: {found['paper']['windows_per_s']:,} windows/s", rate, "")
        )
    for name, run in found["live"].items():
        rows.append(
            (f"one live event, {name}", f"the paper: {found['paper']['event_ms']} ms", f"{run['median_ms']:.0f} ms", "")
        )
    cpu = found["cpu"]
    rows.append((cpu["what"], "", f"{cpu['seconds']:.0f} s ({cpu['processor_s']:.0f} s of CPU)", f"{cpu['goal_s']} s"))
    return table(("", "before", "now", "goal"), rows)


def batches() -> str:
    """What larger batches learn in as many passes."""
    names = {"memory": "`best`", "dual": "`paper`"}
    rows = [
        (
            names[r["kind"]],
            f"{r['batch']:,}",
            f"{r['lr']:g}",
            f"{r['steps']:,}",
            f"{r['seconds']:.0f} s",
            f"{r['best']:.3f}",
        )
        for r in read("whole_verbs_cuda")["batches"]
    ]
    return table(("network", "windows a step", "rate", "steps", "time", "validation loss"), rows)


BLOCKS = {"overhead": overhead, "verbs": verbs, "batches": batches, "sizes": sizes}


if __name__ == "__main__":
    write(PAGE, BLOCKS)
