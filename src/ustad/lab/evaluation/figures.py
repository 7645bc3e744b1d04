"""Figures from result lines: PNG, half as wide as a page, in colours that colour-blind people can tell apart.

In go the lines that `experiments.read_results` returns and a directory; out come files and their names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ustad.lab.evaluation.case_figures import case_figures
from ustad.lab.evaluation.comparison_figures import detection_figures, injection_figures, score_figures
from ustad.lab.evaluation.curve_figures import curve_figures
from ustad.lab.evaluation.drawing import Figure, plots
from ustad.lab.evaluation.epistemic_figures import epistemic_figures
from ustad.lab.evaluation.result_tables import Line, Results
from ustad.lab.evaluation.uncertainty_figures import uncertainty_figures

_RESOLUTION = 280
_MAKERS: dict[str, Callable[[list[Line]], list[Figure]]] = {
    "detection": detection_figures,
    "uncertainty": uncertainty_figures,
    "scores": score_figures,
    "injections": injection_figures,
    "epistemic": epistemic_figures,
}


def draw_all(results: Results, directory: Path) -> None:
    """Every figure the results allow."""
    plt = plots()
    directory.mkdir(parents=True, exist_ok=True)
    for figures in figures_by_experiment(results).values():
        for figure in figures:
            picture = figure.draw(plt)
            picture.savefig(directory / f"{figure.name}.png", dpi=_RESOLUTION, metadata={"Software": None})
            plt.close(picture)


def plan_figures(results: Results) -> dict[str, list[tuple[str, str]]]:
    """(file name without its ending, caption) of every figure by experiment; draws nothing."""
    return {name: [(f.name, f.caption) for f in figures] for name, figures in figures_by_experiment(results).items()}


def figures_by_experiment(results: Results) -> dict[str, list[Figure]]:
    """Every figure the results allow, not drawn yet."""
    figures = {name: make(results[name]) if results[name] else [] for name, make in _MAKERS.items()}
    figures["detection"] = [*curve_figures(results), *figures["detection"]]
    figures["cases"] = case_figures(results["cases"], results.get("cases of best", []))
    return figures
