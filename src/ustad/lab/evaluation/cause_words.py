"""What the results page says about how USTAD was set and trained, each sentence out of the result lines.

In go results, out come sentences; a sentence whose lines are not there is not said.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from ustad.config import Config, flatten
from ustad.lab.baselines import find
from ustad.lab.baselines.ustad_variants import BEST_LAMBDA
from ustad.lab.evaluation.budgets import Budget
from ustad.lab.evaluation.chosen_settings import validation_loss
from ustad.lab.evaluation.comparison_tables import losses_by_lambda
from ustad.lab.evaluation.experiments import EXPERIMENTS, LARGE
from ustad.lab.evaluation.fitted_models import USTAD
from ustad.lab.evaluation.result_files import Line
from ustad.lab.evaluation.result_tables import (
    NAMES,
    Results,
    detection_values,
    of_same_people,
    score_values,
    select_lines,
    sets,
)
from ustad.lab.evaluation.standing import compare_predictions
from ustad.lab.evaluation.stopping import OLDER_MARK, WITH_VARIANCES, has_ended, is_of_older_rule

#: What settings that are tried are called in a sentence.
WORDS = {"learning_rate": "rate", "category_weight": "λ =", "batch_size": "batch"}


def cause_paragraphs(results: Results) -> list[str]:
    """How USTAD was set, what its equations cost it and where, where its training turned, and which λ it has."""
    words = [
        say_settings(results),
        say_kinds(results),
        say_variances(results),
        say_neighbours(results),
        say_places(results),
        say_turns(results),
        say_lambda(results),
    ]
    return [text for text in words if text]


# ------------------------------------------------------------------------------------------------ settings
def say_settings(results: Results) -> str:
    """Which settings of USTAD differ from the preset `paper`, by data set, and where it stopped by another rule."""
    lines = [line for name in EXPERIMENTS for line in results.get(name, []) if _is_of_ustad(line)]
    groups: dict[str, list[str]] = {}
    for data in sets(lines):
        differences = [_list_differences(line) for line in select_lines(lines, data=data) if "budget" in line]
        texts = {f"`{name}` {a} ({b})": None for own in differences for name, (a, b) in own.items()}
        groups.setdefault(", ".join(texts), []).append(data)
    if not lines or not any(groups):
        return ""
    common, *others = sorted((text for text in groups), key=len)
    parts = [f"on {', '.join(groups[text])} {text}" for text in (common, *others)]
    older = [data for data in sets(lines) if any(map(is_of_older_rule, select_lines(lines, data=data)))]
    rule = f" Cells marked {OLDER_MARK} (on {', '.join(older)}) stopped by an older rule than the preset's."
    words = f"USTAD is the preset `paper` here, but for some settings (in brackets the preset's): {'; '.join(parts)}."
    return words + (rule if older else "")


def _is_of_ustad(line: Line) -> bool:
    return line.get("method", USTAD) == USTAD and "weeks" not in line


def _list_differences(line: Line) -> dict[str, tuple[Any, Any]]:
    """Settings of the network behind a line that are not the preset's, with both values."""
    names = {f.name for f in fields(Budget)}
    values = {k: v for k, v in line["budget"].items() if k in names}
    changes = {k: tuple(values[k].items()) for k in ("changes", "choices") if k in values}
    settings = line.get("settings") or Budget(**{**values, **changes}).settings(USTAD)
    if "acceleration" in line:
        settings = {**settings, "acceleration": line["acceleration"]}
    own = dict(flatten(find(USTAD)(**settings).detector.config.to_dict()))
    preset = dict(flatten(Config.preset("paper").to_dict()))
    return {name: (value, preset[name]) for name, value in own.items() if name != "seed" and value != preset[name]}


# ---------------------------------------------------------------------------------------------- equations
def say_kinds(results: Results) -> str:
    """That the loss of numbers may cost kinds of place, and on which data they are predicted worse."""
    lines = results["prediction"]
    worse = [data for data in sets(lines) if any(KINDS in words for words in _worse_terms(lines, data))]
    if not worse:
        return ""
    larger = [data for data in worse if select_lines(lines, data=data, method="ustad-lambda")]
    still = [data for data in larger if any(KINDS in words for words in _worse_terms(lines, data, "ustad-lambda"))]
    no_longer = [data for data in larger if data not in still]
    outcomes = [f"With λ = {BEST_LAMBDA:g} they are on {', '.join(still)} too."] if still else []
    outcomes += [f"With λ = {BEST_LAMBDA:g} they no longer are, on {', '.join(no_longer)}."] if no_longer else []
    sentences = (
        f"Kinds of place are predicted worse than by the Transformer on {', '.join(worse)}.",
        "The likelihood of numbers weighs errors by 1/σ² and may take most of what a step can do: that is a guess.",
        *outcomes,
    )
    return " ".join(sentences)


KINDS = "kind of place"


def _worse_terms(lines: list[Line], data: str, method: str = USTAD) -> list[str]:
    return compare_predictions(lines, data, "transformer", method)["worse"]


def say_variances(results: Results) -> str:
    """The bare error beside the loss of the same model, which is divided by σ²: AUROC / AUPR of events."""
    texts = []
    for data in sets(results["scores"]):
        pairs = [
            [score_values(results["scores"], data, how, "events", what=what) for what in ("auroc", "ap")]
            for how in ("pe", "loss")
        ]
        if all(all(pair) for pair in pairs):
            figures = (" / ".join(f"{np.mean(values):.3f}" for values in pair) for pair in pairs)
            texts.append(f"{data} {' and '.join(figures)}{_say_alone(pairs[0][0])}")
    if not texts:
        return ""
    return (
        "The loss divides an error by σ², so what is usually uncertain counts little. PE (the bare error) and loss of "
        f"one model find events with AUROC / AUPR: {'; '.join(texts)}."
    )


def _say_alone(values: list[float]) -> str:
    return " (one data set)" if len(values) == 1 else ""


def say_places(results: Results) -> str:
    """A rule that looks at the agent's own places beside USTAD: AUROC / AUPR of events."""
    texts, is_ahead = [], False
    for data in sets(results["detection"]):
        lines = of_same_people(results["detection"], data, USTAD, "distance")
        pairs = [
            [detection_values(lines, data, m, "events", what=what) for what in ("auroc", "ap")]
            for m in ("distance", USTAD)
        ]
        if all(all(pair) for pair in pairs):
            figures = (" / ".join(f"{np.mean(values):.3f}" for values in pair) for pair in pairs)
            texts.append(f"{data} {' against '.join(figures)}{_say_alone(pairs[0][0])}")
            is_ahead |= bool(np.mean(pairs[0][1]) > np.mean(pairs[1][1]))
    if not is_ahead:
        return ""
    return (
        "What is new to somebody shows beside all of their own places; a window has three days of them. The distance "
        f"to own places against USTAD, events, AUROC / AUPR: {'; '.join(texts)}."
    )


# ----------------------------------------------------------------------------------------------- training
def say_turns(results: Results) -> str:
    """After how many epochs networks with and without σ had their lowest validation loss, on the largest data sets."""
    lines = [*_of_many_people(results["detection"]), *_of_many_people(results.get("tried", []))]
    texts = []
    for data in sets(lines):
        own = select_lines(lines, data=data)
        with_sigma, without = ([x for x in own if (x["method"] in WITH_VARIANCES) == is_so] for is_so in (True, False))
        if with_sigma and without:
            texts.append(f"On {data} with σ, {_say_epochs(with_sigma)}. Without σ, {_say_epochs(without)}.")
    if not texts:
        return ""
    return (
        "The epoch of the lowest validation loss, of all epochs, and in brackets how much higher the loss was at the "
        f"end. {' '.join(texts)}"
    )


def _of_many_people(lines: list[Line]) -> list[Line]:
    """Trained networks that predict masked events, of large data sets, each once."""
    methods = (*WITH_VARIANCES, "ustad-none", "transformer")
    own = [x for x in lines if x.get("method") in methods and x.get("source", {}).get("agents", 0) > LARGE]
    own = [x for x in own if x.get("training", {}).get("curve")]
    return [x for x in own if x.get("window") != "past" and x["experiment"] == "detection"]


def _say_epochs(lines: list[Line]) -> str:
    """What was trained, then its runs."""
    groups: dict[str, list[str]] = {}
    for line in lines:
        training = line["training"]
        rise = training["curve"][-1] - min(training["curve"])
        words = (
            f"{training['best_epoch'] + 1} of {training['epochs']} (+{rise:.2g}, seed {line['seed']}{_say_cut(line)})"
        )
        groups.setdefault(_describe(line), []).append(words)
    return "; ".join(f"{name}: {', '.join(runs)}" for name, runs in groups.items())


def _describe(line: Line) -> str:
    """The method, its learning rate where the budget has one, and what was changed."""
    budget = line["budget"]
    rate = {"learning_rate": budget["learning_rate"]} if budget.get("learning_rate") else {}
    settings = {**rate, **budget.get("choices", {}), **budget.get("changes", {})}
    return ", ".join([NAMES[line["method"]], *(f"{WORDS.get(name, name)} {value}" for name, value in settings.items())])


# ------------------------------------------------------------------------------------------------- labels
def say_neighbours(results: Results) -> str:
    """Which share of the labelled events was not meant: stays beside an inserted one, which it shortened."""
    counts: dict[str, dict[int, tuple[int, int]]] = {}
    for line in results["detection"]:
        figures = line["result"]
        if {"events", "meant"} <= set(figures):
            pair = (figures["meant"]["positives"], figures["events"]["positives"])
            counts.setdefault(line["data"], {})[line["seed"]] = pair
    sums = {data: np.sum(list(pairs.values()), axis=0) for data, pairs in counts.items()}
    shares = {data: 1 - own / positives for data, (own, positives) in sums.items() if positives}
    texts = ", ".join(f"{100 * share:.0f} % on {data}" for data, share in shares.items() if share)
    return f"Neighbours that an inserted visit shortened, of all labelled events: {texts}." if texts else ""


# ------------------------------------------------------------------------------------------------------ λ
def say_lambda(results: Results) -> str:
    """How λ came about, and on which data the rule of its search would choose it."""
    trials = losses_by_lambda([*results.get("search", []), *results.get("tried", [])])
    if not trials:
        return ""
    texts, agreeing = [], []
    for data, by_weight in trials.items():
        best = min(by_weight, key=lambda weight: validation_loss(by_weight[weight]))
        losses = ", ".join(f"{validation_loss(x):.2f} with {w:g}{_say_cut(x)}" for w, x in sorted(by_weight.items()))
        texts.append(f"λ = {best:g} on {data} ({losses})")
        agreeing += [data] if best == BEST_LAMBDA else []
    seeds = ", ".join(sorted({str(line["seed"]) for by_weight in trials.values() for line in by_weight.values()}))
    choice = f"on {', '.join(agreeing)} alone" if agreeing else "on none of them"
    return (
        f"λ = {BEST_LAMBDA:g} of `ustad-lambda` is the same for all data. It was chosen on development people (seed "
        f"{seeds}): 2 after the trials on 2,000 of them, then {BEST_LAMBDA:g} after those on 20,000. The rule is the "
        f"lowest validation loss without λ, all features added up; it reads no label. It gives {'; '.join(texts)}. So "
        f"λ = {BEST_LAMBDA:g} is its choice {choice}."
    )


def _say_cut(line: Line) -> str:
    return "" if has_ended(line) else ", cut by the clock"
