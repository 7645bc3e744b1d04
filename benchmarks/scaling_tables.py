"""The tables of docs/evidence/scaling.md from the result files, so that no figure is typed.

python benchmarks/scaling_tables.py     writes them between their marks in the page
"""

from __future__ import annotations

from typing import Any

from marked_pages import DOCS, RESULTS, read, table, write
from ustad.config import Config
from ustad.network.training.memory_task import FEWEST_PASSES, MOST_SEEN, fit_passes

PAGE = DOCS / "evidence" / "scaling.md"
#: What a data set is taken to be: NUMOSIM's weeks and stays, a fix a minute, 64 numbers per reference event.
DAYS, STAYS_A_DAY, FIXES_A_DAY, WIDTH, EPOCHS = 56, 3.05, 1440, 64, 20
TRAIN_DAYS, TEST_DAYS = 21, 28
#: Agents of a region, and the whole verbs whose training is multiplied out to it: file, preset, agents.
LARGE = 200_000
VERB_OF_PAPER = ("whole_verbs_cuda_paper_20000", "paper", 20_000)
VERB_OF_BEST = ("whole_verbs_cuda_200000_10days", "best", LARGE)
#: Whole verbs as they were measured, the newest last.
VERB_FILES = tuple(
    f"whole_verbs_{name}"
    for name in (
        "cpu", "cpu_best", "cuda", "cuda_5000_20days", "cuda_100000_20days", "cuda_200000_10days", "cuda_5000",
        "cuda_20000", "cuda_paper_20000",
    )
)  # fmt: skip
USUAL_DAYS = 56
#: Agents between which cost is compared, their days, and how many times as much an agent may cost.
FLAT, FLAT_DAYS, MOST_GROWTH = (5_000, 200_000), 10, 1.3
#: Seconds that whole verbs may take, by device, preset and agents (56 days).
VERB_GOALS: dict[tuple[str, str, int], dict[str, int]] = {
    ("cpu", "quick", 740): {"both": 30},
    ("cpu", "best", 740): {"both": 600},
    ("cuda", "best", 5_000): {"train": 40, "score": 20},
    ("cuda", "best", 20_000): {"train": 120, "score": 60},
    ("cuda", "paper", 20_000): {"train": 300},
}


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
    rows = [_row(LARGE, regions, scoring, engine) for regions in (1, 500)]
    head = ("", f"{LARGE:,} agents", f"100 M agents: 500 regions of {LARGE:,}")
    return table(head, [(name, rows[0][name], rows[1][name]) for name in rows[0]])


def _row(agents: int, regions: int, scoring: Any, engine: Any) -> dict[str, str]:
    events = agents * DAYS * STAYS_A_DAY
    fixes = agents * DAYS * FIXES_A_DAY
    scored, reference = events * TEST_DAYS / DAYS, events * TRAIN_DAYS / DAYS
    extract, score = engine["extract"]["ray"], engine["score"]
    knn = scoring["neighbours"]
    queries_per_s = knn["queries_per_s"] * knn["references"] / reference
    event_bytes = score["local"]["out_mb"] * 1e6 / score["local"]["events"]
    return {
        "stays in eight weeks": _count(events * regions),
        "fixes, one a minute": _count(fixes * regions),
        "extraction": f"{extract['cpu_seconds'] / extract['fixes'] * fixes * regions / 3600:,.0f} core hours",
        "shuffle of the extraction, written once and read once": _bytes(12 * fixes * regions),
        **{what: _gpu_hours(seconds * regions) for what, seconds in training_seconds(agents).items()},
        "scoring four weeks, T = 50": _gpu_hours(scored / scoring["bulk"]["events_per_s"] * regions),
        "exact kNN of these against three weeks": _gpu_hours(scored / queries_per_s * regions),
        "kNN reference": _bytes(reference * WIDTH * 4) + (" in each region" if regions > 1 else ""),
        "score tables": _bytes(event_bytes * scored * regions),
    }


def training_seconds(agents: int) -> dict[str, float]:
    """Of the presets in batches of their own: their network's steps from its measured pace, and the verb by the clock.

    `best` is taken at the pace of the largest data whose steps were measured.
    """
    windows, batch = agents * TRAIN_DAYS, Config.preset("paper").training.batch_size
    pace = next(run["windows_per_s"] for run in read("training_cuda")["graphs"] if run["batch_size"] == batch)
    passes = fit_passes(Config.preset("best"), windows).training.epochs
    largest = read("single_runs_cuda")["loop"]["20,000 agents"]["windows_per_s"]
    limits = f"{MOST_SEEN / 1e6:.0f} M windows at most, but {FEWEST_PASSES} passes at least"
    paper, best = (_read_training(*which) for which in (VERB_OF_PAPER, VERB_OF_BEST))
    return {
        f"steps of `paper` in its batches of {batch}, {EPOCHS} epochs": windows * EPOCHS / pace,
        f"`ustad train` with `paper`, as measured on {_people(paper)}, by agents": _by_agents(paper, agents),
        f"steps of `best`, {passes} passes ({limits})": windows * passes / largest,
        f"`ustad train` with `best`, as measured on {_people(best)}": _by_agents(best, agents),
    }


def _read_training(name: str, preset: str, agents: int) -> dict[str, Any]:
    """A whole verb that was measured: agents, days, and how long `train` took."""
    return next(run for run in read(name)["runs"] if (run["preset"], run["agents"]) == (preset, agents))


def _by_agents(run: dict[str, Any], agents: int) -> float:
    return float(run["train"]["seconds"]) * agents / int(run["agents"])


def _people(run: dict[str, Any]) -> str:
    return f"{run['agents']:,} of {run['days']} days"


def _gpu_hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f} GPU hours" if seconds < 3600 else f"{seconds / 3600:,.1f} GPU hours"


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
    """Whole verbs by the clock, on every kind of machine that they were measured on."""
    head = ("on", "preset", "agents", "train", "score", "scored", "peak memory", "goal", "said before training")
    parts = [read(name) for name in VERB_FILES if (RESULTS / f"{name}.json").exists()]
    newest = {(content["device"], _size(run)): (content, run) for content in parts for run in content["runs"]}
    rows = [verb_row(content, run) for content, run in newest.values()]
    notes = [
        f"- {_machine(content)}: ustad {content['versions']['ustad']}, {content['date']}, `{content['command']}`"
        for content in parts
    ]
    return "\n\n".join([table(head, rows), flat_cost(newest), "\n".join(notes)])


def flat_cost(runs: dict[Any, Any]) -> str:
    """What an agent costs in much data and in little, of the same days."""
    few, many = (
        sum(run[verb]["seconds"] for verb in ("train", "score")) / agents
        for agents in FLAT
        for _, run in [runs["cuda", ("best", agents, FLAT_DAYS)]]
    )
    verdict = "met" if many <= MOST_GROWTH * few else "missed"
    return (
        f"An agent of {FLAT_DAYS} days costs {1000 * few:.1f} ms of both verbs among {FLAT[0]:,} and "
        f"{1000 * many:.1f} ms among {FLAT[1]:,}, {many / few:.2f} × as much (at most {MOST_GROWTH} × asked: "
        f"{verdict}). Much of the cost of few is the start of two processes."
    )


def _size(run: dict[str, Any]) -> tuple[str, int, int]:
    return run["preset"], run["agents"], run["days"]


def verb_row(content: dict[str, Any], run: dict[str, Any]) -> tuple[str, ...]:
    """Train and score of one preset on so many agents."""
    train, score = run["train"], run["score"]
    return (
        _machine(content),
        f"`{run['preset']}`",
        f"{run['agents']:,}" + ("" if run["days"] == USUAL_DAYS else f", {run['days']} days"),
        _cost(train),
        _cost(score),
        f"{score['events']:,} events, {score['events_per_s']:,} a second",
        f"{max(train['peak_gb'], score['peak_gb']):.1f} GB",
        _judge_run(content["device"], run),
        _describe_estimate(train.get("estimate")),
    )


def _machine(content: dict[str, Any]) -> str:
    hardware = content["hardware"]
    return str(hardware["gpu"]) if content["device"] == "cuda" else f"{hardware['cores']} cores of {hardware['cpu']}"


def _cost(verb: dict[str, Any]) -> str:
    return f"{verb['seconds']:.0f} s ({verb['cpu_seconds']:.0f} of CPU, load {verb['load_at_start']:.0f})"


def _judge_run(device: str, run: dict[str, Any]) -> str:
    """The goals of a run, each met or missed."""
    seconds = {verb: run[verb]["seconds"] for verb in ("train", "score")}
    seconds["both"] = sum(seconds.values())
    goals = (
        VERB_GOALS.get((device, run["preset"], run["agents"]), {}) if run.get("days", USUAL_DAYS) == USUAL_DAYS else {}
    )
    words = {"both": "train and score"}
    return ", ".join(
        f"{words.get(verb, verb)} ≤ {limit} s: {'met' if seconds[verb] <= limit else 'missed'}"
        for verb, limit in goals.items()
    )


def _describe_estimate(estimate: dict[str, Any] | None) -> str:
    if estimate is None:
        return ""
    return f"{estimate['said_s']:.0f} s; all steps at their pace {estimate['all_steps_s']:.0f} s"


def beside_paper() -> str:
    """The paper's figures (of an A6000), a plain loop's and ours, the latter two of one run each on one GPU."""
    training, scoring, paper = read("training_cuda"), read("scoring-cuda"), read("single_runs_cuda")["paper"]
    same = next(entry for entry in training["graphs"] if entry["batch_size"] == 128)
    fastest = max((e for part in ("graphs", "compiled") for e in training[part]), key=lambda e: e["windows_per_s"])
    rows = [
        (
            "training, windows/s in batches of 128", f"{paper['windows_per_s']:,}",
            f"{training['plain']['windows_per_s']:,.0f}", f"{same['windows_per_s']:,.0f}",
        ),
        (
            f"steps alone, windows/s in batches of {fastest['batch_size']:,}, which no preset has", "–", "–",
            f"{fastest['windows_per_s']:,.0f}",
        ),
        (
            "one event, T = 50", f"{paper['event_ms']} ms",
            f"{scoring['plain']['sequential_ms']:.0f} ms one pass after the other, "
            f"{scoring['plain']['one_batch_ms']:.1f} ms as one batch",
            f"{scoring['live']['ms']:.1f} ms live with kNN, {scoring['bulk']['cpu_ms_per_event']:.3f} ms in bulk",
        ),
    ]  # fmt: skip
    device = training["hardware"]["device"]
    return table(("", "the paper, A6000", f"plain loop, {device}", f"preset `paper`, {device}"), rows)


def single_runs() -> str:
    """Figures of one GPU that no script has made again yet."""
    content = read("single_runs_cuda")
    rows = []
    near = content["neighbours"]
    for name in ("clustered", "normal"):
        label = f"exact neighbours, {near['queries']:,} × {near['references']:,}, k = {near['k']}, {name} points"
        rows.append((label, f"{near[name]['before_extrapolated']:.0f} s", f"{near[name]['seconds']:.1f} s", "5 s"))
    for name, run in content["loop"].items():
        rate = f"{run['windows_per_s']:,} windows/s ({run['seconds']} s in all)"
        rows.append(
            (f"training steps alone, {name}", f"the paper: {content['paper']['windows_per_s']:,} windows/s", rate, "")
        )
    for name, run in content["live"].items():
        paper = f"the paper: {content['paper']['event_ms']} ms"
        rows.append((f"one live event, {name}", paper, f"{run['median_ms']:.0f} ms", ""))
    return table(("", "before", "then", "goal"), rows)


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
        for r in read("single_runs_cuda")["batches"]
    ]
    return table(("network", "windows a step", "rate", "steps", "time", "validation loss"), rows)


BLOCKS = {
    "overhead": overhead, "verbs": verbs, "beside the paper": beside_paper,
    "single runs": single_runs, "batches": batches, "sizes": sizes,
}  # fmt: skip


if __name__ == "__main__":
    write(PAGE, BLOCKS)
