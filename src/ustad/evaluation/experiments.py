"""The paper's seven experiments as lists of cells, and the runner that fills them in.

A cell is a data set × a method (or kind, or size) × a seed. Each becomes one line of JSON in `OUT/NAME.jsonl` with
its configuration, seed, versions, hardware and seconds; a cell that has its line is not run again. Tables, figures
and the page are made from those files alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ustad
from ustad.config import ConfigError
from ustad.evaluation import cells as compute
from ustad.evaluation.cases import cases
from ustad.evaluation.sources import Source
from ustad.evaluation.workshop import BUDGETS, USTAD, Budget, Workshop
from ustad.progress import say, track
from ustad.simulate.injections import KINDS
from ustad.tables import DataError

FIRST_SEED = 7
PREDICTORS = ("mlp", "lstm", "transformer", "lightpath", "dual-tr", USTAD)
DETECTORS = (
    "random", "visit-rate", "visit-rate-causal", "ctle", "ibat", "gm-vsae", "atrom", "sensitive-hue", "nov-online",
    "transformer", "dual-tr", USTAD, compute.DEFAULT,
)  # fmt: skip
#: Detectors that are also asked with nothing later than the event in their window.
BOTH_WINDOWS = ("transformer", USTAD)
WEEKS = (1, 2, 3)


@dataclass(frozen=True)
class Experiment:
    """A function of a workshop, and the options it is called with, one cell each."""

    about: str
    run: Callable[..., dict[str, Any]]
    options: tuple[dict[str, Any], ...] = ({},)


def _detection_options() -> tuple[dict[str, Any], ...]:
    day = [{"method": name, "window": "day"} for name in DETECTORS]
    return (*day, *({"method": name, "window": "past"} for name in BOTH_WINDOWS))


def _uncertainty(shop: Workshop, **options: Any) -> dict[str, Any]:
    return (compute.training_size if "weeks" in options else compute.rejection)(shop, **options)


EXPERIMENTS: dict[str, Experiment] = {
    "prediction": Experiment(
        "masked prediction: MAE, MAPE and accuracy (Q1)",
        compute.prediction,
        tuple({"method": name} for name in PREDICTORS),
    ),
    "detection": Experiment("anomaly detection of events and agents (Q2)", compute.detection, _detection_options()),
    "uncertainty": Experiment(
        "error against the share kept, EU by kind of place, AU and EU by weeks of training (Q3, Q4)",
        _uncertainty,
        (*({"method": name} for name in compute.VARIANTS), *({"weeks": weeks} for weeks in WEEKS)),
    ),
    "scores": Experiment("which score of the same model finds most (Q4)", compute.scores),
    "injections": Experiment(
        "the six kinds of injected anomalies against four scores",
        compute.injections,
        tuple({"kind": kind} for kind in (*KINDS, "all")),
    ),
    "epistemic": Experiment("loss, EU and distance to the training events", compute.epistemic),
    "cases": Experiment("case studies chosen by rule (Q5)", cases),
}


@dataclass(frozen=True)
class Cell:
    """What one line of a result file is the answer to."""

    experiment: str
    source: Source
    seed: int
    budget: Budget
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        told = [self.experiment, self.source.to_dict(), self.seed, asdict(self.budget), self.options]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def plan(
    names: Iterable[str], sources: Iterable[Source], seeds: int, budget: Budget, methods: Iterable[str] | None = None
) -> list[Cell]:
    """All cells of the experiments (of these methods only), a first seed complete before a second begins."""
    sources, names, wanted = list(sources), list(names), None if methods is None else set(methods)
    known = {o["method"] for e in EXPERIMENTS.values() for o in e.options if "method" in o}
    if wanted is not None and wanted - known:
        raise ConfigError(f"no experiment has the method '{min(wanted - known)}' (known: {', '.join(sorted(known))})")
    for name in names:
        if name not in EXPERIMENTS:
            raise ConfigError(f"unknown experiment '{name}' (known: {', '.join(EXPERIMENTS)}, all)")
    return [
        Cell(name, source, FIRST_SEED + number, budget, options)
        for number in range(seeds)
        for source in sources
        for name in names
        for options in EXPERIMENTS[name].options
        if wanted is None or options.get("method") in wanted
    ]


def run(cells: list[Cell], out: Path, work: Path, device: str = "auto", workers: int = 1) -> int:
    """Fill in the cells that have no line yet; how many were run. `workers` processes share data sets and seeds."""
    done = {line["key"] for name in EXPERIMENTS for line in read_lines(out / f"{name}.jsonl")}
    groups: dict[tuple[Source, int], list[Cell]] = {}
    for cell in cells:
        if cell.key not in done:
            groups.setdefault((cell.source, cell.seed), []).append(cell)
    count = sum(map(len, groups.values()))
    say(f"{count} of {len(cells)} cells to run")
    failures = []
    with track("experiments", count) as advance:
        for line in _lines(list(groups.values()), work, device, workers):
            advance(1, f"{line['experiment']} {line['data']}")
            if "failed" in line:
                failures.append(line)
                say(f"{line['experiment']} {line['data']}: {line['failed']}")
            else:
                append_line(out / f"{line['experiment']}.jsonl", line)
    if failures:
        first = failures[0]
        raise DataError(
            f"{len(failures)} of {count} cells failed, the first ({first['experiment']} on {first['data']}): "
            f"{first['failed']}; the others are kept, run again to try these once more"
        )
    return count


def _lines(groups: list[list[Cell]], work: Path, device: str, workers: int) -> Iterator[dict[str, Any]]:
    if workers <= 1 or len(groups) <= 1:
        for group in groups:
            yield from run_group(group, work, device)
        return
    _simulate_first(groups, work)
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(workers, mp_context=context) as pool:
        lines = manager.Queue()
        waiting = [pool.submit(_into, lines, group, work, device) for group in groups]
        while waiting or not lines.empty():
            try:
                yield lines.get(timeout=0.5)
            except queue.Empty:
                for future in [f for f in waiting if f.done()]:
                    future.result()
                    waiting.remove(future)


def _simulate_first(groups: list[list[Cell]], work: Path) -> None:
    """Make each data set before workers could make it twice."""
    for source, cell in {group[0].source: group[0] for group in groups}.items():
        if source.path is None:
            _ = Workshop(source, cell.seed, cell.budget, work).data


def _into(lines: Any, group: list[Cell], work: Path, device: str) -> None:
    torch.set_num_threads(1)
    for line in run_group(group, work, device):
        lines.put(line)


def run_group(group: list[Cell], work: Path, device: str) -> Iterator[dict[str, Any]]:
    """The cells of one data set and seed, which share its models."""
    shop = Workshop(group[0].source, group[0].seed, group[0].budget, work, device)
    for cell in group:
        try:
            yield run_cell(cell, shop)
        except (DataError, ConfigError, torch.OutOfMemoryError) as error:
            told = " ".join(str(error).split())
            yield {"experiment": cell.experiment, "data": cell.source.label, "failed": told}


def run_cell(cell: Cell, shop: Workshop) -> dict[str, Any]:
    """One line: what was asked, what came out, how long it took and on what."""
    began = time.perf_counter()
    result = EXPERIMENTS[cell.experiment].run(shop, **cell.options)
    return {
        "key": cell.key,
        "experiment": cell.experiment,
        "data": cell.source.label,
        "source": {**cell.source.to_dict(), "events": shop.data.events.num_rows},
        **cell.options,
        "seed": cell.seed,
        "budget": asdict(cell.budget),
        "result": _plain(result),
        "seconds": round(time.perf_counter() - began, 2),
        "device": "cuda" if device_type(shop.device) == "cuda" else "cpu",
        "versions": versions(),
        "hardware": hardware(),
    }


# -------------------------------------------------------------------------------------------- result files
def append_line(path: Path, line: dict[str, Any]) -> None:
    """One whole line, on disk before the next cell begins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _drop_half_line(path)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _drop_half_line(path: Path) -> None:
    """What a killed run left behind the last whole line."""
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a result file; none where there is no file."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line]


def read_results(out: Path) -> dict[str, list[dict[str, Any]]]:
    """All lines by experiment, those of the same cell once (the latest)."""
    return {name: list({x["key"]: x for x in read_lines(out / f"{name}.jsonl")}.values()) for name in EXPERIMENTS}


def _plain(value: Any) -> Any:
    """JSON with six figures; what is not a number is null."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def versions() -> dict[str, str]:
    return {
        "ustad": ustad.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def hardware() -> dict[str, Any]:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    cpu = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), platform.processor())
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {"cpu": cpu, "cores": os.cpu_count(), "gpu": gpu}


def device_type(name: str) -> str:
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


__all__ = ["BUDGETS", "EXPERIMENTS", "Cell", "plan", "read_results", "run"]
