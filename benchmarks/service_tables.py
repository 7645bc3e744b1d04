"""The tables of docs/evidence/service.md, written from the result files of service.py, service_store.py, kills.py.

python benchmarks/service_tables.py           writes them into the page, between their marks
"""

from __future__ import annotations

from typing import Any

from marked_pages import DOCS, read, table, write

PAGE = DOCS / "evidence" / "service.md"
#: What is asked of a figure: the limit, and whether it is the least (else the most) that will do.
Goals = dict[tuple[str, str], tuple[float, bool]]
#: Of the service over HTTP on two cores with a model of the paper's size.
GOALS: Goals = {
    ("one client", "requests_per_s"): (50, True),
    ("32 clients", "events_per_s"): (120, True),
    ("32 clients", "p99_ms"): (1000, False),
    ("memory", "growth_mb_per_10_min"): (10, False),
    ("seconds to start again after SIGKILL", ""): (10, False),
}
#: Of the live scorer alone on a GPU.
GPU_GOALS: Goals = {("live, 128 at once", "events_per_s"): (2000, True)}
#: Of a request of one of 1,000 phones, each of which sends every ten seconds.
DEVICE_GOALS: Goals = {("through a proxy", "p50_ms"): (20, False), ("a connection each", "p50_ms"): (20, False)}
#: Of every answer to the page from a store of a million events, at the median.
STORE_MS = 300.0
#: Until a browser shows something of the overview.
PAINT_MS = 1000.0
#: Memory is judged after so many minutes of load; before, it still grows to its size.
SETTLED_MINUTES = 10
UNITS = {
    "requests_per_s": "requests/s", "events_per_s": "events/s", "p50_ms": "ms, median", "p99_ms": "ms, 99th percentile",
    "server_cpu_ms": "ms of processor time", "growth_mb_per_10_min": "MB more in 10 minutes", "": "s",
}  # fmt: skip
#: The rows of the service's table.
SERVED = [
    ("one client", "requests_per_s"), ("one client", "p50_ms"), ("one client", "p99_ms"),
    ("one client", "server_cpu_ms"), ("32 clients", "events_per_s"), ("32 clients", "p50_ms"),
    ("32 clients", "p99_ms"), ("32 clients", "server_cpu_ms"), ("memory", "growth_mb_per_10_min"),
    ("seconds_to_start", ""), ("seconds to start again after SIGKILL", ""),
]  # fmt: skip


def asked(goal: tuple[float, bool] | None) -> str:
    """A goal in signs; nothing where there is none."""
    return "" if goal is None else f"{'≥' if goal[1] else '≤'} {goal[0]:,g}"


def judged(value: float, goal: tuple[float, bool] | None) -> str:
    """Whether a goal is met; nothing where there is none."""
    if goal is None:
        return ""
    return "met" if (value >= goal[0] if goal[1] else value <= goal[0]) else "missed"


def served() -> str:
    """The service over HTTP, with a model that scores by the network and with one that scores by habits."""
    found = {"preset `paper`": read("service"), "preset `quick`": read("service_quick")}
    rows = [
        (_named(what, figure), asked(GOALS.get((what, figure))), *(_cell(x, what, figure) for x in found.values()))
        for what, figure in SERVED
    ]
    said = "; ".join(f"{name}: {_machine(x)}, {x['memory']['minutes']:g} min of load" for name, x in found.items())
    return f"{table(('', 'goal', *found), rows)}\n\nMeasured on: {said}."


def _named(what: str, figure: str) -> str:
    said = {"seconds_to_start": "start", "seconds to start again after SIGKILL": "start again after SIGKILL"}
    return f"{said.get(what, what)}, {UNITS[figure]}"


def _cell(found: dict[str, Any], what: str, figure: str) -> str:
    value = found[what][figure] if figure else found[what]
    verdict = judged(value, GOALS.get((what, figure)))
    if what == "memory" and found["memory"]["minutes"] < SETTLED_MINUTES:
        verdict = f"not judged: {found['memory']['minutes']:g} min of load are too few"
    return f"{value:,.1f} ({verdict})" if verdict else f"{value:,.1f}"


def _machine(found: dict[str, Any]) -> str:
    where = found["machine"]
    what = where["gpu"] or f"{where['cores']} cores ({where['cpu']})"
    return f"{what}, load {where['load_1_min']:.1f} at the end, ustad {where['ustad']}"


def scorer() -> str:
    """The live scorer alone in micro-batches on a GPU."""
    found = read("service_scorer_cuda")
    rows = []
    for what, figures in found.items():
        if isinstance(figures, dict) and "events_per_s" in figures:
            goal = GPU_GOALS.get((what, "events_per_s"))
            verdict = judged(figures["events_per_s"], goal)
            rows.append((what, f"{figures['events_per_s']:,.0f}", f"{figures['ms']:.1f}", asked(goal), verdict))
    head = ("the live scorer alone", "events/s", "ms a batch", "goal, events/s", "")
    return f"{table(head, rows)}\n\nMeasured on: {_machine(found)}."


def live_scorer() -> str:
    """One event, and micro-batches shared among processes, on a machine of many cores."""
    found = read("live_scorer")
    most, least = found["event_target_ms"], found["rate_target"]
    rows = [
        (
            f"`{preset}`, one event",
            f"{figures['clock']:.2f} ms",
            f"≤ {most} ms",
            judged(figures["clock"], (most, False)),
        )
        for preset, figures in found["milliseconds"].items()
    ]
    for what, figures in found["rates"].items():
        preset, _, rest = what.partition(",")
        rate = figures["events_per_s"]
        rows.append((f"`{preset}`,{rest}", f"{rate:,}/s", f"≥ {least:,.0f}/s", judged(rate, (least, True))))
    head = ("live", "measured", "goal", "")
    return f"{table(head, rows)}\n\n{found['people']} people, {found['cores']} cores, {found['date']}."


def store() -> str:
    """Everything the page asks for from a large store."""
    found = read("service_store")
    rows = [
        (what, *(f"{x[name]:.0f}" for name in ("cold_ms", "median_ms", "worst_ms")), judged(x["median_ms"], goal))
        for goal in [(STORE_MS, False)]
        for what, x in found["answers"].items()
    ]
    said = (
        f"{found['events']:,} events of {found['agents']:,} agents ({found['megabytes']:,.0f} MB in SQLite, written in "
        f"{found['seconds to write them']:.0f} s, opened in {found['seconds to open']:.1f} s); {_machine(found)}:"
    )
    head = ("answer", "first, ms", "median, ms", "slowest, ms", f"goal: median ≤ {STORE_MS:.0f} ms")
    return f"{said}\n\n{table(head, rows)}{_painted(found.get('browser'))}"


def _painted(browser: dict[str, float] | None) -> str:
    """What a browser says of the overview; nothing where there was none."""
    if not browser:
        return ""
    met = judged(browser["first_paint_ms"], (PAINT_MS, False))
    return (
        f"\n\nIn a browser the overview is first painted after {browser['first_paint_ms']:.0f} ms at the median (goal: "
        f"at most {PAINT_MS:,.0f} ms, {met}); its alerts are there after {browser['alerts_there_ms']:.0f} ms."
    )


def devices() -> str:
    """A request of one of many phones."""
    measured = read("devices")
    ways = [name for name, figures in measured.items() if isinstance(figures, dict) and "p50_ms" in figures]
    goals = {name: DEVICE_GOALS.get((name, "p50_ms")) for name in ways}
    rows = [
        (way, f"{x['requests_per_s']:.0f}", f"{x['p50_ms']:.1f} ({judged(x['p50_ms'], goals[way])})",
         f"{x['p99_ms']:.1f}", f"{x['server_cpu_ms']:.1f}", f"{x['failed']:.0f}")
        for way, x in ((way, measured[way]) for way in ways)
    ]  # fmt: skip
    head = ("requests come", "requests/s", f"ms, median ({asked(goals[ways[0]])})", "ms, 99th percentile",
            "ms of processor time", "failed")  # fmt: skip
    said = f"{measured['devices']:,} phones, each of which sends every {measured['every_s']:g} s; {_machine(measured)}:"
    return f"{said}\n\n{table(head, rows)}"


def kills() -> str:
    """What was lost when the service was killed and stopped again and again."""
    x = read("kills")
    return (
        f"{x['kills']} kills and {x['orderly_stops']} orderly stops in {x['minutes']:.0f} minutes, {x['starts']} "
        f"starts, {x['requests']:,} requests, {x['stored']:,} events stored: {x['lost']} lost, {x['twice']} stored "
        f"twice, {x['other_scores']} with another score than without kills. A start that has nothing to import took "
        f"{x['start_s_median']:.1f} s at the median; {_machine(x)}."
    )


def simulated() -> str:
    """Whole services in one process."""
    x = read("simulated_service")
    n, failed = x["figures"], sum(len(run["failed_seeds"]) for run in x["runs"])
    seeds = " and ".join(f"{run['first_seed']} to {run['last_seed']}" for run in x["runs"])
    return (
        f"{n['days']:,} simulated days of {n['end']:,} services (10,000 days asked), seeds {seeds}: "
        f"{n['started']:,} starts, {n['killed']:,} kills, {n['answer']:,} answers, "
        f"{n['scores compared']:,} scores compared: {failed} seeds with a violation."
    )


def fuzz() -> str:
    """Bytes that nobody meant."""
    x = read("fuzz")
    findings, seconds = (sum(run[name] for run in x["runs"]) for name in ("findings", "seconds"))
    rows = [(name, f"{n:,}", f"{x['read'].get(name, 0):,}") for name, n in sorted(x["cases"].items())]
    said = f"{x['total']:,} cases (1,000,000 asked) in {seconds / 60:.0f} minutes: {findings} findings."
    return f"{said}\n\n{table(('target', 'cases', 'read, not refused'), rows)}"


def soak() -> str:
    """Steady load with retention and a new model in the middle."""
    x = read("soak")
    refused = ", ".join(f"{n:,} answered {status}" for status, n in x["errors"].items()) or "none"
    first, middle, last = x["memory_mb"]
    growth = ", ".join(f"{mb:.1f}" for mb in x["growth_mb_per_10_min"])
    rows = [
        ("events/s", f"{x['events_per_s']:.1f}", f"{x['asked_events_per_s']:.0f} come"),
        ("stored, and left by retention", f"{x['acknowledged']:,}, {x['events_left']:,.0f}", ""),
        ("errors", refused, "none"),
        ("ms, median and 99th percentile", f"{x['p50_ms']:.0f}, {x['p99_ms']:.0f}", ""),
        ("ms of the server's processor time, an event", f"{x['server_cpu_ms']:.1f}", ""),
        ("s without service while the new model starts", f"{x['seconds_without_service']:.1f}", ""),
        ("MB of memory: beginning, before the new model, end", f"{first}, {middle}, {last}", ""),
        (f"{UNITS['growth_mb_per_10_min']}, each model", growth, "flat"),
    ]  # fmt: skip
    beside = (
        f"{x['minutes']:.0f} minutes, {x['agents']:,} agents; {_machine(x)}. Other work ran beside it: a load of "
        f"{x['load_mean']:.0f} on average. Service and clients had priority over it (nice {x['nice']})."
    )
    return f"{table(('', 'measured', 'asked'), rows)}\n\n{beside}"


BLOCKS = {
    "service": served,
    "devices": devices,
    "scorer": scorer,
    "live scorer": live_scorer,
    "store": store,
    "kills": kills,
    "simulated": simulated,
    "fuzz": fuzz,
    "soak": soak,
}


if __name__ == "__main__":
    write(PAGE, BLOCKS)
