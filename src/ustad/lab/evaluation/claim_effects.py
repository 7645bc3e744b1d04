"""What the paper claims, as effects: signed numbers out of result lines, positive where they agree with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from ustad.events.encoder import UNKNOWN
from ustad.lab.evaluation.cells import NUMERIC
from ustad.lab.evaluation.result_tables import LEVELS, SCORES, TERMS, Line, Results, Steps, after, select_lines, sets
from ustad.lab.evaluation.standing import lead

PREDICTABLE = ("spatial", "temporal", "spatial_temporal")
NOVEL = ("swap", "permutation", "high_density")
TRAJECTORIES = ("ibat", "gm-vsae", "atrom")
NEARLY_ALL, WEAK, MONOTONE, NEAR_HALF = 0.95, 0.3, 0.9, 0.1
#: How much ln AU of a feature may change and still stay the same: in the paper's own table it changes by up to .35.
STAYS = 0.4
Effects = Iterator[float]


def _by_cell(lines: list[Line], key: str) -> dict[tuple[str, int], dict[Any, dict[str, Any]]]:
    """Results by data set and seed, then by the value of an option."""
    by_cell: dict[tuple[str, int], dict[Any, dict[str, Any]]] = {}
    for line in lines:
        if key in line:
            by_cell.setdefault((line["data"], line["seed"]), {})[line[key]] = line["result"]
    return by_cell


def _terms(result: dict[str, Any], is_rejected: bool = False) -> dict[str, dict[str, Any]]:
    return {row["term"]: row for row in result["rows"] if (row["rejected"] > 0) == is_rejected}


def _gain(worse: dict[str, dict[str, Any]], better: dict[str, dict[str, Any]]) -> Effects:
    """Relative gain of one set of predictions over another: errors of numbers, and errors of the kind of place."""
    for term in NUMERIC:
        if term in worse and term in better:
            yield 1 - better[term]["mae"] / worse[term]["mae"]
    if "poi" in worse and "poi" in better:
        yield (better["poi"]["accuracy"] - worse["poi"]["accuracy"]) / 100


def predicts_better(results: Results) -> Effects:
    for by_method in _by_cell(results["prediction"], "method").values():
        if {"dual-tr", "ustad-plain"} <= set(by_method):
            yield from _gain(_terms(by_method["dual-tr"]), _terms(by_method["ustad-plain"]))


def best_of_all(results: Results) -> Effects:
    """Against the best of the paper's other predictors, on the feature where that is worst for USTAD."""
    for by_method in _by_cell(results["prediction"], "method").values():
        others = [_terms(result) for method, result in by_method.items() if not method.startswith("ustad")]
        if others and "ustad-plain" in by_method:
            ours = _terms(by_method["ustad-plain"])
            yield min(min(_gain({t: other[t]}, ours), default=np.inf) for t in ours for other in others if t in other)


def rejecting_helps(results: Results) -> Effects:
    for line in select_lines(results["prediction"], method="ustad-plain"):
        yield from _gain(_terms(line["result"]), _terms(line["result"], True))


def certain_half_is_right(results: Results) -> Effects:
    for line in select_lines(results["uncertainty"], method="ustad-plain"):
        result = line["result"]
        if "poi" in result["curves"]:
            yield 1 - result["curves"]["poi"][result["kept"].index(0.5)] - NEARLY_ALL


def rejecting_by_its_own(results: Results) -> Effects:
    """Not the paper's: each feature sorted by its own uncertainty, the most uncertain twentieth left out."""
    for line in select_lines(results["uncertainty"], method="ustad-plain"):
        result = line["result"]
        at = result["kept"].index(0.95)
        for term, errors in result.get("own", {}).items():
            yield (errors[-1] - errors[at]) / (1 if term == "poi" else errors[-1])


def certain_half_by_entropy(results: Results) -> Effects:
    """Not the paper's: USTAD-EU, whose one uncertainty of a kind of place is the entropy."""
    for line in select_lines(results["uncertainty"], method="ustad-eu"):
        result = line["result"]
        if "poi" in result.get("own", {}):
            yield 1 - result["own"]["poi"][result["kept"].index(0.5)] - NEARLY_ALL


def eu_falls_with_accuracy(results: Results) -> Effects:
    for line in select_lines(results["uncertainty"], method="ustad-plain"):
        rows = [row for row in line["result"]["classes"] if row["n"] >= 20 and row["class"] != UNKNOWN]
        if len(rows) >= 3:
            yield -float(spearmanr([r["eu"] for r in rows], [r["accuracy"] for r in rows])[0])


def frequent_kinds_are_sure(results: Results) -> Effects:
    for line in select_lines(results["uncertainty"], method="ustad-plain"):
        rows = [row for row in line["result"]["classes"] if row["n"] >= 20 and row["class"] != UNKNOWN]
        if len(rows) >= 3:
            yield -float(spearmanr([r["n"] for r in rows], [r["eu"] for r in rows])[0])


def error_rises_with_what_is_kept(results: Results) -> Effects:
    """Of the feature whose error rises least steadily."""
    for line in select_lines(results["uncertainty"], method="ustad-plain"):
        result = line["result"]
        yield float(min(spearmanr(result["kept"], errors)[0] for errors in result["curves"].values())) - MONOTONE


def _variant_errors(results: Results, one: str, other: str, terms: tuple[str, ...]) -> Iterator[tuple[float, float]]:
    """Errors of two variants with everything kept."""
    for by_method in _by_cell(results["uncertainty"], "method").values():
        if {one, other} <= set(by_method):
            ours, theirs = (by_method[m]["curves"] for m in (one, other))
            yield from ((ours[t][-1], theirs[t][-1]) for t in terms if t in ours)


def au_helps_numbers(other: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        yield from (1 - au / bare for au, bare in _variant_errors(results, "ustad-au", other, NUMERIC))

    return effects


def eu_helps_categories(other: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        yield from (bare - eu for eu, bare in _variant_errors(results, "ustad-eu", other, ("poi",)))

    return effects


def _sizes(results: Results, steps: Steps) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    for by_weeks in _by_cell(after(results["uncertainty"], steps), "weeks").values():
        if {1, 3} <= set(by_weeks):
            few, many = by_weeks[1]["terms"], by_weeks[3]["terms"]
            terms = (t for t in TERMS if t in few and t in many)
            yield from ((few[t], many[t]) for t in terms if all(x[t][u] for x in (few, many) for u in ("au", "eu")))


def eu_falls_with_data(steps: Steps) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        yield from (float(np.log(few["eu"] / many["eu"])) for few, many in _sizes(results, steps))

    return effects


def au_stays(results: Results) -> Effects:
    """Of the feature whose AU changes most."""
    if changes := [abs(float(np.log(many["au"] / few["au"]))) for few, many in _sizes(results, "equal")]:
        yield STAYS - max(changes)


def au_changes_less(steps: Steps) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        for few, many in _sizes(results, steps):
            yield float(abs(np.log(many["eu"] / few["eu"])) - abs(np.log(many["au"] / few["au"])))

    return effects


def weak_overall(results: Results) -> Effects:
    yield from (WEAK - abs(line["result"]["pearson"]) for line in results["epistemic"])


def far_where_unsure(results: Results) -> Effects:
    for line in results["epistemic"]:
        yield line["result"]["median_high_eu"] / line["result"]["median_low_eu"] - 1


def _injection_scores(results: Results, kinds: tuple[str, ...], what: str = "auroc") -> Iterator[dict[str, float]]:
    for line in results["injections"]:
        if line["kind"] in kinds:
            yield {how: figures[what] for how, figures in line["result"]["scores"].items()}


def eu_fails_on_novel(results: Results) -> Effects:
    yield from (a["knn"] - a["eu"] for a in _injection_scores(results, NOVEL))


def predictable_have_more_loss(results: Results) -> Effects:
    for line in select_lines(results["injections"], kind="all"):
        boxes = {kind: box["loss"][2] for kind, box in line["result"].get("boxes", {}).items()}
        if {*PREDICTABLE, *NOVEL} <= set(boxes):
            near, far = (np.mean([boxes[kind] for kind in kinds]) for kinds in (PREDICTABLE, NOVEL))
            yield float(near / far - 1)


def _score_pairs(results: Results, level: str, what: str) -> Iterator[dict[str, float]]:
    for line in results["scores"]:
        areas = {how: line["result"][how].get(level, {}).get(what) for how in SCORES if how in line["result"]}
        if all(value is not None for value in areas.values()):
            yield areas


def loss_beats_error(level: str, what: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        yield from (a["loss"] - a["pe"] for a in _score_pairs(results, level, what))

    return effects


def most_for_agents(results: Results) -> Effects:
    for line in results["scores"]:
        result = line["result"]
        if all(level in result["loss"] for level in LEVELS):
            gains = [result["loss"][level]["auroc"] - result["pe"][level]["auroc"] for level in LEVELS]
            yield gains[1] - gains[0]


def loss_finds_predictable(results: Results) -> Effects:
    yield from (a["loss"] - a["knn"] for a in _injection_scores(results, PREDICTABLE))


def distance_finds_novel(results: Results) -> Effects:
    for by_kind in _by_cell(results["injections"], "kind").values():
        if set(PREDICTABLE) | set(NOVEL) <= set(by_kind):
            near = np.mean([by_kind[k]["scores"]["knn"]["auroc"] for k in PREDICTABLE])
            yield from (by_kind[k]["scores"]["knn"]["auroc"] - float(near) for k in NOVEL)


def both_beats(other: str, what: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        for level in LEVELS:
            yield from (a["loss_knn"] - a[other] for a in _score_pairs(results, level, what))

    return effects


def both_is_best_injected(what: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        yield from (
            a["loss_knn"] - max(a["loss"], a["knn"], a["eu"]) for a in _injection_scores(results, ("all",), what)
        )

    return effects


def ahead_of_deep(results: Results) -> Effects:
    lines = results["detection"]
    for data in sets(lines):
        for level in LEVELS:
            margin = lead(lines, data, level)
            if margin is not None and margin[1] > 0:  # one seed has no spread to be ahead by
                yield margin[0] - margin[1]


def ahead_of_nov_online(results: Results) -> Effects:
    for by_method in _by_cell(results["detection"], "method").values():
        if {"ustad-plain", "nov-online"} <= set(by_method):
            ours, theirs = by_method["ustad-plain"], by_method["nov-online"]
            yield from (ours[v]["auroc"] - theirs[v]["auroc"] for v in LEVELS if v in ours and v in theirs)


def trajectories_say_little(results: Results) -> Effects:
    for by_method in _by_cell(results["detection"], "method").values():
        areas = [by_method[m]["agents"]["auroc"] for m in TRAJECTORIES if m in by_method]
        yield from (NEAR_HALF - abs(area - 0.5) for area in areas)
