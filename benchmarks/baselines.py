"""Every method on one data set: seconds to train and score, AUROC and average precision beside random.

    python benchmarks/baselines.py                                     a town of 500 agents, on the CPU
    python benchmarks/baselines.py --preset numosim-la --agents 2000 --device cuda
    python benchmarks/baselines.py --data DIRECTORY --methods ibat,ctle --epochs 20
    python benchmarks/baselines.py --table                     the table of docs/evidence/baselines.md, from results

The same training, validation and test weeks for all; no method sees a label; every deep one has the same budget
(epochs, patience). Prints a table, writes benchmarks/results/baselines-NAME-AGENTS-DEVICE.json; methods that
were measured before on the same data with the same budget stay in the file.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import ustad
from marked_pages import DOCS, RESULTS, met
from marked_pages import write as write_page
from measured import say_made, write_result
from ustad import progress
from ustad.config import ConfigError, SplitConfig
from ustad.dataset import Dataset, load_directory
from ustad.lab.baselines import REGISTRY, find, make
from ustad.lab.baselines.prediction_errors import prediction_errors
from ustad.lab.evaluation.detection_metrics import evaluate
from ustad.lab.evaluation.experiments import read_results
from ustad.lab.evaluation.fairness_tables import method_seconds
from ustad.lab.evaluation.fitted_models import DEFAULT, SAME
from ustad.lab.evaluation.plain_tables import Table
from ustad.simulate import simulate_tables

EXPERIMENTS = Path(__file__).parents[1] / "results" / "paper"
PAGE = DOCS / "evidence" / "baselines.md"
LARGE, TOWN = "numosim-la (2,000 agents)", "baselines-town-500-cpu.json"
LIMIT_EACH_H200 = 100.0  # seconds, 2,000 agents of numosim-la
LIMIT_ALL_CPU = 900.0  # seconds, a town of 500 agents on two cores


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a data directory instead of a simulation")
    parser.add_argument("--preset", default="town")
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--seed", type=int, default=7, help="of the methods; the data has its own")
    parser.add_argument("--data-seed", type=int, default=11)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--methods", default="all", help="names of `ustad lab methods`, with commas between")
    parser.add_argument("--epochs", type=int, help="at most this many passes for every deep method")
    parser.add_argument("--samples", type=int, help="T of the ablations with EU")
    parser.add_argument("--prediction", action="store_true", help="measure masked prediction too (MAE, MAPE, accuracy)")
    parser.add_argument("--out", type=Path, help="the file to write instead of the usual one")
    parser.add_argument("--table", action="store_true", help="measure nothing; write the table of the page")
    return parser.parse_args()


def settings_for(name: str, options: argparse.Namespace) -> dict[str, Any]:
    known = {f.name for f in dataclasses.fields(find(name).settings_class)}
    given = {"epochs": options.epochs, "samples": options.samples}
    return {key: value for key, value in given.items() if value is not None and key in known}


def run(name: str, data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """Fit on the training weeks, score the test weeks, evaluate."""
    split = data.split(SplitConfig())
    train, validation, test = (
        data.between(first, last)
        for first, last in (
            (split.train_first, split.validation_first - 1),
            (split.validation_first, split.test_first - 1),
            (split.test_first, split.test_last),
        )
    )
    before = data.between(split.train_first, split.test_first - 1)
    began, cpu = time.perf_counter(), time.process_time()
    detector = make(name, data.schema, options.seed, device=options.device, **settings_for(name, options))
    detector.fit(train, validation)
    fitted = time.perf_counter()
    scores = detector.score(test, before)
    done, cpu_done = time.perf_counter(), time.process_time()
    figures = evaluate(scores.events, scores.agents, data.labels, data.agent_labels, bootstrap=0)
    result: dict[str, Any] = {"fit_s": round(fitted - began, 2), "score_s": round(done - fitted, 2)}
    result["cpu_s"] = round(cpu_done - cpu, 2)  # tells how far other work on the machine slowed it down
    for level, found in figures.items():
        result[level] = {key: found[key] for key in ("auroc", "ap", "n", "positives")}
    if options.prediction and find(name).abilities.predicts:
        result["prediction"] = prediction_errors(detector, test, before).to_pylist()
    return result


def line(name: str, result: dict[str, Any]) -> str:
    for what in ("skipped", "failed"):
        if what in result:
            return f"{name:26} {what}: {result[what]}"
    shown = [
        f"{result[level]['auroc']:.3f} / {result[level]['ap']:.4f}" if level in result else "      -       "
        for level in ("events", "agents")
    ]
    return f"{name:26} {result['fit_s']:8.1f} {result['score_s']:8.1f}   {shown[0]}   {shown[1]}"


def hardware() -> dict[str, Any]:
    cpu = next((x.split(":")[1].strip() for x in _cpu_lines() if x.startswith("model name")), platform.processor())
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {"cpu": cpu, "cores": os.cpu_count(), "gpu": gpu}


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def attempt(name: str, data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """A method that cannot run is named, and the others go on."""
    try:
        return run(name, data, options)
    except ConfigError as error:  # an optional library that is not there
        return {"skipped": str(error)}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    finally:
        gc.collect()


def write(path: Path, content: dict[str, Any], results: dict[str, Any]) -> None:
    """The file so far, with what was measured before under the same conditions."""
    methods = {**_measured_before(path, content), **results}
    done = [r for r in methods.values() if "fit_s" in r]
    seconds = [r["fit_s"] + r["score_s"] for r in done]
    totals = {"all_s": round(sum(seconds), 1), "longest_s": round(max(seconds, default=0.0), 1)}
    totals["all_cpu_s"] = round(sum(r["cpu_s"] for r in done), 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_result(path, {**content, "methods": methods, **totals})


def seconds_by_method() -> str:
    """Seconds by method on a GPU (cells of the experiments, side by side) and on a CPU, and whether they are few."""
    results = read_results(EXPERIMENTS)
    lines = [x for x in results["prediction"] + results["detection"] if x["data"] == LARGE and x["device"] == "cuda"]
    lines = [x for x in lines if x.get("window") != "past"]
    town = json.loads((RESULTS / TOWN).read_text()) if (RESULTS / TOWN).exists() else {"methods": {}}
    names = (*REGISTRY, DEFAULT)
    gpu = {name: _gpu_seconds([x for x in lines if x["method"] == name]) for name in names}
    rows = [(f"`{n}`", *_gpu_cells(gpu[n]), *_town_cells(town["methods"].get(n, {}))) for n in names]
    heads = (
        "method", "H200, 2,000 agents: fit s", "score and predict s", "longest seed, all s",
        f"{_threads(town)}, town of 500: s", "CPU s",
    )  # fmt: skip
    shared = " ".join(
        f"On the H200 `{name}` shares the fit of `{other}`." for name, other in SAME.items() if name in REGISTRY
    )
    told = [f"- {shared}", f"- {_told_gpu(gpu)}", f"- {_told_town(town)}", f"- {_told_versions(lines, town)}"]
    return "\n".join([Table("", "", heads, tuple(rows)).markdown(), *told])


def _gpu_seconds(lines: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Fitting and the rest, of every seed."""
    return [method_seconds([x for x in lines if x["seed"] == seed]) for seed in sorted({x["seed"] for x in lines})]


def _gpu_cells(seeds: list[tuple[float, float]]) -> list[str]:
    if not seeds:
        return ["–"] * 3
    return [*(f"{statistics.median(s[i] for s in seeds):.1f}" for i in (0, 1)), f"{max(map(sum, seeds)):.1f}"]


def _town_cells(found: dict[str, Any]) -> list[str]:
    return [f"{found['fit_s'] + found['score_s']:.1f}", f"{found['cpu_s']:.1f}"] if "fit_s" in found else ["–", "–"]


def _told_gpu(gpu: dict[str, list[tuple[float, float]]]) -> str:
    longest = {name: max(map(sum, seeds)) for name, seeds in gpu.items() if seeds}
    slow = ", ".join(f"`{name}`" for name, seconds in longest.items() if seconds >= LIMIT_EACH_H200)
    last = max(longest, key=lambda name: longest[name])
    missing = ", ".join(f"`{name}`" for name in gpu if name not in longest)
    return (
        f"H200: {len(longest)} methods were measured, and {f'all but {slow}' if slow else 'all'} stayed under "
        f"{LIMIT_EACH_H200:.0f} s in every seed ({met(longest[last], LIMIT_EACH_H200, False)}); the longest was "
        f"`{last}` with {longest[last]:.1f} s. Not measured there: {missing or 'none'}."
    )


def _told_versions(lines: list[dict[str, Any]], town: dict[str, Any]) -> str:
    """By which version and when each column was measured: seconds of different versions stand side by side."""
    versions = ", ".join(sorted({f"ustad {x['versions']['ustad']}" for x in lines}))
    days = sorted({x["date"] for x in lines})
    gpu = f"{versions}, {' to '.join(dict.fromkeys((days[0], days[-1])))}" if lines else "no version"
    differ = " These are two versions: compare no seconds between them." if versions not in say_made(town) else ""
    return f"Measured: columns of the H200 by {gpu}; columns of the town (`{TOWN}`) by {say_made(town)}.{differ}"


def _told_town(town: dict[str, Any]) -> str:
    spent = [m["fit_s"] + m["score_s"] for m in town["methods"].values() if "fit_s" in m]
    every = len(spent) == len(REGISTRY)
    held = met(sum(spent), LIMIT_ALL_CPU, False) if every else "not known before all are measured"
    return (
        f"Town: {'all' if every else f'{len(spent)} of'} {len(REGISTRY)} methods together took {sum(spent):.0f} s; "
        f"under {LIMIT_ALL_CPU:.0f} s are asked ({held})."
    )


def _threads(found: dict[str, Any]) -> str:
    """On how many threads of a CPU a result file was measured."""
    threads = found.get("threads")
    return "CPU" if threads is None else f"{threads} CPU thread{'' if threads == 1 else 's'}"


BLOCKS = {"seconds": seconds_by_method}


def main() -> None:
    options = arguments()
    if options.table:
        write_page(PAGE, BLOCKS)
        return
    progress.disable()
    data = (
        load_directory(options.data)
        if options.data
        else simulate_tables(options.preset, agents=options.agents, seed=options.data_seed)
    )
    names = list(REGISTRY) if options.methods == "all" else options.methods.split(",")
    device = "cuda" if options.device != "cpu" and torch.cuda.is_available() else "cpu"
    path = options.out or RESULTS / f"baselines-{data.name.split()[0]}-{_agents(data)}-{device}.json"
    content = {
        "data": {"name": data.name, "events": data.events.num_rows, **_data_facts(options)},
        "device": device,
        "threads": torch.get_num_threads(),
        "budget": {"epochs": options.epochs or "default", "samples": options.samples or "default"},
        "limits": {"each_h200_s": LIMIT_EACH_H200, "all_two_cores_s": LIMIT_ALL_CPU},
        "hardware": hardware(),
        "versions": {"ustad": ustad.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    print(f"{data.name}: {data.events.num_rows:,} events, on {device}")
    print(f"{'method':26} {'fit s':>8} {'score s':>8}   events AUROC/AP   agents AUROC/AP", flush=True)
    results: dict[str, Any] = {}
    for name in names:
        results[name] = attempt(name, data, options)
        print(line(name, results[name]), flush=True)
        write(path, content, results)
    print(f"written: {path}")
    if any("failed" in result for result in results.values()):
        raise SystemExit(1)


def _measured_before(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Methods in the file, if it speaks of the same data, budget and machine."""
    before = json.loads(path.read_text()) if path.exists() else {}
    same = all(before.get(key) == content[key] for key in ("data", "budget", "device", "threads", "hardware"))
    return before["methods"] if same else {}


def _agents(data: Dataset) -> int:
    return len(data.events[data.schema.entity].unique())


def _data_facts(options: argparse.Namespace) -> dict[str, Any]:
    if options.data:
        return {}
    return {"preset": options.preset, "agents": options.agents, "seed": options.data_seed}


if __name__ == "__main__":
    main()
