"""Fill in cells: jobs that share a fitted model, over processes, within a limit of time.

In go cells (`experiments.plan`) and directories for results and for data and models; out come result files. A job is
the cells of one data set, seed, model and budget, so a model is fitted by one process alone; a process goes from job
to job in the order of the plan. Stopped at any moment, the run goes on where it was: finished cells have their line,
fitted models lie in the work directory.
"""

from __future__ import annotations

import gc
import queue
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from ustad.config import ConfigError
from ustad.lab.evaluation.experiments import EXPERIMENTS, Cell, run_cell
from ustad.lab.evaluation.fitted_models import DEFAULT, FittedModels
from ustad.lab.evaluation.result_files import Line, append_line, read_lines
from ustad.lab.evaluation.sources import Source, open_source
from ustad.lab.evaluation.stopping import was_cut
from ustad.progress import say, track
from ustad.tables import DataError

#: A cell that finds a shared GPU full is tried again after so many seconds.
PAUSES = (5.0, 15.0)
#: Models that take no time to fit; they come last, where processes wait for each other's end.
LIGHT = ("random", "visit-rate", "visit-rate-causal", "visit-rate-category", "visit-rate-category-hour", "distance")


@dataclass(frozen=True)
class Ran:
    """How many cells were run, and how many are left because time ran out."""

    n_done: int
    left: int


@dataclass(frozen=True)
class Place:
    """Where and until when (seconds since 1970) a job is run; `begin_until`: and the latest that one is begun.

    With `cut_again`, networks that an earlier run cut are trained anew.
    """

    work: Path
    device: str
    until: float = float("inf")
    fit_minutes: float = 0.0
    begin_until: float = float("inf")
    acceleration: str = "auto"
    cut_again: bool = False

    def may_begin(self) -> bool:
        """Whether it is not too late to begin with a further model."""
        return self.begin_until == float("inf") or time.time() <= self.begin_until

    def minutes_to_train(self) -> float:
        """How long a network that is begun now may be trained; 0: until it stops by itself."""
        left = max((self.until - time.time()) / 60, 0.01)
        limits = [m for m in (self.fit_minutes, left) if 0 < m < float("inf")]
        return min(limits, default=0.0)


def run(
    cells: list[Cell],
    out: Path,
    work: Path,
    device: str = "auto",
    *,
    workers: int = 1,
    minutes: float | None = None,
    fit_minutes: float = 0.0,
    begin_minutes: float | None = None,
    cut_again: bool = False,
    acceleration: str = "auto",
) -> Ran:
    """Fill in the cells that have no line yet, in the order of the plan where it has one of methods.

    After `minutes` no further cell is begun, and a network that is still trained then is cut, scored and said to be
    cut. No network is trained for longer than `fit_minutes`, and none is begun after `begin_minutes`, so that those
    that were can end. With `cut_again` cells whose network was cut are run once more; the later line counts.
    `acceleration` is that of `training.acceleration`, for every network.
    """
    by_key = {line["key"]: line for name in EXPERIMENTS for line in read_lines(out / f"{name}.jsonl")}
    keys = {key for key, line in by_key.items() if not (cut_again and is_cut(line))}
    jobs: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        if cell.key not in keys:
            jobs.setdefault((cell.seed, cell.source, cell.model, cell.budget), []).append(cell)
    for job in jobs.values():  # first what uses the same measurements
        job.sort(key=lambda cell: cell.options.get("window") == "past")
    count = sum(map(len, jobs.values()))
    in_turn = sorted(jobs.values(), key=_turn)
    say(f"{count} of {len(cells)} cells to run")
    place = Place(work, device, _after(minutes), fit_minutes, _after(begin_minutes), acceleration, cut_again)
    n_finished, failures = 0, []
    with track("experiments", count) as advance:
        for line in _lines(in_turn, place, workers):
            advance(1, f"{line['experiment']} {line['data']}")
            if "failed" in line:
                failures.append(line)
                say(f"{line['experiment']} {line['data']}: {line['failed']}")
            else:
                append_line(out / f"{line['experiment']}.jsonl", line)
                n_finished += 1
    if failures:
        first = failures[0]
        raise DataError(
            f"{len(failures)} of {count} cells failed, the first ({first['experiment']} on {first['data']}): "
            f"{first['failed']}; the others are kept, run again to try these once more"
        )
    return Ran(n_finished, count - n_finished)


def is_cut(line: Line) -> bool:
    """Whether the network behind a line was stopped by the clock, in any of its trainings."""
    return was_cut(line.get("training", {}))


def _after(minutes: float | None) -> float:
    """When so many minutes from now will be over; never where there is no limit."""
    return time.time() + 60 * minutes if minutes else float("inf")


def _lines(jobs: list[list[Cell]], place: Place, workers: int) -> Iterator[Line]:
    if workers <= 1 or len(jobs) <= 1:
        bench = _Bench(place)
        for job in jobs:
            yield from bench.lines(job)
        return
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(workers, mp_context=context) as pool:
        _make_data(pool, [job[0].source for job in jobs], place.work)
        lines = manager.Queue()
        waiting = [pool.submit(_into, lines, job, place) for job in jobs]
        yield from _arriving(lines, waiting)


def _turn(job: list[Cell]) -> tuple[Any, ...]:
    """Methods in the order they were asked for, all seeds of each; else a first seed complete before a second."""
    cell = job[0]
    usual = (cell.model == DEFAULT, cell.seed, cell.model in LIGHT, -_weight(job))
    return (cell.turn, cell.seed, *usual) if cell.turn is not None else usual


def _weight(job: list[Cell]) -> int:
    """The longest first: USTAD, which most cells are about, then its variants."""
    return len(job) + 5 * job[0].model.startswith(("ustad", "dual"))


def _make_data(pool: ProcessPoolExecutor, sources: list[Source], work: Path) -> None:
    """Each data set once, before processes could make it twice."""
    futures = [pool.submit(_open, source, work) for source in dict.fromkeys(sources)]
    for future in futures:
        future.result()


def _open(source: Source, work: Path) -> None:
    open_source(source, work / "data")


def _arriving(lines: Any, waiting: list[Future[None]]) -> Iterator[Line]:
    """Lines as they come; an error of a process is raised here."""
    try:
        while waiting or not lines.empty():
            try:
                yield lines.get(timeout=0.5)
            except queue.Empty:
                for future in [f for f in waiting if f.done()]:
                    future.result()
                    waiting.remove(future)
    finally:
        for future in waiting:
            future.cancel()


_bench: _Bench | None = None  # of a process: the data set it worked on last


def _into(lines: Any, job: list[Cell], place: Place) -> None:
    """One job in a process of its own."""
    global _bench
    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    _bench = _bench or _Bench(place)
    for line in _bench.lines(job):
        lines.put(line)


class _Bench:
    """Runs jobs one after the other; keeps the tables of the last data set and seed, not what was measured."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.models: FittedModels | None = None

    def lines(self, job: list[Cell]) -> Iterator[Line]:
        """The lines of a job's cells, as long as there is time."""
        if not self.place.may_begin():
            return
        models = self._models(job[0])
        for cell in job:
            if time.time() > self.place.until:
                return
            models.fit_minutes = self.place.minutes_to_train()
            yield attempt(cell, models)
        models.forget()
        _free_memory()

    def _models(self, cell: Cell) -> FittedModels:
        key = (cell.source, cell.seed, cell.budget)
        if self.models is None or (self.models.source, self.models.seed, self.models.budget) != key:
            place = self.place
            self.models = FittedModels(
                *key, place.work, device=place.device, acceleration=place.acceleration, cut_again=place.cut_again
            )
        return self.models


def attempt(cell: Cell, models: FittedModels) -> Line:
    """A cell's line, or what kept it from having one. A full GPU is given time to become free."""
    for pause in (*PAUSES, None):
        try:
            return run_cell(cell, models)
        except torch.OutOfMemoryError as error:
            _free_memory()
            if pause is None:
                return _describe_failure(cell, error)
            time.sleep(pause)
        except Exception as error:  # whatever it was, it is told at the end, and hours of other cells go on
            return _describe_failure(cell, error)
    raise AssertionError("unreachable: the last attempt returns")


def _describe_failure(cell: Cell, error: Exception) -> Line:
    kind = "" if isinstance(error, (DataError, ConfigError)) else f"{type(error).__name__}: "
    message = f"{kind}{' '.join(str(error).split())}"
    return {"experiment": cell.experiment, "data": cell.source.label, **cell.options, "failed": message}


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
