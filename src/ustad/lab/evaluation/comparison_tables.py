"""Tables that set one figure beside another of the same kind: ranks and calibrated shares, people and training,
λ and λ, sure events and all of them, true cases and false ones.

In go result lines, out come `Table`s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ustad.lab.baselines.ustad_variants import BEST_LAMBDA
from ustad.lab.evaluation.chosen_settings import validation_loss
from ustad.lab.evaluation.code_states import say_one_draw
from ustad.lab.evaluation.plain_tables import Table
from ustad.lab.evaluation.result_tables import (
    ERROR_DIGITS,
    LEVELS,
    NAMES,
    SCORES,
    SHARE_DIGITS,
    TERMS,
    WHATS,
    Line,
    Results,
    detection_values,
    format_mean,
    format_scientific,
    plain,
    read_published,
    select_lines,
    sets,
    slug,
)
from ustad.lab.evaluation.stopping import add_older_rule, mark_older_rule

CALIBRATED_NOTE = (
    "Ranks: percentiles among the scored events, as the paper says. With n events none is rarer than 1 in n, so what "
    "is far out and what is very far out have nearly the same score. Calibrated: tail shares against a normal week, "
    "continued by a fitted tail. SensitiveHUE, Nov-Online and the trajectory methods are never ranked."
)
SAME_DATA = (
    "Spread over people: each data set has other people. Spread of training: one data set, other first weights, order "
    "of steps and samples. Both are sample standard deviations."
)


def calibrated_tables(lines: list[Line]) -> list[Table]:
    """Every ranked method by ranks and by calibrated tail shares."""
    return [table for data in sets(lines) if (table := _calibrated_table(lines, data)) is not None]


def _calibrated_table(lines: list[Line], data: str) -> Table | None:
    rows = []
    for method in dict.fromkeys(x["method"] for x in select_lines(lines, data=data, window="day")):
        own = select_lines(lines, data=data, method=method, window="day")
        pairs = [(x["result"], x["result"]["calibrated"]) for x in own if "calibrated" in x["result"]]
        if pairs:
            rows.append((NAMES[method], str(len(pairs)), *_side_by_side(pairs)))
    if not rows:
        return None
    title = f"Ranks and calibrated tail shares, {data}"
    note = f"{CALIBRATED_NOTE} {say_one_draw(select_lines(lines, data=data))}".rstrip()
    return Table(f"calibrated-{slug(data)}", title, ("method", "data sets", *_pair_heads()), tuple(rows), note)


def calibrated_score_tables(lines: list[Line]) -> list[Table]:
    """The scores of the same model, by ranks and by calibrated tail shares."""
    rows = []
    for data in sets(lines):
        own = [x["result"] for x in select_lines(lines, data=data) if "calibrated" in x["result"]]
        for how, name in SCORES.items():
            if own:
                rows.append((data, name, *_side_by_side([(r[how], r["calibrated"][how]) for r in own])))
    heads = ("data", "score", *_pair_heads())
    title = "Scores of the same model, by ranks and calibrated"
    return [Table("scores-calibrated", title, heads, tuple(rows))] if rows else []


def _pair_heads() -> list[str]:
    return [f"{level} {word}, {how}" for level in LEVELS for word in WHATS.values() for how in ("ranks", "calibrated")]


def _side_by_side(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    """Cells of `_pair_heads` over some pairs of results."""
    return [
        format_mean([pair[side].get(level, {}).get(what) for pair in pairs], 3)
        for level in LEVELS
        for what in WHATS
        for side in (0, 1)
    ]


# --------------------------------------------------------------------------------------- people and training
def spread_tables(results: Results) -> list[Table]:
    """Standard deviation over people and over runs on the same people."""
    lines, again = results["detection"], results.get("detection by training", [])
    rows = []
    for data in sets(again):
        for method in dict.fromkeys(x["method"] for x in select_lines(again, data=data)):
            row = [data, NAMES[method], str(len(select_lines(again, data=data, method=method)))]
            for level in LEVELS:
                for what in WHATS:
                    values = (detection_values(part, data, method, level, what=what) for part in (lines, again))
                    row += [f"{np.std(v, ddof=1):.3f}" if len(v) > 1 else "–" for v in values]
            rows.append(tuple(row))
    spreads = [f"{level} {word}, {of}" for level in LEVELS for word in WHATS.values() for of in ("people", "training")]
    heads = ("data", "method", "runs on the same people", *spreads)
    return [Table("spread", "Spread over people and of training", heads, tuple(rows), SAME_DATA)] if rows else []


# --------------------------------------------------------------------------------------------- uncertainty
def rejection_tables(lines: list[Line]) -> list[Table]:
    """Errors of all events, and of the surest 95 % and half of them, by what they are sorted by."""
    return [_rejection_table(select_lines(lines, data=data), data) for data in sets(_with_curves(lines))]


def _with_curves(lines: list[Line]) -> list[Line]:
    return [line for line in lines if "curves" in line["result"]]


def _rejection_table(lines: list[Line], data: str) -> Table:
    terms = [term for term in TERMS if any(term in x["result"]["curves"] for x in _with_curves(lines))]
    rows = []
    for method in dict.fromkeys(x["method"] for x in _with_curves(lines)):
        results = [x["result"] for x in select_lines(lines, method=method)]
        for way, words in (("curves", ""), ("own", ", each feature by its own")):
            if all(way in result for result in results) and (way == "curves" or method == "ustad-plain"):
                for share in (1.0, 0.95, 0.5):
                    words_kept = "all" if share == 1 else f"surest {100 * share:g} %"
                    cells = (_kept_error(results, way, term, share) for term in terms)
                    rows.append((NAMES[method] + words, str(len(results)), words_kept, *cells))
    heads = ("sorted by the uncertainty of", "data sets", "events", *(_kept_head(term) for term in terms))
    note = "Mean absolute errors, and the share of kinds of place that is right. USTAD-none has nothing to sort by."
    return Table(f"rejection-{slug(data)}", f"All events, the surest 95 % and half, {data}", heads, tuple(rows), note)


def _kept_head(term: str) -> str:
    return "kind of place, % right" if term == "poi" else TERMS[term]


def _kept_error(results: list[dict[str, Any]], way: str, term: str, share: float) -> str:
    """The mean over data sets."""
    mean = float(np.mean([result[way][term][result["kept"].index(share)] for result in results]))
    return plain(100 * (1 - mean), SHARE_DIGITS) if term == "poi" else plain(mean, ERROR_DIGITS)


def scaling_tables(lines: list[Line]) -> list[Table]:
    """Mean AU and EU with numbers by their central share and between 0 and 1, beside the paper's after three weeks."""
    rows, (_, paper) = [], next(iter(read_published()["training_size"].items()))
    for data in sets(lines):
        own = select_lines(lines, data=data)
        for name, words in (("ustad-plain", "by their central 68 %"), ("ustad-minmax", "between 0 and 1")):
            terms = [x["result"]["terms"] for x in own if x.get("method") == name and "terms" in x["result"]]
            if name == "ustad-plain" and not terms:
                terms = [x["result"]["terms"] for x in own if x.get("weeks") == 3]
            if terms:
                cells = (format_scientific([t[f][u] for t in terms if f in t]) for f in TERMS for u in ("au", "eu"))
                rows.append((data, words, str(len(terms)), *cells))
    if not any(row[1] == "between 0 and 1" for row in rows):
        return []
    paper_values = (f"{value:.2e}" for term in TERMS for value in paper[3][term])
    rows.append(("*simla, paper*", "*not said*", "–", *paper_values))
    features = (f"{what} {TERMS[term].split(' (')[0]}" for term in TERMS for what in ("AU", "EU"))
    note = (
        "AU and EU are in squared units of the scaled numbers, so the scale decides their size; those of the kind of "
        "place have no scale. The paper's row is of its own data."
    )
    title = "AU and EU by how numbers are scaled"
    return [Table("scaling", title, ("data", "numbers", "data sets", *features), tuple(rows), note)]


# --------------------------------------------------------------------------------------------------- λ
def search_tables(results: Results) -> list[Table]:
    """What each λ gives on a development seed: the losses that decide, and predictions of its test weeks."""
    lines, rows = results.get("search", []), []
    for line in sorted(lines, key=lambda x: x["budget"]["category_weight"]):
        training = line["training"]
        terms = {row["term"]: row for row in line["result"]["rows"] if not row["rejected"]}
        rows.append(
            (
                f"{line['budget']['category_weight']:g}",
                f"{validation_loss(line):.3f}",
                f"{training['fields'].get('poi', float('nan')):.3f}",
                *(f"{terms[name]['mae']:.2f}" for name in ("x", "y", "start", "duration")),
                f"{terms['poi']['accuracy']:.1f}",
                f"{training['epochs']}{'' if training['converged'] else ' (cut)'}{mark_older_rule(line)}",
            )
        )
    heads = (
        "λ", "validation loss without λ", "of it, kind of place", "MAE x, km", "MAE y, km", "MAE start, min",
        "MAE duration, min", "kind of place, % right", "epochs",
    )  # fmt: skip
    seeds = ", ".join(sorted({str(line["seed"]) for line in lines}))
    has_lambda = any(line["method"] == "ustad-lambda" for line in results["prediction"])
    open_words = "" if has_lambda else " It has not been run on the seeds of the tables yet."
    lowest = (
        f"on {data} {_say_lowest(losses)}" for data, losses in losses_by_lambda([*lines, *results["tried"]]).items()
    )
    choice = f"`ustad-lambda` has λ = {BEST_LAMBDA:g} everywhere. Lowest loss without λ: {'; '.join(lowest)}."
    note = f"Development seed {seeds}. {choice}{open_words}"
    note = add_older_rule(note, lines)
    return [Table("search-lambda", "The search of λ", heads, tuple(rows), note)] if rows else []


def losses_by_lambda(lines: list[Line]) -> dict[str, dict[float, Line]]:
    """By data set, USTAD's trainings with nothing but λ changed, by their λ, where several were tried."""
    by_data: dict[str, dict[float, Line]] = {}
    for line in lines:
        changes = line["budget"].get("changes", {})
        if line.get("method") == "ustad-plain" and set(changes) <= {"category_weight"} and line.get("training"):
            weight = line["budget"].get("category_weight") or changes.get("category_weight", 1.0)
            by_data.setdefault(line["data"], {})[float(weight)] = line
    return {data: by_weight for data, by_weight in by_data.items() if len(by_weight) > 1}


def _say_lowest(by_weight: dict[float, Line]) -> str:
    """The λ with the lowest loss, of which, and which of them were cut by the clock."""
    best = min(by_weight, key=lambda weight: validation_loss(by_weight[weight]))
    weights = ", ".join(f"{w:g}{'' if by_weight[w]['training']['converged'] else ' (cut)'}" for w in sorted(by_weight))
    return f"λ = {best:g} of {weights}"


# ------------------------------------------------------------------------------------------------------ cases
def case_tables(results: Results) -> list[Table]:
    """How many of the first events by each rule no label speaks of."""
    rows = []
    for lines in (results["cases"], results.get("cases of best", [])):
        for data in sets(lines):
            shares = [x["result"]["shares"] for x in select_lines(lines, data=data) if "shares" in x["result"]]
            for kind in shares[0] if shares else ():
                people = sum(s[kind]["shown"] for s in shares)
                false = sum(s[kind]["false"] for s in shares)
                rows.append((data, kind, str(len(shares)), str(people), f"{false} ({100 * false / people:.0f} %)"))
    heads = ("data", "rule", "data sets", "people with the most unusual events", "false by the labels")
    title = "How many of the most unusual events are false alarms"
    return [Table("cases", title, heads, tuple(rows))] if rows else []
