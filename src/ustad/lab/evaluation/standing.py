"""Where USTAD stands against the other methods, and what the figures say about the causes.

In go results, out come tables and sentences made of their figures.
"""

from __future__ import annotations

import numpy as np

from ustad.lab.baselines.ustad_variants import BEST_LAMBDA
from ustad.lab.evaluation.code_states import say_older_code, score_trips
from ustad.lab.evaluation.fairness_tables import say_wider
from ustad.lab.evaluation.fitted_models import TRIPS, USTAD
from ustad.lab.evaluation.plain_tables import Table
from ustad.lab.evaluation.result_tables import (
    DEEP,
    ENOUGH,
    LEVELS,
    NAMES,
    SCORES,
    TERMS,
    WHATS,
    Line,
    Results,
    best_deep,
    detection_values,
    of_same_people,
    plain,
    prediction_values,
    score_values,
    select_lines,
    sets,
)
from ustad.lab.evaluation.stopping import OLDER_MARK, add_older_rule, is_of_older_rule, mark_older_rule

#: What stands beside USTAD and the deep baselines.
BESIDE = {
    "ustad-none": "USTAD-none", "nov-online": "Nov-Online", "distance": "distance to own places",
    "visit-rate": "visit rate", "ustad-quick": "our `quick`", "ustad-default": "our `best`",
}  # fmt: skip
STANDING = (
    "Each figure is AUROC / AUPR. Ahead, level or behind: by the larger of the two standard deviations over data sets; "
    "beside it the data sets on which USTAD has the higher figure. Nov-Online is no part of that: the paper prints no "
    "figure of it. Calibrated: tail shares against a normal week in place of ranks. All figures of a row are of the "
    "data sets that USTAD was run on. By incident: each event takes the highest score of itself and its two "
    "neighbours. USTAD is without trips here; with them: “Detection with and without trips”."
)
OF = {"incidents": "events by incident"}
#: The paper's network as printed, and with another λ.
AS_PRINTED = (USTAD, "ustad-lambda")
#: What goals are asked of: those, and with trips among the features, as the preset has them.
ASKED_OF = (*AS_PRINTED, TRIPS)
#: What was asked of the paper's score at its own size.
AT_FULL_SIZE = ("numosim-la (20,000 agents)", {"events": 0.82, "agents": 0.86})
#: What the rows of the goals are of.
GOALS = (
    "USTAD is the preset `paper` without trips. USTAD with trips is of older code, which scored them too; to the "
    "preset they are inputs. Which other settings differ from the preset's, such as the batch at 20,000 agents, stands "
    "under “What the figures say about the causes”."
)
#: Points of accuracy that kinds of place may lie behind the network without uncertainty.
KINDS_BEHIND = 2.0
#: What stands behind figures of predictions where there is one data set.
ALONE = "(one data set, no verdict)"
UNITS = {"x": "km", "y": "km", "start": "min", "duration": "min", "poi": "% right"}


def lead(
    lines: list[Line], data: str, level: str, what: str = "auroc", *, method: str = USTAD
) -> tuple[float, float] | None:
    """What USTAD has minus what the best deep baseline has, of the same people, and the larger of the two standard
    deviations."""
    best = best_deep(lines, data, level, what)
    if best is None:
        return None
    ours = detection_values(of_same_people(lines, data, method, best[0]), data, method, level, what=what)
    if not ours:
        return None
    spread = float(np.std(ours, ddof=1)) if len(ours) > 1 else 0.0
    return float(np.mean(ours)) - best[1], max(spread, best[2])


def standing(results: Results) -> list[Table]:
    """Against the best deep baselines, visit rate and our own presets: a row for each data set and level."""
    rows = []
    for data in sets(results["detection"]):
        lines = of_same_people(results["detection"], data)
        for level in ("events", "incidents", "agents"):
            verdicts = [_against_deep(lines, data, level, what) for what in WHATS]
            if not all(verdicts):
                continue
            tail_shares = [_format_calibrated(lines, data, level, what) for what in WHATS]
            others = (_both(lines, data, method, level) for method in BESIDE)
            count = len(detection_values(lines, data, USTAD, level, what="auroc"))
            ours = _both(lines, data, USTAD, level) + mark_older_rule(*select_lines(lines, data=data, method=USTAD))
            rows.append(
                (
                    data,
                    OF.get(level, level),
                    str(count),
                    ours,
                    *verdicts,
                    " / ".join(tail_shares) if all(tail_shares) else "–",
                    *others,
                )
            )
    deep = (f"against the best deep baseline by {word}" for word in WHATS.values())
    heads = ("data", "level", "data sets", "USTAD", *deep, "USTAD, calibrated", *BESIDE.values())
    lines = results["detection"]
    note = add_older_rule(" ".join(filter(None, (STANDING, say_wider(lines), say_older_code(lines, NAMES)))), lines)
    return [Table("standing", "Where USTAD stands", heads, tuple(rows), note)] if rows else []


def _both(lines: list[Line], data: str, method: str, level: str) -> str:
    """Mean AUROC and AUPR of a method; a dash where it was not run."""
    values = [detection_values(lines, data, method, level, what=what) for what in WHATS]
    return " / ".join(plain(float(np.mean(v))) for v in values) if all(values) else "–"


def _against_deep(lines: list[Line], data: str, level: str, what: str) -> str:
    """Ahead of, level with or behind the best deep baseline, by the larger spread; nothing where one is missing."""
    margin, best = lead(lines, data, level, what), best_deep(lines, data, level, what)
    if margin is None or best is None:
        return ""
    count = sum(bool(detection_values(lines, data, m, level, what=what)) for m in DEEP)
    name = NAMES[best[0]] + mark_older_rule(*select_lines(lines, data=data, method=best[0]))
    figure = f"{name}{'' if count > 1 else ', the only one there'}, {plain(best[1])}"
    counts = [len(detection_values(lines, data, m, level, what=what)) for m in (USTAD, best[0])]
    if min(counts) < ENOUGH:
        return f"{figure}; {_say_few(min(counts))}, no verdict"
    wins = count_wins(lines, data, level, what)
    return f"**{_word_of(margin)}** {figure}; spread {plain(margin[1])}; higher on {wins[0]} of {wins[1]}"


def _say_few(count: int) -> str:
    return "one data set" if count == 1 else f"{count} data sets"


def say_lead(lines: list[Line], data: str, level: str, what: str) -> str:
    """The same in words for a sentence; without a verdict where there is one data set."""
    margin, best = lead(lines, data, level, what), best_deep(lines, data, level, what)
    if margin is None or best is None:
        return ""
    mark = mark_older_rule(*select_lines(lines, data=data, method=best[0]))
    figure, (_, count) = f"{NAMES[best[0]]} ({plain(best[1])}{mark})", count_wins(lines, data, level, what)
    return f"{_word_of(margin)} {figure}" if count >= ENOUGH else f"beside {figure}, on {_say_few(count)}"


def _word_of(margin: tuple[float, float]) -> str:
    return "ahead of" if margin[0] > margin[1] else "behind" if margin[0] < -margin[1] else "level with"


def count_wins(lines: list[Line], data: str, level: str, what: str) -> tuple[int, int]:
    """On how many data sets USTAD is above the deep baseline that is best on average, and how many both were run on."""
    best = best_deep(lines, data, level, what)
    methods = (USTAD, best[0] if best else "")
    ours, theirs = (
        {x["seed"]: x["result"][level][what] for x in select_lines(lines, data=data, method=m, window="day")
         if x["result"].get(level, {}).get(what) is not None}
        for m in methods
    )  # fmt: skip
    pairs = [(value, theirs[seed]) for seed, value in ours.items() if seed in theirs]
    return sum(value > other for value, other in pairs), len(pairs)


def _format_calibrated(lines: list[Line], data: str, level: str, what: str) -> str:
    """The same figure with tail shares against a normal week in place of ranks; empty where it was not measured."""
    own = [x["result"] for x in select_lines(lines, data=data, method=USTAD, window="day")]
    values = [result["calibrated"][level][what] for result in own if level in result.get("calibrated", {})]
    return plain(float(np.mean(values))) if values else ""


def goal_tables(results: Results) -> list[Table]:
    """What was asked of the reproduction, what was measured, and whether that is enough."""
    results = {**results, **{name: _with_trips(results, name) for name in ("detection", "prediction")}}
    rows = [row for method in ASKED_OF for row in (*_ahead_goals(results, method), *_prediction_goals(results, method))]
    data, limits = AT_FULL_SIZE
    for level, limit in limits.items():
        for method in ASKED_OF:
            if values := detection_values(results["detection"], data, method, level, what="auroc"):
                goal = f"{level} of {data}: AUROC ≥ {limit}"
                mark = mark_older_rule(*select_lines(results["detection"], data=data, method=method))
                mean = float(np.mean(values))
                rows.append((NAMES[method], goal, plain(mean) + mark, _say_met(mean >= limit)))
    heads = ("", "asked", "measured", "")
    note = add_older_rule(GOALS, [x for x in results["detection"] if x["method"] in ASKED_OF])
    return [Table("goals", "What was asked of the reproduction", heads, tuple(rows), note)] if rows else []


def _with_trips(results: Results, name: str) -> list[Line]:
    """Lines of an experiment and, after them, those of methods that were told of trips."""
    return [*results[name], *results.get(f"{name} with trips", [])]


def _say_met(is_met: object) -> str:
    return "met" if is_met else "missed"


def _ahead_goals(results: Results, method: str) -> list[tuple[str, ...]]:
    """Above the best deep baseline by more than the larger spread, where both were run on several data sets."""
    rows: list[tuple[str, ...]] = []
    for data in sets(results["detection"]):
        lines = of_same_people(results["detection"], data, method)
        for level in LEVELS:
            ours, best = (
                detection_values(lines, data, method, level, what="auroc"),
                best_deep(lines, data, level, "auroc"),
            )
            counts = [len(ours), len(detection_values(lines, data, best[0], level, what="auroc")) if best else 0]
            if best is None or min(counts) < ENOUGH:
                continue
            mark = mark_older_rule(*select_lines(lines, data=data, method=method))
            mean, spread = float(np.mean(ours)), max(float(np.std(ours, ddof=1)), best[2])
            goal = f"{level} of {data}: AUROC above every deep baseline by more than the spread"
            outcome = f"{plain(mean)}{mark} against {plain(best[1])} ({NAMES[best[0]]}), spread {plain(spread)}"
            rows.append((NAMES[method], goal, outcome, _say_met(mean - best[1] > spread)))
    return rows


def _prediction_goals(results: Results, method: str) -> list[tuple[str, ...]]:
    """Numbers at least as good as Dual-Tr's, kinds of place within two points of it."""
    lines = results["prediction"]
    rows: list[tuple[str, ...]] = []
    for data in sets(lines):
        own = of_same_people(lines, data, method, "dual-tr")
        for term in TERMS:
            what = "accuracy" if term == "poi" else "mae"
            values = [prediction_values(own, data, m, what, term=term) for m in (method, "dual-tr")]
            if not all(values):
                continue
            ours, theirs = (float(np.mean(v)) for v in values)
            name, outcome = TERMS[term].split(" (")[0], f"{ours:.4g} against {theirs:.4g} {UNITS[term]}"
            if term == "poi":
                goal, is_met = f"{data}: {name} within two points of Dual-Tr", ours >= theirs - KINDS_BEHIND
            else:
                goal, is_met = f"{data}: {name} predicted at least as well as by Dual-Tr", ours <= theirs
            rows.append((NAMES[method], goal, outcome, _say_met(is_met)))
    return rows


def causes(results: Results) -> list[str]:
    """For each data set: what USTAD predicts better and worse than the Transformer, and which of its scores is best."""
    paragraphs = []
    for data in sets(results["detection"]):
        sentences = [
            *_predictions(results["prediction"], data),
            *_parts(results, data),
            *say_trips(results, data),
            *_say_searched(results, data),
        ]
        if sentences:
            paragraphs.append(f"{data}: {' '.join(sentences)}")
    return paragraphs


def compare_predictions(lines: list[Line], data: str, other: str, method: str = USTAD) -> dict[str, list[str]]:
    """Features with both figures that USTAD predicts better, equally well and worse than another method: by more than
    the larger standard deviation over the data sets that both were run on. Of one data set there is no verdict."""
    lines = of_same_people(lines, data, method, other)
    sides: dict[str, list[str]] = {"better": [], "equally well": [], "worse": [], ALONE: []}
    for term in TERMS:
        what = "accuracy" if term == "poi" else "mae"
        ours, theirs = (prediction_values(lines, data, m, what, term=term) for m in (method, other))
        if ours and theirs:
            gain = (np.mean(ours) - np.mean(theirs)) * (1 if term == "poi" else -1)
            spread = max(np.std(values, ddof=1) for values in (ours, theirs)) if len(ours) > 1 else np.nan
            word = "better" if gain > spread else "worse" if gain < -spread else "equally well"
            word = word if np.isfinite(spread) else ALONE
            figures = f"{np.mean(ours):.3g} against {np.mean(theirs):.3g} {UNITS[term]}"
            sides[word].append(f"{TERMS[term].split(' (')[0]} ({figures})")
    return sides


def _predictions(lines: list[Line], data: str) -> list[str]:
    sides = compare_predictions(lines, data, "transformer")
    words = [f"{', '.join(terms)} {word}" for word, terms in sides.items() if terms]
    return [f"Beside the Transformer it predicts {'; '.join(words)}."] if words else []


def say_trips(results: Results, data: str) -> list[str]:
    """What the way to each stay adds, as one of the features of the score, on the same people."""
    lines = of_same_people(_with_trips(results, "detection"), data, TRIPS, USTAD)
    pairs = [[detection_values(lines, data, m, level, what="auroc") for m in (TRIPS, USTAD)] for level in LEVELS]
    if not all(map(all, pairs)):
        return []
    mark = mark_older_rule(*(line for line in lines if line["method"] in (TRIPS, USTAD)))
    words = []
    for level, (ours, without) in zip(LEVELS, pairs, strict=True):
        margin, best = lead(lines, data, level, method=TRIPS), best_deep(lines, data, level, "auroc")
        place = f", {_word_of(margin)} {NAMES[best[0]]}" if margin and best and len(ours) >= ENOUGH else ""
        words.append(f"{level} {np.mean(ours):.3f}{place} (without {np.mean(without):.3f})")
    how = "scored too (older code)" if score_trips(lines) else "as the preset `paper` has them"
    return [f"With trips, {how}, it has AUROC of {'; '.join(words)}{mark}."]


def _say_searched(results: Results, data: str) -> list[str]:
    """What another λ changes: kinds of place and detection."""
    methods = AS_PRINTED[::-1]
    predictions, detections = (of_same_people(results[name], data, *methods) for name in ("prediction", "detection"))
    kinds = [prediction_values(predictions, data, m, "accuracy", term="poi") for m in methods]
    areas = [[detection_values(detections, data, m, level, what="auroc") for m in methods] for level in LEVELS]
    if not all(kinds) or not all(map(all, areas)):
        return []
    figures = [f"{np.mean(kinds[0]):.1f} against {np.mean(kinds[1]):.1f} % of kinds of place right"]
    figures += [
        f"{level} {np.mean(a):.3f} against {np.mean(b):.3f}" for level, (a, b) in zip(LEVELS, areas, strict=True)
    ]
    older = any(is_of_older_rule(line) for line in select_lines(detections, data=data, method=USTAD))
    mark = f" (the other stopped by the older rule, {OLDER_MARK})" if older else ""
    return [f"With λ = {BEST_LAMBDA:g} it has {figures[0]}, and by AUROC {', '.join(figures[1:])}{mark}."]


def _parts(results: Results, data: str) -> list[str]:
    """The best single score of the same model, and the network without uncertainty, by level."""
    sentences = []
    for level in LEVELS:
        values_by_score = {how: score_values(results["scores"], data, how, level, what="auroc") for how in SCORES}
        means = {how: float(np.mean(values)) for how, values in values_by_score.items() if values}
        if not means:
            continue
        best = max(means, key=lambda how: (round(means[how], 3), how == "loss_knn"))
        without = detection_values(results["detection"], data, "ustad-none", level, what="auroc")
        bare = f", USTAD-none has {plain(float(np.mean(without)))}" if without else ""
        beside = "" if best == "loss_knn" else f"; loss & kNN {plain(means['loss_knn'])}"
        figures = f"{SCORES[best]} ({plain(means[best])}{beside})"
        sentences.append(f"Of its own scores the best for {level} is {figures}{bare}.")
        if level == "events":
            sentences.append(f"Events by PE {plain(means['pe'])}, by loss {plain(means['loss'])}.")
    return sentences
