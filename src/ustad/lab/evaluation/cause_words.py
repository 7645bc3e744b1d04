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
    """That the loss of numbers costs kinds of place, and on which data."""
    lines = results["prediction"]
    worse = [data for data in sets(lines) if "kind of place" in _worse_terms(lines, data)]
    if not worse:
        return ""
    return (
        "The likelihood of numbers weighs errors by 1/σ² and takes the larger share of every step, so kinds of place "
        "are learned later than by a network without σ. They are predicted worse than by the Transformer on "
        f"{', '.join(worse)}. A larger λ mends that."
    )


def _worse_terms(lines: list[Line], data: str) -> str:
    return ", ".join(compare_predictions(lines, data, "transformer")["worse"])


def say_variances(results: Results) -> str:
    """Where the bare error finds more events than the loss of the same model, which is divided by σ², and where not."""
    sides: dict[str, list[str]] = {"error": [], "loss": []}
    for data in sets(results["scores"]):
        error, loss = (score_values(results["scores"], data, how, "events", what="auroc") for how in ("pe", "loss"))
        if error and loss:
            side = "error" if np.mean(error) > np.mean(loss) else "loss"
            sides[side].append(f"{data} ({np.mean(error):.3f} and {np.mean(loss):.3f})")
    texts = [f"{words} on {', '.join(sides[side])}" for side, words in _BETTER.items() if sides[side]]
    if not texts:
        return ""
    return (
        "The score divides an error by σ², so what is usually uncertain counts little. That is the wrong way round for "
        "the neighbours of an inserted visit, whose lengths are off. By AUROC of events, PE (the bare error) and loss "
        f"of one model: {'; '.join(texts)}."
    )


_BETTER = {"error": "PE is better", "loss": "the loss is better"}


def say_places(results: Results) -> str:
    """Where a rule that looks at the agent's own places finds more events than USTAD, and where not."""
    sides: dict[bool, list[str]] = {True: [], False: []}
    for data in sets(results["detection"]):
        lines = of_same_people(results["detection"], data, USTAD, "distance")
        rule, ours = (detection_values(lines, data, m, "events", what="ap") for m in ("distance", USTAD))
        if rule and ours:
            sides[np.mean(rule) > np.mean(ours)].append(f"{data} ({np.mean(rule):.3f} against {np.mean(ours):.3f})")
    if not sides[True]:
        return ""
    elsewhere = f", and not on {', '.join(sides[False])}" if sides[False] else ""
    return (
        "Three days of context cannot tell that a place is new to somebody. The distance to all of their own places "
        f"can: by AUPR of events it is ahead of USTAD on {', '.join(sides[True])}{elsewhere}."
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
        f"end. {' '.join(texts)} Where it rises, a few events at a tiny σ may cost more and more while others still "
        "improve: that is a guess."
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
    shares: dict[str, float] = {}
    for line in results["detection"]:
        figures = line["result"]
        if {"events", "meant"} <= set(figures) and figures["events"].get("positives"):
            shares.setdefault(line["data"], 1 - figures["meant"]["positives"] / figures["events"]["positives"])
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
        f"λ = {BEST_LAMBDA:g} of `ustad-lambda` was set before the trials that are kept here, and is the same for all "
        f"data. The trials are on development people (seed {seeds}), and read no label; their rule is the lowest "
        f"validation loss without λ, all features added up. It gives {'; '.join(texts)}. So λ = {BEST_LAMBDA:g} is its "
        f"choice {choice}."
    )


def _say_cut(line: Line) -> str:
    return "" if has_ended(line) else ", cut by the clock"
