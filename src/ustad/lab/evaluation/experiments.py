"""The paper's seven experiments, and detection from GPS, as lists of cells, which `runner` fills in.

A cell is a data set × a method (or kind, or size) × a seed. Each becomes one line of JSON in `OUT/NAME.jsonl` with
its configuration, seed, versions, hardware and seconds; a cell that has its line is not run again. Tables, figures
and the page are made from those files alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch

from ustad.config import ConfigError
from ustad.lab.evaluation import cells as compute
from ustad.lab.evaluation.budgets import BUDGETS, Budget
from ustad.lab.evaluation.case_studies import cases
from ustad.lab.evaluation.fitted_models import (
    DEFAULT,
    FIRST_SEED,
    QUICK,
    SAME,
    TRIPS,
    USTAD,
    WHOLE_PRESETS,
    WITH_TRIPS,
    FittedModels,
)
from ustad.lab.evaluation.gps import GPS_METHODS, PRESET_METHODS, gps
from ustad.lab.evaluation.recordings import PLAIN, TRUE_STAYS
from ustad.lab.evaluation.result_files import Line, command, hardware, plain_json, read_lines, versions
from ustad.lab.evaluation.sources import Source
from ustad.lab.red_team.injections import KINDS
from ustad.simulate import PRESETS
from ustad.simulate.phones import PHONES

PREDICTORS = (
    "mlp", "lstm", "transformer", "lightpath", "dual-tr", USTAD, "ustad-minmax", "ustad-lambda",
    "mlp-trips", "lstm-trips", "transformer-trips", "lightpath-trips", "dual-tr-trips", TRIPS,
)  # fmt: skip
DETECTORS = (
    "random", "visit-rate", "visit-rate-causal", "visit-rate-category", "visit-rate-category-hour", "distance",
    "ibat", "gm-vsae", "atrom", "ctle", "sensitive-hue", "nov-online", "transformer",
    "ustad-none", "ustad-au", "ustad-eu", USTAD, "ustad-minmax", "ustad-lambda",
    "ctle-trips", "sensitive-hue-trips", "nov-online-trips", "transformer-trips", "ustad-none-trips", TRIPS,
    QUICK, DEFAULT,
)  # fmt: skip
#: Detectors that are also asked with nothing later than the event in their window.
BOTH_WINDOWS = ("transformer", USTAD)
WEEKS = (1, 2, 3)
#: What `methods` calls the cells of fewer training weeks: those that claims compare, and those in between.
BY_WEEKS, BETWEEN_WEEKS = "ustad-weeks", "ustad-weeks-between"
#: Seeds of people from this on are for choosing; what is reported is of lower ones.
DEVELOPMENT_SEEDS = 100
#: Larger data sets come after the others on the page.
LARGE = 10_000


@dataclass(frozen=True)
class Experiment:
    """A function of fitted models, and the options it is called with, one cell each."""

    about: str
    run: Callable[..., dict[str, Any]]
    options: tuple[dict[str, Any], ...] = ({},)


def _detection_options() -> tuple[dict[str, Any], ...]:
    day = [{"method": name, "window": "day"} for name in DETECTORS]
    return (*day, *({"method": name, "window": "past"} for name in BOTH_WINDOWS))


def _uncertainty(models: FittedModels, **options: Any) -> dict[str, Any]:
    return (compute.training_size if "weeks" in options else compute.rejection)(models, **options)


EXPERIMENTS: dict[str, Experiment] = {
    "prediction": Experiment(
        "masked prediction: MAE, MAPE and accuracy",
        compute.prediction,
        tuple({"method": name} for name in PREDICTORS),
    ),
    "detection": Experiment("anomaly detection of events and agents", compute.detection, _detection_options()),
    "uncertainty": Experiment(
        "error against the share kept, EU by kind of place, AU and EU by weeks of training",
        _uncertainty,
        (
            *({"method": name} for name in compute.VARIANTS),
            *({"weeks": weeks} for weeks in WEEKS),
            *({"weeks": weeks, "steps": "equal"} for weeks in WEEKS[:-1]),
        ),
    ),
    "scores": Experiment("which score of the same model finds most", compute.scores),
    "injections": Experiment(
        "the six kinds of injected anomalies against four scores",
        compute.injections,
        tuple({"kind": kind, **ours} for ours in ({}, {"method": DEFAULT}) for kind in (*KINDS, "all")),
    ),
    "epistemic": Experiment("loss, EU and distance to the training events", compute.epistemic),
    "cases": Experiment("case studies chosen by rule", cases, ({}, {"method": DEFAULT})),
    "gps": Experiment(
        "detection from true stays and from what phones record of the same people",
        gps,
        tuple({"phone": phone, "method": method} for phone in (TRUE_STAYS, PLAIN, *PHONES) for method in GPS_METHODS),
    ),
}
#: Experiments of USTAD that our own preset also answers.
OF_BEST = ("injections", "cases")
#: What `all` runs.
PAPER = tuple(name for name in EXPERIMENTS if name != "gps")


@dataclass(frozen=True)
class Cell:
    """What one line of a result file is the answer to."""

    experiment: str
    source: Source
    seed: int
    budget: Budget
    options: dict[str, Any] = field(default_factory=dict)
    turn: int | None = None  # when it is run: the place of its method in a list that somebody gave

    @property
    def method(self) -> str:
        """The method it measures; what has no choice of them is about USTAD itself."""
        return str(self.options.get("method", USTAD))

    @property
    def model(self) -> str:
        """What has to be fitted for it. Three weeks of training are the whole of it where there are no more."""
        if "phone" in self.options:  # one process for all methods, so that a recording is made once
            return f"gps-{self.options['phone']}"
        weeks, steps = self.options.get("weeks", WEEKS[-1]), self.options.get("steps")
        part = f"-{weeks}w" if weeks != WEEKS[-1] else ""
        return SAME.get(self.method, self.method) + part + (f"-{steps}" if steps else "")

    @property
    def key(self) -> str:
        content = [self.experiment, self.source.to_dict(), self.seed, self.budget.to_dict(), self.options]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def plan(
    names: Iterable[str],
    sources: Iterable[Source],
    seeds: int | Sequence[int],
    budget: Budget,
    *,
    methods: Iterable[str] | None = None,
    past: bool = True,
) -> list[Cell]:
    """All cells of the experiments, a first seed complete before a second begins.

    So many `seeds` are of training, on one and the same data; seeds by name are of the simulated people too, so that
    each is another data set; those of `gps` always are. `methods` leaves out all others and says which come first,
    `past` False the windows without anything later than the event.
    """
    sources, names, turns = list(sources), list(names), None if methods is None else list(methods)
    all_names = {asked_by(o) for e in EXPERIMENTS.values() for o in e.options}
    if turns is not None and (unknown := set(turns) - all_names):
        raise ConfigError(f"no experiment has the method '{min(unknown)}' (known: {', '.join(sorted(all_names))})")
    for name in names:
        if name not in EXPERIMENTS:
            raise ConfigError(f"unknown experiment '{name}' (known: {', '.join(EXPERIMENTS)}, all)")
    of_training = isinstance(seeds, int)
    return [
        Cell(
            name,
            source if of_training and name != "gps" else source.with_people(seed),
            seed,
            budget,
            options,
            None if turns is None else turns.index(asked_by(options)),
        )
        for seed in (range(FIRST_SEED, FIRST_SEED + seeds) if isinstance(seeds, int) else seeds)
        for source in sources
        for name in names
        for options in EXPERIMENTS[name].options
        if (turns is None or asked_by(options) in turns) and (past or options.get("window") != "past")
    ]


def find_methods(experiment: str) -> tuple[str, ...]:
    """The names by which `methods` knows the cells of an experiment, in the order of the plan."""
    return tuple(dict.fromkeys(asked_by(options) for options in EXPERIMENTS[experiment].options))


def asked_by(options: dict[str, Any]) -> str:
    """The name by which `methods` knows a cell."""
    if "weeks" in options:
        return BY_WEEKS if options["weeks"] in (WEEKS[0], WEEKS[-1]) else BETWEEN_WEEKS
    return str(options.get("method", USTAD))


def run_cell(cell: Cell, models: FittedModels) -> dict[str, Any]:
    """One line: what was asked, what came out, how long it took and on what."""
    began, fit_seconds = time.perf_counter(), sum(models.fit_seconds.values())
    result = EXPERIMENTS[cell.experiment].run(models, **cell.options)
    events = models.data.events
    return {
        "key": cell.key,
        "experiment": cell.experiment,
        "data": cell.source.label,
        "source": {
            **cell.source.to_dict(),
            "events": events.num_rows,
            "people": pc.count_distinct(events["agent_id"]).as_py(),
        },
        **cell.options,
        "seed": cell.seed,
        "budget": cell.budget.to_dict(),
        **(
            {"settings": models.settings(cell.method)}
            if cell.budget.search and cell.method not in PRESET_METHODS | WHOLE_PRESETS
            else {}
        ),
        "result": plain_json(result),
        **({"training": plain_json(training)} if (training := models.training_of(cell.model, cell.method)) else {}),
        "seconds": round(time.perf_counter() - began, 2),
        "fit_seconds": round(sum(models.fit_seconds.values()) - fit_seconds, 2),
        **({"acceleration": models.acceleration} if models.acceleration != "auto" else {}),
        "device": "cuda" if device_type(models.device) == "cuda" else "cpu",
        "versions": versions(),
        "hardware": hardware(),
        "date": date.today().isoformat(),
        "load": round(os.getloadavg()[0], 2),
        **({"command": command_line} if (command_line := command()) else {}),
    }


# -------------------------------------------------------------------------------------------- result files
def read_results(*directories: Path) -> dict[str, list[Line]]:
    """All lines by experiment, those of the same cell once (the latest), in the order of data sets and of the plan.

    Five things are apart. What our own preset does where the paper speaks of USTAD alone: `injections of best`,
    `cases of best`. Further runs on one and the same data set, beside those with other people: `NAME by training`.
    Methods that were told of trips: `NAME with trips`. The search of λ: `search`. What else was tried on development
    seeds: `tried`.
    """
    lines_by_name: dict[str, list[Line]] = {}
    for name, experiment in EXPERIMENTS.items():
        lines = [line for directory in directories for line in read_lines(directory / f"{name}.jsonl")]
        places = {json.dumps(options, sort_keys=True): i for i, options in enumerate(experiment.options)}
        keys = sorted({key for options in experiment.options for key in options})
        lines_by_name[name] = sorted(
            {line["key"]: line for line in lines}.values(), key=lambda line: _place(line, places, keys)
        )
    lines_by_name["search"], lines_by_name["tried"] = [], []
    for name in EXPERIMENTS:
        lines_by_name["search"] += _take_out(lines_by_name, name, lambda line: "category_weight" in line["budget"])
        lines_by_name["tried"] += _take_out(lines_by_name, name, _is_development)
        people: dict[str, set[int]] = {}
        for line in lines_by_name[name]:
            people.setdefault(line["data"], set()).add(line["source"].get("seed", 0))
        several = {data for data, seeds in people.items() if len(seeds) > 1}
        lines_by_name[f"{name} by training"] = _take_out(lines_by_name, name, partial(_is_again, several))
        lines_by_name[f"{name} with trips"] = _take_out(lines_by_name, name, _is_with_trips)
    for name in OF_BEST:
        lines_by_name[f"{name} of best"] = _take_out(lines_by_name, name, lambda line: line.get("method") == DEFAULT)
    return lines_by_name


def _is_development(line: Line) -> bool:
    """Whether a line is of people that no figure is reported of, or of a method with a setting changed.

    From GPS nothing was chosen: those lines stay as they are, whatever their people.
    """
    is_of_others = line["source"].get("seed", 0) >= DEVELOPMENT_SEEDS or "changes" in line["budget"]
    return is_of_others and line["experiment"] != "gps"


def _is_with_trips(line: Line) -> bool:
    method = line.get("method", USTAD)
    return SAME.get(method, method) in WITH_TRIPS


def _is_again(data: set[str], line: Line) -> bool:
    """Whether a line is of a data set of the list, with another seed of training than of its people."""
    return line["data"] in data and line["source"].get("seed") != line["seed"]


def _take_out(lines_by_name: dict[str, list[Line]], name: str, is_apart: Callable[[Line], bool]) -> list[Line]:
    """The lines of an experiment that are something else; the others stay."""
    apart = [line for line in lines_by_name[name] if is_apart(line)]
    lines_by_name[name] = [line for line in lines_by_name[name] if not is_apart(line)]
    return apart


def _place(line: Line, places: dict[str, int], keys: list[str]) -> tuple[int, int, int, int]:
    """Where a line stands: by size and name of its data, by its options, by its seed."""
    source = line["source"]
    options = json.dumps({key: line[key] for key in keys if key in line}, sort_keys=True)
    rank = list(PRESETS).index(source["name"]) if source["name"] in PRESETS else len(PRESETS)
    return int(source.get("agents", 0) > LARGE), rank, places.get(options, len(places)), line["seed"]


def device_type(name: str) -> str:
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


__all__ = ["BUDGETS", "EXPERIMENTS", "PAPER", "Cell", "asked_by", "find_methods", "plan", "read_results", "run_cell"]
