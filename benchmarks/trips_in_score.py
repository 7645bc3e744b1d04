"""What it costs the preset `paper` to score the way to a stay, which the paper takes as an input alone.

One network a development seed, trained with trips; its events are scored with the two trip vectors among the terms of
the maximum, and without them as the preset has it.

python benchmarks/trips_in_score.py --seeds 101 102       an hour on a CPU; writes results/trips_in_score.json
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from marked_pages import RESULTS
from measured import write_result
from ustad.lab.baselines.deep import ask, in_rows
from ustad.lab.evaluation.ablated_scores import combine
from ustad.lab.evaluation.budgets import BUDGETS
from ustad.lab.evaluation.cells import figures, make_scores
from ustad.lab.evaluation.experiments import DEVELOPMENT_SEEDS
from ustad.lab.evaluation.fitted_models import TRIPS, FittedModels, detector_of
from ustad.lab.evaluation.sources import parse_source
from ustad.network.inference.paper_network import sample_queries
from ustad.scoring.calibration import Parts

LEVELS = ("events", "incidents", "agents")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=300, help="people of the simulated city")
    parser.add_argument("--share", type=float, default=0.1, help="of them anomalous, so that few people tell something")
    parser.add_argument("--seeds", type=int, nargs="+", default=[101], help="development seeds, from 101 on")
    parser.add_argument("--work", type=Path, default=Path("runs/trips-in-score"), help="where networks are kept")
    options = parser.parse_args()
    if min(options.seeds) <= DEVELOPMENT_SEEDS:
        parser.error(f"seeds up to {DEVELOPMENT_SEEDS} are reported of: give development seeds")
    runs = [measure(options.agents, options.share, seed, options.work) for seed in options.seeds]
    write_result(RESULTS / "trips_in_score.json", {"agents": options.agents, "share": options.share, "runs": runs})


def measure(agents: int, share: float, seed: int, work: Path) -> dict[str, Any]:
    """One network, scored both ways: AUROC and average precision by level."""
    source = parse_source(f"numosim-la:{agents}", None, seed, None, share=share)
    if source is None:
        raise SystemExit("numosim-la is simulated: it is always there")
    models = FittedModels(source, seed, BUDGETS["paper"], work, device="cpu")
    network = detector_of(models.fit_model(TRIPS)).paper().source
    events, before = models.period("test", TRIPS), models.period("before", TRIPS)
    questions = ask(network.encoder, events, before, network.config.window)
    samples, distance = sample_queries(network, questions.arrays, questions.queries)
    names = tuple(term.name for term in network.encoder.terms)
    terms_by_way = {"with trips": names, "without trips": tuple(name for name in names if not name.startswith("trip"))}
    scores = {
        way: in_rows(combine(Parts.of(terms, samples, distance), "loss_knn"), questions.row)
        for way, terms in terms_by_way.items()
    }
    result = {way: figures(models, make_scores(models, events, np.asarray(score))) for way, score in scores.items()}
    training = models.training[TRIPS]
    return {
        "seed": seed,
        "epochs": training["epochs"],
        "stopped": training["stopped"],
        **{
            way: {level: [figure[level]["auroc"], figure[level]["ap"]] for level in LEVELS}
            for way, figure in result.items()
        },
    }


if __name__ == "__main__":
    main()
