"""Detection from GPS: towns recorded by each phone, scored beside the true stays of the same people.

    python benchmarks/gps.py                                     ten towns by `quick`, and numosim-la with 1,000 agents
    python benchmarks/gps.py --seeds 101 102 --agents 100        a trial
    python benchmarks/gps.py --demo                              the demo in ten towns, by `best`, `quick`, visit rate

A job is one town (or city) and one recording of it; jobs run in processes of their own. The demo is judged by the plain
recording with a fix a minute (`--fixes 60s`): how many of the 14 most unusual incidents are true, town by town. Prints
a line per job, writes benchmarks/results/gps.json (demo.json) after each; a line says which version made it, and when.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from measured import describe_run

RESULTS = Path(__file__).parent / "results"
#: The demo's town and recording.
DEMO_AGENTS, DEMO_DAYS = 300, 28


@dataclass(frozen=True)
class Job:
    """People of one seed, how they are recorded, and the presets that score them."""

    data: str
    agents: int
    days: int | None
    seed: int
    phone: str
    presets: tuple[str, ...]


def run_job(job: Job, work: Path) -> list[dict[str, Any]]:
    """One line for each preset."""
    import numba
    import pyarrow as pa
    import torch

    from ustad.lab.evaluation.gps import compare_scores
    from ustad.lab.evaluation.recordings import open_recording

    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    numba.set_num_threads(1)
    lines = []
    with tempfile.TemporaryDirectory(dir=work) as folder:
        began = time.perf_counter()
        data = open_recording(job.data, Path(folder) / "data", job.phone, job.agents, job.seed, days=job.days)
        made = time.perf_counter() - began
        for preset in job.presets:
            began = time.perf_counter()
            result = compare_scores(data, score_by(preset, data, job.seed))
            lines.append(
                {
                    "data": f"{job.data} ({job.agents:,} agents)", "phone": job.phone, "method": preset,
                    "seed": job.seed, "result": result, "seconds_to_make": round(made, 1),
                    "seconds_to_score": round(time.perf_counter() - began, 1),
                }
            )  # fmt: skip
    return lines


def score_by(preset: str, data: Any, seed: int) -> Any:
    """Scores of the test weeks."""
    from ustad.config import Config, SplitConfig
    from ustad.detector import Detector
    from ustad.lab.baselines import make

    if preset == "visit-rate":
        split = data.split(SplitConfig())
        before = data.between(split.train_first, split.test_first - 1)
        method: Any = make(preset, data.schema, seed)
        method.fit(data.between(split.train_first, split.validation_first - 1), None)
        return method.score(data.between(split.test_first, split.test_last), before)
    return Detector(Config.preset(preset, seed=seed), "cpu").fit(data).score(data)


def plan_jobs(arguments: argparse.Namespace) -> list[Job]:
    """The longest first: cities, then loggers."""
    from ustad.lab.evaluation.recordings import PLAIN, TRUE_STAYS

    presets = tuple(arguments.presets)
    phones = arguments.phones or [TRUE_STAYS, PLAIN, "logger", "phone", "app", "sparse"]
    sizes = [("numosim-la", arguments.city_agents, None, seed) for seed in arguments.city_seeds]
    sizes += [("town", arguments.agents, arguments.days, seed) for seed in arguments.seeds]
    order = ["logger", PLAIN, "app", "phone", "sparse", TRUE_STAYS]
    jobs = [Job(*size, phone, presets) for size in sizes for phone in phones if size[0] == "town" or phone != PLAIN]
    return sorted(jobs, key=lambda job: (job.data == "town", order.index(job.phone), job.seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(1, 11)), help="of the towns")
    parser.add_argument("--agents", type=int, default=DEMO_AGENTS, help="of a town")
    parser.add_argument("--days", type=int, default=DEMO_DAYS, help="of a town")
    parser.add_argument("--city-seeds", type=int, nargs="*", default=[1], help="of numosim-la; none: leave it out")
    parser.add_argument("--city-agents", type=int, default=1_000)
    parser.add_argument("--phones", nargs="*", help="some of them only; `true stays` and `fix a minute` are names too")
    parser.add_argument("--presets", nargs="*", default=["quick", "visit-rate"], help="visit-rate or a preset")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", action="store_true", help="keep earlier lines of other data, phones and presets")
    parser.add_argument(
        "--demo", action="store_true", help="only what `ustad demo` records, by every preset it tells of"
    )
    arguments = parser.parse_args()
    if arguments.demo:
        arguments.city_seeds, arguments.presets, arguments.keep = [], ["best", "quick", "visit-rate"], True
        arguments.phones = ["fix a minute", "true stays"]
    arguments.out = arguments.out or RESULTS / ("demo.json" if arguments.demo else "gps.json")
    jobs, facts, began = plan_jobs(arguments), describe_run(), time.perf_counter()
    lines = read_lines(arguments.out) if arguments.keep and arguments.out.exists() else []
    made_by = {"ustad": facts["versions"]["ustad"], "date": facts["date"]}
    with tempfile.TemporaryDirectory() as folder:
        context = get_context("spawn")
        with ProcessPoolExecutor(arguments.workers, mp_context=context) as pool:
            for future in as_completed([pool.submit(run_job, job, Path(folder)) for job in jobs]):
                for line in future.result():
                    lines.append({**line, **made_by})
                    show(line)
                write_lines(arguments.out, lines, {**facts, "seconds": round(time.perf_counter() - began)})
    print(f"written to {arguments.out} after {time.perf_counter() - began:.0f} s")


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a result file, each with the version that made it."""
    content = json.loads(file.read_text())
    return [{"ustad": content["versions"]["ustad"], **line} for line in content["lines"]]


def write_lines(out: Path, lines: list[dict[str, Any]], facts: dict[str, Any]) -> None:
    """The latest line of each job and preset, in order. Lines of one data set are of one version, the latest."""
    version = {x["data"]: x["ustad"] for x in lines}
    lines = [x for x in lines if x["ustad"] == version[x["data"]]]
    latest = {(x["data"], x["phone"], x["method"], x["seed"]): x for x in lines}
    out.parent.mkdir(parents=True, exist_ok=True)
    result = {"lines": [latest[key] for key in sorted(latest)], **facts}
    out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


def show(line: dict[str, Any]) -> None:
    result = line["result"]
    figures = " ".join(
        f"{level} {result[level]['auroc']:.3f} / {result[level]['ap']:.3f}" for level in ("events", "agents")
        if result.get(level, {}).get("auroc") is not None
    )  # fmt: skip
    pieces = result["recording"].get("pieces")
    told = f", {pieces:.3f} pieces per stay" if pieces else ""
    top = result.get("true_of_most_unusual")
    print(
        f"{line['data']} seed {line['seed']} {line['phone']:<14}{line['method']:<12}{figures}, {top} of 14 true{told} "
        f"({line['seconds_to_make']} + {line['seconds_to_score']} s)",
        flush=True,
    )


if __name__ == "__main__":
    main()
