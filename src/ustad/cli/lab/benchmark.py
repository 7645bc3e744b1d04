"""`ustad lab benchmark`: a public data set, from its files as published to a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ustad.cli.shared import DeviceOption, choose, out


def benchmark(
    name: Annotated[str, typer.Argument(help="numosim, urban-anomalies or geolife.")],
    data: Annotated[Path, typer.Option("--data", help="The directory that the published files were unpacked into.")],
    results: Annotated[Path, typer.Option("--out", "-o", help="Where result files and the table go.")],
    agents: Annotated[
        int | None, typer.Option(help="numosim: all anomalous agents and others up to so many (the paper: 20000).")
    ] = None,
    *,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas.")
    ] = "visit-rate,distance,transformer,sensitive-hue,ustad-plain,ustad-quick,ustad-default",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds of training, from 7 on.")] = 1,
    size: Annotated[str, typer.Option(help="paper, large, small or tiny, as for experiments.")] = "paper",
    work: Annotated[Path, typer.Option(help="Where data and models are kept.")] = Path("runs/benchmark"),
    device: DeviceOption = "auto",
    workers: Annotated[int, typer.Option(min=1, help="How many processes run at the same time.")] = 1,
    fit_minutes: Annotated[float, typer.Option(min=0.0, help="Train no network for longer; 0: no limit.")] = 0.0,
) -> None:
    """Run the protocol on public data and print a table that can be cited.

    Files: NUMOSIM's `stay_points_train.parquet`, `stay_points_test_anomalous.parquet` and `poi.parquet`; the files
    `pol_atl_*` of Urban Patterns of Life; GeoLife's `Data` directory of `.plt` files, into which the paper's six
    kinds of anomalies are put.
    """
    from ustad.lab.evaluation.experiments import BUDGETS, plan, read_results
    from ustad.lab.evaluation.fairness_tables import changed_tables, three_ways_tables
    from ustad.lab.evaluation.public_data import BENCHMARKS
    from ustad.lab.evaluation.result_tables import detection_tables, injection_tables
    from ustad.lab.evaluation.runner import run

    choose(name, tuple(BENCHMARKS), "NAME")
    choose(size, tuple(BUDGETS), "--size")
    spec = BENCHMARKS[name]
    source = spec.prepare(data, work / "data", agents, 7)
    names = methods.split(",") if spec.experiment == "detection" else None
    cells = plan([spec.experiment], [source], seeds, BUDGETS[size], methods=names, past=False)
    run(cells, results, work, device, workers=workers, fit_minutes=fit_minutes)
    lines = read_results(results)[spec.experiment]
    if spec.experiment == "detection":
        tables = [*detection_tables(lines)[:1], *three_ways_tables(lines)]
    else:
        tables = [*injection_tables(lines), *changed_tables(lines)]
    text = "\n\n".join(f"# {spec.title}: {t.title}\n\n{t.markdown()}\n{t.note}".rstrip() for t in tables)
    (results / "table.md").write_text(text + "\n")
    out.print(text, markup=False)
