"""The first screen of the results page: a short answer to each question, and how many of the paper's claims hold.

In go results, out comes Markdown whose figures are all of one data set: the one that most seeds of USTAD were run on.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ustad.lab.evaluation.claim_verdicts import TOO_FEW, Claim
from ustad.lab.evaluation.claims import judge_claims, question_of, whole_texts
from ustad.lab.evaluation.page_words import QUESTIONS
from ustad.lab.evaluation.plain_tables import Table
from ustad.lab.evaluation.result_tables import (
    ENOUGH,
    LEVELS,
    TERMS,
    WHATS,
    Results,
    after,
    detection_values,
    plain,
    prediction_values,
    score_values,
    select_lines,
    sets,
)
from ustad.lab.evaluation.standing import compare_predictions, say_lead, say_trips
from ustad.lab.evaluation.stopping import OLDER_MARK, OLDER_RULE, mark_older_rule

#: Verdicts on claims that the list below the answers has, in its order.
NOT_CONFIRMED = (
    "mixed, as a whole as the paper says", "mixed, as a whole the other way", "not confirmed", "reversed", TOO_FEW
)  # fmt: skip
AREAS = "AUROC / AUPR"


def first_screen(results: Results) -> list[str]:
    """The table of answers, a note on its data, and a list of the claims that do not hold."""
    data = main_set(results)
    by_question = {"Q1": say_predictions, "Q2": say_detections, "Q3": say_uncertainties, "Q4": say_scores}
    claims = _measured_claims(results)
    rows = []
    for question in QUESTIONS.values():
        number, _, words = question.partition(" · ")
        answer = by_question.get(number, say_cases)(results, data)
        own = [claim for claim, _ in claims if question_of(claim.text) == number]
        rows.append((f"{number} {words}", " ".join(answer) or "–", count_confirmed(own)))
    table = Table("", "", ("question", "answer", "the paper's claims confirmed"), tuple(rows)).markdown().rstrip()
    rule = f" {OLDER_RULE}." if OLDER_MARK in table else ""
    return ["## In one screen", table, _say_data(results, data) + rule, list_claims(claims)]


def count_confirmed(claims: list[Claim]) -> str:
    """`7 of 12`, and how many of these could not be decided."""
    if not claims:
        return "–"
    n, n_few = (sum(claim.verdict == verdict for claim in claims) for verdict in ("confirmed", TOO_FEW))
    return f"{n} of {len(claims)}" + (f" ({n_few} of {TOO_FEW})" if n_few else "")


def main_set(results: Results) -> str:
    """The data set that most seeds of USTAD were run on."""
    lines = [x for part in results.values() for x in part if x.get("method", "ustad-plain") == "ustad-plain"]
    seeds = {data: {x["seed"] for x in select_lines(lines, data=data)} for data in sets(lines)}
    return max(seeds, key=lambda data: len(seeds[data]), default="")


def _say_data(results: Results, data: str) -> str:
    """What the figures of the screen are of."""
    counts = {len(detection_values(results["detection"], data, "ustad-plain", level, what="auroc")) for level in LEVELS}
    number = max(counts, default=0)
    means = f", means over {number} data sets with other people each" if number > 1 else ""
    few = f" Elsewhere on this page ± is said from {ENOUGH} data sets on; (n = 3) is a mean of three."
    return f"Figures of simulated {data}{means}; detection as {AREAS}.{few}" if data else ""


# ------------------------------------------------------------------------------------------------ answers
def say_predictions(results: Results, data: str) -> list[str]:
    """USTAD beside the same network without uncertainties, and what rejection gains."""
    lines, sentences = results["prediction"], []
    sides = compare_predictions(lines, data, "dual-tr")
    words = [f"{', '.join(terms)} {word}" for word, terms in sides.items() if terms]
    if words:
        sentences.append(f"Beside Dual-Tr, which has no uncertainty, USTAD predicts {'; '.join(words)}.")
    values = [prediction_values(lines, data, m, "accuracy", term="poi") for m in ("ustad-plain", "rejection")]
    if all(values):
        before, later = (np.mean(v) for v in values)
        sentences.append(f"Without the 5 % it is least sure of, {before:.1f} → {later:.1f} % of kinds are right.")
    return sentences


def say_detections(results: Results, data: str) -> list[str]:
    """USTAD against the best deep baselines, with trips, and beside a trivial rule and ours, by level."""
    lines = select_lines(results["detection"], data=data, window="day")
    sentences = []
    for level in LEVELS:
        verdicts = [say_lead(lines, data, level, what) for what in WHATS]
        if all(verdicts):
            areas = _areas(results, data, "ustad-plain", level)
            parts = (f"by {word} {verdict}" for word, verdict in zip(WHATS.values(), verdicts, strict=True))
            sentences.append(f"{level.capitalize()}: USTAD has {areas}, {', '.join(parts)}.")
    sentences += say_trips(results, data)
    for method, words in (
        ("ustad-none", "Without its uncertainties it"),
        ("distance", "A rule, the distance to own places,"),
        ("ustad-default", "Our `best`"),
    ):
        figures = [f"{level} {_areas(results, data, method, level)}" for level in LEVELS]
        if any(detection_values(lines, data, method, level, what="auroc") for level in LEVELS):
            sentences.append(f"{words} has {', '.join(figures)}.")
    return sentences


def _areas(results: Results, data: str, method: str, level: str) -> str:
    lines = results["detection"]
    values = (detection_values(lines, data, method, level, what=what) for what in WHATS)
    figures = " / ".join(plain(float(np.mean(v)) if v else None) for v in values)
    return figures + mark_older_rule(*select_lines(lines, data=data, method=method))


def say_uncertainties(results: Results, data: str) -> list[str]:
    """How right the surest half is, and what three weeks of training instead of one change."""
    curves = [
        (x["result"]["curves"]["poi"], x["result"]["kept"].index(0.5))
        for x in select_lines(results["uncertainty"], data=data, method="ustad-plain")
        if "poi" in x["result"].get("curves", {})
    ]
    sentences = []
    if curves:
        half, whole = (
            100 * (1 - np.mean(values)) for values in zip(*((c[at], c[-1]) for c, at in curves), strict=True)
        )
        sentences.append(f"Of all kinds of place {whole:.1f} % are right, of the surest half {half:.1f} %.")
    factors = {what: _change_of(results, data, what) for what in ("eu", "au")}
    if all(factors.values()):
        words = " and ".join(_say_change(what, changes) for what, changes in factors.items())
        sentences.append(f"After three weeks of training in place of one, {words}; {_count_pairs(results, data)}.")
    return sentences


def _say_change(what: str, changes: dict[str, list[float]]) -> str:
    """`EU is 57 % of what it was (x 60 %, …)`: geometric means over data sets, by feature."""
    means = {term: float(np.mean(values)) for term, values in changes.items()}
    parts = ", ".join(f"{TERMS[term].split(' (')[0]} {100 * np.exp(mean):.0f} %" for term, mean in means.items())
    return f"{what.upper()} is {100 * np.exp(np.mean(list(means.values()))):.0f} % of what it was ({parts})"


def _count_pairs(results: Results, data: str) -> str:
    lines = [x for x in after(results["uncertainty"], "equal") if x["data"] == data]
    few, many = ({x["seed"]: x.get("training", {}).get("steps") for x in lines if x["weeks"] == n} for n in (1, 3))
    pairs = [(few[seed], many[seed]) for seed in few.keys() & many.keys()]
    sums = np.sum([(a, b) for a, b in pairs if a and b] or [(0, 0)], axis=0)
    steps = f", with {sums[1] / sums[0]:.1f} times the steps" if sums[0] else ""
    return f"means of {len(pairs)} data set{'s' * (len(pairs) != 1)}{steps}"


def _change_of(results: Results, data: str, what: str) -> dict[str, list[float]]:
    """Changes of the logarithm of an uncertainty from one week of training to three: one a seed, by feature."""
    lines = [x for x in after(results["uncertainty"], "equal") if x["data"] == data]
    changes: dict[str, list[float]] = {}
    for seed in {x["seed"] for x in lines}:
        by_weeks = {x["weeks"]: x["result"]["terms"] for x in lines if x["seed"] == seed}
        for term in TERMS if {1, 3} <= set(by_weeks) else ():
            few, many = (by_weeks[weeks].get(term, {}).get(what) for weeks in (1, 3))
            if few and many:
                changes.setdefault(term, []).append(float(np.log(many / few)))
    return changes


def say_scores(results: Results, data: str) -> list[str]:
    """AUROC of the parts of the score, by level."""
    parts = {"pe": "the bare error (PE)", "loss": "the loss", "knn": "the distance (kNN)", "loss_knn": "loss & kNN"}
    sentences = []
    for level in LEVELS:
        areas = {name: score_values(results["scores"], data, how, level, what="auroc") for how, name in parts.items()}
        if all(areas.values()):
            words = ", ".join(f"{name} {plain(float(np.mean(values)))}" for name, values in areas.items())
            sentences.append(f"AUROC of {level} by {words}.")
    return sentences


def say_cases(results: Results, data: str) -> list[str]:
    """How many of the first events no label speaks of."""
    lines = select_lines(results["cases"], data=data)
    shares = [x["result"]["shares"] for x in lines if "shares" in x["result"]]
    words = []
    for kind in shares[0] if shares else ():
        people, false = (sum(share[kind][name] for share in shares) for name in ("shown", "false"))
        words.append(f"{100 * false / people:.0f} % of {people} by the rule `{kind}`")
    return [f"Many of the most unusual events have no label: {', '.join(words)}."] if words else []


# ------------------------------------------------------------------------------------------------- claims
def _measured_claims(results: Results) -> list[tuple[Claim, str]]:
    """Claims of the paper that have effects here, each with words that stand alone."""
    claims = judge_claims(results)
    pairs = zip(claims, whole_texts([claim.text for claim in claims]), strict=True)
    return [(claim, words) for claim, words in pairs if claim.effects and not claim.is_ours]


def list_claims(claims: list[tuple[Claim, str]]) -> str:
    """Those that are not confirmed, by verdict, and where each is told whole."""
    lines = [f"- **{verdict}**: {'; '.join(texts)}" for verdict, texts in _by_verdict(claims) if texts]
    if not lines:
        return ""
    about = (
        "Claims of the paper that are not confirmed here. Mixed: a part goes the other way than the whole. "
        "“Every claim of the paper”, below, has each with its parts, its effect and its spread."
    )
    return "\n\n".join((about, "\n".join(lines)))


def _by_verdict(claims: list[tuple[Claim, str]]) -> Iterator[tuple[str, list[str]]]:
    for verdict in NOT_CONFIRMED:
        yield verdict, [words for claim, words in claims if claim.leaning == verdict]


__all__ = ["count_confirmed", "first_screen", "list_claims", "main_set"]
