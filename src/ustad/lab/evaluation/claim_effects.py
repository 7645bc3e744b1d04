"""What the paper claims, as effects: signed numbers out of result lines, positive where they agree with it.

Each effect has the name of the part that it is of: a feature, a kind of injection, a level, a method; an empty name
where the claim has no parts. Injections are judged by changed stays alone, without the stays beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from ustad.events.encoder import UNKNOWN
from ustad.lab.evaluation.cells import NUMERIC
from ustad.lab.evaluation.result_tables import (
    ENOUGH,
    KIND_NAMES,
    LEVELS,
    NAMES,
    SCORES,
    TERMS,
    Line,
    Results,
    Steps,
    after,
    of_same_people,
    select_lines,
    sets,
)
from ustad.lab.evaluation.standing import count_wins, lead

PREDICTABLE = ("spatial", "temporal", "spatial_temporal")
NOVEL = ("swap", "permutation", "high_density")
TRAJECTORIES = ("ibat", "gm-vsae", "atrom")
#: The methods that the paper compares predictions with.
OTHER_PREDICTORS = ("mlp", "lstm", "transformer", "lightpath", "dual-tr")
#: Where the median stands among the five numbers of a box.
MEDIAN = 2
NEARLY_ALL, WEAK, MONOTONE, NEAR_HALF = 0.95, 0.3, 0.9, 0.1
#: How much ln AU of a feature may change and still stay the same: in the paper's own table it changes by up to .35.
STAYS = 0.4
Effects = Iterator[tuple[str, float]]


def _by_cell(lines: list[Line], key: str) -> dict[tuple[str, int], dict[Any, dict[str, Any]]]:
    """Results by data set and seed, then by the value of an option."""
    by_cell: dict[tuple[str, int], dict[Any, dict[str, Any]]] = {}
    for line in lines:
        if key in line:
            by_cell.setdefault((line["data"], line["seed"]), {})[line[key]] = line["result"]
    return by_cell


def _terms(result: dict[str, Any], is_rejected: bool = False) -> dict[str, dict[str, Any]]:
    return {row["term"]: row for row in result["rows"] if (row["rejected"] > 0) == is_rejected}


def _name(term: str) -> str:
    """A feature's name without its unit."""
    return TERMS[term].split(" (")[0]


def _gain(worse: dict[str, dict[str, Any]], better: dict[str, dict[str, Any]]) -> Effects:
    """Relative gain of one set of predictions over another: in the mean error of numbers, and in the share of kinds of
    place that are wrong."""
    for term in NUMERIC:
        if term in worse and term in better:
            yield _name(term), 1 - better[term]["mae"] / worse[term]["mae"]
    if "poi" in worse and "poi" in better:
        wrong = 100 - worse["poi"]["accuracy"]
        yield _name("poi"), (better["poi"]["accuracy"] - worse["poi"]["accuracy"]) / wrong


def predicts_better(results: Results) -> Effects:
    for by_method in _by_cell(results["prediction"], "method").values():
        if {"dual-tr", "ustad-plain"} <= set(by_method):
            yield from _gain(_terms(by_method["dual-tr"]), _terms(by_method["ustad-plain"]))


def best_of_all(results: Results) -> Effects:
    """Against the best of the paper's other predictors, where all were run, on the feature that is worst for USTAD."""
    for by_method in _by_cell(results["prediction"], "method").values():
        if {*OTHER_PREDICTORS, "ustad-plain"} <= set(by_method):
            ours = _terms(by_method["ustad-plain"])
            gains = [gain for m in OTHER_PREDICTORS for _, gain in _gain(_terms(by_method[m]), ours)]
            yield "", min(gains)


def rejecting_helps(results: Results) -> Effects:
    for line in select_lines(results["prediction"], method="ustad-plain"):
        yield from _gain(_terms(line["result"]), _terms(line["result"], True))


def certain_half_is_right(results: Results) -> Effects:
    for line in select_lines(results["uncertainty"], method="ustad-plain"):
        result = line["result"]
        if "poi" in result["curves"]:
            yield "", 1 - result["curves"]["poi"][result["kept"].index(0.5)] - NEARLY_ALL


def rejecting_by_its_own(results: Results) -> Effects:
    """Not the paper's: each feature sorted by its own uncertainty, the most uncertain twentieth left out."""
    for line in select_lines(results["uncertainty"], method="ustad-plain"):
        result = line["result"]
        at = result["kept"].index(0.95)
        for term, errors in result.get("own", {}).items():
            yield _name(term), 1 - errors[at] / errors[-1]


def certain_half_by_entropy(results: Results) -> Effects:
    """Not the paper's: USTAD-EU, whose one uncertainty of a kind of place is the entropy."""
    for line in select_lines(results["uncertainty"], method="ustad-eu"):
        result = line["result"]
        if "poi" in result.get("own", {}):
            yield "", 1 - result["own"]["poi"][result["kept"].index(0.5)] - NEARLY_ALL


def _correlate_kinds(results: Results, one: str, other: str) -> Effects:
    """Minus the rank correlation of two figures over kinds of place with 20 events or more."""
    for line in select_lines(results["uncertainty"], method="ustad-plain"):
        rows = [row for row in line["result"]["classes"] if row["n"] >= 20 and row["class"] != UNKNOWN]
        if len(rows) >= 3:
            yield "", -float(spearmanr([row[one] for row in rows], [row[other] for row in rows])[0])


def eu_falls_with_accuracy(results: Results) -> Effects:
    yield from _correlate_kinds(results, "eu", "accuracy")


def frequent_kinds_are_sure(results: Results) -> Effects:
    yield from _correlate_kinds(results, "n", "eu")


def error_rises_with_what_is_kept(results: Results) -> Effects:
    """Of the feature whose error rises least steadily."""
    for line in select_lines(results["uncertainty"], method="ustad-plain"):
        result = line["result"]
        yield "", float(min(spearmanr(result["kept"], errors)[0] for errors in result["curves"].values())) - MONOTONE


def _variant_errors(
    results: Results, one: str, other: str, terms: tuple[str, ...]
) -> Iterator[tuple[str, float, float]]:
    """Features with the errors of two variants, everything kept."""
    for by_method in _by_cell(results["uncertainty"], "method").values():
        if {one, other} <= set(by_method):
            ours, theirs = (by_method[m]["curves"] for m in (one, other))
            yield from ((_name(t), ours[t][-1], theirs[t][-1]) for t in terms if t in ours)


def au_helps_numbers(other: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        yield from ((name, 1 - au / bare) for name, au, bare in _variant_errors(results, "ustad-au", other, NUMERIC))

    return effects


def eu_helps_categories(other: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        yield from (("", bare - eu) for _, eu, bare in _variant_errors(results, "ustad-eu", other, ("poi",)))

    return effects


def _changes(results: Results, steps: Steps, what: str) -> Effects:
    """Features with the change of ln AU or ln EU from one week of training to three."""
    for by_weeks in _by_cell(after(results["uncertainty"], steps), "weeks").values():
        if {1, 3} <= set(by_weeks):
            few, many = by_weeks[1]["terms"], by_weeks[3]["terms"]
            terms = [t for t in TERMS if t in few and t in many]
            terms = [t for t in terms if all(x[t][u] for x in (few, many) for u in ("au", "eu"))]
            yield from ((_name(t), float(np.log(many[t][what] / few[t][what]))) for t in terms)


def eu_falls_with_data(steps: Steps) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        yield from ((name, -change) for name, change in _changes(results, steps, "eu"))

    return effects


def au_stays(results: Results) -> Effects:
    """Of the feature whose AU changes most."""
    if changes := [abs(change) for _, change in _changes(results, "equal", "au")]:
        yield "", STAYS - max(changes)


def au_changes_less(steps: Steps) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        pairs = zip(_changes(results, steps, "eu"), _changes(results, steps, "au"), strict=True)
        yield from ((name, abs(eu) - abs(au)) for (name, eu), (_, au) in pairs)

    return effects


def weak_overall(results: Results) -> Effects:
    yield from (("", WEAK - abs(line["result"]["pearson"])) for line in results["epistemic"])


def far_where_unsure(results: Results) -> Effects:
    for line in results["epistemic"]:
        yield "", line["result"]["median_high_eu"] / line["result"]["median_low_eu"] - 1


def _of_changed_stays(results: Results, what: str = "auroc") -> Iterator[dict[str, dict[str, float]]]:
    """A figure of every score, by kind of injection, of changed stays alone: one for each data set and seed."""
    for by_kind in _by_cell(results["injections"], "kind").values():
        yield {
            kind: {how: figures[what] for how, figures in result["changed"]["scores"].items()}
            for kind, result in by_kind.items()
            if "changed" in result
        }


def _difference(results: Results, kinds: tuple[str, ...], one: str, other: str) -> Effects:
    for areas in _of_changed_stays(results):
        yield from ((KIND_NAMES[kind], areas[kind][one] - areas[kind][other]) for kind in kinds if kind in areas)


def _ahead_of_the_best(results: Results, how: str, kinds: tuple[str, ...], others: tuple[str, ...]) -> Effects:
    """By how much a score finds each of some kinds better than the one that it finds best of the other kinds."""
    for areas in _of_changed_stays(results):
        if {*kinds, *others} <= set(areas):
            best = max(areas[kind][how] for kind in others)
            yield from ((KIND_NAMES[kind], areas[kind][how] - best) for kind in kinds)


def eu_fails_on_novel(results: Results) -> Effects:
    yield from _difference(results, NOVEL, "knn", "eu")


def loss_finds_predictable(results: Results) -> Effects:
    yield from _difference(results, PREDICTABLE, "loss", "knn")


def predictable_have_more_loss(results: Results) -> Effects:
    """By the medians of boxes of changed stays, of all kinds together so that one scale holds for all."""
    for line in select_lines(results["injections"], kind="all"):
        boxes = line["result"].get("boxes", {})
        if "boxes_without" in line["result"] and {*PREDICTABLE, *NOVEL, "normal"} <= set(boxes):
            medians = {kind: box["loss"][MEDIAN] for kind, box in boxes.items()}
            if min(medians.values()) > 0:
                most = max(medians[kind] for kind in (*NOVEL, "normal"))
                yield from ((KIND_NAMES[kind], float(np.log(medians[kind] / most))) for kind in PREDICTABLE)


def loss_is_highest_on_predictable(results: Results) -> Effects:
    yield from _ahead_of_the_best(results, "loss", PREDICTABLE, NOVEL)


def distance_finds_novel(results: Results) -> Effects:
    yield from _ahead_of_the_best(results, "knn", NOVEL, PREDICTABLE)


def distance_finds_recurring(results: Results) -> Effects:
    for line in results["scores"]:
        events = line["result"].get("knn", {}).get("events", {})
        if {"recurring", "non-recurring"} <= set(events):
            yield "", events["recurring"]["auroc"] - events["non-recurring"]["auroc"]


def _score_pairs(results: Results, level: str, what: str) -> Iterator[dict[str, float]]:
    for line in results["scores"]:
        areas = {how: line["result"][how].get(level, {}).get(what) for how in SCORES if how in line["result"]}
        if all(value is not None for value in areas.values()):
            yield areas


def loss_beats_error(level: str, what: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        yield from (("", a["loss"] - a["pe"]) for a in _score_pairs(results, level, what))

    return effects


def most_for_agents(results: Results) -> Effects:
    for line in results["scores"]:
        result = line["result"]
        if all(level in result["loss"] for level in LEVELS):
            gains = [result["loss"][level]["auroc"] - result["pe"][level]["auroc"] for level in LEVELS]
            yield "", gains[1] - gains[0]


def both_beats(other: str, what: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        for level in LEVELS:
            yield from ((level, a["loss_knn"] - a[other]) for a in _score_pairs(results, level, what))

    return effects


def both_is_best_injected(what: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        for areas in _of_changed_stays(results, what):
            if a := areas.get("all"):
                yield "", a["loss_knn"] - max(a["loss"], a["knn"], a["eu"])

    return effects


def ahead_of_deep(what: str) -> Callable[[Results], Effects]:
    """By how much more than the spread, on data where it and the best deep baseline have enough data sets in common."""

    def effects(results: Results) -> Effects:
        lines = results["detection"]
        for data in sets(lines):
            own = of_same_people(lines, data)
            for level in LEVELS:
                margin, (_, n) = lead(own, data, level, what), count_wins(own, data, level, what)
                if margin is not None and n >= ENOUGH:
                    yield level, margin[0] - margin[1]

    return effects


def ahead_of_nov_online(results: Results) -> Effects:
    for by_method in _by_cell(select_lines(results["detection"], window="day"), "method").values():
        if {"ustad-plain", "nov-online"} <= set(by_method):
            ours, theirs = by_method["ustad-plain"], by_method["nov-online"]
            yield from ((v, ours[v]["auroc"] - theirs[v]["auroc"]) for v in LEVELS if v in ours and v in theirs)


def trajectories_say_little(results: Results) -> Effects:
    for by_method in _by_cell(select_lines(results["detection"], window="day"), "method").values():
        if {*TRAJECTORIES} <= set(by_method):
            areas = {m: by_method[m]["agents"]["auroc"] for m in TRAJECTORIES}
            yield from ((NAMES[method], NEAR_HALF - abs(area - 0.5)) for method, area in areas.items())
