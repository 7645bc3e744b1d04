"""Public benchmarks from their files as published: what is taken of them, and which experiment each is for.

In go a benchmark's name and the directory its files were unpacked into; out comes a `Source` that the experiments run
on. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from ustad.config import ConfigError
from ustad.dataset import Dataset, load_directory, save_directory
from ustad.lab.evaluation.experiments import find_methods
from ustad.lab.evaluation.sources import Source, at_path, name_content, parse_source
from ustad.lab.red_team.agent_labels import anomalous_agents
from ustad.mobility.extraction import extract
from ustad.mobility.readers import open_data
from ustad.tables import DataError, agent_codes

#: Days of a recording of years that a benchmark is made of: the paper's eight weeks.
SPAN = 56


@dataclass(frozen=True)
class Benchmark:
    """What is measured, how a table calls the data, how the files become a source, and whether `agents` of it can be
    chosen. `methods` are compared where nobody names any; none: all that the experiment has."""

    experiment: str
    title: str
    prepare: Callable[[Path, Path, int | None, int], Source]
    methods: tuple[str, ...] = ()
    chooses_agents: bool = False


def prepare_numosim(directory: Path, keep: Path, agents: int | None, seed: int) -> Source:
    """All anomalous agents and, with `agents`, others at random up to so many, as the paper's extract has them."""
    data = open_data(directory)
    if data.labels is None or not pc.any(data.labels["anomaly"]).as_py():
        raise DataError(f"{directory}: no anomalies are labelled; it needs stay_points_test_anomalous.parquet")
    if agents is not None:
        data = data.only(choose_agents(data, agents, seed))
    place = keep / f"numosim-{agents or 'all'}-{seed}"
    save_directory(replace(data, meta={**data.meta, "name": "numosim"}), place)
    return at_path("numosim", place)


def choose_agents(data: Dataset, agents: int, seed: int) -> list[object]:
    """The labelled agents, and as many others as make up the number."""
    everybody = pc.unique(data.events["agent_id"]).to_pylist()
    labelled_agents = set(anomalous_agents(data))
    others = [agent for agent in everybody if agent not in labelled_agents]
    order = np.random.default_rng(seed).permutation(len(others))[: max(0, agents - len(labelled_agents))]
    return [*(agent for agent in everybody if agent in labelled_agents), *(others[i] for i in order)]


def prepare_urban(directory: Path, keep: Path, agents: int | None, seed: int) -> Source:
    """Urban Patterns of Life: fixes of train and test weeks, check-ins, and labels by agent."""
    source = parse_source(f"pol_atl={directory}", None, seed, None, share=None)
    if source is None:
        raise DataError(f"{directory}: needs pol_atl_gps_train.parquet and pol_atl_gps_test.parquet")
    return source


def prepare_geolife(directory: Path, keep: Path, agents: int | None, seed: int) -> Source:
    """GeoLife's tracks as stays, of the eight weeks that most people recorded; the injections come later."""
    if not directory.exists():
        raise DataError(f"{directory}: there is no such directory; give the one that holds GeoLife's people")
    place, cut = keep / f"geolife-stays-{name_content(directory)}", keep / "geolife"
    if not (place / "meta.json").exists():
        extract([directory], place, timezone="Asia/Shanghai", on_error="skip")
    data = load_directory(place)
    first = busiest_days(data, SPAN)
    events = data.between(first, first + SPAN - 1)
    part = replace(data.only(pc.unique(events["agent_id"]).to_pylist()), events=events)
    save_directory(replace(part, meta={**data.meta, "name": "geolife"}), cut)
    return at_path("geolife", cut)


def busiest_days(data: Dataset, span: int) -> int:
    """The first day of the span with the most days of people: their number counts, not how often they moved."""
    days = data.days()
    people = agent_codes(data.events["agent_id"])[0]
    pairs = np.unique(np.stack([days, people]), axis=1)[0]
    counts = np.bincount(pairs - pairs.min())
    sums = np.convolve(counts, np.ones(min(span, len(counts)), np.int64), mode="valid")
    return int(pairs.min() + sums.argmax())


#: What is compared where anomalies are labelled, unless somebody names methods.
USUAL_METHODS = (
    "visit-rate",
    "distance",
    "transformer",
    "sensitive-hue",
    "ustad-plain",
    "ustad-quick",
    "ustad-default",
)
BENCHMARKS = {
    "numosim": Benchmark("detection", "NUMOSIM-LA as published", prepare_numosim, USUAL_METHODS, chooses_agents=True),
    "urban-anomalies": Benchmark("detection", "Urban Patterns of Life, Atlanta", prepare_urban, USUAL_METHODS),
    "geolife": Benchmark("injections", "GeoLife with the paper's six injections", prepare_geolife),
}


def check_agents(name: str, agents: int | None) -> None:
    """Refuse a number of agents where everybody is taken."""
    if agents is not None and not BENCHMARKS[name].chooses_agents:
        able = " and ".join(other for other, benchmark in BENCHMARKS.items() if benchmark.chooses_agents)
        raise ConfigError(f"--agents {agents}: {name} takes everybody; leave the option out (it is for {able})")


def choose_methods(name: str, text: str | None) -> list[str]:
    """The methods of a list with commas between, in that order; those of the benchmark where there is no list."""
    choices = find_methods(BENCHMARKS[name].experiment)
    methods = list(BENCHMARKS[name].methods or choices) if text is None else [word.strip() for word in text.split(",")]
    for method in methods:
        if method not in choices:
            raise ConfigError(
                f"--methods: {name} has no '{method}'; choose among {', '.join(choices)}, or leave the option out"
            )
    return methods
