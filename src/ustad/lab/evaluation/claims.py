"""The paper's claims against our figures, each judged by one rule.

A claim is a list of effects: signed numbers, positive where a data set, seed and feature agree with the paper. It is
confirmed where the mean effect is positive and at least four in five effects are; reversed where the mean is
negative and at least four in five are; not confirmed otherwise or with fewer than three effects, and not measured
without any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from ustad.events.encoder import UNKNOWN
from ustad.lab.evaluation.cells import NUMERIC
from ustad.lab.evaluation.result_tables import LEVELS, TERMS, Line, Results, Steps, after, select_lines, sets
from ustad.lab.evaluation.standing import MEASURES, lead

PREDICTABLE = ("spatial", "temporal", "spatial_temporal")
NOVEL = ("swap", "permutation", "high_density")
NEARLY_ALL, WEAK, AGREEING, ENOUGH = 0.95, 0.3, 0.8, 3


@dataclass(frozen=True)
class Claim:
    """What the paper says, what is measured for it, and the effects."""

    text: str
    measure: str
    effects: tuple[float, ...]
    limit: bool = False  # effects are distances from a limit: below it, a claim is not confirmed, but not reversed

    @property
    def verdict(self) -> str:
        if not self.effects:
            return "not measured"
        values = np.array(self.effects)
        for word, signed in (("confirmed", values), ("reversed", -values)):
            if len(signed) >= ENOUGH and signed.mean() > 0 and np.mean(signed > 0) >= AGREEING:
                return "not confirmed" if self.limit and word == "reversed" else word
        return "not confirmed"

    @property
    def mean(self) -> str:
        return f"{np.mean(self.effects):+.3f}"

    @property
    def figures(self) -> str:
        if not self.effects:
            return "–"
        values = np.array(self.effects)
        spread = f" ± {values.std(ddof=1):.3f}" if len(values) > 1 else ""
        return f"{values.mean():+.3f}{spread}; {int((values > 0).sum())} of {len(values)} agree"


Effects = Iterator[float]


def _by_cell(lines: list[Line], key: str) -> dict[tuple[str, int], dict[Any, dict[str, Any]]]:
    """Results by data set and seed, then by the value of an option."""
    found: dict[tuple[str, int], dict[Any, dict[str, Any]]] = {}
    for line in lines:
        if key in line:
            found.setdefault((line["data"], line["seed"]), {})[line[key]] = line["result"]
    return found


def _terms(result: dict[str, Any], rejected: bool = False) -> dict[str, dict[str, Any]]:
    return {row["term"]: row for row in result["rows"] if (row["rejected"] > 0) == rejected}


def _gain(worse: dict[str, dict[str, Any]], better: dict[str, dict[str, Any]]) -> Effects:
    """Relative gain of one set of predictions over another: errors of numbers, and errors of the kind of place."""
    for term in NUMERIC:
        if term in worse and term in better:
            yield 1 - better[term]["mae"] / worse[term]["mae"]
    if "poi" in worse and "poi" in better:
        yield (better["poi"]["accuracy"] - worse["poi"]["accuracy"]) / 100


def predicts_better(results: Results) -> Effects:
    for found in _by_cell(results["prediction"], "method").values():
        if {"dual-tr", "ustad-plain"} <= set(found):
            yield from _gain(_terms(found["dual-tr"]), _terms(found["ustad-plain"]))


def rejecting_helps(results: Results) -> Effects:
    for line in select_lines(results["prediction"], method="ustad-plain"):
        yield from _gain(_terms(line["result"]), _terms(line["result"], True))


def certain_half_is_right(results: Results) -> Effects:
    for line in select_lines(results["uncertainty"], method="ustad-plain"):
        told = line["result"]
        if "poi" in told["curves"]:
            yield 1 - told["curves"]["poi"][told["kept"].index(0.5)] - NEARLY_ALL


def rejecting_by_its_own(results: Results) -> Effects:
    """Not the paper's: each feature sorted by its own uncertainty, the most uncertain twentieth left out."""
    for line in select_lines(results["uncertainty"], method="ustad-plain"):
        told = line["result"]
        at = told["kept"].index(0.95)
        for term, errors in told.get("own", {}).items():
            yield (errors[-1] - errors[at]) / (1 if term == "poi" else errors[-1])


def certain_half_by_entropy(results: Results) -> Effects:
    """Not the paper's: USTAD-EU, whose one uncertainty of a kind of place is the entropy."""
    for line in select_lines(results["uncertainty"], method="ustad-eu"):
        told = line["result"]
        if "poi" in told.get("own", {}):
            yield 1 - told["own"]["poi"][told["kept"].index(0.5)] - NEARLY_ALL


def eu_falls_with_accuracy(results: Results) -> Effects:
    for line in select_lines(results["uncertainty"], method="ustad-plain"):
        rows = [row for row in line["result"]["classes"] if row["n"] >= 20 and row["class"] != UNKNOWN]
        if len(rows) >= 3:
            yield -float(spearmanr([r["eu"] for r in rows], [r["accuracy"] for r in rows])[0])


def _variant_errors(results: Results, one: str, other: str, terms: tuple[str, ...]) -> Iterator[tuple[float, float]]:
    """Errors of two variants with everything kept."""
    for found in _by_cell(results["uncertainty"], "method").values():
        if {one, other} <= set(found):
            ours, theirs = (found[m]["curves"] for m in (one, other))
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
    for found in _by_cell(after(results["uncertainty"], steps), "weeks").values():
        if {1, 3} <= set(found):
            few, many = found[1]["terms"], found[3]["terms"]
            shared = (t for t in TERMS if t in few and t in many)
            yield from ((few[t], many[t]) for t in shared if all(x[t][u] for x in (few, many) for u in ("au", "eu")))


def eu_falls_with_data(steps: Steps) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        yield from (float(np.log(few["eu"] / many["eu"])) for few, many in _sizes(results, steps))

    return effects


def au_stays(steps: Steps) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        for few, many in _sizes(results, steps):
            yield float(abs(np.log(many["eu"] / few["eu"])) - abs(np.log(many["au"] / few["au"])))

    return effects


def weak_overall(results: Results) -> Effects:
    yield from (WEAK - abs(line["result"]["pearson"]) for line in results["epistemic"])


def far_where_unsure(results: Results) -> Effects:
    for line in results["epistemic"]:
        yield line["result"]["median_high_eu"] / line["result"]["median_low_eu"] - 1


def stronger_in_the_tail(results: Results) -> Effects:
    yield from (x["result"]["pearson_tail"] - x["result"]["pearson"] for x in results["epistemic"])


def _injected(results: Results, kinds: tuple[str, ...], what: str = "auroc") -> Iterator[dict[str, float]]:
    for line in results["injections"]:
        if line["kind"] in kinds:
            yield {how: told[what] for how, told in line["result"]["scores"].items()}


def eu_fails_on_novel(results: Results) -> Effects:
    yield from (a["knn"] - a["eu"] for a in _injected(results, NOVEL))


def _score_pairs(results: Results, level: str, what: str) -> Iterator[dict[str, float]]:
    for line in results["scores"]:
        told = {how: found.get(level, {}).get(what) for how, found in line["result"].items()}
        if all(value is not None for value in told.values()):
            yield told


def loss_beats_error(level: str, what: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        yield from (a["loss"] - a["pe"] for a in _score_pairs(results, level, what))

    return effects


def most_for_agents(results: Results) -> Effects:
    for line in results["scores"]:
        told = line["result"]
        if all(level in told["loss"] for level in LEVELS):
            gains = [told["loss"][level]["auroc"] - told["pe"][level]["auroc"] for level in LEVELS]
            yield gains[1] - gains[0]


def loss_finds_predictable(results: Results) -> Effects:
    yield from (a["loss"] - a["knn"] for a in _injected(results, PREDICTABLE))


def distance_finds_novel(results: Results) -> Effects:
    for found in _by_cell(results["injections"], "kind").values():
        if set(PREDICTABLE) | set(NOVEL) <= set(found):
            near = np.mean([found[k]["scores"]["knn"]["auroc"] for k in PREDICTABLE])
            yield from (found[k]["scores"]["knn"]["auroc"] - float(near) for k in NOVEL)


def both_is_best(what: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        for level in LEVELS:
            for a in _score_pairs(results, level, what):
                yield a["loss_knn"] - max(a["pe"], a["loss"], a["pe_au_eu"])

    return effects


def both_is_best_injected(what: str) -> Callable[[Results], Effects]:
    def effects(results: Results) -> Effects:
        yield from (a["loss_knn"] - max(a["loss"], a["knn"], a["eu"]) for a in _injected(results, ("all",), what))

    return effects


def ahead_of_deep(results: Results) -> Effects:
    lines = results["detection"]
    for data in sets(lines):
        for level in LEVELS:
            margin = lead(lines, data, level)
            if margin is not None and margin[1] > 0:  # one seed has no spread to be ahead by
                yield margin[0] - margin[1]


#: (what the paper says, what is measured, how)
CLAIMS: tuple[tuple[str, str, Callable[[Results], Effects]], ...] = (
    (
        "Training with uncertainty predicts better than without",
        "relative gain of USTAD over Dual-Tr, per feature",
        predicts_better,
    ),
    (
        "Rejecting the most uncertain 5 % improves prediction",
        "relative gain with rejection, per feature",
        rejecting_helps,
    ),
    (
        "– the same, each feature by its own uncertainty (ours)",
        "relative gain without the 5 % that the feature itself is least sure of, per feature",
        rejecting_by_its_own,
    ),
    (
        "The most certain half has nearly all kinds of place right",
        f"accuracy of the surest half minus {NEARLY_ALL}",
        certain_half_is_right,
    ),
    (
        "– the same, by the entropy of the kind of place alone (ours)",
        f"accuracy of the surest half of USTAD-EU minus {NEARLY_ALL}",
        certain_half_by_entropy,
    ),
    (
        "Per kind of place, EU falls as accuracy rises",
        "minus rank correlation of EU and accuracy over kinds with 20 events or more",
        eu_falls_with_accuracy,
    ),
    (
        "AU helps numbers most",
        "relative gain of USTAD-AU over USTAD-EU, per numeric feature",
        au_helps_numbers("ustad-eu"),
    ),
    (
        "– the same, over no uncertainty at all",
        "relative gain of USTAD-AU over USTAD-none, per numeric feature",
        au_helps_numbers("ustad-none"),
    ),
    ("EU helps categories most", "accuracy of USTAD-EU minus that of USTAD-AU", eu_helps_categories("ustad-au")),
    (
        "– the same, over no uncertainty at all",
        "accuracy of USTAD-EU minus that of USTAD-none",
        eu_helps_categories("ustad-none"),
    ),
    (
        "EU falls with more training data",
        "ln (EU after 1 week / EU after 3 weeks), per feature, after as many steps",
        eu_falls_with_data("equal"),
    ),
    ("– EU, after as many epochs", "the same, one week with a third of the steps", eu_falls_with_data("fewer")),
    (
        "AU stays the same with more training data",
        "size of the change of ln EU minus that of ln AU, 1 to 3 weeks, per feature, after as many steps",
        au_stays("equal"),
    ),
    ("– AU, after as many epochs", "the same, one week with a third of the steps", au_stays("fewer")),
    ("EU and distance correlate weakly overall", f"{WEAK} minus the absolute value of Pearson's r", weak_overall),
    (
        "Events of high EU lie further from the training events",
        "median distance of the 5 % highest EU / of the 5 % lowest, minus 1",
        far_where_unsure,
    ),
    (
        "EU and distance correlate strongly in the tail",
        "Pearson's r among the 5 % highest EU minus r overall (a narrow range alone lowers r)",
        stronger_in_the_tail,
    ),
    (
        "EU alone fails on novel events",
        "AUROC of the distance minus that of EU, novel injections",
        eu_fails_on_novel,
    ),
    *(
        (
            f"Loss beats prediction error: {level}, by {word}",
            f"{word} of loss minus that of PE",
            loss_beats_error(level, what),
        )
        for level in LEVELS
        for what, word in MEASURES
    ),
    (
        "Loss beats prediction error most for agents",
        "gain for agents minus gain for events, AUROC",
        most_for_agents,
    ),
    (
        "Loss finds predictable anomalies",
        "AUROC of loss minus that of the distance, predictable injections",
        loss_finds_predictable,
    ),
    (
        "Distance finds novel anomalies",
        "AUROC of the distance on novel injections minus its mean on predictable ones",
        distance_finds_novel,
    ),
    *(
        (
            f"Loss & kNN is the best score, by {word}",
            f"{word} minus that of the best of PE, loss, PE + AU + EU, both levels",
            both_is_best(what),
        )
        for what, word in MEASURES
    ),
    *(
        (
            f"Loss & kNN is the best score on diverse injections, by {word}",
            f"{word} minus that of the best of loss, kNN, EU, all types",
            both_is_best_injected(what),
        )
        for what, word in MEASURES
    ),
    (
        "USTAD is ahead of every deep baseline by more than the spread",
        "AUROC minus the best deep baseline's, minus the larger standard deviation, per data set and level",
        ahead_of_deep,
    ),
)


#: Claims that compare with a limit instead of with another figure.
LIMITED = (certain_half_is_right, certain_half_by_entropy, weak_overall, ahead_of_deep)


def judged(results: Results) -> list[Claim]:
    """Every claim with its effects in these results."""
    return [
        Claim(text, measure, tuple(float(v) for v in effects(results)), effects in LIMITED)
        for text, measure, effects in CLAIMS
    ]
