"""`ustad report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ustad.cli.shared import OutOption, out
from ustad.data_error import DataError

EXTRA = "a report needs more libraries; install them with: pip install 'ustad[service]'"


def report(
    scores: Annotated[Path, typer.Argument(help="A directory that `ustad score` wrote.")],
    out_: OutOption = Path("report.html"),
    cases: Annotated[
        int, typer.Option("--cases", help="Show at least this many agents in full. Those with alerts always are.")
    ] = 100,
    map_: Annotated[
        Path | None, typer.Option("--map", help="A map to draw on: .osm.pbf, or .pmtiles of up to 12 MB.")
    ] = None,
) -> None:
    """The analyst's page of a run as one HTML file: every alert opens, with timeline, map and reason. Needs no network.

    Example: `ustad report runs/demo/scores --out report.html`
    """
    write_report = report_writer()
    write_report(scores, out_, cases=cases, map_file=map_)
    out.print(f"report: {out_} ({out_.stat().st_size / 1e6:.1f} MB); open it in a browser")


def report_writer() -> Any:
    """The function that writes a report; its libraries are optional."""
    try:
        from ustad.page.report_file import write_report
    except ModuleNotFoundError as error:
        raise DataError(EXTRA) from error
    return write_report
