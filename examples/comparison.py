"""What the three examples share: write the data, train, score, compare with simpler methods, write the report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from ustad import Config, Dataset, Detector, EventSchema, Scores, open_data
from ustad.cli.lab.evaluate import EVENT_KEY, with_key
from ustad.files import write_json, write_table
from ustad.lab.baselines.protocol import make
from ustad.lab.evaluation.detection_metrics import evaluate
from ustad.page.report_file import write_report
from ustad.scoring.alerts import AlertRule

#: What USTAD is put beside: name of the method → how the table calls it.
OTHERS = {
    "random": "random",
    "visit-rate": "rate per entity",
    "pyod": "PyOD IForest",
    "pyod-ecod": "PyOD ECOD",
}
#: With `--paper`: the paper's network alone, small. Small batches, because a few hundred windows are only a few steps
#: otherwise; neighbours among the entity's own events, because an event of others is not strange in itself. Chosen on
#: other seeds than those that are reported.
PAPER = {
    "model.network": "dual",
    "scoring.knn_scope": "own",
    "scoring.neighbours": 10,
    "training.batch_size": 32,
    "training.epochs": 60,
}
SMALL = {"model.width": 16, "training.epochs": 2, "scoring.samples": 4}
FIGURES = ("auroc", "ap")
Simulator = Callable[[int, bool], tuple[pa.Table, pa.Table]]
Results = dict[str, dict[str, list[float]]]


def run_example(name: str, simulate: Simulator, window: dict[str, Any], about: str) -> None:
    """The whole way, once per seed. `simulate(seed, small)` gives events and labels; `window` is what the paper's
    network sees around an event. The last seed's model, scores and report stay in the output directory."""
    options = _options(name, about)
    schema = EventSchema.from_yaml(Path(__file__).with_name(f"{name}.yaml"))
    results: Results = {}
    for seed in range(options.seed, options.seed + options.seeds):
        events, labels = simulate(seed, options.small)
        write_table(events, options.out / "events.parquet")
        write_table(labels, options.out / "labels.parquet")
        data = open_data(options.out / "events.parquet", schema=schema)
        if options.paper:
            config = Config.preset("quick", seed=seed, **{**PAPER, **window, **(SMALL if options.small else {})})
            by_method = {"paper": figures_of(Detector(config, device="cpu").fit(data).score(data), labels, schema)}
        else:
            by_method = compare(data, labels, Config.preset("quick", seed=seed), options.out)
        for method, figures in by_method.items():
            for figure in FIGURES:
                results.setdefault(method, {f: [] for f in FIGURES})[figure].append(figures["events"][figure])
    write_json({"seeds": options.seeds, "small": options.small, "results": results}, options.out / "figures.json")
    show(results, name)
    if not options.paper:
        print(f"report: {options.out / 'report.html'}")


def compare(data: Dataset, labels: pa.Table, config: Config, out: Path) -> dict[str, Any]:
    """Figures by method on the data's test weeks; USTAD's model, scores and report are written to `out`."""
    detector = Detector(config, device="cpu").fit(data)
    detector.save(out / "model")
    found = {"ustad": detector.score(data, rule=AlertRule.choose(alerts_per_day=5.0))}
    for method in OTHERS:
        found[method] = make(method, data.schema, seed=config.seed).fit(data).score(data)
    figures = {method: figures_of(scores, labels, data.schema) for method, scores in found.items()}
    own = found["ustad"]
    others = {OTHERS[m]: f for m, f in figures.items() if m != "ustad"}
    own.run.update({"data": "../events.parquet", "model": "../model", "name": data.schema.name})
    own.run.update({"evaluation": figures["ustad"], "baselines": others})
    own.save(out / "scores")
    write_report(out / "scores", out / "report.html")
    return figures


def figures_of(scores: Scores, labels: pa.Table, schema: EventSchema) -> dict[str, Any]:
    """AUROC and average precision of events and entities."""
    event_id = schema.event_id or EVENT_KEY
    events, truth = with_key(scores.events, schema), with_key(labels, schema)
    return evaluate(events, scores.agents, truth, event_id=event_id, entity=schema.entity, bootstrap=0)


def show(results: Results, name: str) -> None:
    """The table of means over seeds, and where USTAD is not ahead."""
    table = Table("method", "AUROC", "AP", title=f"{name}: labelled events found, mean ± deviation over seeds")
    for method, figures in results.items():
        cells = [f"{np.mean(figures[f]):.3f} ± {np.std(figures[f]):.3f}" for f in FIGURES]
        table.add_row(OTHERS.get(method, method), *cells)
    console = Console()
    console.print(table)
    if "ustad" in results:
        for line in not_ahead(results) or ["USTAD is ahead of all of them in both figures."]:
            console.print(line)


def not_ahead(results: Results) -> list[str]:
    """A line for every method and figure that USTAD does not exceed on average."""
    return [
        f"USTAD is not ahead of {OTHERS[method]} in {figure.upper()}."
        for method, figures in results.items()
        for figure in FIGURES
        if method != "ustad" and np.mean(figures[figure]) >= np.mean(results["ustad"][figure])
    ]


def read_figures(path: Path) -> Results:
    """The figures that an example wrote."""
    return json.loads(path.read_text())["results"]


def _options(name: str, about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--out", type=Path, default=Path("runs/examples") / name, help="where everything goes")
    parser.add_argument("--seeds", type=int, default=3, help="how many data sets and models")
    parser.add_argument("--seed", type=int, default=1, help="the first of them")
    parser.add_argument("--small", action="store_true", help="tiny data and a tiny model: seconds, no meaning")
    parser.add_argument("--paper", action="store_true", help="the paper's network instead, without the comparison")
    return parser.parse_args()
