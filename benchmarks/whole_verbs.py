"""What a user waits for: `ustad train` and `ustad score` as processes, by the clock, process start included.

    python benchmarks/whole_verbs.py                                                  740 agents by quick and by best
    python benchmarks/whole_verbs.py --device cuda --runs best:1000 best:5000 best:20000 paper:20000
    python benchmarks/whole_verbs.py --runs quick:40 --days 28 --out trial.json       a trial

A run is a preset and a number of agents of numosim-la. Beside seconds it keeps processor seconds, threads, peak memory,
the load of the machine, when each stage was done, what training said beforehand about its length, and how well the
scores detect. With `--first-use` the first run is made twice, at first without compiled loops in the cache. With
`--work` data and models stay, and a second call goes on after the last verb that ended: for machines that lend ten
minutes at a time.
Writes benchmarks/results/whole_verbs_DEVICE.json after every run; lines of other runs are kept with `--keep`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from measured import describe_run

RESULTS = Path(__file__).parent / "results"
#: Of what `progress` prints: a stage, how much of it is done, and after how many seconds.
STAGE = re.compile(r"^(?P<stage>[^:]+): (?P<done>[\d,]+) of (?P<total>[\d,]+) after (?P<seconds>\d+) s")
ESTIMATE = re.compile(r"^training on [\d,]+ windows: (?:(a few seconds)|about ([\d.]+) (seconds|minutes|hours))")
UNITS = {"seconds": 1, "minutes": 60, "hours": 3600}


def run_verb(arguments: list[str], cache: Path | None = None) -> tuple[dict[str, Any], str]:
    """One verb in a process of its own: what it cost, and what it printed."""
    environment = {**os.environ, **({"NUMBA_CACHE_DIR": str(cache)} if cache else {})}
    load, began = os.getloadavg()[0], time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "ustad", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    lines: list[tuple[float, str]] = []
    reader = threading.Thread(target=_read_lines, args=(process.stderr, began, lines))
    reader.start()
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    reader.join()
    if process.returncode:
        raise SystemExit(f"ustad {arguments[0]} failed: {lines[-1][1] if lines else process.returncode}")
    cost = {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_gb": round(used.ru_maxrss / 2**20, 2),
        "load_at_start": round(load, 2),
        "stages": read_stages(lines),
        **read_estimate([line for _, line in lines]),
    }
    return cost, printed


def _read_lines(stream: TextIO, began: float, lines: list[tuple[float, str]]) -> None:
    for line in stream:
        lines.append((time.perf_counter() - began, line.rstrip()))


def read_stages(lines: list[tuple[float, str]]) -> list[dict[str, Any]]:
    """The last line of each stage: how long it took, and when the process had come that far."""
    stages = {}
    for at, line in lines:
        if match := STAGE.match(line):
            stages[match["stage"]] = {
                "stage": match["stage"],
                "seconds": int(match["seconds"]),
                "ended_at_s": round(at, 1),
            }
    return list(stages.values())


def read_estimate(lines: list[str]) -> dict[str, Any]:
    """What training said about its length, and how long all of its steps would have taken at the pace they had."""
    said = next((match for line in lines if (match := ESTIMATE.match(line))), None)
    steps = [match for line in lines if (match := STAGE.match(line)) and match["stage"].startswith("training")]
    if said is None or not steps:
        return {}
    done, total = (int(steps[-1][name].replace(",", "")) for name in ("done", "total"))
    took = int(steps[-1]["seconds"])
    expected = 5.0 if said[1] else float(said[2]) * UNITS[said[3]]
    return {"estimate": {"said_s": expected, "took_s": took, "all_steps_s": round(took * total / max(done, 1))}}


def measure_run(
    preset: str, data: Path, work: Path, device: str, *, cache: Path | None, detection: bool = True
) -> dict[str, Any]:
    """Training and scoring by one preset, and how well it detects where that is wanted."""
    model, scores = work / "model", work / "scores"
    train = keep_cost(
        work / "train.json", ["train", str(data), "--preset", preset, "--out", str(model), "--device", device], cache
    )
    score, printed = run_verb(
        ["score", str(model), str(data), "--out", str(scores), "--device", device, "--json"], cache
    )
    facts = json.loads(printed)
    cost = {
        "threads": threads_of_a_verb(),
        "train": train,
        "score": {**score, "events": facts["events"], "events_per_s": round(facts["events"] / score["seconds"])},
    }
    if not detection:
        return cost
    _, figures = run_verb(["lab", "evaluate", str(scores), "--json"], cache)
    return {**cost, "detection": read_figures(json.loads(figures))}


def threads_of_a_verb() -> int:
    """How many threads a verb computes with on a CPU: OMP_NUM_THREADS=1 halves what two cores do."""
    return int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))


def keep_cost(file: Path, arguments: list[str], cache: Path | None) -> dict[str, Any]:
    """What the verb cost, from the file of an earlier call where there is one."""
    if not file.exists():
        cost, _ = run_verb(arguments, cache)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(cost))
    return dict(json.loads(file.read_text()))


def read_figures(figures: dict[str, Any]) -> dict[str, Any]:
    """AUROC and average precision by method and level."""
    return {
        method: {level: {k: round(found[k], 4) for k in ("auroc", "ap")} for level, found in levels.items()}
        for method, levels in figures.items()
    }


def measure_all(options: argparse.Namespace, keep: list[dict[str, Any]], facts: dict[str, Any], out: Path) -> None:
    """Every run in turn; the file is written after each, so that one that is stopped leaves the others."""
    runs = list(keep)
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or Path(folder)
        cache = work / "compiled" if options.first_use else None
        first_use = options.first_use
        for name in options.runs:
            preset, agents = name.split(":")
            data = work / f"data-{agents}"
            if not data.exists():
                sizes = ["--agents", agents, "--days", str(options.days), "--seed", str(options.seed)]
                run_verb(["simulate", "--preset", "numosim-la", *sizes, "--out", str(data)], cache)
            facts_of_run: dict[str, Any] = {"preset": preset, "agents": int(agents), "days": options.days}
            if first_use:
                before = measure_run(preset, data, work / "first", options.device, cache=cache, detection=False)
                facts_of_run["first_use_s"] = {verb: before[verb]["seconds"] for verb in ("train", "score")}
                first_use = False
            place = work / name.replace(":", "-")
            costs = measure_run(preset, data, place, options.device, cache=cache, detection=not options.speed_only)
            found = {**facts_of_run, **costs}
            runs = [r for r in runs if (r["preset"], r["agents"]) != (preset, int(agents))] + [found]
            show(found)
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps({**facts, "device": options.device, "runs": runs}, indent=1) + "\n")


def show(run: dict[str, Any]) -> None:
    train, score = run["train"], run["score"]
    print(
        f"{run['preset']} {run['agents']:,} agents: train {train['seconds']} s ({train['cpu_seconds']} of CPU, "
        f"{train['peak_gb']} GB), score {score['seconds']} s ({score['cpu_seconds']} of CPU, {score['peak_gb']} GB), "
        f"{score['events_per_s']:,} events/s, {train.get('estimate', '')}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", default=["quick:740", "best:740"], help="PRESET:AGENTS, in this order")
    parser.add_argument("--days", type=int, default=56)
    parser.add_argument("--seed", type=int, default=7, help="of the simulated people")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--first-use", action="store_true", help="make the first run twice, first with an empty cache")
    parser.add_argument("--speed-only", action="store_true", help="leave out how well the scores detect")
    parser.add_argument("--keep", action="store_true", help="keep earlier lines of other runs")
    parser.add_argument("--work", type=Path, help="keep data and models here, and go on with what is there")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or RESULTS / f"whole_verbs_{options.device}.json"
    keep = json.loads(out.read_text())["runs"] if options.keep and out.exists() else []
    measure_all(options, keep, describe_run(), out)
    print(f"written to {out}")


if __name__ == "__main__":
    main()
