"""Tables of injected anomalies: with and without the stays beside them, and the preset `best` beside the paper's score.

In go result lines, out come `Table`s with the paper's own figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ustad.lab.evaluation.plain_tables import Table
from ustad.lab.evaluation.result_tables import (
    ENOUGH,
    KIND_NAMES,
    SCORES,
    WHATS,
    Line,
    Results,
    format_mean,
    plain,
    read_published,
    select_lines,
    sets,
    slug,
)

#: What the rows of the paper are of, under tables of injections.
OF_SIMLA = (
    "Rows of the paper are of its own SimLA. It does not say how many events it changed, nor whether it labelled the "
    "stays beside them."
)
#: How injected events are counted, as the page calls it.
PARTS = {"all": "all", "incidents": "by incident", "changed": "changed only"}


def injection_tables(lines: list[Line]) -> list[Table]:
    """Each kind of injection, and all of them, by every score; the paper's figures beneath."""
    return [_injection_table(lines, data) for data in sets(lines)]


def _injection_table(lines: list[Line], data: str) -> Table:
    hows = ("loss", "eu", "knn", "loss_knn")
    rows = []
    for kind, name in KIND_NAMES.items():
        values = [injection_values(lines, data, kind, how, what=what) for how in hows for what in ("auroc", "ap")]
        rows.append((name, *(format_mean(v, 3) for v in values)))
        rows += published_injections(kind, hows)
    heads = ("injection", *(f"{SCORES[how]} {what}" for how in hows for what in ("AUROC", "AUPR")))
    return Table(f"injections-{slug(data)}", f"Injected anomalies, events, {data}", heads, tuple(rows), OF_SIMLA)


def published_injections(kind: str, hows: Iterable[str]) -> list[tuple[str, ...]]:
    """The paper's row of a kind of injection: it has figures of one data set alone."""
    ((data, paper),) = read_published()["injections"].items()
    if kind not in paper:
        return []
    return [(f"*{KIND_NAMES[kind]}, {data}, paper*", *(plain(v) for how in hows for v in paper[kind][how]))]


def injection_values(lines: list[Line], data: str, kind: str, how: str, *, what: str) -> list[float]:
    return [x["result"]["scores"][how][what] for x in select_lines(lines, data=data, kind=kind)]


def changed_tables(lines: list[Line]) -> list[Table]:
    """Injections again, without the stays that are labelled only because they stand beside a changed one."""
    tables = []
    for data in sets(lines):
        own = [x for x in select_lines(lines, data=data) if "changed" in x["result"]]
        rows = []
        for kind, name in KIND_NAMES.items():
            areas = [x["result"]["changed"]["scores"] for x in select_lines(own, kind=kind)]
            if areas:
                values = ([a[how][what] for a in areas] for how in areas[0] for what in WHATS)
                rows.append((name, *map(format_mean, values)))
                rows += published_injections(kind, areas[0])
        if rows:
            scores = own[0]["result"]["changed"]["scores"]
            heads = ("injection", *(f"{SCORES[how]} {word}" for how in scores for word in WHATS.values()))
            title = f"Injected anomalies, changed stays only, {data}"
            tables.append(Table(f"changed-{slug(data)}", title, heads, tuple(rows), OF_SIMLA))
    return tables


def best_injection_tables(results: Results) -> list[Table]:
    """The paper's score and the preset `best` on the same injections, counted three ways, as far as they were."""
    paper, ours, tables = results["injections"], results.get("injections of best", []), []
    for data in sets(ours):
        rows, both = [], (*select_lines(paper, data=data), *select_lines(ours, data=data))
        parts = {
            part: words for part, words in PARTS.items() if part == "all" or any(part in x["result"] for x in both)
        }
        for kind, name in KIND_NAMES.items():
            columns = (
                [_areas(x, part, how) for x in select_lines(lines, data=data, kind=kind) if _is_told(x, part)]
                for part in parts
                for lines, how in ((paper, "loss_knn"), (ours, "score"))
            )
            rows.append((name, *(format_mean(c, 3) for pair in columns for c in _split(pair))))
        heads = (
            "injection",
            *(f"{who}, {words} {word}" for words in parts.values() for who in ("loss & kNN", "`best`")
              for word in WHATS.values()),
        )  # fmt: skip
        title = f"Injected anomalies, the preset `best` beside the paper's score, {data}"
        note = f"{_say_counts(both, parts)} {_say_behind(paper, ours, data)}".rstrip()
        tables.append(Table(f"injections-best-{slug(data)}", title, heads, tuple(rows), note))
    return tables


def _say_counts(lines: Sequence[Line], parts: dict[str, str]) -> str:
    """How many data sets each way of counting is of: cells from before a way do not have it."""
    counts = (f"{words} {len({x['seed'] for x in lines if _is_told(x, part)})}" for part, words in parts.items())
    return f"Data sets: {', '.join(counts)}."


def _say_behind(paper: list[Line], ours: list[Line], data: str) -> str:
    """Kinds of injection on whose changed stays `best` has the lower AUROC, by more than the larger spread."""
    texts = []
    for kind, name in KIND_NAMES.items():
        lines = (select_lines(paper, data=data, kind=kind), select_lines(ours, data=data, kind=kind))
        theirs, own = (
            [_areas(x, "changed", how)[0] for x in part if "changed" in x["result"]]
            for part, how in zip(lines, ("loss_knn", "score"), strict=True)
        )
        if min(len(theirs), len(own)) >= ENOUGH:
            spread = max(np.std(values, ddof=1) for values in (theirs, own))
            if np.mean(theirs) - np.mean(own) > spread:
                texts.append(f"{name} ({plain(float(np.mean(own)))} against {plain(float(np.mean(theirs)))})")
    return f"By AUROC of changed stays `best` is behind the paper's score on {', '.join(texts)}." if texts else ""


def _is_told(line: Line, part: str) -> bool:
    """Whether a line was counted that way; older ones were not by incident."""
    return part == "all" or part in line["result"]


def _areas(line: Line, part: str, how: str) -> tuple[float, float]:
    areas = (line["result"] if part == "all" else line["result"][part])["scores"][how]
    return areas["auroc"], areas["ap"]


def _split(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in pairs], [b for _, b in pairs]
