"""What `ustad lab benchmark` prints: the tables of one public data set, and what it takes to cite them.

In go the results of a directory, out comes a page of Markdown: how many people and stays, which seeds and version, and
the tables.
"""

from __future__ import annotations

from collections.abc import Iterable

from ustad.lab.evaluation.fairness_tables import three_ways_tables
from ustad.lab.evaluation.injection_tables import best_injection_tables, changed_tables, injection_tables
from ustad.lab.evaluation.plain_tables import Table, without_empty
from ustad.lab.evaluation.public_data import Benchmark
from ustad.lab.evaluation.result_tables import (
    KIND_NAMES,
    Line,
    Results,
    detection_tables,
    select_lines,
    sets,
    slug,
)

#: Levels of a detection line, and what each counts.
LEVEL_WORDS = {"agents": "people", "events": "stays"}
#: What a mean is over, where there are several seeds: unlike simulated people, public ones are the same for every seed.
SPREAD = (
    "Means, and ± (sample standard deviation, from five seeds on), are over trainings on one data set{injected}: they "
    "say nothing of other people."
)


def write_page(benchmark: Benchmark, results: Results) -> str:
    """The page of a benchmark whose cells were run."""
    lines = [*results[benchmark.experiment], *results.get(f"{benchmark.experiment} of best", [])]
    is_detection = benchmark.experiment == "detection"
    tables = find_detection_tables(lines) if is_detection else find_injection_tables(results, lines)
    spread = SPREAD.format(injected="" if is_detection else ", each with other injected stays")
    notes = [f"{t.note} {spread}".lstrip() if has_spread(t) else t.note for t in tables]
    parts = (f"## {t.title}\n\n{t.markdown()}\n{note}".rstrip() for t, note in zip(tables, notes, strict=True))
    return "\n\n".join([f"# {benchmark.title}", describe_run(lines), *parts]) + "\n"


def has_spread(table: Table) -> bool:
    """Whether a cell is a mean over several seeds."""
    return any(mark in cell for row in table.rows for cell in row for mark in ("±", "(n = "))


def find_detection_tables(lines: list[Line]) -> list[Table]:
    return [*detection_tables(lines)[:1], *three_ways_tables(lines)]


def find_injection_tables(results: Results, lines: list[Line]) -> list[Table]:
    """How many stays were injected, the paper's scores, and our preset beside the paper's."""
    paper = results["injections"]
    best = map(without_empty, best_injection_tables(results))
    return [*count_tables(lines), *injection_tables(paper), *changed_tables(paper), *best]


def describe_run(lines: list[Line]) -> str:
    """People, stays and how many of them are anomalous; seeds, size of the networks, and versions."""
    sentences = [f"Data: {_list_counts(line['source'] for line in lines)}."] if lines else []
    for level, word in LEVEL_WORDS.items():
        figures = [line["result"][level] for line in lines if level in line["result"]]
        counts = dict.fromkeys(f"{one['n']:,} {word}, {one['positives']:,} of them anomalous" for one in figures)
        if counts:
            sentences.append(f"Scored: {' or '.join(counts)}.")
    seeds = sorted({line["seed"] for line in lines})
    sentences.append(f"Seed{'s' if len(seeds) > 1 else ''}: {', '.join(map(str, seeds))}.")
    sentences.append(f"Size: {', '.join(dict.fromkeys(line['budget']['name'] for line in lines))}.")
    versions = dict.fromkeys(f"ustad {line['versions']['ustad']}, torch {line['versions']['torch']}" for line in lines)
    return " ".join([*sentences, f"Made with {'; '.join(versions)}."])


def _list_counts(sources: Iterable[Line]) -> str:
    """People, where the lines say how many (older ones do not), and stays."""
    counts = (
        ", ".join(
            f"{source[key]:,} {word}" for key, word in (("people", "people"), ("events", "stays")) if key in source
        )
        for source in sources
    )
    return " or ".join(dict.fromkeys(counts))


def count_tables(lines: list[Line]) -> list[Table]:
    """How many stays each kind of injection was scored among, and how many it labelled and changed."""
    tables = []
    for data in sets(lines):
        rows = []
        for kind, name in KIND_NAMES.items():
            results = [line["result"] for line in select_lines(lines, data=data, kind=kind)]
            counts = ([r["n"] for r in results], [r["positives"] for r in results])
            changed_counts = [r["changed"]["positives"] for r in results if "changed" in r]
            if results:
                rows.append((name, *map(_span, (*counts, changed_counts))))
        heads = ("injection", "stays scored", "labelled", "of them changed")
        note = (
            "Labelled beside changed stays are their neighbours. Two numbers are the least and the most of all seeds."
        )
        tables.append(Table(f"counts-{slug(data)}", f"Stays scored and injected, {data}", heads, tuple(rows), note))
    return tables


def _span(counts: list[int]) -> str:
    """`1,234`, or `1,234 – 1,250` where lines differ."""
    return " – ".join(f"{count:,}" for count in sorted({min(counts), max(counts)})) if counts else "–"
