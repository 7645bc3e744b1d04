"""`ustad lab benchmark`: a public data set, from its files as published to a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ustad.cli.shared import DeviceOption, choose, out


def benchmark(
    name: Annotated[str, typer.Argument(help="Which data: numosim, urban-anomalies or geolife.")],
    data: Annotated[Path, typer.Option("--data", help="The directory that the published files were unpacked into.")],
    results: Annotated[Path, typer.Option("--out", "-o", help="Where `table.md` and the result files go.")],
    agents: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of numosim, keep all anomalous people and others at random up to this many (the paper: 20000); by "
            "default everybody.",
        ),
    ] = None,
    *,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Run these methods alone, in this order, with commas between; by default "
            "visit-rate,distance,transformer,sensitive-hue,ustad-plain,ustad-quick,ustad-default, and of geolife "
            "ustad-plain,ustad-default, which are all that it has."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Train so many times, with seeds from 7 on; the table has mean and spread.")
    ] = 1,
    size: Annotated[
        str,
        typer.Option(
            help="paper: networks as in the paper; large: the same in batches of 512, for tens of thousands of people; "
            "small or tiny: networks to try it with."
        ),
    ] = "paper",
    work: Annotated[Path, typer.Option(help="Where data and trained models are kept between runs.")] = Path(
        "runs/benchmark"
    ),
    device: DeviceOption = "auto",
    workers: Annotated[int, typer.Option(min=1, help="How many processes run at the same time.")] = 1,
    fit_minutes: Annotated[
        float,
        typer.Option(
            min=0.0, help="Stop training each network after so many minutes and say so in the table; 0: never."
        ),
    ] = 0.0,
) -> None:
    """Run the protocol on public data, and print a table that can be cited.

    Files: NUMOSIM's `stay_points_train.parquet`, `stay_points_test_anomalous.parquet` and `poi.parquet`; the files
    `pol_atl_*` of Urban Patterns of Life; GeoLife's `Data` directory of `.plt` files, into which the paper's six
    kinds of anomalies are put. Finished cells are not run again.

    Examples:

    - `ustad lab benchmark numosim --data NUMOSIM_LA --agents 20000 --out results/numosim`
    - `ustad lab benchmark geolife --data "Geolife Trajectories 1.3/Data" --out results/geolife`
    """
    from ustad.lab.evaluation.benchmark_page import write_page
    from ustad.lab.evaluation.experiments import BUDGETS, plan, read_results
    from ustad.lab.evaluation.public_data import BENCHMARKS, check_agents, choose_methods
    from ustad.lab.evaluation.runner import run

    choose(name, tuple(BENCHMARKS), "NAME")
    choose(size, tuple(BUDGETS), "--size")
    check_agents(name, agents)
    names, spec = choose_methods(name, methods), BENCHMARKS[name]
    source = spec.prepare(data, work / "data", agents, 7)
    cells = plan([spec.experiment], [source], seeds, BUDGETS[size], methods=names, past=False)
    run(cells, results, work, device, workers=workers, fit_minutes=fit_minutes)
    text = write_page(spec, read_results(results))
    (results / "table.md").write_text(text)
    out.print(text, markup=False)
