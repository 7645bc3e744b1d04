"""Tables that say how even a comparison is: events counted three ways, how long each network was trained.

In go result lines, out come `Table`s.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ustad.lab.evaluation.code_states import say_one_draw
from ustad.lab.evaluation.experiments import PAPER, asked_by, find_methods
from ustad.lab.evaluation.fitted_models import WHOLE_PRESETS
from ustad.lab.evaluation.plain_tables import Table
from ustad.lab.evaluation.result_tables import (
    NAMES,
    Line,
    Results,
    detection_values,
    format_mean,
    select_lines,
    sets,
    slug,
)
from ustad.lab.evaluation.stopping import (
    OLDER_MARK,
    add_older_rule,
    count_ended,
    has_ended,
    is_of_older_rule,
    list_stages,
    sum_stages,
)

#: Experiments whose lines say how a network was trained.
WITH_NETWORKS = ("detection", "prediction", "detection with trips", "prediction with trips")
WAYS = {"events": "own score", "incidents": "incident's score", "meant": "meant events only"}
THREE_WAYS = (
    "Own score: every labelled event. Incident's score: each event takes the highest score of itself, the event before "
    "and the one after, since an inserted visit shortens its neighbours, which are labelled too. Meant "
    "events only: those neighbours are left out. NUMOSIM's visit rate takes the neighbours' maximum as published: its "
    "figures there are those by incident here."
)


def three_ways_tables(lines: list[Line]) -> list[Table]:
    """AUROC and AUPR of every method's events, by their own score, their incident's, and meant ones only."""
    tables = []
    for data in sets(lines):
        rows = []
        for method in dict.fromkeys(x["method"] for x in select_lines(lines, data=data, window="day")):
            values = [detection_values(lines, data, method, way, what=what) for way in WAYS for what in ("auroc", "ap")]
            if values[2]:
                rows.append((NAMES[method], str(len(values[2])), *(format_mean(v, 3) for v in values)))
        if rows:
            own = select_lines(lines, data=data)
            heads = ("method", "data sets", *(f"{name} {what}" for name in WAYS.values() for what in ("AUROC", "AUPR")))
            title, note = (
                f"Events counted three ways, {data}",
                " ".join(filter(None, (THREE_WAYS, say_wider(own), say_one_draw(own)))),
            )
            tables.append(Table(f"three-ways-{slug(data)}", title, heads, tuple(rows), note))
    return tables


def say_wider(lines: list[Line]) -> str:
    """Which of our presets were counted by more than neighbours, before there was one rule for all."""
    own = [x for x in lines if x["method"] in WHOLE_PRESETS and "incidents" in x["result"]]
    wider = dict.fromkeys(NAMES[x["method"]] for x in own if "rule" not in x["result"]["incidents"])
    names = ", ".join(wider)
    return f"Older cells, whose events take the score of their whole incident there: {names}." if wider else ""


def training_tables(results: Results) -> list[Table]:
    """How each network was trained: means over its runs, and how many of them stopped by themselves."""
    rows = []
    for data, method, lines in _trainings(results):
        runs = [sum_stages(line["training"]) for line in lines]
        means = [format_number(np.mean([run[key] for run in runs])) for key in ("epochs", "steps")]
        targets = [run["targets"] for run in runs if "targets" in run]
        a_step = [run["targets"] / run["steps"] for run in runs if "targets" in run and run["steps"]]
        seconds, losses = [run["seconds"] for run in runs], [run["best_loss"] for run in runs]
        rows.append(
            (data, NAMES[method], *means, format_number(np.mean(targets)) if targets else "–",
             f"{np.mean(a_step):,.0f}" if a_step else "–", format_mean(losses),
             f"{np.mean(seconds):.0f}", count_ended(lines))
        )  # fmt: skip
    heads = (
        "data", "method", "epochs", "steps", "targets", "targets a step", "best validation loss", "seconds",
        "stopped by itself",
    )  # fmt: skip
    note = (
        "Targets: events (or days) that were asked about in training. Of a step they are not the same for all: a batch "
        "is of windows, days or single events, and a method asks about all of them or a share. "
        "Losses of different methods are of different things and compare with nothing but themselves. What did not "
        "stop by itself was cut by the time it was given."
    )
    lines = [line for _, _, own in _trainings(results) for line in own]
    in_stages = dict.fromkeys(NAMES[line["method"]] for line in lines if len(list_stages(line["training"])) > 1)
    note += f" Of {', '.join(in_stages)} two trainings, one after the other, are added up." if in_stages else ""
    on_cpu = _say_on_cpu(lines)
    note = add_older_rule(f"{note} {on_cpu}".rstrip(), lines)
    return [Table("training", "How long each network was trained", heads, tuple(rows), note)] if rows else []


def _say_on_cpu(lines: list[Line]) -> str:
    """Which networks were trained without a GPU, and so in full precision, where others had one."""
    if len({line.get("device") for line in lines}) < 2:
        return ""
    names: dict[str, list[str]] = {}
    for data, method in dict.fromkeys((line["data"], line["method"]) for line in lines):
        runs = select_lines(lines, data=data, method=method)
        count = sum(line.get("device") == "cpu" for line in runs)
        if count:
            names.setdefault(data, []).append(
                NAMES[method] + (f" ({count} of {len(runs)})" if count < len(runs) else "")
            )
    texts = "; ".join(f"on {data} {' · '.join(methods)}" for data, methods in names.items())
    return f"Trained on a CPU, so in fp32 where a GPU has bf16: {texts}."


def _trainings(results: Results) -> Iterator[tuple[str, str, list[Line]]]:
    """Data set, method, and a line for each seed that its network was trained with."""
    lines = [x for name in WITH_NETWORKS for x in results.get(name, []) if x.get("training")]
    for data in sets(lines):
        for method in dict.fromkeys(x["method"] for x in select_lines(lines, data=data)):
            runs = {x["seed"]: x for x in select_lines(lines, data=data, method=method)}
            yield data, method, list(runs.values())


def seconds_tables(results: Results) -> list[Table]:
    """Seconds to fit each method, and to score and predict the test weeks: the median over seeds."""
    lines = [x for name in WITH_NETWORKS for x in results.get(name, []) if "fit_seconds" in x]
    rows = []
    for data in sets(lines):
        for method in dict.fromkeys(x["method"] for x in select_lines(lines, data=data)):
            runs = [x for x in select_lines(lines, data=data, method=method) if x.get("window") != "past"]
            fit, rest = zip(
                *(method_seconds(select_lines(runs, seed=seed)) for seed in {x["seed"] for x in runs}), strict=True
            )
            machines = " and ".join(sorted({"GPU" if x["device"] == "cuda" else "CPU" for x in runs}))
            rows.append((data, NAMES[method], machines, f"{np.median(fit):.1f}", f"{np.median(rest):.1f}"))
    heads = ("data", "method", "on", "fit s", "score, predict and evaluate s")
    note = "other processes shared the machine, so these are upper bounds"
    return [Table("seconds", "Seconds by method", heads, tuple(rows), note)] if rows else []


def method_seconds(lines: list[Line]) -> tuple[float, float]:
    """Seconds of fitting and of the rest in one method's cells of one seed."""
    fit = sum(x["fit_seconds"] or 0.0 for x in lines if x["seconds"] >= (x["fit_seconds"] or 0.0))
    return fit, sum(x["seconds"] for x in lines) - fit


def find_unfinished(results: Results) -> list[str]:
    """Networks that were cut before they stopped by themselves, by data set and method."""
    return [
        f"{NAMES[method]} on {data} ({sum(not has_ended(line) for line in lines)} of {len(lines)})"
        for data, method, lines in _trainings(results)
        if not all(map(has_ended, lines))
    ]


def say_older_rule(lines: list[Line]) -> str:
    """Which networks stopped by the older rule, by data set, with their seeds where others have the newer one."""
    names: dict[str, list[str]] = {}
    for data in sets(lines):
        own = [x for x in select_lines(lines, data=data) if x.get("training")]
        for method in dict.fromkeys(x.get("method", "ustad-plain") for x in own):
            runs = [x for x in own if x.get("method", "ustad-plain") == method]
            older = sorted({x["seed"] for x in runs if is_of_older_rule(x)})
            if older:
                seeds = "" if all(map(is_of_older_rule, runs)) else f" (seeds {', '.join(map(str, older))})"
                names.setdefault(data, []).append(NAMES[method] + seeds)
    texts = "; ".join(f"on {data} {' · '.join(own_names)}" for data, own_names in names.items())
    return f"Stopped by the older rule ({OLDER_MARK}): {texts}." if texts else ""


def missing_methods(results: Results) -> list[str]:
    """What no line answers: by experiment and data sets, the methods of the plan that were not run there.

    Data sets with true stays alone; an experiment that was run nowhere was not asked for.
    """
    names = [name for name in PAPER if results.get(name)]
    all_data = sets([line for name in names for line in results[name]])
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name in names:
        lines = [line for part in ("", " with trips", " of best") for line in results.get(name + part, [])]
        for data in all_data:
            methods_run = {asked_by(line) for line in select_lines(lines, data=data)}
            methods = tuple(NAMES[method] for method in find_methods(name) if method not in methods_run)
            words = methods if methods_run else ("all of it",)
            if methods:
                groups.setdefault((name, words), []).append(data)
    return [f"{name} on {', '.join(data)}: {' · '.join(methods)}" for (name, methods), data in groups.items()]


def format_number(value: float) -> str:
    """`1,234` or `1.23 M`."""
    return f"{value:,.0f}" if value < 1e6 else f"{value / 1e6:,.2f} M"
