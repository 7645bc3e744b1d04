"""The preset `default` beside the paper's score, visit rate, and itself with every part left out once.

    python benchmarks/default.py                                   small, without networks
    python benchmarks/default.py --agents 2000 --seeds 5 --networks DIRECTORY
    python benchmarks/default.py --agents 200 --seeds 7 --first-seed 101        development seeds

Simulates numosim-la for every seed, learns from its first weeks, scores the last four; the harder red teams (near,
odd hours, skipped, long stays) meet the same people, so the same model scores them. `--networks` is where
`benchmarks/networks.py` wrote what the memory network and the preset `paper` say of the same events. Labels are read
only here. Prints AUROC / average precision of events and agents, mean ± standard deviation over seeds, and writes
benchmarks/results/default.json (default-without-network.json without networks, development.json for development seeds).
`--merge FILES` puts runs of single seeds and red teams together instead.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import ustad
from default_data import DEVELOPMENT_SEED, FIRST_SEED, HARD, Parts, StoredTerms, fingerprint, simulated
from measured import write_result
from ustad import progress
from ustad.habits.questions import TERMS
from ustad.judges import learn_from
from ustad.lab.baselines import make
from ustad.lab.evaluation.detection_metrics import auroc, average_precision
from ustad.lessons import calibrating
from ustad.network.inference.memory_terms import RAW
from ustad.schema import mobility_schema
from ustad.scoring.adding_judge import AddingJudge, Judgement
from ustad.scoring.entity_tests import combine_tests, top_mean

RESULTS = Path(__file__).parent / "results"
TARGETS = {"events": (0.95, 0.25), "agents": (0.90, 0.35)}
Measures = dict[str, list[float]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--networks", type=Path, help="where benchmarks/networks.py wrote; without: habits alone")
    parser.add_argument("--variants", default=",".join(("standard", *HARD)), help="red teams")
    parser.add_argument("--merge", type=Path, nargs="+", help="result files of other seeds to put into one")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


# ---------------------------------------------------------------------------------------------- measures
def measured(parts: Parts, events: np.ndarray, agents: np.ndarray, ids: np.ndarray) -> Measures:
    """AUROC and AP of events and agents, and the same for recurring and one-off anomalies apart."""
    anomalous = np.array([i in parts.agents for i in ids])
    recurring = np.array([bool(parts.agents.get(i, False)) for i in ids])
    found: Measures = {}
    for name, rows, owners in (
        ("all", np.ones(len(parts.truth), bool), np.ones(len(ids), bool)),
        ("recurring", ~parts.truth | parts.recurring, ~anomalous | recurring),
        ("one-off", ~parts.truth | ~parts.recurring, ~anomalous | ~recurring),
    ):
        event = _both(parts.truth[rows], events[rows])
        found[name] = [*event, *_both(anomalous[owners], agents[owners])]
    return found


def _both(truth: np.ndarray, score: np.ndarray) -> list[float]:
    if truth.all() or not truth.any():
        return [float("nan")] * 2
    return [auroc(truth, score), average_precision(truth, score)]


# ---------------------------------------------------------------------------------------------- networks
@dataclass(frozen=True)
class Stored:
    """What the networks said of one seed, checked against the events it is used for."""

    memory: Mapping[str, np.ndarray]
    paper: Mapping[str, np.ndarray] | None

    @classmethod
    def read(cls, directory: Path, seed: int) -> Stored:
        paper = directory / f"paper-{seed}.npz"
        with np.load(directory / f"memory-{seed}.npz") as file:
            memory = dict(file)
        return cls(memory, dict(np.load(paper)) if paper.exists() else None)

    def facts(self) -> dict[str, Any]:
        held = {"memory": self.memory, "paper": self.paper}
        return {name: json.loads(str(file["facts"])) for name, file in held.items() if file is not None}

    def past(self, standard: Parts) -> Callable[..., dict[str, np.ndarray]] | None:
        """The terms of the standard red team with windows that show nothing later than the event, where they are."""
        if "validation_past.fingerprint" not in self.memory:
            return None
        held = {}
        for name, table in (("validation_past", standard.validation), ("standard_past", standard.test)):
            _check(self.memory, name, table)
            held[fingerprint(table)] = {n: self.memory[f"{name}.{n}"] for n in RAW}
        return lambda habits, events, before: held[fingerprint(events)]

    def extra(self, standard: Parts, other: Parts, variant: str) -> Callable[..., dict[str, np.ndarray]]:
        """The memory network's terms of the validation week and of one red team's test weeks."""
        _check(self.memory, "validation", standard.validation)
        _check(self.memory, "standard", standard.test)
        held = {fingerprint(standard.validation): {n: self.memory[f"validation.{n}"] for n in RAW}}
        held[fingerprint(other.test)] = {n: self._terms(n, standard, other, variant) for n in RAW}
        return lambda habits, events, before: held[fingerprint(events)]

    def _terms(self, name: str, standard: Parts, other: Parts, variant: str) -> np.ndarray:
        """Agents whose weeks are the standard ones have the standard answers."""
        if variant == "standard":
            return self.memory[f"standard.{name}"]
        _check(self.memory, variant, other.test)
        place = {key: k for k, key in enumerate(zip(*_row_keys(standard.test), strict=True))}
        rows = self.memory[f"{variant}.rows"]
        changed = np.zeros(other.test.num_rows, bool)
        changed[rows] = True
        known = self.memory[f"standard.{name}"]
        values = np.empty(other.test.num_rows, np.float32)
        keys = list(zip(*_row_keys(other.test), strict=True))
        values[~changed] = known[[place[keys[i]] for i in np.flatnonzero(~changed)]]
        if len(rows):
            values[rows] = self.memory[f"{variant}.{name}"]
        return values

    def paper_measures(self, other: Parts, variant: str) -> Measures | None:
        if self.paper is None:
            return None
        _check(self.paper, variant, other.test)
        held = (self.paper[f"{variant}.{name}"] for name in ("events", "agents", "agent_ids"))
        return measured(other, *held)


def _row_keys(table: pa.Table) -> tuple[list[int], list[int]]:
    return table["agent_id"].to_pylist(), table["started_at"].cast(pa.int64()).to_pylist()


def _check(stored: Mapping[str, np.ndarray], name: str, table: pa.Table) -> None:
    if str(stored.get(f"{name}.fingerprint")) != fingerprint(table):
        raise SystemExit(f"what the networks said is about other {name} stays; run benchmarks/networks.py again")


# ----------------------------------------------------------------------------------------------- methods
class Ours:
    """The default on the data sets of one seed, whole and with parts left out."""

    def __init__(self, standard: Parts, stored: Stored | None) -> None:
        self.standard, self.stored = standard, stored
        self.chosen = calibrating(standard.validation, "agent_id")

    def fitted(self, other: Parts, variant: str, network: bool = True, **options: Any) -> AddingJudge:
        extra = self.stored.extra(self.standard, other, variant) if self.stored is not None and network else None
        extra = options.pop("extra", extra)
        train, validation = self.standard.train, self.standard.validation
        others = (StoredTerms(extra),) if extra is not None else ()
        return learn_from(train, validation, mobility_schema(), self.chosen, others=others, **options)

    def ask(
        self, model: AddingJudge, other: Parts, agents: Callable[[Judgement], np.ndarray] | None = None
    ) -> tuple[Judgement, Measures]:
        judged = model.judge(other.test, context=other.before)
        return judged, self.scored(judged, other, agents)

    @staticmethod
    def scored(judged: Judgement, other: Parts, agents: Callable[[Judgement], np.ndarray] | None = None) -> Measures:
        return measured(
            other, judged.score, agents(judged) if agents is not None else judged.agent_score, judged.entity_ids
        )

    def few(self, other: Parts, variant: str) -> tuple[AddingJudge, Judgement, dict[str, Measures]]:
        """The default, and what changes in how its events are read."""
        whole = self.fitted(other, variant)
        judged, found = self.ask(whole, other)
        return (
            whole,
            judged,
            {
                "default": found,
                "agents by their maximum": self.scored(judged, other, _highest),
                "agents by their top 3 alone": self.scored(judged, other, lambda j: j.agents["top"]),
            },
        )

    def every_part(self, other: Parts, variant: str) -> dict[str, Measures]:
        """All of that, counts over the whole period, and every part left out once."""
        _, judged, table = self.few(other, variant)
        for test in judged.agents:
            table[f"without the test {test}"] = self.scored(judged, other, partial(_without_test, test))
        table["counts over the whole period"] = self.ask(self.fitted(other, variant, counting="whole"), other)[1]
        for term in (*TERMS, *(RAW if self.stored is not None else ())):
            table[f"without {term}"] = self.ask(self.fitted(other, variant, without=(term,)), other)[1]
        if self.stored is not None:
            table["without the memory network"] = self.ask(self.fitted(other, variant, network=False), other)[1]
            alone = self.fitted(other, variant, without=tuple(TERMS))
            table["memory network alone"] = self.ask(alone, other)[1]
            past = self.stored.past(self.standard) if variant == "standard" else None
            if past is not None:
                table["windows of the past"] = self.ask(self.fitted(other, variant, extra=past), other)[1]
        return table


def _highest(judged: Judgement) -> np.ndarray:
    return top_mean(judged.score, judged.entity, len(judged.entity_ids), (1.0,))


def _without_test(test: str, judged: Judgement) -> np.ndarray:
    return combine_tests({name: values for name, values in judged.agents.items() if name != test})


def visit_rates(standard: Parts, other: Parts) -> dict[str, Measures]:
    found = {}
    for shown, name in {"visit rate": "visit-rate", "visit rate, causal": "visit-rate-causal"}.items():
        scores = make(name).fit(standard.train, standard.validation).score(other.test)
        place = {i: k for k, i in enumerate(scores.events["stay_id"].to_pylist())}
        order = np.array([place[i] for i in other.test["stay_id"].to_pylist()])
        agents = scores.agents
        events = scores.events["score"].to_numpy()[order]
        found[shown] = measured(other, events, agents["score"].to_numpy(), agents["agent_id"].to_numpy())
    return found


# ----------------------------------------------------------------------------------------------- running
def main() -> None:
    options = arguments()
    progress.disable()
    if options.merge:
        merge(options.merge, options.out / "default.json")
        return
    began = time.monotonic()
    table: dict[str, dict[str, list[Measures]]] = {}
    facts = {}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        standard = simulated(options.agents, seed)
        stored = Stored.read(options.networks, seed) if options.networks is not None else None
        facts[seed] = stored.facts() if stored is not None else None
        ours = Ours(standard, stored)
        for variant in options.variants.split(","):
            other = standard if variant == "standard" else simulated(options.agents, seed, variant)
            found = ours.every_part(other, variant)
            found |= visit_rates(standard, other)
            paper = stored.paper_measures(other, variant) if stored is not None else None
            found |= {"paper": paper} if paper is not None else {}
            for method, measures in found.items():
                table.setdefault(variant, {}).setdefault(method, []).append(measures)
            print(f"seed {seed}, {variant}: {_cell(np.array([found['default']['all']]))}", flush=True)
    show(table)
    write(table, facts, options, time.monotonic() - began)


def merge(paths: list[Path], to: Path) -> None:
    """The tables of several seeds in one; what the runs have in common is taken from the first."""
    files = [json.loads(path.read_text()) for path in paths]
    table: dict[str, dict[str, list[Measures]]] = {}
    for file in files:
        for variant, methods in file["table"].items():
            for method, runs in methods.items():
                table.setdefault(variant, {}).setdefault(method, []).extend(runs)
    networks = {seed: facts for file in files for seed, facts in file["networks"].items()}
    seeds = {"agents": files[0]["options"]["agents"], "seeds": sorted(int(seed) for seed in networks)}
    show(table)
    to.write_text(json.dumps({**files[0], "options": seeds, "table": table, "networks": networks}, indent=1) + "\n")


def show(table: dict[str, dict[str, list[Measures]]]) -> None:
    for variant, methods in table.items():
        print(f"\n{variant}: AUROC / AP of events | agents; recurring; one-off", flush=True)
        for method, runs in methods.items():
            cells = [_cell(np.array([run[group] for run in runs])) for group in ("all", "recurring", "one-off")]
            print(f"  {method:32s} {'   '.join(cells)}")


def _cell(values: np.ndarray) -> str:
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=min(1, len(values) - 1))
    shown = [f"{m:.3f}" + (f"±{s:.3f}" if len(values) > 1 else "") for m, s in zip(mean, spread, strict=True)]
    return f"{shown[0]} / {shown[1]} | {shown[2]} / {shown[3]}"


def write(table: Any, facts: dict[int, Any], options: argparse.Namespace, seconds: float) -> None:
    content = {
        "options": {"agents": options.agents, "seeds": [int(seed) for seed in facts]},
        "columns": ["event AUROC", "event AP", "agent AUROC", "agent AP"],
        "targets": TARGETS,
        "table": table,
        "networks": facts,
        "seconds": round(seconds, 1),
        "versions": {"ustad": ustad.__version__, "numpy": np.__version__, "python": platform.python_version()},
        "cores": os.cpu_count(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{file_name(options)}.json"
    write_result(path, content)
    print(f"\nwrote {path.name} after {seconds:.0f} s")


def file_name(options: argparse.Namespace) -> str:
    """Development seeds have a file of their own, so that they never stand where reported seeds are read."""
    if options.first_seed >= DEVELOPMENT_SEED:
        return "development" if options.networks is None else "development-with-network"
    return "default" if options.networks is not None else "default-without-network"


if __name__ == "__main__":
    main()
