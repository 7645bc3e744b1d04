"""What the demo knows of its town: labels on the extracted stays, and how well they are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def label_stays(town: Path, data: Path) -> None:
    """Carry the labels of the true stays over to the extracted ones."""
    from ustad.lab.evaluation.recordings import carry_truth

    carry_truth(town, data, name="demo town")


def describe_loss(scores: Any, data: Path, town: Path, seed: int) -> str:
    """What is lost between people and their GPS: the most unusual incidents by habits, from GPS and from true stays."""
    from ustad.config import Config
    from ustad.dataset import load_directory
    from ustad.detector import Detector
    from ustad.lab.evaluation.gps import MOST_UNUSUAL, count_true
    from ustad.progress import silence

    stays, truth = load_directory(data), load_directory(town)
    with silence():
        detector = Detector(Config.preset("quick", seed=seed), device="cpu").fit(truth)
        from_truth = detector.score(truth)
    recording = stays.meta["recording"]
    return (
        f"True among the {MOST_UNUSUAL} most unusual incidents: {count_true(scores.events, stays.labels)} from GPS, "
        f"{count_true(from_truth.events, truth.labels)} from the stays as they were. Extraction finds "
        f"{recording['stays_found']:.0%} of them, in {recording['pieces']:.2f} pieces each."
    )


def judge(scores: Any, place: Path) -> dict[str, Any]:
    """Figures against the labels, kept in the run for the report."""
    from ustad.cli.lab.evaluate import evaluate_scores, with_figures
    from ustad.files import write_json

    figures = evaluate_scores(scores, None, baselines=True)
    write_json(with_figures(scores.run, figures), place / "scores" / "run.json")
    return figures
