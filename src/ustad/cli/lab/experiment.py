"""`ustad lab experiment`: the paper's experiments and detection from GPS, one command each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ustad.cli.shared import DeviceOption, choose, out
from ustad.config import ConfigError

if TYPE_CHECKING:
    from ustad.lab.evaluation.budgets import Changes
    from ustad.lab.evaluation.experiments import Cell

#: What `--try` calls the methods without a change.
AS_IS = "as-is"


def experiment(
    name: Annotated[
        str,
        typer.Argument(
            help="prediction, detection, uncertainty, scores, injections, epistemic or cases; several with commas "
            "between; all: those seven; gps: detection from true stays, and from what phones record of the same people."
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="What to run on: a preset (numosim-la, simla, simjordan), one with its number of people "
            "(numosim-la:20000), pol_atl=DIRECTORY, or a data directory; by default the three presets, for gps town "
            "and numosim-la:1000. May be repeated.",
        ),
    ] = None,
    results: Annotated[
        Path, typer.Option("--out", "-o", help="Where result files, tables, figures and page go.")
    ] = Path("results/run"),
    seeds: Annotated[
        str,
        typer.Option(
            help="1-5 or 1,4,9: run with these seeds, each with other simulated people; a number alone: train so many "
            "times, with seeds from 7 on, on the people of --data-seed."
        ),
    ] = "1-5",
    *,
    methods: Annotated[
        str | None,
        typer.Option(help="Run these methods alone, in this order, with commas between: ustad-plain,transformer."),
    ] = None,
    size: Annotated[
        str,
        typer.Option(
            help="paper: networks as in the paper, trained until validation stands still; large and huge: the same in "
            "batches of 512 and 2,048, for thousands and tens of thousands of people; small or tiny: networks to try "
            "it with."
        ),
    ] = "paper",
    search: Annotated[
        int,
        typer.Option(
            min=0,
            help="Try so many settings of each deep method and keep those with the least validation loss; 0: none.",
        ),
    ] = 0,
    category_weight: Annotated[
        float | None,
        typer.Option(
            help="Weigh kinds of place against numbers in USTAD's loss by this λ; by default as the method does."
        ),
    ] = None,
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            help="On development seeds (100 and more), run with other settings of the methods: width=128 or "
            "category_weight=5,learning_rate=0.001; `as-is` changes nothing. May be repeated.",
        ),
    ] = None,
    trials: Annotated[
        Path | None,
        typer.Option(
            "--chosen",
            help="Run each method with the settings that had the lowest validation loss among the trials (`--try`) in "
            "this directory of results.",
        ),
    ] = None,
    past: Annotated[
        bool,
        typer.Option(
            "--past/--no-past", help="Run detection again with windows that show nothing later than the event."
        ),
    ] = True,
    agents: Annotated[
        int | None, typer.Option(help="Simulate so many people; by default as many as the preset has.")
    ] = None,
    days: Annotated[
        int | None, typer.Option(help="Simulate so many days; by default as many as the preset has.")
    ] = None,
    anomalous_share: Annotated[
        float | None,
        typer.Option(help="Simulate so large a share of anomalous people, between 0 and 1; by default the preset's."),
    ] = None,
    data_seed: Annotated[int, typer.Option(help="Seed of the simulated people, where --seeds does not give one.")] = 11,
    work: Annotated[Path, typer.Option(help="Where simulated data and trained models are kept between runs.")] = Path(
        "runs/experiments"
    ),
    device: DeviceOption = "auto",
    workers: Annotated[
        int, typer.Option(min=1, help="How many processes run at the same time; they share the models to fit.")
    ] = 1,
    acceleration: Annotated[
        str,
        typer.Option(
            help="How networks are trained on a GPU: auto or off, as the setting training.acceleration; compile: each "
            "loss compiled, which pays where many networks of one shape are trained."
        ),
    ] = "auto",
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Begin no further cell after so many minutes; run again to go on.")
    ] = None,
    begin_minutes: Annotated[
        float | None,
        typer.Option(min=0.0, help="Begin to train no further network after so many minutes; those begun may end."),
    ] = None,
    fit_minutes: Annotated[
        float,
        typer.Option(
            min=0.0, help="Stop training each network after so many minutes and say so in the results; 0: never."
        ),
    ] = 0.0,
    cut_again: Annotated[
        bool, typer.Option("--cut-again", help="Run cells again whose training a limit of time had cut.")
    ] = False,
    figures_only: Annotated[
        bool, typer.Option("--figures-only", help="Run nothing; write tables, figures and page again.")
    ] = False,
    cells_only: Annotated[bool, typer.Option("--cells-only", help="Write result files only; draw nothing.")] = False,
    page: Annotated[Path | None, typer.Option(help="Write the page to this file instead of OUT/results.md.")] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Write figures to this directory instead of OUT/figures.")
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option("--also", help="Show the results of this directory on the page too. May be repeated."),
    ] = None,
) -> None:
    """Run an experiment, and write its tables, figures and page. Finished cells are not run again.

    Examples:

    - `ustad lab experiment detection --data numosim-la:2000 --seeds 5 --out results/detection`
    - `ustad lab experiment gps --data town --seeds 5 --out results/gps`
    """
    from dataclasses import replace

    from ustad.lab.evaluation.experiments import BUDGETS, EXPERIMENTS, PAPER, plan
    from ustad.lab.evaluation.page import publish
    from ustad.lab.evaluation.runner import run
    from ustad.lab.evaluation.sources import parse_source
    from ustad.tables import DataError

    choose(size, tuple(BUDGETS), "--size")
    choose(acceleration, ("auto", "compile", "off"), "--acceleration")
    names = list(PAPER) if name == "all" else name.split(",")
    for one in names:
        choose(one, (*EXPERIMENTS, "all"), "NAME")
    if not figures_only:
        sources = []
        for text in data or (["town", "numosim-la:1000"] if names == ["gps"] else ["numosim-la", "simla", "simjordan"]):
            source = parse_source(text, agents, data_seed, days, share=anomalous_share)
            if source is None:
                out.print(f"{text}: its files are not there; left out")
            else:
                sources.append(source)
        if not sources:
            raise DataError("no data is left to run on")
        label = f"{size}{f'-search{search}' if search else ''}{f'-λ{category_weight:g}' if category_weight else ''}"
        budget = replace(BUDGETS[size], search=search, category_weight=category_weight, name=label)
        turns = methods.split(",") if methods else None
        cells = [
            cell
            for changes in map(read_changes, tries or [AS_IS])
            for cell in plan(names, sources, read_seeds(seeds), budget.with_changes(changes), methods=turns, past=past)
        ]
        refuse_reported(cells)
        if trials:
            cells = with_chosen(cells, trials)
        ran = run(
            cells,
            results,
            work,
            device,
            workers=workers,
            minutes=minutes,
            fit_minutes=fit_minutes,
            begin_minutes=begin_minutes,
            cut_again=cut_again,
            acceleration=acceleration,
        )
        left = f", {ran.left} left for another run" if ran.left else ""
        out.print(f"{ran.n_done} cells run{left}; results are in {results}")
    if not cells_only:
        place = publish([results, *(also or [])], page or results / "results.md", figures or results / "figures")
        out.print(f"written: {place}")


def with_chosen(cells: list[Cell], directory: Path) -> list[Cell]:
    """The cells with the settings that the trials of a directory of results choose."""
    from dataclasses import replace

    from ustad.lab.evaluation.chosen_settings import choose_settings, chosen_for
    from ustad.lab.evaluation.experiments import EXPERIMENTS
    from ustad.lab.evaluation.result_files import read_lines

    choices = choose_settings(line for name in EXPERIMENTS for line in read_lines(directory / f"{name}.jsonl"))
    if not choices:
        raise ConfigError(f"--chosen {directory}: no trial is there; make some with --try and --out {directory}")
    return [replace(c, budget=replace(c.budget, choices=chosen_for(c.method, choices))) for c in cells]


def refuse_reported(cells: list[Cell]) -> None:
    """Nothing is chosen by simulated people that figures are reported of; own data have no such people."""
    from ustad.lab.evaluation.experiments import DEVELOPMENT_SEEDS

    for cell in cells:
        if cell.budget.changes and cell.source.path is None and cell.source.seed < DEVELOPMENT_SEEDS:
            raise ConfigError(
                f"--try is to choose by, and people of seed {cell.source.seed} are reported of: give development "
                f"seeds, such as --seeds {DEVELOPMENT_SEEDS + 1}-{DEVELOPMENT_SEEDS + 1}"
            )


def read_changes(text: str) -> Changes:
    """`width=128,blocks=5` in the order of names: whole numbers, numbers or words; nothing for `as-is`."""
    if text == AS_IS:
        return ()
    pairs = [part.partition("=")[::2] for part in text.split(",")]
    if not all(name and value for name, value in pairs) or len(dict(pairs)) < len(pairs):
        raise ConfigError(f"--try {text}: give settings as NAME=VALUE with commas between, each once, or '{AS_IS}'")
    return tuple(sorted((name, _number(value)) for name, value in pairs))


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_seeds(text: str) -> int | list[int]:
    """`5`: so many seeds of training; `1-5` or `1,4,9`: seeds of people and training."""
    try:
        if text.isdigit():
            return max(1, int(text))
        seeds = list(dict.fromkeys(n for part in text.split(",") for n in _span(part)))
    except ValueError:
        seeds = []
    if not seeds:
        raise ConfigError(f"--seeds {text}: give a number, a span (1-5) or numbers with commas between (1,4,9)")
    return seeds


def _span(part: str) -> range:
    first, dash, last = part.partition("-")
    return range(int(first), int(last if dash else first) + 1)
