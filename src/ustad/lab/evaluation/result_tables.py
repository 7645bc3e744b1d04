"""Tables from result lines: our figures as mean ± standard deviation over seeds, the published ones beside them.

In go the lines that `experiments.read_results` returns; out come `Table`s that know Markdown and CSV.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from ustad.lab.baselines.ustad_variants import BEST_LAMBDA
from ustad.lab.evaluation.code_states import say_older_code, say_one_draw
from ustad.lab.evaluation.plain_tables import Table, without_empty
from ustad.lab.evaluation.stopping import add_older_rule, count_ended

Line = dict[str, Any]
Results = dict[str, list[Line]]
#: Of fewer training weeks: patience as long in steps as for all of them, or fewer steps (as long in epochs).
Steps = Literal["equal", "fewer"]
NAMES = {
    "ustad-plain": "USTAD", "dual-tr": "Dual-Tr", "transformer": "Transformer", "lightpath": "LightPath", "mlp": "MLP",
    "lstm": "LSTM", "ctle": "CTLE", "ibat": "IBAT", "gm-vsae": "GM-VSAE", "atrom": "ATROM", "random": "random",
    "sensitive-hue": "SensitiveHUE", "nov-online": "Nov-Online", "visit-rate": "visit rate",
    "visit-rate-causal": "visit rate, causal", "visit-rate-category": "visit rate by kind of place",
    "visit-rate-category-hour": "visit rate by kind and hour", "distance": "distance to own places",
    "ustad-au": "USTAD-AU", "ustad-eu": "USTAD-EU", "ustad-none": "USTAD-none", "rejection": "USTAD with rejection",
    "ustad-minmax": "USTAD, numbers in [0, 1]", "ustad-lambda": f"USTAD, λ = {BEST_LAMBDA:g}",
    "ustad-weeks": "USTAD after one week beside all", "ustad-weeks-between": "USTAD after two weeks",
    "ustad-default": "preset `best` (ours)", "ustad-best": "preset `best` (ours)",
    "ustad-quick": "preset `quick` (ours)", "ustad-paper": "preset `paper`",
}  # fmt: skip
NAMES |= {f"{method}-trips": f"{NAMES[method]} with trips" for method in (
    "mlp", "lstm", "transformer", "lightpath", "dual-tr", "ctle", "sensitive-hue", "nov-online", "ustad-none",
)}  # fmt: skip
NAMES["ustad-trips"] = "USTAD with trips"
SCORES = {
    "pe": "PE", "loss": "loss", "pe_au_eu": "PE + AU + EU", "loss_knn": "loss & kNN", "knn": "kNN", "eu": "EU",
}  # fmt: skip
TERMS = {"x": "x (km)", "y": "y (km)", "start": "start (min)", "duration": "duration (min)", "poi": "kind of place"}
KIND_NAMES = {
    "spatial": "spatial", "temporal": "temporal", "spatial_temporal": "spatial & temporal", "swap": "swap",
    "permutation": "permutation", "high_density": "high density", "all": "all types",
}  # fmt: skip
#: Baselines that learn a network and that the paper prints figures of: what USTAD is compared with.
DEEP = ("ctle", "gm-vsae", "atrom", "sensitive-hue", "transformer")
LEVELS = ("events", "agents")
WHATS = {"auroc": "AUROC", "ap": "AUPR"}
#: Of fewer data sets (each with other people) no spread is said, and nothing is decided.
ENOUGH = 5
#: Decimals of errors in km and minutes, and of percentages; AUROC and AUPR have three.
ERROR_DIGITS, SHARE_DIGITS = 2, 1
ENDED_HEAD = "stopped by itself"
FEWER_SEEDS = "A row of fewer seeds is of fewer runs; the improvement and the verdicts compare the same ones."
IMPROVEMENT = (
    "improvement: of USTAD over the best deep baseline, as the paper computes it. The columns `paper` are of its own "
    "data. It prints no figure of Nov-Online, which is therefore no part of the improvement."
)


@cache
def read_published() -> dict[str, Any]:
    """The paper's tables."""
    return yaml.safe_load((Path(__file__).parent / "published.yaml").read_text())


# ---------------------------------------------------------------------------------------------- numbers
def format_mean(values: Iterable[float | None], digits: int = 3) -> str:
    """`0.734 ± 0.016` over data sets; of fewer than five no spread, `0.734 (n = 3)` or, of one, `0.734`; a dash for
    none."""
    numbers = np.array([v for v in values if v is not None], float)
    if not len(numbers):
        return "–"
    return f"{numbers.mean():.{digits}f}{_say_spread(numbers, f'.{digits}f')}"


def spread_of(values: Sequence[float] | np.ndarray) -> float | None:
    """The sample standard deviation, where there are enough data sets for one."""
    return float(np.std(values, ddof=1)) if len(values) >= ENOUGH else None


def _say_spread(numbers: np.ndarray, form: str) -> str:
    """± and the standard deviation, where there are enough numbers for one; else how many they are."""
    if (spread := spread_of(numbers)) is not None:
        return f" ± {spread:{form}}"
    return f" (n = {len(numbers)})" if len(numbers) > 1 else ""


def plain(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def sets(lines: list[Line]) -> list[str]:
    """Data sets in the order in which they come."""
    return list(dict.fromkeys(line["data"] for line in lines))


def base_name(lines: list[Line], data: str) -> str:
    """The data set's name without its size: what the paper's tables know."""
    return next(line["source"]["name"] for line in lines if line["data"] == data)


def select_lines(lines: list[Line], **conditions: Any) -> list[Line]:
    return [line for line in lines if all(line.get(k) == v for k, v in conditions.items())]


def pooled_words(lines: list[Line], data: str) -> str:
    """Of how many data sets a figure is, for the end of a caption."""
    n = count_seeds(select_lines(lines, data=data))
    return f"; {n} data sets together" if n > 1 else "; one data set"


def count_seeds(lines: list[Line]) -> int:
    """Data sets (or runs on one) that a mean is of."""
    return len({line["seed"] for line in lines})


def after(lines: list[Line], steps: Steps) -> list[Line]:
    """Lines by weeks of training: all of the weeks and, of fewer, those with patience as long in steps or in
    epochs (fewer steps)."""
    with_weeks = [line for line in lines if "weeks" in line]
    most = max((line["weeks"] for line in with_weeks), default=0)
    return [line for line in with_weeks if line["weeks"] == most or ("steps" in line) == (steps == "equal")]


# ----------------------------------------------------------------------------------------------- tables
def prediction_tables(lines: list[Line]) -> list[Table]:
    return [_prediction_table(lines, data) for data in sets(lines)]


def _prediction_table(lines: list[Line], data: str) -> Table:
    columns = [(what, term) for what in ("mae", "mape") for term in ("x", "y", "start", "duration")]
    columns.append(("accuracy", "poi"))
    heads = ["method", *(f"{'MAE' if w == 'mae' else 'MAPE'} {t}" for w, t in columns[:-1]), "accuracy %", ENDED_HEAD]
    digits = [ERROR_DIGITS if what == "mae" else SHARE_DIGITS for what, _ in columns]
    paper = read_published()["prediction"].get(base_name(lines, data), {})
    rows = []
    for method in [*dict.fromkeys(x["method"] for x in select_lines(lines, data=data)), "rejection"]:
        values = [prediction_values(lines, data, method, what, term=term) for what, term in columns]
        if not any(values):
            continue
        own = select_lines(lines, data=data, method="ustad-plain" if method == "rejection" else method)
        rows.append((NAMES[method], *map(format_mean, values, digits), count_ended(own)))
        if method in paper:
            rows.append((f"*{NAMES[method]}, paper*", *map(plain, paper[method], digits), "–"))
    note = (
        "x, y in km, start and duration in minutes; MAPE leaves out targets of zero. Rows of the paper are of its own "
        "data and in the units it prints."
    )
    note = add_older_rule(note, select_lines(lines, data=data))
    table = Table(f"prediction-{slug(data)}", f"Masked prediction, {data}", tuple(heads), tuple(rows), note)
    return without_empty(table)


def of_same_people(lines: list[Line], data: str, *methods: str) -> list[Line]:
    """The lines of those seeds of a data set that each method (USTAD, if none is named) was run on."""
    own = select_lines(lines, data=data)
    seeds = [{x["seed"] for x in select_lines(own, method=method)} for method in methods or ("ustad-plain",)]
    return [x for x in own if x["seed"] in set.intersection(*seeds)]


def prediction_values(lines: list[Line], data: str, method: str, what: str, *, term: str) -> list[float]:
    """One figure per seed; `rejection` is USTAD without its most uncertain five per cent."""
    rejects = method == "rejection"
    term_lines = select_lines(lines, data=data, method="ustad-plain" if rejects else method)
    rows = [row for line in term_lines for row in line["result"]["rows"] if row["term"] == term]
    return [row[what] for row in rows if (row["rejected"] > 0) == rejects and what in row]


def detection_tables(lines: list[Line]) -> list[Table]:
    tables = [t for data in sets(lines) for t in (_detection_table(lines, data), _recurrence_table(lines, data))]
    return [table for table in map(without_empty, tables) if len(table.heads) > 1]


def _detection_table(lines: list[Line], data: str) -> Table:
    heads = ["method", "seeds"]
    for level in LEVELS:
        heads += [f"{level} AUROC", "paper", f"{level} AUPR", "paper"]
        heads += ["by incident AUROC", "by incident AUPR"] if level == "events" else []
    heads.append(ENDED_HEAD)
    paper = read_published()["detection"].get(base_name(lines, data), {})
    rows = []
    for method, window in dict.fromkeys((x["method"], x["window"]) for x in select_lines(lines, data=data)):
        row = [NAMES[method] + (", past only" if window == "past" else "")]
        row.append(str(len(select_lines(lines, data=data, method=method, window=window))))
        for level in LEVELS:
            for i, what in enumerate(("auroc", "ap")):
                published_values = paper.get(method, {}).get(level) if window == "day" else None
                row += [
                    format_mean(detection_values(lines, data, method, level, what=what, window=window)),
                    plain(published_values[i]) if published_values else "–",
                ]
            if level == "events":
                figures = (detection_values(lines, data, method, "incidents", what=w, window=window) for w in WHATS)
                row += [format_mean(values, 3) for values in figures]
        row.append(count_ended(select_lines(lines, data=data, method=method, window=window)))
        rows.append(tuple(row))
    improvement, note = _improvement(lines, data), ""
    if any("%" in cell for cell in improvement):
        rows.append(improvement)
        note = IMPROVEMENT
    if len({row[1] for row in rows if row[1]}) > 1:
        note = f"{note} {FEWER_SEEDS}".strip()
    note = add_older_rule(note, select_lines(lines, data=data))
    own = select_lines(lines, data=data)
    note = " ".join(filter(None, (note, say_one_draw(own), say_older_code(own, NAMES))))
    return Table(f"detection-{slug(data)}", f"Detection, {data}", tuple(heads), tuple(rows), note)


def detection_values(
    lines: list[Line], data: str, method: str, level: str, *, what: str, window: str = "day"
) -> list[float]:
    rows = select_lines(lines, data=data, method=method, window=window)
    return [x["result"][level][what] for x in rows if x["result"].get(level, {}).get(what) is not None]


def best_deep(lines: list[Line], data: str, level: str, what: str) -> tuple[str, float, float] | None:
    """The most competitive deep baseline on the people that USTAD was run on: its name, mean and standard deviation
    over seeds."""
    same = {m: of_same_people(lines, data, "ustad-plain", m) for m in DEEP}
    values_by_method = {m: detection_values(same[m], data, m, level, what=what) for m in DEEP}
    values_by_method = {m: v for m, v in values_by_method.items() if v}
    if not values_by_method:
        return None
    best = max(values_by_method, key=lambda m: float(np.mean(values_by_method[m])))
    values = np.array(values_by_method[best])
    return best, float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _improvement(lines: list[Line], data: str) -> tuple[str, ...]:
    """Of USTAD over the best deep baseline, of the same people."""
    lines, row = of_same_people(lines, data), ["**improvement**", ""]
    for level in LEVELS:
        for what in WHATS:
            best = best_deep(lines, data, level, what)
            same = of_same_people(lines, data, "ustad-plain", best[0]) if best else []
            ours = detection_values(same, data, "ustad-plain", level, what=what)
            text = f"{100 * (np.mean(ours) - best[1]) / best[1]:+.1f} % ({NAMES[best[0]]})" if ours and best else "–"
            row += [text, ""]
        row += ["", ""] if level == "events" else []
    return (*row, "")


def _recurrence_table(lines: list[Line], data: str) -> Table:
    """AUROC and AUPR of recurring and of non-recurring anomalies against the ordinary rest."""
    kinds = ("recurring", "non-recurring")
    heads = ["method", *(f"{level} {kind} {what}" for level in LEVELS for kind in kinds for what in ("AUROC", "AUPR"))]
    rows = []
    for method in dict.fromkeys(x["method"] for x in select_lines(lines, data=data)):
        results = [x["result"] for x in select_lines(lines, data=data, method=method, window="day")]
        row = [NAMES[method]]
        for level in LEVELS:
            for kind in kinds:
                row += [format_mean([r.get(level, {}).get(kind, {}).get(what) for r in results]) for what in WHATS]
        rows.append(tuple(row))
    title = f"Detection of recurring and non-recurring anomalies apart, {data}"
    note = say_one_draw(select_lines(lines, data=data))
    return Table(f"recurrence-{slug(data)}", title, tuple(heads), tuple(rows), note)


def score_tables(lines: list[Line]) -> list[Table]:
    heads = ("data", "score", *(f"{level} {what}" for level in LEVELS for what in ("AUROC", "AUPR")))
    rows = []
    for data in sets(lines):
        for how in SCORES:
            values = [score_values(lines, data, how, level, what=what) for level in LEVELS for what in ("auroc", "ap")]
            rows.append((data, SCORES[how], *map(format_mean, values)))
    return [Table("scores", "Scores of the same model", heads, tuple(rows))] if rows else []


def score_values(lines: list[Line], data: str, how: str, level: str, *, what: str) -> list[float]:
    values = [x["result"][how].get(level, {}).get(what) for x in select_lines(lines, data=data)]
    return [v for v in values if v is not None]


def training_size_tables(lines: list[Line]) -> list[Table]:
    """AU and EU per weeks of training, in the network's own units: mean and spread over seeds."""
    titles: dict[Steps, tuple[str, str]] = {
        "equal": ("training-size", "AU and EU by weeks of training, patience as long in steps"),
        "fewer": ("training-size-epochs", "AU and EU by weeks of training, patience as long in epochs (fewer steps)"),
    }
    return [
        table
        for steps, (name, title) in titles.items()
        if (table := _training_size_table(after(lines, steps), name, title)) is not None
    ]


def _training_size_table(lines: list[Line], name: str, title: str) -> Table | None:
    if len({line["weeks"] for line in lines}) < 2:
        return None
    features = (f"{what} {TERMS[t].split(' (')[0]}" for t in TERMS for what in ("AU", "EU"))
    heads = ("data", "weeks", "data sets", "steps", "best validation loss", *features)
    rows = []
    for data in sets(lines):
        paper = read_published()["training_size"].get(base_name(lines, data), {})
        own = _seeds_of_all_weeks(select_lines(lines, data=data))
        for weeks in (1, 2, 3):
            values = [size_values(own, data, weeks, term, what=what) for term in TERMS for what in ("au", "eu")]
            if any(values):
                trainings = _say_trainings(select_lines(own, weeks=weeks))
                rows.append((data, str(weeks), *trainings, *(format_scientific(v) for v in values)))
            if weeks in paper:
                row = (f"{v:.2e}" for term in TERMS for v in paper[weeks][term])
                rows.append((f"*{data.split(' (')[0]}, paper*", str(weeks), "–", "–", "–", *row))
    note = (
        "Rows of one city are of the same people. Where steps differ, the length of training changes with the weeks. "
        "**Other units**: ours are squared spreads of scaled numbers (of one, half the central 68 %) and nats; the "
        "paper does not say its own, and its figures fit numbers between 0 and 1. Compare directions, not values."
    )
    return Table(name, title, heads, tuple(rows), note)


def _seeds_of_all_weeks(lines: list[Line]) -> list[Line]:
    """Lines of the seeds that one week and all weeks were trained with: two weeks are a row between, where run."""
    ends = (min(x["weeks"] for x in lines), max(x["weeks"] for x in lines))
    common = set.intersection(*({x["seed"] for x in lines if x["weeks"] == weeks} for weeks in ends))
    return [x for x in lines if x["seed"] in common]


def _say_trainings(lines: list[Line]) -> tuple[str, str, str]:
    """Number of data sets, mean steps and mean best validation loss."""
    runs = [x["training"] for x in lines if x.get("training")]
    if not all("best_loss" in run for run in runs) or not runs:
        return str(count_seeds(lines)), "–", "–"
    steps, loss = (float(np.mean([run[name] for run in runs])) for name in ("steps", "best_loss"))
    return str(count_seeds(lines)), f"{steps:,.0f}", f"{loss:.2f}"


def size_values(lines: list[Line], data: str, weeks: int, term: str, *, what: str) -> list[float]:
    rows = select_lines(lines, data=data, weeks=weeks)
    return [x["result"]["terms"][term][what] for x in rows if term in x["result"]["terms"]]


def format_scientific(values: list[float]) -> str:
    """As `format_mean`, for numbers of any size: `1.23e-05 ± 4.5e-07`."""
    return f"{np.mean(values):.2e}{_say_spread(np.array(values), '.1e')}" if values else "–"


def epistemic_tables(lines: list[Line]) -> list[Table]:
    """How EU goes with the distance to the training events: correlations, and medians at both ends of EU."""
    columns = {
        "pearson": "r of EU and distance",
        "pearson_tail": "r among the 5 % highest EU",
        "median_high_eu": "median distance, 5 % highest EU",
        "median_low_eu": "median distance, 5 % lowest EU",
    }
    rows = []
    for data in sets(lines):
        results = [line["result"] for line in select_lines(lines, data=data)]
        rows.append((data, str(len(results)), *(format_mean([result[key] for result in results]) for key in columns)))
    note = "distance: to the nearest training events, in the network's space; the paper prints pictures of it only"
    heads = ("data", "seeds", *columns.values())
    return [Table("epistemic", "EU and the distance to the training events", heads, tuple(rows), note)] if rows else []


def all_tables(results: Results) -> dict[str, list[Table]]:
    """Tables by experiment."""
    return {
        "prediction": prediction_tables(results["prediction"]),
        "detection": detection_tables(results["detection"]),
        "uncertainty": training_size_tables(results["uncertainty"]),
        "scores": score_tables(results["scores"]),
        "epistemic": epistemic_tables(results["epistemic"]),
    }


def slug(data: str) -> str:
    """A data set's label as part of a file name."""
    return "".join(c if c.isalnum() else "-" for c in data.lower()).strip("-").replace("--", "-")
